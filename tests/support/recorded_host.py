"""Recorded tree with scripted values and errors, on a clock that a test advances."""

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trees.meters import POWERCAP, UNIT_15, UNIT_61

from agents.power.meter import History, Metered, metered_energy
from agents.power.metering import Metering
from agents.power.reader import MeteredHost
from agents.power.settings import PowerSettings, meter_settings

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


def zones(watts: Mapping[str, float], units: Mapping[str, float] | None = None) -> dict[str, Script]:
    """Return counters of zones with constant power, each with a different start value."""
    return {
        f"{POWERCAP}/{folder}/energy_uj": rapl_counter(
            constant_power(power), (units or {}).get(folder, UNIT_61), 1000 * at + 7
        )
        for at, (folder, power) in enumerate(watts.items())
    }


def metered(host: RecordedHost, seconds: float = 10.0, settings: PowerSettings | None = None) -> Metered:
    """Meter a host for some seconds of its own clock, with ten samples a second."""
    metering, history = Metering(host, settings or meter_settings(host)), History()
    history.add(metering.sample())
    start_ns = host.monotonic_ns()
    while (left_ns := start_ns + round(seconds * 1e9) - host.monotonic_ns()) > 0:
        host.wait(min(0.1, left_ns / 1e9))
        history.add(metering.sample())
    end_ns = start_ns + round(seconds * 1e9)
    metering.close()
    return metered_energy(history, metering, start_ns, end_ns)


SERVER = zones(
    {"intel-rapl:0": 80.0, "intel-rapl:0:0": 9.0, "intel-rapl:1": 300.0, "intel-rapl:2": 60.0, "intel-rapl:2:0": 7.0},
    {"intel-rapl:0:0": UNIT_15, "intel-rapl:2:0": UNIT_15},
)
"""Zones of the tree `server`: two packages with DRAM, 156 W, on a platform of 300 W."""

CLIENT = zones({"intel-rapl:0": 20.0, "intel-rapl:0:0": 12.0, "intel-rapl:0:1": 1.0, "intel-rapl:1": 35.0})
"""Zones of the tree `client`: a package of 20 W on a platform of 35 W."""

AMD = zones({"intel-rapl:0": 55.0, "intel-rapl:0:0": 31.0})
"""Zones of the tree `amd`: a package of 55 W."""
