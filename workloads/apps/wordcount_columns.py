"""The operators of word count by columns; state and answers are those of the operators by rows."""

from collections import Counter
from collections.abc import Iterable
from typing import ClassVar

import numpy as np
import pyarrow as pa

from workloads.apps.wordcount import Count, CountCombined, Split, SplitCounted
from workloads.columns import ColumnBatch, ColumnBolt, ColumnsEmitted, Derived
from workloads.data.words import WordEncoder
from workloads.dictionaries import Tally, indices_of, sums_of
from workloads.operators import NOTHING, Batch, Emitted
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


class _Tallied(Count, ColumnBolt):
    """Counts words of columns by their place in a dictionary; the words themselves are only looked up for the state."""

    made: ClassVar[type[dict[str, int]]] = dict
    dictionaries: ClassVar[bool] = True

    def __init__(self) -> None:
        self._tally = Tally()
        super().__init__()

    @property
    def _counts(self) -> dict[str, int]:
        _add(self._stored, self._tally.drain())
        return self._stored

    @_counts.setter
    def _counts(self, counts: dict[str, int]) -> None:
        self._stored, self._tally = counts, Tally()

    def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
        words, *numbers = batch.columns.columns
        _add(self._stored, self._tally.add(words, *(column.to_numpy() for column in numbers)))
        if self._changed is not None:
            used = words.unique() if isinstance(words, pa.DictionaryArray) else words
            self._changed.update(used.to_pylist())
        if self._tally.is_full:
            _add(self._stored, self._tally.drain())
        return NOTHING


class ColumnCount(_Tallied):
    """Counts words."""

    def process(self, batch: Batch) -> Emitted:
        tallied = Counter([word for (word,) in batch.rows])
        _add(self._counts, tallied.items())
        if self._changed is not None:
            self._changed.update(tallied)
        return NOTHING


class ColumnCountCombined(_Tallied, CountCombined):
    """Adds up counted words."""

    process = CountCombined.process

    def combine_columns(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        """Add up the counts of each word."""
        words = columns.column(0)
        encoded = words if isinstance(words, pa.DictionaryArray) else words.dictionary_encode()
        codes, values = indices_of(encoded), encoded.dictionary
        used = np.flatnonzero(sums_of(codes, None, len(values)))
        totals = sums_of(codes, columns.column(1).to_numpy(), len(values))[used]
        combined = pa.DictionaryArray.from_arrays(pa.array(used.astype(np.int32)), values, safe=False)
        return pa.RecordBatch.from_arrays([combined, pa.array(totals)], names=["word", "count"])


def _add(counts: dict[str, int], more: Iterable[tuple[str, int]]) -> None:
    get = counts.get
    for word, number in more:
        counts[word] = get(word, 0) + number
