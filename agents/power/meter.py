"""Meters over time: samples taken by a thread, and the energy of an interval, of every domain and of the node."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec import Struct

from agents.power.energy import energy
from agents.power.metering import Metering
from agents.power.reader import Domain, MeteredHost
from agents.power.series import Sample
from agents.power.settings import MOST_HZ, PowerSettings
from inventory.times import NS

NICENESS = -10
"""Nice value of the thread, if the user may set it."""

LATE_NS = 10_000_000
"""A sample that begins later than this after its deadline is flagged."""

_KEPT = 64
"""Number of samples kept at either end of an interval; in between, only unusual samples are kept."""

_POLL_S = 0.05


class Deadlines:
    """Deadlines at a constant rate.

    Attributes:
        begin_ns: the first deadline.
        due_ns: the next deadline.
        skipped: number of missed deadlines.
    """

    def __init__(self, begin_ns: int, rate_hz: float) -> None:
        self.begin_ns, self._rate_hz = begin_ns, rate_hz
        self._number = 0
        self.due_ns, self.skipped = begin_ns, 0

    def advance(self, now_ns: int) -> None:
        """Advance to the first later deadline that is in the future."""
        self._number += 1
        # Computed from the start: rounding of each period to nanoseconds would accumulate.
        passed = int((now_ns - self.begin_ns) * self._rate_hz / NS) + 1
        if passed > self._number:
            self.skipped += passed - self._number
            self._number = passed
        self.due_ns = self.begin_ns + round(self._number * NS / self._rate_hz)


class PowerSampler:
    """Sampler thread, running from `start` to `stop`.

    Attributes:
        deadlines: the deadlines.
        late: number of samples that began late.
    """

    def __init__(self, metering: Metering, on_samples: Callable[[Sequence[Sample]], None]) -> None:
        """Prepare the thread without starting it.

        Args:
            metering: the meters; closed by `stop`.
            on_samples: called with every sample, by the sampler thread or the forcing thread; never concurrently.
        """
        self._metering, self._on_samples = metering, on_samples
        self._stopped = threading.Event()
        self._one_at_a_time = threading.Lock()
        # A requested rate that is too low for the counters is raised.
        self._rate_hz = min(MOST_HZ, max(metering.settings.rate_hz, metering.fewest_hz))
        self.deadlines = Deadlines(metering.host.monotonic_ns(), self._rate_hz)
        self._thread = threading.Thread(target=self._run_loop, name="power sampler", daemon=True)
        self.late = 0

    @property
    def cpu_s(self) -> float:
        """CPU time of the thread while it runs."""
        return time.clock_gettime(time.pthread_getcpuclockid(self._thread.ident)) if self._thread.ident else 0.0

    @property
    def skipped(self) -> int:
        """Number of missed deadlines."""
        return self.deadlines.skipped

    def start(self) -> None:
        """Start the thread with a first sample."""
        self.deadlines = Deadlines(self._metering.host.monotonic_ns(), self._rate_hz)
        self._thread.start()

    def force(self) -> None:
        """Take a sample now."""
        self._sample(late=False)

    def stop(self) -> None:
        """Stop the thread and close the meters; a last sample may be forced before."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._metering.close()

    def _run_loop(self) -> None:
        # A thread that runs for 0.25 ms must not wait for the time slices of others. Not every user may do this.
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        clock = self._metering.host.monotonic_ns
        deadlines = self.deadlines
        while True:
            now_ns = clock()
            late = now_ns - deadlines.due_ns > LATE_NS
            self.late += late
            self._sample(late)
            deadlines.advance(clock())
            if self._stopped.wait((deadlines.due_ns - clock()) / NS):
                return

    def _sample(self, late: bool) -> None:
        with self._one_at_a_time:
            self._on_samples(self._metering.sample(late))


class MeteredDomain(Struct, frozen=True):
    """Energy of one domain in the interval; unknown values are None, explained by `reason`."""

    domain: str
    role: str
    source: str
    in_total: bool
    joules: float | None
    watts: float | None
    bound_joules: float | None
    flags: tuple[str, ...]
    reason: str | None


class TotalEnergy(Struct, frozen=True):
    """Energy of the node: the sum of `domains`, unknown when one of them is."""

    joules: float | None
    bound_joules: float | None
    source: str | None
    domains: tuple[str, ...]
    flags: tuple[str, ...]
    reason: str | None


class Metered(Struct, frozen=True):
    """Result of `millrace meter`; times are on the monotonic clock."""

    start_ns: int
    end_ns: int
    domains: tuple[MeteredDomain, ...]
    total: TotalEnergy


