"""What a host can do: findings in words, and the files that they are read from.

A probe is a function from `HostFiles` to a `Finding`. It reads and never writes, and it does not raise: whatever goes
wrong is its finding. Nothing but the standard library is imported: this file also runs on hosts without Millrace.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Status = Literal["ok", "absent", "denied", "unreadable"]
"""`absent`: this host has no such thing; `denied`: it has, but not for us; `unreadable`: it answers with nonsense."""


_PAGE = 4096


@dataclass(frozen=True, slots=True)
class Finding:
    """What a probe found.

    Attributes:
        status: whether it can be used by this process.
        reason: what was found, or what is in the way, in words.
    """

    status: Status
    reason: str


class Held:
    """A file that is kept open, and read again and again from its beginning."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> bytes:
        """What is in it now, up to a page.

        Raises:
            OSError: it cannot be read.
        """
        return os.pread(self._descriptor, _PAGE, 0)

    def close(self) -> None:
        """Let it go."""
        os.close(self._descriptor)


class HostFiles:
    """The files of a host below `root`, which stands for `/`, and its clocks.

    A root other than `/` holds the recorded `/sys` and `/proc` of some machine. Paths are given from the root,
    without a leading slash.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root

    def read(self, path: str) -> str:
        """The text of a file, without blanks around it.

        Raises:
            OSError: it cannot be read.
        """
        return (self.root / path).read_text(encoding="utf-8", errors="replace").strip()

    def read_if_there(self, path: str) -> str | None:
        """The text of a file, or None when it cannot be read."""
        try:
            return self.read(path)
        except OSError:
            return None

    def names(self, path: str) -> list[str]:
        """The names in a folder, in order; none when there is no such folder."""
        try:
            return sorted(entry.name for entry in (self.root / path).iterdir())
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder, as far as this process may see."""
        try:
            return (self.root / path).exists()
        except OSError:
            return False

    def is_writable(self, path: str) -> bool:
        """Whether this process may write there; never on a file system that is mounted read-only."""
        return os.access(self.root / path, os.W_OK)

    def write(self, path: str, text: str) -> None:
        """Write a file that is there already, in one system call, as the kernel's files want it.

        Raises:
            OSError: it is not there, may not be written, or the kernel does not take the value.
        """
        descriptor = os.open(self.root / path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def hold(self, path: str) -> Held:
        """Open a file that will be read often.

        Raises:
            OSError: it cannot be opened.
        """
        return Held(self.root / path)

    def monotonic_ns(self) -> int:
        """The monotonic clock, which stands still while the host is suspended."""
        return time.monotonic_ns()

    def boottime_ns(self) -> int:
        """The clock since boot, which goes on while the host is suspended."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def cpu_flags(self) -> list[str]:
        """What the first CPU can do, in the kernel's words; none where it does not say so."""
        lines = (self.read_if_there("proc/cpuinfo") or "").splitlines()
        return next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])

    @property
    def is_virtual(self) -> bool:
        """Whether the CPU says that it is one of a virtual machine."""
        return "hypervisor" in self.cpu_flags()

    def check_number(self, path: str) -> Finding | None:
        """None when the file holds a whole number; otherwise what is wrong with it."""
        try:
            text = self.read(path)
            int(text)
        except FileNotFoundError:
            return Finding("absent", f"there is no /{path}")
        except PermissionError:
            return Finding("denied", f"/{path} may not be read by this user")
        except OSError as fault:
            return Finding("unreadable", f"/{path} cannot be read: {fault.strerror}")
        except ValueError:
            return Finding("unreadable", f"/{path} holds {text[:40]!r}, not a number")
        return None
