"""The metrics that a worker reports once a second: rows of its trace tables, and a message with totals."""

from collections import Counter
from itertools import chain
from typing import NamedTuple
from weakref import WeakKeyDictionary

from agents.protocol import PairSent, Progress, Sent, Work, sample_s
from agents.trace import TraceWriter
from agents.worker.channels.channel import Outgoing
from agents.worker.channels.ends import RemoteOutgoing
from agents.worker.executors.bolt import BoltExecutor
from agents.worker.executors.executor import ExecutorMeter, percentile
from agents.worker.executors.spout import SpoutExecutor
from agents.worker.task_graph.epoch import EpochTasks
from agents.worker.task_graph.plan import hop
from inventory.times import NS


class PairTotals:
    """Tuples and bytes that have left for another executor, by pair; replays count, as they are work."""

    def __init__(self, channels: int) -> None:
        """Start with nothing; `channels` is the number of channels of the whole topology."""
        self._totals: dict[tuple[int, int], tuple[int, int | None]] = {}
        # Workers report at the same intervals, and a report at any other time replaces none of those.
        self._shortest_ns = sample_s(channels) * NS - NS // 2
        self._taken_ns: int | None = None

    def add(self, sender: int, receiver: int, tuples: int, nbytes: int | None) -> None:
        """Count tuples and bytes of a channel."""
        tuples_before, nbytes_before = self._totals.get((sender, receiver), (0, None))
        total = nbytes_before if nbytes is None else nbytes + (nbytes_before or 0)
        self._totals[sender, receiver] = tuples_before + tuples, total

    def take(self, now_ns: int) -> tuple[PairSent, ...] | None:
        """Return all totals, or None if they were returned less than a sample ago."""
        if self._taken_ns is not None and now_ns - self._taken_ns < self._shortest_ns:
            return None
        self._taken_ns = now_ns
        return tuple([PairSent(*pair, *total) for pair, total in self._totals.items()])


class ExecutorTotals(NamedTuple):
    """Totals of an executor; see `agents.worker.executors.executor.ExecutorMeter`."""

    emitted: int
    processed: int
    busy_ns: int
    blocked_ns: int
    replayed: int

    def plus(self, meter: ExecutorMeter) -> "ExecutorTotals":
        """Return these totals and those of a meter together."""
        return ExecutorTotals(
            self.emitted + meter.emitted,
            self.processed + meter.processed,
            self.busy_ns + meter.busy_ns,
            self.blocked_ns + meter.blocked_ns,
            self.replayed + meter.replayed,
        )


NOTHING = ExecutorTotals(0, 0, 0, 0, 0)