class History:
    """The samples of every domain that are needed to compute the energy of an interval."""

    def __init__(self) -> None:
        self._samples: dict[Domain, list[Sample]] = {}

    def add(self, samples: Sequence[Sample]) -> None:
        """Add samples, in order."""
        for sample in samples:
            kept = self._samples.setdefault(sample.domain, [])
            kept.append(sample)
            if len(kept) > 4 * _KEPT and len(kept) % _KEPT == 0:
                kept[_KEPT:-_KEPT] = [s for s in kept[_KEPT:-_KEPT] if set(s.flags) - set(s.domain.flags)]

    def of(self, domain: Domain) -> list[Sample]:
        """Return the samples of one domain."""
        return list(self._samples.get(domain, ()))

    @property
    def domains(self) -> tuple[Domain, ...]:
        """All domains with a reading, including readings without a value."""
        return tuple(self._samples)

    def covers(self, begin_ns: int | None, end_ns: int | None) -> bool:
        """Return whether every term of the total has a sample before `begin_ns`, and one after `end_ns`."""
        terms = [samples for domain, samples in list(self._samples.items()) if domain.in_total]
        return bool(terms) and all(
            any(s.is_silent or begin_ns is None or s.t_ns <= begin_ns for s in samples)
            and any(s.is_silent or end_ns is None or s.t_ns >= end_ns for s in reversed(samples))
            for samples in terms
        )


def start_metering(
    host: MeteredHost, settings: PowerSettings, seconds: float, on_wait: Callable[[float], None]
) -> Metered:
    """Meter a host from now on.

    Args:
        host: the host.
        settings: the operator's settings.
        seconds: length of the interval.
        on_wait: called several times a second with the remaining seconds.
    """
    history = History()
    metering = Metering(host, settings)
    sampler = PowerSampler(metering, history.add)
    try:
        sampler.start()
        sampler.force()
        _wait(host, metering.patience_s, on_wait, lambda: history.covers(host.monotonic_ns(), None))
        start_ns = host.monotonic_ns()
        _wait(host, seconds, on_wait, lambda: False)
        end_ns = host.monotonic_ns()
        sampler.force()
        _wait(host, metering.patience_s, on_wait, lambda: history.covers(None, end_ns))
    finally:
        sampler.stop()
    return metered_energy(history, metering, start_ns, end_ns)


def metered_energy(history: History, metering: Metering, start_ns: int, end_ns: int) -> Metered:
    """Compute the energy of the interval from the samples."""
    domains = tuple(_of_domain(domain, history, start_ns, end_ns) for domain in history.domains)
    return Metered(start_ns, end_ns, domains, _total(domains, metering))


def _wait(host: MeteredHost, seconds: float, on_wait: Callable[[float], None], enough: Callable[[], bool]) -> None:
    end_ns = host.monotonic_ns() + round(seconds * NS)
    while (left_s := (end_ns - host.monotonic_ns()) / NS) > 0 and not enough():
        on_wait(left_s)
        host.wait(min(_POLL_S, left_s))


def _of_domain(domain: Domain, history: History, start_ns: int, end_ns: int) -> MeteredDomain:
    used = energy(history.of(domain), start_ns, end_ns)
    # The monotonic clock does not include time in which the host was suspended.
    watts = None if used.joules is None or "gap" in used.flags else used.joules / (end_ns - start_ns) * NS
    return MeteredDomain(
        domain.name,
        domain.role,
        domain.source,
        domain.in_total,
        used.joules,
        watts,
        used.bound_joules,
        used.flags,
        used.reason or None,
    )


def _total(domains: Sequence[MeteredDomain], metering: Metering) -> TotalEnergy:
    terms = [domain for domain in domains if domain.in_total]
    names = tuple(term.domain for term in terms)
    flags = tuple(dict.fromkeys(flag for term in terms for flag in term.flags))
    reason = "; ".join(f"{term.domain}: {term.reason}" for term in terms if term.reason)
    primary = metering.sources.primary
    if primary is None:
        reason = f"no energy source on this host ({metering.sources.why_none})"
    elif metering.sources.why_no_total:
        reason = metering.sources.why_no_total
    elif not terms:
        reason = f"{primary.name} has not given the power of the node: {primary.trouble}"
    if reason:
        return TotalEnergy(None, None, metering.source, names, flags, reason)
    joules = sum(term.joules or 0.0 for term in terms)
    bound = sum(term.bound_joules or 0.0 for term in terms)
    return TotalEnergy(joules, bound, metering.source, names, flags, None)
