"""Key groups of components that are scaled: copied ahead of the barrier to the executors that own them next.

An executor that stays in its worker keeps its operator, if all its state is by key. So only the keys of groups that
change their owner or their worker are copied, as for a move: an executor that gets some pulls them in pieces from each
of those that give them. It gets them in an operator of its own, because the one that it keeps is still at work. Between
executors of one worker, pieces are copied one by one after the turns of a pass.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from agents.worker.executors.bolt import BoltExecutor
from agents.worker.executors.executor import RunningExecutor
from agents.worker.task_graph.builder import GraphBuilder
from agents.worker.task_graph.interfaces import MoveClocks, WorkerNetwork
from agents.worker.task_graph.plan import RunPlan
from agents.worker.task_graph.registry import TaskRegistry
from agents.worker.task_graph.state_copies import ArrivingState, DividedState
from agents.worker.wire import frame
from inventory.errors import RunError
from workloads.operator_state import OperatorState
from workloads.operators import Operator
from workloads.scaling import key_fields
from workloads.topology import Executor


class Ahead(NamedTuple):
    """A barrier ahead of which state is copied: its number, and the plans before and behind it."""

    barrier: int
    old: RunPlan
    new: RunPlan


class Arrival:
    """What is copied to an executor that is new behind the barrier.

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
        self.copies = {
            number: ArrivingState(name, state, barrier, worker, began_ns) for number, worker in sources.items()
        }
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

    def close(self) -> None:
        """Close the operator, unless an executor has taken it over."""
        if not self.used:
            self.state.operator.close()


def kept_from(old: RunPlan, new: RunPlan, number: int) -> int | None:
    """Return the old executor whose operator a new one of the same worker keeps; None: it keeps no operator."""
    executor = new.executors[number]
    before = old.number_of.get(executor)
    if before is None or before in new.executors or old.worker[before] != new.worker[number]:
        return None
    return before if before in _owners_before(old, new, executor) else None


def kept_operators(old: RunPlan, new: RunPlan, coming: Iterable[int], graph: GraphBuilder) -> dict[int, int]:
    """Return, for those of the new executors that keep the operator of an old one, the number of that one."""
    added = [at for at in coming if at not in old.executors]
    found = {at: kept_from(old, new, at) for at in added if graph.is_divisible(new.component_of(at))}
    return {at: source for at, source in found.items() if source is not None}


def _owners_before(old: RunPlan, new: RunPlan, executor: Executor) -> set[int]:
    """Return the old executors, by number, of the key groups that an executor owns behind the barrier."""
    name, index = executor
    pairs = zip(old.owners[name], new.owners[name], strict=True)
    return {old.number_of[Executor(name, earlier)] for earlier, now in pairs if now == index}


def receivers_of(old: RunPlan, new: RunPlan, number: int) -> Mapping[int, int | None]:
    """Return the new executors, by number, that get the key groups of an old one; None: a group stays."""
    name, index = old.executors[number]
    to: dict[int, int | None] = {at.index: there for there, at in new.executors.items() if at.component == name}
    if index in to and kept_from(old, new, new.number_of[old.executors[number]]) == number:
        to[index] = None
    pairs = zip(old.owners[name], new.owners[name], strict=True)
    return {group: to[now] for group, (before, now) in enumerate(pairs) if before == index}


