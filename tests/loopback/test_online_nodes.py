"""Nodes that join and leave by the timeline while a topology runs, with and without an online scheduler."""

from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from decision_log import FAST_ONLINE, decisions, nodes_over_time, outcomes

pytestmark = [pytest.mark.loopback, pytest.mark.long]

UP_S, DOWN_S = 5.0, 9.0
SCHEDULERS = ("even", "matrix", "sample-silent")
EXECUTORS = {f"{name}[{at}]" for name in ("spout", "split", "count") for at in (0, 1)}


@pytest.fixture(scope="module")
def raced(shared_workspace: Any, sample_plugin: Path) -> Any:
    """Workspace with a finished campaign: n2 joins, then n1 leaves, under a static and two online schedulers."""
    shared_workspace.packages.append(sample_plugin)
    timeline = [
        {"at_s": UP_S, "do": "node_up", "node": "n2"},
        {"at_s": DOWN_S, "do": "node_down", "node": "n1"},
    ]
    schedulers: list[Any] = ["even", *({"name": name, "online": FAST_ONLINE} for name in SCHEDULERS[1:])]
    agenda = shared_workspace.agenda(duration_s=14, checkpoint_s=1, schedulers=schedulers, timeline=timeline)
    outcome = shared_workspace.run("run", agenda)
    assert outcome.status == 0, outcome
    assert not shared_workspace.processes()
    assert not list(shared_workspace.temporary.iterdir())
    return shared_workspace


def run_of(workspace: Any, scheduler: str) -> tuple[Path, dict[str, Any]]:
    name = f"{SCHEDULERS.index(scheduler) + 1:03}-wordcount-{scheduler}-r1"
    return workspace.campaign / "runs" / name, workspace.results()[name]


def events(folder: Path) -> list[tuple[str, str]]:
    """Return kind and subject of the timeline's events."""
    rows = pyarrow.parquet.read_table(folder / "traces" / "event.parquet").to_pylist()
    return [(row["kind"], row["subject"]) for row in rows if row["kind"].startswith("timeline_")]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_node_is_unused_until_it_joins_and_empty_after_it_has_left(raced: Any, scheduler: str) -> None:
    folder, run = run_of(raced, scheduler)
    assert (run["status"], run["verification"]["status"], run["attempt"]) == ("ok", "passed", 1)
    assert run["measured"]["recoveries"] == []
    assert events(folder) == [("timeline_node_up", "n2"), ("timeline_node_down", "n1")]
    nodes_of = nodes_over_time(folder, run)
    assert nodes_of.keys() == EXECUTORS
    moves = run["measured"]["moves"]
    last = {move["executor"]: move for move in moves}
    assert last.keys() == EXECUTORS
    for name, rows in nodes_of.items():
        assert {node for at_s, node in rows if at_s < UP_S} == {"n1"}
        assert last[name]["to"].startswith("n2/")
        assert rows[-1][1] == "n2"
        assert last[name]["at_s"] >= UP_S
    empty_s = max(move["at_s"] for move in last.values())
    assert empty_s >= DOWN_S
    # The agent keeps running, and samples its node to the end.
    rows = pyarrow.parquet.read_table(folder / "traces" / "cpu.parquet").to_pylist()
    sampled = max(row["t_ns"] for row in rows if row["node"] == "n1")
    assert (sampled - run["times"]["source_start_ns"]) / 1e9 > empty_s + 1


def test_the_runtime_moves_executors_off_a_node_in_a_static_run(raced: Any) -> None:
    folder, run = run_of(raced, "even")
    assert (outcomes(run), (folder / "decisions.jsonl").exists()) == ([], False)
    assert all(move["at_s"] >= DOWN_S and move.get("revision") is None for move in run["measured"]["moves"])


@pytest.mark.parametrize("scheduler", SCHEDULERS[1:])
def test_an_online_scheduler_is_shown_the_nodes_that_it_may_use(raced: Any, scheduler: str) -> None:
    folder, run = run_of(raced, scheduler)
    observations = [each["observation"] for each in decisions(folder)]
    assert observations
    for observation in observations:
        if min(abs(observation["at_s"] - at_s) for at_s in (UP_S, DOWN_S)) < 0.3:
            continue  # at the time of the change, both are possible
        available = {name for name, node in observation["nodes"].items() if node.get("available", True)}
        expected = {"n1"} if observation["at_s"] < UP_S else {"n1", "n2"} if observation["at_s"] < DOWN_S else {"n2"}
        assert available == expected, observation["at_s"]
    changes = {(change["kind"], change["node"]) for observation in observations for change in observation["changes"]}
    assert {("node_up", "n2"), ("node_down", "n1")} <= changes
    moved = {move["revision"] for move in run["measured"]["moves"]}
    assert moved == {each["number"] for each in run["measured"]["revisions"] if each["outcome"] == "done"}


def test_a_scheduler_empties_the_node_itself_at_once(raced: Any) -> None:
    _, run = run_of(raced, "matrix")
    emptied = [each for each in run["measured"]["revisions"] if each["outcome"] == "done"][-1]
    # A window of a second after settling; on a busy host a report may be late.
    assert DOWN_S <= emptied["at_s"] < DOWN_S + 5
    assert "by the runtime" not in emptied["text"]


def test_the_runtime_empties_the_node_when_the_scheduler_returns_no_revision(raced: Any) -> None:
    folder, run = run_of(raced, "sample-silent")
    assert [each["answer"]["revision"] for each in decisions(folder)] == [None] * len(decisions(folder))
    (emptied,) = [each for each in run["measured"]["revisions"] if each["outcome"] != "no"]
    assert (emptied["outcome"], emptied["moves"], emptied["cpu_s"]) == ("done", 6, None)
    assert "moved by the runtime" in emptied["text"]
