"""Going into a network namespace and out again.

The kernel keeps the network namespace per thread. Sockets belong to the namespace in which they were made, wherever
they are used later; threads and processes start in the namespace of the thread that starts them.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from inventory.errors import RunError, UnfitError

_CLONE_NEWNET = 0x40000000
_HERE = Path("/proc/thread-self/ns/net")


def enter(namespace: Path) -> None:
    """Take the whole process into the network namespace at `namespace`, for good.

    Raises:
        RunError: other threads run already; they would stay outside.
        UnfitError: there is no such namespace, or the kernel does not let us in.
    """
    threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - names are counted, not used
    if threads > 1:
        raise RunError(f"{namespace}: {threads} threads run already, and would stay outside of the namespace")
    handle = _open(namespace)
    try:
        _set(handle, namespace)
    finally:
        os.close(handle)


@contextmanager
def inside(namespace: Path) -> Iterator[None]:
    """Run a block in the network namespace at `namespace`; only the calling thread goes in.

    Raises:
        UnfitError: there is no such namespace, or the kernel does not let us in.
    """
    home = _open(_HERE)
    try:
        there = _open(namespace)
        try:
            _set(there, namespace)
        finally:
            os.close(there)
        try:
            yield
        finally:
            _set(home, _HERE)
    finally:
        os.close(home)


def is_inside(namespace: Path) -> bool:
    """Whether the calling thread is in the network namespace at `namespace`."""
    try:
        return namespace.samefile(_HERE)
    except OSError:
        return False


def _open(namespace: Path) -> int:
    try:
        return os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as fault:
        raise UnfitError(f"{namespace}: the network namespace cannot be opened: {fault.strerror}") from None


def _set(handle: int, namespace: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(handle, _CLONE_NEWNET) != 0:
        raise UnfitError(f"{namespace}: cannot be entered: {os.strerror(ctypes.get_errno())}")
