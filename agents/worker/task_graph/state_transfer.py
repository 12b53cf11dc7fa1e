"""The state of executors that move: copied ahead of the barrier as far as possible, and handed over at the barrier.

The new worker opens the operator and pulls its state in pieces, one at a time, while the executor works in the old
worker (`state_copies`). At the barrier only the rest follows, so that the pause does not depend on the size of the
state. State that is not by key, or that an operator keeps in another form, follows at the barrier as a whole.
Components that are scaled have a `GroupTransfer`.

An abandoned barrier ends its copies. A piece or a request that arrives after that, or after the executor has left, is
ignored.
"""

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from agents.protocol import Message, Precopied, Precopy
from agents.worker.executors.bolt import BoltExecutor
from agents.worker.executors.executor import RunningExecutor, Snapshot
from agents.worker.task_graph.builder import GraphBuilder
from agents.worker.task_graph.group_transfer import GroupTransfer
from agents.worker.task_graph.interfaces import MoveClocks, WorkerNetwork
from agents.worker.task_graph.plan import RunPlan
from agents.worker.task_graph.registry import TaskRegistry
from agents.worker.task_graph.state_copies import ArrivingState, LeavingState, TakenOver
from agents.worker.wire import frame
from inventory.errors import RunError
from workloads.operator_state import OperatorState
from workloads.operators import Operator

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


