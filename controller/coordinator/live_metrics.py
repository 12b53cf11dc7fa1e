"""Current rates of a topology, from the totals that workers report once a second.

A rate covers the time between the last two reports of a worker. The rates of a worker that stops reporting become None.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec import Struct, field

from agents.protocol import Progress, Report, Slot, Vitals, Work
from analysis.measure.backlog import BacklogStage, rows_left
from analysis.records.interval_metrics import Draining
from inventory.foreign import printable
from inventory.times import NS
from workloads.topology import Executor

SILENT_S = 5.0
"""Time without a report after which a worker's or node's figures are unknown; reports are due every second."""

SHORTEST_NS = NS // 2
"""Shortest interval for a rate; a mark causes an extra report, which may follow the last one at once."""


class LiveSample(NamedTuple):
    """Tuples per second into the sinks, and their median latency."""

    tuples_per_s: float | None
    latency_p50_ms: float | None


class ExecutorFlow(Struct, frozen=True):
    """Slot and current activity of one executor.

    Attributes:
        in_per_s, out_per_s: tuples processed and emitted per second; `in_per_s` is None for spouts.
        queued: tuples in its input queue.
        busy: CPU time per second of wall time, in cores.
        blocked: share of time with work but without credit.
        late_s: for a spout with a schedule, how far behind the schedule its last record was emitted.
    """

    executor: str
    node: str
    slot: int
    in_per_s: float | None
    out_per_s: float | None
    queued: int | None
    busy: float | None
    blocked: float | None
    late_s: float | None


class HopFlow(Struct, frozen=True, kw_only=True):
    """Traffic from one node to another or to itself over one kind of hop; `bytes_per_s` is None within a worker."""

    hop: str
    source: str = field(name="from")
    target: str = field(name="to")
    tuples_per_s: float | None
    bytes_per_s: float | None


class NodeFlow(Struct, frozen=True):
    """CPU seconds per second of a node, and of its workers by slot."""

    node: str
    cpu_cores: float | None
    workers: Mapping[int, float]


class FlowDocument(Struct, frozen=True):
    """All current figures, in the form of `live.json`; `late_s` is the largest of all spouts."""

    executors: tuple[ExecutorFlow, ...]
    traffic: tuple[HopFlow, ...]
    nodes: tuple[NodeFlow, ...]
    late_s: float | None


@dataclass(frozen=True)
class _Worker:
    """Last report of a worker, its time of arrival, and the earlier report from which rates are computed."""

    received_s: float
    last: Progress
    before: Progress | None

    @property
    def seconds(self) -> float | None:
        """Time between the two reports."""
        return None if self.before is None else (self.last.at_ns - self.before.at_ns) / NS

    @property
    def processed_per_s(self) -> float | None:
        """Rows that its bolts have processed per second; None without an earlier report."""
        if self.before is None or not self.seconds:
            return None
        now, before = (sum(w.processed or 0 for w in each.executors.values()) for each in (self.last, self.before))
        return max(0, now - before) / self.seconds


class LiveMetrics:
    """Current rates and latencies; `now` is always the event loop's clock (monotonic), in seconds."""

    def __init__(self, links: Sequence[tuple[str, str]] = ()) -> None:
        """Start without reports; `links` are (sender, receiver) of the topology, by component."""
        self._links = links
        self._epoch = 0
        self._workers: dict[Slot, _Worker] = {}
        self._vitals: dict[str, tuple[float, Vitals]] = {}

    def record(self, node: str, report: Report, now: float) -> None:
        """Record a `Progress` or `Vitals` report; ignore all others."""
        match report:
            case Progress(epoch=epoch, slot=slot) if self._is_current(epoch):
                self._record_progress(Slot(node, slot), report, now)
            case Vitals(epoch=epoch) if self._is_current(epoch):
                self._vitals[node] = (now, report)

    def left(self, now: float) -> Draining:
        """Return what the topology has yet to do, by the last reports."""
        works: dict[str, Work] = {}
        for worker in sorted(self._workers.values(), key=lambda worker: worker.received_s):
            works |= worker.last.executors
        stages: dict[str, BacklogStage] = {}
        emitted: Counter[str] = Counter()
        sources = [work for work in works.values() if work.processed is None]
        at = sum(work.position or 0 for work in sources)
        behind = [work.behind for work in sources if work.behind is not None]
        for name, work in works.items():
            component = Executor.named(name).component
            is_spout = work.processed is None
            done, waiting = (work.position, work.behind) if is_spout else (work.processed, work.queued)
            before = stages.get(component, BacklogStage(0, 0))
            stages[component] = BacklogStage(before.done + (done or 0), before.waiting + (waiting or 0))
            emitted[component] += (work.position or 0) if is_spout else work.emitted
        flows = {(sender, receiver): float(emitted[sender]) for sender, receiver in self._links}
        rows = round(rows_left(stages, flows))
        rates = [worker.processed_per_s for worker in self._workers.values() if now - worker.received_s <= SILENT_S]
        known = [rate for rate in rates if rate is not None]
        per_s = round(sum(known), 1) if known else None
        return Draining(
            rows=rows,
            rows_per_s=per_s,
            seconds=round(rows / per_s, 1) if per_s else None,
            waiting={component: round(stage.waiting) for component, stage in sorted(stages.items())},
            emitted_records=at,
            due_records=at + sum(behind) if behind else None,
        )

    def sample(self, now: float) -> LiveSample:
        """Return the current rate and latency at the sinks."""
        rates: list[float] = []
        latencies: list[int] = []
        for worker in self._workers.values():
            if worker.before is not None and worker.seconds and now - worker.received_s <= SILENT_S:
                rates.append((worker.last.sunk - worker.before.sunk) / worker.seconds)
                if worker.last.latency_p50_ns is not None:
                    latencies.append(worker.last.latency_p50_ns)
        latencies.sort()
        return LiveSample(sum(rates) if rates else None, latencies[len(latencies) // 2] / 1e6 if latencies else None)

    def document(self, now: float) -> FlowDocument:
        """Return all current figures, rounded for display."""
        # Around a move two workers report on one executor; the later report counts.
        by_time = sorted(self._workers, key=lambda place: self._workers[place].received_s)
        by_name = {entry.executor: entry for place in by_time for entry in self._executors(place, now)}
        executors = tuple(sorted(by_name.values(), key=lambda entry: (entry.node, entry.slot)))
        late = [entry.late_s for entry in executors if entry.late_s is not None]
        return FlowDocument(
            executors=executors,
            traffic=self._traffic(now),
            nodes=tuple(self._node(node, now) for node in sorted(self._vitals)),
            late_s=max(late, default=None),
        )

    def _record_progress(self, place: Slot, progress: Progress, now: float) -> None:
        known = self._workers.get(place)
        before = None if known is None else known.last
        if known is not None and progress.at_ns - known.last.at_ns < SHORTEST_NS:
            before = known.before
        self._workers[place] = _Worker(now, progress, before)

    def _is_current(self, epoch: int) -> bool:
        """Return whether a report is of the current epoch; the first one of a new epoch discards all others."""
        if epoch > self._epoch:
            self._epoch = epoch
            self._workers.clear()
            self._vitals.clear()
        return epoch == self._epoch

    def _executors(self, place: Slot, now: float) -> Iterator[ExecutorFlow]:
        worker = self._workers[place]
        silent = now - worker.received_s > SILENT_S
        for name, work in worker.last.executors.items():
            before = None if silent or worker.before is None else worker.before.executors.get(name)
            out, taken, busy, blocked = _rates(before, work, worker.seconds)
            yield ExecutorFlow(
                executor=printable(name),
                node=place.node,
                slot=place.index,
                in_per_s=_rounded(taken, 1),
                out_per_s=_rounded(out, 1),
                queued=None if silent else work.queued,
                busy=_rounded(busy, 4),
                blocked=_rounded(blocked, 4),
                late_s=None if silent or work.late_ns is None else round(work.late_ns / NS, 4),
            )

    def _traffic(self, now: float) -> tuple[HopFlow, ...]:
        total: dict[tuple[str, str, str], tuple[float, float | None]] = {}
        for place, worker in self._workers.items():
            if worker.before is None or not worker.seconds or now - worker.received_s > SILENT_S:
                continue
            earlier = {(entry.hop, entry.node): entry for entry in worker.before.sent}
            for entry in worker.last.sent:
                before = earlier.get((entry.hop, entry.node))
                tuples = (entry.tuples - (before.tuples if before else 0)) / worker.seconds
                nbytes = None
                if entry.nbytes is not None:
                    nbytes = (entry.nbytes - (before.nbytes or 0 if before else 0)) / worker.seconds
                key = (entry.hop, place.node, entry.node)
                so_far = total.get(key, (0.0, None if nbytes is None else 0.0))
                total[key] = (so_far[0] + tuples, None if nbytes is None else (so_far[1] or 0.0) + nbytes)
        return tuple(
            HopFlow(
                hop=printable(hop),
                source=source,
                target=printable(target),
                tuples_per_s=round(tuples, 1),
                bytes_per_s=_rounded(nbytes, 0),
            )
            for (hop, source, target), (tuples, nbytes) in sorted(total.items())
        )

    def _node(self, node: str, now: float) -> NodeFlow:
        received_s, vitals = self._vitals[node]
        if now - received_s > SILENT_S:
            return NodeFlow(node, None, {})
        return NodeFlow(
            node, _rounded(vitals.cores, 3), {slot: round(cores, 3) for slot, cores in sorted(vitals.workers.items())}
        )


def _rates(before: Work | None, work: Work, seconds: float | None) -> tuple[float | None, ...]:
    """Return emitted tuples, processed tuples, CPU time and blocked time, each per second."""
    if before is None or not seconds:
        return (None,) * 4
    taken = None if work.processed is None or before.processed is None else work.processed - before.processed
    return (
        (work.emitted - before.emitted) / seconds,
        None if taken is None else taken / seconds,
        (work.busy_ns - before.busy_ns) / NS / seconds,
        (work.blocked_ns - before.blocked_ns) / NS / seconds,
    )


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
