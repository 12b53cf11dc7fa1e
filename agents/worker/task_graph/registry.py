"""The executors and channel ends of one worker, and the dispatch of received frames to them."""

from collections.abc import Iterable, Iterator
from typing import Any

from agents.worker.channels.channel import ChannelId, Incoming, Outgoing
from agents.worker.channels.ends import RemoteIncoming, RemoteOutgoing, mark_of
from agents.worker.channels.input_gate import InputGate
from agents.worker.executors.bolt import BoltExecutor
from agents.worker.executors.executor import RunningExecutor
from agents.worker.executors.spout import SpoutExecutor
from agents.worker.wire import frame
from inventory.errors import RunError

RELEASED_KEYS = 512
"""Keys of an executor that has left whose state is deleted at a time: a millisecond; for a million it takes 50."""


class TaskRegistry:
    """Executors by number, channel ends by channel.

    Attributes:
        running: executors of this worker.
        outgoing: channel ends whose sender is in this worker.
        incoming: channel ends whose receiver is in this worker.
        retired: channel ends whose sender or receiver has moved, and that the receiver has not closed yet.
        departed, dropped: executors that have moved away, and channel ends that the receiver has closed; both are kept
            until their last report.
        copied_keys: of an executor that is about to leave, by its number: the keys of its state, if they are known.
    """

    def __init__(self) -> None:
        self.running: dict[int, RunningExecutor] = {}
        self.outgoing: dict[ChannelId, Outgoing] = {}
        self.incoming: dict[ChannelId, Incoming] = {}
        self.retired: list[Outgoing] = []
        self.departed: list[RunningExecutor] = []
        self.dropped: list[Outgoing] = []
        self.copied_keys: dict[int, list[Any]] = {}
        self._closing: list[tuple[RunningExecutor, list[Any]]] = []
        # After a move there are two channels with the same id for a while, to or from different workers.
        self._to: dict[tuple[ChannelId, int], RemoteOutgoing] = {}
        self._from: dict[tuple[ChannelId, int], RemoteIncoming] = {}
        self.executors: list[RunningExecutor] = []
        self.spouts: list[SpoutExecutor] = []
        self.bolts: list[BoltExecutor] = []

    @property
    def next_tick(self) -> int:
        """Highest number of a next tick among the spouts; 0 without any."""
        return max((spout.next_tick for spout in self.spouts), default=0)

    @property
    def records(self) -> int | None:
        """Records of the whole input up to the last one emitted by a spout here; None: an input has ended."""
        ended = any(spout.ending or spout.exhausted for spout in self.spouts)
        return None if ended else max((spout.records for spout in self.spouts), default=0)

    def add(self, running: RunningExecutor) -> None:
        """Add an executor."""
        self.running[running.number] = running
        self._list()

    def remove(self, number: int) -> RunningExecutor:
        """Remove an executor and return it."""
        gone = self.running.pop(number)
        self._list()
        return gone

    def close(self, gone: RunningExecutor) -> None:
        """Close the operator of an executor that has left.

        If it has many keys, delete their state first, little by little, in `close_some`: rows of others do not wait.
        """
        keys = self.copied_keys.pop(gone.number, [])
        if len(keys) > RELEASED_KEYS:
            self._closing.append((gone, keys))
        else:
            gone.operator.close()

    @property
    def closing(self) -> list[RunningExecutor]:
        """Executors that have left, for which `close_some` is to be called again."""
        return [gone for gone, _ in self._closing]

    def close_some(self) -> None:
        """Delete some state of an executor that has left, and close its operator behind the last of it."""
        if not self._closing:
            return
        gone, keys = self._closing[0]
        gone.state.drop(keys[-RELEASED_KEYS:])
        del keys[-RELEASED_KEYS:]
        if not keys:
            del self._closing[0]
            gone.operator.close()

    def _list(self) -> None:
        ordered = [self.running[number] for number in sorted(self.running)]
        self.spouts = [running for running in ordered if isinstance(running, SpoutExecutor)]
        self.bolts = [running for running in ordered if isinstance(running, BoltExecutor)]
        self.executors = [*self.spouts, *self.bolts]

    def outgoing_of(self, number: int) -> dict[ChannelId, Outgoing]:
        """Return the channels that an executor sends on."""
        return {channel: end for channel, end in self.outgoing.items() if channel.sender == number}

    def incoming_of(self, number: int) -> dict[ChannelId, Incoming]:
        """Return the channels that an executor receives on."""
        return {channel: end for channel, end in self.incoming.items() if channel.receiver == number}

    def inputs(self, number: int) -> InputGate:
        """Return the input of a bolt executor.

        Raises:
            RunError: there is no such bolt executor in this worker.
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

    # --- dispatch of frames --------------------------------------------------------------------------------

    def expect(self, channel: ChannelId, peer: int, end: Outgoing | Incoming) -> None:
        """Dispatch frames of `channel` from worker `peer` to this end."""
        if isinstance(end, RemoteOutgoing):
            self._to[channel, peer] = end
        elif isinstance(end, RemoteIncoming):
            self._from[channel, peer] = end

    def forget(self, ends: Iterable[Outgoing | Incoming]) -> None:
        """Stop dispatching frames to these ends."""
        gone = set(map(id, ends))
        self._to = {key: end for key, end in self._to.items() if id(end) not in gone}
        self._from = {key: end for key, end in self._from.items() if id(end) not in gone}

    def take(self, received: frame.Frame, peer: int) -> None:
        """Dispatch a frame from worker `peer` to its channel.

        Raises:
            FrameError, CodecError: there is no such channel, or the frame violates its rules.
        """
        key = (ChannelId(received.sender, received.receiver, received.stream), peer)
        if received.kind == frame.CREDIT:
            sender = self._to.get(key)
            if sender is None:
                raise _unexpected_frame(received)
            sender.credit(received.count, received.length)
            return
        receiver = self._from.get(key)
        if receiver is None:
            raise _unexpected_frame(received)
        if received.kind == frame.DATA:
            receiver.receive(received)
        else:
            receiver.deliver_mark(mark_of(received))

    def retire(self, ends: Iterable[Outgoing]) -> None:
        """Retire ends that have sent their last barrier; they may still receive credit."""
        self.retired += ends

    def drop_closed(self) -> list[Outgoing]:
        """Drop retired ends that the receiver has closed; return them."""
        closed = [end for end in self.retired if end.closed]
        if closed:
            self.retired = [end for end in self.retired if not end.closed]
            self.forget(closed)
            self.dropped += closed
        return closed

    @property
    def drained(self) -> bool:
        """True if no executor will emit again and all emitted rows have been sent."""
        return all(running.drained for running in self.executors) and not self.retired


def _unexpected_frame(received: frame.Frame) -> frame.FrameError:
    key = (received.sender, received.receiver, received.stream)
    return frame.FrameError(f"a frame of kind {received.kind} for the channel {key}, which does not come this way")
