"""CPU time and loads from the traces: by node, by worker, by executor and by package (socket).

Loads are those of `controller.coordinator.monitor`: a worker's CPU time outside its executors is its transport, and
is divided among them.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from agents.power.energy import Curve, WorkerCpu
from analysis.measure.covered import Intervals, amounts, read_table, weighted
from analysis.measure.observations import POINTS, with_transport
from inventory.cluster import Machine


def curve_of_differences(rows: Iterable[tuple[int, int, float]]) -> Curve:
    """Return the curve for rows (time, begin of the time covered, amount), in order of time."""
    level = 0.0
    last_ns: int | None = None
    points: list[tuple[int, float]] = []
    for t_ns, since_ns, added in rows:
        begin_ns = since_ns if last_ns is None else max(since_ns, last_ns)
        if begin_ns != last_ns:
            points.append((begin_ns, level))
        level += added
        points.append((t_ns, level))
        last_ns = t_ns
    return Curve(points)


def steps(start_ns: int, end_ns: int, moments: Iterable[int]) -> list[tuple[int, int]]:
    """Return the interval, divided at all moments inside it."""
    cuts = sorted({moment for moment in moments if start_ns < moment < end_ns})
    return list(pairwise([start_ns, *cuts, end_ns])) if end_ns > start_ns else []


Worker = tuple[str, int]
"""Node and slot."""

ON_PACKAGE = ("affinity", "last_cpu")
"""Sources of a worker's package (`agents.sensors.kernel`)."""

TOGETHER = "together"
"""The package is unknown: the worker's energy is computed for all packages together."""


def node_curves(cpu: pa.Table) -> dict[str, Curve]:
    """Return node -> its CPU time, from the rows of scope `node` in table `cpu`."""
    nodes = cpu.filter(pc.equal(cpu["scope"], "node"))
    return {node: _curve(rows) for (node,), rows in _groups(nodes, ("node",), ("cores",))}


class CpuTimes:
    """CPU time of all processes on a machine, as curves over the machine's clock."""

    def __init__(self, machine: Machine, cpu: pa.Table, executor: pa.Table) -> None:
        """Read the tables `cpu` and `executor`."""
        cores = _only(cpu, node=machine.metered, scope="core")
        self._of_a_namespace = not machine.is_this_host and pc.any(cores["shared"]).as_py() is True
        if self._of_a_namespace:
            # A namespace sees the cores of its host; the row of the node has the node's own use.
            cores = _only(cpu, node=machine.metered, scope="node")
        self.moments = pc.unique(cores["t_ns"]).to_pylist()
        self._cores: dict[int | None, list[Curve]] = {}
        for (_, package), of_core in _groups(cores, ("name", "package"), ("cores",)):
            self._cores.setdefault(package, []).append(_curve(of_core))
        of_machine = pc.is_in(cpu["node"], pa.array(machine.nodes))
        self.workers: dict[Worker, Curve] = {}
        self._places: dict[Worker, dict[tuple[int | None, str | None], Curve]] = {}
        workers = cpu.filter(pc.and_(pc.equal(cpu["scope"], "worker"), of_machine))
        for (node, slot), worker_rows in _groups(workers, ("node", "name"), ("cores", "package", "package_by")):
            rows = list(worker_rows)
            key = node, int(slot)
            self.workers[key] = _curve((t_ns, since_ns, used) for t_ns, since_ns, used, *_ in rows)
            self._places[key] = {
                where: _curve(
                    (t_ns, since_ns, used if tuple(at) == where else 0.0) for t_ns, since_ns, used, *at in rows
                )
                for where in {tuple(at) for _, _, _, *at in rows}
            }
        busy = executor.filter(pc.is_in(executor["node"], pa.array(machine.nodes)))
        self.executors: dict[Worker, dict[str, Curve]] = {}
        for (node, slot, name), busy_rows in _groups(busy, ("node", "worker", "executor"), ("busy_ns",)):
            self.executors.setdefault((node, slot), {})[name] = curve_of_differences(busy_rows)

    @property
    def is_known(self) -> bool:
        """True if cores were sampled."""
        return bool(self._cores)

    def all_ns(self, since_ns: int, t_ns: int) -> float:
        """Return the CPU time of all processes."""
        return sum(core.between(since_ns, t_ns) for cores in self._cores.values() for core in cores)

    def why_together(self, packages: Collection[int]) -> str:
        """Return why CPU time cannot be separated by these packages, or an empty string."""
        if self._of_a_namespace:
            return "the node has no cores of its own"
        if None in self._cores:
            return "the kernel does not report the package of a core"
        lacking = ", ".join(f"package {package}" for package in sorted(set(packages) - self._cores.keys()))
        return f"no core of {lacking} was sampled" if lacking else ""

    def packages_ns(self, since_ns: int, t_ns: int) -> dict[int, float]:
        """Return package -> CPU time of all processes on it."""
        return {
            package: sum(core.between(since_ns, t_ns) for core in cores)
            for package, cores in self._cores.items()
            if package is not None
        }

    def places_ns(self, worker: Worker, since_ns: int, t_ns: int) -> dict[int | None, float]:
        """Return package -> CPU time of a worker there; None -> CPU time on an unknown package."""
        by_package: dict[int | None, float] = {}
        for (package, _), curve in self._places[worker].items():
            at = package if package in self._cores else None
            by_package[at] = by_package.get(at, 0.0) + curve.between(since_ns, t_ns)
        return by_package

    def known_by(self, since_ns: int, t_ns: int) -> dict[str, float]:
        """Return source of the workers' packages -> share of their CPU time; empty without CPU time."""
        cpu_ns = dict.fromkeys([*ON_PACKAGE, TOGETHER], 0.0)
        for places in self._places.values():
            for (package, by), curve in places.items():
                cpu_ns[by if by and package in self._cores else TOGETHER] += curve.between(since_ns, t_ns)
        whole = sum(cpu_ns.values())
        return {by: ns / whole for by, ns in cpu_ns.items()} if whole else {}

    def work(self, worker: Worker, since_ns: int, t_ns: int) -> WorkerCpu:
        """Return the CPU time of a worker and the busy time of its executors."""
        executors = self.executors.get(worker, {})
        busy = {name: curve.between(since_ns, t_ns) for name, curve in executors.items()}
        return WorkerCpu(self.workers[worker].between(since_ns, t_ns), busy)


