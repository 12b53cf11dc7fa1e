"""`given`: placements from files, by `place --json` and by hand, in campaigns and in what is kept of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from campaign.agenda.agenda import agenda_of
from campaign.agenda.campaign_plan import campaign_plan
from campaign.commands.main import run
from inventory.documents import read, to_plain
from inventory.reading import read_cluster

TOPOLOGY = "id: t\ncomponents: [{id: a, kind: spout}, {id: b, kind: bolt, parallelism: 2, inputs: [{from: a}]}]\n"
SLOTS = {"a[0]": ("n1", 0), "b[0]": ("n2", 1), "b[1]": ("n1", 0)}


def placement(slots: dict[str, tuple[str, int]] = SLOTS, topology: str = "t") -> dict[str, Any]:
    found = [{"executor": name, "node": node, "slot": slot} for name, (node, slot) in slots.items()]
    return {"topologies": {topology: {"assignments": found}}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working folder, with a topology, a cluster and an agenda in another folder than the current one."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "t.yml").write_text(TOPOLOGY)
    (tmp_path / "c.yml").write_text("nodes: [{id: n1, slots: 2}, {id: n2, slots: 2}, {id: n3, available: false}]\n")
    workload = {"name": "from-topology", "params": {"topology_file": str(tmp_path / "t.yml")}, "rate": {"kind": "max"}}
    schedulers = [{"name": "given", "params": {"placement": "p.json"}}]
    agenda = {"name": "c", "inventory": str(tmp_path / "c.yml"), "workloads": [workload], "schedulers": schedulers}
    (tmp_path / "agenda.json").write_text(json.dumps(agenda))
    return tmp_path


def place(folder: Path, *more: str) -> int:
    files = ["--cluster", str(folder / "c.yml"), "--topology", str(folder / "t.yml")]
    return run(["place", *files, "--scheduler", "given", *more, "--json"])


def slots_of(document: Any) -> dict[str, tuple[str, int]]:
    return {each["executor"]: (each["node"], each["slot"]) for each in document["topologies"]["t"]["assignments"]}


def test_a_placement_by_hand_is_taken_as_it_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "p.json").write_text(json.dumps(placement()))
    assert place(folder, "--param", "placement=../p.json") == 0
    found = json.loads(capsys.readouterr().out)
    assert slots_of(found) == SLOTS
    assert found["params"]["placement"] == placement()


def test_an_output_of_place_is_taken_as_it_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--cluster", str(folder / "c.yml"), "--topology", str(folder / "t.yml")]
    assert run(["place", *files, "--scheduler", "even", "--explain", "--json"]) == 0
    (folder / "p.json").write_text(text := capsys.readouterr().out)
    assert place(folder, "--param", "placement=../p.json") == 0
    assert slots_of(json.loads(capsys.readouterr().out)) == slots_of(json.loads(text))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            placement({**SLOTS, "b[2]": ("n1", 0)}),
            "assignments[3].executor: unknown executor 'b[2]'; did you mean 'b[",
        ),
        (placement({**SLOTS, "b[1]": ("n4", 0)}), "assignments[2].node: unknown node 'n4'; valid: n1, n2, n3"),
        (placement({**SLOTS, "b[1]": ("n1", 7)}), "assignments[2].slot: got 7, and 'n1' has 2 slots"),
        (placement(topology="tt"), "topologies: there is no topology 't'; did you mean 'tt'?"),
        ({"topologys": {}}, "unknown key 'topologys'; did you mean 'topologies'?"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(
    content: object, words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "p.json").write_text(json.dumps(content))
    assert place(folder, "--param", "placement=../p.json") == 2
    error = capsys.readouterr().err
    assert words in error
    assert "p.json:1: " in error


@pytest.mark.parametrize(
    ("slots", "reason"),
    [
        ({"a[0]": ("n1", 0), "b[0]": ("n2", 1)}, "b[1]: the placement has no slot for it"),
        ({**SLOTS, "b[1]": ("n3", 0)}, "b[1]: node 'n3' is not available"),
    ],
)
def test_an_executor_that_cannot_have_its_slot_is_not_placed(
    slots: dict[str, tuple[str, int]], reason: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "p.json").write_text(json.dumps(placement(slots)))
    assert place(folder, "--param", "placement=../p.json") == 0
    found = json.loads(capsys.readouterr().out)["topologies"]["t"]
    assert (found["status"], found["message"]) == ("partial", reason)
    assert run(["run", str(folder / "agenda.json"), "--dry-run"]) == 2
    assert reason in capsys.readouterr().err


def test_a_missing_file_is_named_with_the_line_of_the_agenda(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", str(folder / "agenda.json"), "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert "agenda.json:1: schedulers[0].params: placement: there is no file " in error
    assert place(folder) == 2
    assert "params: {placement: FILE}" in capsys.readouterr().err


def test_a_campaign_keeps_the_content_and_goes_on_without_the_file(folder: Path) -> None:
    (folder / "p.json").write_text(json.dumps(placement()))
    cluster = read_cluster(str(folder / "c.yml"))
    plan = campaign_plan(agenda_of(read(folder / "agenda.json")), cluster)
    kept = json.loads(json.dumps(to_plain(plan.agenda)))
    assert kept["schedulers"][0]["params"] == {"placement": placement()}
    (folder / "kept.json").write_text(json.dumps(kept))
    (folder / "p.json").unlink()
    again = campaign_plan(agenda_of(read(folder / "kept.json")), cluster)
    assert again.agenda == plan.agenda
    (placed,) = again.plans[""].placed.values()
    assert {name: (slot.node, slot.index) for name, slot in placed.places.items()} == SLOTS


def test_what_is_wrong_in_kept_content_is_named_with_its_key(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agenda = json.loads((folder / "agenda.json").read_text())
    agenda["schedulers"][0]["params"]["placement"] = placement({**SLOTS, "b[1]": ("n4", 0)})
    (folder / "agenda.json").write_text(json.dumps(agenda))
    assert run(["run", str(folder / "agenda.json"), "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert "schedulers[0].params.placement.topologies.t.assignments[2].node: unknown node 'n4'" in error
