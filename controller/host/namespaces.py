"""Namespaces and mounts: system calls that Python's library lacks, iproute2 commands, and processes in a namespace.

Membership is read from the kernel (`/proc/PID/ns/net`), never from names or command lines of processes.
"""

import os
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from controller.host.process_identity import ProcessIdentity, end_processes, identify
from inventory.errors import RunError, UnfitError
from inventory.libc import LIBC, PARENT_DEATH_SIGNAL, checked, set_property

NEW_MOUNTS, NEW_CGROUPS, NEW_HOSTNAME, NEW_IPC, NEW_PIDS = 0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x20000000
NEW_USERS, NEW_NETWORK = 0x10000000, 0x40000000
"""Namespaces for `unshare` (`CLONE_NEW*` of sched.h)."""

READ_ONLY, REMOUNT, BIND, RECURSIVE, PRIVATE = 0x1, 0x20, 0x1000, 0x4000, 0x40000
"""Flags for `mount` (`MS_*` of sys/mount.h)."""

_DETACH = 2
_IPROUTE2_S = 30
"""Timeout of a batch of commands."""

NAMESPACES = Path("/run/netns")


def unshare(namespaces: int) -> None:
    """Move the calling process into new namespaces; a new pid namespace applies to its children only."""
    checked(LIBC.unshare(namespaces), "unshare")


def mount(source: str | Path, target: Path, kind: str | None = None, flags: int = 0, options: str = "") -> None:
    """See mount(2)."""
    arguments = str(source).encode(), str(target).encode(), kind and kind.encode(), flags, options.encode() or None
    checked(LIBC.mount(*arguments), f"mount {kind or source} on {target}")


def change_root(root: Path) -> None:
    """Make the mount `root` the root file system, and unmount the old one."""
    os.chdir(root)
    # Both arguments may be the same folder: the old root is then mounted on top and can be unmounted.
    checked(LIBC.pivot_root(b".", b"."), f"pivot_root {root}")
    checked(LIBC.umount2(b".", _DETACH), "umount of the old root")
    os.chdir("/")


def die_with_parent(number: int) -> None:
    """Have the kernel send this signal to the caller when its parent ends."""
    checked(set_property(PARENT_DEATH_SIGNAL, number), "prctl")


def ip(commands: Iterable[str], namespace: str | None = None) -> None:
    """Run `ip` commands in the network namespace `namespace`; stop at the first failure.

    Raises:
        UnfitError: `ip` is not installed or not permitted.
        RunError: a command failed; the message contains the command and the kernel's reply.
    """
    _batch("ip", list(commands), namespace)


def tc(commands: Iterable[str], namespace: str | None = None) -> None:
    """Run `tc` commands; see `ip`."""
    _batch("tc", list(commands), namespace)


def _batch(program: str, commands: list[str], namespace: str | None) -> None:
    where = ["-n", namespace] if namespace else []
    try:
        done = subprocess.run(
            [program, *where, "-batch", "-"],
            input="\n".join(commands) + "\n",
            capture_output=True,
            text=True,
            check=False,
            timeout=_IPROUTE2_S,
        )
    except FileNotFoundError:
        raise UnfitError(f"there is no {program!r} on this host (package iproute2)") from None
    except subprocess.TimeoutExpired:
        raise RunError(f"{program}: no answer within {_IPROUTE2_S} s") from None
    if done.returncode == 0:
        return
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    failed = next((line for line in lines if line.startswith("Command failed")), "")
    number = failed.rpartition(":")[2]
    command = commands[int(number) - 1] if number.isdigit() and 0 < int(number) <= len(commands) else ""
    answer = "; ".join(line for line in lines if line is not failed) or f"status {done.returncode}"
    command_line = " ".join(filter(None, [program, *where, command]))
    kind = UnfitError if "Operation not permitted" in answer or "Permission denied" in answer else RunError
    raise kind(f"{command_line}: {answer}")


def has_namespace(namespace: str) -> bool:
    """Return whether a network namespace of this name exists."""
    return (NAMESPACES / namespace).exists()


def members(namespace: str) -> list[ProcessIdentity]:
    """Return the processes in a network namespace, without the caller; none if it does not exist."""
    try:
        wanted = (NAMESPACES / namespace).stat()
    except OSError:
        return []
    processes = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            there = (entry / "ns" / "net").stat()
            process = identify(int(entry.name))
            if process and (there.st_dev, there.st_ino) == (wanted.st_dev, wanted.st_ino):
                processes.append(process)
    return processes


def remove_namespace(namespace: str) -> bool:
    """End the processes in a network namespace and remove it; return whether it existed.

    Raises:
        RunError: a process cannot be ended, or the namespace cannot be removed.
    """
    survivors: set[ProcessIdentity] = set()
    # Processes may start others while they are ended: repeat until none is found.
    while left := [process for process in members(namespace) if process not in survivors]:
        survivors.update(end_processes(left))
    if survivors:
        raise RunError(f"{namespace}: process {min(p.pid for p in survivors)} cannot be ended")
    if not has_namespace(namespace):
        return False
    ip([f"netns del {namespace}"])
    return True


def enter(namespace: Path) -> None:
    """Move the calling thread into the network namespace at `namespace`.

    Raises:
        UnfitError: there is no such namespace, or entering it is not permitted.
    """
    try:
        descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
        try:
            checked(LIBC.setns(descriptor, 0), f"setns {namespace}")
        finally:
            os.close(descriptor)
    except OSError as fault:
        raise UnfitError(f"{namespace}: cannot be entered: {os.strerror(fault.errno or 0)}") from None


@contextmanager
def inside(namespace: Path) -> Iterator[None]:
    """Run a block in the network namespace at `namespace`; only the calling thread enters it.

    Raises:
        UnfitError: there is no such namespace, or entering it is not permitted.
    """
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        enter(namespace)
        try:
            yield
        finally:
            enter(Path(f"/proc/self/fd/{home}"))
    finally:
        os.close(home)
