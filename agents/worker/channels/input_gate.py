"""A bolt's input: batches in order of arrival, and alignment of the channels at markers.

Behind a barrier or tick a channel is blocked until all open channels have delivered the same marker (Chandy and Lamport
1985; aligned as in Carbone et al. 2015, algorithm 1). Deliveries on a blocked channel are held back; its credit bounds
them. A barrier on a channel also counts as all ticks before it, because a source whose input has ended sends no more
ticks. At a barrier at which senders move or are scaled, channels leave, and others join that are blocked from the start
until then.
"""

from collections import deque
from collections.abc import Iterable

from agents.worker.channels.channel import Barrier, Delivery, End, Incoming, Mark, Tick, Ticks
from inventory.errors import RunError


class InputGate:
    """The input of one bolt executor."""

    def __init__(self) -> None:
        self._queue: deque[Delivery] = deque()
        self.append = self._queue.append
        self._open: set[Incoming] = set()
        self._barrier: Barrier | None = None
        self._tick: Tick | None = None
        self._last_tick = 0
        self._parts_ahead = 0
        self._at_tick: set[Incoming] = set()
        self._aside: dict[Incoming, deque[Delivery]] = {}
        self._behind: dict[Incoming, deque[Delivery]] = {}
        # Dicts, because these keep their order.
        self._leaving: dict[Incoming, None] = {}
        self._joining: dict[Incoming, None] = {}

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def has_parts(self) -> bool:
        """True if more parts of a batch with ticks inside are next, whose first ones were taken."""
        return self._parts_ahead > 0

    def join(self, channel: Incoming) -> None:
        """Add a channel."""
        self._open.add(channel)

    def leave_at_barrier(self, old: Incoming) -> None:
        """Close `old` at the next barrier."""
        self._leaving[old] = None

    def join_at_barrier(self, new: Incoming) -> None:
        """Add a channel at the next barrier, and hold back what it delivers until then."""
        self._joining[new] = None
        self._aside[new] = deque()

    def cancel_changes(self) -> None:
        """Keep the channels as they are, because the barrier was abandoned."""
        for new in self._joining:
            del self._aside[new]
        self._joining.clear()
        self._leaving.clear()

    def leave(self) -> None:
        """Forget all channels, each of which refers to this input, because the executor has moved away."""
        self._queue.clear()
        self._open.clear()
        for held in (self._aside, self._behind, self._leaving, self._joining):
            held.clear()

    @property
    def channels(self) -> frozenset[Incoming]:
        """All channels that have not ended."""
        return frozenset(self._open)

    @property
    def rows(self) -> int:
        """Rows in the queue, including those held back."""
        return sum(len(entry.rows) for part in self._parts for entry in part)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows in the queue, including those held back."""
        return sum(entry.nbytes for part in self._parts for entry in part)

    @property
    def _parts(self) -> Iterable[Iterable[Delivery]]:
        return (self._queue, *self._aside.values(), *self._behind.values())

    def take(self, with_ticks: bool = False) -> Delivery | Mark | None:
        """Return the next batch, or the next marker that all channels have delivered; None when there is neither.

        With `with_ticks`, a batch may have ticks inside, if there is only one channel.

        Raises:
            RunError: channels deliver markers in different orders.
        """
        queue, aside = self._queue, self._aside
        while queue:
            delivery = queue.popleft()
            if self._parts_ahead:
                self._parts_ahead -= 1
            mark = delivery.mark
            if isinstance(mark, Ticks):
                if with_ticks and len(self._open) == 1 and not aside:
                    for _, tick in mark.places:
                        self._check_tick(delivery.channel, tick)
                        self._last_tick = tick.number
                    return delivery
                parts = batch_parts(delivery, mark)
                queue.extendleft(reversed(parts))
                self._parts_ahead = len(parts)
                continue
            if aside and delivery.channel in aside:
                aside[delivery.channel].append(delivery)
                continue
            if mark is None:
                return delivery
            aligned = self._arrived(delivery.channel, mark)
            if aligned is not None:
                return aligned
        return None

    def _arrived(self, channel: Incoming, mark: Mark) -> Mark | None:
        match mark:
            case End():
                self._open.discard(channel)
                if not self._open:
                    return mark
            case Tick():
                self._check_tick(channel, mark)
                self._tick = _latest(self._tick or mark, mark, channel)
                self._at_tick.add(channel)
                self._aside[channel] = self._behind.pop(channel, deque())
            case Barrier():
                if self._barrier not in (None, mark):
                    raise RunError(f"{channel.source} sent {mark}, another input sent {self._barrier} first")
                self._barrier = mark
                self._aside[channel] = self._behind.pop(channel, deque())
        if len(self._aside) - len(self._joining) < len(self._open):
            return None
        return self._pass_tick() or self._pass_barrier()

    def _check_tick(self, channel: Incoming, tick: Tick) -> None:
        if tick.number <= self._last_tick:
            raise RunError(f"{channel.source} sent {tick}, tick {self._last_tick} has passed")

    def _pass_tick(self) -> Tick | None:
        tick, self._tick = self._tick, None
        if tick is not None:
            self._last_tick = tick.number
            self._release(self._at_tick)
            self._at_tick = set()
        return tick

    def _pass_barrier(self) -> Barrier | None:
        barrier, self._barrier = self._barrier, None
        if barrier is not None:
            self._open.update(self._joining)
            self._open.difference_update(self._leaving)
            for old in self._leaving:
                old.close()
            self._joining.clear()
            self._leaving.clear()
            self._release(set(self._aside))
        return barrier

    def _release(self, channels: set[Incoming]) -> None:
        """Put held-back deliveries in front of the queue, per channel up to its next marker, which blocks it again.

        Deliveries behind that marker stay where they are: without records there can be thousands of ticks per channel.
        """
        free: list[Delivery] = []
        for channel in [channel for channel in self._aside if channel in channels]:
            part = self._aside.pop(channel)
            while part:
                free.append(part.popleft())
                if free[-1].mark is not None:
                    break
            if part:
                self._behind[channel] = part
        self._queue.extendleft(reversed(free))


def batch_parts(delivery: Delivery, ticks: Ticks) -> list[Delivery]:
    """Return a batch with ticks inside as one entry per part, and per tick."""
    channel, rows, stamps, nbytes, _ = delivery
    parts: list[Delivery] = []
    starts, stops = [0, *(row for row, _ in ticks.places)], [*(row for row, _ in ticks.places), len(rows)]
    marks = [*(tick for _, tick in ticks.places), None]
    for start, stop, mark in zip(starts, stops, marks, strict=True):
        if stop > start:
            mine = [(row - start, stamp) for row, stamp in stamps if start <= row < stop]
            part_bytes = nbytes * stop // len(rows) - nbytes * start // len(rows)
            parts.append(Delivery(channel, rows[start:stop], mine, part_bytes))
        if mark is not None:
            parts.append(Delivery(channel, (), (), 0, mark))
    return parts


def _latest(first: Tick, second: Tick, channel: Incoming) -> Tick:
    """Return the tick that two channels have delivered, with the later due time."""
    if first[:2] != second[:2]:
        raise RunError(f"{channel.source} sent {second}, another input sent {first} first")
    return max(first, second)
