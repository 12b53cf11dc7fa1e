"""The image of a whole Debian: its packages installed and configured, with systemd as the first process.

It is the machine that an operator finds after Debian's installer: SSH, sudo, a user who may become root, the time kept
by systemd-timesyncd. It is built by mmdebstrap of the release that this host has, and kept like the small image.
"""

import os
import platform
import shutil
from pathlib import Path

from guest_image import RECIPE, RECIPES, Image, cached, make_boot, make_disk
from guest_packages import KERNEL, PROGRAMS, Apt, run_told
from guest_packages import why_not as why_no_guest

OPERATOR = "admin"
"""Who may log in by the image's key, and become root."""

DISK_SIZE = "6G"
"""Of which most is a hole in the file."""

DEBIAN = Path(__file__).parent / "debian"
"""Files that go into the image as they are."""

NAMES = (
    KERNEL,
    "busybox-static",
    "ca-certificates",
    "dbus",
    "iproute2",
    "kmod",
    "libpam-systemd",
    "openssh-server",
    "procps",
    "python3",
    "python3-venv",
    "sudo",
    "systemd-sysv",
    "systemd-timesyncd",
    "udev",
)
"""What is installed beside the packages that are essential."""

BUILD_S = 1800.0


def why_not() -> str | None:
    """Why no whole Debian can be built here, or None."""
    reason = why_no_guest({**PROGRAMS, "mmdebstrap": "mmdebstrap"})
    if reason:
        return reason
    release = platform.freedesktop_os_release()
    if release["ID"] != "debian":
        return f"a whole Debian is built on Debian, this is {release['ID']}"
    return None if os.geteuid() == 0 else "only root can install packages into a folder (mmdebstrap)"


def debian_image() -> Image:
    """A whole Debian, as this host's release has it today."""
    return cached("debian", NAMES, [*RECIPES, Path(__file__), RECIPE, DEBIAN], _build)


def _build(_: Apt, root: Path, made: Image) -> None:
    suite = platform.freedesktop_os_release()["VERSION_CODENAME"]
    names, recommends = f"--include={','.join(NAMES)}", "--aptopt=APT::Install-Recommends false"
    # The guest starts with a small file system of ours, not with the one that Debian would make.
    settings = ["env", "INITRD=No"]
    run_told([*settings, "mmdebstrap", "--quiet", "--variant=minbase", names, recommends, suite, str(root)], BUILD_S)
    make_boot(root, made)
    for old in [*(root / "boot").iterdir(), *(root / "etc" / "ssh").glob("ssh_host_*")]:
        old.unlink()
    shutil.copytree(DEBIAN, root, dirs_exist_ok=True, copy_function=shutil.copyfile)
    shutil.copy(made.folder / "host_key", root / "etc" / "ssh" / "ssh_host_ed25519_key")
    run_told(["chroot", str(root), "useradd", "--create-home", "--shell", "/bin/bash", "--password", "*", OPERATOR])
    (root / "etc" / "sudoers.d" / OPERATOR).write_text(f"{OPERATOR} ALL=(ALL) NOPASSWD: ALL\n")
    for home in ("root", f"home/{OPERATOR}"):
        (root / home / ".ssh").mkdir(mode=0o700, exist_ok=True)
        shutil.copy(made.key.with_suffix(".pub"), root / home / ".ssh" / "authorized_keys")
    run_told(["chroot", str(root), "chown", "-R", f"{OPERATOR}:", f"/home/{OPERATOR}/.ssh"])
    run_told(["chroot", str(root), "systemctl", "enable", "systemd-networkd"])
    # Each machine gets an identity of its own when it starts first.
    (root / "etc" / "machine-id").write_text("")
    # Where the small file system looks for the first process.
    (root / "init").symlink_to("sbin/init")
    make_disk(root, made, DISK_SIZE)
