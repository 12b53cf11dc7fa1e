"""Runs that do not take the course of their agenda: what did not happen, and schedulers that were not asked."""

from typing import Any

import pytest

from analysis.records.campaign import load_campaign

pytestmark = pytest.mark.loopback

GROWTH = {"at_s": 1.0, "do": "scale", "component": "count", "to": 3, "scheduler": "even"}
NOBODY = {"at_s": 1.5, "do": "kill", "worker": "n1/1", "scheduler": "asleep"}


def test_a_run_is_left_out_if_what_its_timeline_asks_for_did_not_happen(workspace: Any) -> None:
    asleep = {"name": "pipeline-linear", "label": "asleep", "online": {"revision": {"settle_s": 0.5}}}
    schedulers = ["even", asleep]
    agenda = workspace.agenda(duration_s=3, checkpoint_s=1, timeline=[GROWTH, NOBODY], schedulers=schedulers)
    outcome = workspace.run("run", agenda)
    assert outcome.status == 0, outcome
    even, other = sorted(workspace.results().values(), key=lambda run: run["scheduler"], reverse=True)

    (growth,) = even["timeline"]
    (record,) = even["measured"]["scalings"]
    assert (growth["outcome"], growth["subject"], growth["asked_s"], growth["reason"]) == ("done", "count", 1.0, "")
    assert growth["began_s"] == record["at_s"]
    assert growth["ended_s"] == pytest.approx(record["at_s"] + record["pause_s"], abs=2e-6)
    assert not workspace.suspect_reasons(even)

    (kill,) = other["timeline"]
    assert (other["status"], kill["outcome"], kill["ended_s"]) == ("ok", "failed", None)
    reason = "timeline: kill n1/1 at 1.5 s did not happen: no worker runs in n1/1"
    assert workspace.suspect_reasons(other) == [reason, "the online scheduler pipeline-linear was never asked"]

    assert [(run.scheduler, run.counts, run.left_out) for run in load_campaign(workspace.campaign).runs] == [
        ("even", True, ""),
        ("asleep", False, reason),
    ]
    listed = workspace.run("results", str(workspace.campaign))
    assert "1 of 2 runs count" in listed.out
    assert listed.out.replace("\n", " ").count(reason) == 1
