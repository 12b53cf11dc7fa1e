"""Tuples due, in traces of a run in which a source is added, removed, and added again."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.collected_traces import collect
from agents.trace import TraceWriter
from analysis.measure.covered import rising_totals
from analysis.measure.run_series import RunSeries
from inventory.times import NS

START, SECONDS = 10**12, 40
ADDED = (range(10, 20), range(30, 40))
"""Seconds in which there are two sources of 1000 tuples per second in all."""


def trace(folder: Path) -> Path:
    out = TraceWriter(folder, "r", "n1", 0)
    levels = [0, 0]
    for second in range(SECONDS):
        both = any(second in times for times in ADDED)
        if both and second in (10, 30):
            levels[1] = 0
        levels = [levels[0] + (500 if both else 1000), levels[1] + 500]
        for index in range(1 + both):
            row = (f"src[{index}]", "src", "spout", 500 if both else 1000, 0, 0, levels[index], 0)
            out.add("throughput", START + (second + 1) * NS, *row, None)
    out.close()
    collect([folder], folder / "parquet")
    return folder / "parquet"


def test_as_many_tuples_are_due_with_any_number_of_sources(tmp_path: Path) -> None:
    series = RunSeries(trace(tmp_path), (), {"n1": 0}, START)
    due = series.bins(0, SECONDS).due
    assert due is not None
    # A source that is added spreads its first second over two.
    assert [round(float(each)) for each in due[:9]] == [1000] * 9
    assert sum(due) == pytest.approx(1000 * SECONDS)
    assert due.max() <= 1250


@given(st.lists(st.integers(0, 10**9), max_size=30))
def test_totals_never_fall_and_equal_rising_levels(levels: list[int]) -> None:
    totals = rising_totals(levels)
    assert totals == sorted(totals)
    assert rising_totals(sorted(levels)) == sorted(levels)


def test_totals_continue_when_the_level_of_an_added_source_restarts() -> None:
    assert rising_totals([5, 9, 8, 10, 1, 2, 2, 0, 3]) == [5, 9, 9, 10, 11, 12, 12, 12, 15]
