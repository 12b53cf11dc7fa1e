"""A recorded tree with scripted values and errors, on a clock that goes only when it is told to."""

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from agents.power.reader import MeteredHost

Script = Callable[[float], "str | bytes | OSError"]
"""Seconds since the beginning, sleep included -> what the file says then."""

LOOK_NS = 700
"""What one look at a clock costs."""


def fault(number: int) -> OSError:
    """An error as the kernel gives it."""
    return OSError(number, os.strerror(number))


DENIED = fault(errno.EACCES)


def counting(joules: Callable[[float], float], unit_uj: float, start_units: int = 0, bits: int | None = 32) -> Script:
    """A powercap counter: whole units of a register that turns over, shown in whole microjoules."""

    def say(seconds: float) -> str:
        units = start_units + int(joules(seconds) * 1e6 / unit_uj)
        if bits is not None:
            units %= 2**bits
        return str(units * round(unit_uj * 1000) // 1000)

    return say


def steady(watts: float) -> Callable[[float], float]:
    """The joules of a constant power."""
    return lambda seconds: watts * seconds


def square(low: float, high: float, half_s: float) -> Callable[[float], float]:
    """The joules of a power that is `low` and `high` in turns, `half_s` each."""

    def joules(seconds: float) -> float:
        whole, rest = divmod(seconds, 2 * half_s)
        return whole * (low + high) * half_s + low * min(rest, half_s) + high * max(0.0, rest - half_s)

    return joules


def steps(table: Mapping[float, "str | OSError"]) -> Script:
    """What holds from each moment on."""

    def say(seconds: float) -> str | OSError:
        return table[max(moment for moment in table if moment <= seconds)]

    return say


class Recorded(MeteredHost):
    """A tree below `root`; files with a script say what it says, all others what is in them."""

    def __init__(
        self, root: Path, scripts: Mapping[str, Script] | None = None, sleeps: Sequence[tuple[float, float]] = ()
    ) -> None:
        """Begin at second 0.

        Args:
            root: with at least an empty file for everything that a script speaks for.
            scripts: path -> script; `perf CONFIG CPU` is an event.
            sleeps: (when, how long): moments of the monotonic clock at which the host is suspended.
        """
        super().__init__(root)
        self.scripts = dict(scripts or {})
        self._sleeps = sleeps
        self._now_ns = 0

    @property
    def seconds(self) -> float:
        """True time since the beginning."""
        return self._boot_ns() / 1e9

    def _boot_ns(self) -> int:
        slept = sum(long for when, long in self._sleeps if when * 1e9 <= self._now_ns)
        return self._now_ns + round(slept * 1e9)

    def read(self, path: str) -> str:
        if path not in self.scripts:
            return super().read(path)
        said = self.scripts[path](self.seconds)
        if isinstance(said, OSError):
            raise said
        return said.decode() if isinstance(said, bytes) else said

    def meter(self, path: str, is_replaced: bool = False) -> "Scripted":
        self.read(path)
        return Scripted(self, path)

    def perf_event(self, kind: int, config: int, cpu: int) -> "Scripted":
        key = f"perf {config} {cpu}"
        if key not in self.scripts:
            raise fault(errno.ENODEV)
        return Scripted(self, key)

    def monotonic_ns(self) -> int:
        self._now_ns += LOOK_NS
        return self._now_ns

    def boottime_ns(self) -> int:
        self._now_ns += LOOK_NS
        return self._boot_ns()

    def wait(self, seconds: float) -> None:
        self._now_ns += round(seconds * 1e9)

    def work(self, seconds: float) -> None:
        self.wait(seconds)


class Scripted:
    """One file of a recorded host, open."""

    def __init__(self, host: Recorded, path: str) -> None:
        self._host, self._path = host, path

    def read(self) -> bytes:
        script = self._host.scripts.get(self._path)
        said = self._host.read(self._path) if script is None else script(self._host.seconds)
        if isinstance(said, OSError):
            raise said
        return said if isinstance(said, bytes) else f"{said}\n".encode()

    def close(self) -> None:
        """Nothing is open."""