class MetricsReporter:
    """Converts running totals to rows of differences.

    Attributes:
        is_quiet: whether the rows of the last report are about no work.
    """

    def __init__(self, tasks: EpochTasks, traces: TraceWriter, slot: int) -> None:
        self._tasks, self._traces, self._slot = tasks, traces, slot
        self._last: dict[str, ExecutorTotals] = {}
        # Of executors of the same name that worked here before, and that another one has taken over from here.
        self._earlier: dict[str, ExecutorTotals] = {}
        # By channel end: after a move, the next end of the same channel starts at zero.
        self._last_channel: WeakKeyDictionary[Outgoing, tuple[int, int, int]] = WeakKeyDictionary()
        self._sent: dict[tuple[str, str], Sent] = {}
        self._rejected: Counter[str] = Counter()
        # By number of the sender: the fraction of the rows emitted last that are not replays.
        self._fresh: dict[int, float] = {}
        self._emitted = self._sunk = 0
        self._reported_ns = 0
        self.is_quiet = False
        self._pairs = PairTotals(len(tasks.plan.channels)) if tasks.plan.spec.observed else None

    def report(self, now_ns: int) -> Progress:
        """Write one row per executor, busy channel and latency bucket; return the message with the totals.

        Rows and message have the time `now_ns`, or a later one if the last report does: rows behind the last report
        that arrived are left out after a recovery. Rows cover the time since the last report.
        """
        now_ns = max(now_ns, self._reported_ns + 1)
        since_ns, self._reported_ns = self._since_ns(now_ns), now_ns
        self.is_quiet = True
        shown: dict[str, Work] = {}
        latencies: list[tuple[int, int]] = []
        sources: list[int] = []
        registry = self._tasks.registry
        here = {running.executor.name for running in registry.executors}
        predecessors: dict[str, list[int]] = {}
        for running in [*registry.departed, *registry.executors]:
            name, meter = running.executor.name, running.meter
            queued = 0
            role = "spout"
            emitted, processed = meter.emitted, meter.processed
            if isinstance(running, BoltExecutor):
                queued = running.queued
                emitted, processed = running.worked
                role = "bolt" if running.latency is None else "sink"
                if running.latency is not None:
                    taken = running.latency.take()
                    latencies += taken
                    for value, count in taken:
                        self._traces.add("latency", now_ns, name, value, count, since_ns)
            elif isinstance(running, SpoutExecutor):
                running.note_due(now_ns)
            total = self._earlier.get(name, NOTHING).plus(meter)
            if name in here and registry.running.get(running.number) is not running:
                # One row has its work and that of the executor that has taken over.
                self._earlier[name] = total
                predecessors.setdefault(name, []).append(running.number)
                continue
            before = self._last.get(name, NOTHING)
            self._last[name] = total
            rows_out, rows_in, busy, blocked, replayed = (a - b for a, b in zip(total, before, strict=True))
            self.is_quiet &= not (rows_out or rows_in or replayed)
            if rows_out or replayed:
                fresh = rows_out / (rows_out + replayed)
                self._fresh |= dict.fromkeys([*predecessors.get(name, ()), running.number], fresh)
            # The work that an executor did here before it moved away still counts.
            self._emitted += rows_out if role == "spout" else 0
            self._sunk += rows_in if role == "sink" else 0
            is_source = isinstance(running, SpoutExecutor) and not running.replaced
            if is_source:
                sources.append(running.number)
            component = running.executor.component
            source = (meter.late_ns, meter.due, replayed) if role == "spout" else (None, None, None)
            self._traces.add("throughput", now_ns, name, component, role, rows_out, rows_in, *source, since_ns)
            self._traces.add("executor", now_ns, name, busy, blocked, queued, since_ns)
            bolt = role != "spout"
            shown[name] = Work(
                emitted,
                processed if bolt else None,
                queued if bolt else None,
                total.busy_ns,
                total.blocked_ns,
                meter.late_ns,
                running.position if isinstance(running, SpoutExecutor) and is_source else None,
                None if self._pairs is None else meter.due,
                running.behind(now_ns) if isinstance(running, SpoutExecutor) else None,
            )
        for running in registry.departed:
            if running.executor.name not in here:
                # It may come back, with totals that start at zero.
                self._last.pop(running.executor.name, None)
                self._earlier.pop(running.executor.name, None)
        registry.departed.clear()
        self._channels(since_ns, now_ns)
        latencies.sort()
        return Progress(
            epoch=self._tasks.epoch,
            slot=self._slot,
            at_ns=now_ns,
            emitted=self._emitted,
            sunk=self._sunk,
            latency_p50_ns=percentile(latencies, 0.5),
            latency_p99_ns=None if self._pairs is None else percentile(latencies, 0.99),
            executors=shown,
            sent=tuple(self._sent.values()),
            pairs=None if self._pairs is None else self._pairs.take(now_ns),
            sources_from=min(sources, default=0),
        )

    def _since_ns(self, now_ns: int) -> int:
        """Return the begin of the time of a report: that of the last one, but no time before the sources started."""
        begun_ns = self._reported_ns or now_ns - NS
        started_ns = self._tasks.started_ns
        return max(begun_ns, started_ns) if started_ns is not None and started_ns < now_ns else begun_ns

    def _channels(self, since_ns: int, now_ns: int) -> None:
        plan = self._tasks.plan
        registry = self._tasks.registry
        for channel in chain(registry.senders, registry.dropped):
            total = (channel.tuples, channel.batches, channel.nbytes if isinstance(channel, RemoteOutgoing) else 0)
            before = self._last_channel.get(channel, (0, 0, 0))
            if total == before:
                continue
            self._last_channel[channel] = total
            self.is_quiet = False
            tuples, batches, nbytes = (a - b for a, b in zip(total, before, strict=True))
            sender, receiver, stream = channel.id
            # During a move the plan does not contain the new workers yet.
            other = self._tasks.place_of(channel.peer)
            kind, node = hop(self._tasks.place_of(self._tasks.me), other), other.node
            self._count(kind, node, tuples, None if kind == "intra_worker" else nbytes)
            if self._pairs is not None:
                self._pairs.add(sender, receiver, tuples, None if kind == "intra_worker" else nbytes)
            # Replays are not counted per channel, only per sender and second.
            fresh = self._fresh.get(sender, 1.0)
            tuples, batches, nbytes = (round(each * fresh) for each in (tuples, batches, nbytes))
            self._traces.add(
                "channel",
                now_ns,
                self._tasks.known[sender].name,
                self._tasks.known[receiver].name,
                plan.streams[stream][1],
                kind,
                node,
                tuples,
                batches,
                None if kind == "intra_worker" else nbytes,
                since_ns,
            )
        registry.dropped.clear()

    def _count(self, kind: str, node: str, tuples: int, nbytes: int | None) -> None:
        before = self._sent.get((kind, node), Sent(kind, node, 0, None if nbytes is None else 0))
        total = None if nbytes is None else nbytes + (before.nbytes or 0)
        self._sent[kind, node] = Sent(kind, node, before.tuples + tuples, total)

    def report_rejected(self, now_ns: int, reasons: Counter[str]) -> None:
        """Write an event per reason for which connections were rejected since the last call; `reasons` are totals."""
        for reason, count in sorted((reasons - self._rejected).items()):
            self._traces.add("event", now_ns, "refused_connection", f"worker {self._slot}", reason, float(count))
        self._rejected = reasons.copy()
