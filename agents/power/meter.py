"""Energy of an interval: of every domain, and of the node."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from agents.power.domain import Domain
from agents.power.energy import energy
from agents.power.host import MeteredHost
from agents.power.metering import Metering
from agents.power.sampler import PowerSampler
from agents.power.series import Sample
from agents.power.settings import PowerSettings

_KEPT = 64
"""Number of samples kept at either end of an interval; in between, only unusual samples are kept."""

_LOOK_S = 0.05


class DomainEnergy(Struct, frozen=True):
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
    domains: tuple[DomainEnergy, ...]
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


def measure(host: MeteredHost, settings: PowerSettings, seconds: float, on_wait: Callable[[float], None]) -> Metered:
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
    return account(history, metering, start_ns, end_ns)


def account(history: History, metering: Metering, start_ns: int, end_ns: int) -> Metered:
    """Compute the energy of the interval from the samples."""
    domains = tuple(_of_domain(domain, history, start_ns, end_ns) for domain in history.domains)
    return Metered(start_ns, end_ns, domains, _total(domains, metering))


def _wait(host: MeteredHost, seconds: float, on_wait: Callable[[float], None], enough: Callable[[], bool]) -> None:
    end_ns = host.monotonic_ns() + round(seconds * 1e9)
    while (left_s := (end_ns - host.monotonic_ns()) / 1e9) > 0 and not enough():
        on_wait(left_s)
        host.wait(min(_LOOK_S, left_s))


def _of_domain(domain: Domain, history: History, start_ns: int, end_ns: int) -> DomainEnergy:
    found = energy(history.of(domain), start_ns, end_ns)
    # The monotonic clock does not include time in which the host was suspended.
    watts = None if found.joules is None or "gap" in found.flags else found.joules / (end_ns - start_ns) * 1e9
    return DomainEnergy(
        domain.name,
        domain.role,
        domain.source,
        domain.in_total,
        found.joules,
        watts,
        found.bound_joules,
        found.flags,
        found.reason or None,
    )


def _total(domains: Sequence[DomainEnergy], metering: Metering) -> TotalEnergy:
    terms = [domain for domain in domains if domain.in_total]
    names = tuple(term.domain for term in terms)
    flags = tuple(dict.fromkeys(flag for term in terms for flag in term.flags))
    reason = "; ".join(f"{term.domain}: {term.reason}" for term in terms if term.reason)
    if metering.source is None:
        reason = f"no energy source on this host ({metering.sources.why_none})"
    elif not terms:
        reason = f"{metering.source} has no domain that is known to be the whole node"
        if metering.sources.primary and metering.sources.primary.trouble:
            reason += f": {metering.sources.primary.trouble}"
    if reason:
        return TotalEnergy(None, None, metering.source, names, flags, reason)
    joules = sum(term.joules or 0.0 for term in terms)
    bound = sum(term.bound_joules or 0.0 for term in terms)
    return TotalEnergy(joules, bound, metering.source, names, flags, None)
