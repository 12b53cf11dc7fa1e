"""Energy of machines, from trace rows of their meters, and its attribution to executors, transport and tuples.

Energy is divided second by second, and written to the table `energy`. Energy per hop is a convention. The energy of an
executor is divided evenly among the tuples that it received; the energy of a worker outside its executors, which
transports tuples, among those that it exchanged with other workers. A tuple within a worker therefore costs its
processing, and one between workers its processing and its transport.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from agents.collected_traces import TABLES
from agents.power.energy import Curve, IntervalEnergy, attribute, energy, split_by_package
from agents.power.reader import Domain, Role
from agents.power.series import Sample, edge_joules
from agents.trace import AGENT
from analysis.measure.covered import Spans, read_table, weighted, weighted_total
from analysis.measure.cpu_times import CpuTimes, Worker, steps
from analysis.measure.run_metrics import HOPS
from analysis.records.accounts import HopEnergy
from inventory.atomic_files import replacing_path
from inventory.cluster import Machine
from inventory.times import NS

CLAMPED = "clamped"
"""Flag of a step with less than idle power, or with more CPU time of workers than of the whole machine."""

_OF_PACKAGE = ("package", "dram", "core", "uncore")
_PACKAGE = re.compile(r"package-(\d+)")


@dataclass(frozen=True)
class AttributedDomain:
    """Energy of one domain in an interval.

    Attributes:
        domain: the power domain.
        energy: energy in the interval.
        curve: joules since the first row; meaningful if `energy` is known.
    """

    domain: Domain
    energy: IntervalEnergy
    curve: Curve


def metered(power: pa.Table, node: str, start_ns: int, end_ns: int) -> list[AttributedDomain]:
    """Return all domains of a node, from its rows of table `power`, for an interval in the node's time."""
    return [
        AttributedDomain(samples[0].domain, energy(samples, start_ns, end_ns), curve_of(samples))
        for samples in domains_of(power, node)
    ]


def domains_of(power: pa.Table, node: str) -> list[list[Sample]]:
    """Return the samples of every domain of a node, from its rows of table `power`."""
    rows = power.filter(pc.equal(power["node"], node)).sort_by("t_ns").to_pylist()
    series: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        series.setdefault((row["domain"], row["source"]), []).append(row)
    return [samples_of(each) for each in series.values()]


def curve_of(samples: Sequence[Sample]) -> Curve:
    """Return the joules of a domain since its first sample, over the node's time."""
    return Curve((sample.t_ns, sample.known_joules) for sample in samples)


def samples_of(rows: Iterable[Mapping[str, Any]]) -> list[Sample]:
    """Return the samples behind the rows of one domain, limited to what energy needs.

    A restarted agent begins a new series; the energy in between is a missing step.
    """
    samples: list[Sample] = []
    domain: Domain | None = None
    base = known = drift = 0.0
    for row in rows:
        domain = domain or _domain(row)
        flags = tuple(filter(None, row["flags"].split(",")))
        watts, joules = row["watts"], row["joules"]
        if "first" in flags and samples:
            base, joules, flags = known, None, (*flags, "reset")
        elif joules is not None:
            joules += base
            known = joules
            drift = row["bound_joules"] - edge_joules(domain, row["t_half_ns"], watts or 0.0)
        samples.append(
            Sample(domain, row["t_ns"], row["t_half_ns"], row["raw"], joules, known, watts, drift, 0.0, flags, "")
        )
    return samples


def _domain(first: Mapping[str, Any]) -> Domain:
    # The only uncertainty of a counter's first row is the resolution of the counter.
    unit = None if first["raw"] is None else first["bound_joules"]
    return Domain(
        first["domain"],
        cast("Role", first["role"]),
        first["source"],
        "",
        first["in_total"],
        joules_per_count=unit,
        unit=None if unit is None else 1.0,
        flags=tuple(flag for flag in ("modelled", "uncalibrated") if flag in first["flags"].split(",")),
    )


