"""Campaigns with communication schedules: answers are exact with gates, also when a worker is killed."""

import json
import os
import signal
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

pytestmark = [pytest.mark.loopback, pytest.mark.long]

SCHEDULE = {"nodes": ["n2", "n1"], "steps": [[1, 0], [0, 1]], "stages": 1}
LINEAR, EVEN = "001-wordcount-pipeline-linear-r1", "002-wordcount-even-r1"


def slots(run: Path) -> dict[int, list[dict[str, Any]]]:
    """Return epoch -> its time slots in order."""
    found = defaultdict(list)
    for row in pyarrow.parquet.read_table(run / "traces" / "slot.parquet").to_pylist():
        found[row["epoch"]].append(row)
    return {epoch: sorted(rows, key=lambda row: row["number"]) for epoch, rows in found.items()}


def test_runs_follow_schedules_through_a_kill_with_exact_answers(workspace: Any) -> None:
    (workspace.folder / "steps.json").write_text(json.dumps(SCHEDULE))
    schedulers = [
        {"name": "pipeline-linear", "gates": {"part_tuples": 32}},
        {"name": "even", "gates": {"schedule": "steps.json"}},
    ]
    campaign = workspace.start("run", workspace.agenda(schedulers=schedulers, duration_s=3, checkpoint_s=0.3))
    workspace.wait_for_stage(1, "measuring")
    checkpoints = "millrace-*/001-*/.controller/copies/checkpoints/*"
    workspace.wait_for(lambda: any(workspace.temporary.glob(checkpoints)), "a checkpoint")
    os.kill(workspace.workers()[0].pid, signal.SIGKILL)
    outcome = workspace.wait_for_end(campaign)
    assert outcome.status == 0, outcome
    results = workspace.results()
    assert {(run["status"], run["attempt"], run["verification"]["status"]) for run in results.values()} == {
        ("ok", 1, "passed")
    }
    assert len(results[LINEAR]["measured"]["recoveries"]) == 1
    assert results[LINEAR]["gates"]["part_tuples"] == 32
    assert results[EVEN]["gates"] == {**SCHEDULE, "part_tuples": 64}

    by_epoch = slots(workspace.campaign / "runs" / LINEAR)
    assert sorted(by_epoch) == [1, 2]
    for epoch in by_epoch.values():
        assert [row["number"] for row in epoch] == list(range(len(epoch)))
        assert [row["steps"] for row in epoch[:3]] == ["0 -", "1 0", "0 1"]
    (last,) = slots(workspace.campaign / "runs" / EVEN).values()
    assert {row["steps"] for row in last} == {"0", "1"}
    for row in last:
        assert row["tuples"] <= 64 * row["parts"]
        assert sum(int(pair.rpartition("=")[2]) for pair in row["node_parts"].split()) == row["parts"]
        assert (row["arrived_ns"] is not None) == (row["parts"] > 0)
        assert row["packed_ns"] is None or 0 < row["processed_ns"] <= row["packed_ns"]
    assert any(row["queued_bytes"] for row in last)
    # Outboxes are empty at the end of a run, and all tuples were sent through a gate.
    assert last[-1]["waiting"] == 0
    channels = pyarrow.parquet.read_table(workspace.campaign / "runs" / EVEN / "traces" / "channel.parquet")
    assert sum(row["tuples"] for row in last) == sum(channels["tuples"].to_pylist())
