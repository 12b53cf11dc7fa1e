"""Access to a host: its files, clocks and perf events; and findings about its capabilities.

A probe is a function from `HostFiles` to a `ProbeResult`. It only reads, and does not raise: errors become findings.
This file imports the standard library only, because it also runs on hosts without Millrace.
"""

import ctypes
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Status = Literal["ok", "absent", "denied", "unreadable"]
"""`absent`: not on this host; `denied`: no permission; `unreadable`: invalid contents."""


_PAGE = 4096

_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
"""Number of `perf_event_open(2)`, which the C library does not wrap, by architecture."""

_CLOSE_ON_EXEC = 8
_EVERY_PROCESS, _NO_GROUP = -1, -1


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Result of a probe.

    Attributes:
        status: whether this process can use the probed feature.
        reason: description of the feature or of the obstacle.
    """

    status: Status
    reason: str


class Held:
    """A file that is kept open, and read repeatedly from its beginning."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> bytes:
        """Return the current contents, at most one page.

        Raises:
            OSError: it cannot be read.
        """
        return os.pread(self._descriptor, _PAGE, 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


class HostFiles:
    """The files of a host below `root`, which stands for `/`, and its clocks.

    A root other than `/` contains the recorded `/sys` and `/proc` of a machine. Paths are relative to the root, without
    a leading slash.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root

    def read(self, path: str) -> str:
        """Return the text of a file, without surrounding whitespace.

        Raises:
            OSError: it cannot be read.
        """
        return (self.root / path).read_text(encoding="utf-8", errors="replace").strip()

    def read_if_there(self, path: str) -> str | None:
        """Return the text of a file, or None if it cannot be read."""
        try:
            return self.read(path)
        except OSError:
            return None

    @property
    def boot_id(self) -> str | None:
        """The kernel's random id of this boot; None when it cannot be read."""
        return self.read_if_there("proc/sys/kernel/random/boot_id") or None

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a folder; none if there is no such folder."""
        try:
            return sorted(entry.name for entry in (self.root / path).iterdir())
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        """Return whether there is such a file or folder that this process can see."""
        try:
            return (self.root / path).exists()
        except OSError:
            return False

    def is_writable(self, path: str) -> bool:
        """Return whether this process may write the file; false on a file system that is mounted read-only."""
        return os.access(self.root / path, os.W_OK)

    def write(self, path: str, text: str) -> None:
        """Write an existing file in one system call, as kernel files require.

        Raises:
            OSError: it does not exist, may not be written, or the kernel rejects the value.
        """
        descriptor = os.open(self.root / path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def hold(self, path: str) -> Held:
        """Open a file for repeated reading.

        Raises:
            OSError: it cannot be opened.
        """
        return Held(self.root / path)

    def monotonic_ns(self) -> int:
        """Return the monotonic clock, which stops while the host is suspended."""
        return time.monotonic_ns()

    def boottime_ns(self) -> int:
        """Return the clock since boot, which continues while the host is suspended."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def cpu_flags(self) -> list[str]:
        """Return the feature flags of the first CPU, as named by the kernel; none if it lists none."""
        lines = (self.read_if_there("proc/cpuinfo") or "").splitlines()
        return next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])

    @property
    def is_virtual(self) -> bool:
        """True if the CPU reports a hypervisor."""
        return "hypervisor" in self.cpu_flags()

    def check_number(self, path: str) -> ProbeResult | None:
        """Return None if the file contains an integer; otherwise the problem."""
        try:
            text = self.read(path)
            int(text)
        except FileNotFoundError:
            return ProbeResult("absent", f"there is no /{path}")
        except PermissionError:
            return ProbeResult("denied", f"/{path} may not be read by this user")
        except OSError as fault:
            return ProbeResult("unreadable", f"/{path} cannot be read: {fault.strerror}")
        except ValueError:
            return ProbeResult("unreadable", f"/{path} holds {text[:40]!r}, not a number")
        return None


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
    """Return a descriptor of an event that counts everything on `cpu`, from 0 at this moment.

    Raises:
        OSError: the kernel refuses, or its number is unknown for this architecture.
    """
    number = _PERF_EVENT_OPEN.get(platform.machine())
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
