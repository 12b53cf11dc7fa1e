"""Debian packages for a guest, downloaded by apt of this machine; unpacked, not installed.

The machine's sources, proxies and keys are used and its state is not changed; no root is needed.
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
"""Packages of a guest; their dependencies are added."""

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
"""Program -> its Debian package."""

UNUSED_FOLDERS = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "var/cache")
"""Folders that no program of a guest reads."""


def unsupported_reason(programs: Mapping[str, str] = PROGRAMS) -> str | None:
    """Return why no guest can be built on this host with these programs (program -> package), or None."""
    if platform.machine() != "x86_64":
        return f"a guest is an x86-64 machine, this is {platform.machine()}"
    missing = [program for program in programs if program_path(program) is None]
    if missing:
        packages = " ".join(sorted({programs[program] for program in missing}))
        return f"no {', '.join(missing)} on this machine (Debian: apt install {packages})"
    known = subprocess.run(["apt-cache", "show", KERNEL], capture_output=True, check=False, timeout=60)
    return None if known.returncode == 0 else f"apt knows no package {KERNEL} (not Debian, or before apt update)"


def program_path(name: str) -> str | None:
    """Return the path of a program; some are only in the path of root."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


class Apt:
    """apt of this machine with an empty state of its own.

    Args:
        folder: empty folder for state and downloads; temporary.
        names: packages; their dependencies are added.
    """

    def __init__(self, folder: Path, names: Sequence[str] = NAMES) -> None:
        self._folder = folder
        self._names = names
        (folder / "archives" / "partial").mkdir(parents=True)
        (folder / "status").touch()

    def listed(self) -> list[str]:
        """Return the files to download, a line per file with its digest; new versions change it."""
        said = self._install("--print-uris")
        return sorted(line for line in said.splitlines() if line.startswith("'"))

    def unpack(self, root: Path) -> None:
        """Download the packages and unpack them into a new folder."""
        self._install("--download-only")
        for package in sorted((self._folder / "archives").glob("*.deb")):
            subprocess.run(["dpkg", "-x", str(package), str(root)], check=True, timeout=300)
        for name in UNUSED_FOLDERS:
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
        return run_checked(["apt-get", "-q", "-y", *words, option, "install", *self._names])


def run_checked(command: Sequence[str], seconds: float = 600) -> str:
    """Return the output of a command that must succeed; an error shows its output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout
