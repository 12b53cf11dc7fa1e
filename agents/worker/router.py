"""Groupings: which channel a row takes.

A grouping deals the rows of one stream over the channels to one subscribed component. Which channel depends on the
rows and on how many were dealt before, never on time.
"""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Protocol

from agents.worker.channel import Outgoing
from agents.worker.local import LocalOutgoing
from agents.worker.marks import Mark
from inventory.errors import RunError, nearest
from workloads.keys import KeyRouter
from workloads.operators import Emitted, Row
from workloads.topology import Input


class Grouping(Protocol):
    """Deals rows over channels."""

    def deal(self, rows: Sequence[Row], stamp: int | None) -> None:
        """Add each row to the channel or channels it belongs to."""
        ...


class Shuffle:
    """Round robin, row by row; senders start at different channels."""

    def __init__(self, channels: Sequence[Outgoing], first: int) -> None:
        self._channels = channels
        self._next = first % len(channels)

    def deal(self, rows: Sequence[Row], stamp: int | None) -> None:
        channels, start = self._channels, self._next
        count = len(channels)
        for offset in range(min(count, len(rows))):
            channels[(start + offset) % count].add(rows[offset::count], stamp)
        self._next = (start + len(rows)) % count


class Fields:
    """By key, the same channel for the same key in every process."""

    def __init__(self, channels: Sequence[Outgoing], places: Sequence[int], width: int) -> None:
        self._channels = channels
        self._route = KeyRouter(len(channels)).route
        self._places = tuple(places)
        # A row that consists of its key is its key.
        self._whole = self._places == tuple(range(width))
        self._several = itemgetter(*self._places) if len(self._places) > 1 else None

    def deal(self, rows: Sequence[Row], stamp: int | None) -> None:
        dealt: list[list[Row]] = [[] for _ in self._channels]
        appends = [part.append for part in dealt]
        if self._whole:
            for row, target in zip(rows, map(self._route, rows), strict=True):
                appends[target](row)
        elif self._several is not None:
            for row, target in zip(rows, map(self._route, map(self._several, rows)), strict=True):
                appends[target](row)
        else:
            (place,) = self._places
            for row in rows:
                appends[self._route((row[place],))](row)
        for channel, part in zip(self._channels, dealt, strict=True):
            if part:
                channel.add(part, stamp)


class Global:
    """Everything to executor 0."""

    def __init__(self, channel: Outgoing) -> None:
        self._channel = channel

    def deal(self, rows: Sequence[Row], stamp: int | None) -> None:
        self._channel.add(rows, stamp)


class All:
    """Every row to every executor."""

    def __init__(self, channels: Sequence[Outgoing]) -> None:
        self._channels = channels

    def deal(self, rows: Sequence[Row], stamp: int | None) -> None:
        for channel in self._channels:
            channel.add(rows, stamp)


class Direct:
    """To the executor whose index stands in a field of the row."""

    def __init__(self, channels: Sequence[Outgoing], place: int) -> None:
        self._channels = channels
        self._place = place

    def deal(self, rows: Sequence[Row], stamp: int | None) -> None:
        for row in rows:
            target = row[self._place]
            if not 0 <= target < len(self._channels):
                raise RunError(f"a direct grouping names executor {target} of {len(self._channels)}")
            self._channels[target].add((row,), stamp)


def grouping_of(entry: Input, schema: Mapping[str, str], channels: Sequence[Outgoing], sender: int) -> Grouping:
    """The grouping of one subscription, for one sending executor.

    Args:
        entry: the subscription.
        schema: field -> type of its stream.
        channels: to the executors of the subscribed component, by index.
        sender: number of the sending executor.

    Raises:
        RunError: a direct grouping without a field that can hold an index.
    """
    names = list(schema)
    match entry.grouping:
        case "shuffle":
            return Shuffle(channels, sender)
        case "local-or-shuffle":
            local = [channel for channel in channels if isinstance(channel, LocalOutgoing)]
            return Shuffle(local or channels, sender)
        case "fields":
            return Fields(channels, [names.index(name) for name in entry.fields], len(names))
        case "global":
            return Global(channels[0])
        case "all":
            return All(channels)
        case "direct":
            field = entry.fields[0] if entry.fields else names[0]
            if schema[field] != "int":
                raise RunError(f"a direct grouping needs an int field with the index, {field!r} is {schema[field]}")
            return Direct(channels, names.index(field))


class Router:
    """All groupings and channels of one sending executor."""

    def __init__(self, executor: str, streams: Mapping[str, Sequence[Grouping]], channels: Sequence[Outgoing]) -> None:
        self._executor = executor
        self._streams = streams
        self.channels = channels

    def emit(self, emitted: Emitted, stamp: int | None) -> int:
        """Deal what an operator emitted; return the number of rows.

        Raises:
            RunError: the operator emitted on a stream that its component does not declare.
        """
        count = 0
        for stream, rows in emitted.items():
            if not rows:
                continue
            groupings = self._streams.get(stream)
            if groupings is None:
                raise RunError(
                    f"{self._executor} emitted on an undeclared stream {stream!r}{nearest(stream, self._streams)}"
                )
            count += len(rows)
            for grouping in groupings:
                grouping.deal(rows, stamp)
        return count

    @property
    def blocked(self) -> bool:
        """Whether some channel has a full batch, or a mark, and no credit."""
        return any(channel.blocked for channel in self.channels)

    def mark(self, mark: Mark) -> None:
        """Send a mark on all channels, behind all that was emitted."""
        for channel in self.channels:
            channel.mark(mark)

    @property
    def ended(self) -> bool:
        """Whether everything emitted, and the end itself, has left."""
        return all(channel.ended for channel in self.channels)
