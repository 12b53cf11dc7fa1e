"""Energy of a run: idle baselines, the record in `run.json`, and the rows of the table `energy`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import asdict, replace

from agents.protocol import IdleBaseline
from agents.trace import AGENT
from analysis.measure.covered import Spans, read_table
from analysis.measure.cpu_times import TOGETHER, CpuTimes, Worker
from analysis.measure.energy_attribution import (
    CLAMPED,
    AttributedDomain,
    Delivered,
    EnergyTable,
    divide,
    metered,
    packages_of,
    per_hop,
)
from analysis.records.accounts import (
    DomainEnergy,
    Energy,
    ExecutorEnergy,
    IdlePower,
    IdleRecord,
    MachineEnergy,
    Packages,
    WorkerEnergy,
)
from inventory.cluster import Machine
from inventory.times import NS

MOST_DRIFT = 0.05
"""Accepted difference of the power after a run, as a share of the power before it."""

NOT_MEASURED = IdleBaseline(reason="it was not measured")


@dataclass(frozen=True)
class Idle:
    """Idle baseline of a machine before and after a run."""

    before: IdleBaseline = NOT_MEASURED
    after: IdleBaseline = NOT_MEASURED

    @property
    def watts(self) -> dict[str, float]:
        """Return domain -> its idle power: the mean of both values, or the known one."""
        known = [baseline.domains for baseline in (self.before, self.after) if baseline.watts is not None]
        return {
            domain: sum(each[domain] for each in known) / len(known)
            for domain in (known[0] if known else ())
            if all(domain in each for each in known)
        }

    @property
    def flags(self) -> tuple[str, ...]:
        """Return `unsteady` and `loaded` if either has them, and `drift` if they differ."""
        flags = [*self.before.flags, *self.after.flags]
        before, after = self.before.watts, self.after.watts
        if before is not None and after is not None and abs(after - before) > MOST_DRIFT * before:
            flags.append("drift")
        return tuple(dict.fromkeys(flags))

    @property
    def reason(self) -> str:
        """Return why the baseline is unknown, or an empty string."""
        return "" if self.watts else self.before.reason or self.after.reason

    def record(self) -> IdleRecord:
        """Return the record of `run.json`."""
        return IdleRecord(before=_record(self.before), after=_record(self.after), flags=self.flags)


def _record(baseline: IdleBaseline) -> IdlePower:
    return IdlePower(**asdict(baseline) | {"reason": baseline.reason or None})


NOT_METERED = "no energy source"


def account(
    traces: Path, run: str, machines: Sequence[Machine], idle: Mapping[str, Idle], offsets: Mapping[str, int]
) -> Energy:
    """Return `measured.energy`, and write the table `energy` to `traces`.

    Args:
        traces: folder of `<table>.parquet`.
        run: the run's name.
        machines: machines of the run.
        idle: metered node -> its idle baseline.
        offsets: as in `analysis.measure.run_metrics.measure`.

    Raises:
        RunError: begin or end of the interval is missing in the traces.
        OSError: the table cannot be written.
    """
    spans = Spans(read_table(traces, "event", "kind", "detail", "value"), offsets)
    tables = _Tables(traces)
    with EnergyTable(traces, run) as ledger:
        records = [_of_machine(each, tables, spans, idle.get(each.metered, Idle()), ledger) for each in machines]
    delivered = Delivered(traces, spans)
    tuples = delivered.to_sinks
    joules, net_joules = _sum([each.joules for each in records]), _sum([each.net_joules for each in records])
    unknown = [each.why_not_attributed for each in records if each.why_not_attributed]
    return Energy(
        joules=joules,
        bound_joules=_sum([each.bound_joules for each in records]),
        idle_joules=_sum([each.idle_joules for each in records]),
        net_joules=net_joules,
        sources=sorted({each.source for each in records if each.source}),
        modelled=any(each.modelled for each in records),
        flags=list(dict.fromkeys(flag for each in records for flag in each.flags)),
        reason="; ".join(each.reason for each in records if each.reason) or None,
        tuples=round(tuples),
        joules_per_tuple=joules / tuples if joules is not None and tuples else None,
        net_joules_per_tuple=net_joules / tuples if net_joules is not None and tuples else None,
        hops=None if unknown else per_hop(delivered, ledger),
        consumers=None if unknown else ledger.consumers,
        why_not_attributed="; ".join(dict.fromkeys(unknown)) or None,
        machines=records,
    )


class _Tables:
    def __init__(self, traces: Path) -> None:
        columns = ("domain", "role", "source", "in_total", "raw", "joules", "watts", "bound_joules", "t_half_ns")
        self.power = read_table(traces, "power", *columns, "flags")
        self.cpu = read_table(traces, "cpu", "scope", "name", "cores", "shared", "package", "package_by")
        self.executor = read_table(traces, "executor", "executor", "busy_ns")
        self.event = read_table(traces, "event", "kind", "subject", "detail")


def _of_machine(machine: Machine, tables: _Tables, spans: Spans, idle: Idle, ledger: EnergyTable) -> MachineEnergy:
    start_ns, end_ns = spans.of(machine.metered, AGENT)
    seconds = (end_ns - start_ns) / NS
    domains = metered(tables.power, machine.metered, start_ns, end_ns)
    terms = [each for each in domains if each.domain.in_total]
    reason = "; ".join(f"{each.domain.name}: {each.energy.reason}" for each in terms if each.energy.reason)
    if not terms:
        reason = _why_none(tables.event, machine.metered)
    gross = None if reason else sum(each.energy.joules or 0.0 for each in terms)
    without_work = None
    if not reason and all(each.domain.name in idle.watts for each in terms):
        without_work = sum(idle.watts[each.domain.name] for each in terms) * seconds
    times = CpuTimes(machine, tables.cpu, tables.executor)
    why = _why_not(machine, terms, reason, idle, times)
    record = MachineEnergy(
        nodes=machine.nodes,
        joules=gross,
        bound_joules=None if reason else sum(each.energy.bound_joules or 0.0 for each in terms),
        idle_joules=without_work,
        net_joules=None if gross is None or without_work is None else gross - without_work,
        source=terms[0].domain.source if terms else None,
        modelled=any("modelled" in each.domain.flags for each in terms),
        flags=list(dict.fromkeys([*(flag for each in terms for flag in each.energy.flags), *idle.flags])),
        reason=reason or None,
        domains=[_of_domain(each, idle) for each in domains],
        idle=idle.record(),
        why_not_attributed=why or None,
    )
    if why:
        return record
    ledger.add(divide(machine, terms, idle.watts, times, start_ns, end_ns))
    executors = {key: joules for key, joules in sorted(ledger.executors.items()) if key[0] in times.workers}
    return replace(
        record,
        flags=[*record.flags, *[CLAMPED] * (machine.metered in ledger.clamped)],
        workers=_of_workers(ledger, executors, times, start_ns, end_ns),
        executors=[
            ExecutorEnergy(
                executor=name,
                node=node,
                worker=slot,
                busy_s=times.executors[node, slot][name].between(start_ns, end_ns) / NS,
                joules=joules,
            )
            for ((node, slot), name), joules in executors.items()
        ],
        packages=_packages(terms, times, start_ns, end_ns),
    )


def _of_domain(each: AttributedDomain, idle: Idle) -> DomainEnergy:
    return DomainEnergy(
        domain=each.domain.name,
        role=each.domain.role,
        source=each.domain.source,
        in_total=each.domain.in_total,
        joules=each.energy.joules,
        bound_joules=each.energy.bound_joules,
        idle_watts=idle.watts.get(each.domain.name),
        flags=each.energy.flags,
        reason=each.energy.reason or None,
    )


def _why_none(events: pa.Table, node: str) -> str:
    """Return why a node has no meter, as reported by the node."""
    absent = pc.and_(pc.equal(events["kind"], "sensor_absent"), pc.equal(events["subject"], "power"))
    silent = pc.equal(events["kind"], "power_missing")
    details = events.filter(pc.and_(pc.or_(absent, silent), pc.equal(events["node"], node)))["detail"].to_pylist()
    return f"{node}: {NOT_METERED}" + (f" ({details[0]})" if details else "")


def _why_not(machine: Machine, terms: Sequence[AttributedDomain], reason: str, idle: Idle, times: CpuTimes) -> str:
    if reason:
        return reason
    missing = [each.domain.name for each in terms if each.domain.name not in idle.watts]
    if missing:
        return f"{machine.metered}: no idle baseline of {', '.join(missing)} ({idle.reason})"
    return "" if times.is_known else f"{machine.metered}: CPU times were not sampled (sensor cpu)"


def _of_workers(
    ledger: EnergyTable, executors: Mapping[tuple[Worker, str], float], times: CpuTimes, start_ns: int, end_ns: int
) -> list[WorkerEnergy]:
    """Return the CPU time and the energy of a machine's workers, with that of their executors."""
    joules = {worker: ledger.transport[worker] for worker in sorted(times.workers)}
    for (worker, _), used in executors.items():
        joules[worker] += used
    return [
        WorkerEnergy(
            node=worker[0],
            worker=worker[1],
            cpu_s=times.workers[worker].between(start_ns, end_ns) / NS,
            joules=used,
        )
        for worker, used in joules.items()
    ]


def _packages(terms: Sequence[AttributedDomain], times: CpuTimes, start_ns: int, end_ns: int) -> Packages | None:
    """Return how the packages of workers are known; None with a single package."""
    packages = set(packages_of(terms).values())
    if len(packages) < 2:
        return None
    reason = times.why_together(packages)
    known_by = {TOGETHER: 1.0} if reason else times.known_by(start_ns, end_ns)
    return Packages(known_by=known_by, reason=reason or None)


def _sum(values: Sequence[float | None]) -> float | None:
    """Return the sum over all machines; None if one value is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
