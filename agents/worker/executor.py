"""One executor: an operator, its input queue, its turn, and what its turns cost.

An executor gets a turn when it has input and none of its channels is blocked; a turn is one batch to
completion. A sampled row is processed apart from its neighbours, so that what it causes downstream inherits its stamp.
"""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from traceback import extract_tb

from agents.worker.channel import Delivery
from agents.worker.frame import Stamps
from agents.worker.latency import Histogram, Sampler
from agents.worker.router import Router
from inventory.errors import MillraceError, RunError
from workloads.operators import Batch, Bolt, Operator, Row, Spout
from workloads.rates import Schedule
from workloads.topology import DEFAULT_STREAM, Executor


class Meter:
    """Totals since the start; whoever reports takes differences.

    Attributes:
        emitted, processed: rows.
        busy_ns: CPU time of the thread inside the operator and its routing.
        blocked_ns: time with work but without credit.
        late_ns: how late the last record of a spout left against its schedule; None when there is none.
    """

    def __init__(self) -> None:
        self.emitted = self.processed = 0
        self.busy_ns = self.blocked_ns = 0
        self.late_ns: int | None = None
        self._blocked_since: int | None = None

    def blocked(self, now_ns: int) -> None:
        """There is work but no credit, now."""
        if self._blocked_since is not None:
            self.blocked_ns += now_ns - self._blocked_since
        self._blocked_since = now_ns

    def free(self, now_ns: int) -> None:
        """There is credit, or no work, now."""
        if self._blocked_since is not None:
            self.blocked_ns += now_ns - self._blocked_since
            self._blocked_since = None


class Running:
    """What the loop sees of any executor."""

    def __init__(self, executor: Executor, operator: Operator, router: Router) -> None:
        self.executor = executor
        self.operator = operator
        self.router = router
        self.meter = Meter()
        self.ending = False

    @property
    def drained(self) -> bool:
        """Whether it will never emit again and all it emitted has left."""
        return self.ending and self.router.ended

    def turn(self, now_ns: int) -> bool:
        """Do one batch of work if there is any; return whether there was."""
        raise NotImplementedError

    def _fault(self, fault: Exception) -> RunError:
        if isinstance(fault, MillraceError):
            return RunError(f"{self.executor.name}: {fault}")
        place = extract_tb(fault.__traceback__)[-1]
        return RunError(
            f"{self.executor.name} failed: {type(fault).__name__}: {fault} ({place.filename}:{place.lineno})"
        )


class BoltExecutor(Running):
    """A bolt; one that nobody subscribes to is a sink and records latencies."""

    def __init__(self, executor: Executor, bolt: Bolt, router: Router, queue: deque[Delivery], inputs: int) -> None:
        super().__init__(executor, bolt, router)
        self.bolt = bolt
        self.queue = queue
        self._open_inputs = inputs
        self.latency = Histogram() if inputs and not router.channels else None
        if not inputs:
            self._end()

    @property
    def queued(self) -> int:
        """Rows in the input queue."""
        return sum(len(delivery.rows) for delivery in self.queue if delivery.rows is not None)

    def turn(self, now_ns: int) -> bool:
        if not self.queue:
            self.meter.free(now_ns)
            return False
        if self.router.blocked:
            self.meter.blocked(now_ns)
            return False
        self.meter.free(now_ns)
        channel, rows, stamps, nbytes = self.queue.popleft()
        if rows is None:
            self._open_inputs -= 1
            if not self._open_inputs:
                self._end()
            return True
        started = time.thread_time_ns()
        try:
            if stamps:
                for piece, stamp in _pieces(rows, stamps):
                    self._process(Batch(channel.source, channel.stream, piece), stamp)
            else:
                self._process(Batch(channel.source, channel.stream, rows), None)
        except Exception as fault:
            raise self._fault(fault) from fault
        self.meter.busy_ns += time.thread_time_ns() - started
        self.meter.processed += len(rows)
        channel.consumed(len(rows), nbytes)
        return True

    def _process(self, batch: Batch, stamp: int | None) -> None:
        self.meter.emitted += self.router.emit(self.bolt.process(batch), stamp)
        if stamp is not None and self.latency is not None:
            self.latency.record(time.monotonic_ns() - stamp, len(batch.rows))

    def _end(self) -> None:
        self.ending = True
        self.router.end()