class GroupTransfer:
    """The part of one worker in the transfer of key groups."""

    def __init__(
        self,
        epoch: int,
        registry: TaskRegistry,
        graph: GraphBuilder,
        network: WorkerNetwork,
        clocks: MoveClocks,
        report: Callable[[int, str], None],
    ) -> None:
        """Create it; `report` is called with the barrier and an executor here when its state has been copied."""
        self._epoch, self._registry, self._graph = epoch, registry, graph
        self._network, self._clocks, self._report = network, clocks, report
        self._ahead: Ahead | None = None
        self._leaving: dict[int, DividedState] = {}
        self._arriving: dict[int, Arrival] = {}
        self._early: list[tuple[int, int, int, int]] = []
        self._local: list[tuple[int, int]] = []
        self._departed: set[int] = set()

    # --- ahead of the barrier ------------------------------------------------------------------------------

    @property
    def is_copying(self) -> bool:
        """Whether a piece can be copied within this worker now."""
        return bool(self._local)

    @property
    def is_arriving(self) -> bool:
        """Whether state has been or is copied to executors of this worker."""
        return bool(self._arriving)

    def precopy(self, barrier: int, old: RunPlan, new: RunPlan) -> set[int]:
        """Begin to copy what executors get here, or give from here; return the workers to link to."""
        ahead = self._ahead = Ahead(barrier, old, new)
        me, peers = self._graph.me, set[int]()
        for number in [at for at in new.executors if at not in old.executors]:
            component = new.component_of(number)
            is_copied = self._graph.is_divisible(component) and self._graph.can_be_copied(component)
            sources = self._sources(ahead, number) if is_copied else {}
            if new.worker[number] == me:
                peers |= set(sources.values())
                self._expect(ahead, number, sources)
            elif me in sources.values():
                peers.add(new.worker[number])
        early, self._early = self._early, []
        for pull in early:
            self.pulled(*pull)
        return peers - {me}

    @staticmethod
    def _sources(ahead: Ahead, number: int) -> dict[int, int]:
        """Return the workers of the old executors that a new one gets keys from, by number."""
        _, old, new = ahead
        numbers = _owners_before(old, new, new.executors[number]) - {kept_from(old, new, number)}
        return {source: old.worker[source] for source in sorted(numbers)}

    def _expect(self, ahead: Ahead, number: int, sources: Mapping[int, int]) -> None:
        executor = ahead.new.executors[number]
        operator = self._opened(ahead.new, executor) if sources else None
        if operator is None:
            self._report(ahead.barrier, executor.name)
            return
        state = OperatorState(operator)
        self._arriving[number] = Arrival(executor.name, state, ahead.barrier, sources, self._clocks.now_ns())
        for source, worker in sources.items():
            if worker == self._graph.me:
                self._local.append((source, number))
            else:
                self._pull(worker, source, number, ahead.barrier)

    def _opened(self, plan: RunPlan, executor: Executor) -> Operator | None:
        try:
            return self._graph.opened(plan, executor, plan.topology.component[executor.component].parallelism)
        except RunError:
            # `Prepare` opens it again, and this worker refuses the scaling.
            return None

    def _pull(self, worker: int, sender: int, receiver: int, barrier: int) -> None:
        self._network.wire(worker).write([frame.pull(self._epoch, sender, barrier, receiver)])

    def pulled(self, sender: int, receiver: int, barrier: int, peer: int) -> None:
        """Send the next piece of what an executor gives to another one to the worker that requests it.

        Raises:
            FrameError: the executor gives nothing to that one.
        """
        if sender in self._departed:
            return
        is_here = sender in self._registry.running
        if is_here and (self._ahead is None or self._ahead.barrier < barrier):
            # The worker that requests it has heard of the scaling first.
            self._early.append((sender, receiver, barrier, peer))
            return
        copy = self._copy_of(sender, receiver, peer)
        state, ends_round = self._piece(copy, sender, receiver)
        wire = self._network.wire(peer)
        for piece in frame.copy(self._epoch, sender, barrier, state, ends_round, receiver):
            wire.write([piece])

    def _copy_of(self, sender: int, receiver: int, peer: int) -> DividedState:
        ahead, running = self._ahead, self._registry.running.get(sender)
        is_known = ahead is not None and ahead.new.worker.get(receiver) == peer and sender not in ahead.new.executors
        if ahead is not None and is_known and running is not None and self._gives_keys(running):
            copy = self._leaving_of(running, ahead)
            if copy.has(receiver):
                return copy
        raise frame.FrameError(f"a request for state of executor {sender}, which gives none to {receiver}")

    def _gives_keys(self, running: RunningExecutor) -> bool:
        return self._ahead is not None and self._graph.is_divisible(self._ahead.old.component_of(running.number))

    def _leaving_of(self, running: RunningExecutor, ahead: Ahead) -> DividedState:
        """Return the copy of what an executor gives away, which begins with the first call."""
        number = running.number
        if number not in self._leaving:
            receivers = receivers_of(ahead.old, ahead.new, number)
            fields = key_fields(ahead.old.component_of(number))
            with running.guarded():
                self._leaving[number] = DividedState(running.state, fields, ahead.barrier, receivers)
        return self._leaving[number]

    def _piece(self, copy: DividedState, sender: int, receiver: int) -> tuple[bytes, bool]:
        began = self._clocks.cpu_ns()
        with self._registry.running[sender].guarded():
            piece = copy.piece(receiver)
        copy.cpu_ns += self._clocks.cpu_ns() - began
        return piece

    def take_copy(self, received: frame.Frame, peer: int) -> None:
        """Take a part of a piece that is copied to this worker.

        Raises:
            FrameError: nobody has requested it.
        """
        sender, receiver, barrier = received.sender, received.receiver, received.count
        arrival = self._arriving.get(receiver)
        copy = arrival.copies.get(sender) if arrival is not None else None
        if arrival is None or copy is None or (copy.barrier, copy.source) != (barrier, peer):
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
            self._report(arrival.barrier, arrival.name)
        return True

    def take_operator(self, number: int) -> Operator | None:
        """Return the operator that keys are copied to, if there is one; from now on others close it."""
        arrival = self._arriving.get(number)
        if arrival is None:
            return None
        arrival.used = True
        return arrival.state.operator

    # --- at the barrier ------------------------------------------------------------------------------------

    def hand_over(self, running: RunningExecutor, ahead: Ahead) -> tuple[Mapping[int, bytes], int]:
        """Take what an executor, which has met the barrier, gives to others and has not been copied yet.

        An operator that is kept has only the keys that stay afterwards.

        Returns:
            state by receiver, and the CPU time of the copies.
        """
        copy = self._leaving_of(running, ahead)
        with running.guarded():
            rests = copy.rests()
            if copy.stays:
                copy.release()
        del self._leaving[running.number]
        self._departed.add(running.number)
        self._local = [pair for pair in self._local if pair[0] != running.number]
        return rests, copy.cpu_ns

    def restore(self, running: BoltExecutor, rests: Iterable[bytes]) -> tuple[int, int]:
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
        self._early = [pull for pull in self._early if pull[2] > barrier]
        if self._ahead is not None and self._ahead.barrier > barrier:
            return
        self._ahead = None
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
