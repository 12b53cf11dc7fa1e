"""A worker's share of one start of the topology: its executors, and its part in barriers; without I/O.

What it needs of the world is handed in: links to other workers, a place to store snapshots, a clock, and somebody who
takes its reports. It is told what the controller says (`obey`), what other workers send (`take`) and what the disk has
done (`stored`); whoever drives it gives its executors their turns and calls `after_turns`.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
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
from agents.worker.channels.channel import Ager
from agents.worker.executors.bolt import BoltExecutor
from agents.worker.executors.executor import RunningExecutor
from agents.worker.executors.snapshot import Snapshot
from agents.worker.executors.spout import SpoutExecutor
from agents.worker.task_graph.builder import GraphBuilder, assemble
from agents.worker.task_graph.interfaces import Clocks, Network, Settled, Store
from agents.worker.task_graph.migration import Migration
from agents.worker.task_graph.plan import RunPlan
from agents.worker.task_graph.time_slots import TimeSlots
from agents.worker.wire import frame
from inventory.errors import RunError
from workloads.operators import Operator
from workloads.rates import rate_of

_MOVED = Struct("<qq")
"""Before a moved executor's snapshot: when its last work ended and the CPU time spent on it, both in ns."""


class _Passage:
    """A barrier from `Prepare` until all executors here have passed it."""

    def __init__(self, prepare: Prepare, plan: RunPlan, rewiring: Migration | None, waiting: set[int]) -> None:
        self.number, self.store = prepare.barrier, prepare.store
        self.plan, self.rewiring, self.waiting = plan, rewiring, waiting
        self.arriving: dict[int, bytearray] = {number: bytearray() for number in rewiring.arriving} if rewiring else {}
        self.ready = self.cut = False


