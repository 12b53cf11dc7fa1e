"""Campaigns that first profile a workload and then place it by the profile."""

import json
from typing import Any

import pytest
from schema_validation import load_valid

pytestmark = [pytest.mark.loopback, pytest.mark.long]

PROFILE = {"scheduler": "even", "duration_s": 2}


def test_a_profile_is_made_once_and_places_all_schedulers_that_use_it(workspace: Any) -> None:
    agenda = workspace.agenda(sensors=["memory"], profile=PROFILE, schedulers=["even", "p-scheduler"])
    outcome = workspace.run("run", agenda)
    assert outcome.status == 0, outcome
    folder = workspace.campaign / "profiling" / "profile-001-wordcount"
    profile, traffic = load_valid("run", folder / "run.json"), load_valid("traffic", folder / "traffic.json")
    assert (profile["status"], profile["verification"]["status"]) == ("ok", "passed")
    pairs = {(edge["from"], edge["to"]) for edge in traffic["edges"]}
    assert {("spout[0]", "split[0]"), ("split[1]", "count[1]")} <= pairs
    assert traffic["load"].keys() == {f"{name}[{k}]" for name in ("spout", "split", "count") for k in (0, 1)}
    runs = {run["scheduler"]: run for run in workspace.results().values()}
    assert {name: (run["status"], run["not_given"], run["traffic"]) for name, run in runs.items()} == {
        "even": ("ok", [], None),
        "p-scheduler": ("ok", [], "profiling/profile-001-wordcount/traffic.json"),
    }
    # The same traffic gives the same placement in a resumed campaign.
    placed = {name: run["placement"]["topologies"] for name, run in runs.items()}
    before = (folder / "traffic.json").read_bytes(), (folder / "run.json").stat().st_mtime_ns
    # As after a kill of the controller before the file was written.
    (folder / "traffic.json").unlink()
    again = workspace.run(
        "run", "--resume", str(workspace.campaign), "--repetitions", "2", "--only", "scheduler=p-scheduler"
    )
    assert again.status == 0, again
    assert "profile-001" not in again.err
    assert ((folder / "traffic.json").read_bytes(), (folder / "run.json").stat().st_mtime_ns) == before
    later = [run for run in workspace.results().values() if run["repetition"] == 2]
    assert [run["placement"]["topologies"] for run in later] == [placed["p-scheduler"]]


def test_a_profile_without_tuples_stops_the_campaign_before_any_run(workspace: Any) -> None:
    silent = {"name": "exclamation", "rate": {"kind": "steps", "steps": [[0, 0], [9999, 1]]}}
    agenda = workspace.agenda(workloads=[silent], profile=PROFILE, schedulers=["t-storm"], duration_s=1)
    outcome = workspace.run("run", agenda)
    assert outcome.status == 1, outcome
    assert "profile-001-exclamation: no tuples were sent in the measured interval" in outcome.err
    assert f"millrace run --resume results/short/{workspace.campaign.name}" in outcome.err
    assert list((workspace.campaign / "runs").iterdir()) == []
    assert json.loads((workspace.campaign / "live.json").read_text())["stage"] == "failed"
    assert workspace.state_files() == []
