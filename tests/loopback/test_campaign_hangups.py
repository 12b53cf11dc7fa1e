"""SIGHUP, SIGTERM and blocked or closed output: a campaign stops with a clean-up, or continues."""

import os
import random
import signal
import time
from typing import Any

import pytest

pytestmark = pytest.mark.loopback

BRIEF = {"warmup_s": 0.1, "duration_s": 0.4, "schedulers": ["even"]}


def default_hangup() -> None:
    """Restore the default action of SIGHUP; the tests themselves may run under `nohup`."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def ignored_hangup() -> None:
    """Ignore SIGHUP, as `nohup` does."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def nothing_is_left(workspace: Any) -> bool:
    left = [
        *workspace.processes(),
        *workspace.state_files(),
        *workspace.temporary.iterdir(),
        *workspace.folder.glob("results/*/*/runs/*.partial"),
    ]
    assert not left, left
    return True


@pytest.mark.parametrize("stage", ["preparing", "measuring"])
def test_sighup_is_handled_like_sigterm(workspace: Any, stage: str) -> None:
    campaign = workspace.start("run", workspace.agenda(duration_s=3600), preexec_fn=default_hangup)
    if stage == "preparing":
        workspace.wait_for(lambda: any(path.suffix == ".jsonl" for path in workspace.state_files()), "the state file")
    else:
        workspace.wait_for_stage(1, stage)
    # The end of a session sends both; signals during the clean-up do not disturb it.
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGHUP):
        campaign.send_signal(number)
        time.sleep(0.05)
    outcome = workspace.wait_for_end(campaign)
    assert outcome.status == 130, outcome
    assert "Traceback" not in outcome.err
    assert nothing_is_left(workspace)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_signal_while_reporting_is_explained(workspace: Any, number: signal.Signals) -> None:
    campaign = workspace.start("run", workspace.agenda(**BRIEF), program=workspace.whole, preexec_fn=default_hangup)
    assert campaign.stderr is not None
    while "report:" not in campaign.stderr.readline():
        pass
    campaign.send_signal(number)
    outcome = workspace.wait_for_end(campaign)
    folder = f"results/short/{workspace.campaign.name}"
    assert outcome.status == 130, outcome
    complete = f"The results are complete in {folder}; later: millrace report {folder}"
    assert f"stopped before the report was complete. {complete}\n" in outcome.err
    assert outcome.err.endswith("\ninterrupted\n")
    assert workspace.live()["stage"] == "finished"
    assert [run["status"] for run in workspace.results().values()] == ["ok"]
    assert not (workspace.campaign / "report").exists()
    assert nothing_is_left(workspace)


AT_CLEAN_UP = """\
import os, signal
import campaign.runner.campaign_loop as loop
hold = loop.hold_interrupts

def hold_and_be_asked():
    hold()
    os.kill(os.getpid(), signal.SIGTERM)

loop.hold_interrupts = hold_and_be_asked
"""


BEFORE_CLEAN_UP = """\
import os, signal
import campaign.runner.campaign_loop as loop
suppress = loop.suppress

def be_asked(*kinds):
    os.kill(os.getpid(), signal.SIGTERM)
    return suppress(*kinds)

loop.suppress = be_asked
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("moment", "said"),
    [
        (BEFORE_CLEAN_UP, "stopping now\ninterrupted; go on with: millrace run --resume"),
        (AT_CLEAN_UP, "stopped before the report was complete. The results are complete in"),
    ],
    ids=["before", "during"],
)
def test_sigterm_after_the_last_run_leaves_the_report_out(workspace: Any, moment: str, said: str) -> None:
    outcome = workspace.run("run", workspace.agenda(**BRIEF), program=moment + workspace.whole)
    assert outcome.status == 130, outcome
    assert said in outcome.err
    assert [run["status"] for run in workspace.results().values()] == ["ok"]
    assert not (workspace.campaign / "report").exists()
    assert nothing_is_left(workspace)


@pytest.mark.long
def test_sighup_that_is_ignored_from_the_beginning_stays_ignored(workspace: Any) -> None:
    campaign = workspace.start("run", workspace.agenda(**BRIEF), preexec_fn=ignored_hangup)
    while campaign.poll() is None:
        # SIGHUP goes to the whole session, including workers and agents.
        os.killpg(campaign.pid, signal.SIGHUP)
        time.sleep(0.05)
    outcome = workspace.wait_for_end(campaign)
    assert outcome.status == 0, outcome
    assert nothing_is_left(workspace)


@pytest.mark.parametrize(
    "kind",
    [
        "closed",
        "reader asleep",
        pytest.param("full", marks=pytest.mark.long),
        pytest.param("reader gone", marks=pytest.mark.long),
    ],
)
def test_progress_output_that_cannot_be_written_does_not_end_a_campaign(workspace: Any, kind: str) -> None:
    read, write = os.pipe()
    options: dict[str, Any] = {"stderr": write}
    if kind == "closed":
        options = {"stderr": None, "preexec_fn": lambda: os.close(2)}
    elif kind == "full":
        options = {"stderr": os.open("/dev/full", os.O_WRONLY)}
    elif kind == "reader gone":
        os.close(read)
    else:
        os.set_blocking(write, False)
        while True:
            try:
                os.write(write, bytes(1 << 12))
            except BlockingIOError:
                break
        os.set_blocking(write, True)
    outcome = workspace.wait_for_end(workspace.start("run", workspace.agenda(**BRIEF), **options))
    assert outcome.status == 0, outcome
    assert f"results: results/short/{workspace.campaign.name}" in outcome.out
    assert [run["verification"]["status"] for run in workspace.results().values()] == ["passed"]
    assert nothing_is_left(workspace)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["reader gone", "full"])
def test_result_output_that_cannot_be_written_does_not_prevent_the_report(workspace: Any, kind: str) -> None:
    read, write = os.pipe()
    os.close(read)
    out = write if kind == "reader gone" else os.open("/dev/full", os.O_WRONLY)
    outcome = workspace.wait_for_end(
        workspace.start("run", workspace.agenda(**BRIEF), program=workspace.without_spark, stdout=out)
    )
    assert outcome.status == 3, outcome
    assert outcome.err.count("standard output cannot be written: No space left on device") == (kind == "full")
    assert "Spark is not installed" in outcome.err or "no Java" in outcome.err


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("turn", range(200))
def test_two_hundred_signals_at_random_times_leave_nothing(workspace: Any, turn: int) -> None:
    draw = random.Random(turn)  # noqa: S311
    numbers = [draw.choice((signal.SIGHUP, signal.SIGTERM)) for _ in range(draw.randint(1, 3))]
    campaign = workspace.start("run", workspace.agenda(**BRIEF), program=workspace.whole, preexec_fn=default_hangup)
    # Before the state file, nothing can be left behind, and the signal handlers are not installed.
    workspace.wait_for(lambda: bool(workspace.state_files()) or campaign.poll() is not None, "the state file")
    time.sleep(draw.random() * 12)
    for number in numbers:
        campaign.send_signal(number)
        time.sleep(draw.random() * 0.1)
    outcome = workspace.wait_for_end(campaign)
    assert outcome.status in (0, 130), outcome
    assert "Traceback" not in outcome.err
    assert "Exception ignored" not in outcome.err
    assert nothing_is_left(workspace)
