"""The tasks of one worker in one epoch: its executors, and its part in barriers; without I/O.

Links to other workers, storage for snapshots, clocks and the receiver of reports are passed in. The caller passes on
commands of the controller (`handle_command`), frames of other workers (`take`) and stored snapshots (`stored`), gives
the executors their turns, and calls `after_turns`.
"""

from collections.abc import Callable, Mapping
from itertools import chain
from struct import Struct

from agents.protocol import (
    Abandon,
    Clock,
    Cut,
    Drained,
    Exhausted,
    Go,
    Message,
    Moved,
    Passed,
    Place,
    Prepare,
    Ready,
    RunSpec,
    Stop,
    Stopped,
    Stored,
    TimeSlot,
)
from agents.worker.channels.channel import FlushTimer
from agents.worker.executors.bolt import BoltExecutor
from agents.worker.executors.executor import RunningExecutor
from agents.worker.executors.snapshot import Snapshot
from agents.worker.executors.spout import SpoutExecutor
from agents.worker.task_graph.builder import GraphBuilder, build_registry
from agents.worker.task_graph.interfaces import AnswerRows, Clocks, Network, Store
from agents.worker.task_graph.migration import Migration
from agents.worker.task_graph.plan import RunPlan
from agents.worker.task_graph.time_slots import TimeSlots
from agents.worker.wire import frame
from inventory.errors import RunError
from workloads.operators import Operator
from workloads.rates import rate_of

_MOVED = Struct("<qq")
"""Header of a moved executor's state: end of its last work, and the CPU time of the snapshot, both in ns."""


class _PendingBarrier:
    """A barrier from `Prepare` until all executors of this worker have passed it."""

    def __init__(self, prepare: Prepare, plan: RunPlan, migration: Migration | None, waiting: set[int]) -> None:
        self.number, self.store = prepare.barrier, prepare.store
        self.plan, self.migration, self.waiting = plan, migration, waiting
        self.arriving: dict[int, bytearray] = {at: bytearray() for at in migration.arriving} if migration else {}
        self.ready = self.cut = False


