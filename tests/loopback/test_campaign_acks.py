"""Acknowledgements in real runs: one tree per record, also when a worker or an agent is killed."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from synthetic_campaign import report_without_spark

pytestmark = pytest.mark.loopback

PARAMS = {"workers": 2, "ackers": 2, "parallelism": {"spout": 2, "split": 2, "count": 2}}
RATE = {"kind": "constant", "tuples_per_s": 200}


def campaign(workspace: Any, timeline: list[dict[str, Any]], **changes: Any) -> str:
    (workspace.folder / "text.txt").write_text("to be\nor not\nto be\n")
    workloads = [{"name": "wordcount", "params": PARAMS | {"text": "text.txt"}, "rate": RATE}]
    common = {"workloads": workloads, "schedulers": ["even"], "checkpoint_s": 1, "timeline": timeline}
    return str(workspace.agenda(**{"acks": True, **common, **changes}))


def traced(workspace: Any, name: str, table: str) -> list[dict[str, Any]]:
    path: Path = workspace.campaign / "runs" / name / "traces" / f"{table}.parquet"
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
    return rows


def counted(workspace: Any, name: str) -> Counter[str]:
    """Return executor -> tuples that it emitted (spouts) or processed (others)."""
    found = Counter[str]()
    for row in traced(workspace, name, "throughput"):
        found[row["executor"]] += row["emitted"] if row["role"] == "spout" else row["processed"]
    return found


def check_trees(workspace: Any, name: str) -> None:
    """Check that every record is acknowledged once, and that ackers get one tuple per processed row."""
    executors, components = counted(workspace, name), Counter[str]()
    for executor, count in executors.items():
        components[executor.partition("[")[0]] += count
    words = pyarrow.parquet.read_table(workspace.campaign / "runs" / name / "answer" / "counts")["count"].to_pylist()
    # Every line has two words.
    records = sum(words) // 2
    assert records > 0
    assert [executors[f"__acked[{at}]"] for at in (0, 1)] == [executors[f"spout[{at}]"] for at in (0, 1)]
    expected = {"spout": 1, "split": 1, "count": 2, "__acker": 4, "__acked": 1}
    assert components == {component: share * records for component, share in expected.items()}


def test_every_record_is_acknowledged_once_also_when_a_worker_is_killed(workspace: Any) -> None:
    event = {"at_s": 1.5, "do": "kill", "worker": "n1/0"}
    outcome = workspace.run("run", campaign(workspace, [event], warmup_s=1, duration_s=3))
    assert outcome.status == 0, outcome
    ((name, run),) = workspace.results().items()
    assert run["verification"]["status"] == "passed"
    assert len(run["measured"]["recoveries"]) == 1
    check_trees(workspace, name)


@pytest.mark.long
def test_sources_of_a_lost_node_are_acknowledged_on_their_next_node(workspace: Any) -> None:
    event = {"at_s": 1.5, "do": "kill", "agent": "n2", "for_s": 60}
    outcome = workspace.run("run", campaign(workspace, [event], warmup_s=1, duration_s=3))
    assert outcome.status == 0, outcome
    ((name, run),) = workspace.results().items()
    assert run["verification"]["status"] == "passed"
    assert len(run["measured"]["recoveries"]) == 1
    assert {row["node"] for row in traced(workspace, name, "throughput")} == {"n1"}
    # The last rows of the node are lost: of both components alike, because they are in one worker.
    found = counted(workspace, name)
    for at in (0, 1):
        assert found[f"__acked[{at}]"] == pytest.approx(found[f"spout[{at}]"], rel=0.02)


@pytest.mark.long
def test_acknowledgements_are_traffic_and_change_no_other_figure(workspace: Any) -> None:
    changes = {"warmup_s": 1, "duration_s": 5, "repetitions": 2}
    found = []
    for acks in (False, True):
        outcome = workspace.run("run", campaign(workspace, [], acks=acks, **changes))
        assert outcome.status == 0, outcome
        page = report_without_spark(workspace.campaign)
        assert ("Why the ackers are idle" in page, "<h3>Acknowledgements</h3>" in page) == (not acks, acks)
        name = next(iter(workspace.results()))
        streams = {(row["stream"], row["hop"]) for row in traced(workspace, name, "channel")}
        assert (("__ack_ack", "inter_node") in streams) == acks
        found.append(workspace.results()[name]["measured"])
        if acks:
            check_trees(workspace, name)
    without, with_acks = found
    for metric in ("source_tuples_per_s", "sink_tuples_per_s", "throughput_tuples_per_s"):
        assert with_acks[metric] == pytest.approx(without[metric], rel=0.05)
    # Per record: a line and two words; with acknowledgements, also four tuples to the acker and one from it.
    more = sum(with_acks["hops"].values()) / sum(without["hops"].values())
    assert more == pytest.approx(8 / 3, rel=0.05)
    assert with_acks["latency_ms"]["samples"] > 0
