"""The transfer of keyed state to other workers and executors: copied ahead of a barrier, and handed over at it.

The new worker opens the operator of an executor that arrives, and pulls its keys in pieces, one at a time, while those
that have them work (`state_copies`). At the barrier only the rest follows, so that the pause does not depend on the
size of the state. An executor that moves is the only one that gives keys to itself. Executors of a component that is
scaled get keys of several; one that stays in its worker keeps its operator, if all its state is by key, and gets others
in an operator of its own, because the one that it keeps is still at work. Between executors of one worker, pieces are
copied one by one after the turns of a pass.

State that is not by key, or that an operator keeps in another form, follows at the barrier as a whole.

An abandoned barrier ends its copies. A piece or a request that arrives after that, or after the executor has left, is
ignored.
"""

from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from typing import NamedTuple

from agents.protocol import Message, Precopied, Precopy
from agents.worker.executors.bolt import BoltExecutor
from agents.worker.executors.executor import RunningExecutor, Snapshot
from agents.worker.task_graph.builder import GraphBuilder
from agents.worker.task_graph.interfaces import MoveClocks, WorkerNetwork
from agents.worker.task_graph.plan import PlanChange, RunPlan
from agents.worker.task_graph.registry import TaskRegistry
from agents.worker.task_graph.state_copies import ArrivingState, LeavingState, TakenOver
from agents.worker.wire import frame
from inventory.errors import RunError
from workloads.operator_state import OperatorState
from workloads.operators import Operator
from workloads.scaling import key_fields
from workloads.topology import Executor

_HANDED_OVER = Struct("<qq?")
"""Header of a moved executor's state: end of its last work, CPU time of taking the state, both in ns; and whether the
operator's part of the snapshot is what has changed since it was copied."""


class HandedOver(NamedTuple):
    """The state of an executor at the barrier, as it arrives in its new worker.

    Attributes:
        snapshot: of the executor.
        is_rest: whether the operator's part has only what has changed since it was copied.
        cut_ns: end of its last work, on the old node's monotonic clock.
        cpu_ns: CPU time of taking and packing the state.
        nbytes: size of the snapshot.
    """

    snapshot: Snapshot
    is_rest: bool
    cut_ns: int
    cpu_ns: int
    nbytes: int

    @classmethod
    def read(cls, received: bytes | bytearray) -> "HandedOver":
        """Decode the payload of STATE frames.

        Raises:
            RunError: it has another form.
        """
        if len(received) < _HANDED_OVER.size:
            raise frame.FrameError(f"state of an executor in {len(received)} bytes")
        cut_ns, cpu_ns, is_rest = _HANDED_OVER.unpack_from(received)
        state = bytes(memoryview(received)[_HANDED_OVER.size :])
        return cls(Snapshot.read(state), is_rest, cut_ns, cpu_ns, len(state))


class Arrival:
    """State that is copied to an executor that arrives behind the barrier.

    Attributes:
        state: of an operator that has been opened: the keys that have been copied so far.
        copies: by the number of the old executor.
        unfinished: old executors that copy on.
        used: whether an executor has taken over the operator.
    """

    def __init__(
        self,
        name: str,
        state: OperatorState,
        barrier: int,
        sources: Mapping[int, int],
        began_ns: int,
    ) -> None:
        """Create it at `began_ns`; `sources` are the workers of the old executors, by their numbers."""
        self.name, self.state, self.barrier = name, state, barrier
        self.copies = {number: ArrivingState(name, state, worker, began_ns) for number, worker in sources.items()}
        self.unfinished = set(sources)
        self.used = False

    @property
    def nbytes(self) -> int:
        """Size of all pieces."""
        return sum(copy.nbytes for copy in self.copies.values())

    @property
    def cpu_ns(self) -> int:
        """CPU time of restoring all pieces."""
        return sum(copy.cpu_ns for copy in self.copies.values())

    @property
    def predicted_ns(self) -> int | None:
        """Time that the rest will take at the barrier, from one executor; None: from several, or not known yet."""
        return next(iter(self.copies.values())).predicted_ns if len(self.copies) == 1 else None

    def close(self) -> None:
        """Close the operator, unless an executor has taken it over."""
        if not self.used:
            self.state.operator.close()


