"""What a worker changes at the barrier behind which executors have other places.

Everything new is made ready beside the old when the barrier is prepared; at the barrier every executor changes over by
itself, the moment it passes.
"""

from agents.worker.assembly import Assembly
from agents.worker.bolt import BoltExecutor
from agents.worker.channel import ChannelId, Incoming, Outgoing
from agents.worker.inputs import Inputs
from agents.worker.plan import ChannelPlan, RunPlan
from agents.worker.running import Running
from agents.worker.wiring import Wiring
from inventory.errors import RunError


class Rewiring:
    """From one plan to the next.

    Attributes:
        arriving: executors that come here, made and opened, waiting for their state.
        peers: workers that a link is needed to.
    """

    def __init__(self, old: RunPlan, new: RunPlan, assembly: Assembly, wiring: Wiring) -> None:
        """Make ready what the new plan needs here.

        Raises:
            RunError: an operator cannot be opened here.
        """
        self._new, self._assembly, self._wiring = new, assembly, wiring
        me = wiring.me
        moved = {at for at, (a, b) in enumerate(zip(old.place, new.place, strict=True)) if a != b}
        self._leaving = {at for at in moved if old.worker[at] == me}
        self.arriving: dict[int, Running] = {}
        self.peers = {new.worker[at] for at in self._leaving} | {old.worker[at] for at in moved if new.worker[at] == me}
        self._outgoing: dict[ChannelId, Outgoing] = {}
        self._incoming: dict[ChannelId, Incoming] = {}
        coming = {at for at in moved if new.worker[at] == me}
        inputs = {at: Inputs() for at in coming if new.is_bolt(at)}
        for channel in new.channels:
            if moved & {channel.sender, channel.receiver} and wiring.concerns(new, channel):
                self._prepare(channel, inputs)
        try:
            for at in coming:
                router = wiring.router(new, at, self._outgoing)
                running = wiring.executor(new, at, router, inputs.get(at))
                running.live = False
                self.arriving[at] = running
        except RunError:
            self.abandon()
            raise

    def _prepare(self, channel: ChannelPlan, arriving: dict[int, Inputs]) -> None:
        receiver = channel.receiver
        inputs = arriving.get(receiver)
        stays = inputs is None and self._new.worker[receiver] == self._wiring.me
        if stays:
            inputs = self._assembly.inputs(receiver)
        outgoing, incoming, peer = self._wiring.ends(self._new, channel, inputs)
        if outgoing is not None:
            self._outgoing[channel.id] = outgoing
            self._assembly.expect(channel.id, peer, outgoing)
        if incoming is not None and inputs is not None:
            self._incoming[channel.id] = incoming
            self._assembly.expect(channel.id, peer, incoming)
            if stays:
                inputs.replace(self._assembly.incoming[channel.id], incoming)
            else:
                inputs.join(incoming)
        if peer != self._wiring.me:
            self.peers.add(peer)

    def target(self, number: int) -> int | None:
        """Where an executor of this worker goes; None: it stays."""
        return self._new.worker[number] if number in self._leaving else None

    def passed(self, running: Running) -> None:
        """An executor of this worker has forwarded the barrier: change over what it sends and receives on."""
        number, assembly = running.number, self._assembly
        if number in self._leaving:
            assembly.retire(assembly.outgoing_of(number).values())
            self._drop_incoming(number, assembly.incoming_of(number))
            for channel in assembly.outgoing_of(number):
                del assembly.outgoing[channel]
            assembly.departed.append(assembly.remove(number))
            if isinstance(running, BoltExecutor):
                running.inputs.leave()
            return
        replaced = {channel: end for channel, end in self._outgoing.items() if channel.sender == number}
        if replaced:
            assembly.retire([assembly.outgoing[channel] for channel in replaced])
            assembly.outgoing |= replaced
            running.router = self._wiring.router(self._new, number, assembly.outgoing)
        for channel, end in self._incoming.items():
            if channel.receiver == number:
                # Its inputs have let go of the old end as they met the barrier.
                assembly.forget([assembly.incoming[channel]])
                assembly.incoming[channel] = end

    def _drop_incoming(self, number: int, ends: dict[ChannelId, Incoming]) -> None:
        for channel, end in ends.items():
            end.close()
            del self._assembly.incoming[channel]
        self._assembly.forget(ends.values())

    def arrive(self, number: int) -> Running:
        """The state of an executor is here: it belongs to this worker from now on."""
        running = self.arriving.pop(number)
        self._assembly.outgoing |= {c: end for c, end in self._outgoing.items() if c.sender == number}
        self._assembly.incoming |= {c: end for c, end in self._incoming.items() if c.receiver == number}
        self._assembly.add(running)
        running.live = True
        return running

    def abandon(self) -> None:
        """The barrier does not come."""
        self._assembly.forget([*self._outgoing.values(), *self._incoming.values()])
        for bolt in self._assembly.bolts:
            bolt.inputs.keep()
        for end in self._incoming.values():
            end.drop()
        for running in self.arriving.values():
            if isinstance(running, BoltExecutor):
                running.inputs.leave()
            running.operator.close()
