"""Thread-safe sampling of all open meters of a host."""

import threading
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from agents.power.choose import Sources, open_sources
from agents.power.counter import Counter
from agents.power.cross_check import CrossCheck
from agents.power.domain import Domain, Reader, Reading
from agents.power.external import External
from agents.power.host import MeteredHost
from agents.power.series import Sample, Series
from agents.power.settings import PowerSettings

_ASLEEP_NS = 2_000_000
"""Shorter apparent suspensions are delays between two reads of the clocks."""

_LOOKS_PER_WORD = 2
"""Number of reads of a sensor in the longest time that its reading is valid."""


class Note(NamedTuple):
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
        self._notes: list[Note] = []
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
            domain.longest_s / _LOOKS_PER_WORD if domain.joules_per_count is None else Counter(domain).longest_period_s
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

    def notes(self) -> list[Note]:
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
                self._notes.append(Note(kind, f"{sample.domain.name} ({reader.name})", sample.reason))
        return sample

    def _note_trouble(self) -> None:
        """Note an error of a source without domains, which cannot be reported in a sample."""
        primary = self.sources.primary
        trouble = primary.trouble if primary is not None and not self._series else ""
        if trouble and trouble != self._trouble:
            self._trouble = trouble
            self._notes.append(Note("power_missing", self.source or "", trouble))

    def _end_check(self, check: CrossCheck, samples: Sequence[Sample]) -> None:
        found = check.add(samples)
        if found is None:
            return
        self._check = None
        self._notes += [Note("power_cross_check", f.domain, f.detail, f.difference) for f in found]
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
