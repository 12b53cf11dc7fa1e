"""Energy of the machine, from its meters.

A thread reads the meters ten times a second, more often than other sensors; every `read`, and so every mark, adds a
sample. The rows have their own times.
"""

import time
from collections import deque
from collections.abc import Iterable

from agents.power.header import header
from agents.power.host import MeteredHost
from agents.power.metering import Metering, Note
from agents.power.sampler import PowerSampler
from agents.power.series import Sample
from agents.power.settings import completed, settings_of
from agents.sensors.base import Host, Row, Sensor

NS = 1_000_000_000


class PowerSensor(Sensor):
    """Fills the table `power`.

    Events: `power_reader`, `power_domain` and `power_host` at the start; `power_missing` and `power_back` when a domain
    stops and resumes; `power_cross_check`; `power_late` and `power_skipped`, the numbers of late and skipped samples;
    `power_cost`, CPU seconds of the thread since the last such event.
    """

    summary = "energy of packages, memory, boards or outlets, ten times a second, with its source"

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        # Two threads append, one removes; each step is atomic.
        self._samples: deque[Sample] = deque()
        self._sampler: PowerSampler | None = None
        self._metering: Metering | None = None
        self._notes: list[Note] = []
        self._newest_ns: dict[str, int] = {}
        self._reported = {"power_late": 0.0, "power_skipped": 0.0, "power_cost": 0.0}

    def probe(self) -> str | None:
        machine = MeteredHost.here()
        metering = Metering(machine, completed(settings_of(machine), self.host.power, self.host.meter_lag))
        if metering.source is None:
            metering.close()
            return metering.sources.why_none
        self._metering, self._notes = metering, list(header(metering))
        self._sampler = PowerSampler(metering, self._samples.extend)
        self._sampler.start()
        return None

    def read(self, now_ns: int) -> Iterable[Row]:
        if self._sampler is None or self._metering is None:
            return []
        self._sampler.force()
        samples = [self._samples.popleft() for _ in range(len(self._samples))]
        for sample in samples:
            if sample.domain.in_total:
                self._newest_ns[sample.domain.name] = sample.t_ns
        notes, self._notes = [*self._notes, *self._metering.notes(), *self._counts(self._sampler)], []
        rows = [self._row(sample) for sample in samples if not sample.is_silent]
        return rows + [Row("event", now_ns, tuple(note)) for note in notes]

    def awaits(self, t_ns: int) -> bool:
        if self._metering is None or time.monotonic_ns() > t_ns + self._metering.patience_s * NS:
            return False
        return min(self._newest_ns.values(), default=0) < t_ns

    def close(self) -> None:
        if self._sampler is not None:
            self._sampler.stop()

    def _row(self, sample: Sample) -> Row:
        domain = sample.domain
        values = (
            domain.name,
            domain.role,
            domain.source,
            domain.in_total,
            sample.raw,
            domain.raw_max,
            sample.joules,
            sample.watts,
            None if sample.joules is None else sample.bound_joules,
            sample.half_ns,
            ",".join(sample.flags),
            self.host.shared,
        )
        return Row("power", sample.t_ns, values)

    def _counts(self, sampler: PowerSampler) -> Iterable[Note]:
        now = {"power_late": sampler.late, "power_skipped": sampler.skipped, "power_cost": sampler.cpu_s}
        for kind, value in now.items():
            since, self._reported[kind] = value - self._reported[kind], value
            if since:
                yield Note(kind, "power sampler", "", since)
