"""Screen of `millrace top`: content, order, and the limits of the terminal's size."""

import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.console import Console

from campaign.display.top_view import SORTS, screen, snapshot
from campaign.results.live_file import CampaignCondition, LiveFile, Watched
from controller.coordinator.event_log import LIVE_DECISIONS, LiveDecision
from controller.coordinator.live_metrics import ExecutorFlow, FlowDocument, HopFlow, NodeFlow


def flow(count: int, nodes: int = 3) -> FlowDocument:
    executors = tuple(
        ExecutorFlow(f"split[{at}]", f"n{at % nodes}", 0, 10.0 * at, 1.0, count - at, 0.01 * (at % 7), 0.0, None)
        for at in range(count)
    )
    traffic = tuple(
        HopFlow(hop="inter_node", source=f"n{a}", target=f"n{b}", tuples_per_s=100.0 * a + b, bytes_per_s=4321.0)
        for a in range(nodes)
        for b in range(nodes)
        if a != b
    )
    return FlowDocument(executors, traffic, tuple(NodeFlow(f"n{at}", 0.5, {0: 0.25}) for at in range(nodes)), None)


def decisions(count: int) -> tuple[LiveDecision, ...]:
    """Return decisions, newest first: every third one moves executors, the newest is under way."""
    return tuple(
        LiveDecision(
            number=number,
            at_s=5.0 * number,
            decided_s=0.125,
            reason="" if number % 3 else "cut",
            outcome=None if number == count else "no" if number % 3 else "abandoned",
            message="" if number % 3 else "x" * 300,
            moves=0 if number % 3 else 37,
        )
        for number in range(count, 0, -1)
    )


def watched(
    found: FlowDocument | None, condition: CampaignCondition = CampaignCondition.RUNNING, **changes: Any
) -> Watched:
    live = replace(LiveFile("race", 4, 1, 10.0).record(), **{"flow": found, "stage": "measuring", **changes})
    return Watched(Path("results/race/latest"), condition, live, 0.0)


def drawn(shown: Any, width: int = 200) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, no_color=True).print(shown)
    return [line.rstrip() for line in out.getvalue().splitlines()]


@given(
    st.integers(20, 220),
    st.integers(8, 80),
    st.integers(0, 60),
    st.integers(1, 9),
    st.sampled_from(sorted(SORTS)),
    st.integers(0, LIVE_DECISIONS),
)
def test_a_screen_fits_every_terminal(width: int, height: int, count: int, nodes: int, sort: str, decided: int) -> None:
    lines = drawn(
        screen(watched(flow(count, nodes), decisions=decisions(decided), overloaded_nodes=0), sort, width, height),
        width,
    )
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    if width >= 60:
        assert "quit" in lines[-1]


@pytest.mark.parametrize(("sort", "first"), [("r", "split[29]"), ("u", "split[0]"), ("b", "split[6]")])
def test_keys_sort_by_their_column(sort: str, first: str) -> None:
    lines = drawn(screen(watched(flow(30)), sort, 100, 30), 100)
    at = next(at for at, line in enumerate(lines) if line.startswith("executor"))
    assert lines[at + 1].split()[0] == first


def test_executors_that_do_not_fit_are_counted() -> None:
    lines = drawn(screen(watched(flow(50)), "r", 80, 24), 80)
    shown = [line for line in lines if line.startswith("split")]
    assert f"{50 - len(shown)} more" in lines


def test_a_wide_terminal_has_nodes_beside_executors() -> None:
    lines = drawn(screen(watched(flow(20)), "r", 140, 40), 140)
    (head,) = [line for line in lines if line.startswith("executor")]
    assert "between nodes" in head


def test_a_snapshot_has_everything() -> None:
    lines = drawn(snapshot(watched(flow(50, 9))))
    assert sum(line.startswith("split") for line in lines) == 50
    assert sum("->" in line for line in lines) == 72
    assert sum(line.startswith("n") and "0: 0.25" in line for line in lines) == 9


def test_unknown_values_are_a_dash_and_never_0() -> None:
    unknown = FlowDocument(
        (ExecutorFlow("split[0]", "n1", 0, None, None, None, None, None, None),), (), (NodeFlow("n1", None, {}),), None
    )
    lines = drawn(snapshot(watched(unknown)))
    assert [line.split() for line in lines if line.startswith("split")] == [["split[0]", "n1/0", *["-"] * 6]]
    assert ["n1", "-"] in [line.split() for line in lines]


@pytest.mark.parametrize(
    ("workers", "others", "words"),
    [(2, 0, "workers 2"), (2, 3, "workers at least 2"), (0, 0, "workers 0"), (None, 4, "workers not known")],
)
def test_overloaded_workers_are_shown_beside_overloaded_nodes(workers: int | None, others: int, words: str) -> None:
    counted = {"overloaded_workers": workers, "undetermined_workers": others}
    lines = drawn(snapshot(watched(flow(3, 2), overloaded_nodes=1, **counted)))
    assert any(line.endswith(f"; placed with overloaded nodes 1, {words}") for line in lines)


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (CampaignCondition.SILENT, "no update for 0 s"),
        (CampaignCondition.DIED, "Continue with: millrace run --resume results/race/latest"),
        (CampaignCondition.ENDED, "the campaign has ended; results: results/race/latest"),
    ],
)
def test_the_condition_of_the_campaign_is_shown(condition: CampaignCondition, words: str) -> None:
    assert any(words in line for line in drawn(snapshot(watched(None, condition))))


def test_a_campaign_without_a_state_is_preparing() -> None:
    preparing = Watched(Path("results/race/x"), CampaignCondition.PREPARING, None, 0.0)
    assert any("preparing" in line for line in drawn(snapshot(preparing)))
    assert any("preparing" in line for line in drawn(screen(preparing, "r", 80, 24)))


def test_the_time_of_the_report_stage_continues_between_updates() -> None:
    live = watched(None, stage="reporting", stage_elapsed_s=0.0)._replace(age_s=17.0)
    assert any("reporting" in line and "17 s" in line for line in drawn(snapshot(live)))


@pytest.mark.parametrize(("width", "height"), [(80, 24), (140, 40)])
def test_decisions_are_shown_newest_first_in_a_quarter_of_the_lines(width: int, height: int) -> None:
    lines = drawn(screen(watched(flow(50), decisions=decisions(20)), "r", width, height), width)
    shown = [line for line in lines if line.startswith("decision")]
    assert 4 <= len(shown) <= height // 4
    assert shown[0] == "decision 20 at 100.0 s, after 0.12 s: under way"
    assert shown[1] == "decision 19 at 95.0 s, after 0.12 s: no"
    assert shown[2].startswith("decision 18 at 90.0 s, after 0.12 s: cut, 37 moves, abandoned: xxx")
    assert shown[2].endswith("…")
    whole = drawn(snapshot(watched(flow(50), decisions=decisions(20))))
    assert sum(line.startswith("decision") for line in whole) == 20


def test_without_decisions_there_is_no_line_of_them() -> None:
    for shown in (screen(watched(flow(5)), "r", 80, 24), snapshot(watched(flow(5)))):
        assert not any("decision" in line for line in drawn(shown))
