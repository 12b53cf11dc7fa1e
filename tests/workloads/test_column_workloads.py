"""Column workloads give the same answers as row workloads, also with operators of both, under kills and moves."""

import random
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_workload import run_with_faults
from taxi_rows import row, write_rows

from inventory.errors import InputError
from workloads import columns as column_operators
from workloads.apps.top_n import ColumnRollingCount, RollingCount
from workloads.apps.wordcount_columns import ColumnCount, ColumnCountCombined
from workloads.arrays import batch_of, batch_rows
from workloads.columns import ColumnBatch, ColumnBolt, ColumnSpout
from workloads.data.text import MOST_CHARACTERS, MOST_EMITTED, ColumnLineSpout, LineSpout
from workloads.data.words import words_of
from workloads.operator_state import OperatorState
from workloads.operators import Batch, Context, Operator
from workloads.synthetic.columns import MOST_BYTES, ColumnGenerator, ColumnStage
from workloads.synthetic.operators import ROW, Generator, Stage, dealing
from workloads.topology import ACKER
from workloads.workload import load_workload

TEXT = "to be or not to be\n\nthat\tis the  question\x1cor é is\u2003it\n  to be \n" * 3
READINGS = "".join(
    f"{at},{1377986401 + at * 2},{at % 7 + at / 4},{at % 3 and 1},{at % 5},{at % 2},{at % 4}\n" for at in range(400)
)
"""Readings of smart plugs, for 27 ticks."""

CASES: Mapping[str, Mapping[str, Any]] = {
    "wordcount": {"parallelism": {"spout": 3, "split": 2, "count": 4}},
    "wordcount combined": {"parallelism": {"spout": 2, "split": 3, "count": 3}, "combine": True},
    "exclamation": {"parallelism": {"word": 3, "exclaim1": 2, "exclaim2": 2}},
    "top-n": {"parallelism": {"read": 3, "count": 2, "rank": 2, "merge": 1}, "n": 3, "slide_s": 0.05, "window_s": 0.2},
    "diamond": {"operators": 2, "tasks": 2, "cost_us": 0.0, "tuple_bytes": 20, "selectivity": 1.4},
    "smart-home": {"slices": [60, 120], "day_s": 360, "parallelism": {"source": 3, "house": 2, "plug": 3, "sink": 2}},
    "taxi": {"answer": "both", "parallelism": {"parse": 3, "route": 2, "count": 3, "rank": 2}},
    "random-dag": {"executors": 14, "layers": 3, "widest": 3, "cost_us": 0.0, "tuple_bytes": 3},
}
ELASTIC = {
    "wordcount": ("split", "count"),
    "exclamation": ("exclaim1",),
    "top-n": ("count",),
    "smart-home": ("house", "plug"),
    "taxi": ("route", "count", "rank"),
    "diamond": ("middle1", "sink"),
    "random-dag": ("c1-0",),
}
BY_ROWS = {"rank", "merge"}
"""Components that get a few rows per tick, and have no column operators."""

RATE = {"kind": "constant", "tuples_per_s": 600}
RATES = {"taxi": {"kind": "replay", "speedup": 9000}}
"""Rates other than `RATE`: recorded times, replayed so fast that several ticks are due at a time."""


class Mixed:
    """Workload that draws for each component whether its operators process rows or columns."""

    def __init__(self, name: str, params: Mapping[str, Any], draw: random.Random) -> None:
        self._of = {api: load_workload(name, {**params, "api": api}) for api in ("rows", "columns")}
        self._drawn: dict[str, str] = {}
        self._draw = draw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of["rows"], name)

    def operator(self, component: str) -> Operator:
        api = self._drawn.setdefault(component, self._draw.choice(["rows", "columns", "columns"]))
        return self._of[api].operator(component)


