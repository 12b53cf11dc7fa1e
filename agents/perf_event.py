"""`perf_event_open(2)`, which the C library does not wrap."""

import ctypes
import os
import platform

_NUMBERS = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
"""The system call's number by architecture."""

_CLOSE_ON_EXEC = 8
_EVERY_PROCESS, _NO_GROUP = -1, -1


class _Attributes(ctypes.Structure):
    """`struct perf_event_attr` as it was first published; the kernel takes the rest as zero."""

    _fields_ = (
        ("type", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("config", ctypes.c_uint64),
        ("sample_period", ctypes.c_uint64),
        ("sample_type", ctypes.c_uint64),
        ("read_format", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("wakeup_events", ctypes.c_uint32),
        ("bp_type", ctypes.c_uint32),
        ("config1", ctypes.c_uint64),
    )


def open_event(kind: int, config: int, cpu: int) -> int:
    """A descriptor of an event that counts everything on `cpu`, from 0 at this moment.

    Raises:
        OSError: the kernel refuses, or this architecture is not known here.
    """
    number = _NUMBERS.get(platform.machine())
    if number is None:
        raise OSError(f"perf_event_open is not known on {platform.machine()}")
    attributes = _Attributes(type=kind, size=ctypes.sizeof(_Attributes), config=config)
    descriptor: int = ctypes.CDLL(None, use_errno=True).syscall(
        ctypes.c_long(number),
        ctypes.byref(attributes),
        ctypes.c_int(_EVERY_PROCESS),
        ctypes.c_int(cpu),
        ctypes.c_int(_NO_GROUP),
        ctypes.c_ulong(_CLOSE_ON_EXEC),
    )
    if descriptor < 0:
        fault = ctypes.get_errno()
        raise OSError(fault, os.strerror(fault))
    return descriptor
