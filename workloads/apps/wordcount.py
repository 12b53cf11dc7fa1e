"""Word count: lines of text are split into words, and every word is counted.

    spout (lines) -- shuffle --> split -- fields (word) --> count

`workloads.data.text` defines a word. With `combine`, a row is a word and its count.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from workloads.apps.wordcount_operators import TABLE, Count, CountCombined, Split, SplitCounted
from workloads.columns import Api
from workloads.data.text import ColumnLineSpout, LineSpout, TextParams, prepare_text, read_records, times_emitted
from workloads.operators import Operator
from workloads.topology import DEFAULT_STREAM, Component, FieldType, Input, Topology, ackers
from workloads.workload import Answer, PreparedInput, Verdict, rows_differ


@dataclass(frozen=True)
class WordCountParams(TextParams):
    """Parameters of word count, see `TextParams`.

    Attributes:
        combine: whether equal words of a batch are counted together before they go to `count`.
        api: interface of the operators; answers are the same.
    """

    combine: bool = False
    api: Api = "rows"

    defaults: ClassVar = {"spout": 5, "split": 8, "count": 12}


class WordCount:
    """See the module."""

    name = "wordcount"
    summary = "lines of text to words to a count per word"
    paper = "TOP-Storm: A topology-based resource-aware scheduler for Stream Processing Engine (2020), word count"
    Params = WordCountParams

    def __init__(self, params: WordCountParams) -> None:
        self.params = params

    def topology(self) -> Topology:
        """Return spout, split, count and ackers."""
        parallelism = self.params.parallelism
        words: dict[str, FieldType] = {"word": "str", "count": "int"} if self.params.combine else {"word": "str"}
        return Topology(
            id=self.name,
            workers=self.params.workers,
            components=(
                Component("spout", "spout", parallelism["spout"], outputs={DEFAULT_STREAM: {"line": "str"}}),
                Component(
                    "split",
                    "bolt",
                    parallelism["split"],
                    outputs={DEFAULT_STREAM: words},
                    inputs=(Input("spout", "shuffle"),),
                ),
                Component("count", "bolt", parallelism["count"], inputs=(Input("split", "fields", ("word",)),)),
                *ackers(self.params.ackers),
            ),
        )

    def operator(self, component: str) -> Operator:
        """Return a new operator of one of the three components."""
        if self.params.api == "columns":
            return self._column_operator(component)
        split, count = (SplitCounted, CountCombined) if self.params.combine else (Split, Count)
        return {"spout": LineSpout, "split": split, "count": count}[component]()

    def _column_operator(self, component: str) -> Operator:
        from workloads.apps import wordcount_columns as by_columns

        if component == "spout":
            return ColumnLineSpout()
        if self.params.combine:
            return by_columns.ColumnSplitCounted() if component == "split" else by_columns.ColumnCountCombined()
        return by_columns.ColumnSplit() if component == "split" else by_columns.ColumnCount()

    def prepare(self, folder: Path) -> Sequence[PreparedInput]:
        """Prepare one record per line of the text."""
        return [prepare_text(self.params.text, "lines", folder)]

    def reference(self, positions: Sequence[int], inputs: Sequence[PreparedInput]) -> Answer:
        """Return the counts; lines emitted equally often are counted together."""
        lines = read_records(inputs[0].path)
        emitted: defaultdict[int, list[str]] = defaultdict(list)
        for line, times in zip(lines, times_emitted(len(lines), positions), strict=True):
            if times:
                emitted[times].append(line)
        counts: Counter[str] = Counter()
        for times, together in emitted.items():
            for word, count in Counter(re.findall(r"\S+", "\n".join(together))).items():
                counts[word] += times * count
        return {TABLE: list(counts.items())}

    def compare(self, answer: Answer, reference: Answer) -> Verdict:
        """Compare word by word."""
        expected = reference[TABLE]
        differences = rows_differ(answer.get(TABLE, ()), expected, key_fields=1)
        return Verdict(not differences, len(expected), "; ".join(differences))
