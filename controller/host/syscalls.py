"""System calls missing from Python's library: namespaces and mounts. Imports the standard library only."""

import ctypes
import os
from pathlib import Path

NEW_MOUNTS, NEW_CGROUPS, NEW_HOSTNAME, NEW_IPC, NEW_PIDS = 0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x20000000
NEW_USERS, NEW_NETWORK = 0x10000000, 0x40000000
"""Namespaces for `unshare` (`CLONE_NEW*` of sched.h)."""

READ_ONLY, REMOUNT, BIND, RECURSIVE, PRIVATE = 0x1, 0x20, 0x1000, 0x4000, 0x40000
"""Flags for `mount` (`MS_*` of sys/mount.h)."""

_DETACH = 2
_DIES_WITH_PARENT = 1
_libc = ctypes.CDLL(None, use_errno=True)


def unshare(namespaces: int) -> None:
    """Move the calling process into new namespaces; a new pid namespace applies to its children only."""
    _check(_libc.unshare(namespaces), "unshare")


def enter(namespace: Path) -> None:
    """Move the calling thread into the namespace of a file.

    Raises:
        OSError: there is no such namespace, or entering it is not permitted.
    """
    descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.setns(descriptor, 0), f"setns {namespace}")
    finally:
        os.close(descriptor)


def mount(source: str | Path, target: Path, kind: str | None = None, flags: int = 0, options: str = "") -> None:
    """See mount(2)."""
    arguments = str(source).encode(), str(target).encode(), kind and kind.encode(), flags, options.encode() or None
    _check(_libc.mount(*arguments), f"mount {kind or source} on {target}")


def change_root(root: Path) -> None:
    """Make the mount `root` the root file system, and unmount the old one."""
    os.chdir(root)
    # Both arguments may be the same folder: the old root is then mounted on top and can be unmounted.
    _check(_libc.pivot_root(b".", b"."), f"pivot_root {root}")
    _check(_libc.umount2(b".", _DETACH), "umount of the old root")
    os.chdir("/")


def die_with_parent(number: int) -> None:
    """Have the kernel send this signal to the caller when its parent ends."""
    _check(_libc.prctl(_DIES_WITH_PARENT, number, 0, 0, 0), "prctl")


def _check(answer: int, what: str) -> None:
    if answer != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
