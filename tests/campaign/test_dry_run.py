"""`millrace run --dry-run`: the table of runs, runs that are left out, and estimates of time and size."""

import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest

from campaign.agenda.agenda import agenda_of
from campaign.agenda.campaign_plan import campaign_plan
from campaign.commands.main import run
from campaign.results.estimate import (
    AGENTS_S,
    BRING_UP_S,
    ENGINE_OVERHEAD_S,
    EXECUTOR_BYTES,
    REACHED_OVERHEAD_S,
    RUN_BYTES,
    START_S,
    estimate,
    report_s,
)
from campaign.results.live_file import OVERHEAD_S
from inventory.documents import parse_document
from inventory.reading import read_cluster

STARTED_S = START_S + AGENTS_S
"""Assumed seconds of a campaign before and after its runs."""

KEPT = Path(__file__).parents[1] / "kept_results" / "0.1.0"

AGENDA: dict[str, Any] = {
    "name": "varied",
    "inventory": "two.json",
    "repetitions": 2,
    "warmup_s": 3,
    "duration_s": 9,
    "unplaceable": "skip",
    "workloads": [
        {"name": "wordcount", "params": {"workers": 2}, "rate": {"kind": "constant", "tuples_per_s": 10}},
    ],
    "schedulers": ["even", "resource-aware"],
    "factors": {"slots": [1, 4]},
}
"""With one slot per node, `resource-aware` finds no place."""

