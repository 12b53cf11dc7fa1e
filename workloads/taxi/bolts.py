"""Common base of the bolts of both taxi workloads: trips in order, and the two tables.

Rows with one drop-off time are in the order of their row numbers alone, and rows from different executors come in no
order. So operations that depend on the order wait for the tick, and then take the rows by number.
"""

import time
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from workloads.operators import NOTHING, Batch, Bolt, Emitted, Row
from workloads.rates import NS
from workloads.taxi.layout import CHANGES, SNAPSHOTS, time_text
from workloads.taxi.window import Trip


class Ordered(Bolt):
    """Collects trips until the tick."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived: list[Trip] = []

    def process(self, batch: Batch) -> Emitted:
        self.arrived += batch.rows
        return NOTHING

    def in_order(self) -> list[Trip]:
        """Return the trips since the last tick, by number."""
        arrived, self.arrived = self.arrived, []
        arrived.sort()
        return arrived


class Candidates(Bolt):
    """Collects candidates for the listing until the tick."""

    def __init__(self) -> None:
        super().__init__()
        self._candidates: list[Row] = []

    def process(self, batch: Batch) -> Emitted:
        self._candidates += batch.rows
        return NOTHING

    def taken(self) -> list[Any]:
        """Return the candidates since the last tick."""
        candidates, self._candidates = self._candidates, []
        return candidates

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self._candidates)

    def restore(self, state: bytes) -> None:
        self._candidates = msgspec.msgpack.decode(state, type=list[tuple[Any, ...]])


class Table(Bolt):
    """A sink whose rows are final when written."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Row] = []

    def settled(self) -> Iterable[Row]:
        rows, self.rows = self.rows, []
        return rows

    def answer(self) -> Iterable[Row]:
        return self.rows


class Snapshots(Candidates, Table):
    """Writes the listing at every tick."""

    answer_table = SNAPSHOTS

    @abstractmethod
    def listing(self, candidates: list[Any]) -> Row:
        """Return the fields of the best ten."""

    def on_tick(self, time_ns: int) -> Emitted:
        self.rows.append((time_text(time_ns // NS), *self.listing(self.taken())))
        return NOTHING

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((super().snapshot(), self.rows))

    def restore(self, state: bytes) -> None:
        candidates, self.rows = msgspec.msgpack.decode(state, type=tuple[bytes, list[tuple[Any, ...]]])
        super().restore(candidates)


class Changes(Ordered, Table):
    """Writes every change of the listing."""

    answer_table = CHANGES

    def __init__(self) -> None:
        super().__init__()
        self._printed: Sequence[float] = []
        self._number = 0

    @abstractmethod
    def fields(self, listed: Sequence[Any]) -> Row:
        """Return the fields of a listing passed to `note`."""

    @abstractmethod
    def kept(self) -> object:
        """Return the state of the listing, to be encoded."""

    @abstractmethod
    def bring_back(self, kept: Any) -> None:
        """Continue from the result of `kept`."""

    def note(self, listed: Sequence[float], dropoff: int, pickup: int, read_ns: int) -> None:
        """After a trip, write the numbers of the listing if they differ from those written last."""
        if listed != self._printed:
            self._printed = listed
            delay_ms = (time.time_ns() - read_ns) // 1_000_000
            self.rows.append((self._number, time_text(pickup), time_text(dropoff), *self.fields(listed), delay_ms))
            self._number += 1

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self.kept(), self.arrived, self._printed, self._number, self.rows))

    def restore(self, state: bytes) -> None:
        kept, self.arrived, self._printed, self._number, self.rows = msgspec.msgpack.decode(state, type=_CHANGES_STATE)
        self.bring_back(kept)


_CHANGES_STATE = tuple[Any, list[Trip], list[int | float], int, list[tuple[Any, ...]]]
