"""What runs in one worker: its executors, its ends of channels, and which frame belongs to which of them."""

from collections.abc import Iterable, Iterator

from agents.worker.channels.channel import ChannelId, Incoming, Outgoing
from agents.worker.channels.input_gate import InputGate
from agents.worker.channels.remote import RemoteIncoming, RemoteOutgoing, mark_of
from agents.worker.executors.bolt import BoltExecutor
from agents.worker.executors.executor import RunningExecutor
from agents.worker.executors.spout import SpoutExecutor
from agents.worker.wire import frame
from inventory.errors import RunError


class TaskRegistry:
    """Executors by number, channel ends by channel.

    Attributes:
        running: executors that are here, or about to be.
        outgoing: ends of channels whose sender is here.
        incoming: ends of channels whose receiver is here.
        retired: ends of channels that one of the two has moved away from, and that the receiver still holds.
        departed, dropped: executors that have moved away, and ends of channels that the receiver has let go of, which
            have not been reported for the last time.
    """

    def __init__(self) -> None:
        self.running: dict[int, RunningExecutor] = {}
        self.outgoing: dict[ChannelId, Outgoing] = {}
        self.incoming: dict[ChannelId, Incoming] = {}
        self.retired: list[Outgoing] = []
        self.departed: list[RunningExecutor] = []
        self.dropped: list[Outgoing] = []
        # Behind a move there are two channels of one name for a while, to or from different workers.
        self._to: dict[tuple[ChannelId, int], RemoteOutgoing] = {}
        self._from: dict[tuple[ChannelId, int], RemoteIncoming] = {}
        self.executors: list[RunningExecutor] = []
        self.spouts: list[SpoutExecutor] = []
        self.bolts: list[BoltExecutor] = []

    def add(self, running: RunningExecutor) -> None:
        """One more executor."""
        self.running[running.number] = running
        self._list()

    def remove(self, number: int) -> RunningExecutor:
        """One executor less."""
        gone = self.running.pop(number)
        self._list()
        return gone

    def _list(self) -> None:
        ordered = [self.running[number] for number in sorted(self.running)]
        self.spouts = [running for running in ordered if isinstance(running, SpoutExecutor)]
        self.bolts = [running for running in ordered if isinstance(running, BoltExecutor)]
        self.executors = [*self.spouts, *self.bolts]

    def outgoing_of(self, number: int) -> dict[ChannelId, Outgoing]:
        """Channels that an executor sends on."""
        return {channel: end for channel, end in self.outgoing.items() if channel.sender == number}

    def incoming_of(self, number: int) -> dict[ChannelId, Incoming]:
        """Channels that an executor receives on."""
        return {channel: end for channel, end in self.incoming.items() if channel.receiver == number}

    def inputs(self, number: int) -> InputGate:
        """The input of a bolt executor.

        Raises:
            RunError: it is none of those here.
        """
        running = self.running.get(number)
        if not isinstance(running, BoltExecutor):
            raise RunError(f"no bolt executor of number {number} is here")
        return running.inputs

    @property
    def senders(self) -> Iterator[Outgoing]:
        """All ends that count tuples."""
        yield from self.outgoing.values()
        yield from self.retired

    # --- which frame goes where ----------------------------------------------------------------------------

    def expect(self, channel: ChannelId, peer: int, end: Outgoing | Incoming) -> None:
        """Frames of `channel` that come from worker `peer` are for this end."""
        if isinstance(end, RemoteOutgoing):
            self._to[channel, peer] = end
        elif isinstance(end, RemoteIncoming):
            self._from[channel, peer] = end

    def forget(self, ends: Iterable[Outgoing | Incoming]) -> None:
        """Frames for these come no more."""
        gone = set(map(id, ends))
        self._to = {key: end for key, end in self._to.items() if id(end) not in gone}
        self._from = {key: end for key, end in self._from.items() if id(end) not in gone}

    def take(self, received: frame.Frame, peer: int) -> None:
        """Give a frame that worker `peer` sent to the channel it belongs to.

        Raises:
            FrameError, CodecError: that side has no such channel to here, or broke a channel's rules.
        """
        key = (ChannelId(received.sender, received.receiver, received.stream), peer)
        if received.kind == frame.CREDIT:
            sender = self._to.get(key)
            if sender is None:
                raise _stray(received)
            sender.credit(received.count, received.length)
            return
        receiver = self._from.get(key)
        if receiver is None:
            raise _stray(received)
        if received.kind == frame.DATA:
            receiver.receive(received)
        else:
            receiver.deliver_mark(mark_of(received))

    def retire(self, ends: Iterable[Outgoing]) -> None:
        """These have sent their last barrier; credit may still come on them."""
        self.retired += ends

    def let_go(self) -> list[Outgoing]:
        """Drop retired ends that the receiver has closed; return them."""
        closed = [end for end in self.retired if end.closed]
        if closed:
            self.retired = [end for end in self.retired if not end.closed]
            self.forget(closed)
            self.dropped += closed
        return closed

    @property
    def drained(self) -> bool:
        """Whether nothing will ever be emitted here and all that was has left."""
        return all(running.drained for running in self.executors) and not self.retired


def _stray(received: frame.Frame) -> frame.FrameError:
    key = (received.sender, received.receiver, received.stream)
    return frame.FrameError(f"a frame of kind {received.kind} for the channel {key}, which does not come this way")
