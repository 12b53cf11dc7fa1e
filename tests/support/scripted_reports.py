"""Reports of workers and agents of a run with chosen rates and loads."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from observed_rounds import SKEWED_RATES, SPREAD_PLACEMENT, chain, nodes
from scripted_run import run_spec

from agents.protocol import PairSent, Progress, RunSpec, Slot, Vitals, Work
from controller.coordinator.monitor import Monitor
from controller.simulation.cluster import differing_clocks
from scheduler.online.observation import Observation
from scheduler.online.revision import Rhythm
from workloads.topology import Topology

S = 10**9

FIVE = Rhythm(window_s=5, sample_s=1)
SETTLE_S = 2.0
CLOCKS = {node: clock._replace(drift=0.0) for node, clock in differing_clocks(n.id for n in nodes(9).nodes).items()}
"""Clocks of nodes; they do not drift, so that rates are exact."""

Keep = Callable[[str, Progress | Vitals], bool]


def slot(text: str) -> Slot:
    """Parse a slot such as `n1/0`."""
    node, _, index = text.partition("/")
    return Slot(node, int(index))


@dataclass
class ScriptedReports:
    """A running chain s -> b -> k: rates per pair, and CPU points per executor, of transport per worker, and of others.

    `advance` lets time pass; `reports` yields the current reports. Numbers are totals, as workers count them.
    """

    topology: Topology = field(default_factory=chain)
    places: dict[str, str] = field(default_factory=lambda: dict(SPREAD_PLACEMENT))
    rates: Mapping[tuple[str, str], float] = field(default_factory=lambda: dict(SKEWED_RATES))
    busy: Mapping[str, float] = field(default_factory=dict)
    transport: float = 8.0
    others: float = 20.0
    watts: float | None = 30.0
    due: Mapping[str, float] = field(default_factory=dict)
    epoch: int = 1
    at_s: float = 0.0

    def __post_init__(self) -> None:
        self._pairs: dict[str, Counter[tuple[str, str]]] = {}
        self._executors: dict[str, dict[str, Counter[str]]] = {}
        self._joules = 0.0
        self._due: Counter[str] = Counter()

    @property
    def spec(self) -> RunSpec:
        """Specification of the run at its start."""
        return run_spec(self.topology, [slot(self.places[e.name]) for e in self.topology.executors], epoch=self.epoch)

    def points(self, name: str) -> float:
        """Return the CPU points of an executor."""
        return self.busy.get(name, 10.0)

    def advance(self, seconds: float) -> None:
        """Advance time, with all executors working."""
        self.at_s += seconds
        self._joules += (self.watts or 0.0) * seconds
        for name, per_s in self.due.items():
            self._due[name] += per_s * seconds  # type: ignore[assignment]
        for (sender, receiver), rate in self.rates.items():
            self._pairs.setdefault(self.places[sender], Counter())[sender, receiver] += rate * seconds  # type: ignore[assignment]
            self._work(sender)["emitted"] += rate * seconds  # type: ignore[assignment]
            self._work(receiver)["processed"] += rate * seconds  # type: ignore[assignment]
        for name in self.places:
            self._work(name)["busy_ns"] += round(self.points(name) / 100 * S * seconds)

    def _work(self, name: str) -> Counter[str]:
        return self._executors.setdefault(self.places[name], {}).setdefault(name, Counter())

    def _clock_ns(self, node: str) -> int:
        """Return the time of a node's clock; clocks of nodes differ by days."""
        return CLOCKS[node].read(round(self.at_s * S))

    def move(self, name: str, to: str) -> None:
        """Move an executor; its totals restart at 0, those of its pairs stay at the old worker."""
        self._executors.get(self.places[name], {}).pop(name, None)
        self.places[name] = to

    def progress(self, worker: str) -> Progress:
        """Return the report of a worker."""
        sinks = {e.name for e in self.topology.executors if e.component == "k"}
        works = self._executors.get(worker, {})
        number = {e.name: at for at, e in enumerate(self.topology.executors)}
        pairs = [
            PairSent(number[a], number[b], round(total), None if self.places[b] == worker else round(total) * 10)
            for (a, b), total in self._pairs.get(worker, {}).items()
        ]
        return Progress(
            epoch=self.epoch,
            slot=slot(worker).index,
            at_ns=self._clock_ns(slot(worker).node),
            emitted=0,
            sunk=sum(round(works[name]["processed"]) for name in works if name in sinks),
            latency_p50_ns=5_000_000,
            latency_p99_ns=9_000_000,
            executors={name: self._report_of(name, total) for name, total in works.items()},
            pairs=tuple(pairs),
        )

    def _report_of(self, name: str, total: Counter[str]) -> Work:
        is_spout = name.startswith("s")
        return Work(
            round(total["emitted"]),
            None if is_spout else round(total["processed"]),
            None if is_spout else 3,
            total["busy_ns"],
            0,
            2_000_000 if is_spout else None,
            round(total["emitted"]) if is_spout else None,
            round(self._due[name]) if name in self.due else None,
        )

    def vitals(self, node: str) -> Vitals:
        """Return the report of an agent."""
        workers: dict[int, float] = {}
        for name, place in self.places.items():
            if slot(place).node == node:
                workers[slot(place).index] = (
                    workers.get(slot(place).index, self.transport / 100) + self.points(name) / 100
                )
        at_ns = self._clock_ns(node)
        is_metered = self.watts is not None
        return Vitals(
            epoch=self.epoch,
            cores=sum(workers.values()) + self.others / 100,
            workers=workers,
            at_ns=at_ns,
            joules=self._joules if is_metered else None,
            joules_ns=at_ns if is_metered else None,
            source="rapl" if is_metered else None,
            hz=2.4e9,
        )

    def reports(self) -> Iterator[tuple[str, Progress | Vitals]]:
        """Yield (node, report) of every worker and of every node in use."""
        for worker in sorted(set(self.places.values())):
            yield slot(worker).node, self.progress(worker)
        for node in sorted({slot(place).node for place in self.places.values()}):
            yield node, self.vitals(node)


def everything(_node: str, _report: Progress | Vitals) -> bool:
    return True


def started(run: ScriptedReports, rhythm: Rhythm = FIVE, settle_s: float = SETTLE_S) -> Monitor:
    """Return a monitor of a run that starts."""
    monitor = Monitor(rhythm, nodes(), settle_s)
    monitor.start_epoch(run.spec, run.at_s)
    return monitor


def pass_time(monitor: Monitor, run: ScriptedReports, seconds: int, keep: Keep = everything) -> None:
    """Advance second by second, and record those reports that `keep` accepts."""
    for _ in range(seconds):
        run.advance(1.0)
        for node, report in run.reports():
            if keep(node, report):
                monitor.record(node, report, run.at_s)


def observe(monitor: Monitor, at_s: float) -> Observation:
    """Return the observation of the window that ends at `at_s`."""
    return monitor.conclude(monitor.window(at_s).observe())
