"""The bolts of word count by rows: lines are split into words, and every word is counted.

`SplitCounted` and `CountCombined` are those with `combine`, where a row is a word and its count.
"""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import ClassVar

from workloads.keyed_state import KeyedState
from workloads.operators import NOTHING, Batch, Bolt, Emitted, Row
from workloads.topology import DEFAULT_STREAM

TABLE = "counts"
"""Table of the answer."""


class Split(Bolt):
    """Splits lines into words."""

    def process(self, batch: Batch) -> Emitted:
        # One call of `split` per batch: line ends are white space too.
        return {DEFAULT_STREAM: list(zip("\n".join([line for (line,) in batch.rows]).split()))}


class Count(Bolt):
    """Counts words."""

    answer_table = TABLE
    answer_schema: ClassVar = {"word": "str", "count": "int"}

    counts = KeyedState(int)

    def process(self, batch: Batch) -> Emitted:
        self.counts.add([word for (word,) in batch.rows])
        return NOTHING

    def answer(self) -> Iterable[Row]:
        return self.counts.items()


class SplitCounted(Bolt):
    """Splits lines into words with counts."""

    def process(self, batch: Batch) -> Emitted:
        return {DEFAULT_STREAM: list(zip("\n".join([line for (line,) in batch.rows]).split(), repeat(1)))}


class CountCombined(Count):
    """Adds up counted words."""

    @staticmethod
    def combine(rows: Sequence[Row]) -> Sequence[Row]:
        """Add up the counts of each word."""
        counts: dict[str, int] = {}
        get = counts.get
        for word, count in rows:
            counts[word] = get(word, 0) + count
        return list(counts.items())

    def process(self, batch: Batch) -> Emitted:
        self.counts.add_all(batch.rows)
        return NOTHING