class StateTransfer:
    """The part of one worker in the transfer of state."""

    def __init__(
        self,
        epoch: int,
        slot: int,
        registry: TaskRegistry,
        graph: GraphBuilder,
        network: WorkerNetwork,
        clocks: MoveClocks,
        send: Callable[[Message], None],
    ) -> None:
        self._epoch, self._slot, self._registry, self._graph = epoch, slot, registry, graph
        self._network, self._clocks, self._send = network, clocks, send
        self._change: PlanChange | None = None
        self._leaving: dict[int, LeavingState] = {}
        self._arriving: dict[int, Arrival] = {}
        self._early: list[tuple[int, int, int, int]] = []
        self._local: list[tuple[int, int]] = []
        self._departed: set[int] = set()
        self._ended = 0

    # --- ahead of the barrier ------------------------------------------------------------------------------

    @property
    def is_copying(self) -> bool:
        """Return whether a piece can be copied within this worker now."""
        return bool(self._local)

    @property
    def is_arriving(self) -> bool:
        """Return whether state has been or is copied to executors of this worker."""
        return bool(self._arriving)

    @property
    def is_leaving(self) -> bool:
        """Return whether state is copied from executors of this worker."""
        return bool(self._leaving)

    def precopy(self, command: Precopy, plan: RunPlan) -> None:
        """Begin to copy the state that executors get here, or give from here, and link to the workers concerned."""
        me, peers = self._graph.me, set[int]()
        try:
            new = plan.moved(command.moves, command.workers) if command.scaled is None else RunPlan(command.scaled)
        except RunError:
            # `Prepare` is refused for the same reason.
            for move in command.moves:
                if move.to == command.workers[me]:
                    self._report(command.barrier, move.executor)
            return
        change = self._change = PlanChange(command.barrier, plan, new)
        for number in change.arriving:
            givers = change.givers_of(number) if self._can_be_copied(change, number) else {}
            if new.worker[number] == me:
                peers |= set(givers.values())
                self._expect(change, number, givers)
            elif me in givers.values():
                peers.add(new.worker[number])
        early, self._early = self._early, []
        for pull in early:
            self._pulled(*pull)
        self._network.connect(peers - {me}, command.workers, command.ports)

    def _can_be_copied(self, change: PlanChange, number: int) -> bool:
        component = change.new.component_of(number)
        return self._graph.can_be_copied(component) and (change.moves(number) or self._graph.is_divisible(component))

    def _expect(self, change: PlanChange, number: int, givers: Mapping[int, int]) -> None:
        executor = change.new.executors[number]
        operator = self._opened(change.new, executor) if givers else None
        if operator is None:
            self._report(change.barrier, executor.name)
            return
        state = OperatorState(operator)
        self._arriving[number] = Arrival(executor.name, state, change.barrier, givers, self._clocks.now_ns())
        for giver, worker in givers.items():
            if worker == self._graph.me:
                self._local.append((giver, number))
            else:
                self._pull(worker, giver, number, change.barrier)

    def _opened(self, plan: RunPlan, executor: Executor) -> Operator | None:
        """Return the opened operator of an executor; None: its state cannot be copied."""
        try:
            operator = self._graph.opened(plan, executor, plan.topology.component[executor.component].parallelism)
        except RunError:
            # `Prepare` opens it again, and this worker refuses the change.
            return None
        if OperatorState(operator).can_be_copied:
            return operator
        # With acknowledgements, another operator stands before it.
        operator.close()
        return None

    def _pull(self, worker: int, sender: int, receiver: int, barrier: int) -> None:
        self._network.wire(worker).write([frame.pull(self._epoch, sender, barrier, receiver)])

    def _report(self, barrier: int, executor: str, predicted_ns: int | None = None) -> None:
        self._send(
            Precopied(epoch=self._epoch, slot=self._slot, barrier=barrier, executor=executor, predicted_ns=predicted_ns)
        )

    def take(self, received: frame.Frame, peer: int) -> None:
        """Take a frame about state that is copied from here or to here.

        Raises:
            FrameError: no such state is here, or nobody has requested it.
        """
        if received.kind == frame.COPY:
            self._take_copy(received, peer)
        else:
            self._pulled(received.sender, received.receiver, received.count, peer)

    def _pulled(self, sender: int, receiver: int, barrier: int, peer: int) -> None:
        """Send the next piece of what an executor gives to another one to the worker that requests it."""
        if barrier <= self._ended or sender in self._departed:
            return
        running = self._registry.running.get(sender)
        if running is not None and not (isinstance(running, BoltExecutor) and running.state.can_be_copied):
            raise frame.FrameError(f"a request for the state of executor {sender}, which cannot be copied here")
        if running is not None and (self._change is None or self._change.barrier < barrier):
            # The worker that requests it has heard of the change first.
            self._early.append((sender, receiver, barrier, peer))
            return
        copy = self._copy_of(sender, receiver, peer)
        state, ends_round = self._piece(copy, sender, receiver)
        wire = self._network.wire(peer)
        for piece in frame.copy(self._epoch, sender, barrier, state, ends_round, receiver):
            wire.write([piece])

    def _copy_of(self, sender: int, receiver: int, peer: int) -> LeavingState:
        change, running = self._change, self._registry.running.get(sender)
        if change is not None and running is not None and change.new.worker.get(receiver) == peer:
            divides = sender not in change.new.executors and self._graph.is_divisible(change.old.component_of(sender))
            if divides or change.moves(sender):
                copy = self._leaving_of(running, change)
                if copy.has(receiver):
                    return copy
        raise frame.FrameError(f"a request for state of executor {sender}, which gives none to {receiver}")

    def _leaving_of(self, running: RunningExecutor, change: PlanChange) -> LeavingState:
        """Return the copy of what an executor gives away, which begins with the first call."""
        number = running.number
        if number not in self._leaving:
            with running.guarded():
                if change.moves(number):
                    copy = LeavingState(running.state, number)
                else:
                    fields = key_fields(change.old.component_of(number))
                    copy = LeavingState(running.state, change.receivers_of(number), fields)
            self._leaving[number] = copy
        return self._leaving[number]

    def _piece(self, copy: LeavingState, sender: int, receiver: int) -> tuple[bytes, bool]:
        began = self._clocks.cpu_ns()
        with self._registry.running[sender].guarded():
            piece = copy.piece(receiver)
        copy.cpu_ns += self._clocks.cpu_ns() - began
        return piece

    def _take_copy(self, received: frame.Frame, peer: int) -> None:
        sender, receiver, barrier = received.sender, received.receiver, received.count
        if barrier <= self._ended:
            return
        arrival = self._arriving.get(receiver)
        copy = arrival.copies.get(sender) if arrival is not None else None
        if arrival is None or copy is None or (arrival.barrier, copy.source) != (barrier, peer):
            raise frame.FrameError(f"state of executor {sender}, which is not copied to {receiver} here")
        began = self._clocks.cpu_ns()
        if copy.take(received):
            copy.cpu_ns += self._clocks.cpu_ns() - began
            if not self._ends(arrival, sender, bool(received.flags & frame.ROUND)):
                self._pull(peer, sender, receiver, barrier)

    def step(self) -> None:
        """Copy a piece between two executors of this worker."""
        if not self._local:
            return
        sender, receiver = self._local.pop(0)
        arrival = self._arriving[receiver]
        copy = arrival.copies[sender]
        state, ends_round = self._piece(self._copy_of(sender, receiver, self._graph.me), sender, receiver)
        began = self._clocks.cpu_ns()
        copy.restore(state)
        copy.cpu_ns += self._clocks.cpu_ns() - began
        if not self._ends(arrival, sender, ends_round):
            self._local.append((sender, receiver))

    def _ends(self, arrival: Arrival, sender: int, ends_round: bool) -> bool:
        """Note a piece; return whether the copy ends with it."""
        if not ends_round or not arrival.copies[sender].ends_copy(self._clocks.now_ns()):
            return False
        arrival.unfinished.discard(sender)
        if not arrival.unfinished:
            self._report(arrival.barrier, arrival.name, arrival.predicted_ns)
        return True

    def take_operator(self, number: int) -> Operator | None:
        """Return the operator that state is copied to for an executor, if there is one; from now on others close it."""
        arrival = self._arriving.get(number)
        if arrival is None:
            return None
        arrival.used = True
        return arrival.state.operator

    # --- at the barrier ------------------------------------------------------------------------------------

    def hand_over(
        self, running: RunningExecutor, stored: Snapshot | None, target: int, cut_ns: int, began: int
    ) -> None:
        """Send the state of an executor that moves, which has met the barrier, to its new worker.

        Args:
            running: the executor.
            stored: its snapshot, if it has been taken.
            target: number of the new worker.
            cut_ns: now, on this node's monotonic clock.
            began: CPU time of this thread when the snapshot was begun.
        """
        copy = self._departs(running)
        if copy is not None and isinstance(running, BoltExecutor):
            with running.guarded():
                snapshot = Snapshot(copy.rests()[running.number], worked=running.worked)
            self._registry.copied_keys[running.number] = copy.copied
        else:
            snapshot = stored or running.snapshot()
        cpu_ns = self._clocks.cpu_ns() - began + (copy.cpu_ns if copy else 0)
        head = _HANDED_OVER.pack(cut_ns, cpu_ns, copy is not None)
        self.send(running.number, running.number, target, head + b"".join(snapshot.pieces()))

    def hand_over_keys(self, running: RunningExecutor, change: PlanChange) -> tuple[Mapping[int, bytes], int]:
        """Take what an executor, which has met the barrier, gives to others and has not been copied yet.

        An operator that is kept has only the keys that stay afterwards.

        Returns:
            state by receiver, and the CPU time of the copies.
        """
        copy = self._leaving_of(running, change)
        with running.guarded():
            rests = copy.rests()
            if copy.stays:
                copy.release()
        self._departs(running)
        return rests, copy.cpu_ns

    def _departs(self, running: RunningExecutor) -> LeavingState | None:
        """Expect no more requests for the state of an executor; return the copy of it."""
        self._departed.add(running.number)
        self._local = [pair for pair in self._local if pair[0] != running.number]
        return self._leaving.pop(running.number, None)

    def send(self, executor: int, receiver: int, worker: int, state: bytes) -> None:
        """Send state of an executor to itself or another one, in another worker."""
        wire = self._network.wire(worker)
        for piece in frame.state(self._epoch, executor, state, receiver):
            wire.write([piece])

    def restore(self, running: RunningExecutor, received: HandedOver) -> TakenOver:
        """Restore an executor that has arrived.

        Raises:
            RunError: the state does not fit what was copied before.
        """
        if not received.is_rest:
            self._arriving.pop(running.number, None)
            running.restore(received.snapshot)
            return TakenOver("", received.cut_ns, received.cpu_ns, received.nbytes)
        if running.number not in self._arriving or not isinstance(running, BoltExecutor):
            raise frame.FrameError(f"the rest of the state of {running.executor.name}, which was not copied here")
        nbytes, cpu_ns = self.restore_keys(running, [received.snapshot.operator])
        running.worked = received.snapshot.worked
        return TakenOver("", received.cut_ns, received.cpu_ns + cpu_ns, nbytes + received.nbytes)

    def restore_keys(self, running: BoltExecutor, rests: Iterable[bytes]) -> tuple[int, int]:
        """Add all keys that an executor gets to its operator; return size and CPU time of what was copied before."""
        arrival = self._arriving.pop(running.number, None)
        state = running.state if arrival is None else arrival.state
        with running.guarded():
            for rest in rests:
                state.put(rest)
            if state.operator is not running.operator:
                running.state.absorb(state)
            running.state.loaded()
        if arrival is None:
            return 0, 0
        arrival.close()
        return arrival.nbytes, arrival.cpu_ns

    def end(self, barrier: int) -> None:
        """End the copies of a barrier that is over, or abandoned."""
        self._ended = max(self._ended, barrier)
        self._early = [pull for pull in self._early if pull[2] > barrier]
        if self._change is not None and self._change.barrier > barrier:
            return
        self._change = None
        self._local.clear()
        self._departed.clear()
        for copy in self._leaving.values():
            copy.end()
        self._leaving.clear()
        self.close()
        self._arriving.clear()

    def close(self) -> None:
        """Close operators that no executor has taken over."""
        for arrival in self._arriving.values():
            arrival.close()
