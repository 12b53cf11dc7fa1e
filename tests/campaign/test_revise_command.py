"""`millrace revise`: decisions from files, and the errors of those files."""

import json
from pathlib import Path
from typing import Any

import pytest
from observed_rounds import applied, chain, nodes, observed

from campaign.commands.main import run
from inventory.documents import dump_json, dump_yaml
from scheduler.online.observation import Observation, observation_json


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("cluster.yml").write_text(dump_yaml(nodes()))
    Path("topology.yml").write_text(dump_yaml(chain()))
    Path("first.json").write_text(observation_json(observed(60)))
    Path("second.json").write_text(observation_json(observed(70, history=[applied(61)])))
    return tmp_path


def revise(*arguments: str, scheduler: str = "aniello-online") -> int:
    return run(
        ["revise", "--cluster", "cluster.yml", "--topology", "topology.yml", "--scheduler", scheduler, *arguments]
    )


def test_one_scheduler_is_asked_about_all_observations_in_order(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert revise("--observation", "first.json", "--observation", "second.json", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["scheduler"] == "aniello-online"
    assert document["params"]["traffic_improvement"] == 10
    first, second = document["decisions"]
    assert (first["at_s"], first["revision"]["reason"], first["revision"]["expects"]["cut"]) == (60, "cut", 90)
    assert first["revision"]["moves"] == [
        {"executor": "b[0]", "from": {"node": "n1", "slot": 0}, "to": {"node": "n2", "slot": 0}},
        {"executor": "b[1]", "from": {"node": "n2", "slot": 0}, "to": {"node": "n1", "slot": 0}},
    ]
    assert (second["revision"]["moves"], second["revision"]["text"]) == ([], "the last revision was 9 s ago")


def test_people_read_a_line_for_each_decision_and_change(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    said = capsys.readouterr().err
    assert said.startswith("millrace: first.json:")
    assert words in said


def test_observations_go_forward_in_time(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert revise("--observation", "second.json", "--observation", "first.json") == 2
    assert "first.json:2: at_s: 60 is not after 70, the observation before" in capsys.readouterr().err


def test_a_scheduler_that_does_not_revise_is_refused(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert revise("--observation", "first.json", scheduler="even") == 2
    assert "'even' does not revise running topologies" in capsys.readouterr().err
