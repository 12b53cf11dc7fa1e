"""Comparison of two readers of the same counters over one minute."""

from collections.abc import Iterable
from typing import NamedTuple

from agents.power.series import Sample, unit_joules

LASTS_NS = 60_000_000_000
TOLERANCE = 0.005
UNITS = 2


class Agreement(NamedTuple):
    """Result of the comparison for one domain.

    Attributes:
        domain: name of the domain.
        difference: relative difference of the second to the first; None when they cannot be compared.
        detail: description of the result.
    """

    domain: str
    difference: float | None
    detail: str


class CrossCheck:
    """Collector of the samples of both readers until the minute is over."""

    def __init__(self, first: str, second: str) -> None:
        self._sources = first, second
        self._ends: dict[str, dict[str, tuple[Sample, Sample]]] = {first: {}, second: {}}
        self._broken: set[str] = set()
        self._begin_ns: int | None = None

    def add(self, samples: Iterable[Sample]) -> list[Agreement] | None:
        """Add samples; return the results once, when the minute is over."""
        now_ns = 0
        for sample in samples:
            ends = self._ends.get(sample.domain.source)
            if ends is None or sample.is_silent:
                continue
            name = sample.domain.name
            if sample.is_missing_step:
                self._broken.add(name)
            ends[name] = (ends.get(name, (sample, sample))[0], sample)
            now_ns = max(now_ns, sample.t_ns)
        if self._begin_ns is None:
            self._begin_ns = now_ns or None
        elif now_ns - self._begin_ns >= LASTS_NS:
            first, second = self._sources
            shared = self._ends[first].keys() & self._ends[second].keys()
            return [self._compare(name) for name in sorted(shared)]
        return None

    def _compare(self, name: str) -> Agreement:
        first, second = self._sources
        if name in self._broken:
            return Agreement(name, None, f"{first} and {second} cannot be compared: a step is missing")
        watts = [_watts(*self._ends[source][name]) for source in self._sources]
        begin, end = self._ends[first][name]
        if watts[0] is None or watts[1] is None:
            return Agreement(name, None, f"{first} and {second} cannot be compared: one of them has not changed")
        seconds = (end.t_ns - begin.t_ns) / 1e9
        slack = sum(unit_joules(self._ends[source][name][0].domain) for source in self._sources) / 2 * UNITS / seconds
        differ = watts[1] - watts[0]
        verdict = "agree" if abs(differ) <= TOLERANCE * watts[0] + slack else "DISAGREE"
        detail = f"{first} and {second} {verdict}: {watts[0]:.3f} W and {watts[1]:.3f} W over {seconds:.0f} s"
        return Agreement(name, differ / watts[0], detail)


def _watts(begin: Sample, end: Sample) -> float | None:
    joules, seconds = end.known_joules - begin.known_joules, (end.t_ns - begin.t_ns) / 1e9
    return joules / seconds if joules > 0 and seconds > 0 else None
