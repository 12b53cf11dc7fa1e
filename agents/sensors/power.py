"""Energy of the machine, from its meters.

A thread reads the meters ten times a second, more often than other sensors; every `read`, and so every mark, adds a
sample. The rows have their own times. Events at the head of the trace hold the facts that are needed to judge them.
"""

import os
import time
from collections import deque
from collections.abc import Iterable, Iterator

from agents.power.meter import PowerSampler
from agents.power.metering import EventNote, Metering
from agents.power.reader import Domain, MeteredHost
from agents.power.series import Sample, unit_joules
from agents.power.settings import completed_settings, meter_settings
from agents.sensors import Host, Row, Sensor
from inventory.times import NS

CPU = "sys/devices/system/cpu"

_SETTINGS = (
    "intel_pstate/status",
    "intel_pstate/no_turbo",
    "amd_pstate/status",
    "cpufreq/boost",
    "smt/control",
    "online",
)
_OF_POLICY = (
    "scaling_driver",
    "scaling_governor",
    "scaling_min_freq",
    "scaling_max_freq",
    "energy_performance_preference",
)


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
        self._notes: list[EventNote] = []
        self._newest_ns: dict[str, int] = {}
        self._reported = {"power_late": 0.0, "power_skipped": 0.0, "power_cost": 0.0}

    def probe(self) -> str | None:
        machine = MeteredHost.at(self.host.root)
        metering = Metering(machine, completed_settings(meter_settings(machine), self.host.power, self.host.meter_lag))
        if metering.source is None:
            metering.close()
            return metering.sources.why_none
        self._metering, self._notes = metering, list(power_header(metering))
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

    def _counts(self, sampler: PowerSampler) -> Iterable[EventNote]:
        now = {"power_late": sampler.late, "power_skipped": sampler.skipped, "power_cost": sampler.cpu_s}
        for kind, value in now.items():
            since, self._reported[kind] = value - self._reported[kind], value
            if since:
                yield EventNote(kind, "power sampler", "", since)


def power_header(metering: Metering) -> Iterator[EventNote]:
    """Yield notes on readers and their findings, domains with resolution and range, the host and its CPU settings."""
    for name, finding in metering.sources.findings.items():
        yield EventNote("power_reader", name, f"{finding.status}: {finding.reason}")
    for reader in metering.sources.opened:
        for domain in reader.domains:
            yield EventNote(
                "power_domain", domain.name, f"{reader.name}: {_describe(domain)}", unit_joules(domain) or None
            )
    for what, text in _host(metering.host):
        yield EventNote("power_host", what, text)


def _describe(domain: Domain) -> str:
    parts = [domain.role, f"/{domain.path}", *domain.flags]
    if domain.in_total:
        parts.append("part of the node")
    if domain.raw_max is not None and domain.joules_per_count is not None:
        parts.append(f"wraps after {domain.raw_max * domain.joules_per_count:.0f} J")
    if domain.reason:
        parts.append(domain.reason)
    return ", ".join(parts)


def _host(host: MeteredHost) -> Iterator[tuple[str, str]]:
    yield "kernel", os.uname().release
    cpu = (host.read_if_there("proc/cpuinfo") or "").partition("\n\n")[0]
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in cpu.splitlines())}
    for key in ("model name", "microcode"):
        if facts.get(key):
            yield key, facts[key]
    flags = facts.get("flags", "").split()
    if "sgx" in flags:
        yield "energy filter", "the CPU has SGX: its counters may be noisy on purpose"
    if "hypervisor" in flags:
        yield "virtual machine", "meters of the physical machine are not visible to its guests"
    for path in _SETTINGS:
        text = host.read_if_there(f"{CPU}/{path}")
        if text:
            yield path, text
    yield from _policies(host)


def _policies(host: MeteredHost) -> Iterator[tuple[str, str]]:
    """Yield every clock setting once, with the policies that have it."""
    having: dict[tuple[str, str], list[str]] = {}
    for policy in host.names(f"{CPU}/cpufreq"):
        for name in _OF_POLICY:
            text = host.read_if_there(f"{CPU}/cpufreq/{policy}/{name}")
            if text:
                having.setdefault((name, text), []).append(policy)
    for (name, text), policies in having.items():
        yield name, f"{text}: {', '.join(policies)}"
