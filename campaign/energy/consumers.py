"""Who used a machine's energy: its domains, second by second, divided among executors, transport, the rest and idle."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from agents.power.attribution import Work, attribute
from agents.power.curve import Curve
from agents.trace import AGENT
from campaign.energy.curves import curve_of_differences, steps
from campaign.energy.machines import Machine, Metered
from workloads.rates import NS

CLAMPED = "clamped"
"""Flag of a step in which a domain drew less than when idle, or more CPU time was used than there was."""

Worker = tuple[str, int]
"""Node and slot."""

Reading = tuple[int, float]
"""A moment in nanoseconds, and what was read then."""


class Part(NamedTuple):
    """A row of the table `energy`: columns from `node` on."""

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


class CpuTimes:
    """CPU time of everything that ran on a machine, as curves over its clock."""

    def __init__(self, machine: Machine, cpu: pa.Table, executor: pa.Table) -> None:
        """Read the tables `cpu` and `executor`."""
        looks = {node: _times(cpu, node, "agent") for node in machine.nodes}
        cores = _only(cpu, node=machine.metered, scope="core")
        self.moments = pc.unique(cores["t_ns"]).to_pylist()
        self._cores = [_rates(each) for _, each in _groups(cores, "name", "cores")]
        workers = cpu.filter(pc.and_(pc.equal(cpu["scope"], "worker"), pc.is_in(cpu["node"], pa.array(machine.nodes))))
        self.workers: dict[Worker, Curve] = {
            (node, int(slot)): _rates(each, looks[node])
            for (node, slot), each in _groups(workers, "node", "name", "cores")
        }
        busy = executor.filter(pc.is_in(executor["node"], pa.array(machine.nodes)))
        self.executors: dict[Worker, dict[str, Curve]] = {}
        for (node, slot, name), each in _groups(busy, "node", "worker", "executor", "busy_ns"):
            curve = curve_of_differences((t_ns, None, float(busy_ns)) for t_ns, busy_ns in each)
            self.executors.setdefault((node, slot), {})[name] = curve

    @property
    def is_known(self) -> bool:
        """Whether cores were sampled at all."""
        return bool(self._cores)

    def all_ns(self, since_ns: int, t_ns: int) -> float:
        """CPU time of everything."""
        return sum(core.between(since_ns, t_ns) for core in self._cores)

    def work(self, worker: Worker, since_ns: int, t_ns: int) -> Work:
        """What a worker did."""
        executors = self.executors.get(worker, {})
        busy = {name: curve.between(since_ns, t_ns) for name, curve in executors.items()}
        return Work(self.workers[worker].between(since_ns, t_ns), busy)


def divide(
    machine: Machine,
    domains: Sequence[Metered],
    idle_watts: Mapping[str, float],
    times: CpuTimes,
    start_ns: int,
    end_ns: int,
) -> Iterator[Part]:
    """All parts of the energy of these domains, which are known; a consumer that did nothing in a step has none.

    Args:
        machine: whose.
        domains: the terms of its total.
        idle_watts: domain -> what it draws without work.
        times: who ran.
        start_ns, end_ns: the measured interval in its time.
    """
    workers = sorted(times.workers)
    for since_ns, t_ns in steps(start_ns, end_ns, times.moments):
        work = [times.work(worker, since_ns, t_ns) for worker in workers]
        all_ns = times.all_ns(since_ns, t_ns)
        for each in domains:
            joules = each.curve.between(since_ns, t_ns)
            parts = attribute(joules, idle_watts[each.domain.name] * (t_ns - since_ns) / NS, all_ns, work)
            flags = ",".join([CLAMPED] * parts.clamped + list(each.domain.flags))
            what = (t_ns, since_ns, each.domain.name, each.domain.source)
            for (node, slot), done, share in zip(workers, work, parts.workers, strict=True):
                for name, used in share.executors.items():
                    if done.busy_ns[name]:
                        yield Part(node, slot, *what, "executor", name, round(done.busy_ns[name]), used, flags)
                outside_ns = max(0, round(done.cpu_ns - sum(done.busy_ns.values())))
                if outside_ns or share.transport:
                    yield Part(node, slot, *what, "transport", "", outside_ns, share.transport, flags)
            rest_ns = max(0, round(all_ns - sum(done.cpu_ns for done in work)))
            yield Part(machine.metered, AGENT, *what, "rest", "", rest_ns, parts.rest, flags)
            yield Part(machine.metered, AGENT, *what, "idle", "", None, parts.idle, flags)


def _rates(rows: Iterable[Reading], looks: Sequence[int] = ()) -> Curve:
    """From rows of cores used since the row before.

    Args:
        rows: of one subject.
        looks: when the node was looked at. The first look at a process gives no row, so that its next row tells of the
            time since that look, however long ago another process had the same name.
    """
    at = 0
    last_ns: int | None = None
    points: list[tuple[int, int | None, float]] = []
    for t_ns, cores in rows:
        while at < len(looks) and looks[at] < t_ns:
            at += 1
        known = [moment for moment in (looks[at - 1] if at else None, last_ns) if moment is not None]
        since_ns = max(known, default=t_ns - NS)
        points.append((t_ns, since_ns, cores * (t_ns - since_ns)))
        last_ns = t_ns
    return curve_of_differences(points)


def _only(table: pa.Table, **values: str) -> pa.Table:
    for column, value in values.items():
        table = table.filter(pc.equal(table[column], value))
    return table


def _times(cpu: pa.Table, node: str, scope: str) -> list[int]:
    times: list[int] = _only(cpu, node=node, scope=scope)["t_ns"].sort().to_pylist()
    return times


def _groups(table: pa.Table, *columns: str) -> Iterator[tuple[Any, Iterator[Reading]]]:
    """Rows of each subject in order of time: its key, which all columns but the last make, and (t_ns, last column)."""
    *keys, value = columns
    for found in table.group_by(keys).aggregate([]).to_pylist():
        rows = table
        for column in keys:
            rows = rows.filter(pc.equal(rows[column], found[column]))
        rows = rows.sort_by("t_ns")
        key = tuple(found[column] for column in keys)
        yield key if len(key) > 1 else key[0], zip(rows["t_ns"].to_pylist(), rows[value].to_pylist(), strict=True)
