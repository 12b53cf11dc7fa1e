"""Network namespaces: their processes, removal, and entering them.

Membership is read from the kernel (`/proc/PID/ns/net`), never from names or command lines of processes.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from controller.host import syscalls
from controller.host.iproute2 import ip
from controller.host.process_identity import ProcessIdentity, end, identify
from inventory.errors import RunError, UnfitError

NAMESPACES = Path("/run/netns")


def has_namespace(namespace: str) -> bool:
    """Return whether a network namespace of this name exists."""
    return (NAMESPACES / namespace).exists()


def members(namespace: str) -> list[ProcessIdentity]:
    """Return the processes in a network namespace, without the caller; none if it does not exist."""
    try:
        wanted = (NAMESPACES / namespace).stat()
    except OSError:
        return []
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            there = (entry / "ns" / "net").stat()
            process = identify(int(entry.name))
            if process and (there.st_dev, there.st_ino) == (wanted.st_dev, wanted.st_ino):
                found.append(process)
    return found


def remove_namespace(namespace: str) -> bool:
    """End the processes in a network namespace and remove it; return whether it existed.

    Raises:
        RunError: a process cannot be ended, or the namespace cannot be removed.
    """
    survivors: set[ProcessIdentity] = set()
    # Processes may start others while they are ended: repeat until none is found.
    while found := [process for process in members(namespace) if process not in survivors]:
        survivors.update(end(found))
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
        syscalls.enter(namespace)
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
