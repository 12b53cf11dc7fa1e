"""Text on saturated sources: tuples due, tuples emitted, and the limit."""

import pytest

from analysis.page.notes import saturation_text
from analysis.statistics.metrics import Row, saturated_count

LATE = {"saturated": True, "due_tuples_per_s": 800.0, "source_tuples_per_s": 400.0, "worst_late_ms": 5200.0}
FINE = {"saturated": False, "due_tuples_per_s": 800.0, "source_tuples_per_s": 800.0, "worst_late_ms": 2.0}


def run(repetition: int, facts: Row, **changes: object) -> Row:
    defaults = {"run": f"r{repetition}", "repetition": repetition, "workload": "w", "scheduler": "even", "counts": True}
    return defaults | facts | changes


def tables(blocked: float | None) -> dict[str, list[Row]]:
    """Return tables of a spout with two executors, `blocked` of which wait on average; bolts do not count."""
    return {
        "components": [
            {"run": name, "component": "src", "role": "spout", "executors": 2} for name in ("r1", "r2", "r3")
        ]
        + [{"run": "r1", "component": "bolt", "role": "bolt", "executors": 4}],
        "busy": [{"run": name, "component": "src", "blocked_executors": blocked} for name in ("r1", "r2")]
        + [{"run": "r1", "component": "bolt", "blocked_executors": 4.0}]
        + [{"run": "r3", "component": "src", "blocked_executors": 0.0}],
    }


@pytest.mark.parametrize(
    ("blocked", "who"),
    [
        (1.8, "90 % of the time: under this placement it took no more."),
        (1.0, "50 % of the time: under this placement it took no more."),
        (0.6, "30 % of the time."),
        (0.1, "5 % of the time: the limit was in the sources themselves, whatever the placement of the others."),
    ],
)
def test_the_limit_is_the_topology_or_the_sources_by_the_time_that_sources_waited(blocked: float, who: str) -> None:
    words = saturation_text([run(1, LATE), run(2, LATE, source_tuples_per_s=410.0), run(3, FINE)], tables(blocked))
    assert words == (
        "in 2 of 3 runs the sources, or the topology behind them, fell behind: 800 tuples/s were due, "
        "400 to 410 were emitted, "
        f"the latest one 5.2 s after its time. They waited for the topology {who}"
    )


def test_what_was_not_measured_is_left_out() -> None:
    unknown = {"due_tuples_per_s": None, "source_tuples_per_s": None, "worst_late_ms": None}
    assert (
        saturation_text([run(1, LATE, **unknown)], tables(None))
        == "in 1 of 1 runs the sources, or the topology behind them, fell behind."
    )


def test_sources_that_kept_their_schedule_or_had_none_have_no_text() -> None:
    assert saturation_text([run(1, FINE), run(2, FINE, saturated=None)], tables(2.0)) == ""


def test_repetitions_are_counted_once_and_only_where_they_are_compared() -> None:
    rows = [
        run(1, LATE),
        run(1, LATE, scheduler="other"),
        run(2, FINE),
        run(2, LATE, scheduler="other"),
        run(3, LATE),
        run(4, LATE, counts=False),
        run(1, LATE, workload="v"),
    ]
    assert saturated_count(rows, "w", {"even", "other"}, {1, 2}) == 2
    assert saturated_count(rows, "w", {"even"}, {1, 2, 3, 4}) == 2
    assert saturated_count([run(1, FINE)], "w", {"even"}, {1}) == 0
    assert saturated_count([run(1, FINE, saturated=None)], "w", {"even"}, {1}) is None
