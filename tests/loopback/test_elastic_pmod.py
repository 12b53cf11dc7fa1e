"""`pmod` in a run that grows from four tasks to five on six nodes, loses a node and gets it back."""

import json
from pathlib import Path
from typing import Any

import pytest
from pmod_growth import AGENDA, NODES, check_changes_of_schedules, check_run, check_steps_and_moves

from analysis.records.campaign import load_campaign

pytestmark = [pytest.mark.loopback, pytest.mark.long]


@pytest.fixture(scope="module")
def elastic(shared_workspace: Any) -> Path:
    """Folder of the run."""
    nodes = [{"id": name, "address": f"127.0.0.{at}", "slots": 2} for at, name in enumerate(NODES, 2)]
    (shared_workspace.folder / "six.json").write_text(json.dumps({"nodes": nodes}))
    outcome = shared_workspace.run("run", shared_workspace.agenda(inventory="six.json", **AGENDA))
    assert outcome.status == 0, outcome
    ((name, run),) = shared_workspace.results().items()
    check_run(run)
    folder: Path = shared_workspace.campaign / "runs" / name
    return folder


def test_steps_are_those_of_the_paper_and_only_executors_of_a_lost_node_move(elastic: Path) -> None:
    check_steps_and_moves(elastic)


def test_schedules_change_at_the_end_of_a_round_and_begin_with_their_first_step(elastic: Path) -> None:
    check_changes_of_schedules(elastic)


def test_the_growth_of_the_paper_grows_and_gets_its_schedule_before_it_is_judged(workspace: Any) -> None:
    """Sources are as fast as they can be, and rows wait for their step: barriers must not wait behind all queues."""
    folder = workspace.folder / "grown"
    outcome = workspace.run(
        "run", "papers/pmod/small/growth", "--repetitions", "1", "--only", "scheduler=pmod", "--out", str(folder)
    )
    assert outcome.status == 0, outcome
    (path,) = folder.glob("*/latest/runs/*/run.json")
    run = json.loads(path.read_text())
    check_run(run)
    (growth,) = run["timeline"]
    after_s = next(window["from_s"] for window in run["measured"]["windows"] if window["name"] == "after")
    judged_s = 2 + after_s
    assert (growth["outcome"], growth["ended_s"] < judged_s) == ("done", True), growth
    assert {each["component"]: each["after"] for each in run["measured"]["scalings"]} == {
        "spout": 5,
        "split": 5,
        "count": 5,
    }
    (schedule,) = [each for each in run["measured"]["revisions"] if each["outcome"] == "done"]
    assert (schedule["reason"], schedule["ended_s"] < judged_s) == ("schedule", True), schedule
    assert len(load_campaign(path.parents[2]).counted) == 1
