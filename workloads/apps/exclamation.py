"""Exclamation: two bolts in a row append `!!!` to words.

    word -- shuffle --> exclaim1 -- shuffle --> exclaim2

The last bolt is the sink. Its answer is a digest of all its rows, see `workloads.data.row_digest`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from workloads.columns import Api, ColumnBatch, ColumnBolt, ColumnsEmitted, Derived
from workloads.data.row_digest import SCHEMA, RowMultiset, added, digest_of, merged_digest
from workloads.data.text import ColumnLineSpout, LineSpout, TextParams, prepare_text, read_records, times_emitted
from workloads.keyed_state import KeyedState
from workloads.operators import NOTHING, Batch, Bolt, Emitted, Operator, Row
from workloads.topology import DEFAULT_STREAM, Component, FieldType, Input, Topology, ackers
from workloads.workload import Answer, PreparedInput, Verdict

TABLE = "exclaimed"


@dataclass(frozen=True)
class ExclamationParams(TextParams):
    """Parameters of exclamation, see `TextParams`.

    Attributes:
        api: interface of the operators; answers are the same.
    """

    api: Api = "rows"

    defaults: ClassVar = {"word": 10, "exclaim1": 3, "exclaim2": 2}


def _exclaimed(rows: Sequence[Row]) -> list[Row]:
    return [(word + "!!!",) for (word,) in rows]


class Exclaim(Bolt):
    """Appends `!!!` and passes on."""

    def process(self, batch: Batch) -> Emitted:
        return {DEFAULT_STREAM: _exclaimed(batch.rows)}


class LastExclaim(Bolt):
    """Appends `!!!` and keeps a digest of the resulting rows."""

    answer_table = TABLE
    answer_schema = SCHEMA

    digests = KeyedState(tuple[int, str], merge=added)

    def __init__(self) -> None:
        self._bag = RowMultiset()

    def process(self, batch: Batch) -> Emitted:
        self._bag.add(_exclaimed(batch.rows))
        return NOTHING

    def answer(self) -> Iterable[Row]:
        return [self._bag.digest.row]

    def store_state(self) -> None:
        self.digests[""] = self._bag.digest.row

    def load_state(self) -> None:
        self._bag = RowMultiset(self.digests.values())


class ColumnWordSpout(ColumnLineSpout):
    """Emits words."""

    column: ClassVar = "word"


class ColumnExclaim(Exclaim, ColumnBolt):
    """Appends `!!!` and passes on."""

    derives: ClassVar[bool] = True

    def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
        import pyarrow as pa
        import pyarrow.compute as pc

        words = pc.binary_join_element_wise(batch.columns.column(0), "!!!", "")
        return {DEFAULT_STREAM: Derived(pa.RecordBatch.from_arrays([words], names=["word"]))}


class ColumnLastExclaim(LastExclaim, ColumnBolt):
    """Appends `!!!` and keeps a digest of the resulting rows."""

    def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
        from workloads.arrays import counted

        self._bag.add_counted({(word + "!!!",): number for word, number in counted(batch.columns.column(0))})
        return NOTHING


class Exclamation:
    """See the module."""

    name = "exclamation"
    summary = "words that two bolts in a row append !!! to"
    paper = "TOP-Storm: A topology-based resource-aware scheduler for Stream Processing Engine (2020), exclamation"
    Params = ExclamationParams

    def __init__(self, params: ExclamationParams) -> None:
        self.params = params

    def topology(self) -> Topology:
        """Return word, two exclaiming bolts and ackers."""
        parallelism = self.params.parallelism
        words: Mapping[str, Mapping[str, FieldType]] = {DEFAULT_STREAM: {"word": "str"}}
        return Topology(
            id=self.name,
            workers=self.params.workers,
            components=(
                Component("word", "spout", parallelism["word"], outputs=words),
                Component(
                    "exclaim1", "bolt", parallelism["exclaim1"], outputs=words, inputs=(Input("word", "shuffle"),)
                ),
                Component("exclaim2", "bolt", parallelism["exclaim2"], inputs=(Input("exclaim1", "shuffle"),)),
                *ackers(self.params.ackers),
            ),
        )

    def operator(self, component: str) -> Operator:
        """Return a new operator of one of the three components."""
        if self.params.api == "columns":
            return {"word": ColumnWordSpout, "exclaim1": ColumnExclaim, "exclaim2": ColumnLastExclaim}[component]()
        return {"word": LineSpout, "exclaim1": Exclaim, "exclaim2": LastExclaim}[component]()

    def prepare(self, folder: Path) -> Sequence[PreparedInput]:
        """Prepare one record per word of the text."""
        return [prepare_text(self.params.text, "words", folder)]

    def reference(self, positions: Sequence[int], inputs: Sequence[PreparedInput]) -> Answer:
        """Return the digest; every distinct word is hashed once and counted as often as it was emitted."""
        words = read_records(inputs[0].path)
        emitted: Counter[Row] = Counter()
        for word, times in zip(words, times_emitted(len(words), positions), strict=True):
            emitted[f"{word}!!!!!!",] += times
        return {TABLE: [digest_of(emitted).row]}

    def compare(self, answer: Answer, reference: Answer) -> Verdict:
        """Compare number of words and digest."""
        got, expected = merged_digest(answer.get(TABLE, ())), merged_digest(reference[TABLE])
        if got == expected:
            return Verdict(True, len(reference[TABLE]))
        what = f"{got.rows} words with digest {got.row[1]}, the reference has {expected.rows} with {expected.row[1]}"
        return Verdict(False, len(reference[TABLE]), what)
