"""The operators of synthetic applications by columns; rows, work and answers are those of the operators by rows."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from workloads.columns import ColumnBatch, ColumnBolt, ColumnsEmitted, ColumnSpout, Derived
from workloads.operators import NOTHING
from workloads.synthetic.operators import KEY_BITS, KEY_FACTOR, KEY_SHIFT, ROW, Dealing, DigestSink, Generator, Stage
from workloads.topology import DEFAULT_STREAM

MOST_BYTES = 1 << 20
"""Bytes of payload that a source emits at once."""

MOST_REPLACED = 1024
"""Bytes of a bolt's own payload, which is copied for every row; rows share a larger one."""


class ColumnGenerator(Generator, ColumnSpout):
    """Endless source of records."""

    def __init__(self, source: int, sources: int, tuple_bytes: int) -> None:
        super().__init__(source, sources, tuple_bytes)
        self._most = max(1, MOST_BYTES // max(1, tuple_bytes))
        self._payloads = pa.array([], pa.binary())

    def next_columns(self, limit: int) -> pa.RecordBatch:
        count = min(limit, self._most)
        if count > len(self._payloads):
            self._payloads = repeated(self._payload, count)
        begin = self._first + self._position * self._step
        self._position += count
        records = begin + self._step * np.arange(count)
        columns = [pa.array(records), pa.array(record_keys(records)), self._payloads[:count]]
        return pa.RecordBatch.from_arrays(columns, names=list(ROW))


class ColumnStage(Stage, ColumnBolt):
    """Spends CPU time on every row; emits as many rows as its record requires."""

    derives: ClassVar[bool] = True

    def __init__(self, cost_us: float, dealing: Dealing, tuple_bytes: int | None = None) -> None:
        super().__init__(cost_us, dealing, tuple_bytes)
        self._dealing = dealing

    def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
        columns = batch.columns
        self._work(columns.num_rows)
        if self._payload is not None:
            payloads = repeated(self._payload, columns.num_rows)
            columns = pa.RecordBatch.from_arrays([*columns.columns[:2], payloads], names=list(ROW))
        if self._count is None:
            return {DEFAULT_STREAM: Derived(columns)}
        numbers = self._dealing.of_all(columns.column(0).to_numpy().view(np.uint64))
        parents = np.repeat(np.arange(len(numbers)), numbers)
        return {DEFAULT_STREAM: Derived(columns.take(pa.array(parents)), lambda: parents)}


class ColumnDigestSink(DigestSink, ColumnBolt):
    """Spends CPU time on every row and keeps a digest of all records."""

    def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
        records: Sequence[int] = batch.columns.column(0).to_pylist()
        self._work(len(records))
        self._bag.add(zip(records))
        return NOTHING


def record_keys(records: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the keys of records, see `key_of`."""
    mixed = records.view(np.uint64) * np.uint64(KEY_FACTOR) + np.uint64(KEY_SHIFT)
    below = (np.uint64(1) << (mixed >> np.uint64(48)) % np.uint64(KEY_BITS)) - np.uint64(1)
    return (below + (mixed >> np.uint64(20) & below)).view(np.int64)


def repeated(payload: bytes, count: int) -> pa.Array:
    """Return a column of `count` equal payloads."""
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(payload))
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(payload * count)])
