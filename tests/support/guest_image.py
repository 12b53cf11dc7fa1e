"""Image of a guest: kernel, initramfs, disk, firmware tables and SSH keys.

It is built from Debian packages, cached in the user's cache folder, and rebuilt when the packages or this recipe
change.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from guest_packages import NAMES, Apt, program_path, run_checked

RECIPE = Path(__file__).parent / "guest"
"""Files that are copied or compiled into the image."""

RECIPES = (Path(__file__), Path(__file__).with_name("guest_packages.py"))
"""Programs whose change makes an image outdated."""

MODULES = (
    "virtio_pci",
    "virtio_blk",
    "virtio_net",
    "acpi-cpufreq",
    "cpufreq_conservative",
    "cpufreq_ondemand",
    "cpufreq_powersave",
    "cpufreq_userspace",
)
"""Kernel modules that are loaded at boot, after those that they depend on."""

DISK_SIZE = "512M"
"""Most of the file is a hole."""

ACCOUNTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nsshd:x:101:65534::/run/sshd:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/shadow": "root:*:19000:0:99999:7:::\nsshd:!:19000::::::\n",
}


class Image(NamedTuple):
    """Folder with everything that qemu and SSH need."""

    folder: Path

    @property
    def kernel(self) -> Path:
        """Kernel image."""
        return self.folder / "kernel"

    @property
    def initramfs(self) -> Path:
        """Initramfs."""
        return self.folder / "initramfs"

    @property
    def disk(self) -> Path:
        """Root disk, raw ext4; guests write to snapshots."""
        return self.folder / "disk"

    @property
    def tables(self) -> Path:
        """Firmware tables with the processors' clocks."""
        return self.folder / "clocks.aml"

    @property
    def key(self) -> Path:
        """Private key of root."""
        return self.folder / "key"

    @property
    def release(self) -> str:
        """Kernel release, as in `uname -r`."""
        return (self.folder / "release").read_text()

    @property
    def host_key(self) -> str:
        """Public key of the SSH server."""
        return " ".join((self.folder / "host_key.pub").read_text().split()[:2])


def image() -> Image:
    """Return the small image: packages unpacked but not installed, a shell script as the first process."""
    return cached("guest", NAMES, [*RECIPES, RECIPE], _build)


def cached(
    kind: str, packages: Sequence[str], recipe: Sequence[Path], build: Callable[[Apt, Path, Image], None]
) -> Image:
    """Return an image from the user's cache; build it if it is missing, and remove older ones of its kind.

    Args:
        kind: name of its folder.
        packages: Debian packages; newer versions trigger a rebuild.
        recipe: files, or folders of files, whose changes trigger a rebuild.
        build: builds it from the packages, with a new folder for the root, in an existing folder.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "millrace" / kind
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(cache), tempfile.TemporaryDirectory(prefix="building-", dir=cache) as place:
        building = Path(place)
        apt = Apt(building / "apt", packages)
        made = cache / _digest(apt.listed(), recipe)
        if not made.is_dir():
            for old in cache.iterdir():
                if old.is_dir() and old != building:
                    shutil.rmtree(old)
            (building / "image").mkdir()
            (building / "root").mkdir()
            build(apt, building / "root", Image(building / "image"))
            (building / "image").rename(made)
    return Image(made)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the folder, so that two test runs of one user build one after the other."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _digest(packages: list[str], recipe: Sequence[Path]) -> str:
    files = [path for place in recipe for path in (place, *place.rglob("*")) if path.is_file()]
    content = b"".join(path.read_bytes() for path in sorted(files)) + "\n".join(packages).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def _build(apt: Apt, root: Path, made: Image) -> None:
    apt.unpack(root)
    busybox = root / "bin" / "busybox"
    (modules,) = (root / "lib" / "modules").iterdir()
    subprocess.run([str(busybox), "depmod", "-b", str(root), modules.name], check=True, timeout=60)
    make_boot(root, made)
    # The initramfs contains all required modules.
    shutil.rmtree(root / "lib" / "modules")
    shutil.rmtree(root / "boot")
    for name, text in ACCOUNTS.items():
        (root / name).write_text(text)
    (root / "init").write_bytes((RECIPE / "init").read_bytes())
    (root / "init").chmod(0o755)
    ssh = root / "etc" / "ssh"
    ssh.mkdir(exist_ok=True)
    shutil.copy(RECIPE / "sshd_config", ssh / "sshd_config")
    shutil.copy(made.folder / "host_key", ssh / "host_key")
    shutil.copy(made.key.with_suffix(".pub"), ssh / "authorized_keys")
    make_disk(root, made, DISK_SIZE)


def make_boot(root: Path, made: Image) -> None:
    """Make everything but the disk: keys, firmware tables, kernel and initramfs, from the packages in a root."""
    for name in ("key", "host_key"):
        run_checked(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "guest", "-f", str(made.folder / name)])
    run_checked(["iasl", "-p", str(made.tables.with_suffix("")), str(RECIPE / "clocks.asl")])
    (kernel,) = (root / "boot").glob("vmlinuz-*")
    release = kernel.name.removeprefix("vmlinuz-")
    shutil.copy(kernel, made.kernel)
    (made.folder / "release").write_text(release)
    made.initramfs.write_bytes(_initramfs(root, release))


def make_disk(root: Path, made: Image, size: str) -> None:
    """Make the disk: a file system with the contents of a root."""
    program = program_path("mkfs.ext4")
    assert program is not None
    run_checked([program, "-q", "-E", "root_owner=0:0", "-d", str(root), str(made.disk), size])


def _initramfs(root: Path, release: str) -> bytes:
    """Return the initramfs: a shell, the modules, and the script that loads them and mounts the disk."""
    folder = root / "lib" / "modules" / release
    modules = _in_order((folder / "modules.dep").read_text())
    files = {
        "init": (RECIPE / "initramfs").read_bytes(),
        "bin/busybox": (root / "bin" / "busybox").read_bytes(),
        "modules/order": "".join(f"{Path(path).name}\n" for path in modules).encode(),
        **{f"modules/{Path(path).name}": (folder / path).read_bytes() for path in modules},
    }
    entries = [_entry(name, 0o040755) for name in ("bin", "dev", "disk", "modules")]
    entries.append(_entry("dev/console", 0o020600, device=(5, 1)))
    entries += [_entry(name, 0o100755, content) for name, content in files.items()]
    return b"".join([*entries, _entry("TRAILER!!!", 0)])


def _in_order(dependencies: str) -> list[str]:
    """Return module files, each after those that it depends on; `dependencies` is the output of depmod."""
    lines = (line.split() for line in dependencies.splitlines())
    needed = {first.removesuffix(":"): rest for first, *rest in lines}
    path_of = {Path(path).name.partition(".")[0]: path for path in needed}
    order: list[str] = []

    def take(path: str) -> None:
        for other in needed[path]:
            take(other)
        if path not in order:
            order.append(path)

    for name in MODULES:
        take(path_of[name])
    return order


def _entry(name: str, mode: int, content: bytes = b"", device: tuple[int, int] = (0, 0)) -> bytes:
    """Return one file of a cpio archive in the kernel's format (newc), owned by root."""
    path = name.encode() + b"\0"
    numbers = (0, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(path), 0)
    head = b"070701" + b"".join(b"%08x" % number for number in numbers) + path
    return head + b"\0" * (-len(head) % 4) + content + b"\0" * (-len(content) % 4)
