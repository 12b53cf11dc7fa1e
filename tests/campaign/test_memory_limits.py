"""Executors that no worker's heap, or no node's memory, has room for are named as such, whoever is asked."""

import json
from pathlib import Path

import pytest

from campaign.commands.main import run

COMPONENTS = """
components:
  - {id: spout, kind: spout, parallelism: 2}
  - {id: split, kind: bolt, parallelism: 2, inputs: [{from: spout}]}
"""
SMALL_HEAP = "a worker has 100 MB of heap (worker_max_heap_mb), and an executor of 'split' needs 128 MB"
SMALL_NODES = "an executor of 'split' needs 128 MB, and the largest available node has 64 MB"


@pytest.fixture
def heap(tmp_path: Path) -> list[str]:
    (tmp_path / "heap.yml").write_text(f"id: wc\nworker_max_heap_mb: 100{COMPONENTS}")
    return ["--cluster", "loopback", "--topology", str(tmp_path / "heap.yml")]


@pytest.fixture
def nodes(tmp_path: Path) -> list[str]:
    (tmp_path / "wc.yml").write_text(f"id: wc{COMPONENTS}")
    (tmp_path / "small.yml").write_text("nodes: [{id: a, memory_mb: 64}, {id: b, memory_mb: 64}]")
    return ["--cluster", str(tmp_path / "small.yml"), "--topology", str(tmp_path / "wc.yml")]


def placed(arguments: list[str], scheduler: str, capsys: pytest.CaptureFixture[str]) -> tuple[str, str, set[str]]:
    """Return status, message, and what forbids `split[0]` on the nodes."""
    assert run(["place", *arguments, "--scheduler", scheduler, "--why", "split[0]", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    topology = document["topologies"]["wc"]
    forbidden = {"; ".join(each["forbidden"]) for each in document["why"]["alternatives"]}
    return topology["status"], topology["message"], forbidden


@pytest.mark.parametrize("scheduler", ["resource-aware", "r-storm"])
def test_a_heap_below_the_memory_of_a_component_is_the_reason(
    scheduler: str, heap: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    status, message, forbidden = placed(heap, scheduler, capsys)
    assert status == "failed"
    assert SMALL_HEAP.replace("split", "spout") in message or SMALL_HEAP in message
    assert forbidden == {"heap 128 of 100 MB of a worker"}


@pytest.mark.parametrize("scheduler", ["resource-aware", "r-storm", "d-storm"])
def test_nodes_below_the_memory_of_a_component_are_the_reason(
    scheduler: str, nodes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    status, message, forbidden = placed(nodes, scheduler, capsys)
    assert status == "failed"
    assert SMALL_NODES.replace("split", "spout") in message or SMALL_NODES in message or scheduler == "d-storm"
    assert forbidden == {"memory 128 of 64 MB"}


def test_schedulers_without_limits_of_memory_forbid_nothing(
    heap: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert placed(heap, "even", capsys) == ("placed", "", {""})


def test_a_full_worker_forbids_a_node_without_a_free_slot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "two.yml").write_text("nodes: [{id: a, slots: 1}, {id: b, slots: 1}]")
    (tmp_path / "wc.yml").write_text(f"id: wc\nworker_max_heap_mb: 256{COMPONENTS}")
    arguments = ["--cluster", str(tmp_path / "two.yml"), "--topology", str(tmp_path / "wc.yml")]
    assert placed(arguments, "resource-aware", capsys)[2] == {"heap 384 of 256 MB of a worker"}


@pytest.mark.parametrize("scheduler", ["resource-aware", "r-storm"])
def test_run_gives_the_same_reason_before_it_starts(
    scheduler: str, heap: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = {"name": "from-topology", "params": {"topology_file": heap[-1]}, "rate": {"kind": "max"}}
    agenda = {"name": "c", "inventory": "loopback", "workloads": [workload], "schedulers": [scheduler]}
    (tmp_path / "agenda.json").write_text(json.dumps(agenda))
    assert run(["run", str(tmp_path / "agenda.json"), "--dry-run", "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "worker_max_heap_mb" in error
    assert "128 MB" in error


@pytest.mark.parametrize("scheduler", ["resource-aware"])
def test_a_topology_that_never_fits_evicts_nobody(
    scheduler: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.yml").write_text("nodes: [{id: a, slots: 2, memory_mb: 600}]")
    (tmp_path / "low.yml").write_text(f"id: low\npriority: 20{COMPONENTS}")
    (tmp_path / "wc.yml").write_text(f"id: wc\npriority: 0\nworker_max_heap_mb: 100{COMPONENTS}")
    arguments = ["--cluster", str(tmp_path / "one.yml")]
    arguments += ["--topology", str(tmp_path / "low.yml"), "--topology", str(tmp_path / "wc.yml")]
    assert run(["place", *arguments, "--scheduler", scheduler, "--json"]) == 0
    topologies = json.loads(capsys.readouterr().out)["topologies"]
    assert {name: each["status"] for name, each in topologies.items()} == {"low": "placed", "wc": "failed"}
