"""Changes of a timeline that ended in another part of the run than the one in which they were due."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.records.file_types import TimelineRecord
from analysis.records.interval_metrics import Window
from campaign.results.suspect_runs import checked_timeline
from campaign.runner.run_environment import CampaignConditions
from workloads.rates import Constant, Rate, Steps

WINDOWS = [Window(name="before", from_s=0, to_s=10), Window(name="after", from_s=20, to_s=30)]


TEN = Constant(10)


def edges_s(rate: Rate = TEN, stopped_s: float = 35.02, windows: list[Window] = WINDOWS) -> set[float]:
    """Return the edges of a run with a warm-up of 5 s and 30 s measured."""
    conditions = CampaignConditions("c", 5.0, 30.0, 30.0, (), None, 0.0, False, 1, False, None, windows, 0, "adaptive")
    return conditions.edges_s(rate, stopped_s)


def change(asked_s: float, ended_s: float | None) -> TimelineRecord:
    outcome = "failed" if ended_s is None else "done"
    return TimelineRecord(do="scale", asked_s=asked_s, began_s=ended_s, ended_s=ended_s, outcome=outcome)  # type: ignore[arg-type]


def test_edges_are_those_of_the_measured_interval_its_windows_and_steps_of_the_rate() -> None:
    assert edges_s() == {5.0, 15.0, 25.0, 35.0}
    assert edges_s(windows=[]) == {5.0, 35.0}
    assert edges_s(Steps(((0.0, 1.0), (18.0, 2.0))), windows=[]) == {5.0, 18.0, 35.0}


def test_sources_that_ended_early_end_the_last_part() -> None:
    assert edges_s(stopped_s=22.5) == {5.0, 15.0, 22.5}
    assert edges_s(stopped_s=3.0) == {3.0}


@pytest.mark.parametrize(
    ("asked_s", "ended_s", "reason"),
    [
        (2.0, 4.9, ""),
        (2.0, 5.1, "it was done at 5.1 s, and had to be before 5 s"),
        (5.0, 14.0, ""),
        (14.0, 15.5, "it was done at 15.5 s, and had to be before 15 s"),
        (15.0, 24.0, ""),
        (16.0, 26.0, "it was done at 26 s, and had to be before 25 s"),
        (30.0, 35.5, "it was done at 35.5 s, and had to be before 35 s"),
        (35.0, 35.5, "the sources had ended"),
    ],
)
def test_a_change_is_in_time_if_it_ends_before_the_next_edge(asked_s: float, ended_s: float, reason: str) -> None:
    (found,) = checked_timeline([change(asked_s, ended_s)], edges_s())
    assert (found.outcome, found.reason) == ("late" if reason else "done", reason)


seconds = st.floats(0, 40)


@given(edges=st.sets(seconds, min_size=1), asked_s=seconds, took_s=st.none() | seconds)
def test_a_change_is_done_in_time_if_and_only_if_no_edge_lies_between(
    edges: set[float], asked_s: float, took_s: float | None
) -> None:
    event = change(asked_s, None if took_s is None else asked_s + took_s)
    (found,) = checked_timeline([event], edges)
    if event.ended_s is None:
        assert found == event
    else:
        next_s = min((edge for edge in edges if edge > asked_s), default=-inf)
        assert (found.outcome == "done") == (event.ended_s <= next_s)
