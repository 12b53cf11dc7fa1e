"""Column operators of the workload `running-count`."""

from collections.abc import Iterable
from typing import ClassVar

import numpy as np
import pyarrow as pa
from running_count import BatchCount, Discard

from workloads.arrays import ranks_of
from workloads.columns import ColumnBatch, ColumnBolt, ColumnsEmitted, Derived
from workloads.dictionaries import EntryNumbers
from workloads.operators import NOTHING, Row
from workloads.topology import DEFAULT_STREAM


class ColumnRunningCount(BatchCount, ColumnBolt):
    """Emits the running count of every word of a batch, by columns."""

    derives: ClassVar[bool] = True
    dictionaries: ClassVar[bool] = True

    # Small batches are processed as columns, too; at full rate there are hardly any.
    process = ColumnBolt.process

    def __init__(self) -> None:
        self.load_state()

    def store_state(self) -> None:
        self.counts.update(zip(self._numbers, self._totals.tolist(), strict=True))

    def load_state(self) -> None:
        self._numbers = dict(zip(self.counts, range(len(self.counts)), strict=True))
        self._totals = np.array(list(self.counts.values()), np.int64)
        self._entries = EntryNumbers(self._number)

    def answer(self) -> Iterable[Row]:
        return zip(self._numbers, self._totals.tolist(), strict=True)

    def _number(self, words: pa.Array) -> np.ndarray:
        numbers = self._numbers
        found = np.array([numbers.setdefault(word, len(numbers)) for word in words.to_pylist()], np.int64)
        self._totals = np.concatenate([self._totals, np.zeros(len(numbers) - len(self._totals), np.int64)])
        return found

    def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
        column = batch.columns.column(0)
        encoded = column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()
        numbers = self._entries.of(encoded)
        times = np.bincount(numbers, minlength=len(self._totals))
        running = pa.array(self._totals[numbers] + ranks_of(numbers, times) + 1)
        self._totals += times
        return {DEFAULT_STREAM: Derived(pa.RecordBatch.from_arrays([column, running], names=["word", "count"]))}


class ColumnDiscard(Discard, ColumnBolt):
    """A sink without state, by columns."""

    dictionaries: ClassVar[bool] = True

    def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
        return NOTHING
