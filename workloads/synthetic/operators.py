"""Operators of synthetic applications: rows emitted per row, and busy work.

A row is (record, key, payload): the record's number among all of the application, a key with few very frequent
values, and padding bytes. A row gives as many rows as the integer part of the selectivity, and one more for some
records: a multiplicative hash of the record and the component selects them, so that the answer depends only on the
records, for any number of executors.

Work takes CPU, not sleep. One microsecond is what the controller's CPU does in that time, measured when the input is
prepared. Every node does the same work for a row, however fast it is: a slower node takes longer, as in a real cluster.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, ClassVar
from zlib import crc32

import msgspec
from msgspec import Struct

from workloads.data.row_digest import SCHEMA as DIGEST
from workloads.data.row_digest import RowMultiset, added
from workloads.keyed_state import KeyedState
from workloads.operators import NOTHING, Batch, Bolt, Context, Emitted, Row, Spout
from workloads.topology import DEFAULT_STREAM, FieldType

_FACTOR = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_HIGH = 32


class Dealing(msgspec.Struct, frozen=True):
    """Selectivity of a component as integers: `copies` for all records, one more for hashes below `bar`."""

    copies: int
    bar: int
    salt: int

    def of(self, record: int) -> int:
        """Return the number of rows for one row of `record`."""
        return self.copies + ((((record ^ self.salt) * _FACTOR) & _MASK) >> _HIGH < self.bar)

    def of_all(self, records: Any) -> Any:
        """Return the numbers of rows for a NumPy array of uint64."""
        import numpy as np

        hashed = (records ^ np.uint64(self.salt)) * np.uint64(_FACTOR)
        return self.copies + (hashed >> np.uint64(_HIGH) < np.uint64(self.bar)).astype(np.int64)

    @property
    def counter(self) -> Callable[[int], int] | None:
        """Return `of`, or None if it is 1 for every record."""
        return None if (self.copies, self.bar) == (1, 0) else self.of


def dealing(component: str, selectivity: float) -> Dealing:
    """Return the selectivity of `component`, `selectivity` rows per row on average."""
    copies = int(selectivity)
    bar = round((selectivity - copies) * (1 << _HIGH))
    return Dealing(copies, bar, crc32(component.encode()) * _FACTOR & _MASK)


_BLOCK = bytes(range(256)) * 2
_ROUNDS = 7
_ROUND_S = 0.02


class LoopSpeed(Struct, frozen=True):
    """Number of loop turns per microsecond of CPU time."""

    turns_per_us: float


def work(turns: int) -> int:
    """Keep the CPU busy; the unused result prevents the loop from being optimised away."""
    checksum = 0
    for _ in repeat(None, turns):
        checksum = crc32(_BLOCK, checksum)
    return checksum


def measure_loop_speed() -> LoopSpeed:
    """Measure this CPU for a sixth of a second. Return the fastest, least disturbed of several rounds."""
    turns, best = 1_000, 0.0
    for _ in range(_ROUNDS):
        done, begun = 0, time.thread_time()
        while (taken := time.thread_time() - begun) < _ROUND_S:
            work(turns)
            done += turns
        best = max(best, done / taken / 1e6)
    return LoopSpeed(best)


def read_calibration(path: Path) -> LoopSpeed:
    """Return the measurement made when the input was prepared."""
    return msgspec.json.decode(path.read_bytes(), type=LoopSpeed)


CALIBRATION = "calibration"
TABLE = "received"
ROW: Mapping[str, FieldType] = {"record": "int", "key": "int", "payload": "bytes"}
KEYS = (1 << 12) - 1
"""Number of key values; the frequency of value k is about proportional to 1 / (k + 1)."""

KEY_BITS, KEY_FACTOR, KEY_SHIFT = KEYS.bit_length(), 0xD1342543DE82EF95, 0x2545F4914F6CDD1D


def key_of(record: int) -> int:
    """Return the key of a record, close to Zipf's law: each doubling of the key's rank is equally likely."""
    mixed = (record * KEY_FACTOR + KEY_SHIFT) & _MASK
    bits = (mixed >> 48) % KEY_BITS
    return (1 << bits) - 1 + ((mixed >> 20) & ((1 << bits) - 1))


def key_share(key: int) -> float:
    """Return the share of records with a key, on average."""
    return 1 / KEY_BITS / (1 << ((key + 1).bit_length() - 1))


class Generator(Spout):
    """Endless source of records; record j of the source number `source` of `sources` is j * sources + source."""

    def __init__(self, source: int, sources: int, tuple_bytes: int) -> None:
        self._source, self._sources = source, sources
        self._payload = bytes(tuple_bytes)
        self._position = 0

    def open(self, context: Context) -> None:
        self._first = context.index * self._sources + self._source
        self._step = context.parallelism * self._sources

    def next_batch(self, limit: int) -> Sequence[Row]:
        begin = self._first + self._position * self._step
        self._position += limit
        payload = self._payload
        return [(record, key_of(record), payload) for record in range(begin, begin + limit * self._step, self._step)]

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self._position)

    def restore(self, state: bytes) -> None:
        self.seek(msgspec.msgpack.decode(state, type=int))

    def seek(self, position: int) -> None:
        self._position = position


class _Busy(Bolt):
    """Bolt that spends CPU time on every row."""

    def __init__(self, cost_us: float) -> None:
        self._cost_us = cost_us
        self._owed = 0.0

    def open(self, context: Context) -> None:
        calibration = read_calibration(Path(context.inputs[CALIBRATION]))
        self._turns_per_row = self._cost_us * calibration.turns_per_us

    def _work(self, rows: int) -> None:
        # Fractions of a turn accumulate until they make a whole one.
        self._owed += rows * self._turns_per_row
        turns = int(self._owed)
        self._owed -= turns
        work(turns)


class Stage(_Busy):
    """Spends CPU time on every row; emits as many rows as its record requires, with another payload if one is given."""

    def __init__(self, cost_us: float, dealing: Dealing, tuple_bytes: int | None = None) -> None:
        super().__init__(cost_us)
        self._count = dealing.counter
        self._payload = None if tuple_bytes is None else bytes(tuple_bytes)

    def process(self, batch: Batch) -> Emitted:
        rows = batch.rows
        self._work(len(rows))
        if (payload := self._payload) is not None:
            rows = [(record, key, payload) for record, key, _ in rows]
        if (count := self._count) is not None:
            rows = [row for row in rows for _ in range(count(row[0]))]
        return {DEFAULT_STREAM: rows}


class DigestSink(_Busy):
    """Spends CPU time on every row and keeps a digest of all records."""

    answer_table = TABLE
    answer_schema: ClassVar = {"component": "str", **DIGEST}

    digests = KeyedState(tuple[int, str], merge=added)

    def __init__(self, cost_us: float) -> None:
        super().__init__(cost_us)
        self._bag = RowMultiset()

    def open(self, context: Context) -> None:
        super().open(context)
        self._component = context.component

    def process(self, batch: Batch) -> Emitted:
        self._work(len(batch.rows))
        self._bag.add([row[:1] for row in batch.rows])
        return NOTHING

    def answer(self) -> Iterable[Row]:
        return [(self._component, *self._bag.digest.row)]

    def store_state(self) -> None:
        self.digests[""] = self._bag.digest.row

    def load_state(self) -> None:
        self._bag = RowMultiset(self.digests.values())
