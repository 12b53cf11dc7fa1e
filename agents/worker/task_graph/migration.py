"""The changes in one worker at a barrier at which executors move.

New executors and channel ends are created beside the old ones when the barrier is prepared. Each executor switches to
its new channels when it passes the barrier.
"""

from agents.worker.channels.channel import ChannelId, Incoming, Outgoing
from agents.worker.channels.input_gate import InputGate
from agents.worker.executors.bolt import BoltExecutor
from agents.worker.executors.executor import RunningExecutor
from agents.worker.task_graph.builder import GraphBuilder
from agents.worker.task_graph.plan import ChannelPlan, RunPlan
from agents.worker.task_graph.registry import TaskRegistry
from inventory.errors import RunError


class Migration:
    """Transition of one worker from one plan to the next.

    Attributes:
        arriving: executors that move here; created, opened, and waiting for their state.
        peers: workers to which a link is needed.
    """

    def __init__(self, old: RunPlan, new: RunPlan, registry: TaskRegistry, graph: GraphBuilder) -> None:
        """Create the executors and channel ends that the new plan adds to this worker.

        Raises:
            RunError: an operator cannot be opened here.
        """
        self._new, self._registry, self._graph = new, registry, graph
        me = graph.me
        moved = {at for at, (a, b) in enumerate(zip(old.place, new.place, strict=True)) if a != b}
        self._leaving = {at for at in moved if old.worker[at] == me}
        self.arriving: dict[int, RunningExecutor] = {}
        self.peers = {new.worker[at] for at in self._leaving} | {old.worker[at] for at in moved if new.worker[at] == me}
        self._outgoing: dict[ChannelId, Outgoing] = {}
        self._incoming: dict[ChannelId, Incoming] = {}
        coming = {at for at in moved if new.worker[at] == me}
        inputs = {at: InputGate() for at in coming if new.is_bolt(at)}
        for channel in new.channels:
            if moved & {channel.sender, channel.receiver} and graph.concerns(new, channel):
                self._prepare(channel, inputs)
        try:
            for at in coming:
                router = graph.router(new, at, self._outgoing)
                running = graph.executor(new, at, router, inputs.get(at))
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
                inputs.replace(self._registry.incoming[channel.id], incoming)
            else:
                inputs.join(incoming)
        if peer != self._graph.me:
            self.peers.add(peer)

    def target(self, number: int) -> int | None:
        """Return the worker to which an executor of this worker moves; None: it stays."""
        return self._new.worker[number] if number in self._leaving else None

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
            return
        replaced = {channel: end for channel, end in self._outgoing.items() if channel.sender == number}
        if replaced:
            registry.retire([registry.outgoing[channel] for channel in replaced])
            registry.outgoing |= replaced
            running.router = self._graph.router(self._new, number, registry.outgoing)
        for channel, end in self._incoming.items():
            if channel.receiver == number:
                # Its input gate closed the old end at the barrier.
                registry.forget([registry.incoming[channel]])
                registry.incoming[channel] = end

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
            bolt.inputs.cancel_replacements()
        for end in self._incoming.values():
            end.drop()
        for running in self.arriving.values():
            if isinstance(running, BoltExecutor):
                running.inputs.leave()
            running.operator.close()
