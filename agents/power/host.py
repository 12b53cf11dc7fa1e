"""Access to a host's files, clocks and perf events for metering."""

import json
import os
import time
from pathlib import Path
from typing import Protocol

from agents.host_files import HostFiles
from agents.perf_event import open_event

ROOT_VARIABLE = "MILLRACE_SYSFS"
"""Environment variable: a folder that replaces `/`. Node agents that are children of a command inherit it."""

RECORDING, REFUSED = "recording.json", "refused"
"""A file in the root of a recording, and its key: path -> errno of reading it."""

_PAGE = 4096


class Readable(Protocol):
    """Open meter that is read repeatedly."""

    def read(self) -> bytes:
        """Return the current content.

        Raises:
            OSError: it cannot be read.
        """
        ...

    def close(self) -> None:
        """Close it."""
        ...


class _Reopened:
    """File that is opened for every read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.read()

    def read(self) -> bytes:
        with self._path.open("rb", buffering=0) as source:
            return source.read(_PAGE)

    def close(self) -> None:
        """Do nothing: no file is kept open."""


class _Event:
    """Open perf event."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self) -> bytes:
        return os.read(self._descriptor, 8)

    def close(self) -> None:
        os.close(self._descriptor)


def _refused(root: Path) -> dict[str, int]:
    try:
        return {str(path): int(number) for path, number in json.loads((root / RECORDING).read_text())[REFUSED].items()}
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return {}


class MeteredHost(HostFiles):
    """Real host at `/`, or a recorded one at another root."""

    def __init__(self, root: Path = Path("/")) -> None:
        super().__init__(root)
        self._refused = _refused(root) if self.is_recorded else {}

    @classmethod
    def here(cls) -> "MeteredHost":
        """Return this host, or the recording named by the environment."""
        return cls(Path(os.environ.get(ROOT_VARIABLE) or "/").resolve())

    @property
    def is_recorded(self) -> bool:
        """Whether the files are a recording without a kernel."""
        return self.root != Path("/")

    def meter(self, path: str, is_replaced: bool = False) -> Readable:
        """Open a file that is read at every sample; it is kept open on a real host.

        Args:
            path: path relative to the root.
            is_replaced: whether the file may be replaced by a new one and must be opened for every read. This is
                always assumed for recordings.

        Raises:
            OSError: it cannot be opened.
        """
        self._refuse(path)
        return _Reopened(self.root / path) if is_replaced or self.is_recorded else self.hold(path)

    def read(self, path: str) -> str:
        self._refuse(path)
        return super().read(path)

    def perf_event(self, kind: int, config: int, cpu: int) -> Readable:
        """Open a perf event of a whole CPU; its content is eight bytes in the machine's byte order.

        Args:
            kind: the PMU's `type`.
            config: the event.
            cpu: number of the CPU.

        Raises:
            OSError: the kernel does not open it, or there is no kernel.
        """
        if self.is_recorded:
            raise OSError("perf events cannot be opened in a recording")
        return _Event(open_event(kind, config, cpu))

    def _refuse(self, path: str) -> None:
        if path in self._refused:
            number = self._refused[path]
            raise OSError(number, os.strerror(number), path)

    def wait(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)

    def work(self, seconds: float) -> None:
        """Keep one CPU busy for this time, so that its counters advance."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass
