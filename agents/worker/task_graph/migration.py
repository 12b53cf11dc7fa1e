"""The changes in one worker at a barrier at which executors move, or components get other numbers of executors.

All executors of a component that is scaled are new ones, with new numbers, so that all their channels are new as well:
whatever differs in place or number leaves, and whatever differs arrives. Some keep the operators of old ones.

New executors and channel ends are created beside the old ones when the barrier is prepared. Each executor switches to
its new channels when it passes the barrier.
"""

from collections.abc import Iterable

from agents.protocol import Prepare
from agents.worker.channels.channel import ChannelId, Incoming, Outgoing
from agents.worker.channels.input_gate import InputGate
from agents.worker.executors.bolt import BoltExecutor
from agents.worker.executors.executor import RunningExecutor
from agents.worker.task_graph.builder import GraphBuilder
from agents.worker.task_graph.plan import ChannelPlan, PlanChange, RunPlan
from agents.worker.task_graph.redistribution import Redistribution
from agents.worker.task_graph.registry import TaskRegistry
from agents.worker.task_graph.state_transfer import StateTransfer
from inventory.errors import RunError


class Migration:
    """Transition of one worker from one plan to the next.

    Attributes:
        arriving: executors that move or are added here; created, opened, and waiting for their state.
        peers: workers to which a link is needed.
    """

    def __init__(
        self,
        change: PlanChange,
        registry: TaskRegistry,
        graph: GraphBuilder,
        transfer: StateTransfer,
    ) -> None:
        """Create the executors and channel ends that the new plan adds to this worker.

        Args:
            change: plans before and behind the barrier.
            registry: of this worker.
            graph: creates what is new.
            transfer: has the operators of arriving executors that are open already.

        Raises:
            RunError: an operator cannot be opened here.
        """
        old, new = change.old, change.new
        self._new, self._registry, self._graph = new, registry, graph
        me = graph.me
        gone = {at for at, place in old.place.items() if new.place.get(at) != place}
        come = set(change.arriving)
        self._leaving = {at for at in gone if old.worker[at] == me}
        coming = {at for at in come if new.worker[at] == me}
        self.arriving: dict[int, RunningExecutor] = {}
        # New executors, and those of old ones whose operators they keep.
        self._kept = _kept_operators(change, coming, graph)
        self.peers = _peers(old, new, gone, come, me)
        self._old_outgoing = _by_executor(c for c in registry.outgoing if c.receiver in gone)
        self._old_incoming = _by_executor((c for c in registry.incoming if c.sender in gone), of_receiver=True)
        self._outgoing: dict[ChannelId, Outgoing] = {}
        self._incoming: dict[ChannelId, Incoming] = {}
        inputs = {at: InputGate() for at in coming if new.is_bolt(at)}
        for channel in new.channels:
            if come & {channel.sender, channel.receiver} and graph.concerns(new, channel):
                self._prepare(channel, inputs)
        for number, channels in self._old_incoming.items():
            if number not in self._leaving:
                for channel_id in channels:
                    registry.inputs(number).leave_at_barrier(registry.incoming[channel_id])
        try:
            for at in coming:
                router = graph.router(new, at, self._outgoing)
                source = self._kept.get(at)
                opened = transfer.take_operator(at) if source is None else registry.running[source].operator
                running = graph.executor(new, at, router, inputs.get(at), opened)
                running.live = False
                self.arriving[at] = running
        except RunError:
            self.abandon()
            raise

    def _prepare(self, channel: ChannelPlan, arriving: dict[int, InputGate]) -> None:
        receiver = channel.receiver
        inputs = arriving.get(receiver)
        stays = inputs is None and self._new.worker[receiver] == self._graph.me
        if stays:
            inputs = self._registry.inputs(receiver)
        outgoing, incoming, peer = self._graph.ends(self._new, channel, inputs)
        if outgoing is not None:
            self._outgoing[channel.id] = outgoing
            self._registry.expect(channel.id, peer, outgoing)
        if incoming is not None and inputs is not None:
            self._incoming[channel.id] = incoming
            self._registry.expect(channel.id, peer, incoming)
            if stays:
                inputs.join_at_barrier(incoming)
            else:
                inputs.join(incoming)
        if peer != self._graph.me:
            self.peers.add(peer)

    def target(self, number: int) -> int | None:
        """Return the worker to which an executor of this worker moves; None: it stays, or others take over from it."""
        return self._new.worker.get(number) if number in self._leaving else None

    def leaves(self, number: int) -> bool:
        """Return whether an executor of this worker ends here, at the barrier."""
        return number in self._leaving

    def passed(self, running: RunningExecutor) -> None:
        """Switch an executor of this worker, which has forwarded the barrier, to its new channels."""
        number, registry = running.number, self._registry
        if number in self._leaving:
            registry.retire(registry.outgoing_of(number).values())
            self._drop_incoming(number, registry.incoming_of(number))
            for channel in registry.outgoing_of(number):
                del registry.outgoing[channel]
            registry.departed.append(registry.remove(number))
            if isinstance(running, BoltExecutor):
                running.inputs.leave()
            if number not in self._kept.values():
                registry.close(running)
            return
        if number in self._old_outgoing:
            registry.retire([registry.outgoing.pop(channel) for channel in self._old_outgoing[number]])
            registry.outgoing |= {channel: end for channel, end in self._outgoing.items() if channel.sender == number}
            running.router = self._graph.router(self._new, number, registry.outgoing)
        # Its input gate closed the old ends at the barrier.
        if number in self._old_incoming:
            registry.forget([registry.incoming.pop(channel) for channel in self._old_incoming[number]])
            registry.incoming |= {channel: end for channel, end in self._incoming.items() if channel.receiver == number}

    def _drop_incoming(self, number: int, ends: dict[ChannelId, Incoming]) -> None:
        for channel, end in ends.items():
            end.close()
            del self._registry.incoming[channel]
        self._registry.forget(ends.values())

    def arrive(self, number: int) -> RunningExecutor:
        """Add an executor whose state has arrived to this worker."""
        running = self.arriving.pop(number)
        self._registry.outgoing |= {c: end for c, end in self._outgoing.items() if c.sender == number}
        self._registry.incoming |= {c: end for c, end in self._incoming.items() if c.receiver == number}
        self._registry.add(running)
        running.live = True
        return running

    def abandon(self) -> None:
        """Discard the new executors and channel ends, because the barrier was abandoned."""
        self._registry.forget([*self._outgoing.values(), *self._incoming.values()])
        for bolt in self._registry.bolts:
            bolt.inputs.cancel_changes()
        for end in self._incoming.values():
            end.drop()
        for number, running in self.arriving.items():
            if isinstance(running, BoltExecutor):
                running.inputs.leave()
            if number not in self._kept:
                running.operator.close()


