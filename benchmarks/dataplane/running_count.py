"""Workload `running-count`: word count that emits a count for every word received, as examples of other systems do.

    spout (lines) -- shuffle --> split -- fields (word) --> count -- local-or-shuffle --> out

Operators exist for the batch API, the tuple API, and columns.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from instrumentation import Instrumentation, set_instrumentation

from workloads.apps.wordcount import WordCount, WordCountParams
from workloads.apps.wordcount_operators import Count, Split
from workloads.data.text import ColumnLineSpout, LineSpout, TextParams
from workloads.operators import NOTHING, Batch, Bolt, Emitted, Operator, Row, TupleBolt, per_tuple
from workloads.topology import DEFAULT_STREAM, Component, Input, Topology
from workloads.workload import Answer, PreparedInput, Verdict


@dataclass(frozen=True)
class RunningCountParams(TextParams):
    """Parameters, see `TextParams`.

    Attributes:
        api: interface of the operators.
        instrumentation: which measurements workers make of themselves.
    """

    api: Literal["batch", "columns", "tuple"] = "batch"
    instrumentation: Instrumentation = "all"

    defaults: ClassVar = {"spout": 2, "split": 2, "count": 2, "out": 2}


class BatchCount(Count):
    """Emits the running count of every word of a batch."""

    def process(self, batch: Batch) -> Emitted:
        get = (counts := self.counts).get
        rows = []
        for (word,) in batch.rows:
            counts[word] = count = get(word, 0) + 1
            rows.append((word, count))
        return {DEFAULT_STREAM: rows}


class Discard(Bolt):
    """A sink without state."""

    def process(self, batch: Batch) -> Emitted:
        return NOTHING


@per_tuple
def split(line: str) -> Iterable[Row]:
    """Split a line into words."""
    return [(word,) for word in line.split()]


class TupleCount(TupleBolt, Count):
    """Emits the running count of a word."""

    process = TupleBolt.process

    def take(self, word: str) -> Iterable[Row]:
        count = self.counts[word] = self.counts.get(word, 0) + 1
        return ((word, count),)


@per_tuple
def discard(_word: str, _count: int) -> Iterable[Row]:
    """Discard a row."""
    return ()


class RunningCount:
    """Word count with running counts."""

    name = "running-count"
    summary = "lines of text, split into words, with a running count per word"
    paper = ""
    Params = RunningCountParams

    def __init__(self, params: RunningCountParams) -> None:
        self.params = params
        self._word_count = WordCount(WordCountParams(text=params.text))

    def topology(self) -> Topology:
        size = self.params.parallelism
        return Topology(
            id=self.name,
            workers=self.params.workers,
            components=(
                Component("spout", "spout", size["spout"], outputs={DEFAULT_STREAM: {"line": "str"}}),
                Component(
                    "split",
                    "bolt",
                    size["split"],
                    outputs={DEFAULT_STREAM: {"word": "str"}},
                    inputs=(Input("spout", "shuffle"),),
                ),
                Component(
                    "count",
                    "bolt",
                    size["count"],
                    outputs={DEFAULT_STREAM: {"word": "str", "count": "int"}},
                    inputs=(Input("split", "fields", ("word",)),),
                ),
                Component("out", "bolt", size["out"], inputs=(Input("count", "local-or-shuffle"),)),
            ),
        )

    def operator(self, component: str) -> Operator:
        set_instrumentation(self.params.instrumentation)
        kinds: dict[str, type[Operator]]
        if self.params.api == "tuple":
            kinds = {"spout": LineSpout, "split": split, "count": TupleCount, "out": discard}
        elif self.params.api == "columns":
            # Imported here, so that workers by rows load neither Arrow nor NumPy.
            from running_count_columns import ColumnDiscard, ColumnRunningCount

            from workloads.apps.wordcount_columns import ColumnSplit

            kinds = {"spout": ColumnLineSpout, "split": ColumnSplit, "count": ColumnRunningCount, "out": ColumnDiscard}
        else:
            kinds = {"spout": LineSpout, "split": Split, "count": BatchCount, "out": Discard}
        return kinds[component]()

    def prepare(self, folder: Path) -> Sequence[PreparedInput]:
        return self._word_count.prepare(folder)

    def reference(self, positions: Sequence[int], inputs: Sequence[PreparedInput]) -> Answer:
        return self._word_count.reference(positions, inputs)

    def compare(self, answer: Answer, reference: Answer) -> Verdict:
        return self._word_count.compare(answer, reference)
