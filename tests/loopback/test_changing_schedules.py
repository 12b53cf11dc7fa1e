"""Communication schedules that change during a run, as nodes join and leave and a worker is killed."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from decision_log import FAST_ONLINE

pytestmark = [pytest.mark.loopback, pytest.mark.long]

LABELS = ("static", "replanned")


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    return pyarrow.parquet.read_table(folder / "traces" / f"{table}.parquet").to_pylist()


@pytest.fixture(scope="module")
def gated(shared_workspace: Any) -> Any:
    """Workspace with a finished campaign: n2 joins, a worker is killed, n1 leaves; with and without replanning."""
    timeline = [
        {"at_s": 3, "do": "node_up", "node": "n2"},
        {"at_s": 6.95, "do": "kill", "worker": "n1/0"},
        {"at_s": 7, "do": "node_down", "node": "n1"},
    ]
    online = {**FAST_ONLINE, "replan": {"every_s": 4, "min_gain_percent": 90}}
    schedulers = [
        {"name": "pmod", "label": "static", "gates": {"part_tuples": 32}},
        {"name": "pmod", "label": "replanned", "gates": {"part_tuples": 32}, "online": online},
    ]
    agenda = shared_workspace.agenda(duration_s=13, checkpoint_s=1, schedulers=schedulers, timeline=timeline)
    outcome = shared_workspace.run("run", agenda)
    assert outcome.status == 0, outcome
    return shared_workspace


@pytest.mark.parametrize("label", LABELS)
def test_answers_are_right_while_schedules_change_and_a_worker_dies(gated: Any, label: str) -> None:
    name = f"{LABELS.index(label) + 1:03}-wordcount-{label}-r1"
    folder, run = gated.campaign / "runs" / name, gated.results()[name]
    assert (run["status"], run["verification"]["status"], run["attempt"]) == ("ok", "passed", 1)
    assert len(run["measured"]["recoveries"]) == 1
    changes = [row["detail"] for row in rows(folder, "event") if row["kind"] == "schedule"]
    assert changes[0] == "nodes=n1,n2 steps=2 stages=1"
    assert changes[-1] == "nodes=n2 steps=1 stages=1"

    found: dict[int, list[str]] = defaultdict(list)
    for row in sorted(rows(folder, "slot"), key=lambda row: (row["epoch"], row["number"])):
        assert row["number"] == len(found[row["epoch"]])
        found[row["epoch"]].append(row["steps"])
    # One node, then two, finally one.
    first, *_, last = found.values()
    assert {"0"} == set(first[:3])
    assert "1" in first
    assert set(last[-3:]) == {"0"}
    assert "1" in {step for steps in found.values() for step in steps}
