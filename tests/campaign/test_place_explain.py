"""`place --explain`: its text, its account in JSON, and unchanged output without the option."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from campaign.commands.main import run
from scheduler.placement_file import parse_placement_file, to_json

TOPOLOGY = """
id: wordcount
workers: 4
components:
  - {id: spout, kind: spout, parallelism: 2}
  - {id: split, kind: bolt, parallelism: 3, inputs: [{from: spout, grouping: shuffle}]}
  - {id: count, kind: bolt, parallelism: 3, inputs: [{from: split, grouping: shuffle}]}
"""
CLUSTER = """
nodes:
  - {id: big, capacity: 4, ghz: 2, flops_per_cycle: 4}
  - {id: small, capacity: 2, ghz: 1, flops_per_cycle: 4}
  - {id: other, capacity: 4, ghz: 1, flops_per_cycle: 8}
"""
TRAFFIC = """
edges:
  - {from: "spout[0]", to: "split[0]", tuples_per_s: 100}
  - {from: "spout[1]", to: "split[1]", tuples_per_s: 40}
  - {from: "split[0]", to: "count[0]", tuples_per_s: 7}
"""

Place = Callable[..., str]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Place:
    """Run `place` with the files above; return standard output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    for name, text in {"t": TOPOLOGY, "c": CLUSTER, "f": TRAFFIC}.items():
        Path(f"{name}.yml").write_text(text)

    def placed(*arguments: str, scheduler: str = "even", topology: str = "t.yml", cluster: str = "c.yml") -> str:
        files = ("--cluster", cluster, "--topology", topology, "--scheduler", scheduler)
        assert run(["place", *files, *arguments]) == 0, capsys.readouterr().err
        captured = capsys.readouterr()
        assert captured.err == ""
        return captured.out

    return placed


def _row(out: str, first: str) -> list[str]:
    """The cells of the table row that starts with `first`."""
    (line,) = [line for line in out.splitlines() if line.startswith(f"│ {first} ")]
    return [cell.strip() for cell in line.strip("│").split("│")]


def test_text_shows_loads_links_decisions_and_the_optimum(place: Place) -> None:
    out = place("--explain", scheduler="top-storm")
    assert "wordcount: placed" in out
    assert out.startswith(place(scheduler="top-storm").split("time taken")[0])
    answer = json.loads(place("--explain", "--json", scheduler="top-storm"))
    used = {a["node"] for a in answer["topologies"]["wordcount"]["assignments"]}
    for node in answer["account"]["nodes"]:
        if node["id"] in used:
            cells = _row(out.split("load against capacity")[1].split("heaviest")[0], node["id"])
            assert cells[1:4] == [str(node["executors"]), f"{node['load']:.0f}", f"{node['capacity']:.0f}"]
            assert cells[5] == f"{node['slots_used']} of {node['slots']}"
    assert "executors of each slot, in the order in which slots were filled" in out
    assert "split[0] spout[0]" in out.split("decisions")[1]  # names, not numbers
    assert _row(out, "this placement")[1] == str(answer["cost"]["inter_node_edges"])
    assert _row(out, "optimum")[1] == f"{answer['account']['least']['optimum']:.0f}"


def test_an_overloading_placement_is_marked_and_not_compared_with_the_bound(place: Place) -> None:
    Path("tight.yml").write_text("nodes: [{id: m, capacity: 3, slots: 1}, {id: n, capacity: 9, slots: 1}]")
    out = place("--explain", cluster="tight.yml")
    assert _row(out.split("load against")[1].split("heaviest")[0], "m")[4] == "133%, too much"
    assert "This placement exceeds a capacity" in out
    assert "above the optimum" not in out


def test_observed_rates_show_the_heaviest_pairs(place: Place) -> None:
    out = place("--explain", "--traffic", "f.yml")
    account = json.loads(place("--explain", "--json", "--traffic", "f.yml"))["account"]
    assert [pair["tuples_per_s"] for pair in account["pairs"]] == sorted(
        (pair["tuples_per_s"] for pair in account["pairs"]), reverse=True
    )
    assert sum(pair["tuples_per_s"] for pair in account["pairs"]) == account["w"]
    assert "heaviest executor pairs between nodes" in out
    assert account["pairs"][0]["source"] in out
    assert "W, tuples/s between nodes" in out


def test_an_optimum_that_is_not_computed_has_its_reason(place: Place) -> None:
    Path("large.yml").write_text(TOPOLOGY.replace("parallelism: 3", "parallelism: 300"))
    Path("wide.yml").write_text("nodes: [{id: m, capacity: 500}, {id: n, capacity: 500}]")
    out = place("--explain", topology="large.yml", cluster="wide.yml")
    assert _row(out, "optimum")[1] == "not computed"
    assert "not computed: 602 executors are more than" in out


def test_a_topology_without_room_is_explained_too(place: Place) -> None:
    Path("none.yml").write_text("nodes: [{id: n1, slots: 0}]")
    out = place("--explain", cluster="none.yml")
    assert "no free slot" in out
    assert "nothing goes between nodes" in out
    assert "Not every executor has a slot" in out


def test_names_that_look_like_markup_are_printed_as_they_are(place: Place) -> None:
    Path("odd.yml").write_text('nodes: [{id: "[bold]x", capacity: 9}, {id: "[/]", capacity: 9}]')
    out = place("--explain", cluster="odd.yml")
    assert "[bold]x" in out
    assert "[/]" in out


def test_the_account_is_in_the_document_only_with_explain(place: Place) -> None:
    plain, explained = place("--json"), place("--explain", "--json")
    assert "account" not in json.loads(plain)
    both = json.loads(explained)
    del both["account"], both["elapsed_s"]
    first = json.loads(plain)
    del first["elapsed_s"]
    assert both == first
    assert to_json(parse_placement_file(explained)) == explained
    assert to_json(parse_placement_file(plain)) == plain
