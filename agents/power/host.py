"""A host's files and clocks, and what only metering wants of a host besides."""

import json
import os
import time
from pathlib import Path
from typing import Protocol

from agents.host_files import HostFiles
from agents.perf_event import open_event

ROOT_VARIABLE = "MILLRACE_SYSFS"
"""In the environment: a folder that stands for `/`. Node agents that are children of a command inherit it."""

RECORDING, REFUSED = "recording.json", "refused"
"""A file in the root of a recording, and its key: path -> number of the error that reading it gave."""

_PAGE = 4096


class Readable(Protocol):
    """What is read again and again."""

    def read(self) -> bytes:
        """What is in it now.

        Raises:
            OSError: it cannot be read.
        """
        ...

    def close(self) -> None:
        """Let it go."""
        ...


class _Reopened:
    """A file that is opened for every read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.read()

    def read(self) -> bytes:
        with self._path.open("rb", buffering=0) as source:
            return source.read(_PAGE)

    def close(self) -> None:
        """Nothing is held."""


class _Event:
    """An open event of the kernel's performance counters."""

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
    """The real host below `/`, or a recorded one below another root."""

    def __init__(self, root: Path = Path("/")) -> None:
        super().__init__(root)
        self._refused = _refused(root) if self.is_recorded else {}

    @classmethod
    def here(cls) -> "MeteredHost":
        """This host, or the recording that the environment names."""
        return cls(Path(os.environ.get(ROOT_VARIABLE) or "/").resolve())

    @property
    def is_recorded(self) -> bool:
        """Whether the files are a recording, behind which there is no kernel."""
        return self.root != Path("/")

    def meter(self, path: str, is_replaced: bool = False) -> Readable:
        """A file that is read at every sample: held open on a real host.

        Args:
            path: from the root.
            is_replaced: whether new files take its place, so that it must be opened anew every time. Recordings are:
                whoever replays one may do so.

        Raises:
            OSError: it cannot be opened.
        """
        self._refuse(path)
        return _Reopened(self.root / path) if is_replaced or self.is_recorded else self.hold(path)

    def read(self, path: str) -> str:
        self._refuse(path)
        return super().read(path)

    def perf_event(self, kind: int, config: int, cpu: int) -> Readable:
        """A counter of the whole of `cpu`, as eight bytes in the machine's order.

        Args:
            kind: the PMU's `type`.
            config: which event.
            cpu: its number.

        Raises:
            OSError: the kernel does not open it, or there is no kernel.
        """
        if self.is_recorded:
            raise OSError("a recording has no kernel that could open a perf event")
        return _Event(open_event(kind, config, cpu))

    def _refuse(self, path: str) -> None:
        if path in self._refused:
            number = self._refused[path]
            raise OSError(number, os.strerror(number), path)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        time.sleep(seconds)

    def work(self, seconds: float) -> None:
        """Keep one CPU busy for that long, so that its counters have something to count."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass
