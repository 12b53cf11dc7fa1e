"""A spout executor: emits due records, stamps sampled ones, and sends ticks and barriers; its schedule never shifts."""

import time
from collections.abc import Sequence

from agents.protocol import Worked
from agents.worker.channels.channel import End, Tick
from agents.worker.channels.groupings import Router
from agents.worker.executors.executor import LatencySampler, RunningExecutor, Snapshot, operator_error, replays
from inventory.errors import RunError
from inventory.times import NS
from workloads.operators import Emitted, Row, Seekable, Spout
from workloads.source_clock import UNBOUNDED, SourceClock
from workloads.topology import DEFAULT_STREAM, Executor


class SpoutExecutor(RunningExecutor):
    """An executor of a spout; its clock determines the due time and the stream time of each record.

    At rate `max`, where every record is due at once, the intended time of a record is its emission.

    Attributes:
        position: records emitted.
        exhausted: whether the input has ended.
        next_tick: number of the next tick.
        until: position at which the input ends because of a stop, now or before a recovery; None: not stopped yet.
        seen: position reached before a recovery; records up to it are replays.
        replaced: whether sources of another number have taken over from it and its like.

    Positions count records of the executor's share. Where the number of sources has changed, others have emitted the
    records before the present share began.
    """

    MAX_ROWS = 1024
    TURNS = 1
    """A turn emits `TURNS` times `MAX_ROWS` rows at most."""

    def __init__(
        self,
        number: int,
        executor: Executor,
        spout: Spout,
        router: Router,
        clock: SourceClock,
        sampler: LatencySampler,
    ) -> None:
        """Wait for the start; `sampler` chooses the records whose latency is measured."""
        super().__init__(number, executor, spout, router)
        self._spout = spout
        self._clock = clock
        self._sampler = sampler
        self._start_ns: int | None = None
        self._adapted = (0, 0)
        self._hold: int | None = None
        self._halted = False
        self._cut: tuple[int, int] | None = None
        self._least = self._elsewhere = 0
        self._due_until_ns: int | None = None
        self.position = self.seen = 0
        self.until: int | None = None
        self.next_tick = spout.origin_ns // spout.tick_ns + 1 if spout.tick_ns else 1
        self.exhausted = self.replaced = False

    def start(self, at_ns: int, seen: int = 0) -> None:
        """Start the source at `at_ns` of this node's monotonic clock; records up to position `seen` are replays."""
        self._start_ns, self.seen = at_ns, seen
        self._adapted = (at_ns, self.position)

    def stop(self, due_ns: int | None = None, reached: int = 0) -> None:
        """End the input at `until` if that is set, else here, but not before what is due or was reached already.

        Args:
            due_ns: time after the start of the sources; what a schedule requires by then is still emitted. None: it
                requires nothing more.
            reached: the highest known position of this source, besides `seen`.
        """
        here = self.position if self.until is None else self.until
        self._due_until_ns = due_ns
        due = 0 if due_ns is None else self._clock.due_count(due_ns)
        self.until = max(here, self.seen, reached, due if due < UNBOUNDED else 0)

    def note_due(self, now_ns: int) -> None:
        """Update `meter.due`."""
        if self._start_ns is None or self.ending or self.replaced:
            return
        if self._clock.due_ns(self.position) is not None:
            elapsed_ns = now_ns - self._start_ns
            if self._due_until_ns is not None:
                elapsed_ns = min(elapsed_ns, self._due_until_ns)
            self.meter.due = max(0, self._clock.due_count(elapsed_ns) - self._elsewhere)

    def behind(self, now_ns: int) -> int | None:
        """Return the number of records that are due and not emitted; None without a schedule."""
        if self._start_ns is None or self.exhausted or self.replaced:
            return None
        elapsed_ns = now_ns - self._start_ns
        if self._due_until_ns is not None:
            elapsed_ns = min(elapsed_ns, self._due_until_ns)
        due = self._clock.due_count(elapsed_ns)
        return None if due == UNBOUNDED else max(0, due - self.position)

    # --- barriers ------------------------------------------------------------------------------------------

    def hold(self, tick: int, halt: bool = False) -> None:
        """Neither emit tick number `tick` nor end before the prepared barrier is sent or abandoned.

        With `halt`, emit only what precedes the barrier, and nothing after it.
        """
        self._hold, self._halted = tick, halt

    @property
    def records(self) -> int:
        """Number of records of the whole input up to the last one that this source has emitted."""
        return self._clock.records_until(self.position)

    def cut(self, barrier: int, tick: int, records: int = 0) -> None:
        """Send the barrier before tick number `tick`; at once if the spout has ended.

        Own records among the first `records` of the whole input precede it, too.
        """
        self._hold = None
        if self.ending:
            self.on_barrier(self, barrier)
        else:
            self._cut, self._least = (barrier, tick), self._clock.own_records(records)

    def release(self) -> None:
        """Continue without the prepared barrier, which has been abandoned."""
        self._hold = self._cut = None
        self._halted, self._least = False, 0

    # --- turns ---------------------------------------------------------------------------------------------

    @property
    def next_ns(self) -> int | None:
        """Due time of the next record or tick; None before the start, after the end, or while it is blocked."""
        if self._start_ns is None or self.ending or self.router.blocked or self._stands_still:
            return None
        if self._at_cut is not None:
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
        if self._stands_still:
            return False
        if (barrier := self._at_cut) is not None:
            return self._send_barrier(*barrier)
        if self._over:
            return self._finish()
        if self._tick_waits():
            if self._held:
                return False
            if self._tick_is_certain:
                return self._tick(now_ns - self._start_ns)
        rows = self._due_rows(now_ns - self._start_ns)
        return rows > 0 and self._emit_due(rows, now_ns)

    def _send_barrier(self, barrier: int, tick: int) -> bool:
        """Send the barrier, after the last tick if that precedes it."""
        if self.next_tick < tick and self._is_first_behind_a_record:
            self._send_tick()
        else:
            self._cut, self._least = None, 0
            self.pass_barrier(barrier)
        return True

    @property
    def worked(self) -> Worked:
        """Records that the executor of this name has emitted itself."""
        return Worked(self.position - self._elsewhere)

    def snapshot(self) -> Snapshot:
        return Snapshot(self.operator_state(), self.position, self.next_tick, self.worked)

    def restore(self, snapshot: Snapshot) -> None:
        with self.guarded():
            self.state.restore(snapshot.operator)
        self._continue(snapshot.position, snapshot.next_tick, snapshot.worked.emitted)

    def seek(self, records: int, next_tick: int, emitted: int) -> None:
        """Continue as one of another number of sources, which have emitted the first `records` of the whole input.

        Args:
            records: number of records.
            next_tick: number of the next tick.
            emitted: records that the executor of this name has emitted itself.

        Raises:
            RunError: the spout cannot be set to a position, or fails at that.
        """
        spout, position = self._spout, self._clock.own_records(records)
        if not isinstance(spout, Seekable):
            raise RunError(f"{self.executor.name} cannot continue at its record {position}: its spout has no seek()")
        with self.guarded():
            spout.seek(position)
        self._continue(position, next_tick, emitted)

    def share_replays(self, records: int) -> None:
        """Count own records among the first `records` of the whole input as replays, as far as they are to come."""
        self.seen = self._clock.own_records(records)

    def replace(self) -> None:
        """Note that others have taken over: what was due here and has not been emitted is due there."""
        self.replaced = True
        if self.meter.due is not None:
            self.meter.due = self.worked.emitted

    def _continue(self, position: int, next_tick: int, emitted: int) -> None:
        self.position, self.next_tick = position, next_tick
        self._elsewhere = position - emitted
        self._sampler.skip(position)

    @property
    def _at_cut(self) -> tuple[int, int] | None:
        """The barrier to be sent and its tick, once all records and ticks before it have been emitted."""
        if self._cut is None or self.position < self._least:
            return None
        return self._cut if self._over or self.next_tick >= self._cut[1] else None

    @property
    def _stands_still(self) -> bool:
        """True while a halted source has nothing to emit before a barrier."""
        return self._halted and self._cut is None

    @property
    def _over(self) -> bool:
        return self.exhausted or (self.until is not None and self.position >= self.until)

    def _finish(self) -> bool:
        """End the input, unless a prepared barrier must precede the end; return whether it ended."""
        if self.ending or self._hold is not None or self._cut is not None:
            return False
        if self._is_first_behind_a_record:
            self._send_tick()
        self.ending = True
        self.router.mark(End())
        return True

    def _due_rows(self, elapsed_ns: int) -> int:
        rows = min(self.MAX_ROWS * self.TURNS, self._clock.due_count(elapsed_ns) - self.position)
        if self._spout.tick_ns and rows > 0:
            # A record after the tick is emitted alone, with all ticks before it.
            rows = min(rows, max(1, self._clock.stream_count(self._tick_ns) - self.position))
        if self.position < self._least:
            rows = min(rows, self._least - self.position)
        return rows if self.until is None else min(rows, self.until - self.position)

    def _emit_due(self, due: int, now_ns: int) -> bool:
        started = time.thread_time_ns()
        try:
            rows = self._next_batch(due)
            if len(rows) > due:
                raise RunError(f"next_batch gave {len(rows)} rows, the limit was {due}")
            while rows and self._tick_waits():
                self._send_tick()
            self._emit(rows, now_ns)
        except Exception as fault:
            raise operator_error(self.executor.name, self.operator, fault) from fault
        self.meter.busy_ns += time.thread_time_ns() - started
        if not rows:
            self.exhausted = True
            self._finish()
        return True

    def _next_batch(self, limit: int) -> Sequence[Row]:
        """Return the operator's next rows."""
        return self._spout.next_batch(limit)

    def _emit(self, rows: Sequence[Row], now_ns: int) -> None:
        first = self.position
        stamps: list[tuple[int, int]] = []
        for record in self._sampler.sampled(first, len(rows)):
            due = self._clock.due_ns(record)
            due_ns = now_ns if due is None else self._since_start(due)
            stamps.append((record - first, due_ns - self.ahead_ns))
        self.router.emit(self._emitted(rows), {DEFAULT_STREAM: stamps})
        self.position += len(rows)
        replayed = replays(first, len(rows), self.seen)
        self.meter.replayed += replayed
        self.meter.emitted += len(rows) - replayed
        # Replayed records do not count as late.
        last_due = self._clock.due_ns(self.position - 1) if replayed < len(rows) else None
        if last_due is not None:
            self.meter.late_ns = max(0, now_ns - self._since_start(last_due))
        self._adapt(now_ns)

    def _emitted(self, rows: Sequence[Row]) -> Emitted:
        """Return what is sent for the next rows."""
        return {DEFAULT_STREAM: rows}

    def _adapt(self, now_ns: int) -> None:
        since_ns, position = self._adapted
        if now_ns - since_ns >= NS:
            self._sampler.adapt((self.position - position) * NS / (now_ns - since_ns))
            self._adapted = (now_ns, self.position)

    def _since_start(self, elapsed_ns: int) -> int:
        if self._start_ns is None:
            raise RunError(f"{self.executor.name} has no due times before its start")
        return self._start_ns + elapsed_ns

    # --- ticks ---------------------------------------------------------------------------------------------

    @property
    def _tick_ns(self) -> int:
        """Stream time of the next tick."""
        return self.next_tick * self._spout.tick_ns

    @property
    def _held(self) -> bool:
        """True if the next tick, or the last of the ticks emitted with the next record, must wait for a barrier."""
        if self._hold is None:
            return False
        time_ns = None if self._tick_is_certain else self._clock.stream_ns(self.position)
        return (self.next_tick if time_ns is None else time_ns // self._spout.tick_ns) >= self._hold

    def _tick_waits(self) -> bool:
        """Return whether a tick precedes the next record."""
        if not self._spout.tick_ns:
            return False
        time_ns = self._clock.stream_ns(self.position)
        return time_ns is not None and time_ns >= self._tick_ns

    @property
    def _tick_is_certain(self) -> bool:
        """True if the next tick is emitted even if no record follows.

        The records alone determine the ticks, wherever the input is stopped: one tick follows the last record, and all
        others are emitted together with the record behind them. The only exception is a tick before a barrier, if
        other sources have emitted that tick before the barrier.
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
        # A source that was stopped before a recovery may end before it is started again.
        due_ns = now_ns if due is None or self._start_ns is None else min(now_ns, self._start_ns + due)
        self._mark(Tick(self.next_tick, self._tick_ns, due_ns - self.ahead_ns))
        self.next_tick += 1

    def _mark(self, tick: Tick) -> None:
        self.router.mark(tick)
