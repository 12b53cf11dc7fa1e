"""Groupings: the choice of the channel for each row.

A grouping distributes the rows of one stream over the channels to one subscribed component. The choice depends on the
rows and on the number of rows before them, never on time. Columns go where their rows would go, in the same order.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from agents.worker.channels.channel import Mark, Outgoing, Tick
from agents.worker.channels.ends import LocalOutgoing
from agents.worker.wire.frame import Stamps
from inventory.errors import RunError, nearest
from workloads.columns import Columns
from workloads.key_groups import KeyRouter, Owners
from workloads.operators import Combine, Emitted, Row
from workloads.topology import Input

if TYPE_CHECKING:
    from agents.worker.channels.column_groupings import KeyedColumns


class Grouping(Protocol):
    """Distributes rows over channels."""

    def deal(self, rows: Sequence[Row], stamps: Stamps = ()) -> None:
        """Add each row, with its stamp if it has one, to its channel or channels."""
        ...


class Shuffle:
    """Round robin, row by row; senders start at different channels."""

    def __init__(self, channels: Sequence[Outgoing], first: int) -> None:
        self._channels = channels
        self._next = first % len(channels)

    def deal(self, rows: Sequence[Row], stamps: Stamps = ()) -> None:
        channels, start = self._channels, self._next
        count = len(channels)
        if count == 1:
            channels[0].add(rows, stamps)
            return
        for offset in range(min(count, len(rows))):
            share = [(row // count, stamp) for row, stamp in stamps if row % count == offset] if stamps else ()
            channels[(start + offset) % count].add(rows[offset::count], share)
        self._next = (start + len(rows)) % count


class Fields:
    """Grouping by key: the same channel for the same key in every process."""

    def __init__(
        self,
        channels: Sequence[Outgoing],
        owners: Owners,
        places: Sequence[int],
        width: int,
        combine: Combine | None = None,
    ) -> None:
        """Create the grouping.

        Args:
            channels: to the executors of the subscribed component, by index.
            owners: owner of each key group.
            places: positions of the key's fields in a row.
            width: fields of a row.
            combine: merges rows before they are distributed.
        """
        self._channels = channels
        self._combine = combine
        self._places = places
        router = KeyRouter(owners)
        # If the key is the whole row, the row itself is the key; a key of one field is looked up by its value.
        self._route = router.route if len(places) > 1 else router.route_value
        self._key_of = None if len(places) > 1 and list(places) == list(range(width)) else itemgetter(*places)

    @cached_property
    def _columns(self) -> "KeyedColumns":
        # Arrow's computations are loaded with the first batch of columns.
        from agents.worker.channels.column_groupings import KeyedColumns

        return KeyedColumns(self._channels, self._places, self._route)

    def _targets(self, rows: Sequence[Row]) -> Iterator[int]:
        return map(self._route, rows if self._key_of is None else map(self._key_of, rows))

    def deal(self, rows: Sequence[Row], stamps: Stamps = ()) -> None:
        if self._combine is not None:
            rows, stamps = _combined(self._combine, rows, stamps)
        if isinstance(rows, Columns):
            self._columns.deal(rows, stamps)
            return
        dealt: list[list[Row]] = [[] for _ in self._channels]
        stamped: list[list[tuple[int, int]]] = [[] for _ in self._channels]
        appends = [part.append for part in dealt]
        pairs = zip(rows, self._targets(rows), strict=True)
        done = 0
        for at, stamp in stamps:
            for row, target in islice(pairs, at + 1 - done):
                appends[target](row)
            stamped[target].append((len(dealt[target]) - 1, stamp))
            done = at + 1
        for row, target in pairs:
            appends[target](row)
        for channel, part, times in zip(self._channels, dealt, stamped, strict=True):
            if part:
                channel.add(part, times)


def _combined(combine: Combine, rows: Sequence[Row], stamps: Stamps) -> tuple[Sequence[Row], Stamps]:
    """Return the combined rows, followed by the rows that have stamps."""
    if isinstance(rows, Columns) and stamps:
        from agents.worker.channels.column_groupings import combined_columns

        return combined_columns(combine, rows, stamps)
    if not stamps:
        return combine(rows), ()
    stamp_of = dict(stamps)
    combined = list(combine([row for at, row in enumerate(rows) if at not in stamp_of]))
    first = len(combined)
    combined += [rows[at] for at, _ in stamps]
    return combined, [(first + at, stamp) for at, (_, stamp) in enumerate(stamps)]


class Global:
    """All rows to executor 0."""

    def __init__(self, channel: Outgoing) -> None:
        self.channel = channel

    def deal(self, rows: Sequence[Row], stamps: Stamps = ()) -> None:
        self.channel.add(rows, stamps)


class All:
    """Every row to every executor."""

    def __init__(self, channels: Sequence[Outgoing]) -> None:
        self._channels = channels

    def deal(self, rows: Sequence[Row], stamps: Stamps = ()) -> None:
        for channel in self._channels:
            channel.add(rows, stamps)


class Direct:
    """Each row to the executor whose index is the value of one of its fields."""

    def __init__(self, channels: Sequence[Outgoing], place: int) -> None:
        self._channels = channels
        self._place = place

    def deal(self, rows: Sequence[Row], stamps: Stamps = ()) -> None:
        if isinstance(rows, Columns):
            from agents.worker.channels.column_groupings import deal_to

            targets = rows.batch().column(self._place).to_numpy()
            outside = targets[(targets < 0) | (targets >= len(self._channels))]
            if len(outside):
                raise self._no_executor(int(outside[0]))
            deal_to(self._channels, rows, stamps, targets)
            return
        stamp_of = dict(stamps)
        for at, row in enumerate(rows):
            target = row[self._place]
            if not 0 <= target < len(self._channels):
                raise self._no_executor(target)
            self._channels[target].add((row,), ((0, stamp_of[at]),) if at in stamp_of else ())

    def _no_executor(self, target: int) -> RunError:
        return RunError(f"a direct grouping names executor {target} of {len(self._channels)}")


def undeclared(executor: str, stream: str, streams: Iterable[str]) -> RunError:
    """Return the error for rows that `executor` emitted on a stream that is none of the declared ones."""
    return RunError(f"{executor} emitted on an undeclared stream {stream!r}{nearest(stream, streams)}")


def grouping_of(
    entry: Input,
    schema: Mapping[str, str],
    channels: Sequence[Outgoing],
    sender: int,
    owners: Owners = (),
    shuffle: Callable[[Sequence[Outgoing], int], Grouping] = Shuffle,
    combine: Combine | None = None,
) -> Grouping:
    """Return the grouping of one subscription, for one sending executor.

    Args:
        entry: the subscription.
        schema: field -> type of its stream.
        channels: to the executors of the subscribed component, by index.
        sender: number of the sending executor.
        owners: of the key groups of the subscribed component; needed for a fields grouping only.
        shuffle: creates a shuffle grouping from its channels and the position of the first one to use.
        combine: the subscriber's, if it is `Combining`.

    Raises:
        RunError: a direct grouping without a field that can hold an index.
    """
    names = list(schema)
    match entry.grouping:
        case "shuffle":
            return shuffle(channels, sender)
        case "local-or-shuffle":
            local = [channel for channel in channels if isinstance(channel, LocalOutgoing)]
            return shuffle(local or channels, sender)
        case "fields" if len(channels) == 1 and combine is None:
            return Global(channels[0])
        case "fields":
            return Fields(channels, owners, [names.index(name) for name in entry.fields], len(names), combine)
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

    def emit(self, emitted: Emitted, stamps: Mapping[str, Stamps] = MappingProxyType({})) -> int:
        """Distribute the rows that an operator emitted, with stamps by stream; return their number.

        Raises:
            RunError: the operator emitted on a stream that its component does not declare.
        """
        count = 0
        for stream, rows in emitted.items():
            if not rows:
                continue
            groupings = self._streams.get(stream)
            if groupings is None:
                raise undeclared(self._executor, stream, self._streams)
            count += len(rows)
            for grouping in groupings:
                grouping.deal(rows, stamps.get(stream, ()))
        return count

    def emit_with_ticks(self, emitted: Emitted, stamps: Mapping[str, Stamps], ticks: Sequence[tuple[int, Tick]]) -> int:
        """Distribute rows like `emit`, all of them before the last of `ticks`, which are inside; `flush` must follow.

        Every stream has as many rows.
        """
        count = 0
        whole = {
            stream: [grouping.channel for grouping in part if isinstance(grouping, Global)]
            for stream, part in self._streams.items()
        }
        if emitted.keys() == whole.keys() and all(len(whole[name]) == len(self._streams[name]) for name in whole):
            for stream, rows in emitted.items():
                count += len(rows)
                for channel in whole[stream]:
                    channel.add(rows, stamps.get(stream, ()), ticks)
            return count
        start = 0
        for stop, tick in ticks:
            parts = {stream: rows[start:stop] for stream, rows in emitted.items()}
            inside = {
                stream: [(row - start, stamp) for row, stamp in stamped if start <= row < stop]
                for stream, stamped in stamps.items()
            }
            count += self.emit(parts, inside)
            self.mark_inside(tick)
            start = stop
        return count

    @property
    def blocked(self) -> bool:
        """True if some channel has a full batch, or a marker, and no credit."""
        for channel in self.channels:  # noqa: SIM110 - read every turn, and a generator costs twice as much
            if channel.blocked:
                return True
        return False

    @property
    def takes_ticks(self) -> bool:
        """True if on all channels ticks can travel inside batches."""
        return all(channel.takes_ticks for channel in self.channels)

    def mark_inside(self, tick: Tick) -> None:
        """Send a tick on all channels, inside their batches; `flush` must follow."""
        for channel in self.channels:
            channel.mark_inside(tick)

    def flush(self) -> None:
        """Send all rows and ticks that wait, as far as there is credit."""
        for channel in self.channels:
            channel.flush()

    def mark(self, mark: Mark) -> None:
        """Send a marker on all channels, behind the emitted rows."""
        for channel in self.channels:
            channel.mark(mark)

    @property
    def ended(self) -> bool:
        """True if all rows and the `End` markers have been sent."""
        return all(channel.ended for channel in self.channels)
