"""What a real run measured goes back to schedulers: its traffic to `place`, its observation to `revise`."""

import json
from pathlib import Path
from typing import Any

import pytest

from inventory.documents import dump_yaml
from workloads.workload import load_workload

pytestmark = [pytest.mark.loopback, pytest.mark.long]

STILL, MOVED = "001-still-even-r1", "002-moved-even-r1"
TUPLES_PER_S = 300
PARAMS = {"workers": 2, "ackers": 0, "parallelism": {"spout": 2, "split": 2, "count": 2}}


@pytest.fixture(scope="module")
def raced(shared_workspace: Any) -> Any:
    """A workspace with a finished campaign of two runs, of which the second has a move, and the topology file."""
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


def written(workspace: Any, *words: str) -> dict[str, Any]:
    outcome = workspace.run(*words, "--output", "written.json")
    assert (outcome.status, outcome.out) == (0, ""), outcome
    document: dict[str, Any] = json.loads((workspace.folder / "written.json").read_text())
    return document


def printed(workspace: Any, *words: str) -> dict[str, Any]:
    outcome = workspace.run(*words, "--cluster", "two.yaml", "--topology", "topology.yaml", "--json")
    assert outcome.status == 0, outcome
    document: dict[str, Any] = json.loads(outcome.out)
    return document


def rates(document: dict[str, Any], source: str) -> float:
    """All tuples per second that the executors of a component sent."""
    edges = document.get("traffic", document)["edges"]
    return sum(edge["tuples_per_s"] for edge in edges if edge["from"].startswith(source))


def test_online_schedulers_place_by_the_traffic_of_a_run(raced: Any) -> None:
    run = raced.results()[STILL]
    found = written(raced, "traffic", "results/short/latest", "--run", STILL)
    assert rates(found, "spout") == pytest.approx(TUPLES_PER_S, rel=0.05)
    seconds = (run["times"]["measure_end_ns"] - run["times"]["measure_start_ns"]) / 1e9
    counted = sum(run["measured"]["hops"].values()) / seconds
    assert sum(edge["tuples_per_s"] for edge in found["edges"]) == pytest.approx(counted, rel=0.02)
    executors = {f"{name}[{at}]" for name in ("spout", "split", "count") for at in (0, 1)}
    assert found["load"].keys() == executors
    assert all(0 < load < 100 for load in found["load"].values())
    assert found["node_load"].keys() == {"n1", "n2"}
    for scheduler in ("t-storm", "p-scheduler", "aniello-online"):
        placed = printed(raced, "place", "--scheduler", scheduler, "--traffic", "written.json")
        assert placed["topologies"]["wordcount"]["status"] == "placed"
        assert placed["cost"]["inter_node_tuples_per_s"] is not None


def test_an_online_scheduler_revises_by_the_observation_of_a_run(raced: Any) -> None:
    run = str(Path("results/short/latest/runs") / STILL)
    seen = written(raced, "observe", run, "--at", "5", "--window", "3")
    assert (seen["at_s"], seen["since_s"], seen["complete"], seen["missing"]) == (5, 2, True, [])
    assert rates(seen, "spout") == pytest.approx(TUPLES_PER_S, rel=0.05)
    assert seen["source"]["due_per_s"] == pytest.approx(TUPLES_PER_S, rel=0.05)
    assert seen["sink"]["p50_ms"] > 0
    for name, node in seen["nodes"].items():
        loads = sum(each["load"] for each in seen["executors"].values() if each["node"] == name)
        cores = {"n1": 2, "n2": 4}[name]
        assert loads / (100 * cores) + node["base"] == pytest.approx(node["load"], rel=0.05)
    decision = printed(raced, "revise", "--scheduler", "i-scheduler", "--observation", "written.json")
    assert (decision["at_s"], decision["details"]["cut"]["now"]) == (5, pytest.approx(_cut(seen), rel=0.01))


def _cut(seen: dict[str, Any]) -> float:
    """Tuples per second between nodes."""
    at = {name: each["node"] for name, each in seen["executors"].items()}
    return sum(e["tuples_per_s"] for e in seen["traffic"]["edges"] if at[e["from"]] != at[e["to"]])


def test_a_window_begins_after_the_move_of_a_run_and_has_the_new_place(raced: Any) -> None:
    seen = written(raced, "observe", "results/short/latest", "--run", MOVED)
    (move,) = raced.results()[MOVED]["measured"]["moves"]
    assert seen["since_s"] == pytest.approx(move["at_s"] + 2, abs=0.2)
    count = seen["executors"]["count[0]"]
    assert (f"{count['node']}/{count['slot']}", seen["version"]) == (move["to"], 1)
    assert rates(seen, "spout") == pytest.approx(TUPLES_PER_S, rel=0.05)
