"""The operators of word count by columns; state and answers are those of the operators by rows."""

from typing import ClassVar

import numpy as np
import pyarrow as pa

from workloads.apps.wordcount_operators import Count, CountCombined, Split, SplitCounted
from workloads.columns import ColumnBatch, ColumnBolt, ColumnsEmitted, Derived
from workloads.data.words import WordEncoder
from workloads.dictionaries import code_sums, indices_of
from workloads.operators import NOTHING
from workloads.topology import DEFAULT_STREAM


class ColumnSplit(Split, ColumnBolt):
    """Splits lines into words."""

    derives: ClassVar[bool] = True

    def __init__(self) -> None:
        self._encoder = WordEncoder()

    def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
        words, lines = self._encoder.words_of(batch.columns.column(0))
        return {DEFAULT_STREAM: Derived(pa.RecordBatch.from_arrays([words], names=["word"]), lines)}


class ColumnSplitCounted(SplitCounted, ColumnBolt):
    """Splits lines into words with counts."""

    derives: ClassVar[bool] = True

    def __init__(self) -> None:
        self._encoder = WordEncoder()

    def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
        words, lines = self._encoder.words_of(batch.columns.column(0))
        ones = pa.array(np.ones(len(words), np.int64))
        return {DEFAULT_STREAM: Derived(pa.RecordBatch.from_arrays([words, ones], names=["word", "count"]), lines)}


class ColumnCount(Count, ColumnBolt):
    """Counts words, by their place in a dictionary."""

    dictionaries: ClassVar[bool] = True

    def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
        self.counts.add(*batch.columns.columns)
        return NOTHING


class ColumnCountCombined(CountCombined, ColumnCount):
    """Adds up counted words."""

    def combine_columns(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        """Add up the counts of each word."""
        words = columns.column(0)
        encoded = words if isinstance(words, pa.DictionaryArray) else words.dictionary_encode()
        codes, values = indices_of(encoded), encoded.dictionary
        used = np.flatnonzero(code_sums(codes, None, len(values)))
        totals = code_sums(codes, columns.column(1).to_numpy(), len(values))[used]
        combined = pa.DictionaryArray.from_arrays(pa.array(used.astype(np.int32)), values, safe=False)
        return pa.RecordBatch.from_arrays([combined, pa.array(totals)], names=["word", "count"])
