"""The tasks of one worker in one epoch: its executors, and its part in barriers; without I/O.

Links to other workers, storage for snapshots, clocks and the receiver of reports are passed in. The caller passes on
commands of the controller (`handle_command`), frames of other workers (`take`) and stored snapshots (`stored`), gives
the executors their turns, and calls `after_turns`.
"""

from collections.abc import Callable, Mapping
from itertools import chain

from msgspec.structs import replace

from agents.protocol import (
    Abandon,
    Clock,
    Cut,
    Drained,
    Exhausted,
    Gates,
    Go,
    Message,
    Moved,
    Passed,
    Precopy,
    Prepare,
    Ready,
    RunSpec,
    Schedule,
    Slot,
    Stop,
    Stopped,
    Stored,
    TimeSlot,
)
from agents.worker.channels.linger import FlushTimer
from agents.worker.executors.bolt import BoltExecutor
from agents.worker.executors.executor import RunningExecutor
from agents.worker.executors.spout import SpoutExecutor
from agents.worker.task_graph.builder import GraphBuilder, build_registry
from agents.worker.task_graph.interfaces import AnswerRows, MoveClocks, Store, WorkerNetwork
from agents.worker.task_graph.migration import PendingBarrier, change_to, check_possible
from agents.worker.task_graph.plan import PlanChange, RunPlan
from agents.worker.task_graph.restoring import restore_executor
from agents.worker.task_graph.state_transfer import HandedOver, StateTransfer
from agents.worker.task_graph.time_slots import TimeSlots
from agents.worker.wire import frame
from inventory.errors import RunError
from workloads.operators import Operator
from workloads.rates import rate_of
from workloads.scaling import shared_anew


