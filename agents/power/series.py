"""Conversion of the readings of one domain into samples with cumulative joules.

The joules of a counter are its increments, also when it wraps, is reset, or is read too rarely. The watts of a sensor
are interpolated linearly between readings; half of the change between them bounds the error.
"""

from typing import NamedTuple

from agents.power.reader import Domain, Reading
from inventory.times import NS

_GRAIN_S, _MODELLED_GRAIN_S = 0.002, 0.5
"""Counters are updated about once a millisecond: between two reads there may be up to two more updates. Those of
emulated nodes are files that a process writes every 50 ms, on a busy host later."""

READS_PER_HALF_RANGE = 2
"""Reads per half range of a counter that are needed to miss no wrap."""

_WRAP, _AMBIGUOUS, _BOTH = ("wrap",), ("ambiguous",), ("wrap", "ambiguous")

_AGE_S, _MODELLED_AGE_S = 0.001, 0.05
"""Age of a value: meters update their values about once a millisecond, an emulated node every 50 ms."""

_USUAL_JOULES = 1e-3

_STUCK_NS = NS
"""A counter that has not changed for this time is considered stuck."""


class CounterChange(NamedTuple):
    """Change of a counter between two reads.

    Attributes:
        counts: increase; None when unknown.
        flags: `wrap`, `reset`, `ambiguous`.
    """

    counts: float | None
    flags: tuple[str, ...]


_RESET = CounterChange(None, ("reset",))


class Counter:
    """Parameters of one domain's counter."""

    __slots__ = ("_ambiguous_s", "_grain_s", "_most_per_s", "_turn", "_unit")

    def __init__(self, domain: Domain) -> None:
        if domain.joules_per_count is None:
            raise ValueError(f"{domain.name} is no counter")
        self._most_per_s = domain.most_watts / domain.joules_per_count
        self._grain_s = _MODELLED_GRAIN_S if domain.is_emulated else _GRAIN_S
        self._unit = domain.unit or 1
        self._turn: float | None = None
        self._ambiguous_s = float("inf")
        if domain.raw_max is not None:
            self._turn = domain.raw_max + (domain.unit or 0)
            self._ambiguous_s = domain.raw_max / self._most_per_s / 2

    @property
    def longest_period_s(self) -> float:
        """Longest allowed time between samples in seconds."""
        return self._ambiguous_s / READS_PER_HALF_RANGE

    def step(self, before: int, now: int, elapsed_s: float) -> CounterChange:
        """Return the change from one value to the next.

        Args:
            before: previous value.
            now: current value.
            elapsed_s: time since the previous value was first read, including time in which the host was suspended.
        """
        counts: float = now - before
        wrapped = counts < 0
        if wrapped:
            if self._turn is None:
                return _RESET
            counts += self._turn
        if counts < 0 or counts > self._most_per_s * (elapsed_s + self._grain_s) + self._unit:
            return _RESET
        if elapsed_s > self._ambiguous_s:
            return CounterChange(counts, _BOTH if wrapped else _AMBIGUOUS)
        return CounterChange(counts, _WRAP if wrapped else ())


class Sample(NamedTuple):
    """A row of the trace.

    Attributes:
        domain: the domain.
        t_ns, half_ns: time on the monotonic clock, and its uncertainty.
        raw: value of the counter; None for sensors.
        joules: energy since the first sample without missing steps; None when the previous step is missing, or when
            there is no value.
        known_joules: energy since the first sample without missing steps, never None.
        watts: mean over the previous step; for a sensor its value; None when unknown.
        drift_joules: error of `joules` accumulated since the first sample.
        begin_joules: error of `joules` because of the time of the first sample.
        flags: unusual conditions.
        reason: why there is no value; empty when there is one.
    """

    domain: Domain
    t_ns: int
    half_ns: int
    raw: int | None
    joules: float | None
    known_joules: float
    watts: float | None
    drift_joules: float
    begin_joules: float
    flags: tuple[str, ...]
    reason: str

    @property
    def is_missing_step(self) -> bool:
        """True if the energy since the previous sample is unknown."""
        return self.joules is None and not self.reason

    @property
    def is_silent(self) -> bool:
        """True if this has no value, but a reason."""
        return self.reason != ""

    @property
    def bound_joules(self) -> float:
        """Error bound of `joules`, including the times of the first reading and of this one."""
        return self.begin_joules + self.drift_joules + edge_joules(self.domain, self.half_ns, self.watts or 0.0)


def edge_joules(domain: Domain, half_ns: int, watts: float) -> float:
    """Return the error of a total that begins or ends with a sample with this time uncertainty."""
    age_s = _MODELLED_AGE_S if domain.is_emulated else _AGE_S
    return (half_ns / NS + age_s) * watts + unit_joules(domain)