def _kept_operators(change: PlanChange, coming: Iterable[int], graph: GraphBuilder) -> dict[int, int]:
    """Return, for those of the new executors that keep the operator of an old one, the number of that one."""
    added = [at for at in coming if not change.moves(at) and graph.is_divisible(change.new.component_of(at))]
    return {at: source for at in added if (source := change.kept_from(at)) is not None}


def _peers(old: RunPlan, new: RunPlan, gone: set[int], come: set[int], me: int) -> set[int]:
    """Return the workers that take over state from worker `me`, or from which it takes over some."""
    moved = gone & come
    pairs = [(old.worker[at], new.worker[at]) for at in moved]
    peers = {a if b == me else b for a, b in pairs if me in (a, b)}
    givers = {(old.executors[at].component, old.worker[at]) for at in gone - moved}
    takers = {(new.executors[at].component, new.worker[at]) for at in come - moved}
    for here, there in ((givers, takers), (takers, givers)):
        mine = {component for component, worker in here if worker == me}
        peers |= {worker for component, worker in there if component in mine}
    return peers


def _by_executor(channels: Iterable[ChannelId], of_receiver: bool = False) -> dict[int, list[ChannelId]]:
    """Return channels by their sender, or by their receiver."""
    by_executor: dict[int, list[ChannelId]] = {}
    for channel in channels:
        by_executor.setdefault(channel.receiver if of_receiver else channel.sender, []).append(channel)
    return by_executor


class PendingBarrier:
    """A barrier from `Prepare` until all executors of this worker have passed it."""

    def __init__(
        self,
        prepare: Prepare,
        plan: RunPlan,
        change: tuple[Migration, Redistribution] | None,
        waiting: set[int],
        begun_ns: int,
    ) -> None:
        """Begin it at `begun_ns`, when sources halt if they do."""
        self.number, self.store = prepare.barrier, prepare.store
        self.plan, self.change, self.waiting = plan, change, waiting
        self.arriving = {pair: bytearray() for pair in sorted(change[1].expected)} if change else {}
        self._halted_ns = begun_ns if prepare.halt else None
        self.ready = self.cut = False

    def ended_ns(self, running: RunningExecutor, now_ns: int) -> int:
        """Return when an executor ended its work, if it has met the barrier now."""
        return now_ns if self._halted_ns is None or isinstance(running, BoltExecutor) else self._halted_ns


def change_to(
    change: PlanChange, registry: TaskRegistry, graph: GraphBuilder, transfer: StateTransfer
) -> tuple[Migration, Redistribution]:
    """Prepare one worker for the plan behind a barrier; arguments as for `Migration`.

    Raises:
        RunError: an operator cannot be opened here, or the state of a component cannot be divided.
    """
    migration = Migration(change, registry, graph, transfer)
    try:
        return migration, Redistribution(change, migration.arriving, graph, transfer)
    except RunError:
        migration.abandon()
        raise


def check_possible(
    prepare: Prepare,
    pending: PendingBarrier | None,
    is_connected: bool,
    is_drained: bool,
    registry: TaskRegistry,
) -> None:
    """Check that a worker can take part in a barrier.

    Raises:
        RunError: it cannot.
    """
    changes = bool(prepare.moves) or prepare.scaled is not None
    if pending is not None:
        raise RunError(f"barrier {pending.number} is not over yet")
    if not is_connected:
        raise RunError("not all links are connected yet")
    if is_drained:
        raise RunError("all executors have ended")
    if changes and any(_has_ended(running) for running in registry.executors):
        raise RunError("an executor has ended, so a move is pointless")


def _has_ended(running: RunningExecutor) -> bool:
    """Return whether an executor ends, so that a move of it is pointless; an idle bolt does not."""
    return running.ending and not (isinstance(running, BoltExecutor) and running.idle)
