"""`pmod` in a run that grows from four tasks to five on six nodes, loses a node and gets it back.

The steps are those of the worked example in its paper and of its changeover from six nodes to five.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from decision_log import FAST_ONLINE, decisions

from analysis.records.campaign import load_campaign

pytestmark = [pytest.mark.loopback, pytest.mark.long]

NODES = [f"n{at}" for at in range(1, 7)]

AGENDA: Mapping[str, Any] = {
    "duration_s": 20,
    "checkpoint_s": 2,
    "workloads": [
        {
            "name": "wordcount",
            "params": {"workers": 6, "ackers": 0, "parallelism": {"spout": 4, "split": 4, "count": 4}},
            "rate": {"kind": "constant", "tuples_per_s": 200},
        }
    ],
    "schedulers": [{"name": "pmod", "gates": {"part_tuples": 32}, "online": FAST_ONLINE}],
    "timeline": [
        {"at_s": 4, "do": "scale", "component": ["spout", "split", "count"], "to": 5},
        {"at_s": 9, "do": "node_down", "node": "n6"},
        {"at_s": 14, "do": "node_up", "node": "n6"},
    ],
    "sensors": ["cpu"],
}
"""Agenda of the run, without the inventory of the nodes `NODES` with two slots each."""

EXPECTED_STEPS = (
    "012345 501234 450123 345012 234501 123450",
    "024135 135024 240351 351240 402513 513402",
    "01234 40123 34012 23401 12340",
)
"""Steps at the start, with five tasks, and on five nodes."""

CHANGEOVERS = (EXPECTED_STEPS[1], "01234- 1234-0 234-01 34-012 4-0123 -01234", "01234 12345 23450 34501 45012 50123")
"""Steps between old and new tasks, for t 4 -> 5, N 6 -> 5 and N 5 -> 6."""


def check_run(run: Mapping[str, Any]) -> None:
    """Check that the answer is correct and that no process was lost."""
    assert (run["status"], run["verification"]["status"], run["attempt"]) == ("ok", "passed", 1)
    assert run["measured"]["recoveries"] == []


def _table(folder: Path, name: str) -> list[dict[str, Any]]:
    return sorted(
        pyarrow.parquet.read_table(folder / "traces" / f"{name}.parquet").to_pylist(), key=lambda row: row["t_ns"]
    )


def _text(steps: Sequence[Sequence[int | None]]) -> str:
    return " ".join("".join("-" if cell is None else str(cell) for cell in row) for row in steps)


@pytest.fixture(scope="module")
def elastic(shared_workspace: Any) -> Path:
    """Folder of the run."""
    nodes = [{"id": name, "address": f"127.0.0.{at}", "slots": 2} for at, name in enumerate(NODES, 2)]
    (shared_workspace.folder / "six.json").write_text(json.dumps({"nodes": nodes}))
    outcome = shared_workspace.run("run", shared_workspace.agenda(inventory="six.json", **AGENDA))
    assert outcome.status == 0, outcome
    ((name, run),) = shared_workspace.results().items()
    check_run(run)
    folder: Path = shared_workspace.campaign / "runs" / name
    return folder


def test_steps_are_those_of_the_paper_and_only_executors_of_a_lost_node_move(elastic: Path) -> None:
    run: Mapping[str, Any] = json.loads((elastic / "run.json").read_text())
    decided = decisions(elastic)
    done = {each["number"]: each for each in run["measured"]["revisions"] if each["outcome"] == "done"}
    revised = [each for each in decided if each["number"] in done]
    assert [each["answer"]["revision"]["reason"] for each in revised] == ["schedule", "nodes", "schedule"]
    assert tuple(_text(each["observation"]["schedule"]["steps"]) for each in revised) == EXPECTED_STEPS
    assert tuple(_text(each["answer"]["details"]["sm"]) for each in revised) == CHANGEOVERS
    sizes = [tuple(each["answer"]["details"][name] for name in "NtQs") for each in revised]
    assert sizes == [(6, 4, 6, 5), (6, 5, 5, 5), (5, 5, 6, 5)]

    scalings, moves = run["measured"]["scalings"], run["measured"]["moves"]
    assert [(each["component"], each["how"], each["before"], each["after"]) for each in scalings] == [
        ("spout", "live", 4, 5),
        ("split", "live", 4, 5),
        ("count", "live", 4, 5),
    ]
    (emptied,) = [number for number, each in done.items() if each["reason"] == "nodes"]
    assert moves
    assert {(move["from"].partition("/")[0], move["revision"]) for move in moves} == {("n6", emptied)}
    on_n6 = {name for name, found in revised[1]["observation"]["executors"].items() if found["node"] == "n6"}
    assert sorted(move["executor"] for move in moves) == sorted(on_n6)
    assert "n6" not in {move["to"].partition("/")[0] for move in moves}


def test_schedules_change_at_the_end_of_a_round_and_begin_with_their_first_step(elastic: Path) -> None:
    changes = [row for row in _table(elastic, "event") if row["kind"] == "schedule"]
    assert [row["detail"] for row in changes] == [
        "nodes=n1,n2,n3,n4,n5,n6 steps=6 stages=1",
        "nodes=n1,n2,n3,n4,n5 steps=5 stages=1",
        "nodes=n1,n2,n3,n4,n5,n6 steps=6 stages=1",
    ]
    firsts = [int(row["subject"]) for row in changes]
    slots = sorted(_table(elastic, "slot"), key=lambda row: row["number"])
    assert {row["epoch"] for row in slots} == {1}
    assert [row["number"] for row in slots] == list(range(len(slots)))
    ends = [*firsts, len(slots)]
    assert ends == sorted(set(ends))
    for rows, size in [
        (slots[: firsts[0]], 6),
        (slots[firsts[0] : firsts[1]], 6),
        (slots[firsts[1] : firsts[2]], 5),
        (slots[firsts[2] :], 6),
    ]:
        assert [row["steps"] for row in rows] == [str(at % size) for at in range(len(rows))]
    rounds = [firsts[0] % 6, (firsts[1] - firsts[0]) % 6, (firsts[2] - firsts[1]) % 5]
    assert rounds == [0, 0, 0]


def test_the_growth_of_the_paper_grows_and_gets_its_schedule_before_it_is_judged(workspace: Any) -> None:
    """Sources are as fast as they can be, and rows wait for their step: barriers must not wait behind all queues."""
    folder = workspace.folder / "grown"
    outcome = workspace.run(
        "run", "papers/pmod/small/growth", "--repetitions", "1", "--only", "scheduler=pmod", "--out", str(folder)
    )
    assert outcome.status == 0, outcome
    (path,) = folder.glob("*/latest/runs/*/run.json")
    run = json.loads(path.read_text())
    check_run(run)
    (growth,) = run["timeline"]
    after_s = next(window["from_s"] for window in run["measured"]["windows"] if window["name"] == "after")
    judged_s = 2 + after_s
    assert (growth["outcome"], growth["ended_s"] < judged_s) == ("done", True), growth
    assert {each["component"]: each["after"] for each in run["measured"]["scalings"]} == {
        "spout": 5,
        "split": 5,
        "count": 5,
    }
    (schedule,) = [each for each in run["measured"]["revisions"] if each["outcome"] == "done"]
    assert (schedule["reason"], schedule["ended_s"] < judged_s) == ("schedule", True), schedule
    assert len(load_campaign(path.parents[2]).counted) == 1
