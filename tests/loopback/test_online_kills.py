"""Workers and agents are killed while an online scheduler decides, and while its revisions are carried out.

The answer is always exact, every decision has an outcome, and nothing is left.
"""

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from decision_log import FAST_ONLINE, decisions, outcomes

pytestmark = [pytest.mark.loopback, pytest.mark.long]

RUN = "001-wordcount-sample-carousel-r1"
OUTCOMES = {"done", "partial", "stale", "abandoned", "broken", "no"}
THINK_S = 1.5


def agenda(
    workspace: Any,
    sample_plugin: Path,
    think_s: float = THINK_S,
    online: Mapping[str, Any] = FAST_ONLINE,
    **changes: Any,
) -> str:
    workspace.packages.append(sample_plugin)
    scheduler = {"name": "sample-carousel", "params": {"think_s": think_s, "initial": "even"}, "online": online}
    return str(workspace.agenda(checkpoint_s=0.5, schedulers=[scheduler], **changes))


def conclude(workspace: Any, campaign: Any) -> dict[str, Any]:
    """Wait for the end; check the run, that nothing is left, and that decisions, outcomes and moves agree."""
    outcome = workspace.wait_for_end(campaign)
    assert outcome.status == 0, outcome
    (run,) = workspace.results().values()
    assert (run["status"], run["attempt"], run["verification"]["status"]) == ("ok", 1, "passed"), run["reason"]
    assert not workspace.processes()
    assert not workspace.state_files()
    assert not list(workspace.temporary.iterdir())
    measured: dict[str, Any] = run["measured"]
    revisions = measured["revisions"]
    assert set(outcomes(run)) <= OUTCOMES, revisions
    decided = [each["number"] for each in decisions(workspace.campaign / "runs" / RUN)]
    assert [each["number"] for each in revisions] == decided[: len(revisions)]
    assert len(decided) - len(revisions) <= 1  # the last answer may come with the end
    done = {each["number"]: each["moves"] for each in revisions if each["outcome"] == "done"}
    moved = [move["revision"] for move in measured["moves"] if "abandoned" not in move]
    # A kill may also occur between the moves of a revision and its end.
    broken = {each["number"] for each in revisions if each["outcome"] == "broken"}
    assert {number: moved.count(number) for number in moved if number not in broken} == done
    for each in revisions:
        recoveries = [r for r in measured["recoveries"] if each["begun_s"] and each["begun_s"] - 1 <= r["at_s"]]
        assert each["outcome"] != "broken" or recoveries, each
        assert bool(each["message"]) == (each["outcome"] not in ("done", "no")) or each["outcome"] == "no", each
    return measured


def test_kills_of_the_timeline_make_open_decisions_stale_and_cost_no_tuple(workspace: Any, sample_plugin: Path) -> None:
    timeline = [
        {"at_s": 3.9, "do": "kill", "worker": "n1/0"},
        {"at_s": 8.9, "do": "kill", "agent": "n2", "for_s": 1},
    ]
    measured = conclude(
        workspace, workspace.start("run", agenda(workspace, sample_plugin, timeline=timeline, duration_s=17))
    )
    worker, agent = measured["recoveries"]
    assert "was killed by SIGKILL" in worker["cause"]
    assert "the agent of n2 was killed by SIGKILL" in agent["cause"]
    found = {each["outcome"]: each for each in measured["revisions"]}
    assert "done" in found
    assert found["stale"]["message"] == "the topology was restarted meanwhile"


def test_a_kill_breaks_a_revision_that_is_carried_out(workspace: Any, sample_plugin: Path) -> None:
    campaign = workspace.start("run", agenda(workspace, sample_plugin, duration_s=12))
    scheduler_log, decision_log = (f"results/*/*/runs/*/{name}" for name in ("logs/scheduler.log", "decisions.jsonl"))
    workspace.wait_for(lambda: any(path.read_text() for path in workspace.folder.glob(scheduler_log)), "a question")
    victim = workspace.workers()[0].pid
    os.kill(victim, signal.SIGSTOP)  # so that no barrier can pass
    workspace.wait_for(lambda: "cut" in next(workspace.folder.glob(decision_log)).read_text(), "an answer")
    time.sleep(0.3)
    os.kill(victim, signal.SIGKILL)
    measured = conclude(workspace, campaign)
    first, *later = measured["revisions"]
    assert (first["outcome"], len(measured["recoveries"])) == ("broken", 1)
    assert "was killed by SIGKILL" in first["message"]
    assert "done" in {each["outcome"] for each in later}
    assert not [move for move in measured["moves"] if move["revision"] == first["number"]]


def test_a_worker_and_an_agent_are_killed_while_a_restart_is_under_way(workspace: Any, sample_plugin: Path) -> None:
    # The sources are halted for two seconds; the kill occurs in this time.
    rules = {"settle_s": 0.5, "how": "restart", "processes": "new", "wait_s": 2}
    online = FAST_ONLINE | {"window_s": 1, "first_s": 2.5, "revision": rules}
    campaign = workspace.start("run", agenda(workspace, sample_plugin, think_s=0, online=online, duration_s=18))

    def wait_for_halt(number: int) -> None:
        expected = {"reason": "cut", "outcome": None, "number": number}
        workspace.wait_for(
            lambda: any(expected.items() <= each.items() for each in workspace.live().get("decisions", ())),
            f"restart {number}",
        )
        time.sleep(0.2)

    wait_for_halt(1)
    os.kill(workspace.workers()[0].pid, signal.SIGKILL)
    wait_for_halt(2)
    os.kill(workspace.processes("agent")[-1].pid, signal.SIGKILL)
    measured = conclude(workspace, campaign)
    first, second, *later = measured["revisions"]
    assert [each["outcome"] for each in (first, second)] == ["broken", "broken"]
    assert "was killed by SIGKILL" in first["message"]
    assert "the agent of " in second["message"]
    assert "was killed by SIGKILL" in second["message"]
    assert "done" in {each["outcome"] for each in later}
    assert len(measured["recoveries"]) == 2
    assert not [move for move in measured["moves"] if move["revision"] in (1, 2)]


def test_kills_at_any_time_leave_the_answer_exact(workspace: Any, sample_plugin: Path) -> None:
    random = Random(0)  # noqa: S311 - times of kills, repeatable
    at_s, timeline = 3.0, list[dict[str, Any]]()
    while at_s < 20:
        target: dict[str, Any] = {"worker": f"{random.choice(['n1', 'n2'])}/0"}
        if random.random() < 0.3:
            target = {"agent": "n2", "for_s": random.uniform(0.1, 2)}  # never n1, so that one node remains
        timeline.append({"at_s": at_s, "do": "kill", **target})
        at_s += random.uniform(1.5, 4)
    campaign = workspace.start("run", agenda(workspace, sample_plugin, think_s=0.4, timeline=timeline, duration_s=26))
    measured = conclude(workspace, campaign)
    assert len(measured["recoveries"]) >= 3
    assert "done" in {each["outcome"] for each in measured["revisions"]}
