"""Word count that emits the running count of a word whenever the word comes, as other systems' examples do.

    spout (lines) -- shuffle --> split -- fields (word) --> count -- local-or-shuffle --> out

For measurements: by columns, with the batch API, and with the API that takes rows one by one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from unobserved import Observed, observe

from workloads.apps.wordcount import Count, Split, WordCount
from workloads.data.text import ColumnLineSpout, LineSpout, TextParams
from workloads.operators import NOTHING, Batch, Bolt, Emitted, Operator, Row, TupleBolt, per_tuple
from workloads.topology import DEFAULT_STREAM, Component, Input, Topology


@dataclass(frozen=True)
class RunningCountParams(TextParams):
    """Parameters, see `TextParams`.

    Attributes:
        api: how operators are written.
        observed: what a worker observes of itself.
    """

    api: Literal["batch", "columns", "tuple"] = "batch"
    observed: Observed = "all"

    defaults: ClassVar = {"spout": 2, "split": 2, "count": 2, "out": 2}


class BatchCount(Count):
    """Words to running counts."""

    made: ClassVar[type[dict[str, int]]] = dict

    def process(self, batch: Batch) -> Emitted:
        get = (counts := self._counts).get
        rows = []
        for (word,) in batch.rows:
            counts[word] = count = get(word, 0) + 1
            rows.append((word, count))
        return {DEFAULT_STREAM: rows}


class Discard(Bolt):
    """A sink that keeps nothing."""

    def process(self, batch: Batch) -> Emitted:
        return NOTHING


@per_tuple
def split(line: str) -> Iterable[Row]:
    """A line to words."""
    return [(word,) for word in line.split()]


class TupleCount(TupleBolt, Count):
    """A word to its running count."""

    made: ClassVar[type[dict[str, int]]] = dict
    process = TupleBolt.process

    def take(self, word: str) -> Iterable[Row]:
        count = self._counts[word] = self._counts.get(word, 0) + 1
        return ((word, count),)


@per_tuple
def discard(_word: str, _count: int) -> Iterable[Row]:
    """A sink that keeps nothing."""
    return ()


class RunningCount(WordCount):
    """See the module."""

    name = "running-count"
    summary = "lines of text to words to a running count per word"
    paper = ""
    Params = RunningCountParams

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
        observe(self.params.observed)
        if self.params.api == "tuple":
            return {"spout": LineSpout, "split": split, "count": TupleCount, "out": discard}[component]()
        if self.params.api == "columns":
            # Workers by rows load neither Arrow nor NumPy.
            from running_count_columns import ColumnDiscard, ColumnRunningCount

            from workloads.apps.wordcount_columns import ColumnSplit

            made = {"spout": ColumnLineSpout, "split": ColumnSplit, "count": ColumnRunningCount, "out": ColumnDiscard}
            return made[component]()
        return {"spout": LineSpout, "split": Split, "count": BatchCount, "out": Discard}[component]()
