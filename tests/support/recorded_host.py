"""Recorded tree with scripted values and errors, on a clock that a test advances."""

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from agents.power.reader import MeteredHost

Script = Callable[[float], "str | bytes | OSError"]
"""Seconds since the start, suspended time included -> content of the file."""

CLOCK_READ_NS = 700
"""Cost of reading a clock."""


def fault(number: int) -> OSError:
    """Return an error as the kernel raises it."""
    return OSError(number, os.strerror(number))


DENIED = fault(errno.EACCES)


def rapl_counter(
    joules: Callable[[float], float], unit_uj: float, start_units: int = 0, bits: int | None = 32
) -> Script:
    """Return a powercap counter: a wrapping register of whole units, shown in whole microjoules."""

    def value_at(seconds: float) -> str:
        units = start_units + int(joules(seconds) * 1e6 / unit_uj)
        if bits is not None:
            units %= 2**bits
        return str(units * round(unit_uj * 1000) // 1000)

    return value_at


def constant_power(watts: float) -> Callable[[float], float]:
    """Return the energy of a constant power, in joules."""
    return lambda seconds: watts * seconds


def square_wave(low: float, high: float, half_s: float) -> Callable[[float], float]:
    """Return the energy of a power that alternates between `low` and `high` every `half_s` seconds, in joules."""

    def joules(seconds: float) -> float:
        whole, rest = divmod(seconds, 2 * half_s)
        return whole * (low + high) * half_s + low * min(rest, half_s) + high * max(0.0, rest - half_s)

    return joules


class RecordedHost(MeteredHost):
    """Tree below `root`; files with a script have scripted contents, all others their own."""

    def __init__(
        self, root: Path, scripts: Mapping[str, Script] | None = None, sleeps: Sequence[tuple[float, float]] = ()
    ) -> None:
        """Start at second 0.

        Args:
            root: tree with at least an empty file for every script.
            scripts: path -> script; `perf CONFIG CPU` is an event.
            sleeps: (when, how long): times of the monotonic clock at which the host is suspended.
        """
        super().__init__(root)
        self.scripts = dict(scripts or {})
        self._sleeps = sleeps
        self._now_ns = 0

    @property
    def seconds(self) -> float:
        """True time since the start."""
        return self._boot_ns() / 1e9

    def _boot_ns(self) -> int:
        slept = sum(long for when, long in self._sleeps if when * 1e9 <= self._now_ns)
        return self._now_ns + round(slept * 1e9)

    def read(self, path: str) -> str:
        if path not in self.scripts:
            return super().read(path)
        value = self.scripts[path](self.seconds)
        if isinstance(value, OSError):
            raise value
        return value.decode() if isinstance(value, bytes) else value

    def meter(self, path: str, is_replaced: bool = False) -> "ScriptedFile":
        self.read(path)
        return ScriptedFile(self, path)

    def perf_event(self, kind: int, config: int, cpu: int) -> "ScriptedFile":
        key = f"perf {config} {cpu}"
        if key not in self.scripts:
            raise fault(errno.ENODEV)
        return ScriptedFile(self, key)

    def monotonic_ns(self) -> int:
        self._now_ns += CLOCK_READ_NS
        return self._now_ns

    def boottime_ns(self) -> int:
        self._now_ns += CLOCK_READ_NS
        return self._boot_ns()

    def wait(self, seconds: float) -> None:
        self._now_ns += round(seconds * 1e9)

    def work(self, seconds: float) -> None:
        self.wait(seconds)


class ScriptedFile:
    """An open file of a recorded host."""

    def __init__(self, host: RecordedHost, path: str) -> None:
        self._host, self._path = host, path

    def read(self) -> bytes:
        script = self._host.scripts.get(self._path)
        value = self._host.read(self._path) if script is None else script(self._host.seconds)
        if isinstance(value, OSError):
            raise value
        return value if isinstance(value, bytes) else f"{value}\n".encode()

    def close(self) -> None:
        """Do nothing."""
