"""What belongs to a network namespace, and removing all of it.

A process belongs to a namespace when the kernel says that it is in it; its name and its command line say nothing.
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
    """Whether there is a network namespace of this name."""
    return (NAMESPACES / namespace).exists()


def members(namespace: str) -> list[ProcessIdentity]:
    """The processes in the network namespace `namespace`, the caller left out; none when it does not exist."""
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
    """End the processes in a network namespace and remove it; whether it was there.

    Raises:
        RunError: a process cannot be ended, or the namespace cannot be removed.
    """
    survivors: set[ProcessIdentity] = set()
    # What is being ended may still start others: look again until nothing new is found.
    while found := [process for process in members(namespace) if process not in survivors]:
        survivors.update(end(found))
    if survivors:
        raise RunError(f"{namespace}: process {min(p.pid for p in survivors)} cannot be ended")
    if not has_namespace(namespace):
        return False
    ip([f"netns del {namespace}"])
    return True


def enter(namespace: Path) -> None:
    """Take the calling thread into the network namespace at `namespace`, for good.

    Raises:
        UnfitError: there is no such namespace, or the kernel does not let us in.
    """
    try:
        syscalls.enter(namespace)
    except OSError as fault:
        raise UnfitError(f"{namespace}: cannot be entered: {os.strerror(fault.errno or 0)}") from None


@contextmanager
def inside(namespace: Path) -> Iterator[None]:
    """Run a block in the network namespace at `namespace`; only the calling thread goes in.

    Raises:
        UnfitError: there is no such namespace, or the kernel does not let us in.
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
