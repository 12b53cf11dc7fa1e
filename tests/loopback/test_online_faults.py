"""Online schedulers that hang, die, print invalid output or return wrong answers, and interrupts by Ctrl-C."""

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from decision_log import FAST_ONLINE, decision_lines, outcomes

pytestmark = [pytest.mark.loopback, pytest.mark.long]

FAULTS = ("hang", "die", "nowhere")
WRONG = ("rubbish", "text", "bug")
ONLINE = FAST_ONLINE | {"ask_s": 1, "revision": {"settle_s": 0.5, "deadline_s": 1.5}}


def faulty(fault: str, **changes: Any) -> dict[str, Any]:
    return {"name": "sample-faulty", "label": fault, "params": {"fault": fault} | changes, "online": ONLINE}


@pytest.fixture(scope="module")
def raced(shared_workspace: Any, sample_plugin: Path) -> Any:
    """Workspace with a finished campaign: one run for each of `FAULTS`; the scheduler that hangs does so once.

    Failed runs have no metrics; their revisions are a key of run.json itself.
    """
    return race(shared_workspace, sample_plugin, FAULTS)


def race(workspace: Any, sample_plugin: Path, faults: Sequence[str]) -> Any:
    workspace.packages.append(sample_plugin)
    schedulers = [faulty(fault, **({"times": 1} if fault == "hang" else {})) for fault in faults]
    outcome = workspace.run("run", workspace.agenda(duration_s=14, schedulers=schedulers))
    assert outcome.status == 1, outcome
    assert not workspace.processes()
    assert not list(workspace.temporary.iterdir())
    return workspace


def run_of(workspace: Any, fault: str) -> tuple[Path, dict[str, Any]]:
    (name,) = (name for name in workspace.results() if f"-{fault}-" in name)
    return workspace.campaign / "runs" / name, workspace.results()[name]


def test_a_scheduler_that_is_late_once_is_restarted_and_the_run_goes_on(raced: Any) -> None:
    folder, run = run_of(raced, "hang")
    assert (run["status"], run["verification"]["status"]) == ("ok", "passed"), run
    assert outcomes(run)[:2] == ["done", "late"]
    assert outcomes(run).count("late") == 1
    assert "done" in outcomes(run)[2:]
    assert run["revisions"] == []
    late = run["measured"]["revisions"][1]
    assert (late["message"], late["cpu_s"], late["moves"]) == ("the scheduler gave no answer in 1.5 s", None, 0)
    assert late["decided_s"] == pytest.approx(1.5, abs=1)
    done, unanswered, reset, *rest = decision_lines(folder)
    assert ("answer" in done, "answer" in unanswered, reset) == (True, False, {"reset": late["message"]})
    assert rest[0]["answer"]["details"]["turn"] == 0  # its state is lost
    assert rest[0]["observation"]["history"][-1]["outcome"] == "late"


def test_a_run_fails_when_its_scheduler_dies_for_the_third_time(raced: Any) -> None:
    folder, run = run_of(raced, "die")
    assert run["status"] == "failed"
    assert "the scheduler was late 3 times: the scheduler's process died; see " in run["reason"]
    *_, unanswered, _ = log = decision_lines(folder)
    assert [past["outcome"] for past in unanswered["observation"]["history"]] == ["done", "late", "late"]
    assert ["answer" in each for each in log if "reset" not in each] == [True, False, False, False]
    assert sum("reset" in each for each in log) == 3
    assert run["measured"] is None
    assert [each["outcome"] for each in run["revisions"]] == ["done", "late", "late", "late"]
    assert [each["number"] for each in run["revisions"]] == [1, 2, 3, 4]
    assert run["revisions"][0]["before"]["cut"] is not None
    assert "the scheduler's process died" in run["revisions"][-1]["message"]


def failed_decisions(workspace: Any, fault: str, reason: str) -> list[dict[str, Any]]:
    """Check that the run failed for this reason at its second decision; return its decisions."""
    folder, run = run_of(workspace, fault)
    assert run["status"] == "failed"
    assert reason in run["reason"]
    log = [each for each in decision_lines(folder) if "reset" not in each]
    assert ["answer" in each for each in log] == [True, False]
    return log


def test_a_wrong_answer_fails_the_run_at_once_with_the_reason(raced: Any) -> None:
    reason = "moves: spout[0]: slot 99 is beyond the 2 slots of 'n1'"
    assert reason in failed_decisions(raced, "nowhere", reason)[1]["error"]


def test_an_invalid_answer_fails_the_run_at_once_with_the_reason(workspace: Any, sample_plugin: Path) -> None:
    race(workspace, sample_plugin, WRONG)
    assert "error" not in failed_decisions(workspace, "rubbish", "the scheduler's process wrote rubbish: ")[1]
    assert (
        "it returned a str, a Revision or None"
        in failed_decisions(workspace, "text", "gave a wrong answer:")[1]["error"]
    )
    code = (sample_plugin / "sample_online.py").read_text()
    line = 1 + code[: code.index("raise ValueError")].count("\n")
    reason = f"raised ValueError: nothing works after 1 turns ({sample_plugin}/sample_online.py:{line})"
    assert reason in failed_decisions(workspace, "bug", reason)[1]["error"]


def test_a_replay_repeats_decisions_with_faults(raced: Any) -> None:
    folder, _ = run_of(raced, "hang")
    again = raced.run("revise", "--replay", str(folder / "decisions.jsonl"))
    assert again.status == 0, again


def start_hanging(workspace: Any, duration_s: float) -> Any:
    """Start a campaign whose scheduler hangs, and wait until it does."""
    scheduler = faulty("hang") | {"online": ONLINE | {"revision": {"settle_s": 0.5, "deadline_s": 600}}}
    campaign = workspace.start("run", workspace.agenda(duration_s=duration_s, schedulers=[scheduler]))
    workspace.wait_for(lambda: "hangs" in file_text(workspace, "logs/scheduler.log"), "the decision that hangs")
    return campaign


def wait_for_interrupted_end(workspace: Any, campaign: Any) -> None:
    """Wait until the interrupted campaign ends; nothing may be left."""
    outcome = workspace.wait_for_end(campaign)
    assert outcome.status == 130, outcome
    assert "Traceback" not in outcome.err
    assert not workspace.processes()
    assert not workspace.state_files()
    assert not list(workspace.temporary.iterdir())


def test_a_run_whose_scheduler_never_answers_is_finished_after_an_interrupt(
    workspace: Any, sample_plugin: Path
) -> None:
    workspace.packages.append(sample_plugin)
    campaign = start_hanging(workspace, 8)
    campaign.send_signal(signal.SIGINT)
    wait_for_interrupted_end(workspace, campaign)
    (run,) = workspace.results().values()
    assert (run["status"], run["verification"]["status"], outcomes(run)) == ("ok", "passed", ["done"])


def test_a_second_interrupt_ends_a_campaign_at_once_while_its_scheduler_decides(
    workspace: Any, sample_plugin: Path
) -> None:
    workspace.packages.append(sample_plugin)
    campaign = start_hanging(workspace, 3600)
    campaign.send_signal(signal.SIGINT)
    while "a second interrupt stops at once" not in campaign.stderr.readline():
        pass
    campaign.send_signal(signal.SIGINT)
    wait_for_interrupted_end(workspace, campaign)


def file_text(workspace: Any, name: str) -> str:
    """Return the text of a file in the folder of the only run, which may be under way."""
    found = list(workspace.folder.glob(f"results/*/*/runs/*/{name}"))
    return found[0].read_text() if found else ""
