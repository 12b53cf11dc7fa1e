"""Meters of a host: selection of its energy source, cross-checks, and thread-safe sampling of all of them."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from agents.host_files import ProbeResult
from agents.power.external import External
from agents.power.model import ModelReader
from agents.power.perf import Perf
from agents.power.powertop import PowerTop
from agents.power.rapl import Rapl
from agents.power.reader import Domain, MeteredHost, Reader, Reading
from agents.power.series import Counter, Sample, Series, unit_joules
from agents.power.settings import PowerSettings
from agents.power.sysfs_sensors import Battery, Hwmon

READERS: Mapping[str, type[Reader]] = {
    reader.name: reader for reader in (Perf, Rapl, Hwmon, External, Battery, ModelReader)
}
"""Name -> reader, in order of preference."""

COUNTERS_OF_ONE_THING = (Perf.name, Rapl.name)
"""Two readers of the same counters: where both work, they are compared."""

CHECK_NS = 60_000_000_000
CHECK_TOLERANCE, CHECK_UNITS = 0.005, 2
"""Duration of the comparison of two readers; their tolerated difference, relative and in units of the counters."""

_ASLEEP_NS = 2_000_000
"""Shorter apparent suspensions are delays between two reads of the clocks."""

_READS_PER_VALUE = 2
"""Number of reads of a sensor in the longest time that its reading is valid."""


class Sources(NamedTuple):
    """The open readers.

    Attributes:
        primary: the node's source; None when no reader works.
        check: another reader of the same counters, for the first minute; or None.
        beside: readers without the node's total that were preferred, and cross-checks that run all the time.
        findings: reader -> result of its probe.
        why_no_total: reason why the primary reader cannot give the node's total; empty if it can.
    """

    primary: Reader | None
    check: Reader | None
    beside: tuple[Reader, ...]
    findings: Mapping[str, ProbeResult]
    why_no_total: str

    @property
    def opened(self) -> tuple[Reader, ...]:
        """All open readers, the primary one first."""
        return tuple(reader for reader in (self.primary, self.check, *self.beside) if reader is not None)

    @property
    def why_none(self) -> str:
        """Reasons why there is no primary source, one for each reader."""
        return "; ".join(f"{name}: {finding.reason}" for name, finding in self.findings.items())


def order(settings: PowerSettings) -> list[str]:
    """Return the readers that may be the source, in the order in which they are tried."""
    if settings.source is not None:
        return [settings.source] if settings.source in READERS else []
    return list(dict.fromkeys([*(name for name in settings.prefer if name in READERS), *READERS]))


def probe_all(host: MeteredHost, settings: PowerSettings) -> dict[str, ProbeResult]:
    """Probe every reader, in the order in which they are tried, without opening any."""
    names = order(settings)
    names += [name for name in READERS if name not in names]
    findings = {name: READERS[name](host, settings).probe() for name in names}
    return findings | {PowerTop.name: PowerTop(host, settings).probe()}


def find_primary(host: MeteredHost, settings: PowerSettings, findings: dict[str, ProbeResult]) -> str | None:
    """Return the name of the reader that `open_sources` makes the primary one; no program is started.

    Args:
        host: the host.
        settings: the operator's settings.
        findings: results of `probe_all`; those of readers that lack the node's total are completed.
    """
    first = None
    for name in order(settings):
        if findings[name].status != "ok":
            continue
        if name == External.name:
            return name
        reader = _open(READERS[name], host, settings, findings)
        if reader is None:
            continue
        lacks_total = _lacks_total(reader, findings)
        reader.close()
        if not lacks_total:
            return name
        first = first or name
    return first


def open_sources(host: MeteredHost, settings: PowerSettings) -> Sources:
    """Open the first reader that has the node's total, and its cross-checks; without one, the first that works.

    A reader that cannot be opened although its probe succeeded has the finding `unreadable`. The finding of one that
    works, but lacks the total, has the reason.
    """
    findings = probe_all(host, settings)
    working = [name for name in order(settings) if findings[name].status == "ok"]
    primary = check = None
    why_no_total = ""
    partial: list[Reader] = []
    for name in working:
        if primary is None:
            reader = _open(READERS[name], host, settings, findings)
            if reader is not None and not _lacks_total(reader, findings):
                primary = reader
            elif reader is not None:
                partial.append(reader)
        elif {name, primary.name} == set(COUNTERS_OF_ONE_THING):
            check = _open(READERS[name], host, settings, findings)
    if primary is None and partial:
        primary = partial.pop(0)
        why_no_total = f"{primary.name}: {primary.why_no_total}"
    if settings.powertop and findings[PowerTop.name].status == "ok":
        powertop = _open(PowerTop, host, settings, findings)
        partial += [powertop] if powertop else []
    return Sources(primary, check, tuple(partial), findings, why_no_total)


def _lacks_total(reader: Reader, findings: dict[str, ProbeResult]) -> bool:
    """Return whether a reader lacks the node's total; complete its finding with the reason."""
    why = reader.why_no_total
    if why:
        finding = findings[reader.name]
        findings[reader.name] = ProbeResult(finding.status, f"{finding.reason}; {why}")
    return bool(why)