class SpoutExecutor(Running):
    """A spout: emits what is due, stamps what is sampled, and never shifts its schedule.

    Record j of executor i of n is record j * n + i of the whole input; its intended time is that of the schedule.
    Without a schedule every record is due at once, and its intended time is its emission.
    """

    MOST_ROWS = 256

    def __init__(
        self, executor: Executor, spout: Spout, router: Router, of: int, schedule: Schedule | None, seed: int
    ) -> None:
        super().__init__(executor, spout, router)
        self._spout = spout
        self._of = of
        self._schedule = schedule
        self._sampler = Sampler(seed)
        self._start_ns: int | None = None
        self._adapted = (0, 0)
        self.position = 0
        self.exhausted = False

    def start(self, at_ns: int) -> None:
        """Source start, on this node's monotonic clock."""
        self._start_ns = at_ns
        self._adapted = (at_ns, 0)

    def stop(self) -> None:
        """End the input here."""
        if not self.ending:
            self.ending = True
            self.router.end()

    @property
    def next_ns(self) -> int | None:
        """When the next record is due; None before start is known, after the end, or when credit decides."""
        if self._start_ns is None or self.ending or self.router.blocked:
            return None
        return self._start_ns if self._schedule is None else self._due_ns(self.position)

    def _due_ns(self, record: int) -> int:
        if self._schedule is None or self._start_ns is None:
            raise RunError(f"{self.executor.name} was asked for a due time before its start")
        return self._start_ns + self._schedule.due_ns(record * self._of + self.executor.index)

    def _due_rows(self, now_ns: int) -> int:
        if self._schedule is None or self._start_ns is None:
            return self.MOST_ROWS
        total = self._schedule.due_count(now_ns - self._start_ns)
        mine = (total - self.executor.index + self._of - 1) // self._of
        return min(self.MOST_ROWS, mine - self.position)

    def turn(self, now_ns: int) -> bool:
        if self._start_ns is None or self.ending or now_ns < self._start_ns:
            return False
        due = self._due_rows(now_ns)
        if due <= 0:
            self.meter.free(now_ns)
            return False
        if self.router.blocked:
            self.meter.blocked(now_ns)
            return False
        self.meter.free(now_ns)
        started = time.thread_time_ns()
        try:
            rows = self._spout.next_batch(due)
            if len(rows) > due:
                raise RunError(f"next_batch gave {len(rows)} rows, the limit was {due}")
            self._emit(rows, now_ns)
        except Exception as fault:
            raise self._fault(fault) from fault
        self.meter.busy_ns += time.thread_time_ns() - started
        if not rows:
            self.exhausted = True
            self.stop()
        return True

    def _emit(self, rows: Sequence[Row], now_ns: int) -> None:
        first = self.position
        done = 0
        for record in self._sampler.sampled(first, len(rows)):
            at = record - first
            stamp = now_ns if self._schedule is None else self._due_ns(record)
            self.router.emit({DEFAULT_STREAM: rows[done:at]}, None)
            self.router.emit({DEFAULT_STREAM: rows[at : at + 1]}, stamp)
            done = at + 1
        self.router.emit({DEFAULT_STREAM: rows[done:]}, None)
        self.position += len(rows)
        self.meter.emitted += len(rows)
        if rows and self._schedule is not None:
            self.meter.late_ns = max(0, now_ns - self._due_ns(self.position - 1))
        self._adapt(now_ns)

    def _adapt(self, now_ns: int) -> None:
        since_ns, position = self._adapted
        if now_ns - since_ns >= 1_000_000_000:
            self._sampler.adapt((self.position - position) * 1e9 / (now_ns - since_ns))
            self._adapted = (now_ns, self.position)


def _pieces(rows: Sequence[Row], stamps: Stamps) -> Iterator[tuple[Sequence[Row], int | None]]:
    """Cut rows where the stamp changes; neighbours with one stamp stay together."""
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
