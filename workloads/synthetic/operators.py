"""The operators of synthetic applications.

A row is (record, key, payload): the record's number among all of the application, a key with few very frequent
values, and padding bytes.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import msgspec

from workloads.data.row_digest import SCHEMA as DIGEST
from workloads.data.row_digest import RowMultiset
from workloads.operators import NOTHING, Batch, Bolt, Context, Emitted, Row, Spout
from workloads.synthetic.dealing import Dealing
from workloads.synthetic.work import read_calibration, work
from workloads.topology import DEFAULT_STREAM, FieldType

CALIBRATION = "calibration"
TABLE = "received"
ROW: Mapping[str, FieldType] = {"record": "int", "key": "int", "payload": "bytes"}
KEYS = (1 << 12) - 1
"""Number of key values; the frequency of value k is about proportional to 1 / (k + 1)."""

_KEY_BITS = KEYS.bit_length()
_MASK = (1 << 64) - 1


def key_of(record: int) -> int:
    """Return the key of a record, close to Zipf's law: each doubling of the key's rank is equally likely."""
    mixed = (record * 0xD1342543DE82EF95 + 0x2545F4914F6CDD1D) & _MASK
    bits = (mixed >> 48) % _KEY_BITS
    return (1 << bits) - 1 + ((mixed >> 20) & ((1 << bits) - 1))


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
        self._position = msgspec.msgpack.decode(state, type=int)


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
    """Spends CPU time on every row and emits as many rows as its record requires."""

    def __init__(self, cost_us: float, dealing: Dealing) -> None:
        super().__init__(cost_us)
        self._count = dealing.counter

    def process(self, batch: Batch) -> Emitted:
        self._work(len(batch.rows))
        count = self._count
        if count is None:
            return {DEFAULT_STREAM: batch.rows}
        return {DEFAULT_STREAM: [row for row in batch.rows for _ in range(count(row[0]))]}


class Sink(_Busy):
    """Spends CPU time on every row and keeps a digest of all records."""

    answer_table = TABLE
    answer_schema: ClassVar = {"component": "str", **DIGEST}

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

    def snapshot(self) -> bytes:
        return self._bag.snapshot()

    def restore(self, state: bytes) -> None:
        self._bag.restore(state)
