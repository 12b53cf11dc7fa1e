"""Latencies of nodes with clocks of their own: shown with their bound, and not shown where they are no larger."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.clocks import clock_notes, without_withheld
from analysis.results import Campaign, load_campaign


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, campaign_maker: Callable[..., Path]) -> Path:
    made = tmp_path_factory.mktemp("clocks") / "c"
    return campaign_maker(made, workloads=["exclamation"], repetitions=2, duration_s=1.0)


def apart(folder: Path, *bounds: float, withheld: tuple[str, ...] = ()) -> Campaign:
    """The campaign as if its first runs had had these bounds."""
    for run, bound in zip(load_campaign(folder).runs, bounds, strict=False):
        path = run.folder / "run.json"
        record: dict[str, Any] = json.loads(path.read_text())
        record["measured"].setdefault("latency_ms", {}).update(bound=bound, withheld=list(withheld))
        path.write_text(json.dumps(record))
    return load_campaign(folder)


def test_one_clock_for_all_is_not_worth_a_note(folder: Path) -> None:
    campaign = apart(folder, 0.0, 0.0)
    assert clock_notes(campaign) == []
    rows = [{"run": campaign.runs[0].id, "quantile": 0.5, "latency_ms": 0.0, "samples": 3}]
    assert without_withheld(campaign, rows) == rows


def test_the_bound_is_told_and_latencies_that_do_not_exceed_it_are_left_out(folder: Path) -> None:
    campaign = apart(folder, 0.25, 4.0, withheld=("p50",))
    ((subject, words),) = clock_notes(campaign)
    assert subject == "Clocks"
    assert "off by 0.25 to 4 ms" in words
    assert f"In 2 of {len(campaign.counted)} runs some latencies were no larger" in words
    first, second = (run.id for run in campaign.runs[:2])
    values = [(first, 0.3), (first, 0.2), (second, 4.0), (second, 4.1), (second, None)]
    rows = [{"run": run, "quantile": 0.5, "latency_ms": value, "samples": 3} for run, value in values]
    assert [row["latency_ms"] for row in without_withheld(campaign, rows)] == [0.3, None, None, 4.1, None]