def _open(
    kind: type[Reader], host: MeteredHost, settings: PowerSettings, findings: dict[str, ProbeResult]
) -> Reader | None:
    reader = kind(host, settings)
    try:
        reader.open()
    except OSError as fault:
        reader.close()
        findings[kind.name] = ProbeResult("unreadable", str(fault))
        return None
    return reader


class MeterAgreement(NamedTuple):
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

    def add(self, samples: Iterable[Sample]) -> list[MeterAgreement] | None:
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
        elif now_ns - self._begin_ns >= CHECK_NS:
            first, second = self._sources
            shared = self._ends[first].keys() & self._ends[second].keys()
            return [self._compare(name) for name in sorted(shared)]
        return None

    def _compare(self, name: str) -> MeterAgreement:
        first, second = self._sources
        if name in self._broken:
            return MeterAgreement(name, None, f"{first} and {second} cannot be compared: a step is missing")
        watts = [_watts(*self._ends[source][name]) for source in self._sources]
        begin, end = self._ends[first][name]
        if watts[0] is None or watts[1] is None:
            return MeterAgreement(name, None, f"{first} and {second} cannot be compared: one of them has not changed")
        seconds = (end.t_ns - begin.t_ns) / 1e9
        slack = (
            sum(unit_joules(self._ends[source][name][0].domain) for source in self._sources) / 2 * CHECK_UNITS / seconds
        )
        differ = watts[1] - watts[0]
        verdict = "agree" if abs(differ) <= CHECK_TOLERANCE * watts[0] + slack else "DISAGREE"
        detail = f"{first} and {second} {verdict}: {watts[0]:.3f} W and {watts[1]:.3f} W over {seconds:.0f} s"
        return MeterAgreement(name, differ / watts[0], detail)


def _watts(begin: Sample, end: Sample) -> float | None:
    joules, seconds = end.known_joules - begin.known_joules, (end.t_ns - begin.t_ns) / 1e9
    return joules / seconds if joules > 0 and seconds > 0 else None


class EventNote(NamedTuple):
    """Note that becomes an event of the trace."""

    kind: str
    subject: str
    detail: str
    value: float | None = None


