"""The operators of word count by columns; state and answers are those of the operators by rows."""

from collections import Counter
from typing import ClassVar

import numpy as np
import pyarrow as pa

from workloads.apps.wordcount import Count, CountCombined, Split, SplitCounted
from workloads.arrays import distinct
from workloads.columns import ColumnBatch, ColumnBolt, ColumnsEmitted, Derived
from workloads.data.words import words_of
from workloads.operators import NOTHING, Batch, Emitted
from workloads.topology import DEFAULT_STREAM


class ColumnSplit(Split, ColumnBolt):
    """Splits lines into words."""

    derives: ClassVar[bool] = True

    def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
        words, lines = words_of(batch.columns.column(0))
        return {DEFAULT_STREAM: Derived(pa.RecordBatch.from_arrays([words], names=["word"]), lines)}


class ColumnSplitCounted(SplitCounted, ColumnBolt):
    """Splits lines into words with counts."""

    derives: ClassVar[bool] = True

    def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
        words, lines = words_of(batch.columns.column(0))
        ones = pa.array(np.ones(len(words), np.int64))
        return {DEFAULT_STREAM: Derived(pa.RecordBatch.from_arrays([words, ones], names=["word", "count"]), lines)}


class ColumnCount(Count, ColumnBolt):
    """Counts words."""

    made: ClassVar[type[dict[str, int]]] = dict
    dictionaries: ClassVar[bool] = True

    def process(self, batch: Batch) -> Emitted:
        tallied = Counter([word for (word,) in batch.rows])
        self._add(list(tallied), list(tallied.values()))
        return NOTHING

    def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
        codes, words = distinct(batch.columns.column(0))
        self._add(words.to_pylist(), np.bincount(codes, minlength=len(words)).tolist())
        return NOTHING

    def _add(self, words: list[str], numbers: list[int]) -> None:
        counts = self._counts
        get = counts.get
        for word, number in zip(words, numbers, strict=True):
            counts[word] = get(word, 0) + number
        if self._changed is not None:
            self._changed.update(words)


class ColumnCountCombined(CountCombined, ColumnBolt):
    """Adds up counted words."""

    dictionaries: ClassVar[bool] = True

    def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
        words, totals = _summed(batch.columns)
        counts, names = self._counts, words.to_pylist()
        get = counts.get
        for word, total in zip(names, totals.tolist(), strict=True):
            counts[word] = get(word, 0) + total
        if self._changed is not None:
            self._changed.update(names)
        return NOTHING

    def combine_columns(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        """Add up the counts of each word."""
        words, totals = _summed(columns)
        return pa.RecordBatch.from_arrays([words, pa.array(totals)], names=["word", "count"])


def _summed(columns: pa.RecordBatch) -> tuple[pa.Array, "np.ndarray[tuple[int], np.dtype[np.int64]]"]:
    codes, words = distinct(columns.column(0))
    totals = np.zeros(len(words), np.int64)
    np.add.at(totals, codes, columns.column(1).to_numpy())
    return words, totals
