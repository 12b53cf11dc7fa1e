"""What belongs to a network namespace, and removing all of it.

A process belongs to a namespace when the kernel says that it is in it; its name and its command line say nothing.
"""

import os
from contextlib import suppress
from pathlib import Path

from campaign.emulation.commands import ip
from campaign.process import Process, end, identify
from inventory.errors import RunError

NAMESPACES = Path("/run/netns")


def has_namespace(namespace: str) -> bool:
    """Whether there is a network namespace of this name."""
    return (NAMESPACES / namespace).exists()


def members(namespace: str) -> list[Process]:
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
    survivors: set[Process] = set()
    # What is being ended may still start others: look again until nothing new is found.
    while found := [process for process in members(namespace) if process not in survivors]:
        survivors.update(end(found))
    if survivors:
        raise RunError(f"{namespace}: process {min(p.pid for p in survivors)} cannot be ended")
    if not has_namespace(namespace):
        return False
    ip([f"netns del {namespace}"])
    return True