class EpochTasks:
    """What one worker has of one epoch."""

    def __init__(
        self,
        spec: RunSpec,
        place: Place,
        operator: Callable[[str], Operator],
        inputs: Mapping[str, str],
        ager: Ager,
        network: Network,
        store: Store,
        clocks: Clocks,
        send: Callable[[Message], None],
    ) -> None:
        """Make and open everything that runs at `place`, and restore it when the spec says so.

        Raises:
            RunError: something cannot be opened or restored.
        """
        self.plan = RunPlan(spec)
        self.epoch, self._place = spec.epoch, place
        if place not in self.plan.places:
            raise RunError(f"slot {place.slot} of {place.node} is no worker of run {spec.run}")
        self.me = self.plan.places.index(place)
        self._network, self._store, self._clocks, self._send = network, store, clocks, send
        self._slots = TimeSlots(spec.gates, self.plan, place, clocks.now_ns) if spec.gates is not None else None
        self._graph = GraphBuilder(self.me, network.wire, ager, operator, rate_of(spec.rate), inputs, self._slots)
        self.registry = assemble(self.plan, self._graph)
        for running in self.registry.executors:
            running.on_barrier = self._on_barrier
            if spec.restore:
                running.restore(store.read(spec.restore, running.executor.name))
        self._passage: _Passage | None = None
        self._start_ns: int | None = None
        self._seen: Mapping[str, int] = {}
        self._ahead_ns = 0
        self._places = spec.workers
        self._wanted = self.connected = False
        self._stop: Stop | None = None
        self._stopped = self._exhausted = self.drained = False

    def obey(self, command: Message) -> None:
        """Act on a command that belongs to this epoch.

        Raises:
            RunError: it makes no sense here.
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
                self._slots.begin(number, self.registry, lambda worker: self.place_of(worker).node)
            case Stop():
                self._stop = command
                for spout in self.registry.spouts:
                    spout.stop(command.positions.get(spout.executor.name, 0))
            case _:
                raise RunError(f"a worker cannot act on {type(command).__name__} now")

    def start(self, at_ns: int, offset_ns: int = 0, seen: Mapping[str, int] = {}) -> None:
        """The sources start, as `Go` says."""
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
        """There may be new links."""
        self.connected = self._wanted and (self.connected or self._network.complete)
        self._tell_ready()

    def place_of(self, worker: int) -> Place:
        """Where a worker is."""
        return self._places[worker]

    def take(self, received: frame.Frame, peer: int) -> None:
        """Take a frame of another worker.

        Raises:
            FrameError, CodecError: it does not belong here.
        """
        if received.kind == frame.STATE:
            self._take_state(received, peer)
        else:
            if received.kind == frame.BARRIER and (self._passage is None or self._passage.number != received.count):
                # Its channel would wait for it for ever.
                raise frame.FrameError(f"barrier {received.count}, which has not been prepared here")
            self.registry.take(received, peer)

    def after_turns(self) -> None:
        """Tell the controller what the last turns brought about."""
        if self._passage is not None:
            self._after_barrier(self._passage)
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
        """Whether everything here has ended and left; a worker without executors is over when the sources stop."""
        if self.drained or self._passage is not None:
            return False
        return self.registry.drained and (self._stop is not None or bool(self.registry.executors))

    def finish(self) -> None:
        """Write the answers and say that all is drained."""
        self.drained = True
        answers: dict[str, tuple[str, ...]] = {}
        for bolt in self.registry.bolts:
            for answer in _settled(bolt, last=True):
                for table, paths in self._store.write_answer(bolt.executor.name, answer).items():
                    answers[table] = (*answers.get(table, ()), *paths)
        slot = self._place.slot
        self._send(Drained(epoch=self.epoch, slot=slot, positions=self.positions, answers=answers))

    @cached_property
    def _spout_names(self) -> frozenset[str]:
        return frozenset(e.name for at, e in enumerate(self.plan.executors) if not self.plan.is_bolt(at))

    @property
    def positions(self) -> dict[str, int]:
        """Records emitted, by spout executor."""
        return {spout.executor.name: spout.position for spout in self.registry.spouts}

    def close(self) -> None:
        """Close all operators."""
        arriving = self._passage.rewiring.arriving.values() if self._passage and self._passage.rewiring else ()
        for running in chain(self.registry.executors, arriving):
            running.operator.close()

    # --- barriers ------------------------------------------------------------------------------------------

    def _prepare(self, prepare: Prepare) -> None:
        self._places = prepare.workers or self._places
        if prepare.complete:
            self._store.forget(prepare.complete)
        refused = self._reason_against(prepare)
        if not refused:
            plan, rewiring = self.plan, None
            try:
                if prepare.moves:
                    plan = self.plan.moved(prepare.moves, self._places)
                    rewiring = Migration(self.plan, plan, self.registry, self._graph)
            except RunError as fault:
                refused = str(fault)
        if refused:
            slot = self._place.slot
            self._send(Ready(epoch=self.epoch, slot=slot, barrier=prepare.barrier, refused=refused))
            return
        self._passage = _Passage(prepare, plan, rewiring, set(self.registry.running))
        tick = self._next_tick
        for spout in self.registry.spouts:
            spout.hold(tick)
        if rewiring is not None:
            for running in rewiring.arriving.values():
                running.on_barrier = self._on_barrier
            self._network.connect(rewiring.peers - {self.me}, plan.places, prepare.ports)
        self._tell_ready()

    def _reason_against(self, prepare: Prepare) -> str:
        if self._passage is not None:
            return f"barrier {self._passage.number} is not over yet"
        if not self.connected:
            return "not all links are there yet"
        if self.drained:
            return "everything here has come to its end"
        if prepare.moves and any(_has_ended(running) for running in self.registry.executors):
            return "an executor has come to its end, there is nothing to move for"
        return ""

    def _tell_ready(self) -> None:
        passage = self._passage
        if passage is not None and not passage.ready and self._network.complete:
            passage.ready = True
            slot = self._place.slot
            self._send(Ready(epoch=self.epoch, slot=slot, barrier=passage.number, tick=self._next_tick))

    @property
    def _next_tick(self) -> int:
        return max((spout.next_tick for spout in self.registry.spouts), default=0)

    def _cut(self, barrier: int, tick: int) -> None:
        passage = self._passage
        if passage is None or passage.number != barrier:
            return
        passage.cut = True
        for spout in list(self.registry.spouts):
            # One that has come by a move, faster than this command, is behind the barrier already.
            if spout.number in passage.waiting:
                spout.cut(barrier, tick)

    def _abandon(self, barrier: int) -> None:
        passage = self._passage
        if passage is None or passage.number != barrier:
            return
        self._passage = None
        if passage.rewiring is not None:
            passage.rewiring.abandon()
        for spout in self.registry.spouts:
            spout.release()

    def _on_barrier(self, running: RunningExecutor, number: int) -> None:
        passage = self._passage
        if passage is None or passage.number != number or running.number not in passage.waiting:
            raise RunError(f"{running.executor.name} met barrier {number}, which has not been prepared here")
        passage.waiting.discard(running.number)
        target = passage.rewiring.target(running.number) if passage.rewiring else None
        if passage.store or target is not None:
            cut_ns, began = self._clocks.now_ns(), self._clocks.cpu_ns()
            settled = _settled(running, last=False) if passage.store and isinstance(running, BoltExecutor) else []
            # What is settled is no part of the state any more.
            snapshot = running.snapshot()
            if passage.store:
                self._store.keep(number, running.executor.name, snapshot, settled)
            if target is not None:
                self._hand_over(running, snapshot, target, cut_ns, began)
        if passage.rewiring is not None:
            passage.rewiring.passed(running)
        if target is not None:
            running.operator.close()

    def _hand_over(self, running: RunningExecutor, snapshot: Snapshot, target: int, cut_ns: int, began: int) -> None:
        packed = b"".join(snapshot.pieces())
        head = _MOVED.pack(cut_ns, self._clocks.cpu_ns() - began)
        wire = self._network.wire(target)
        for piece in frame.state(self.epoch, running.number, head + packed):
            wire.write([piece])

    def _take_state(self, received: frame.Frame, peer: int) -> None:
        passage = self._passage
        gathered = passage.arriving.get(received.sender) if passage is not None else None
        if passage is None or passage.rewiring is None or gathered is None or self.plan.worker[received.sender] != peer:
            raise frame.FrameError(f"state of executor {received.sender}, which does not come here")
        gathered += received.payload
        if not received.flags & frame.LAST:
            return
        if len(gathered) < _MOVED.size:
            raise frame.FrameError(f"state of executor {received.sender} in {len(gathered)} bytes")
        del passage.arriving[received.sender]
        began = self._clocks.cpu_ns()
        cut_ns, cpu_ns = _MOVED.unpack_from(gathered)
        state = bytes(gathered[_MOVED.size :])
        running = passage.rewiring.arrive(received.sender)
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
                barrier=passage.number,
                executor=running.executor.name,
                state_bytes=len(state),
                buffered=running.queued if isinstance(running, BoltExecutor) else 0,
                cut_ns=cut_ns,
                live_ns=self._clocks.now_ns(),
                cpu_ns=cpu_ns + self._clocks.cpu_ns() - began,
            )
        )

    def _after_barrier(self, passage: _Passage) -> None:
        """See to executors that end before the barrier comes to them, and to its end."""
        if passage.cut:
            for number in list(passage.waiting):
                running = self.registry.running[number]
                if running.ending:
                    self._on_barrier(running, passage.number)
        self.registry.let_go()
        if not passage.cut or passage.waiting or passage.arriving or self.registry.retired:
            return
        self._passage, self.plan = None, passage.plan
        self._send(Passed(epoch=self.epoch, slot=self._place.slot, barrier=passage.number))

    def stored(
        self,
        barrier: int,
        executor: str,
        file: str,
        nbytes: int,
        position: int,
        answers: Mapping[str, tuple[str, ...]],
    ) -> None:
        """The disk holds a snapshot."""
        self._send(
            Stored(
                epoch=self.epoch,
                slot=self._place.slot,
                barrier=barrier,
                executor=executor,
                file=file,
                nbytes=nbytes,
                position=position if executor in self._spout_names else None,
                answers=answers,
            )
        )


def _has_ended(running: RunningExecutor) -> bool:
    return running.ending and not (isinstance(running, BoltExecutor) and running.idle)


def _settled(bolt: BoltExecutor, last: bool) -> list[Settled]:
    """Rows of a sink's answer that are settled, by table; at the `last` all the rest too, of every table."""
    found: list[Settled] = []
    with bolt.guarded():
        for table in bolt.bolt.tables():
            rows = [*table.settled(), *(table.answer() if last else ())]
            if rows or last:
                found.append(Settled(table.answer_table, table.answer_schema, rows))
    return found
