"""Measurements of a real run as inputs of schedulers: traffic for `place`, an observation for `revise`."""

import json
from pathlib import Path
from typing import Any

import pytest

from inventory.documents import dump_yaml
from workloads.workload import load_workload

pytestmark = [pytest.mark.loopback, pytest.mark.long]

WITHOUT_MOVE, WITH_MOVE = "001-still-even-r1", "002-moved-even-r1"
TUPLES_PER_S = 300
PARAMS = {"workers": 2, "ackers": 0, "parallelism": {"spout": 2, "split": 2, "count": 2}}


@pytest.fixture(scope="module")
def raced(shared_workspace: Any) -> Any:
    """Workspace with a topology file and a finished campaign of two runs, the second with a move."""
    topology = load_workload("wordcount", PARAMS).topology()
    (shared_workspace.folder / "topology.yaml").write_text(dump_yaml(topology))
    rate = {"kind": "constant", "tuples_per_s": TUPLES_PER_S}
    workloads = [{"name": "wordcount", "label": each, "params": PARAMS, "rate": rate} for each in ("still", "moved")]
    timeline = [{"at_s": 0.7, "do": "move", "executor": "count[0]", "to": "n2/1", "workload": "moved"}]
    agenda = shared_workspace.agenda(
        warmup_s=1, duration_s=5, workloads=workloads, schedulers=["even"], timeline=timeline
    )
    outcome = shared_workspace.run("run", agenda)
    assert outcome.status == 0, outcome
    return shared_workspace


def written(workspace: Any, *arguments: str) -> dict[str, Any]:
    outcome = workspace.run(*arguments, "--output", "written.json")
    assert (outcome.status, outcome.out) == (0, ""), outcome
    document: dict[str, Any] = json.loads((workspace.folder / "written.json").read_text())
    return document


def printed(workspace: Any, *arguments: str) -> dict[str, Any]:
    outcome = workspace.run(*arguments, "--cluster", "two.yaml", "--topology", "topology.yaml", "--json")
    assert outcome.status == 0, outcome
    document: dict[str, Any] = json.loads(outcome.out)
    return document


def rates(document: dict[str, Any], source: str) -> float:
    """Return the tuples per second that the executors of a component sent."""
    edges = document.get("traffic", document)["edges"]
    return sum(edge["tuples_per_s"] for edge in edges if edge["from"].startswith(source))


def test_online_schedulers_place_by_the_traffic_of_a_run(raced: Any) -> None:
    run = raced.results()[WITHOUT_MOVE]
    traffic = written(raced, "traffic", "results/short/latest", "--run", WITHOUT_MOVE)
    assert rates(traffic, "spout") == pytest.approx(TUPLES_PER_S, rel=0.05)
    seconds = (run["times"]["measure_end_ns"] - run["times"]["measure_start_ns"]) / 1e9
    counted = sum(run["measured"]["hops"].values()) / seconds
    assert sum(edge["tuples_per_s"] for edge in traffic["edges"]) == pytest.approx(counted, rel=0.02)
    executors = {f"{name}[{at}]" for name in ("spout", "split", "count") for at in (0, 1)}
    assert traffic["load"].keys() == executors
    assert all(0 < load < 100 for load in traffic["load"].values())
    assert traffic["node_load"].keys() == {"n1", "n2"}
    for scheduler in ("t-storm", "p-scheduler", "aniello-online"):
        placed = printed(raced, "place", "--scheduler", scheduler, "--traffic", "written.json")
        assert placed["topologies"]["wordcount"]["status"] == "placed"
        assert placed["cost"]["inter_node_tuples_per_s"] is not None


def test_an_online_scheduler_revises_by_the_observation_of_a_run(raced: Any) -> None:
    run = str(Path("results/short/latest/runs") / WITHOUT_MOVE)
    found = written(raced, "observe", run, "--at", "5", "--window", "3")
    assert (found["at_s"], found["since_s"], found["complete"], found["missing"]) == (5, 2, True, [])
    assert rates(found, "spout") == pytest.approx(TUPLES_PER_S, rel=0.05)
    assert found["source"]["due_per_s"] == pytest.approx(TUPLES_PER_S, rel=0.05)
    assert found["sink"]["p50_ms"] > 0
    for name, node in found["nodes"].items():
        loads = sum(each["load"] for each in found["executors"].values() if each["node"] == name)
        cores = {"n1": 2, "n2": 4}[name]
        assert loads / (100 * cores) + node["base"] == pytest.approx(node["load"], rel=0.05)
    decision = printed(raced, "revise", "--scheduler", "i-scheduler", "--observation", "written.json")
    assert (decision["at_s"], decision["details"]["cut"]["now"]) == (5, pytest.approx(_cut(found), rel=0.01))


def _cut(observation: dict[str, Any]) -> float:
    """Return the tuples per second between nodes."""
    node_of = {name: each["node"] for name, each in observation["executors"].items()}
    return sum(e["tuples_per_s"] for e in observation["traffic"]["edges"] if node_of[e["from"]] != node_of[e["to"]])


def test_a_window_begins_after_the_move_of_a_run_and_has_the_new_place(raced: Any) -> None:
    found = written(raced, "observe", "results/short/latest", "--run", WITH_MOVE)
    (move,) = raced.results()[WITH_MOVE]["measured"]["moves"]
    assert found["since_s"] == pytest.approx(move["at_s"] + 2, abs=0.2)
    count = found["executors"]["count[0]"]
    assert (f"{count['node']}/{count['slot']}", found["version"]) == (move["to"], 1)
    assert rates(found, "spout") == pytest.approx(TUPLES_PER_S, rel=0.05)
