"""Debian packages for a guest: found and fetched by the apt of this machine, unpacked and not installed.

The machine's own sources, proxies and keys are used, and nothing of its state is touched: no root is needed.
"""

import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

KERNEL = "linux-image-cloud-amd64"

NAMES = (
    KERNEL,
    "base-files",
    "busybox-static",
    "coreutils",
    "dash",
    "grep",
    "iproute2",
    "mount",
    "openssh-server",
    "procps",
    "python3",
    "sed",
)
"""What is in a guest; what these depend on comes with them."""

PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "iasl": "acpica-tools",
    "mkfs.ext4": "e2fsprogs",
    "dpkg": "dpkg",
    "apt-get": "apt",
    "apt-cache": "apt",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
}
"""Program -> Debian's package of it."""

UNREAD = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "var/cache")
"""Folders that no program of a guest reads."""


def why_not(programs: Mapping[str, str] = PROGRAMS) -> str | None:
    """Why no guest can be built here with these programs (program -> package), or None."""
    if platform.machine() != "x86_64":
        return f"a guest is an x86-64 machine, this is {platform.machine()}"
    missing = [program for program in programs if program_path(program) is None]
    if missing:
        packages = " ".join(sorted({programs[program] for program in missing}))
        return f"no {', '.join(missing)} on this machine (Debian: apt install {packages})"
    known = subprocess.run(["apt-cache", "show", KERNEL], capture_output=True, check=False, timeout=60)
    return None if known.returncode == 0 else f"apt knows no package {KERNEL} (not Debian, or before apt update)"


def program_path(name: str) -> str | None:
    """Where a program is; file systems are made by programs that only root has in its path."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


class Apt:
    """This machine's apt with a state of its own, in which nothing is installed.

    Args:
        folder: for what it keeps and fetches; empty, and gone afterwards.
        names: the packages; what these depend on comes with them.
    """

    def __init__(self, folder: Path, names: Sequence[str] = NAMES) -> None:
        self._folder = folder
        self._names = names
        (folder / "archives" / "partial").mkdir(parents=True)
        (folder / "status").touch()

    def listed(self) -> list[str]:
        """What would be fetched, a line per file with its digest; the same until the distribution has newer ones."""
        said = self._install("--print-uris")
        return sorted(line for line in said.splitlines() if line.startswith("'"))

    def unpack(self, root: Path) -> None:
        """Fetch the packages and unpack them into a new folder."""
        self._install("--download-only")
        for package in sorted((self._folder / "archives").glob("*.deb")):
            subprocess.run(["dpkg", "-x", str(package), str(root)], check=True, timeout=300)
        for name in UNREAD:
            shutil.rmtree(root / name, ignore_errors=True)

    def _install(self, option: str) -> str:
        settings = {
            "Dir::State::status": self._folder / "status",
            "Dir::Cache": self._folder,
            "Debug::NoLocking": "true",
            "APT::Sandbox::User": "root",
            "APT::Install-Recommends": "false",
        }
        words = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        return run_told(["apt-get", "-q", "-y", *words, option, "install", *self._names])


def run_told(command: Sequence[str], seconds: float = 600) -> str:
    """What a command prints; its errors are told when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout
