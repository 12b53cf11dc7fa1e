"""Windows by event time with late rows, the end of the input, and joins of two streams by key and time."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import add
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_workload import run_with_faults

from inventory.times import NS
from workloads.apps.top_n import WordTimes
from workloads.key_groups import KEY_GROUPS
from workloads.keyed_state import KeyedState
from workloads.operator_state import OperatorState
from workloads.operators import NOTHING, STEP_NS, Batch, Bolt, Context, Emitted, Operator, Row, Spout
from workloads.topology import DEFAULT_STREAM, Component, Input, Topology
from workloads.windows import EventTimeWindows, IntervalJoin
from workloads.workload import Answer, PreparedInput, Verdict, rows_differ

SIZES = st.tuples(st.integers(1, 12), st.integers(0, 12), st.integers(0, 8)).filter(lambda sizes: sizes[1] <= sizes[0])
"""Size, slide and lateness."""


def plain_begins(windows: EventTimeWindows, time: int, stream: int) -> list[int]:
    slide = windows.slide_ns or windows.size_ns
    every = [begin for begin in range(-100 * slide, 100 * slide, slide) if begin <= time < begin + windows.size_ns]
    return [begin for begin in every if begin + windows.size_ns + windows.late_ns > stream]


@given(SIZES, st.integers(-50, 50), st.integers(-50, 80))
def test_a_row_belongs_to_the_windows_around_it_that_are_open(sizes: tuple[int, ...], time: int, stream: int) -> None:
    windows = EventTimeWindows(*sizes)
    assert list(windows.begins(time, stream)) == plain_begins(windows, time, stream)


class WindowedCount(Bolt):
    """The example of windows: words per window, and late words."""

    counts = KeyedState(int)
    late = KeyedState(int)

    def __init__(self, windows: EventTimeWindows) -> None:
        self.windows = windows

    def process(self, batch: Batch) -> Emitted:
        for word, time_ns in batch.rows:
            begins = self.windows.begins(time_ns, self.stream_ns)
            self.counts.add((word, begin) for begin in begins)
            if not begins:
                self.late[word] += 1
        return NOTHING

    def on_tick(self, time_ns: int) -> Emitted:
        return {DEFAULT_STREAM: [(*key, count) for key, count in self.windows.close(self.counts, time_ns)]}

    def on_end(self) -> Emitted:
        return {DEFAULT_STREAM: [(*key, count) for key, count in self.windows.close(self.counts)]}


def regrouped(bolt: Any, again: Any) -> Any:
    """Return a bolt with the state of another one, in two parts by key groups, and a copy of a moved key."""
    whole, new = OperatorState(bolt).snapshot(), OperatorState(again)
    for groups in (range(0, KEY_GROUPS, 2), range(1, KEY_GROUPS, 2)):
        new.put_groups(whole, groups, 1)
    new.loaded()
    return again


@given(
    SIZES,
    st.lists(
        st.one_of(
            st.just("tick"),
            st.just("restore"),
            st.lists(st.tuples(st.sampled_from("abc"), st.integers(-15, 6)), min_size=1, max_size=5),
        ),
        max_size=20,
    ),
)
def test_each_row_is_in_the_windows_open_at_its_arrival_or_counted_as_late(
    sizes: tuple[int, ...], events: list[Any]
) -> None:
    windows, now = EventTimeWindows(*sizes), 0
    bolt = WindowedCount(windows)
    expected, late, emitted = Counter[Any](), Counter[str](), Counter[Any]()
    stream = 0
    for event in events:
        match event:
            case "tick":
                now += 5
                stream = bolt.stream_ns = now
                rows: Sequence[Row] = bolt.on_tick(now)[DEFAULT_STREAM]
                assert [row[1] for row in rows] == sorted(row[1] for row in rows)
                assert all(now - 5 < row[1] + windows.size_ns + windows.late_ns <= now for row in rows)
                emitted.update({row[:2]: row[2] for row in rows})
            case "restore":
                bolt = regrouped(bolt, WindowedCount(windows))
            case _:
                rows = [(word, now + offset) for word, offset in event]
                bolt.process(Batch("read", "default", rows))
                for word, time in rows:
                    begins = plain_begins(windows, time, stream)
                    expected.update((word, begin) for begin in begins)
                    late[word] += not begins
    emitted.update({row[:2]: row[2] for row in bolt.on_end()[DEFAULT_STREAM]})
    assert emitted == expected
    assert Counter(bolt.late) == +late
    assert not any(bolt.on_end().values())


@pytest.mark.parametrize("sizes", [(0,), (5, 6), (5, -1), (5, 5, -1)])
def test_windows_that_leave_gaps_or_end_before_they_begin_are_refused(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="expected a size above 0, a slide of at most the size"):
        EventTimeWindows(*sizes)


@dataclass
class Joined(Bolt):
    """The example of a join: bids and sales of an article within ten seconds of each other."""

    join: IntervalJoin

    bids = KeyedState(list[tuple[int, str]])
    sales = KeyedState(list[tuple[int, str]])

    def process(self, batch: Batch) -> Emitted:
        mine, others = (self.bids, self.sales) if batch.source == "bids" else (self.sales, self.bids)
        pairs: list[Row] = []
        for article, time_ns, who in batch.rows:
            if not self.join.is_late(time_ns, self.stream_ns):
                found = self.join.matches(mine, others, article, time_ns, who)
                pairs += [(article, who, other) if batch.source == "bids" else (article, other, who) for other in found]
        return {DEFAULT_STREAM: pairs}

    def on_tick(self, time_ns: int) -> Emitted:
        self.join.forget(time_ns, self.bids, self.sales)
        return NOTHING


@given(
    st.integers(0, 8),
    st.integers(0, 8),
    st.lists(
        st.one_of(
            st.just("tick"),
            st.just("restore"),
            st.tuples(st.sampled_from(["bids", "sales"]), st.sampled_from("ab"), st.integers(-12, 4)),
        ),
        max_size=30,
    ),
)
def test_rows_of_two_streams_match_by_key_and_time_unless_they_are_late(
    within: int, late: int, events: list[Any]
) -> None:
    bolt, now, stream = Joined(IntervalJoin(within, late)), 0, 0
    arrived: list[tuple[str, str, int, str]] = []
    emitted: list[Row] = []
    for number, event in enumerate(events):
        match event:
            case "tick":
                now += 5
                stream = bolt.stream_ns = now
                bolt.on_tick(now)
                kept: Iterable[tuple[int, str]] = [
                    each for table in (bolt.bids, bolt.sales) for entries in table.values() for each in entries
                ]
                assert all(at >= now - within - late for at, _ in kept)
            case "restore":
                bolt = regrouped(bolt, Joined(bolt.join))
            case (source, article, offset):
                emitted += bolt.process(Batch(source, "default", [(article, now + offset, str(number))]))[
                    DEFAULT_STREAM
                ]
                if now + offset >= stream - late:
                    arrived.append((source, article, now + offset, str(number)))
    expected = [
        (article, who, other)
        for source, article, at, who in arrived
        for other_source, sold, sold_at, other in arrived
        if (source, other_source) == ("bids", "sales") and article == sold and abs(at - sold_at) <= within
    ]
    assert Counter(emitted) == Counter(expected)


LATE = -1
"""Begin of the window of all late words."""

TICK = 20


class Scattered(Spout):
    """Words with event times up to 50 records behind their own."""

    tick_ns = TICK * STEP_NS
    recorded = True

    def open(self, context: Context) -> None:
        self._index, self._of, self._position = context.index, context.parallelism, 0
        self.times = WordTimes(context.index, context.parallelism, STEP_NS)

    def next_batch(self, limit: int) -> Sequence[Row]:
        first, end = self._position, min(self._position + limit, 600)
        self._position = end
        return [scattered(number * self._of + self._index) for number in range(first, end)]

    def snapshot(self) -> bytes:
        return str(self._position).encode()

    def restore(self, state: bytes) -> None:
        self._position = int(state)

    def seek(self, position: int) -> None:
        self._position = position


def scattered(record: int) -> Row:
    """Return the row of a record."""
    return f"word {record % 7}", (record - record * 37 % 50) * STEP_NS


class LateToo(WindowedCount):
    """At the end it also emits the numbers of late words."""

    def on_end(self) -> Emitted:
        rows = [*super().on_end()[DEFAULT_STREAM], *((word, LATE, count) for word, count in self.late.items())]
        self.late.clear()
        return {DEFAULT_STREAM: rows}


class Collect(Bolt):
    answer_table = "windows"
    answer_schema: ClassVar = {"word": "str", "begin": "int", "count": "int"}

    rows = KeyedState(list[Row], merge=add)
    """Under one key in all executors, which is not that of the grouping."""

    def process(self, batch: Batch) -> Emitted:
        self.rows["all"] += batch.rows
        return NOTHING

    def answer(self) -> Iterable[Row]:
        return self.rows["all"]


class WindowedWords:
    """Words per window of their event time."""

    name, summary, paper, params = "windowed-words", "", "", None
    windows = EventTimeWindows(30 * STEP_NS, 10 * STEP_NS, late_ns=5 * STEP_NS)

    def topology(self) -> Topology:
        by_word = {"grouping": "fields", "fields": ("word",)}
        counted = {DEFAULT_STREAM: {"word": "str", "begin": "int", "count": "int"}}
        return Topology(
            self.name,
            (
                Component("read", "spout", 2, outputs={DEFAULT_STREAM: {"word": "str", "time": "int"}}),
                Component("count", "bolt", 3, outputs=counted, inputs=(Input("read", **by_word),)),  # type: ignore[arg-type]
                Component("collect", "bolt", 2, inputs=(Input("count", **by_word),)),  # type: ignore[arg-type]
            ),
        )

    def operator(self, component: str) -> Operator:
        return {"read": Scattered, "count": lambda: LateToo(self.windows), "collect": Collect}[component]()

    def prepare(self, folder: Path) -> Sequence[PreparedInput]:
        return ()

    def reference(self, positions: Sequence[int], inputs: Sequence[PreparedInput]) -> Answer:
        of, counts = len(positions), Counter[Any]()
        for index, position in enumerate(positions):
            for record in range(index, index + position * of, of):
                word, time = scattered(record)
                begins = plain_begins(self.windows, time, record // TICK * TICK * STEP_NS)
                counts.update((word, begin) for begin in begins or [LATE])
        return {"windows": [(*key, count) for key, count in counts.items()]}

    def compare(self, answer: Answer, reference: Answer) -> Verdict:
        differences = rows_differ(answer.get("windows", ()), reference["windows"], key_fields=2)
        return Verdict(not differences, len(reference["windows"]), "; ".join(differences))


@pytest.mark.parametrize("seed", [1, 2])
def test_windows_and_late_words_are_exact_under_kills_moves_and_scalings(seed: int, tmp_path: Path) -> None:
    workload: Any = WindowedWords()
    rate = {"kind": "constant", "tuples_per_s": 300}
    events, verdict = run_with_faults(workload, tmp_path, seed, rate, ("count", "collect"))
    assert verdict.passed, verdict.message
    assert events["checkpoint"]
    assert any(row[1] == LATE for row in workload.reference([99, 99], ())["windows"])


def test_the_stream_time_of_a_restored_bolt_is_that_of_its_last_tick() -> None:
    bolt = WindowedCount(EventTimeWindows(NS))
    bolt.stream_ns = 7 * NS
    state = OperatorState(bolt)
    whole, again, copy = WindowedCount(bolt.windows), WindowedCount(bolt.windows), WindowedCount(bolt.windows)
    OperatorState(whole).restore(state.snapshot())
    OperatorState(again).put(state.part([]))
    OperatorState(copy).absorb(state)
    assert [each.stream_ns for each in (whole, again, copy)] == [7 * NS] * 3