class Metering:
    """The open readers of a host; `sample` may be called from any thread.

    Attributes:
        sources: the readers.
    """

    def __init__(self, host: MeteredHost, settings: PowerSettings) -> None:
        self.host, self.settings = host, settings
        self.sources: Sources = open_sources(host, settings)
        self._readers: list[Reader] = list(self.sources.opened)
        self._check = None
        if self.sources.primary and self.sources.check:
            self._check = CrossCheck(self.sources.primary.name, self.sources.check.name)
        self._series: dict[Domain, Series] = {}
        self._reasons: dict[Domain, str] = {}
        self._notes: list[EventNote] = []
        self._trouble = ""
        self._lock = threading.Lock()
        self._clocks = self._clock_bounds()
        self._asleep_ns = 0

    @property
    def source(self) -> str | None:
        """Name of the primary reader."""
        return self.sources.primary.name if self.sources.primary else None

    @property
    def patience_s(self) -> float:
        """Longest delay of the primary source's readings; 0 when it is read directly."""
        external = self.settings.external
        return external.patience_s if self.source == External.name and external is not None else 0.0

    @property
    def fewest_hz(self) -> float:
        """Lowest sampling rate at which no counter wraps unnoticed and no sensor reading expires."""
        domains = (domain for reader in self._readers for domain in reader.domains)
        periods = [
            domain.longest_s / _READS_PER_VALUE if domain.joules_per_count is None else Counter(domain).longest_period_s
            for domain in domains
        ]
        return 1 / min(periods, default=float("inf"))

    def sample(self, late: bool = False) -> list[Sample]:
        """Read all meters now; domains without a value are returned with their reason.

        Args:
            late: whether this sample is taken later than planned.
        """
        with self._lock:
            self._detect_suspend()
            samples = []
            for reader in self._readers:
                for reading in reader.read():
                    sample = self._add(reader, reading, late)
                    if sample is not None:
                        samples.append(sample)
            self._note_trouble()
            if self._check is not None:
                self._end_check(self._check, samples)
            return samples

    def notes(self) -> list[EventNote]:
        """Return the notes since the last call."""
        with self._lock:
            notes, self._notes = self._notes, []
            return notes

    def close(self) -> None:
        """Close all readers."""
        with self._lock:
            for reader in self._readers:
                reader.close()
            self._readers = []

    def _add(self, reader: Reader, reading: Reading, late: bool) -> Sample | None:
        series = self._series.get(reading.domain)
        if series is None:
            # Only the primary source's domains are terms of the total.
            is_term = reading.domain.in_total and reader is self.sources.primary
            series = self._series[reading.domain] = Series(replace(reading.domain, in_total=is_term))
        sample = series.add(reading, self._asleep_ns, late)
        if sample is not None:
            # The number of seconds in a reason changes all the time: compare only the text before it.
            reason = sample.reason.partition(" for ")[0]
            if reason != self._reasons.get(reading.domain, ""):
                self._reasons[reading.domain] = reason
                kind = "power_missing" if reason else "power_back"
                self._notes.append(EventNote(kind, f"{sample.domain.name} ({reader.name})", sample.reason))
        return sample

    def _note_trouble(self) -> None:
        """Note an error of a source without domains, which cannot be reported in a sample."""
        primary = self.sources.primary
        trouble = primary.trouble if primary is not None and not self._series else ""
        if trouble and trouble != self._trouble:
            self._trouble = trouble
            self._notes.append(EventNote("power_missing", self.source or "", trouble))

    def _end_check(self, check: CrossCheck, samples: Sequence[Sample]) -> None:
        failures = check.add(samples)
        if failures is None:
            return
        self._check = None
        self._notes += [EventNote("power_cross_check", f.domain, f.detail, f.difference) for f in failures]
        for reader in self._readers:
            if reader is self.sources.check:
                reader.close()
                self._readers.remove(reader)
                break

    def _detect_suspend(self) -> None:
        """Detect suspension of the host: the boot-time clock includes it, the monotonic clock does not."""
        least, most = self._clock_bounds()
        if least - self._clocks[1] > _ASLEEP_NS:
            self._asleep_ns += least - self._clocks[0]
        self._clocks = least, most

    def _clock_bounds(self) -> tuple[int, int]:
        """Return bounds of the difference of the boot-time clock to the monotonic clock."""
        before = self.host.monotonic_ns()
        boot = self.host.boottime_ns()
        after = self.host.monotonic_ns()
        return boot - after, boot - before
