"""Image of a complete Debian system: packages installed and configured, systemd as the first process.

It corresponds to a machine after Debian's installer: SSH, sudo, a user who may become root, systemd-timesyncd. It is
built by mmdebstrap from the release of this host, and cached like the small image.
"""

import os
import platform
import shutil
from pathlib import Path

from guest_image import RECIPE, RECIPES, Image, cached, make_boot, make_disk
from guest_packages import KERNEL, PROGRAMS, Apt, run_checked
from guest_packages import unsupported_reason as guest_unsupported_reason

OPERATOR = "admin"
"""User who may log in with the image's key and become root."""

DISK_SIZE = "6G"
"""Most of the file is a hole."""

DEBIAN = Path(__file__).parent / "debian"
"""Files that are copied into the image."""

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
"""Packages that are installed in addition to the essential ones."""

BUILD_S = 1800.0


def unsupported_reason() -> str | None:
    """Return why the image cannot be built on this host, or None."""
    reason = guest_unsupported_reason({**PROGRAMS, "mmdebstrap": "mmdebstrap"})
    if reason:
        return reason
    release = platform.freedesktop_os_release()
    if release["ID"] != "debian":
        return f"a whole Debian is built on Debian, this is {release['ID']}"
    return None if os.geteuid() == 0 else "only root can install packages into a folder (mmdebstrap)"


def debian_image() -> Image:
    """Return the image of this host's Debian release, built if needed."""
    return cached("debian", NAMES, [*RECIPES, Path(__file__), RECIPE, DEBIAN], _build)


def _build(_: Apt, root: Path, made: Image) -> None:
    suite = platform.freedesktop_os_release()["VERSION_CODENAME"]
    names, recommends = f"--include={','.join(NAMES)}", "--aptopt=APT::Install-Recommends false"
    # The guest boots with our own small initramfs; Debian's is not generated.
    settings = ["env", "INITRD=No"]
    run_checked([*settings, "mmdebstrap", "--quiet", "--variant=minbase", names, recommends, suite, str(root)], BUILD_S)
    make_boot(root, made)
    for old in [*(root / "boot").iterdir(), *(root / "etc" / "ssh").glob("ssh_host_*")]:
        old.unlink()
    shutil.copytree(DEBIAN, root, dirs_exist_ok=True, copy_function=shutil.copyfile)
    shutil.copy(made.folder / "host_key", root / "etc" / "ssh" / "ssh_host_ed25519_key")
    run_checked(["chroot", str(root), "useradd", "--create-home", "--shell", "/bin/bash", "--password", "*", OPERATOR])
    (root / "etc" / "sudoers.d" / OPERATOR).write_text(f"{OPERATOR} ALL=(ALL) NOPASSWD: ALL\n")
    for home in ("root", f"home/{OPERATOR}"):
        (root / home / ".ssh").mkdir(mode=0o700, exist_ok=True)
        shutil.copy(made.key.with_suffix(".pub"), root / home / ".ssh" / "authorized_keys")
    run_checked(["chroot", str(root), "chown", "-R", f"{OPERATOR}:", f"/home/{OPERATOR}/.ssh"])
    run_checked(["chroot", str(root), "systemctl", "enable", "systemd-networkd"])
    # Each machine generates its own identity at its first boot.
    (root / "etc" / "machine-id").write_text("")
    # The initramfs starts this path.
    (root / "init").symlink_to("sbin/init")
    make_disk(root, made, DISK_SIZE)