class EpochTasks:
    """The tasks of one worker in one epoch."""

    def __init__(
        self,
        spec: RunSpec,
        place: Place,
        operator: Callable[[str], Operator],
        inputs: Mapping[str, str],
        flush_timer: FlushTimer,
        network: Network,
        store: Store,
        clocks: Clocks,
        send: Callable[[Message], None],
    ) -> None:
        """Create and open the executors at `place`, and restore them from a checkpoint if the spec has one.

        Raises:
            RunError: an executor cannot be opened or restored.
        """
        self.plan = RunPlan(spec)
        self.epoch, self._place = spec.epoch, place
        if place not in self.plan.places:
            raise RunError(f"slot {place.slot} of {place.node} is no worker of run {spec.run}")
        self.me = self.plan.places.index(place)
        self._network, self._store, self._clocks, self._send = network, store, clocks, send
        self._slots = TimeSlots(spec.gates, self.plan, place, clocks.now_ns) if spec.gates is not None else None
        rate = rate_of(spec.rate)
        self._graph = GraphBuilder(self.me, network.wire, flush_timer, operator, rate, inputs, self._slots)
        self.registry = build_registry(self.plan, self._graph)
        for running in self.registry.executors:
            running.on_barrier = self._on_barrier
            if spec.restore:
                running.restore(store.read(spec.restore, running.executor.name))
        self._pending: _PendingBarrier | None = None
        self._start_ns: int | None = None
        self._seen: Mapping[str, int] = {}
        self._ahead_ns = 0
        self._places = spec.workers
        self._wanted = self.connected = False
        self._stop: Stop | None = None
        self._stopped = self._exhausted = self.drained = False

    def handle_command(self, command: Message) -> None:
        """Handle a command of this epoch.

        Raises:
            RunError: the command is not for workers.
        """
        match command:
            case Go(at_ns=at_ns, offset_ns=offset_ns, seen=seen):
                self.start(at_ns, offset_ns, seen)
            case Clock(offset_ns=offset_ns):
                self._set_clock(offset_ns)
            case Prepare():
                self._prepare(command)
            case Cut(barrier=barrier, tick=tick):
                self._cut(barrier, tick)
            case Abandon(barrier=barrier):
                self._abandon(barrier)
            case TimeSlot(number=number) if self._slots is not None:
                self._slots.open(number, self.registry, lambda worker: self.place_of(worker).node)
            case Stop():
                self._stop = command
                for spout in self.registry.spouts:
                    spout.stop(command.positions.get(spout.executor.name, 0))
            case _:
                raise RunError(f"a worker cannot act on {type(command).__name__} now")

    def start(self, at_ns: int, offset_ns: int = 0, seen: Mapping[str, int] = {}) -> None:
        """Start the sources; arguments as in `Go`."""
        self._start_ns, self._seen = at_ns, seen
        self._set_clock(offset_ns)
        for spout in self.registry.spouts:
            spout.start(at_ns, seen.get(spout.executor.name, 0))

    def _set_clock(self, offset_ns: int) -> None:
        self._ahead_ns = offset_ns
        for running in self.registry.executors:
            running.ahead_ns = offset_ns

    def connect(self, ports: Mapping[str, int]) -> None:
        """Link to all workers that share a channel with this one."""
        self._wanted = True
        self._network.connect(self.plan.peers(self.me), self.plan.places, ports)

    def linked(self) -> None:
        """Check whether all links are connected now."""
        self.connected = self._wanted and (self.connected or self._network.complete)
        self._report_ready()

    def place_of(self, worker: int) -> Place:
        """Return the place of a worker."""
        return self._places[worker]

    def take(self, received: frame.Frame, peer: int) -> None:
        """Handle a frame from another worker.

        Raises:
            FrameError, CodecError: it is not valid here.
        """
        if received.kind == frame.STATE:
            self._take_state(received, peer)
        else:
            if received.kind == frame.BARRIER and (self._pending is None or self._pending.number != received.count):
                # Its channel would be blocked forever.
                raise frame.FrameError(f"barrier {received.count}, which has not been prepared here")
            self.registry.take(received, peer)

    def after_turns(self) -> None:
        """Report the results of the last turns to the controller."""
        if self._pending is not None:
            self._after_barrier(self._pending)
        spouts = self.registry.spouts
        if not self._exhausted and spouts and all(spout.exhausted for spout in spouts):
            self._exhausted = True
            self._send(Exhausted(epoch=self.epoch, slot=self._place.slot))
        if self._stop is not None and not self._stopped and all(spout.ending for spout in spouts):
            self._stopped = True
            self._send(Stopped(epoch=self.epoch, slot=self._place.slot, positions=self.positions))
        if self._slots is not None:
            done = self._slots.done(self.registry)
            if done is not None:
                self._send(done)

    @property
    def is_over(self) -> bool:
        """Whether all executors have ended and drained; a worker without executors is over when the sources stop."""
        if self.drained or self._pending is not None:
            return False
        return self.registry.drained and (self._stop is not None or bool(self.registry.executors))

    def finish(self) -> None:
        """Write the answers and report that this worker has drained."""
        self.drained = True
        answers: dict[str, tuple[str, ...]] = {}
        for bolt in self.registry.bolts:
            for answer in _answer_rows(bolt, last=True):
                for table, paths in self._store.write_answer(bolt.executor.name, answer).items():
                    answers[table] = (*answers.get(table, ()), *paths)
        slot = self._place.slot
        self._send(Drained(epoch=self.epoch, slot=slot, positions=self.positions, answers=answers))

    @property
    def positions(self) -> dict[str, int]:
        """Records emitted, by spout executor."""
        return {spout.executor.name: spout.position for spout in self.registry.spouts}

    def close(self) -> None:
        """Close all operators."""
        arriving = self._pending.migration.arriving.values() if self._pending and self._pending.migration else ()
        for running in chain(self.registry.executors, arriving):
            running.operator.close()

    # --- barriers ------------------------------------------------------------------------------------------

    def _prepare(self, prepare: Prepare) -> None:
        self._places = prepare.workers or self._places
        if prepare.complete:
            self._store.delete_before(prepare.complete)
        refused = self._refusal_reason(prepare)
        if not refused:
            plan, migration = self.plan, None
            try:
                if prepare.moves:
                    plan = self.plan.moved(prepare.moves, self._places)
                    migration = Migration(self.plan, plan, self.registry, self._graph)
            except RunError as fault:
                refused = str(fault)
        if refused:
            slot = self._place.slot
            self._send(Ready(epoch=self.epoch, slot=slot, barrier=prepare.barrier, refused=refused))
            return
        self._pending = _PendingBarrier(prepare, plan, migration, set(self.registry.running))
        tick = self._next_tick
        for spout in self.registry.spouts:
            spout.hold(tick)
        if migration is not None:
            for running in migration.arriving.values():
                running.on_barrier = self._on_barrier
            self._network.connect(migration.peers - {self.me}, plan.places, prepare.ports)
        self._report_ready()

    def _refusal_reason(self, prepare: Prepare) -> str:
        if self._pending is not None:
            return f"barrier {self._pending.number} is not over yet"
        if not self.connected:
            return "not all links are connected yet"
        if self.drained:
            return "all executors have ended"
        if prepare.moves and any(_has_ended(running) for running in self.registry.executors):
            return "an executor has ended, so a move is pointless"
        return ""

    def _report_ready(self) -> None:
        pending = self._pending
        if pending is not None and not pending.ready and self._network.complete:
            pending.ready = True
            slot = self._place.slot
            self._send(Ready(epoch=self.epoch, slot=slot, barrier=pending.number, tick=self._next_tick))

    @property
    def _next_tick(self) -> int:
        return max((spout.next_tick for spout in self.registry.spouts), default=0)

    def _cut(self, barrier: int, tick: int) -> None:
        pending = self._pending
        if pending is None or pending.number != barrier:
            return
        pending.cut = True
        for spout in list(self.registry.spouts):
            # A spout that has moved here faster than this command is behind the barrier already.
            if spout.number in pending.waiting:
                spout.cut(barrier, tick)

    def _abandon(self, barrier: int) -> None:
        pending = self._pending
        if pending is None or pending.number != barrier:
            return
        self._pending = None
        if pending.migration is not None:
            pending.migration.abandon()
        for spout in self.registry.spouts:
            spout.release()

    def _on_barrier(self, running: RunningExecutor, number: int) -> None:
        pending = self._pending
        if pending is None or pending.number != number or running.number not in pending.waiting:
            raise RunError(f"{running.executor.name} met barrier {number}, which has not been prepared here")
        pending.waiting.discard(running.number)
        target = pending.migration.target(running.number) if pending.migration else None
        if pending.store or target is not None:
            cut_ns, began = self._clocks.now_ns(), self._clocks.cpu_ns()
            settled = _answer_rows(running, last=False) if pending.store and isinstance(running, BoltExecutor) else []
            # Settled answer rows are no longer part of the state.
            snapshot = running.snapshot()
            if pending.store:
                self._store.save(number, running.executor.name, snapshot, settled)
            if target is not None:
                self._hand_over(running, snapshot, target, cut_ns, began)
        if pending.migration is not None:
            pending.migration.passed(running)
        if target is not None:
            running.operator.close()

    def _hand_over(self, running: RunningExecutor, snapshot: Snapshot, target: int, cut_ns: int, began: int) -> None:
        packed = b"".join(snapshot.pieces())
        head = _MOVED.pack(cut_ns, self._clocks.cpu_ns() - began)
        wire = self._network.wire(target)
        for piece in frame.state(self.epoch, running.number, head + packed):
            wire.write([piece])

    def _take_state(self, received: frame.Frame, peer: int) -> None:
        pending = self._pending
        migration = pending.migration if pending is not None else None
        gathered = pending.arriving.get(received.sender) if pending is not None else None
        if pending is None or migration is None or gathered is None or self.plan.worker[received.sender] != peer:
            raise frame.FrameError(f"state of executor {received.sender}, which does not move here")
        gathered += received.payload
        if not received.flags & frame.LAST:
            return
        if len(gathered) < _MOVED.size:
            raise frame.FrameError(f"state of executor {received.sender} in {len(gathered)} bytes")
        del pending.arriving[received.sender]
        began = self._clocks.cpu_ns()
        cut_ns, cpu_ns = _MOVED.unpack_from(gathered)
        state = bytes(gathered[_MOVED.size :])
        running = migration.arrive(received.sender)
        running.ahead_ns = self._ahead_ns
        running.restore(Snapshot.read(state))
        if isinstance(running, SpoutExecutor):
            if self._start_ns is not None:
                running.start(self._start_ns, self._seen.get(running.executor.name, 0))
            if self._stop is not None:
                running.stop(self._stop.positions.get(running.executor.name, 0))
        self._send(
            Moved(
                epoch=self.epoch,
                slot=self._place.slot,
                barrier=pending.number,
                executor=running.executor.name,
                state_bytes=len(state),
                buffered=running.queued if isinstance(running, BoltExecutor) else 0,
                cut_ns=cut_ns,
                live_ns=self._clocks.now_ns(),
                cpu_ns=cpu_ns + self._clocks.cpu_ns() - began,
            )
        )

    def _after_barrier(self, pending: _PendingBarrier) -> None:
        """Handle executors that end before the barrier reaches them, and the end of the barrier."""
        if pending.cut:
            for number in list(pending.waiting):
                running = self.registry.running[number]
                if running.ending:
                    self._on_barrier(running, pending.number)
        self.registry.drop_closed()
        if not pending.cut or pending.waiting or pending.arriving or self.registry.retired:
            return
        self._pending, self.plan = None, pending.plan
        self._send(Passed(epoch=self.epoch, slot=self._place.slot, barrier=pending.number))

    def stored(
        self,
        barrier: int,
        executor: str,
        file: str,
        nbytes: int,
        position: int,
        answers: Mapping[str, tuple[str, ...]],
    ) -> None:
        """Report a snapshot that is on disk."""
        self._send(
            Stored(
                epoch=self.epoch,
                slot=self._place.slot,
                barrier=barrier,
                executor=executor,
                file=file,
                nbytes=nbytes,
                position=position if executor in self.plan.spouts else None,
                answers=answers,
            )
        )


def _has_ended(running: RunningExecutor) -> bool:
    return running.ending and not (isinstance(running, BoltExecutor) and running.idle)


def _answer_rows(bolt: BoltExecutor, last: bool) -> list[AnswerRows]:
    """Return the settled rows of a sink's answer, by table; with `last` also all others, of every table."""
    found: list[AnswerRows] = []
    with bolt.guarded():
        for table in bolt.bolt.tables():
            rows = [*table.settled(), *(table.answer() if last else ())]
            if rows or last:
                found.append(AnswerRows(table.answer_table, table.answer_schema, rows))
    return found
