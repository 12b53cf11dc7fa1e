"""A spout executor: emits what is due, stamps what is sampled, sends ticks and barriers, never shifts its schedule."""

import time
from collections.abc import Sequence

from agents.worker.channels.groupings import Router
from agents.worker.channels.markers import End, Tick
from agents.worker.executors.executor import RunningExecutor, replays
from agents.worker.executors.latency import Sampler
from agents.worker.executors.snapshot import Snapshot
from inventory.errors import RunError
from workloads.operators import Row, Spout
from workloads.source_clock import SourceClock
from workloads.topology import DEFAULT_STREAM, Executor


class SpoutExecutor(RunningExecutor):
    """A spout; its clock says when its records are due, and where they lie in stream time.

    Where every record is due at once (rate `max`), the intended time of a record is its emission.

    Attributes:
        position: records emitted.
        exhausted: whether the input has come to its end.
        next_tick: number of the next tick.
        until: position at which the input ends because it was stopped, now or before a recovery; None: not stopped yet.
        seen: position reached before a recovery; what comes up to there is a replay.
    """

    MOST_ROWS = 1024

    def __init__(
        self,
        number: int,
        executor: Executor,
        spout: Spout,
        router: Router,
        clock: SourceClock,
        seed: int,
        peak_per_s: float | None = None,
    ) -> None:
        """Wait for the start; `seed` and its highest rate, if that is known, decide which records are sampled."""
        super().__init__(number, executor, spout, router)
        self._spout = spout
        self._clock = clock
        self._sampler = Sampler(seed, peak_per_s)
        self._start_ns: int | None = None
        self._adapted = (0, 0)
        self._hold: int | None = None
        self._cut: tuple[int, int] | None = None
        self.position = self.seen = 0
        self.until: int | None = None
        self.next_tick = spout.origin_ns // spout.tick_ns + 1 if spout.tick_ns else 1
        self.exhausted = False

    def start(self, at_ns: int, seen: int = 0) -> None:
        """Source start, on this node's monotonic clock; up to position `seen` all that comes is a replay."""
        self._start_ns, self.seen = at_ns, seen
        self._adapted = (at_ns, self.position)

    def stop(self, reached: int = 0) -> None:
        """End the input: at `until` if that is known, else here, but not before what was reached before a recovery.

        Args:
            reached: the highest position of this source that is known, `seen` aside.
        """
        if self.until is None:
            self.until = max(self.position, self.seen, reached)

    def note_due(self, now_ns: int) -> None:
        """Bring `meter.due` up to now."""
        if self._start_ns is None or self.ending:
            return
        if self._clock.due_ns(self.position) is not None:
            self.meter.due = max(0, self._clock.due_count(now_ns - self._start_ns))

    # --- barriers ------------------------------------------------------------------------------------------

    def hold(self, tick: int) -> None:
        """A barrier is prepared: neither emit tick number `tick` nor end before it has come or is abandoned."""
        self._hold = tick

    def cut(self, barrier: int, tick: int) -> None:
        """Emit the barrier before tick number `tick`; at once when it has ended."""
        self._hold = None
        if self.ending:
            self.on_barrier(self, barrier)
        else:
            self._cut = barrier, tick

    def release(self) -> None:
        """The prepared barrier does not come."""
        self._hold = self._cut = None

    # --- turns ---------------------------------------------------------------------------------------------

    @property
    def next_ns(self) -> int | None:
        """When the next record or tick is due; None before the start is known, after the end, or when others decide."""
        if self._start_ns is None or self.ending or self.router.blocked:
            return None
        if self._cut is not None and (self._over or self.next_tick >= self._cut[1]):
            return self._start_ns
        if self._over:
            return self._start_ns if self._hold is None else None
        due = self._clock.due_ns(self.position)
        if self._tick_waits():
            if self._held:
                return None
            if self._tick_is_certain:
                due = self._clock.tick_due_ns(self._tick_ns)
        return self._start_ns if due is None else self._start_ns + due

    def turn(self, now_ns: int) -> bool:
        if self.ending or not self.live:
            return False
        if self._start_ns is None or now_ns < self._start_ns:
            return self._over and self._finish()
        if self.router.blocked:
            self.meter.blocked(now_ns)
            return False
        self.meter.free(now_ns)
        if self._cut is not None and (self._over or self.next_tick >= self._cut[1]):
            return self._pass(*self._cut)
        if self._over:
            return self._finish()
        if self._tick_waits():
            if self._held:
                return False
            if self._tick_is_certain:
                return self._tick(now_ns - self._start_ns)
        rows = self._due_rows(now_ns - self._start_ns)
        return rows > 0 and self._take(rows, now_ns)

    def _pass(self, barrier: int, tick: int) -> bool:
        """Send the barrier, behind the last tick when that one comes before it."""
        if self.next_tick < tick and self._is_first_behind_a_record:
            self._send_tick()
        else:
            self._cut = None
            self.pass_barrier(barrier)
        return True

    def snapshot(self) -> Snapshot:
        return Snapshot(self.operator_state(), self.position, self.next_tick)

    def restore(self, snapshot: Snapshot) -> None:
        with self.guarded():
            self._spout.restore(snapshot.operator)
        self.position, self.next_tick = snapshot.position, snapshot.next_tick
        self._sampler.skip(self.position)

    @property
    def _over(self) -> bool:
        return self.exhausted or (self.until is not None and self.position >= self.until)

    def _finish(self) -> bool:
        """End the input, unless a prepared barrier has to come first; return whether it ended."""
        if self.ending or self._hold is not None or self._cut is not None:
            return False
        if self._is_first_behind_a_record:
            self._send_tick()
        self.ending = True
        self.router.mark(End())
        return True

    def _due_rows(self, elapsed_ns: int) -> int:
        rows = min(self.MOST_ROWS, self._clock.due_count(elapsed_ns) - self.position)
        if self._spout.tick_ns and rows > 0:
            # A record that lies behind the tick comes alone, with all ticks before it.
            rows = min(rows, max(1, self._clock.stream_count(self._tick_ns) - self.position))
        return rows if self.until is None else min(rows, self.until - self.position)

    def _take(self, due: int, now_ns: int) -> bool:
        started = time.thread_time_ns()
        try:
            rows = self._spout.next_batch(due)
            if len(rows) > due:
                raise RunError(f"next_batch gave {len(rows)} rows, the limit was {due}")
            while rows and self._tick_waits():
                self._send_tick()
            self._emit(rows, now_ns)
        except Exception as fault:
            raise self._fault(fault) from fault
        self.meter.busy_ns += time.thread_time_ns() - started
        if not rows:
            self.exhausted = True
            self._finish()
        return True

    def _emit(self, rows: Sequence[Row], now_ns: int) -> None:
        first = self.position
        stamps: list[tuple[int, int]] = []
        for record in self._sampler.sampled(first, len(rows)):
            due = self._clock.due_ns(record)
            due_ns = now_ns if due is None else self._since_start(due)
            stamps.append((record - first, due_ns - self.ahead_ns))
        self.router.emit({DEFAULT_STREAM: rows}, {DEFAULT_STREAM: stamps})
        self.position += len(rows)
        replayed = replays(first, len(rows), self.seen)
        self.meter.replayed += replayed
        self.meter.emitted += len(rows) - replayed
        # What comes again left in time before.
        last_due = self._clock.due_ns(self.position - 1) if replayed < len(rows) else None
        if last_due is not None:
            self.meter.late_ns = max(0, now_ns - self._since_start(last_due))
        self._adapt(now_ns)

    def _adapt(self, now_ns: int) -> None:
        since_ns, position = self._adapted
        if now_ns - since_ns >= 1_000_000_000:
            self._sampler.adapt((self.position - position) * 1e9 / (now_ns - since_ns))
            self._adapted = (now_ns, self.position)

    def _since_start(self, elapsed_ns: int) -> int:
        if self._start_ns is None:
            raise RunError(f"{self.executor.name} was asked for a due time before its start")
        return self._start_ns + elapsed_ns

    # --- ticks ---------------------------------------------------------------------------------------------

    @property
    def _tick_ns(self) -> int:
        """Stream time of the next tick."""
        return self.next_tick * self._spout.tick_ns

    @property
    def _held(self) -> bool:
        """Whether a waiting tick, or the last of those that come with their record, has to wait for a barrier."""
        if self._hold is None:
            return False
        time_ns = None if self._tick_is_certain else self._clock.stream_ns(self.position)
        return (self.next_tick if time_ns is None else time_ns // self._spout.tick_ns) >= self._hold

    def _tick_waits(self) -> bool:
        """Whether the next thing to emit is a tick: if a record follows, it lies behind the tick."""
        if not self._spout.tick_ns:
            return False
        time_ns = self._clock.stream_ns(self.position)
        return time_ns is not None and time_ns >= self._tick_ns

    @property
    def _tick_is_certain(self) -> bool:
        """Whether the next tick comes even if no record does.

        Which ticks there are is decided by the records alone, wherever the input is stopped: there is one behind the
        last record, and others come together with the record behind them. Only before a barrier that other sources
        have put behind a tick, that tick has to come in any case.
        """
        if self._cut is not None and self.next_tick < self._cut[1]:
            return True
        return self._is_first_behind_a_record

    @property
    def _is_first_behind_a_record(self) -> bool:
        if not self._spout.tick_ns or not self.position:
            return False
        last_ns = self._clock.stream_ns(self.position - 1)
        return last_ns is not None and last_ns >= self._tick_ns - self._spout.tick_ns

    def _tick(self, elapsed_ns: int) -> bool:
        """Emit the next tick when it is due."""
        due = self._clock.tick_due_ns(self._tick_ns)
        if due is not None and due > elapsed_ns:
            return False
        self._send_tick()
        return True

    def _send_tick(self) -> None:
        due = self._clock.tick_due_ns(self._tick_ns)
        now_ns = time.monotonic_ns()
        # What had been stopped before a recovery may end before it has started again.
        due_ns = now_ns if due is None or self._start_ns is None else min(now_ns, self._start_ns + due)
        self.router.mark(Tick(self.next_tick, self._tick_ns, due_ns - self.ahead_ns))
        self.next_tick += 1
