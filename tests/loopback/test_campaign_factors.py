"""A campaign with factors: every run has the nodes, parameters and rate of its combination, also when it is resumed."""

import json
from typing import Any

import pytest

from analysis.records.campaign import load_campaign

pytestmark = [pytest.mark.loopback, pytest.mark.long]

COUNT = "workloads.wordcount.params.parallelism.count"
RATE = "workloads.wordcount.rate.tuples_per_s"


def test_runs_use_the_nodes_and_parameters_of_their_combination(workspace: Any) -> None:
    factors = {"nodes": [2, 1], "slots": [2], COUNT: [2, 3]}
    agenda = workspace.agenda(factors=factors, schedulers=["even"], sensors=[], duration_s=1)
    outcome = workspace.run("run", agenda, "--only", "nodes=1")
    assert outcome.status == 0, outcome
    assert [run["factors"]["nodes"] for run in workspace.results().values()] == [1, 1]
    outcome = workspace.run("run", "--resume", "results/short/latest")
    assert outcome.status == 0, outcome
    results = workspace.results()
    assert list(results) == [
        "001-wordcount-even-2-2-2-r1",
        "002-wordcount-even-2-2-3-r1",
        "003-wordcount-even-1-2-2-r1",
        "004-wordcount-even-1-2-3-r1",
    ]
    for name, run in results.items():
        assert run["status"] == "ok", run
        assert "-".join(map(str, run["factors"].values())) in name
        assert sorted(run["nodes"]) == ["n1", "n2"][: run["factors"]["nodes"]]
        (topology,) = run["placement"]["topologies"].values()
        counts = [entry for entry in topology["assignments"] if entry["executor"].startswith("count[")]
        assert len(counts) == run["factors"][COUNT]
    assert len({run["seed"] for run in results.values()}) == 1
    assert load_campaign(workspace.campaign).workloads == (
        "wordcount (nodes=2, slots=2, count=2)",
        "wordcount (nodes=2, slots=2, count=3)",
        "wordcount (nodes=1, slots=2, count=2)",
        "wordcount (nodes=1, slots=2, count=3)",
    )


def test_runs_that_cannot_be_placed_are_left_out_with_their_reason(workspace: Any) -> None:
    small = {"nodes": [{"id": "n1", "address": "127.0.0.2", "slots": 2, "cores": 1}]}
    (workspace.folder / "small.json").write_text(json.dumps(small))
    rate = {"kind": "constant", "tuples_per_s": 100}
    changes = {
        "inventory": "small.json",
        "workloads": [{"name": "wordcount", "params": {"workers": 2, "parallelism": {"count": 12}}, "rate": rate}],
        "schedulers": ["resource-aware", "even"],
        "sensors": [],
        "duration_s": 1,
    }
    outcome = workspace.run("run", workspace.agenda(**changes, unplaceable="skip"))
    assert outcome.status == 0, outcome
    assert "left out, because they cannot be placed: 1 runs: the scheduler 'resource-aware' finds no" in outcome.err
    first, second = workspace.results().values()
    assert (first["status"], second["status"]) == ("skipped", "ok")
    assert first["reason"].startswith("cannot be placed: the scheduler 'resource-aware' finds no place for")
    (excluded,) = (run for run in load_campaign(workspace.campaign).runs if not run.counts)
    assert (excluded.scheduler, excluded.reason) == ("resource-aware", first["reason"])
    assert workspace.live()["outcomes"] == {"ok": 1, "incomplete": 0, "failed": 0, "skipped": 1}
    again = workspace.run("run", "--resume", "results/short/latest")
    assert (again.status, workspace.results().keys()) == (
        0,
        {"001-wordcount-resource-aware-r1", "002-wordcount-even-r1"},
    )
    refused = workspace.run("run", workspace.agenda(**changes))
    assert refused.status == 2, refused
    assert "finds no place for" in refused.err


def test_a_zip_of_rates_and_parallelism_runs_in_pairs(workspace: Any) -> None:
    factors = {RATE: [200, 400], COUNT: [1, 2]}
    agenda = workspace.agenda(factors=factors, combine="zip", schedulers=["even"], sensors=[], duration_s=1)
    outcome = workspace.run("run", agenda)
    assert outcome.status == 0, outcome
    due = {(run["factors"][RATE], run["factors"][COUNT]): run["measured"] for run in workspace.results().values()}
    assert due.keys() == {(200, 1), (400, 2)}
    for (rate, _), measured in due.items():
        assert measured["due_tuples_per_s"] == pytest.approx(rate, rel=0.2)


def test_runs_use_the_clusters_of_their_inventories_also_when_resumed(workspace: Any) -> None:
    other = [{"id": f"m{k}", "address": f"127.0.0.{k + 3}", "slots": 1} for k in (1, 2, 3)]
    (workspace.folder / "three.json").write_text(json.dumps({"nodes": other}))
    factors = {"inventory": ["two.yaml", "three.json"]}
    windows = [{"name": "all", "from_s": 0, "to_s": 1}]
    changes = {"factors": factors, "schedulers": ["even"], "sensors": [], "duration_s": 1, "windows": windows}
    outcome = workspace.run("run", workspace.agenda(**changes), "--only", "inventory=three.json")
    assert outcome.status == 0, outcome
    assert list(workspace.results()) == ["002-wordcount-even-three.json-r1"]
    (workspace.folder / "three.json").unlink()
    outcome = workspace.run("run", "--resume", "results/short/latest", "--repetitions", "2")
    assert outcome.status == 0, outcome
    assert outcome.err.count("cluster: three.json") == 1
    nodes = {"two.yaml": ["n1", "n2"], "three.json": ["m1", "m2", "m3"]}
    assert len(workspace.results()) == 4
    for name, run in workspace.results().items():
        assert run["status"] == "ok", run
        assert sorted(run["nodes"]) == nodes[run["factors"]["inventory"]], name
        (window,) = run["measured"]["windows"]
        assert (window["name"], window["from_s"], window["to_s"]) == ("all", 0, 1)
        for metric in ("due_tuples_per_s", "source_tuples_per_s", "sink_tuples_per_s", "throughput_tuples_per_s"):
            assert window[metric] == pytest.approx(run["measured"][metric], rel=0.3), metric
    assert workspace.live()["outcomes"] == {"ok": 4, "incomplete": 0, "failed": 0, "skipped": 0}
    campaign = load_campaign(workspace.campaign)
    assert campaign.workloads == ("wordcount (inventory=two.yaml)", "wordcount (inventory=three.json)")
    assert [[*campaign.nodes_of(cell)] for cell in campaign.workloads] == [*nodes.values()]
