"""A bolt executor: its input, its turns, its latencies.

It gets a turn when it has input and none of its channels is blocked; a turn processes one batch, with the ticks inside
it, or one marker, to completion. A sampled row is processed separately from its neighbours, so that the rows derived
from it inherit its stamp. In a sink no rows are derived: a batch is processed whole, and the latency ends when the
batch is done.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from agents.protocol import Worked
from agents.worker.channels.channel import Barrier, Delivery, End, Mark, Tick
from agents.worker.channels.groupings import Router
from agents.worker.channels.input_gate import InputGate
from agents.worker.executors.executor import Histogram, RunningExecutor, Snapshot, operator_error, replays
from agents.worker.wire.frame import Stamps
from workloads.columns import ColumnBolt, Columns, joined_rows
from workloads.operators import Batch, Bolt, Emitted, Row
from workloads.topology import Executor


class BoltExecutor(RunningExecutor):
    """An executor of a bolt; a bolt without subscribers is a sink and records latencies.

    Attributes:
        idle: whether no record can reach it; it has then ended from the start.
        worked: rows emitted and processed since the sources' start, as part of the state.
        seen: rows known to be emitted and processed before a recovery; up to these counts, work is a replay.
    """

    def __init__(self, number: int, executor: Executor, bolt: Bolt, router: Router, inputs: InputGate) -> None:
        super().__init__(number, executor, bolt, router)
        self.bolt = bolt
        self.inputs = inputs
        self.worked = self.seen = Worked()
        self.idle = not inputs.channels
        self.latency = None if self.idle or router.channels else Histogram()
        if self.idle:
            self._end()

    @property
    def queued(self) -> int:
        """Rows in the input queue."""
        return self.inputs.rows

    @property
    def ready(self) -> bool:
        """True if a turn would process anything."""
        return bool(self.inputs) and self.live and not self.router.blocked

    def turn(self, now_ns: int) -> bool:
        if not self.inputs or not self.live:
            self.meter.free(now_ns)
            return False
        if self.router.blocked:
            self.meter.blocked(now_ns)
            return False
        self.meter.free(now_ns)
        entry = self.inputs.take(self._takes_ticks)
        if entry is None:
            return False
        started = time.thread_time_ns()
        try:
            self._handle(entry)
            if self.inputs.has_parts:
                self._handle_parts()
        except Exception as fault:
            raise operator_error(self.executor.name, self.operator, fault) from fault
        self.meter.busy_ns += time.thread_time_ns() - started
        return True

    def _handle(self, entry: Delivery | Mark) -> None:
        if isinstance(entry, Delivery):
            self._process(entry)
        else:
            self._handle_mark(entry)

    def _handle_parts(self) -> None:
        """Go on with a batch that has ticks inside, and send these as they came, inside batches."""
        entry: Delivery | Mark | None = None
        while self.inputs.has_parts and not self.router.blocked and not isinstance(entry, Barrier | End):
            entry = self.inputs.take()
            if entry is None:
                break
            self._handle(entry)
        if self.router.takes_ticks:
            self.router.flush()

    @property
    def _takes_ticks(self) -> bool:
        """True if a batch may have ticks inside."""
        return False

    def snapshot(self) -> Snapshot:
        return Snapshot(self.operator_state(), worked=self.worked)

    def restore(self, snapshot: Snapshot) -> None:
        with self.guarded():
            self.state.restore(snapshot.operator)
        self.worked = snapshot.worked

    def _process(self, delivery: Delivery) -> None:
        channel, rows, stamps, nbytes, _ = delivery
        if isinstance(rows, Columns) and not isinstance(self.bolt, ColumnBolt):
            rows = rows.to_rows()
            delivery = Delivery(channel, rows, stamps, nbytes)
        if stamps and self.latency is None:
            emitted = self._process_sampled(delivery)
        else:
            emitted = self._emit(self._apply(channel.source, channel.stream, rows))
            # Replayed rows have arrived before.
            if stamps and self.latency is not None and self.worked.processed >= self.seen.processed:
                self.latency.record_all(time.monotonic_ns() - self.ahead_ns, stamps)
        self._count(emitted, len(rows))
        channel.consumed(len(rows), nbytes)

    def _count(self, emitted: int, processed: int = 0) -> None:
        before, seen, meter = self.worked, self.seen, self.meter
        replayed = replays(before.emitted, emitted, seen.emitted)
        meter.replayed += replayed
        meter.emitted += emitted - replayed
        meter.processed += processed - replays(before.processed, processed, seen.processed)
        self.worked = Worked(before.emitted + emitted, before.processed + processed)

    def _process_sampled(self, delivery: Delivery) -> int:
        """Process sampled rows separately, emit all rows derived from the batch at once, and return their number."""
        channel = delivery.channel
        emitted: defaultdict[str, list[Row] | Columns] = defaultdict(list)
        stamps: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for piece, stamp in _pieces(delivery.rows, delivery.stamps):
            for stream, rows in self._apply(channel.source, channel.stream, piece).items():
                so_far = emitted[stream]
                if stamp is not None:
                    first = len(so_far)
                    stamps[stream] += [(first + at, stamp) for at in range(len(rows))]
                if isinstance(so_far, Columns) or isinstance(rows, Columns):
                    emitted[stream] = joined_rows(so_far, rows)
                else:
                    so_far += rows
        return self._emit(emitted, stamps)

    def _emit(self, emitted: Emitted, stamps: Mapping[str, Stamps] = MappingProxyType({})) -> int:
        """Send what the operator has emitted for a batch; return the number of rows."""
        return self.router.emit(emitted, stamps)

    def _apply(self, source: str, stream: str, rows: Sequence[Row]) -> Emitted:
        """Let the operator process a batch."""
        return self.bolt.process(Batch(source, stream, rows))

    def _at_tick(self, time_ns: int) -> Emitted:
        """Let the operator handle a tick."""
        self.bolt.stream_ns = time_ns
        return self.bolt.on_tick(time_ns)

    def _at_end(self) -> Emitted:
        """Let the operator handle the end of its input."""
        return self.bolt.on_end()

    def _handle_mark(self, mark: Mark) -> None:
        match mark:
            case Tick(time_ns=time_ns, due_ns=due_ns):
                self._emit_at_tick(self._at_tick(time_ns), due_ns)
                if self.inputs.has_parts and self.router.takes_ticks:
                    self.router.mark_inside(mark)
                else:
                    self.router.mark(mark)
            case Barrier(number=number):
                self.pass_barrier(number)
            case End():
                self._count(self.router.emit(self._at_end(), {}))
                self._end()

    def _emit_at_tick(self, emitted: Emitted, due_ns: int) -> None:
        stamps = {stream: [(at, due_ns) for at in range(len(rows))] for stream, rows in emitted.items()}
        self._count(self.router.emit(emitted, stamps))

    def _end(self) -> None:
        self.ending = True
        self.router.mark(End())


def _pieces(rows: Sequence[Row], stamps: Stamps) -> Iterator[tuple[Sequence[Row], int | None]]:
    """Split rows where the stamp changes; neighbours with the same stamp stay together."""
    done = at = 0
    while at < len(stamps):
        first, stamp = stamps[at]
        stop = first + 1
        at += 1
        while at < len(stamps) and stamps[at] == (stop, stamp):
            stop += 1
            at += 1
        if first > done:
            yield rows[done:first], None
        yield rows[first:stop], stamp
        done = stop
    if done < len(rows):
        yield rows[done:], None
