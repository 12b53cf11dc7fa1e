"""`pmod` in a run that grows from four tasks to five on six nodes, loses a node and gets it back."""

import json
from pathlib import Path
from typing import Any

import pytest
from pmod_growth import AGENDA, NODES, check_changes_of_schedules, check_run, check_steps_and_moves

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