class EnergyShare(NamedTuple):
    """Row of the table `energy`: columns from `node` on."""

    node: str
    worker: int
    t_ns: int
    since_ns: int
    domain: str
    source: str
    consumer: str
    name: str
    cpu_ns: int | None
    joules: float
    flags: str


def divide(
    machine: Machine,
    domains: Sequence[AttributedDomain],
    idle_watts: Mapping[str, float],
    times: CpuTimes,
    start_ns: int,
    end_ns: int,
) -> Iterator[EnergyShare]:
    """Yield all shares of the energy of these domains; an inactive consumer has no share in a step.

    Args:
        machine: the machine.
        domains: the terms of its total, with known energy.
        idle_watts: domain -> idle power.
        times: CPU times of workers and executors.
        start_ns, end_ns: the measured interval in the machine's time.
    """
    workers = sorted(times.workers)
    packages = packages_of(domains)
    apart = not times.why_together(set(packages.values()))
    for since_ns, t_ns in steps(start_ns, end_ns, times.moments):
        everywhere = [times.work(worker, since_ns, t_ns) for worker in workers]
        all_ns = times.all_ns(since_ns, t_ns)
        on_package = times.packages_ns(since_ns, t_ns)
        places = split_by_package([times.places_ns(worker, since_ns, t_ns) for worker in workers], on_package)
        for each in domains:
            package = packages.get(each.domain.name) if apart else None
            if package is None:
                work, here_ns = everywhere, all_ns
            else:
                work = [done.part(place[package]) for done, place in zip(everywhere, places, strict=True)]
                here_ns = on_package[package]
            joules = each.curve.between(since_ns, t_ns)
            parts = attribute(joules, idle_watts[each.domain.name] * (t_ns - since_ns) / NS, here_ns, work)
            flags = ",".join([CLAMPED] * parts.clamped + list(each.domain.flags))
            what = (t_ns, since_ns, each.domain.name, each.domain.source)
            for (node, slot), done, share in zip(workers, everywhere, parts.workers, strict=True):
                for name, used in share.executors.items():
                    if done.busy_ns[name]:
                        yield EnergyShare(node, slot, *what, "executor", name, round(done.busy_ns[name]), used, flags)
                outside_ns = max(0, round(done.cpu_ns - sum(done.busy_ns.values())))
                if outside_ns or share.transport:
                    yield EnergyShare(node, slot, *what, "transport", "", outside_ns, share.transport, flags)
            rest_ns = max(0, round(all_ns - sum(done.cpu_ns for done in everywhere)))
            yield EnergyShare(machine.metered, AGENT, *what, "rest", "", rest_ns, parts.rest, flags)
            yield EnergyShare(machine.metered, AGENT, *what, "idle", "", None, parts.idle, flags)


def packages_of(domains: Iterable[AttributedDomain]) -> dict[str, int]:
    """Return domain -> its package; domains of the whole machine are left out."""
    matches = {
        each.domain.name: _PACKAGE.search(each.domain.name) for each in domains if each.domain.role in _OF_PACKAGE
    }
    return {name: int(match[1]) for name, match in matches.items() if match}


ROWS_HELD = 50_000

CONSUMERS = {"executor": "executors", "transport": "transport", "rest": "rest", "idle": "idle"}
"""Consumer in the table -> its name in `run.json`."""


