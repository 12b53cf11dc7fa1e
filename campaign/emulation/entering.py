"""Going into a network namespace and out again.

The kernel keeps the network namespace per thread. Sockets belong to the namespace in which they were made, wherever
they are used later; threads and processes start in the namespace of the thread that starts them.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from campaign.emulation import system_calls
from inventory.errors import UnfitError


def enter(namespace: Path) -> None:
    """Take the calling thread into the network namespace at `namespace`, for good.

    Raises:
        UnfitError: there is no such namespace, or the kernel does not let us in.
    """
    try:
        system_calls.enter(namespace)
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