@pytest.mark.parametrize("case", CASES)
def test_answers_are_right_with_any_mixture_of_rows_and_columns_under_kills_moves_and_scalings(
    case: str, tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    (tmp_path / "readings.csv").write_text(READINGS)
    all_events: Counter[str] = Counter()
    name = case.split()[0]
    text = {"text": str(tmp_path / "text.txt"), "ackers": 0} if "parallelism" in CASES[case] else {}
    if name == "smart-home":
        text = {"input": str(tmp_path / "readings.csv")}
    if name == "taxi":
        trips = [row(60 + 9 * at, (at * at % 7 + 1, 1), (at % 5 + 1, at % 3 + 1)) for at in range(600)]
        text = {"input": str(write_rows(tmp_path / "trips.csv", trips))}
    for seed in range(1 if case in ("wordcount combined", "random-dag") else 2):
        workload: Any = Mixed(name, {**CASES[case], **text}, random.Random(seed))  # noqa: S311 - it must be repeatable
        # Without the patch, nearly all of the small batches of these runs would be rows.
        with mock.patch.object(column_operators, "rows_below", return_value=(0, 3)[seed % 2]):
            events, verdict = run_with_faults(workload, tmp_path / "inputs", seed, RATES.get(name, RATE), ELASTIC[name])
        assert verdict.passed, (seed, verdict.message)
        all_events += events
    assert all_events["checkpoint"]


@pytest.mark.parametrize("case", CASES)
def test_column_workloads_have_column_operators_with_the_topology_and_tables_of_row_workloads(case: str) -> None:
    rows, columns = (load_workload(case.split()[0], {**CASES[case], "api": api}) for api in ("rows", "columns"))
    assert rows.topology() == columns.topology()
    for component in set(rows.topology().component) - {ACKER} - BY_ROWS:
        assert not isinstance(rows.operator(component), ColumnBolt | ColumnSpout)
        operator = columns.operator(component)
        assert isinstance(operator, ColumnBolt | ColumnSpout)
        assert getattr(operator, "answer_table", "") == getattr(rows.operator(component), "answer_table", "")


@pytest.mark.parametrize("name", sorted({case.split()[0] for case in CASES} | {"taxi", "taxi-profit"}))
def test_sampled_rows_do_not_split_batches_of_shipped_bolts_with_outputs(name: str) -> None:
    workload = load_workload(name, {"api": "columns"})
    operators = [workload.operator(each.id) for each in workload.topology().components if each.outputs]
    bolts = [operator for operator in operators if isinstance(operator, ColumnBolt)]
    assert bolts
    assert all(bolt.derives for bolt in bolts)


LINES = st.lists(st.text(st.sampled_from("ab \t\n\x1c\x85\u2003é"), max_size=6) | st.text(max_size=6), max_size=8)


@given(LINES, st.integers(0, 3))
def test_words_are_those_of_python_with_their_lines(lines: list[str], before: int) -> None:
    words, parents = words_of(pa.array(["x y"] * before + lines, pa.string())[before:])
    words.validate(full=True)
    assert words.to_pylist() == [word for line in lines for word in line.split()]
    assert list(parents()) == [at for at, line in enumerate(lines) for _ in line.split()]


def test_words_do_not_depend_on_earlier_contents_of_memory() -> None:
    last = "a\x85\x85\x85\u2003\u2003"
    lines = ["a\x85a\x85", " \x85\x85\x85\u2003\u2003", " \x85\x85é\u2003\u2003", "aa\x85\x85", last, "", last]
    words = [word for line in lines for word in line.split()]
    for size in range(100):
        pa.array(["\u2003x" * size])
        assert words_of(pa.array(lines)).words.to_pylist() == words


def test_every_character_is_white_space_exactly_if_it_is_in_python() -> None:
    assert not any(chr(code).isspace() for code in range(1 << 16, sys.maxunicode + 1))
    # A few characters at a time: lines with white space beyond ASCII are split by other code.
    for start in range(0, 1 << 16, 32):
        some = [chr(code) for code in range(start, start + 32) if not 0xD800 <= code < 0xE000]
        lines = [f"a{character}a" for character in some]
        words, parents = words_of(pa.array(lines, pa.string()))
        assert words.to_pylist() == [word for line in lines for word in line.split()]
        assert list(parents()) == [at for at, line in enumerate(lines) for _ in line.split()]


@given(st.lists(st.lists(st.sampled_from(["to", "be", "é"]), min_size=1), max_size=6), st.booleans(), st.booleans())
def test_column_counts_and_their_snapshots_are_those_of_rows(
    batches: list[list[str]], encoded: bool, combined: bool
) -> None:
    kind = ColumnCountCombined if combined else ColumnCount
    count, changed = kind(), set[str]()
    OperatorState(count).track(changed)
    for words in batches:
        schema = {"word": "str", "count": "int"} if combined else {"word": "str"}
        batch = batch_of(schema, [(word, 1) if combined else (word,) for word in words])
        if encoded:
            columns = [batch.column(0).dictionary_encode(), *batch.columns[1:]]
            batch = pa.RecordBatch.from_arrays(columns, names=list(schema))
        count.process_columns(ColumnBatch("split", "default", batch))
    again = kind()
    OperatorState(again).restore(OperatorState(count).snapshot())
    expected = Counter(word for words in batches for word in words)
    assert dict(count.answer()) == dict(again.answer()) == expected
    assert changed == set(expected)


@given(st.lists(st.integers(1, 30), max_size=6), st.integers(1, 4), st.integers(0, 20))
def test_the_column_line_spout_emits_the_records_of_the_row_spout(
    tmp_path_factory: pytest.TempPathFactory, limits: list[int], parallelism: int, start: int
) -> None:
    folder = tmp_path_factory.mktemp("text")
    (folder / "text.txt").write_text("a\nb\n\nc d\ne\n")
    for index in range(parallelism):
        spouts = LineSpout(), ColumnLineSpout()
        for spout in spouts:
            spout.open(Context("spout", index, parallelism, inputs={"text": str(folder / "text.txt")}))
            spout.seek(start)
        for at, limit in enumerate(limits):
            expected = list(spouts[0].next_batch(limit))
            if at % 2:
                assert spouts[1].next_batch(limit) == expected
            else:
                assert [tuple(row.values()) for row in spouts[1].next_columns(limit).to_pylist()] == expected
        assert spouts[0].snapshot() == spouts[1].snapshot()


def test_long_lines_come_a_few_at_a_time_and_take_little_memory(tmp_path: Path) -> None:
    long = "\N{SNOWMAN} " * (MOST_CHARACTERS // 2)
    (tmp_path / "text.txt").write_text(f"a\n{long}\nb\n", encoding="utf-8")
    spouts = LineSpout(), ColumnLineSpout()
    for spout in spouts:
        spout.open(Context("spout", 0, 1, inputs={"text": str(tmp_path / "text.txt")}))
    for _ in range(5):
        columns = spouts[1].next_columns(4096)
        assert columns.num_rows > 0
        assert columns.nbytes <= MOST_EMITTED
        assert batch_rows(columns) == list(spouts[0].next_batch(columns.num_rows))
    assert spouts[0].snapshot() == spouts[1].snapshot()


def test_an_unknown_interface_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(InputError, match="api"):
        load_workload("wordcount", {"api": "column"})


@given(st.integers(0, 2**40), st.lists(st.integers(1, 300), min_size=1, max_size=4), st.sampled_from([0, 3, 40_000]))
def test_the_column_generator_emits_the_records_of_the_row_generator(start: int, limits: list[int], size: int) -> None:
    spouts = Generator(1, 2, size), ColumnGenerator(1, 2, size)
    for spout in spouts:
        spout.open(Context("source", 2, 3))
        spout.seek(start)
    for limit in limits:
        columns = spouts[1].next_columns(limit)
        assert columns.num_rows == min(limit, max(1, MOST_BYTES // max(1, size)))
        assert batch_rows(columns) == list(spouts[0].next_batch(columns.num_rows))
    assert spouts[0].snapshot() == spouts[1].snapshot()


@given(
    st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=40),
    st.sampled_from([1.0, 0.3, 2.6]),
    st.sampled_from([None, 0, 7]),
)
def test_a_column_stage_emits_the_rows_of_a_row_stage(
    records: list[int], selectivity: float, replaced: int | None
) -> None:
    rows = [(record, at, b"x" * at) for at, record in enumerate(records)]
    stages = [kind(0.0, dealing("stage", selectivity), replaced) for kind in (Stage, ColumnStage)]
    for stage in stages:
        stage._turns_per_row = 0.0
    expected = stages[0].process(Batch("source", "default", rows))["default"]
    found: Any = stages[1].process_columns(ColumnBatch("source", "default", batch_of(ROW, rows)))["default"]
    assert batch_rows(found.columns) == expected
    parents = range(len(rows)) if found.parents is None else found.parents().tolist()
    assert [rows[at][0] for at in parents] == [row[0] for row in expected]


@given(st.lists(st.lists(st.sampled_from("abcd"), max_size=6), max_size=9), st.integers(1, 3))
def test_a_column_rolling_count_is_that_of_rows(slides: list[list[str]], length: int) -> None:
    rows, columns = RollingCount(3, length), ColumnRollingCount(3, length)
    for at, words in enumerate(slides):
        given_rows = [(word,) for word in words]
        rows.process(Batch("read", "default", given_rows))
        columns.process_columns(ColumnBatch("read", "default", batch_of({"word": "str"}, given_rows)))
        assert OperatorState(rows).snapshot() == OperatorState(columns).snapshot()
        assert rows.on_tick(at) == columns.on_tick(at)
