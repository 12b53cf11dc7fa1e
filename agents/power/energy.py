"""What one domain has drawn between two moments, and how far that may be off."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from agents.power.series import Sample, edge_joules


class Energy(NamedTuple):
    """An answer.

    Attributes:
        joules: None when it is not known.
        bound_joules: how far it may be off; None when it is not known.
        flags: of all samples that had a part in it; `interpolated` when missing steps were made up.
        reason: why it is not known; empty when it is.
    """

    joules: float | None
    bound_joules: float | None
    flags: tuple[str, ...]
    reason: str


class _Edge(NamedTuple):
    joules: float
    bound: float


def energy(samples: Sequence[Sample], start_ns: int, end_ns: int, interpolate: bool = False) -> Energy:
    """Energy of one domain between two moments of the monotonic clock.

    Between samples it is linear. The bound has, for either end, the uncertainty of the sample's moment, one unit of the
    counter, a millisecond of the power there, and what an end that lies between two samples may be wrong by; to that
    comes what adds up on the way.

    Args:
        samples: of one domain, in order.
        start_ns, end_ns: the interval.
        interpolate: whether a step that is missing is taken to have had the power of its neighbours. Its whole energy
            is then part of the bound.
    """
    told = [sample for sample in samples if not sample.is_silent]
    silent = next((s.reason for s in reversed(samples) if s.is_silent), "it has not been read")
    times = [sample.t_ns for sample in told]
    first, last = bisect_right(times, start_ns) - 1, bisect_left(times, end_ns)
    flags = _flags(told[max(first, 0) + 1 : last + 1], samples[-1:])
    if not told or first < 0 or last >= len(told):
        where = "before its beginning" if told and first < 0 else "after its end"
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
        return _missing("it has not moved", flags)
    drift = told[last].drift_joules - told[first].drift_joules
    return Energy(joules, begin.bound + end.bound + drift + made_up, flags, "")


def _edge(told: Sequence[Sample], times: Sequence[int], watts: Sequence[float | None], moment: int) -> _Edge:
    """Joules since the first sample at a moment that lies between samples, or on one."""
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
    # Whatever the power did within the step, no more than all of it can be on the wrong side.
    return _Edge(before.known_joules + part * step, bound + min(step, here.domain.most_watts * nearest_s))


def _filled(told: Sequence[Sample]) -> list[float | None]:
    """Watts of every step; those that are missing have the mean of what stands beside them."""
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