class EpochTasks:
    """The tasks of one worker in one epoch.

    Attributes:
        known: executors by number, those included that have been replaced in this epoch.
        started_ns: when the sources started, on this node's clock; None before.
    """

    def __init__(
        self,
        spec: RunSpec,
        place: Slot,
        operator: Callable[[str], Operator],
        inputs: Mapping[str, str],
        flush_timer: FlushTimer,
        network: WorkerNetwork,
        store: Store,
        clocks: MoveClocks,
        send: Callable[[Message], None],
    ) -> None:
        """Create and open the executors at `place`, and restore them from a checkpoint if the spec has one.

        Raises:
            RunError: an executor cannot be opened or restored.
        """
        self.plan = RunPlan(spec)
        self.epoch, self._place = spec.epoch, place
        if place not in self.plan.places:
            raise RunError(f"slot {place.index} of {place.node} is no worker of run {spec.run}")
        self.me = self.plan.places.index(place)
        self._network, self._store, self._clocks, self._send = network, store, clocks, send
        self._slots = TimeSlots(spec.gates, self.plan, place, clocks.now_ns) if spec.gates is not None else None
        rate = rate_of(spec.rate)
        self._graph = GraphBuilder(self.me, network.wire, flush_timer, operator, rate, inputs, self._slots)
        self.registry = build_registry(self.plan, self._graph)
        for running in self.registry.executors:
            running.on_barrier = self._on_barrier
            if spec.restore:
                restore_executor(running, self.plan, store)
        self._transfer = StateTransfer(spec.epoch, place.index, self.registry, self._graph, network, clocks, send)
        self._pending: PendingBarrier | None = None
        self.started_ns: int | None = None
        self._seen: Mapping[str, int] = {}
        self._ahead_ns = 0
        self._places = spec.workers
        self.known = dict(self.plan.executors)
        self._stop: Stop | None = None
        self._wanted = self.connected = self._stopped = self._exhausted = self.drained = False

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
            case Precopy():
                self._places = command.workers
                self._transfer.precopy(command, self.plan)
            case Prepare():
                self._prepare(command)
            case Cut():
                self._cut(command)
            case Abandon(barrier=barrier):
                self._abandon(barrier)
            case TimeSlot(number=number) if self._slots is not None:
                self._slots.open(number, self.registry, self._places)
            case Schedule(gates=gates, first=first):
                self.follow(gates, first)
            case Stop():
                self._stop = command
                for spout in self.registry.spouts:
                    spout.stop(command.due_ns, command.positions.get(spout.executor.name, 0))
            case _:
                raise RunError(f"a worker cannot act on {type(command).__name__} now")

    def start(self, at_ns: int, offset_ns: int = 0, seen: Mapping[str, int] = {}) -> None:
        """Start the sources; arguments as in `Go`."""
        self.started_ns, self._seen = at_ns, seen
        self._set_clock(offset_ns)
        for spout in self.registry.spouts:
            spout.start(at_ns, seen.get(spout.executor.name, 0))

    def _set_clock(self, offset_ns: int) -> None:
        self._ahead_ns = offset_ns
        for running in self.registry.executors:
            running.ahead_ns = offset_ns

    def follow(self, gates: Gates, first: int) -> None:
        """Follow a communication schedule from time slot `first` on, in a run with gates.

        Raises:
            RunError: an executor runs on a node without a part in the schedule.
        """
        if self._slots is None:
            raise RunError("this run follows no communication schedule")
        self.plan = RunPlan(replace(self.plan.spec, gates=gates))
        self._slots.follow(gates, first)

    def connect(self, ports: Mapping[str, int]) -> None:
        """Link to all workers that share a channel with this one."""
        self._wanted = True
        self._network.connect(self.plan.peers(self.me), self.plan.places, ports)

    def linked(self) -> None:
        """Check whether all links are connected now."""
        self.connected = self._wanted and (self.connected or self._network.complete)
        self._report_ready()

    def place_of(self, worker: int) -> Slot:
        """Return the place of a worker."""
        return self._places[worker]

    def take(self, received: frame.Frame, peer: int) -> None:
        """Handle a frame from another worker.

        Raises:
            FrameError, CodecError: it is not valid here.
        """
        if received.kind == frame.STATE:
            self._take_state(received, peer)
        elif received.kind in (frame.COPY, frame.PULL):
            self._transfer.take(received, peer)
        else:
            if received.kind == frame.BARRIER and (self._pending is None or self._pending.number != received.count):
                # Its channel would be blocked forever.
                raise frame.FrameError(f"barrier {received.count}, which has not been prepared here")
            self.registry.take(received, peer)

    def after_turns(self) -> None:
        """Report the results of the last turns to the controller."""
        self._transfer.step()
        self.registry.close_some()
        if self._pending is not None:
            self._after_barrier(self._pending)
        spouts = self.registry.spouts
        if not self._exhausted and spouts and all(spout.exhausted for spout in spouts):
            self._exhausted = True
            self._send(Exhausted(epoch=self.epoch, slot=self._place.index))
        if self._stop is not None and not self._stopped and all(spout.ending for spout in spouts):
            self._stopped = True
            self._send(Stopped(epoch=self.epoch, slot=self._place.index, positions=self.positions))
        if self._slots is not None and (done := self._slots.done(self.registry)) is not None:
            self._send(done)

    @property
    def has_more_steps(self) -> bool:
        """True if `after_turns` is to be called again: state is copied within this worker, or deleted."""
        return self._transfer.is_copying or bool(self.registry.closing)

    @property
    def is_over(self) -> bool:
        """True if all executors have ended and drained; a worker without working ones is over when the sources stop."""
        if self.drained or self._pending is not None or not self.registry.drained:
            return False
        # A stop before a recovery is in the specification, and may not be repeated.
        is_stopped = self._stop is not None or bool(self.plan.spec.until)
        return is_stopped or not all(isinstance(it, BoltExecutor) and it.idle for it in self.registry.executors)

    def finish(self) -> None:
        """Write the answers and report that this worker has drained."""
        self.drained = True
        answers: dict[str, tuple[str, ...]] = {}
        for bolt in self.registry.bolts:
            for answer in AnswerRows.of(bolt, last=True):
                for table, paths in self._store.write_answer(bolt.executor.name, answer).items():
                    answers[table] = (*answers.get(table, ()), *paths)
        self._send(Drained(epoch=self.epoch, slot=self._place.index, positions=self.positions, answers=answers))

    @property
    def positions(self) -> dict[str, int]:
        """Records emitted, by spout executor."""
        return {spout.executor.name: spout.position for spout in self.registry.spouts}

    def close(self) -> None:
        """Close all operators."""
        arriving = self._pending.change[0].arriving.values() if self._pending and self._pending.change else ()
        # An executor that is added may keep the operator of one that leaves.
        every = chain(self.registry.executors, self.registry.closing, arriving)
        for operator in {id(each.operator): each.operator for each in every}.values():
            operator.close()
        self._transfer.close()

    # --- barriers ------------------------------------------------------------------------------------------

    def _prepare(self, prepare: Prepare) -> None:
        self._places = prepare.workers or self._places
        if prepare.complete:
            self._store.delete_before(prepare.complete)
        plan, change = self.plan, None
        try:
            check_possible(prepare, self._pending, self.connected, self.drained, self.registry)
            if prepare.scaled is not None or prepare.moves:
                scaled = prepare.scaled
                plan = self.plan.moved(prepare.moves, self._places) if scaled is None else RunPlan(scaled)
                planned = PlanChange(prepare.barrier, self.plan, plan)
                change = change_to(planned, self.registry, self._graph, self._transfer)
        except RunError as fault:
            slot = self._place.index
            self._send(Ready(epoch=self.epoch, slot=slot, barrier=prepare.barrier, refused=str(fault)))
            return
        self.known |= plan.executors
        if self._slots is not None:
            self._slots.include(plan)
        self._pending = PendingBarrier(prepare, plan, change, set(self.registry.running), self._clocks.now_ns())
        tick = self.registry.next_tick
        for spout in self.registry.spouts:
            spout.hold(tick, prepare.halt)
        if change is not None:
            for running in change[0].arriving.values():
                running.on_barrier = self._on_barrier
            self._network.connect(change[0].peers - {self.me}, plan.places, prepare.ports)
        self._report_ready()

    def _report_ready(self) -> None:
        pending = self._pending
        if pending is not None and not pending.ready and self._network.complete:
            pending.ready = True
            slot, tick, records = self._place.index, self.registry.next_tick, self.registry.records
            self._send(Ready(epoch=self.epoch, slot=slot, barrier=pending.number, tick=tick, records=records))

    def _cut(self, cut: Cut) -> None:
        pending = self._pending
        if pending is None or pending.number != cut.barrier:
            return
        pending.cut = True
        for spout in list(self.registry.spouts):
            # A spout that has moved here faster than this command is behind the barrier already.
            if spout.number in pending.waiting:
                spout.cut(cut.barrier, cut.tick, cut.records)

    def _abandon(self, barrier: int) -> None:
        self._transfer.end(barrier)
        pending = self._pending
        if pending is None or pending.number != barrier:
            return
        self._pending = None
        if pending.change is not None:
            pending.change[0].abandon()
        for spout in self.registry.spouts:
            spout.release()

    def _on_barrier(self, running: RunningExecutor, number: int) -> None:
        pending = self._pending
        if pending is None or pending.number != number or running.number not in pending.waiting:
            raise RunError(f"{running.executor.name} met barrier {number}, which has not been prepared here")
        pending.waiting.discard(running.number)
        migration, division = pending.change or (None, None)
        leaves = migration is not None and migration.leaves(running.number)
        target = migration.target(running.number) if migration else None
        parts: list[tuple[int, bytes]] = []
        if pending.store or leaves:
            cut_ns, began = pending.ended_ns(running, self._clocks.now_ns()), self._clocks.cpu_ns()
            settled = AnswerRows.of(running, last=False) if pending.store and isinstance(running, BoltExecutor) else []
            # Settled answer rows are no longer part of the state.
            snapshot = running.snapshot() if pending.store else None
            if snapshot is not None:
                self._store.save(number, running.executor.name, snapshot, settled)
            if target is not None:
                self._transfer.hand_over(running, snapshot, target, cut_ns, began)
            elif leaves and division is not None:
                parts += division.parts(running, snapshot, cut_ns, self._clocks.cpu_ns() - began)
        if migration is not None:
            migration.passed(running)
        for receiver, state in parts:
            worker = pending.plan.worker[receiver]
            if worker == self.me:
                self._take_over(pending, running.number, receiver, state)
            else:
                self._transfer.send(running.number, receiver, worker, state)

    def _take_state(self, received: frame.Frame, peer: int) -> None:
        pending = self._pending
        gathered = pending.arriving.get((received.sender, received.receiver)) if pending is not None else None
        if pending is None or gathered is None or self.plan.worker[received.sender] != peer:
            raise frame.FrameError(f"state of executor {received.sender}, which does not move here")
        gathered += received.payload
        if received.flags & frame.LAST:
            self._take_over(pending, received.sender, received.receiver, gathered)

    def _take_over(self, pending: PendingBarrier, sender: int, receiver: int, state: bytes | bytearray) -> None:
        """Take the state of an executor that moves here, or a part of the state of an executor that is added here."""
        began = self._clocks.cpu_ns()
        moved = HandedOver.read(state) if sender == receiver else None
        del pending.arriving[sender, receiver]
        if pending.change is None or (moved is None and not pending.change[1].take(sender, receiver, state)):
            return
        migration, division = pending.change
        running = migration.arrive(receiver)
        running.ahead_ns = self._ahead_ns
        taken = division.restore(running) if moved is None else self._transfer.restore(running, moved)
        if isinstance(running, SpoutExecutor):
            if self.started_ns is not None:
                running.start(self.started_ns, self._seen.get(running.executor.name, 0) if moved else running.seen)
            if self._stop is not None:
                running.stop(self._stop.due_ns, self._stop.positions.get(running.executor.name, 0))
        self._send(
            Moved(
                epoch=self.epoch,
                slot=self._place.index,
                barrier=pending.number,
                executor=running.executor.name,
                state_bytes=taken.nbytes,
                buffered=running.queued if isinstance(running, BoltExecutor) else 0,
                source=taken.source,
                cut_ns=taken.cut_ns,
                live_ns=self._clocks.now_ns(),
                cpu_ns=taken.cpu_ns + self._clocks.cpu_ns() - began,
            )
        )

    def _after_barrier(self, pending: PendingBarrier) -> None:
        """Handle executors that end before the barrier reaches them, and the end of the barrier."""
        if pending.cut:
            for number in list(pending.waiting):
                running = self.registry.running[number]
                if running.ending:
                    self._on_barrier(running, pending.number)
        self.registry.drop_closed()
        if not pending.cut or pending.waiting or pending.arriving or self.registry.retired:
            return
        if self.plan.spouts != pending.plan.spouts:
            self._seen = shared_anew(self._seen, pending.plan.spouts)
        self._pending, self.plan = None, pending.plan
        self._transfer.end(pending.number)
        self._send(Passed(epoch=self.epoch, slot=self._place.index, barrier=pending.number))

    def stored(
        self, barrier: int, executor: str, file: str, nbytes: int, position: int, answers: Mapping[str, tuple[str, ...]]
    ) -> None:
        """Report a snapshot that is on disk."""
        self._send(
            Stored(
                epoch=self.epoch,
                slot=self._place.index,
                barrier=barrier,
                executor=executor,
                file=file,
                nbytes=nbytes,
                position=position if executor in self.plan.spouts else None,
                answers=answers,
            )
        )
