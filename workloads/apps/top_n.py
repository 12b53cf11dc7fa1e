"""Top-N: the most frequent words of a sliding window of stream time.

    read (words) -- fields (word) --> count -- fields (word) --> rank -- global --> merge

Stream time has `words_per_s` words of the text per second, at any rate of the run, so the answer depends only on the
words. Every `slide_s`, on a tick, `count` sends the most frequent words of the last `window_s`; `rank` and `merge` keep
the best `n` of their input. Ties are in the order of code points. With a global grouping, `merge` uses one of its
executors.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from inventory.times import NS
from workloads.columns import Api, ColumnBatch, ColumnBolt, ColumnsEmitted
from workloads.data.text import ColumnLineSpout, LineSpout, TextParams, prepare_text, read_records
from workloads.keyed_state import KeyedState
from workloads.operators import NOTHING, Batch, Bolt, Context, Emitted, Operator, Row
from workloads.topology import DEFAULT_STREAM, Component, FieldType, Input, Topology, ackers
from workloads.workload import Answer, PreparedInput, Verdict, rows_differ

TABLE = "top"

WORDS: Mapping[str, Mapping[str, FieldType]] = {DEFAULT_STREAM: {"word": "str"}}
COUNTED: Mapping[str, Mapping[str, FieldType]] = {DEFAULT_STREAM: {"word": "str", "count": "int"}}


@dataclass(frozen=True)
class TopNParams(TextParams):
    """Parameters of Top-N, see `TextParams`.

    Attributes:
        n: number of words.
        window_s: length of the window, a whole number of slides.
        slide_s: stream time between answers.
        words_per_s: words of the whole input per second of stream time.
        api: interface of `read` and `count`; the others get a few rows per tick. Answers are the same.
    """

    n: Annotated[int, Meta(ge=1, le=10_000)] = 10
    window_s: Annotated[float, Meta(gt=0, le=86_400)] = 10.0
    slide_s: Annotated[float, Meta(gt=0, le=86_400)] = 1.0
    words_per_s: Annotated[float, Meta(gt=0, le=1e9)] = 1_000.0
    api: Api = "rows"
    ackers: Annotated[int, Meta(ge=0)] = 0

    defaults: ClassVar = {"read": 4, "count": 8, "rank": 6, "merge": 2}

    def __post_init__(self) -> None:
        """Check values together.

        Raises:
            ValueError: the window is not a multiple of the slide, or a slide contains no word.
        """
        super().__post_init__()
        if self.slides * self.slide_ns != round(self.window_s * NS):
            raise ValueError(f"window_s: got {self.window_s:g}, expected a multiple of slide_s, {self.slide_s:g}")
        if self.step_ns > self.slide_ns:
            raise ValueError(
                f"slide_s: got {self.slide_s:g}, in which no word comes at words_per_s {self.words_per_s:g}"
            )

    @property
    def slide_ns(self) -> int:
        """Stream time between ticks."""
        return round(self.slide_s * NS)

    @property
    def slides(self) -> int:
        """Number of slides in a window."""
        return round(self.window_s / self.slide_s)

    @property
    def step_ns(self) -> int:
        """Stream time between words."""
        return max(1, round(NS / self.words_per_s))


class WordTimes:
    """Stream times of one executor's share of evenly spaced words."""

    def __init__(self, index: int, of: int, step_ns: int) -> None:
        self._index, self._of, self._step_ns = index, of, step_ns

    def due_ns(self, record: int) -> int:
        return (record * self._of + self._index) * self._step_ns

    def due_count(self, elapsed_ns: int) -> int:
        return max(0, (elapsed_ns // self._step_ns - self._index) // self._of + 1)


class Read(LineSpout):
    """Words with times of their own."""

    recorded = True

    def __init__(self, params: TopNParams) -> None:
        self.tick_ns, self._step_ns = params.slide_ns, params.step_ns

    def open(self, context: Context) -> None:
        super().open(context)
        self.times = WordTimes(context.index, context.parallelism, self._step_ns)


class ColumnRead(Read, ColumnLineSpout):
    """`Read` by columns."""

    column: ClassVar = "word"


class RollingCount(Bolt):
    """Counts words over the last slides; emits the most frequent ones on a tick."""

    counts = KeyedState(dict[int, int])
    """Of each word, by the age of a slide in slides; 0 is the one that is not over yet."""

    def __init__(self, n: int, slides: int) -> None:
        self._n = n
        self._slides: deque[Counter[str]] = deque([Counter() for _ in range(slides)], slides)
        self._now: Counter[str] = Counter()
        self._sum: Counter[str] = Counter()

    def process(self, batch: Batch) -> Emitted:
        self._now.update([word for (word,) in batch.rows])
        return NOTHING

    def on_tick(self, time_ns: int) -> Emitted:
        self._sum.subtract(self._slides[0])
        for word in [word for word in self._slides[0] if not self._sum[word]]:
            del self._sum[word]
        self._slides.append(self._now)
        self._sum.update(self._now)
        self._now = Counter()
        return {DEFAULT_STREAM: best_words(self._sum.items(), self._n)}

    def store_state(self) -> None:
        for age, counts in enumerate([self._now, *reversed(self._slides)]):
            for word, count in counts.items():
                self.counts[word][age] = count

    def load_state(self) -> None:
        slides: list[Counter[str]] = [Counter() for _ in range(len(self._slides) + 1)]
        for word, ages in self.counts.items():
            for age, count in ages.items():
                slides[age][word] = count
        self._now, *before = slides
        self._slides.extend(reversed(before))
        self._sum = Counter()
        for counts in before:
            self._sum.update(counts)


class ColumnRollingCount(RollingCount, ColumnBolt):
    """`RollingCount` by columns, which emits at ticks only."""

    derives: ClassVar[bool] = True
    dictionaries: ClassVar[bool] = True

    @property
    def _now(self) -> Counter[str]:
        self._add(self._tally.drain())
        return self._counted

    @_now.setter
    def _now(self, counts: Counter[str]) -> None:
        from workloads.dictionaries import Tally

        self._counted, self._tally = counts, Tally()

    def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
        self._add(self._tally.add(batch.columns.column(0)))
        if self._tally.is_full:
            self._add(self._tally.drain())
        return NOTHING

    def _add(self, more: Iterable[tuple[str, int]]) -> None:
        for word, number in more:
            self._counted[word] += number


class Rank(Bolt):
    """The most frequent words of a share of the words since the last tick."""

    counts = KeyedState(int)

    def __init__(self, n: int) -> None:
        self._n = n

    def process(self, batch: Batch) -> Emitted:
        self.counts.update(batch.rows)
        return NOTHING

    def on_tick(self, time_ns: int) -> Emitted:
        ranked = best_words(self.counts.items(), self._n)
        self.counts.clear()
        return {DEFAULT_STREAM: ranked}


class MergeWords(Rank):
    """The most frequent words overall; the answer has one row per tick and rank."""

    answer_table = TABLE
    answer_schema: ClassVar = {"time_ns": "int", "rank": "int", "word": "str", "count": "int"}

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self._answer: list[Row] = []

    def on_tick(self, time_ns: int) -> Emitted:
        for rank, (word, count) in enumerate(super().on_tick(time_ns)[DEFAULT_STREAM], start=1):
            self._answer.append((time_ns, rank, word, count))
        return NOTHING

    def settled(self) -> Iterable[Row]:
        settled, self._answer = self._answer, []
        return settled

    def answer(self) -> Iterable[Row]:
        return self._answer

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self._answer)

    def restore(self, state: bytes) -> None:
        self._answer = msgspec.msgpack.decode(state, type=list[tuple[int, int, str, int]])


def best_words(counted: Iterable[Row], n: int) -> list[Row]:
    """Return the `n` most frequent of (word, count)."""
    return nsmallest(n, counted, key=lambda row: (-row[1], row[0]))


class TopN:
    """See the module."""

    name = "top-n"
    summary = "the most frequent words of a sliding window"
    paper = "Sun et al.: Er-Stream, Future Generation Computer Systems, 2022, Top-N"
    Params = TopNParams

    def __init__(self, params: TopNParams) -> None:
        self.params = params

    def topology(self) -> Topology:
        """Return read, count, rank and merge."""
        parallelism = self.params.parallelism
        by_word: Mapping[str, Any] = {"grouping": "fields", "fields": ("word",)}
        return Topology(
            id=self.name,
            workers=self.params.workers,
            components=(
                Component("read", "spout", parallelism["read"], outputs=WORDS),
                Component("count", "bolt", parallelism["count"], outputs=COUNTED, inputs=(Input("read", **by_word),)),
                Component("rank", "bolt", parallelism["rank"], outputs=COUNTED, inputs=(Input("count", **by_word),)),
                Component("merge", "bolt", parallelism["merge"], inputs=(Input("rank", "global"),)),
                *ackers(self.params.ackers),
            ),
        )

    def operator(self, component: str) -> Operator:
        """Return a new operator of a component."""
        params = self.params
        by_columns = params.api == "columns"
        match component:
            case "read":
                return (ColumnRead if by_columns else Read)(params)
            case "count":
                return (ColumnRollingCount if by_columns else RollingCount)(params.n, params.slides)
            case "rank":
                return Rank(params.n)
            case _:
                return MergeWords(params.n)

    def prepare(self, folder: Path) -> Sequence[PreparedInput]:
        """Prepare one record per word of the text."""
        return [prepare_text(self.params.text, "words", folder)]

    def reference(self, positions: Sequence[int], inputs: Sequence[PreparedInput]) -> Answer:
        """Return the answer, with every window counted from its words."""
        words = read_records(inputs[0].path)
        params, of = self.params, len(positions)
        last = max((position - 1) * of + index for index, position in enumerate(positions))
        slides: list[list[str]] = []
        for record in range(last + 1):
            slide = record * params.step_ns // params.slide_ns
            while len(slides) <= slide:
                slides.append([])
            if record // of < positions[record % of]:
                slides[slide].append(words[record % len(words)])
        rows: list[Row] = []
        for at in range(len(slides)):
            window = [word for slide in slides[max(0, at + 1 - params.slides) : at + 1] for word in slide]
            counted = sorted(((-count, word) for word, count in Counter(window).items()))[: params.n]
            time_ns = (at + 1) * params.slide_ns
            rows += [(time_ns, rank, word, -count) for rank, (count, word) in enumerate(counted, start=1)]
        return {TABLE: rows}

    def compare(self, answer: Answer, reference: Answer) -> Verdict:
        """Compare tick by tick and rank by rank."""
        differences = rows_differ(answer.get(TABLE, ()), reference[TABLE], key_fields=2)
        return Verdict(not differences, len(reference[TABLE]), "; ".join(differences))
