"""What a worker writes down once a second: rows of its trace tables, and a line for the live display."""

from collections.abc import Mapping

from agents.protocol import Progress, Sent, Work
from agents.trace import TraceWriter
from agents.worker.assembly import Assembly, ChannelKey
from agents.worker.channel import RemoteOutgoing
from agents.worker.executor import BoltExecutor, SpoutExecutor
from agents.worker.latency import percentile
from agents.worker.plan import RunPlan


class Reporter:
    """Turns running totals into rows of differences."""

    def __init__(self, plan: RunPlan, assembly: Assembly, traces: TraceWriter, slot: int) -> None:
        self._plan, self._assembly, self._traces, self._slot = plan, assembly, traces, slot
        self._last: dict[str, tuple[int, int, int, int]] = {}
        self._last_channel: dict[ChannelKey, tuple[int, int, int]] = {}
        self._sent: dict[tuple[str, str], Sent] = {}

    def report(self, now_ns: int) -> Progress:
        """Write one row per executor, busy channel and latency bucket; return the line for the display."""
        emitted = sunk = 0
        shown: dict[str, Work] = {}
        latencies: list[tuple[int, int]] = []
        for running in self._assembly.executors:
            name, meter = running.executor.name, running.meter
            queued = 0
            role = "spout"
            if isinstance(running, BoltExecutor):
                queued = running.queued
                role = "bolt" if running.latency is None else "sink"
                if running.latency is not None:
                    sunk += meter.processed
                    taken = running.latency.take()
                    latencies += taken
                    for value, count in taken:
                        self._traces.add("latency", now_ns, name, value, count)
            elif isinstance(running, SpoutExecutor):
                emitted += meter.emitted
            total = (meter.emitted, meter.processed, meter.busy_ns, meter.blocked_ns)
            before = self._last.get(name, (0, 0, 0, 0))
            self._last[name] = total
            rows_out, rows_in, busy, blocked = (a - b for a, b in zip(total, before, strict=True))
            component = running.executor.component
            self._traces.add("throughput", now_ns, name, component, role, rows_out, rows_in, meter.late_ns, None, None)
            self._traces.add("executor", now_ns, name, busy, blocked, queued)
            shown[name] = Work(meter.emitted, meter.processed, queued, meter.busy_ns, meter.blocked_ns, meter.late_ns)
        self._channels(now_ns)
        return Progress(
            epoch=self._plan.spec.epoch,
            slot=self._slot,
            emitted=emitted,
            sunk=sunk,
            latency_p50_ns=percentile(sorted(latencies), 0.5),
            executors=shown,
            sent=tuple(self._sent.values()),
        )

    def _channels(self, now_ns: int) -> None:
        for key, channel in self._assembly.outgoing.items():
            total = (channel.tuples, channel.batches, channel.nbytes if isinstance(channel, RemoteOutgoing) else 0)
            before = self._last_channel.get(key, (0, 0, 0))
            if total == before:
                continue
            self._last_channel[key] = total
            tuples, batches, nbytes = (a - b for a, b in zip(total, before, strict=True))
            sender, receiver, stream = key
            hop, node = self._plan.hop(sender, receiver), self._plan.place[receiver].node
            self._count(hop, node, tuples, None if hop == "intra_worker" else nbytes)
            self._traces.add(
                "channel",
                now_ns,
                self._plan.executors[sender].name,
                self._plan.executors[receiver].name,
                self._plan.streams[stream][1],
                hop,
                node,
                tuples,
                batches,
                None if hop == "intra_worker" else nbytes,
            )

    def _count(self, hop: str, node: str, tuples: int, nbytes: int | None) -> None:
        before = self._sent.get((hop, node), Sent(hop, node, 0, None if nbytes is None else 0))
        total = None if nbytes is None else nbytes + (before.nbytes or 0)
        self._sent[hop, node] = Sent(hop, node, before.tuples + tuples, total)

    def refused(self, now_ns: int, reasons: Mapping[str, int]) -> None:
        """Write down which connections were turned away, and why."""
        for reason, count in sorted(reasons.items()):
            self._traces.add("event", now_ns, "refused_connection", f"worker {self._slot}", reason, float(count))
