"""`millrace list`: all registered plug-ins, as text and as JSON."""

import json
from pathlib import Path

import pytest

from campaign.admin import plugins as listing
from campaign.agenda import agenda
from campaign.commands.authoring import KINDS
from campaign.commands.main import run
from inventory.plugins import plugins


def test_every_kind_of_the_command_has_a_listing() -> None:
    assert set(KINDS) == set(listing.LISTINGS)


@pytest.mark.parametrize(
    ("kind", "group"),
    [
        ("schedulers", "millrace.schedulers"),
        ("workloads", "millrace.workloads"),
        ("sensors", "millrace.sensors"),
    ],
)
def test_every_registered_plug_in_can_be_used_and_is_listed(
    kind: str, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["list", kind, "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in entries] == list(plugins(group))
    assert {entry["name"]: entry["error"] for entry in entries} == dict.fromkeys(plugins(group))
    assert run(["list", kind]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n{name}\n" in f"\n{shown}" for name in plugins(group))


def test_schedulers_are_listed_with_kind_needs_and_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    run(["list", "schedulers", "--json"])
    entries = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert entries["even"]["kind"] == "static"
    assert (entries["even"]["cycles"], entries["top-storm"]["cycles"]) == (True, False)
    assert (entries["even"]["traffic"], entries["top-storm"]["traffic"]) == ("ignored", "used")
    assert entries["top-storm"]["hardware"] is True
    assert "2020" in entries["top-storm"]["paper"]
    assert [p["name"] for p in entries["top-storm"]["params"]] == ["alpha", "affinity", "normalise", "flops"]
    assert entries["top-storm"]["params"][0] == {"name": "alpha", "type": "number >= 0 <= 1", "default": 0.8}


def test_text_shows_source_kind_input_and_ignored_input(capsys: pytest.CaptureFixture[str]) -> None:
    run(["list", "schedulers", "--json"])
    entries = json.loads(capsys.readouterr().out)
    run(["list", "schedulers"])
    shown = " ".join(capsys.readouterr().out.split())
    for entry in entries:
        assert f"source: {entry['paper']}" in shown
        assert entry["ignores"], entry["name"]
        assert f"ignores: {entry['ignores']}" in shown
    even = shown.split(" even source:")[1].split(" source:")[0]
    assert "static: places before the start input: only topologies, nodes and slots" in even
    pmod = shown.split(" pmod source:")[1].split(" source:")[0]
    assert "online: designed to place again while topologies run" in pmod
    top_storm = shown.split(" top-storm source:")[1]
    assert "clock, FLOPs per cycle and RAM of nodes; observed traffic, if available" in top_storm
    online = shown.split(" aniello-online source:")[1].split(" source:")[0]
    assert "observed traffic (refuses to place without)" in online


def test_agendas_are_listed_with_the_first_comment_of_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "papers").mkdir()
    (tmp_path / "b.yaml").write_text("#\n# The second one.\n# More.\nname: b\n")
    (tmp_path / "a.yaml").write_text("name: a\n")
    (tmp_path / "papers" / "c.yaml").write_text("# In a folder.\nname: c\n")
    (tmp_path / "papers" / "c.yml").write_text("# An inventory.\n")
    monkeypatch.setattr(agenda, "BUILTIN", tmp_path)
    run(["list", "agendas", "--json"])
    entries = json.loads(capsys.readouterr().out)
    found = [(entry["name"], entry["summary"]) for entry in entries]
    assert found == [("a", ""), ("b", "The second one."), ("papers/c", "In a folder.")]


def test_the_builtin_agendas_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "agendas"]) == 0
    assert "demo\n" in capsys.readouterr().out


def test_an_unknown_kind_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "schedulrs"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "'schedulers', 'workloads', 'agendas', 'sensors'" in captured.err