def unit_joules(domain: Domain) -> float:
    """Return the smallest increment of a counter in joules; 1 mJ when it is unknown, 0 for a sensor."""
    if domain.joules_per_count is None:
        return 0.0
    return _USUAL_JOULES if domain.unit is None else domain.unit * domain.joules_per_count


class Series:
    """Conversion state of one domain."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self._counter = None if domain.joules_per_count is None else Counter(domain)
        self._last: Reading | None = None
        self._asleep_ns = 0
        self._joules = self._drift = 0.0
        self._begin_half_ns = 0
        self._begin: float | None = None
        self._moved_ns = 0

    def add(self, reading: Reading, asleep_ns: int, late: bool) -> Sample | None:
        """Convert a reading into a sample; return None for a reading that is not newer than the last.

        Args:
            reading: reading of this domain.
            asleep_ns: cumulative time for which the host has been suspended.
            late: whether it was read later than planned.
        """
        if reading.value is None:
            return self._no_sample(reading)
        if self._counter is None and not 0 < reading.value <= self.domain.most_watts:
            return self._no_sample(reading._replace(reason=f"implausible power: {reading.value:g} W"))
        before, self._last = self._last, reading
        if before is None:
            self._asleep_ns, self._moved_ns = asleep_ns, reading.t_ns
            self._begin_half_ns = reading.half_ns
            return self._sample(reading, 0.0, None, ("first",), late)
        if reading.t_ns <= before.t_ns:
            self._last = before
            return None
        slept_ns, self._asleep_ns = asleep_ns - self._asleep_ns, asleep_ns
        gap = ("gap",) if slept_ns else ()
        elapsed_s = (reading.t_ns - before.t_ns + slept_ns) / NS
        if self._counter is None:
            return self._power_step(before, reading, elapsed_s, gap, late)
        return self._counter_step(self._counter, before, reading, elapsed_s, gap, late)

    def _counter_step(
        self, counter: Counter, before: Reading, reading: Reading, elapsed_s: float, gap: tuple[str, ...], late: bool
    ) -> Sample:
        was, now = before.value, reading.value
        if was == now:
            if reading.t_ns - self._moved_ns >= _STUCK_NS:
                seconds = (reading.t_ns - self._moved_ns) / NS
                return self._no_sample(reading._replace(reason=f"the counter has not changed for {seconds:.0f} s"))
            return self._sample(reading, self._joules, None, gap, late)
        # A counter that is updated less often than it is read has the energy of several readings in one step.
        unchanged_s = (before.t_ns - self._moved_ns) / NS
        self._moved_ns = reading.t_ns
        counts, flags = counter.step(int(was or 0), int(now or 0), unchanged_s + elapsed_s)
        if counts is None:
            return self._sample(reading, None, None, gap + flags, late)
        joules = counts * (self.domain.joules_per_count or 0.0)
        self._joules += joules
        if "wrap" in flags:
            self._drift += unit_joules(self.domain)
        return self._sample(reading, self._joules, joules / elapsed_s, gap + flags, late)

    def _power_step(
        self, before: Reading, reading: Reading, elapsed_s: float, gap: tuple[str, ...], late: bool
    ) -> Sample:
        was, now = float(before.value or 0.0), float(reading.value or 0.0)
        if gap or elapsed_s > self.domain.longest_s:
            return self._sample(reading, None, now, ("gap",), late)
        self._joules += (was + now) / 2 * elapsed_s
        self._drift += (abs(now - was) + before.bound_watts + reading.bound_watts) / 2 * elapsed_s
        return self._sample(reading, self._joules, now, (), late)

    def _sample(
        self, reading: Reading, joules: float | None, watts: float | None, flags: tuple[str, ...], late: bool
    ) -> Sample:
        raw = None if self._counter is None or reading.value is None else int(reading.value)
        if self._counter is None and watts is None:
            watts = reading.value
        flags += ("late",) if late else ()
        if self._begin is None and watts is not None:
            self._begin = edge_joules(self.domain, self._begin_half_ns, watts)
        return Sample(
            self.domain,
            reading.t_ns,
            reading.half_ns,
            raw,
            joules,
            self._joules,
            watts,
            self._drift,
            self._begin or 0.0,
            flags + self.domain.flags,
            "",
        )

    def _no_sample(self, reading: Reading) -> Sample:
        flags = (("charging",) if reading.charging else ()) + self.domain.flags
        return Sample(
            self.domain,
            reading.t_ns,
            reading.half_ns,
            None,
            None,
            self._joules,
            None,
            self._drift,
            self._begin or 0.0,
            flags,
            reading.reason,
        )
