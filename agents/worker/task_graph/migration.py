"""What a worker changes at the barrier behind which executors have other places.

Everything new is made ready beside the old when the barrier is prepared; at the barrier every executor changes over by
itself, the moment it passes.
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
    """From one plan to the next.

    Attributes:
        arriving: executors that come here, made and opened, waiting for their state.
        peers: workers that a link is needed to.
    """

    def __init__(self, old: RunPlan, new: RunPlan, registry: TaskRegistry, graph: GraphBuilder) -> None:
        """Make ready what the new plan needs here.

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
        """Where an executor of this worker goes; None: it stays."""
        return self._new.worker[number] if number in self._leaving else None

    def passed(self, running: RunningExecutor) -> None:
        """An executor of this worker has forwarded the barrier: change over what it sends and receives on."""
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
                # Its inputs have let go of the old end as they met the barrier.
                registry.forget([registry.incoming[channel]])
                registry.incoming[channel] = end

    def _drop_incoming(self, number: int, ends: dict[ChannelId, Incoming]) -> None:
        for channel, end in ends.items():
            end.close()
            del self._registry.incoming[channel]
        self._registry.forget(ends.values())

    def arrive(self, number: int) -> RunningExecutor:
        """The state of an executor is here: it belongs to this worker from now on."""
        running = self.arriving.pop(number)
        self._registry.outgoing |= {c: end for c, end in self._outgoing.items() if c.sender == number}
        self._registry.incoming |= {c: end for c, end in self._incoming.items() if c.receiver == number}
        self._registry.add(running)
        running.live = True
        return running

    def abandon(self) -> None:
        """The barrier does not come."""
        self._registry.forget([*self._outgoing.values(), *self._incoming.values()])
        for bolt in self._registry.bolts:
            bolt.inputs.keep()
        for end in self._incoming.values():
            end.drop()
        for running in self.arriving.values():
            if isinstance(running, BoltExecutor):
                running.inputs.leave()
            running.operator.close()
