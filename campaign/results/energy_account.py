"""Energy of a run: the block in `run.json`, and the rows of the table `energy`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from agents.trace import AGENT
from campaign.agenda.machines import Machine, Metered, metered
from campaign.results.cpu_times import TOGETHER, CpuTimes
from campaign.results.energy_consumers import CLAMPED, divide, packages_of
from campaign.results.energy_per_tuple import Delivered, per_hop, per_tuple
from campaign.results.energy_table import EnergyTable
from campaign.results.idle_baseline import Idle
from campaign.results.run_metrics import Spans, read_table

NOT_METERED = "no energy source"


def account(
    traces: Path, run: str, machines: Sequence[Machine], idle: Mapping[str, Idle], offsets: Mapping[str, int]
) -> dict[str, Any]:
    """Return the block `measured.energy`, and write the table `energy` to `traces`.

    Args:
        traces: folder of `<table>.parquet`.
        run: the run's name.
        machines: machines of the run.
        idle: metered node -> its idle baseline.
        offsets: as in `campaign.results.run_metrics.measure`.

    Raises:
        RunError: begin or end of the interval is missing in the traces.
        OSError: the table cannot be written.
    """
    spans = Spans(read_table(traces, "event", "kind", "detail", "value"), offsets)
    tables = _Tables(traces)
    with EnergyTable(traces, run) as ledger:
        documents = [_of_machine(each, tables, spans, idle.get(each.metered, Idle()), ledger) for each in machines]
    delivered = Delivered(traces, spans)
    whole = _sum(documents)
    whole |= per_tuple(delivered.to_sinks, whole["joules"], whole["net_joules"])
    unknown = [document["why_not_attributed"] for document in documents if document["why_not_attributed"]]
    if unknown:
        whole |= {"hops": None, "consumers": None, "why_not_attributed": "; ".join(dict.fromkeys(unknown))}
    else:
        whole |= {
            "hops": per_hop(delivered, ledger),
            "consumers": ledger.consumers,
            "why_not_attributed": None,
        }
    return whole | {"machines": documents}


class _Tables:
    def __init__(self, traces: Path) -> None:
        columns = ("domain", "role", "source", "in_total", "raw", "joules", "watts", "bound_joules", "t_half_ns")
        self.power = read_table(traces, "power", *columns, "flags")
        self.cpu = read_table(traces, "cpu", "scope", "name", "cores", "shared", "package", "package_by")
        self.executor = read_table(traces, "executor", "executor", "busy_ns")
        self.event = read_table(traces, "event", "kind", "subject", "detail")


def _of_machine(machine: Machine, tables: _Tables, spans: Spans, idle: Idle, ledger: EnergyTable) -> dict[str, Any]:
    start_ns, end_ns = spans.of(machine.metered, AGENT)
    seconds = (end_ns - start_ns) / 1e9
    domains = metered(tables.power, machine.metered, start_ns, end_ns)
    terms = [each for each in domains if each.domain.in_total]
    reason = "; ".join(f"{each.domain.name}: {each.energy.reason}" for each in terms if each.energy.reason)
    if not terms:
        reason = _why_none(tables.event, machine.metered)
    document: dict[str, Any] = {
        "nodes": list(machine.nodes),
        "joules": None if reason else sum(each.energy.joules or 0.0 for each in terms),
        "bound_joules": None if reason else sum(each.energy.bound_joules or 0.0 for each in terms),
        **_net(terms, reason, idle, seconds),
        "source": terms[0].domain.source if terms else None,
        "modelled": any("modelled" in each.domain.flags for each in terms),
        "flags": list(dict.fromkeys([*(flag for each in terms for flag in each.energy.flags), *idle.flags])),
        "reason": reason or None,
        "domains": [_of_domain(each, idle) for each in domains],
        "workers": None,
        "executors": None,
        "packages": None,
        "idle": idle.document(),
    }
    times = CpuTimes(machine, tables.cpu, tables.executor)
    why = _why_not(machine, terms, reason, idle, times)
    document["why_not_attributed"] = why or None
    if why:
        return document
    ledger.add(divide(machine, terms, idle.watts, times, start_ns, end_ns))
    if machine.metered in ledger.clamped:
        document["flags"].append(CLAMPED)
    return document | _used(ledger, times, start_ns, end_ns) | {"packages": _packages(terms, times, start_ns, end_ns)}


def _net(terms: Sequence[Metered], reason: str, idle: Idle, seconds: float) -> dict[str, float | None]:
    if reason or any(each.domain.name not in idle.watts for each in terms):
        return {"idle_joules": None, "net_joules": None}
    gross = sum(each.energy.joules or 0.0 for each in terms)
    without_work = sum(idle.watts[each.domain.name] for each in terms) * seconds
    return {"idle_joules": without_work, "net_joules": gross - without_work}


def _of_domain(each: Metered, idle: Idle) -> dict[str, Any]:
    return {
        "domain": each.domain.name,
        "role": each.domain.role,
        "source": each.domain.source,
        "in_total": each.domain.in_total,
        "joules": each.energy.joules,
        "bound_joules": each.energy.bound_joules,
        "idle_watts": idle.watts.get(each.domain.name),
        "flags": list(each.energy.flags),
        "reason": each.energy.reason or None,
    }


def _why_none(events: pa.Table, node: str) -> str:
    """Return why a node has no meter, as reported by the node."""
    absent = pc.and_(pc.equal(events["kind"], "sensor_absent"), pc.equal(events["subject"], "power"))
    silent = pc.equal(events["kind"], "power_missing")
    details = events.filter(pc.and_(pc.or_(absent, silent), pc.equal(events["node"], node)))["detail"].to_pylist()
    return f"{node}: {NOT_METERED}" + (f" ({details[0]})" if details else "")


def _why_not(machine: Machine, terms: Sequence[Metered], reason: str, idle: Idle, times: CpuTimes) -> str:
    if reason:
        return reason
    missing = [each.domain.name for each in terms if each.domain.name not in idle.watts]
    if missing:
        return f"{machine.metered}: no idle baseline of {', '.join(missing)} ({idle.reason})"
    return "" if times.is_known else f"{machine.metered}: CPU times were not sampled (sensor cpu)"


def _used(ledger: EnergyTable, times: CpuTimes, start_ns: int, end_ns: int) -> dict[str, Any]:
    """Return the energy and CPU time of a machine's workers and executors in the interval."""
    executors = {key: joules for key, joules in sorted(ledger.executors.items()) if key[0] in times.workers}
    workers = {worker: ledger.transport[worker] for worker in sorted(times.workers)}
    for (worker, _), joules in executors.items():
        workers[worker] += joules
    return {
        "workers": [
            {
                "node": node,
                "worker": slot,
                "cpu_s": times.workers[node, slot].between(start_ns, end_ns) / 1e9,
                "joules": joules,
            }
            for (node, slot), joules in workers.items()
        ],
        "executors": [
            {
                "executor": name,
                "node": node,
                "worker": slot,
                "busy_s": times.executors[node, slot][name].between(start_ns, end_ns) / 1e9,
                "joules": joules,
            }
            for ((node, slot), name), joules in executors.items()
        ],
    }


def _packages(terms: Sequence[Metered], times: CpuTimes, start_ns: int, end_ns: int) -> dict[str, Any] | None:
    """Return how the packages of workers are known; None with a single package."""
    packages = set(packages_of(terms).values())
    if len(packages) < 2:
        return None
    reason = times.why_together(packages)
    known_by = {TOGETHER: 1.0} if reason else times.known_by(start_ns, end_ns)
    return {"known_by": known_by, "reason": reason or None}


def _sum(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sums over all machines; a sum is None if one value is unknown."""

    def added(key: str) -> float | None:
        values = [document[key] for document in documents]
        return None if None in values or not values else sum(values)

    reasons = [document["reason"] for document in documents if document["reason"]]
    return {
        **{key: added(key) for key in ("joules", "bound_joules", "idle_joules", "net_joules")},
        "sources": sorted({document["source"] for document in documents if document["source"]}),
        "modelled": any(document["modelled"] for document in documents),
        "flags": list(dict.fromkeys(flag for document in documents for flag in document["flags"])),
        "reason": "; ".join(reasons) or None,
    }
