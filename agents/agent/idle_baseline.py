"""Idle power of a host, measured in six intervals, and measured again if the host was not idle."""

import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise

from agents.power.energy import energy
from agents.power.meter import PowerSampler
from agents.power.metering import Metering
from agents.power.reader import Domain, MeteredHost
from agents.power.series import Sample
from agents.power.settings import PowerSettings
from agents.protocol import IdleBaseline
from agents.sensors.kernel import core_busy_ns
from inventory.times import NS

PARTS = 6
"""Number of intervals; five seconds each in a measurement of half a minute."""

MOST_DIFFERENCE, MOST_LOAD = 0.05, 0.02
"""Largest relative difference between an interval's power and the mean, and largest busy fraction of all cores."""

ATTEMPTS = 2

_POLL_S = 0.05


class StoppedError(Exception):
    """The measurement was cancelled."""


def measure_idle(
    host: MeteredHost,
    settings: PowerSettings,
    settle_s: float,
    measure_s: float,
    stopped: Callable[[], bool] = lambda: False,
) -> IdleBaseline:
    """Wait for the host to settle, and measure its power; return at once when it has no measured source.

    Args:
        host: to measure.
        settings: the operator's.
        settle_s: time to settle.
        measure_s: duration of each measurement.
        stopped: returns whether to cancel.

    Raises:
        StoppedError: the measurement was cancelled.
    """
    metering = Metering(host, settings)
    samples: list[Sample] = []
    sampler = PowerSampler(metering, samples.extend)
    try:
        if metering.source is None:
            return IdleBaseline(reason=metering.sources.why_none)
        if any("modelled" in domain.flags for domain in _terms(metering)):
            return IdleBaseline(reason="its energy follows a model, and nothing is measured")
        sampler.start()
        _wait(host, settle_s, stopped)
        baseline = IdleBaseline()
        for attempt in range(1, ATTEMPTS + 1):
            baseline = _measure(metering, sampler, samples, measure_s, attempt, stopped)
            if not baseline.flags and not baseline.reason:
                break
        return baseline
    finally:
        sampler.stop()


def _measure(
    metering: Metering,
    sampler: PowerSampler,
    samples: Sequence[Sample],
    measure_s: float,
    attempt: int,
    stopped: Callable[[], bool],
) -> IdleBaseline:
    host = metering.host
    sampler.force()
    edges = [host.monotonic_ns()]
    before_ns = core_busy_ns()
    for _ in range(PARTS):
        _wait(host, measure_s / PARTS, stopped)
        edges.append(host.monotonic_ns())
        sampler.force()
    after_ns = core_busy_ns()
    length_ns = edges[-1] - edges[0]
    _wait_for_samples(metering, samples, edges[-1], stopped)
    series = _series(samples)
    if not series:
        return IdleBaseline(attempts=attempt, reason="no domain that covers the whole node has delivered a sample")
    energies = {domain.name: energy(each, edges[0], edges[-1]) for domain, each in series.items()}
    reason = "; ".join(f"{name}: {each.reason}" for name, each in energies.items() if each.reason)
    if reason:
        return IdleBaseline(attempts=attempt, reason=reason)
    watts = {name: (each.joules or 0.0) / length_ns * NS for name, each in energies.items()}
    means = [_mean(list(series.values()), begin, end) for begin, end in pairwise(edges)]
    known = [mean for mean in means if mean is not None]
    whole = sum(watts.values())
    is_unsteady = len(known) < PARTS or any(abs(mean - whole) > MOST_DIFFERENCE * whole for mean in known)
    load = sum(after_ns[core] - before_ns.get(core, 0) for core in after_ns) / (length_ns * len(after_ns))
    return IdleBaseline(
        watts=whole,
        stddev_watts=statistics.stdev(known) if len(known) > 1 else None,
        seconds=length_ns / NS,
        load=load,
        domains=watts,
        attempts=attempt,
        flags=("unsteady",) * is_unsteady + ("loaded",) * (load > MOST_LOAD),
    )


def _mean(series: Sequence[Sequence[Sample]], begin_ns: int, end_ns: int) -> float | None:
    """Return the sum of all terms in watts; None if one is missing."""
    joules = [energy(samples, begin_ns, end_ns).joules for samples in series]
    known = [each for each in joules if each is not None]
    return sum(known) / (end_ns - begin_ns) * NS if len(known) == len(joules) else None


def _wait_for_samples(metering: Metering, samples: Sequence[Sample], end_ns: int, stopped: Callable[[], bool]) -> None:
    """Wait until every term has a sample at or after `end_ns`, because external meters report with a delay."""
    give_up_ns = metering.host.monotonic_ns() + round(metering.patience_s * NS)
    while metering.host.monotonic_ns() < give_up_ns:
        last = {domain: each[-1].t_ns for domain, each in _series(samples).items()}
        if last and min(last.values()) >= end_ns:
            return
        _wait(metering.host, _POLL_S, stopped)


def _series(samples: Sequence[Sample]) -> dict[Domain, list[Sample]]:
    """Return the terms of the total with their samples so far."""
    series: dict[Domain, list[Sample]] = {}
    for sample in list(samples):
        if sample.domain.in_total:
            series.setdefault(sample.domain, []).append(sample)
    return series


def _terms(metering: Metering) -> list[Domain]:
    primary = metering.sources.primary
    return [domain for domain in primary.domains if domain.in_total] if primary else []


def _wait(host: MeteredHost, seconds: float, stopped: Callable[[], bool]) -> None:
    end_ns = host.monotonic_ns() + round(seconds * NS)
    while (left_s := (end_ns - host.monotonic_ns()) / NS) > 0:
        if stopped():
            raise StoppedError
        host.wait(min(_POLL_S, left_s))
