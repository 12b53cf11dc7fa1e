"""The metrics that a worker reports once a second: rows of its trace tables, and a message for the live display."""

from collections import Counter
from itertools import chain
from weakref import WeakKeyDictionary

from agents.protocol import Progress, Sent, Work
from agents.trace import TraceWriter
from agents.worker.channels.channel import Outgoing
from agents.worker.channels.remote import RemoteOutgoing
from agents.worker.executors.bolt import BoltExecutor
from agents.worker.executors.latency import percentile
from agents.worker.executors.spout import SpoutExecutor
from agents.worker.task_graph.epoch import EpochTasks
from agents.worker.task_graph.plan import hop


class MetricsReporter:
    """Converts running totals to rows of differences."""

    def __init__(self, tasks: EpochTasks, traces: TraceWriter, slot: int) -> None:
        self._tasks, self._traces, self._slot = tasks, traces, slot
        self._last: dict[str, tuple[int, int, int, int, int]] = {}
        # By channel end: after a move, the next end of the same channel starts at zero.
        self._last_channel: WeakKeyDictionary[Outgoing, tuple[int, int, int]] = WeakKeyDictionary()
        self._sent: dict[tuple[str, str], Sent] = {}
        self._rejected: Counter[str] = Counter()
        # By number of the sender: the fraction of the rows emitted last that are not replays.
        self._fresh: dict[int, float] = {}
        self._emitted = self._sunk = 0

    def report(self, now_ns: int) -> Progress:
        """Write one row per executor, busy channel and latency bucket; return the message for the live display."""
        shown: dict[str, Work] = {}
        latencies: list[tuple[int, int]] = []
        registry = self._tasks.registry
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
                        self._traces.add("latency", now_ns, name, value, count)
            elif isinstance(running, SpoutExecutor):
                running.note_due(now_ns)
            total = (meter.emitted, meter.processed, meter.busy_ns, meter.blocked_ns, meter.replayed)
            before = self._last.get(name, (0, 0, 0, 0, 0))
            self._last[name] = total
            rows_out, rows_in, busy, blocked, replayed = (a - b for a, b in zip(total, before, strict=True))
            if rows_out or replayed:
                self._fresh[running.number] = rows_out / (rows_out + replayed)
            # The work that an executor did here before it moved away still counts.
            self._emitted += rows_out if role == "spout" else 0
            self._sunk += rows_in if role == "sink" else 0
            component = running.executor.component
            source = (meter.late_ns, meter.due, replayed) if role == "spout" else (None, None, None)
            self._traces.add("throughput", now_ns, name, component, role, rows_out, rows_in, *source)
            self._traces.add("executor", now_ns, name, busy, blocked, queued)
            bolt = role != "spout"
            shown[name] = Work(
                emitted,
                processed if bolt else None,
                queued if bolt else None,
                meter.busy_ns,
                meter.blocked_ns,
                meter.late_ns,
                running.position if isinstance(running, SpoutExecutor) else None,
            )
        for running in registry.departed:
            # It may come back, with totals that start at zero.
            del self._last[running.executor.name]
        registry.departed.clear()
        self._channels(now_ns)
        return Progress(
            epoch=self._tasks.epoch,
            slot=self._slot,
            at_ns=now_ns,
            emitted=self._emitted,
            sunk=self._sunk,
            latency_p50_ns=percentile(sorted(latencies), 0.5),
            executors=shown,
            sent=tuple(self._sent.values()),
        )

    def _channels(self, now_ns: int) -> None:
        plan = self._tasks.plan
        registry = self._tasks.registry
        for channel in chain(registry.senders, registry.dropped):
            total = (channel.tuples, channel.batches, channel.nbytes if isinstance(channel, RemoteOutgoing) else 0)
            before = self._last_channel.get(channel, (0, 0, 0))
            if total == before:
                continue
            self._last_channel[channel] = total
            tuples, batches, nbytes = (a - b for a, b in zip(total, before, strict=True))
            sender, receiver, stream = channel.id
            # During a move the plan does not contain the new workers yet.
            other = self._tasks.place_of(channel.peer)
            kind, node = hop(self._tasks.place_of(self._tasks.me), other), other.node
            self._count(kind, node, tuples, None if kind == "intra_worker" else nbytes)
            # Replays are not counted per channel, only per sender and second.
            fresh = self._fresh.get(sender, 1.0)
            tuples, batches, nbytes = (round(each * fresh) for each in (tuples, batches, nbytes))
            self._traces.add(
                "channel",
                now_ns,
                plan.executors[sender].name,
                plan.executors[receiver].name,
                plan.streams[stream][1],
                kind,
                node,
                tuples,
                batches,
                None if kind == "intra_worker" else nbytes,
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
