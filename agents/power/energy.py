"""Energy of one domain between two times, with an error bound."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from agents.power.series import Sample, edge_joules


class Energy(NamedTuple):
    """Energy of an interval.

    Attributes:
        joules: energy; None when unknown.
        bound_joules: error bound; None when unknown.
        flags: flags of all samples in the interval; `interpolated` when missing steps were interpolated.
        reason: why it is unknown; empty when it is known.
    """

    joules: float | None
    bound_joules: float | None
    flags: tuple[str, ...]
    reason: str


class _Edge(NamedTuple):
    joules: float
    bound: float


def energy(samples: Sequence[Sample], start_ns: int, end_ns: int, interpolate: bool = False) -> Energy:
    """Compute the energy of one domain between two times of the monotonic clock.

    Between samples, energy is interpolated linearly. The bound includes, for either end, the time uncertainty of the
    sample, one unit of the counter, a millisecond of the power there, and the interpolation error of an end between two
    samples. Errors that accumulate between the ends are added.

    Args:
        samples: samples of one domain, in order.
        start_ns, end_ns: the interval.
        interpolate: whether a missing step is assumed to have the power of its neighbours. Its whole energy is then
            part of the bound.
    """
    told = [sample for sample in samples if not sample.is_silent]
    silent = next((s.reason for s in reversed(samples) if s.is_silent), "it has not been read")
    times = [sample.t_ns for sample in told]
    first, last = bisect_right(times, start_ns) - 1, bisect_left(times, end_ns)
    flags = _flags(told[max(first, 0) + 1 : last + 1], samples[-1:])
    if not told or first < 0 or last >= len(told):
        where = "before its start" if told and first < 0 else "after its end"
        return _missing(silent if not told or samples[-1].is_silent else f"no reading {where}", flags)
    watts = _filled(told) if interpolate else [sample.watts for sample in told]
    made_up = 0.0
    for at in range(first + 1, last + 1):
        if told[at].is_missing_step:
            step_watts = watts[at]
            if not interpolate or step_watts is None:
                return _missing(f"a step is missing ({', '.join(told[at].flags)})", flags)
            overlap_ns = min(end_ns, told[at].t_ns) - max(start_ns, told[at - 1].t_ns)
            made_up += step_watts * overlap_ns / 1e9
            flags = tuple(dict.fromkeys([*flags, "interpolated"]))
    begin, end = (_edge(told, times, watts, moment) for moment in (start_ns, end_ns))
    joules = end.joules - begin.joules + made_up
    if joules <= 0:
        return _missing("the counter has not changed", flags)
    drift = told[last].drift_joules - told[first].drift_joules
    return Energy(joules, begin.bound + end.bound + drift + made_up, flags, "")


def _edge(told: Sequence[Sample], times: Sequence[int], watts: Sequence[float | None], moment: int) -> _Edge:
    """Return the joules since the first sample at a time between samples, or at a sample."""
    after = bisect_left(times, moment)
    here = told[after]
    before = told[after - 1] if after and times[after] != moment else here
    around = [power for power in watts[max(0, after - 1) : after + 2] if power is not None]
    bound = edge_joules(here.domain, here.half_ns, max(around, default=0.0))
    if before is here or here.is_missing_step:
        return _Edge(before.known_joules, bound)
    step = here.known_joules - before.known_joules
    part = (moment - before.t_ns) / (here.t_ns - before.t_ns)
    nearest_s = min(moment - before.t_ns, here.t_ns - moment) / 1e9
    # The interpolation error is at most the energy of the whole step.
    return _Edge(before.known_joules + part * step, bound + min(step, here.domain.most_watts * nearest_s))


def _filled(told: Sequence[Sample]) -> list[float | None]:
    """Return the watts of every step; a missing step has the mean of its neighbours."""
    known = [None if sample.is_missing_step else sample.watts for sample in told]
    filled = list(known)
    for at, sample in enumerate(told):
        if sample.is_missing_step:
            before = next((power for power in reversed(known[:at]) if power is not None), None)
            after = next((power for power in known[at + 1 :] if power is not None), None)
            beside = [power for power in (before, after) if power is not None]
            filled[at] = sum(beside) / len(beside) if beside else None
    return filled


def _flags(*groups: Sequence[Sample]) -> tuple[str, ...]:
    found = (flag for group in groups for sample in group for flag in sample.flags if flag != "first")
    return tuple(dict.fromkeys(found))


def _missing(reason: str, flags: tuple[str, ...]) -> Energy:
    return Energy(None, None, flags, reason)