class StateTransfer:
    """The part of one worker in the transfer of state.

    Attributes:
        groups: its part in the transfer of key groups of components that are scaled.
    """

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
        self._leaving: dict[int, LeavingState] = {}
        self._arriving: dict[int, ArrivingState] = {}
        self._departed: set[int] = set()
        self._ended = 0
        self.groups = GroupTransfer(epoch, registry, graph, network, clocks, self._report)

    # --- ahead of the barrier ------------------------------------------------------------------------------

    def precopy(self, command: Precopy, plan: RunPlan) -> None:
        """Link to the other workers of executors that move from or to this one, and pull the state of those to here.

        Likewise the state of those that a component gets here when it is scaled.
        """
        number_of = {executor.name: at for at, executor in plan.executors.items()}
        me, peers = self._graph.me, set[int]()
        for move in command.moves:
            number, target = number_of[move.executor], command.workers.index(move.to)
            source = plan.worker[number]
            if me != target:
                if me == source:
                    peers.add(target)
                continue
            operator = self._opened(plan, number)
            if operator is None:
                self._report(command.barrier, move.executor)
                continue
            peers.add(source)
            state = OperatorState(operator)
            self._arriving[number] = ArrivingState(move.executor, state, command.barrier, source, self._clocks.now_ns())
            self._pull(number, self._arriving[number])
        if command.scaled is not None:
            peers |= self.groups.precopy(command.barrier, plan, RunPlan(command.scaled))
        self._network.connect(peers, command.workers, command.ports)

    def _opened(self, plan: RunPlan, number: int) -> Operator | None:
        """Return the opened operator of an executor whose state can be copied; None: of another one."""
        executor = plan.executors[number]
        component = plan.topology.component[executor.component]
        if not self._graph.can_be_copied(component):
            return None
        try:
            operator = self._graph.opened(plan, executor, component.parallelism)
        except RunError:
            # `Prepare` opens it again, and this worker refuses the move.
            return None
        if OperatorState(operator).can_be_copied:
            return operator
        # With acknowledgements, another operator stands before it.
        operator.close()
        return None

    def _pull(self, number: int, copy: ArrivingState) -> None:
        self._network.wire(copy.source).write([frame.pull(self._epoch, number, copy.barrier)])

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
            self._pulled(received, peer)

    def _pulled(self, received: frame.Frame, peer: int) -> None:
        """Send the next piece of an executor's state to the worker that requests it."""
        number, barrier = received.sender, received.count
        if barrier <= self._ended or number in self._departed:
            return
        if received.receiver != number:
            self.groups.pulled(number, received.receiver, barrier, peer)
            return
        running = self._registry.running.get(number)
        if not isinstance(running, BoltExecutor) or not running.state.can_be_copied:
            raise frame.FrameError(f"a request for the state of executor {number}, which cannot be copied here")
        began = self._clocks.cpu_ns()
        with running.guarded():
            copy = self._leaving.get(number)
            if copy is None or (copy.barrier, copy.target) != (barrier, peer):
                copy = self._leaving[number] = LeavingState(running.state, barrier, peer)
            state, ends_round = copy.piece()
        wire = self._network.wire(peer)
        for piece in frame.copy(self._epoch, number, barrier, state, ends_round):
            wire.write([piece])
        copy.cpu_ns += self._clocks.cpu_ns() - began

    def _take_copy(self, received: frame.Frame, peer: int) -> None:
        number, barrier = received.sender, received.count
        if barrier <= self._ended:
            return
        if received.receiver != number:
            self.groups.take_copy(received, peer)
            return
        copy = self._arriving.get(number)
        if copy is None or (copy.barrier, copy.source) != (barrier, peer):
            raise frame.FrameError(f"state of executor {number}, which is not copied here")
        began = self._clocks.cpu_ns()
        if copy.take(received):
            copy.cpu_ns += self._clocks.cpu_ns() - began
            if received.flags & frame.ROUND and copy.ends_copy(self._clocks.now_ns()):
                self._report(barrier, copy.name, copy.predicted_ns)
            else:
                self._pull(number, copy)

    def take_operator(self, number: int) -> Operator | None:
        """Return the operator that an executor's state is copied to, if there is one; from now on others close it."""
        copy = self._arriving.get(number)
        if copy is None:
            return self.groups.take_operator(number)
        copy.used = True
        return copy.state.operator

    # --- at the barrier ------------------------------------------------------------------------------------

    def hand_over(
        self, running: RunningExecutor, stored: Snapshot | None, barrier: int, target: int, cut_ns: int, began: int
    ) -> None:
        """Send the state of an executor, which has met the barrier, to its new worker.

        Args:
            running: the executor.
            stored: its snapshot, if it has been taken.
            barrier: its number.
            target: number of the new worker.
            cut_ns: now, on this node's monotonic clock.
            began: CPU time of this thread when the snapshot was begun.
        """
        self._departed.add(running.number)
        copy = self._leaving.pop(running.number, None)
        is_rest = copy is not None and (copy.barrier, copy.target) == (barrier, target)
        if copy is not None and is_rest and isinstance(running, BoltExecutor):
            with running.guarded():
                snapshot = Snapshot(copy.rest(), worked=running.worked)
            self._registry.copied_keys[running.number] = copy.copied
        else:
            snapshot = stored or running.snapshot()
        cpu_ns = self._clocks.cpu_ns() - began + (copy.cpu_ns if copy else 0)
        head = _HANDED_OVER.pack(cut_ns, cpu_ns, is_rest)
        self.send(running.number, running.number, target, head + b"".join(snapshot.pieces()))

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
        copy = self._arriving.pop(running.number, None)
        if not received.is_rest:
            running.restore(received.snapshot)
            return TakenOver("", received.cut_ns, received.cpu_ns, received.nbytes)
        if copy is None or not isinstance(running, BoltExecutor):
            raise frame.FrameError(f"the rest of the state of {running.executor.name}, which was not copied here")
        with running.guarded():
            running.state.put(received.snapshot.operator)
            running.state.loaded()
        running.worked = received.snapshot.worked
        return TakenOver("", received.cut_ns, received.cpu_ns + copy.cpu_ns, copy.nbytes + received.nbytes)

    def end(self, barrier: int) -> None:
        """End the copies of a barrier that is over, or abandoned."""
        self._ended = max(self._ended, barrier)
        self._departed.clear()
        for number, leaving in list(self._leaving.items()):
            if leaving.barrier <= barrier:
                leaving.end()
                del self._leaving[number]
        for number, arriving in list(self._arriving.items()):
            if arriving.barrier <= barrier:
                del self._arriving[number]
                arriving.close()
        self.groups.end(barrier)

    def close(self) -> None:
        """Close operators that no executor has taken over."""
        for copy in self._arriving.values():
            copy.close()
        self.groups.close()