def _curve(rows: Iterable[tuple[int, int, float]]) -> Curve:
    """Return the curve of CPU time for rows (time, begin of the time covered, cores in use)."""
    return curve_of_differences((t_ns, since_ns, cores * (t_ns - since_ns)) for t_ns, since_ns, cores in rows)


def _only(table: pa.Table, **values: str) -> pa.Table:
    for column, value in values.items():
        table = table.filter(pc.equal(table[column], value))
    return table


def _groups(
    table: pa.Table, keys: Sequence[str], values: Sequence[str]
) -> Iterator[tuple[tuple[Any, ...], Iterator[tuple[Any, ...]]]]:
    """Yield each subject's key and its rows (t_ns, since_ns, values) in order of time."""
    for subject in table.group_by(keys).aggregate([]).to_pylist():
        rows = table
        for column in keys:
            same = pc.is_null(rows[column]) if subject[column] is None else pc.equal(rows[column], subject[column])
            rows = rows.filter(same)
        rows = rows.sort_by("t_ns")
        columns = (rows[column].to_pylist() for column in ("t_ns", "since_ns", *values))
        yield tuple(subject[column] for column in keys), zip(*columns, strict=True)


WITHIN = "intra_worker"


class CpuPoints(NamedTuple):
    """CPU points.

    Attributes:
        busy: executor -> its thread's.
        load: executor -> the same and its share of the transport.
        nodes: node -> all of the node.
    """

    busy: dict[str, float]
    load: dict[str, float]
    nodes: dict[str, float]


def read_loads(traces: Path, interval: Intervals, channels: pa.Table) -> CpuPoints | None:
    """Return the loads in an interval; None without the sensor `cpu`.

    Args:
        traces: folder of `<table>.parquet`.
        interval: the interval in every node's clock.
        channels: table `channel`, with the column `weight_per_s` of the interval.
    """
    cpu = read_table(traces, "cpu", "scope", "name", "cores", "shared", "package", "package_by")
    curves = node_curves(cpu)
    if not curves:
        return None
    # The rows of all nodes are read as those of one machine: only workers and executors are taken from it.
    executor = read_table(traces, "executor", "executor", "busy_ns")
    times = CpuTimes(Machine(tuple(curves), is_this_host=True), cpu, executor)
    remote = _remote(channels, _slots(weighted(executor, interval)))
    loads = CpuPoints({}, {}, {})
    for node, curve in curves.items():
        start_ns, end_ns = interval.of(node, -1)
        # A node has no rows before its second sample, and none after its last.
        start_ns, end_ns = max(start_ns, curve.span[0]), min(end_ns, curve.span[1])
        if end_ns <= start_ns:
            continue
        to_points = POINTS / (end_ns - start_ns)
        loads.nodes[node] = curve.between(start_ns, end_ns) * to_points
        for worker in times.workers:
            if worker[0] != node:
                continue
            work = times.work(worker, start_ns, end_ns)
            busy = {name: used * to_points for name, used in work.busy_ns.items()}
            load = with_transport(work.cpu_ns * to_points, busy, remote.get(worker, {}))
            for name in busy:
                loads.busy[name] = loads.busy.get(name, 0.0) + busy[name]
                loads.load[name] = loads.load.get(name, 0.0) + load[name]
    return loads


def _slots(rows: pa.Table) -> dict[tuple[str, str], int]:
    """Return (node, executor) -> the last slot of that node in which it ran; `rows` have weights."""
    inside = rows.filter(pc.greater(rows["weight"], 0)).sort_by("t_ns")
    last_rows = inside.group_by(["node", "executor"], use_threads=False).aggregate([("worker", "last")]).to_pylist()
    return {(row["node"], row["executor"]): row["worker_last"] for row in last_rows}


def _remote(channels: pa.Table, slots: Mapping[tuple[str, str], int]) -> dict[Worker, dict[str, float]]:
    """Return worker -> executor -> tuples per second that it exchanged with other workers."""
    exchanged: dict[Worker, dict[str, float]] = {}

    def add(worker: Worker, executor: str, rate: float) -> None:
        rates = exchanged.setdefault(worker, {})
        rates[executor] = rates.get(executor, 0.0) + rate

    keys = ["node", "worker", "source", "target", "target_node"]
    summed = channels.append_column("rate", amounts(channels, "tuples")).filter(pc.not_equal(channels["hop"], WITHIN))
    for row in summed.group_by(keys).aggregate([("rate", "sum")]).to_pylist():
        add((row["node"], row["worker"]), row["source"], row["rate_sum"])
        slot = slots.get((row["target_node"], row["target"]))
        if slot is not None:
            add((row["target_node"], slot), row["target"], row["rate_sum"])
    return exchanged
