"""`millrace revise`: decisions from files, and the errors of those files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from observed_rounds import SKEWED_RATES, SPREAD_PLACEMENT, chain, nodes, observed, past_revision

from campaign.commands.main import run
from inventory.cluster import ExistingWorker
from inventory.documents import dump_json, dump_yaml
from scheduler.online.observation import Observation, observation_json


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("cluster.yml").write_text(dump_yaml(nodes()))
    Path("topology.yml").write_text(dump_yaml(chain()))
    Path("first.json").write_text(observation_json(observed(60)))
    Path("second.json").write_text(observation_json(observed(70, history=[past_revision(61)])))
    return tmp_path


def revise(*arguments: str, scheduler: str = "aniello-online") -> int:
    return run(
        ["revise", "--cluster", "cluster.yml", "--topology", "topology.yml", "--scheduler", scheduler, *arguments]
    )


def test_one_scheduler_decides_on_all_observations_in_order(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert revise("--observation", "first.json", "--observation", "second.json", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    first, second = document
    assert (first["scheduler"], first["params"]["traffic_improvement"]) == ("aniello-online", 10)
    assert (first["at_s"], first["revision"]["reason"], first["revision"]["expects"]["cut"]) == (60, "cut", 90)
    assert first["revision"]["moves"] == [
        {"topology": "t", "executor": "b[0]", "from": {"node": "n1", "slot": 0}, "to": {"node": "n2", "slot": 0}},
        {"topology": "t", "executor": "b[1]", "from": {"node": "n2", "slot": 0}, "to": {"node": "n1", "slot": 0}},
    ]
    assert first["revision"]["expects"] == {"cut": 90, "load": {"n1": 0.075, "n2": 0.075, "n3": 0}, "watts": None}
    assert {*first["revision"]} == {
        *("reason", "moves", "parallelism", "added", "frequencies_hz", "schedule", "wave", "expects"),
    }
    assert first["details"]["cut"] == {"now": 310, "plan": 90}
    assert first["details"]["trigger"]["name"] == "gain_percent"
    assert first["details"]["moves_before_renaming"] == 2
    assert (second["revision"], second["text"]) == (None, "the last revision was 9 s ago")
    assert second["details"]["trigger"] == {"name": "every_s", "value": 9, "threshold": 180}


def bare(**executors: Any) -> dict[str, Any]:
    """Return an observation with only the keys that a file must have."""
    rates = [{"from": a, "to": b, "tuples_per_s": rate} for (a, b), rate in SKEWED_RATES.items()]
    return {"at_s": 60, "traffic": {"edges": rates}, "executors": executors, "nodes": {}}


def existing(places: Mapping[str, str]) -> None:
    """Write a cluster file in which executors run in these places."""
    workers: dict[str, list[str]] = {}
    for name, place in places.items():
        workers.setdefault(place, []).append(name)
    running = [
        ExistingWorker("t", place.split("/")[0], int(place.split("/")[1]), tuple(names))
        for place, names in workers.items()
    ]
    Path("cluster.yml").write_text(dump_yaml(replace(nodes(capacity=None), existing=tuple(running))))


def test_the_current_placement_may_be_in_the_cluster_file_alone(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    existing(SPREAD_PLACEMENT)
    Path("bare.json").write_text(json.dumps(bare(**{name: {"load": 10} for name in SPREAD_PLACEMENT})))
    assert revise("--observation", "bare.json", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [(move["executor"], move["from"]["node"]) for move in found["revision"]["moves"]] == [
        ("b[0]", "n1"),
        ("b[1]", "n2"),
    ]
    existing({name: place for name, place in SPREAD_PLACEMENT.items() if name != "k[0]"})
    assert revise("--observation", "bare.json") == 2
    assert "bare.json:1: executors.k[0]: runs nowhere: it has no 'node', and no worker" in capsys.readouterr().err


def test_a_topology_file_has_the_requested_parallelism(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    existing({"s[0]": "n1/0", "b[1]": "n1/0", "s[1]": "n2/0", "k[0]": "n2/0", "b[0]": "n3/0", "k[1]": "n3/0"})
    Path("topology.yml").write_text(dump_yaml(chain(3, (3, 3, 3))))
    Path("bare.json").write_text(json.dumps(bare(**{name: {} for name in SPREAD_PLACEMENT})))
    assert revise("--observation", "bare.json", "--json", scheduler="pmod") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["revision"]["parallelism"] == {"s": 3, "b": 3, "k": 3}
    assert {name: slot["node"] for name, slot in found["revision"]["added"].items()} == {
        "s[2]": "n3",
        "b[2]": "n2",
        "k[2]": "n1",
    }
    assert found["details"]["total_cost"] == 4
    assert revise("--observation", "bare.json") == 2
    assert "bare.json:1: executors: the executor 's[2]' is missing" in capsys.readouterr().err


def test_text_output_has_a_line_for_each_decision_and_move(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert revise("--observation", "first.json", "--observation", "second.json") == 0
    assert capsys.readouterr().out.splitlines() == [
        "60 s: cut: 310 -> 90 tuples/s between nodes",
        "  b[0]: n1/0 -> n2/0",
        "  b[1]: n2/0 -> n1/0",
        "70 s: no change: the last revision was 9 s ago",
    ]


def test_an_observation_file_gives_back_the_same_observation(files: Path) -> None:
    observation = observed(60)
    text = observation_json(observation)
    import msgspec

    assert msgspec.json.decode(text, type=Observation) == observation


def broken(**changes: Any) -> None:
    document = json.loads(observation_json(observed(60)))
    Path("first.json").write_text(dump_json({**document, **changes}))


EXECUTORS = json.loads(observation_json(observed(60)))["executors"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"at_s": 5}, "at_s: 5 is not after since_s, 10"),
        ({"samples": -1}, "samples: got -1"),
        ({"extra": 1}, "unknown key 'extra'"),
        ({"executors": {**EXECUTORS, "q[0]": EXECUTORS["s[0]"]}}, "unknown executor 'q[0]'"),
        ({"executors": {k: v for k, v in EXECUTORS.items() if k != "b[1]"}}, "the executor 'b[1]' is missing"),
        ({"executors": {**EXECUTORS, "s[0]": {**EXECUTORS["s[0]"], "node": "n9"}}}, "unknown node 'n9'"),
        (
            {"executors": {**EXECUTORS, "s[0]": {**EXECUTORS["s[0]"], "slot": 2}}},
            "slot 2 is beyond the 2 slots of 'n1'",
        ),
        ({"traffic": {"edges": [{"from": "s[0]", "to": "b[7]", "tuples_per_s": 1}]}}, "unknown executor 'b[7]'"),
        ({"nodes": {"m1": {"load": 0.1, "base": 0.0}}}, "unknown node 'm1'"),
        ({"nodes": {"n1": {"load": 2.5, "base": 0.0}}}, "got 2.5: expected"),
    ],
)
def test_a_wrong_observation_is_refused_with_file_line_and_value(
    files: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], words: str
) -> None:
    broken(**changes)
    assert revise("--observation", "first.json") == 2
    err = capsys.readouterr().err
    assert err.startswith("millrace: first.json:")
    assert words in err


def test_observations_must_be_in_order_of_time(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert revise("--observation", "second.json", "--observation", "first.json") == 2
    assert "first.json:2: at_s: 60 is not after 70, the observation before" in capsys.readouterr().err


def test_a_scheduler_that_does_not_revise_is_refused(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert revise("--observation", "first.json", scheduler="even") == 2
    assert "'even' does not revise running topologies" in capsys.readouterr().err
