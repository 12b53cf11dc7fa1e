"""The open meters of a host: sampled as a whole, by whom and whenever one likes."""

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
"""A host that seems to have slept for less was looked at too slowly."""

_LOOKS_PER_WORD = 2
"""How often a sensor is looked at in the time that its word holds."""


class Note(NamedTuple):
    """Something to be told once: an event of the trace."""

    kind: str
    subject: str
    detail: str
    value: float | None = None


class Metering:
    """Opens what there is to open; `sample` may be called from any thread.

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
        self._clocks = self._look_at_clocks()
        self._asleep_ns = 0

    @property
    def source(self) -> str | None:
        """Name of the primary reader."""
        return self.sources.primary.name if self.sources.primary else None

    @property
    def patience_s(self) -> float:
        """How long after a moment the primary source may first speak of it; 0 where it is read at once."""
        external = self.settings.external
        return external.patience_s if self.source == External.name and external is not None else 0.0

    @property
    def fewest_hz(self) -> float:
        """How often meters must be looked at: no turn of a counter is lost then, no sensor's word grows too old."""
        domains = (domain for reader in self._readers for domain in reader.domains)
        periods = [
            domain.longest_s / _LOOKS_PER_WORD if domain.joules_per_count is None else Counter(domain).longest_period_s
            for domain in domains
        ]
        return 1 / min(periods, default=float("inf"))

    def sample(self, late: bool = False) -> list[Sample]:
        """Read all meters now; what is silent is in the answer too, with its reason.

        Args:
            late: whether this happens later than planned.
        """
        with self._lock:
            self._notice_sleep()
            samples = []
            for reader in self._readers:
                for reading in reader.read():
                    sample = self._add(reader, reading, late)
                    if sample is not None:
                        samples.append(sample)
            self._hear_trouble()
            if self._check is not None:
                self._end_check(self._check, samples)
            return samples

    def notes(self) -> list[Note]:
        """What has come up since the last call."""
        with self._lock:
            notes, self._notes = self._notes, []
            return notes

    def close(self) -> None:
        """Let go of all readers."""
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
            # Seconds of silence go on: only what they are about is news.
            reason = sample.reason.partition(" for ")[0]
            if reason != self._reasons.get(reading.domain, ""):
                self._reasons[reading.domain] = reason
                kind = "power_missing" if reason else "power_back"
                self._notes.append(Note(kind, f"{sample.domain.name} ({reader.name})", sample.reason))
        return sample

    def _hear_trouble(self) -> None:
        """A source that has no domain yet cannot say in a sample what is wrong."""
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

    def _notice_sleep(self) -> None:
        """The clock since boot goes on while the host is suspended, the monotonic one does not."""
        least, most = self._look_at_clocks()
        if least - self._clocks[1] > _ASLEEP_NS:
            self._asleep_ns += least - self._clocks[0]
        self._clocks = least, most

    def _look_at_clocks(self) -> tuple[int, int]:
        """Bounds of how far the clock since boot is ahead."""
        before = self.host.monotonic_ns()
        boot = self.host.boottime_ns()
        after = self.host.monotonic_ns()
        return boot - after, boot - before
