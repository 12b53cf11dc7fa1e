"""Runs at a rate that the topology cannot take: saturated, and incomplete if they do not drain in time."""

from typing import Any

import pytest

pytestmark = pytest.mark.loopback

# The bolt takes 2 ms of CPU per tuple, so that nothing takes 1,000 tuples/s; its queue takes all of them.
PARAMS = {"cost_us": 2_000, "tasks": 1, "operators": 2, "workers": 2}
OVER, LIGHT = "001-over-even-r1", "002-light-even-r1"


def workload(label: str, tuples_per_s: float) -> dict[str, Any]:
    rate = {"kind": "constant", "tuples_per_s": tuples_per_s}
    return {"name": "linear", "label": label, "params": PARAMS, "rate": rate}


def test_an_overloaded_run_is_saturated_though_its_sources_keep_their_schedule(workspace: Any) -> None:
    agenda = workspace.agenda(
        workloads=[workload("over", 1000)], schedulers=["even"], sensors=[], duration_s=3, drain_s=300
    )
    outcome = workspace.run("run", agenda, "--no-report")
    assert outcome.status == 0, outcome
    measured = workspace.results()[OVER]["measured"]
    assert measured["source_tuples_per_s"] > 0.8 * measured["due_tuples_per_s"]
    assert measured["saturated"] is True
    assert measured["backlog"]["share"] > 0.3
    assert measured["latency_ms"]["censored"] > 50
    assert "samples were not out at the end" in outcome.err


def test_a_run_that_does_not_drain_in_time_is_incomplete_and_not_repeated(workspace: Any) -> None:
    agenda = workspace.agenda(
        workloads=[workload("over", 2000), workload("light", 20)],
        schedulers=["even"],
        sensors=[],
        duration_s=3,
        drain_s=1,
        order="sequential",
        on_failure={"retry": 1, "then": "stop"},
    )
    outcome = workspace.run("run", agenda, "--no-report")
    assert outcome.status == 1, outcome
    run = workspace.results()[OVER]
    assert (run["status"], run["attempt"], run["verification"]["status"]) == ("incomplete", 1, "none")
    assert run["reason"].startswith("the topology has not drained within 1 s (drain_s): ")
    assert run["left"]["rows"] >= max(run["left"]["waiting"].values()) > 300
    assert run["measured"]["saturated"] is True
    assert run["measured"]["source_tuples_per_s"] > 0
    assert workspace.results()[LIGHT]["status"] == "ok"
    again = workspace.run("run", "--resume", "results/short/latest", "--no-report")
    assert again.status == 1, again
    assert f"{OVER}: the topology has not drained" in again.err
    assert workspace.results()[OVER]["times"] == run["times"]