CLUSTER = {"nodes": [{"id": f"n{k}", "address": f"127.0.0.{k + 1}", "cores": 2} for k in (1, 2)]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "two.json").write_text(json.dumps(CLUSTER))
    (tmp_path / "a.json").write_text(json.dumps(AGENDA))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def document(capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    assert run(["run", "a.json", "--dry-run", "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_document_lists_every_run_and_adds_up_those_that_are_placed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = document(capsys)
    assert found.keys() == {"profiling", "runs", "seconds", "bytes", "comparisons"}
    assert found["profiling"] == []
    assert len({row["name"] for row in found["runs"]}) == len(found["runs"])
    assert {frozenset(row) for row in found["runs"]} == {
        frozenset({"name", "workload", "scheduler", "cpu", "factors", "repetition", "placed", "reason"})
    }
    left_out = [row for row in found["runs"] if not row["placed"]]
    assert [(row["scheduler"], row["factors"], row["repetition"]) for row in left_out] == [
        ("resource-aware", {"slots": 1}, 1),
        ("resource-aware", {"slots": 1}, 2),
    ]
    assert all("finds no place for" in row["reason"] for row in left_out)
    assert {row["reason"] for row in found["runs"] if row["placed"]} == {""}
    assert len(found["runs"]) == 8
    assert found["seconds"] == pytest.approx(STARTED_S + 6 * (3 + 9 + OVERHEAD_S) + report_s(6), abs=0.05)
    without = document(capsys, "--no-report")
    assert without["seconds"] == pytest.approx(STARTED_S + 6 * (3 + 9 + OVERHEAD_S), abs=0.05)
    assert found["bytes"] == 6 * (RUN_BYTES + 28 * 12 * EXECUTOR_BYTES)
    assert not (folder / "results").exists()


def test_runs_on_other_engines_are_assumed_to_take_the_start_of_the_engine_too(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    factors = {"engine": ["agents", "storm"], "acks": [False, True]}
    agenda = AGENDA | {"schedulers": ["even"], "factors": factors}
    (folder / "a.json").write_text(json.dumps(agenda))
    found = document(capsys)
    assert {tuple(row["factors"].values()) for row in found["runs"]} == set(itertools.product(*factors.values()))
    assert found["seconds"] == pytest.approx(
        STARTED_S + 4 * (3 + 9 + OVERHEAD_S) + 4 * (3 + 9 + ENGINE_OVERHEAD_S) + report_s(8), abs=0.05
    )


def test_agents_of_every_run_and_the_limit_of_the_warm_up_count(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = AGENDA | {"fresh_agents": True, "warmup_s": "auto", "warmup_limit_s": 20}
    (folder / "a.json").write_text(json.dumps(own))
    found = document(capsys, "--no-report")
    assert found["seconds"] == pytest.approx(STARTED_S + 6 * (20 + 9 + OVERHEAD_S + AGENTS_S), abs=0.05)
    assert run(["run", "a.json", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "6 runs, 2 left out: at most 3 min " in out
    assert "(per run at most 20 s of warm-up, 9 s measured, and assumed 2.9 s before and after" in out


@pytest.mark.parametrize(
    ("repetitions", "schedulers", "number", "needed"),
    [(9, 2, 1, 10), (10, 2, 1, 10), (10, 5, 20, 10), (10, 8, 56, 12), (12, 8, 56, 12)],
)
def test_too_few_repetitions_for_the_comparisons_are_reported(
    repetitions: int, schedulers: int, number: int, needed: int, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At two combinations; 56 comparisons cannot be significant below 12 repetitions: 56 * 2^(1-11) > 0.05."""
    agenda = AGENDA | {
        "repetitions": repetitions,
        "schedulers": [{"name": "even", "label": f"even{at}"} for at in range(schedulers)],
        "factors": {"slots": [2, 4]} if number > 1 else {"slots": [4]},
    }
    (folder / "a.json").write_text(json.dumps(agenda))
    assert document(capsys)["comparisons"] == {"number": number, "repetitions": repetitions, "needed": needed}
    assert run(["run", "a.json", "--dry-run"]) == 0
    note = f"with {number} comparisons per metric, differences can be found from {needed} repetitions on"
    assert (note in capsys.readouterr().out) == (repetitions < needed)


def test_only_narrows_the_document_and_names_stay(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [row["name"] for row in document(capsys)["runs"] if row["factors"] == {"slots": 4}]
    found = document(capsys, "--only", "slots=4")
    assert [row["name"] for row in found["runs"]] == names
    assert found["seconds"] == pytest.approx(STARTED_S + 4 * (3 + 9 + OVERHEAD_S) + report_s(4), abs=0.05)


def test_the_table_names_reasons_placements_and_assumptions(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "a.json", "--dry-run"]) == 0
    lines = capsys.readouterr().out.split("\n")
    rows = [line for line in lines if line[:3].isdecimal()]
    assert len(rows) == 8
    assert sum("left out: the scheduler 'resource-aware' finds no place for" in line for line in rows) == 2
    assert sum("  slots=4  seed " in line for line in rows) == 4
    assert sum(line.startswith("wordcount by even at slots=") for line in lines) == 2
    assert sum(line.startswith("wordcount by resource-aware at slots=4: ") for line in lines) == 1
    assert "6 runs, 2 left out: about 1 min 43 s, 994.8 kB of results" in lines
    assert "(in addition to the runs, assumed 4 s for the start and 19 s for the report)" in lines
    assert any("assumed 1.3 s before and after; 80 s more on nodes with a power meter" in line for line in lines)


def test_earlier_runs_of_the_campaign_take_the_place_of_assumptions() -> None:
    text = (
        "{name: n, warmup_s: 1, duration_s: 7, workloads: [{name: wordcount, rate: {kind: max}}], schedulers: [even]}"
    )
    plan = campaign_plan(agenda_of(parse_document(text)), read_cluster("loopback"))
    found = estimate(plan, plan.runs, KEPT)
    folders = [path.parent for path in KEPT.glob("runs/*/run.json") if json.loads(path.read_text())["status"] == "ok"]
    stages = [json.loads((path / "run.json").read_text())["times"]["stages_s"] for path in folders]
    overheads = [sum(v for k, v in each.items() if k not in ("warming up", "measuring")) for each in stages]
    flowing = sum(each["warming up"] + each["measuring"] for each in stages)
    size = sum(file.stat().st_size for path in folders for file in path.rglob("*") if file.is_file())
    assert found.measured_runs == len(folders) > 0
    assert found.overhead_s == pytest.approx(sum(overheads) / len(folders))
    assert found.seconds == pytest.approx(1 + 7 + found.overhead_s)
    assert found.size_bytes == pytest.approx(8 * size / flowing, abs=1)


WRONG = [
    ({}, ["--json"], "--json: only together with --dry-run"),
    ({"unplaceable": "refuse"}, ["--dry-run"], "finds no place for"),
    ({"unplaceable": "leave"}, ["--dry-run"], "unplaceable: 'leave' is none of the valid values"),
    ({"factors": {"slot": [1]}}, ["--dry-run"], "factors.slot: unknown factor 'slot'; did you mean 'slots'?"),
    ({"factors": {"slots": [0]}}, ["--dry-run"], "factors.slots[0]: got 0, expected a whole number, 1 or more"),
    ({"factors": {"nodes": [3]}}, ["--dry-run"], "factors.nodes[0]: got 3, but the inventory has 2 available nodes"),
    ({"except": [{"slots": 1}, {"slots": 4}]}, ["--dry-run"], "except: leaves out every run"),
    ({"only": [{"slots": 2}]}, ["--dry-run"], "only[0].slots: no run has slots '2'; valid: 1, 4"),
    ({}, ["--dry-run", "--only", "slots=2"], "--only: the agenda has no slots '2'; valid: 1, 4"),
]


@pytest.mark.parametrize(("changes", "options", "message"), WRONG)
def test_wrong_input_ends_with_status_2(
    folder: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], options: list[str], message: str
) -> None:
    (folder / "a.json").write_text(json.dumps({**AGENDA, **changes}))
    assert run(["run", "a.json", *options]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""
    assert not (folder / "results").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root brings emulated nodes up with machines of their own")
def test_bringing_up_an_emulated_cluster_is_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agenda = {**AGENDA, "inventory": "emulated", "factors": {}, "schedulers": ["even"], "repetitions": 1}
    (folder / "a.json").write_text(json.dumps(agenda))
    found = document(capsys)
    assert found["seconds"] == pytest.approx(
        STARTED_S + 3 + 9 + REACHED_OVERHEAD_S + report_s(1) + BRING_UP_S, abs=0.05
    )


def test_the_questions_to_online_schedulers_are_announced(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schedulers = [
        "even",
        {"name": "default", "online": {"replan": {"every_s": 3}}},
        {"name": "pipeline-linear", "online": {}},
    ]
    timeline = [{"at_s": 5, "do": "revise"}]
    changes = {"schedulers": schedulers, "timeline": timeline, "factors": {"slots": [4]}, "repetitions": 1}
    (folder / "a.json").write_text(json.dumps(AGENDA | changes))
    found = document(capsys)
    assert {row["scheduler"]: row.get("asked", "never") for row in found["runs"]} == {
        "even": "never",
        "default": {"first_s": 6.0, "every_s": 3.0, "times": 2},
        "pipeline-linear": {"first_s": None, "every_s": None, "times": 0},
    }
    assert run(["run", "a.json", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "wordcount by default (online: asked first at 6 s, then every 3 s: 2 times, and at changes)" in printed
    assert "wordcount by pipeline-linear (online: asked at changes only" in printed
