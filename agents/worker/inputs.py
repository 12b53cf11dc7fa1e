"""A bolt's input: batches in the order of their arrival, and channels that wait for one another at a mark.

Behind a barrier or tick a channel stands still until all open channels have brought the same one (Chandy and Lamport
1985; aligned as in Carbone et al. 2015, algorithm 1). What comes on it meanwhile is put aside, within its credit.
A channel that is to take another's place at a barrier (its sender moves) is put aside from the start until then.
"""

from collections import deque

from agents.worker.channel import Delivery, Incoming
from agents.worker.marks import Barrier, End, Mark, Tick
from inventory.errors import RunError


class Inputs:
    """The input of one bolt executor."""

    def __init__(self) -> None:
        self._queue: deque[Delivery] = deque()
        self.append = self._queue.append
        self._open: set[Incoming] = set()
        self._mark: Mark | None = None
        self._aside: dict[Incoming, list[Delivery]] = {}
        self._replaced: dict[Incoming, Incoming] = {}

    def __len__(self) -> int:
        return len(self._queue)

    def join(self, channel: Incoming) -> None:
        """One more channel, from now on."""
        self._open.add(channel)

    def replace(self, old: Incoming, new: Incoming) -> None:
        """At the next barrier `new` takes the place of `old`."""
        self._replaced[new] = old
        self._aside[new] = []

    def keep(self) -> None:
        """The barrier does not come: what was to be replaced stays."""
        for new in self._replaced:
            del self._aside[new]
        self._replaced.clear()

    @property
    def channels(self) -> frozenset[Incoming]:
        """All channels that have not ended."""
        return frozenset(self._open)

    @property
    def rows(self) -> int:
        """Rows in the queue, those put aside included."""
        return sum(len(entry.rows) for part in (self._queue, *self._aside.values()) for entry in part)

    def take(self) -> Delivery | Mark | None:
        """The next batch, or the next mark that all channels have brought; None when there is neither.

        Raises:
            RunError: channels bring marks in different orders.
        """
        queue, aside = self._queue, self._aside
        while queue:
            delivery = queue.popleft()
            if aside and delivery.channel in aside:
                aside[delivery.channel].append(delivery)
                continue
            if delivery.mark is None:
                return delivery
            aligned = self._arrived(delivery.channel, delivery.mark)
            if aligned is not None:
                return aligned
        return None

    def _arrived(self, channel: Incoming, mark: Mark) -> Mark | None:
        if isinstance(mark, End):
            self._open.discard(channel)
            if not self._open:
                return mark
        else:
            self._mark = mark if self._mark is None else _same(self._mark, mark, channel)
            self._aside[channel] = []
        waiting = len(self._aside) - len(self._replaced)
        return self._release() if self._mark is not None and waiting == len(self._open) else None

    def _release(self) -> Mark | None:
        mark, self._mark = self._mark, None
        if isinstance(mark, Barrier):
            self._open |= self._replaced.keys()
            for old in self._replaced.values():
                self._open.discard(old)
                old.close()
            held = self._aside
            self._aside = {}
            self._replaced.clear()
        else:
            held = {channel: part for channel, part in self._aside.items() if channel not in self._replaced}
            self._aside = {channel: self._aside[channel] for channel in self._replaced}
        self._queue.extendleft(reversed([entry for part in held.values() for entry in part]))
        return mark


def _same(first: Mark, second: Mark, channel: Incoming) -> Mark:
    if isinstance(first, Tick) and isinstance(second, Tick) and first[:2] == second[:2]:
        return max(first, second)
    if isinstance(first, Barrier) and first == second:
        return first
    raise RunError(f"{channel.source} sent {second}, another input sent {first} first")