class EnergyTable:
    """Context manager; the table is complete when the block ends without an exception.

    Attributes:
        consumers: joules by kind, named as in `run.json`.
        executors: joules by worker and executor.
        transport: joules by worker.
        clamped: nodes with a clamped step.
    """

    def __init__(self, traces: Path, run: str) -> None:
        """Create the table in the folder of a run's traces."""
        self._run = run
        self._path = traces / "energy.parquet"
        self._held: list[EnergyShare] = []
        self.consumers: dict[str, float] = dict.fromkeys(CONSUMERS.values(), 0.0)
        self.executors: defaultdict[tuple[Worker, str], float] = defaultdict(float)
        self.transport: defaultdict[Worker, float] = defaultdict(float)
        self.clamped: set[str] = set()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            partial = stack.enter_context(replacing_path(self._path))
            self._writer = stack.enter_context(pyarrow.parquet.ParquetWriter(partial, TABLES["energy"]))
            self._open = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._open:
            if fault is not None:
                raise fault
            self._flush()

    def add(self, parts: Iterable[EnergyShare]) -> None:
        """Add rows."""
        for part in parts:
            self.consumers[CONSUMERS[part.consumer]] += part.joules
            if part.consumer == "executor":
                self.executors[(part.node, part.worker), part.name] += part.joules
            elif part.consumer == "transport":
                self.transport[part.node, part.worker] += part.joules
            if CLAMPED in part.flags:
                self.clamped.add(part.node)
            self._held.append(part)
            if len(self._held) >= ROWS_HELD:
                self._flush()

    def _flush(self) -> None:
        held, self._held = self._held, []
        if held:
            schema = TABLES["energy"]
            columns = [[self._run] * len(held), *zip(*held, strict=True)]
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            self._writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


WITHIN = "intra_worker"


class Delivered:
    """Numbers of tuples that were delivered in the measured interval.

    Attributes:
        to_sinks: tuples that all sinks took in, as in the throughput.
        to_executor: (executor, hop) -> received tuples.
        across: (worker, hop) -> tuples exchanged with other workers.
        by_hop: hop -> all tuples.
    """

    def __init__(self, traces: Path, spans: Spans) -> None:
        """Count the tuples in the tables `channel` and `throughput`."""
        throughput = read_table(traces, "throughput", "role", "processed")
        sinks = throughput.filter(pc.equal(throughput["role"], "sink"))
        self.to_sinks = weighted_total(weighted(sinks, spans), "processed")
        sent = weighted(read_table(traces, "channel", "target", "hop", "target_node", "tuples"), spans)
        slots = _slots(traces)
        self.to_executor: dict[tuple[str, str], float] = {}
        self.across: dict[tuple[Worker, str], float] = {}
        self.by_hop: dict[str, float] = dict.fromkeys(HOPS, 0.0)
        for row in sent.to_pylist():
            tuples, hop, target = row["tuples"] * row["weight"], row["hop"], row["target"]
            self.by_hop[hop] += tuples
            _add(self.to_executor, (target, hop), tuples)
            if hop != WITHIN:
                _add(self.across, ((row["node"], row["worker"]), hop), tuples)
                slot = slots.get((row["target_node"], target))
                if slot is not None:
                    _add(self.across, ((row["target_node"], slot), hop), tuples)


def per_hop(delivered: Delivered, ledger: EnergyTable) -> dict[str, HopEnergy]:
    """Return the energy of tuples by kind of hop, by the convention above."""
    shares: dict[str, float] = dict.fromkeys(HOPS, 0.0)
    for (_, executor), used in ledger.executors.items():
        _spread(shares, used, {hop: delivered.to_executor.get((executor, hop), 0.0) for hop in HOPS})
    for worker, used in ledger.transport.items():
        _spread(shares, used, {hop: delivered.across.get((worker, hop), 0.0) for hop in HOPS})
    return {
        hop: HopEnergy(
            tuples=round(delivered.by_hop[hop]),
            joules=shares[hop] if delivered.by_hop[hop] else None,
            joules_per_tuple=shares[hop] / delivered.by_hop[hop] if delivered.by_hop[hop] else None,
        )
        for hop in HOPS
    }


def _slots(traces: Path) -> dict[tuple[str, str], int]:
    """Return (node, executor) -> the last slot of that node in which it ran."""
    rows = read_table(traces, "executor", "executor").sort_by("t_ns")
    last_rows = rows.group_by(["node", "executor"], use_threads=False).aggregate([("worker", "last")]).to_pylist()
    return {(row["node"], row["executor"]): row["worker_last"] for row in last_rows}


def _spread(shares: dict[str, float], joules: float, tuples: dict[str, float]) -> None:
    together = sum(tuples.values())
    for hop, number in tuples.items():
        if together:
            shares[hop] += joules * number / together


def _add(sums: dict[Any, float], key: Any, value: float) -> None:
    sums[key] = sums.get(key, 0.0) + value
