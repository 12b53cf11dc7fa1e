"""A campaign whose run is a search: trials at several rates, interrupted and resumed, and the report's rows."""

import json
import signal
from typing import Any

import pytest

from analysis.page.searches import SEARCH_COLUMNS, TRIAL_COLUMNS, search_rows, trial_rows
from analysis.records.campaign import load_campaign

pytestmark = [pytest.mark.loopback, pytest.mark.long]

NAME = "001-linear-even-r1"
PARAMS = {"cost_us": 5_000, "tasks": 1, "operators": 2, "workers": 1}


def test_a_search_finds_a_rate_below_the_capacity_and_is_resumed_after_an_interrupt(workspace: Any) -> None:
    # One bolt takes 5 ms of CPU per tuple, so that nothing sustains 400 tuples/s.
    workload = {"name": "linear", "params": PARAMS, "rate": {"kind": "constant", "tuples_per_s": 50}}
    search = {"kind": "sustainable", "checks": 1, "tolerance_percent": 50}
    agenda = workspace.agenda(workloads=[workload], schedulers=["even"], sensors=[], duration_s=4, search=search)
    process = workspace.start("run", agenda)
    first = workspace.folder / "results" / "short" / "latest" / "searches" / NAME / "001" / "run.json"
    workspace.wait_for(first.is_file, "the first trial")
    first_trials = json.loads(first.read_text())["search"]["trials"]
    process.send_signal(signal.SIGINT)
    assert workspace.wait_for_end(process).status == 130
    assert workspace.results() == {}
    outcome = workspace.run("run", "--resume", "results/short/latest")
    assert outcome.status == 0, outcome
    assert f"{NAME}: trial 3 at " in outcome.err
    assert "trial 1 at" not in outcome.err
    assert "sustainable rate" in outcome.err
    (run,) = workspace.results().values()
    found = run["search"]
    assert run["status"] == "ok"
    assert found["trials"][:1] == first_trials
    assert found["tuples_per_s"] < 400
    assert found["tuples_per_s"] < found["fails_tuples_per_s"] <= 1.51 * found["tuples_per_s"]
    assert run["measured"]["due_tuples_per_s"] == pytest.approx(found["tuples_per_s"], rel=0.2)
    assert not (workspace.campaign / "searches").exists()
    assert (workspace.campaign / "runs" / NAME / "traces" / "latency.parquet").is_file()
    campaign = load_campaign(workspace.campaign)
    (row,) = search_rows(campaign)
    assert (row["status"], row["tuples_per_s"], row["trials"]) == ("ok", found["tuples_per_s"], len(found["trials"]))
    trials = trial_rows(campaign)
    assert [each["tuples_per_s"] for each in trials] == [each["tuples_per_s"] for each in found["trials"]]
    assert (trials[0]["bracket_low"], trials[0]["bracket_high"]) == (None, None)
    assert [trials[-1]["bracket_low"], trials[-1]["bracket_high"]] == found["brackets"][-2]
    assert set(row) == set(SEARCH_COLUMNS)
    assert all(set(each) == set(TRIAL_COLUMNS) for each in trials)


def test_runs_have_their_share_of_a_calibrated_rate(workspace: Any) -> None:
    workload = {"name": "linear", "params": PARAMS, "rate": {"kind": "constant", "load": 0.5}}
    factors = {"load": [0.25, 0.5]}
    agenda = workspace.agenda(workloads=[workload], schedulers=["even"], sensors=[], duration_s=3, factors=factors)
    process = workspace.start("run", agenda)
    trial = workspace.folder / "results" / "short" / "latest" / "searches" / "linear-even" / "001" / "run.json"
    workspace.wait_for(trial.is_file, "the first trial of the calibration")
    process.send_signal(signal.SIGINT)
    outcome = workspace.wait_for_end(process)
    assert (outcome.status, workspace.results()) == (130, {}), outcome
    assert "calibrating the load of linear-even" in outcome.err
    # As after the rest of the calibration, which takes minutes.
    record = json.loads(trial.read_text())
    calibration = workspace.campaign / "loads" / "linear-even"
    calibration.mkdir(parents=True)
    (calibration / "run.json").write_text(json.dumps(record | {"search": record["search"] | {"tuples_per_s": 40.0}}))
    outcome = workspace.run("run", "--resume", "results/short/latest")
    assert outcome.status == 0, outcome
    assert "load 1 of linear-even: 40 tuples/s" in outcome.err
    for run in workspace.results().values():
        share = run["factors"]["load"]
        assert run["load"] == {
            "share": share,
            "sustainable_tuples_per_s": 40.0,
            "tuples_per_s": 40 * share,
            "calibration": "loads/linear-even",
        }
        assert run["measured"]["due_tuples_per_s"] == pytest.approx(40 * share, rel=0.4)
    assert len(workspace.results()) == 2
