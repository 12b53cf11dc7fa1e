"""Windows by event time, and joins of two streams by key and time, on `KeyedState`.

Event time is a field of the rows, in nanoseconds; how far it has got is told by ticks (`Bolt.stream_ns`). Both helpers
are stateless: what they keep is in tables of the operator, with the key of the grouping in front, so that it is copied,
divided and restored like any other state.
"""

from dataclasses import dataclass
from typing import Any, TypeVar

from workloads.keyed_state import Table

V = TypeVar("V")


@dataclass(frozen=True)
class EventTimeWindows:
    """Tumbling or sliding windows, which begin at multiples of the slide.

    Attributes:
        size_ns: length of a window.
        slide_ns: from the begin of a window to that of the next one; 0: the length, for windows that tumble.
        late_ns: how long a window is kept open for late rows after its end.

    >>> windows = EventTimeWindows(size_ns=10, slide_ns=5, late_ns=2)
    >>> [list(windows.begins(12, stream_ns)) for stream_ns in (0, 16, 17, 22)]
    [[5, 10], [5, 10], [10], []]
    """

    size_ns: int
    slide_ns: int = 0
    late_ns: int = 0

    def __post_init__(self) -> None:
        if self.size_ns <= 0 or not 0 <= self.slide_ns <= self.size_ns or self.late_ns < 0:
            raise ValueError(f"{self}: expected a size above 0, a slide of at most the size, and no negative lateness")

    def begins(self, time_ns: int, stream_ns: int) -> range:
        """Return where the open windows begin that a row belongs to; none if the row is too late.

        Args:
            time_ns: event time of the row.
            stream_ns: stream time of the last tick.
        """
        slide = self.slide_ns or self.size_ns
        last = time_ns // slide * slide
        first = (time_ns - self.size_ns) // slide * slide + slide
        # A window is closed when its end and the lateness are not after stream time.
        still_open = (stream_ns - self.size_ns - self.late_ns) // slide * slide + slide
        return range(max(first, still_open), last + 1, slide)

    def close(self, table: Table[V], stream_ns: int | None = None) -> list[tuple[tuple[Any, ...], V]]:
        """Remove the closed windows from a table, and return them by their begins.

        Args:
            table: keys are tuples that end with the begin of a window.
            stream_ns: stream time; None: the input has ended, and all windows are closed.
        """
        before = None if stream_ns is None else stream_ns - self.size_ns - self.late_ns
        closed = sorted([key for key in table if before is None or key[-1] <= before], key=lambda key: key[-1])
        return [(key, table.pop(key)) for key in closed]


@dataclass(frozen=True)
class IntervalJoin:
    """Join of two streams: rows of a key match if their event times differ by at most `within_ns`.

    Each stream has a table, declared as `KeyedState(list[tuple[int, kind]])`: times and values by key.

    Attributes:
        within_ns: largest difference of event times.
        late_ns: how late rows may come.
    """

    within_ns: int
    late_ns: int = 0

    def is_late(self, time_ns: int, stream_ns: int) -> bool:
        """Return whether a row comes too late: rows that it matches may have been forgotten."""
        return time_ns < stream_ns - self.late_ns

    def matches(self, mine: Table[Any], others: Table[Any], key: Any, time_ns: int, value: Any) -> list[Any]:
        """Keep the value of a row in the table of its stream; return those of the other stream that match it."""
        mine[key].append((time_ns, value))
        return [other for at, other in others.get(key, ()) if abs(at - time_ns) <= self.within_ns]

    def forget(self, stream_ns: int, *tables: Table[Any]) -> None:
        """Remove rows that no later row can match: at a tick, with its time."""
        before = stream_ns - self.late_ns - self.within_ns
        for table in tables:
            for key, kept in list(table.items()):
                left = [entry for entry in kept if entry[0] >= before]
                if not left:
                    del table[key]
                elif len(left) < len(kept):
                    table[key] = left
