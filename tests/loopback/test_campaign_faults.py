"""Faults during a campaign: no process or file is left, finished runs are kept, and the rest can be resumed."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.loopback

FIRST, SECOND = "001-wordcount-even-r1", "002-wordcount-top-storm-r1"


def finish(workspace: Any) -> None:
    """Resume the campaign; check that it is complete."""
    outcome = workspace.run("run", "--resume", "results/short/latest")
    assert outcome.status == 0, outcome
    results = workspace.results()
    assert list(results) == [FIRST, SECOND]
    assert {run["status"] for run in results.values()} == {"ok"}
    assert {run["verification"]["status"] for run in results.values()} == {"passed"}
    assert sorted(path.name for path in (workspace.campaign / "runs").iterdir()) == [FIRST, SECOND]
    assert not list(workspace.temporary.iterdir())
    assert not workspace.state_files()


def written(workspace: Any, run: str) -> int:
    """Return the modification time of a run's result."""
    mtime_ns: int = (workspace.campaign / "runs" / run / "run.json").stat().st_mtime_ns
    return mtime_ns


def agents_run(workspace: Any) -> bool:
    return len(workspace.processes("agent")) == 2


def second_run_is_measured(workspace: Any) -> bool:
    live = workspace.live()
    return (live.get("number"), live.get("stage")) == (2, "measuring")


def first_run_is_collected(workspace: Any) -> bool:
    return (workspace.campaign / "runs" / f"{FIRST}.partial" / "answer").is_dir()


@pytest.mark.parametrize(
    "moment",
    [
        second_run_is_measured,
        pytest.param(agents_run, marks=pytest.mark.long),
        pytest.param(first_run_is_collected, marks=pytest.mark.long),
    ],
)
def test_a_killed_campaign_leaves_no_process_and_is_completed_by_resume(
    workspace: Any, moment: Callable[[Any], bool]
) -> None:
    campaign = workspace.start("run", workspace.agenda())
    workspace.wait_for(lambda: moment(workspace), moment.__name__)
    campaign.kill()
    campaign.communicate()
    workspace.wait_until_no_process()
    done = {run: written(workspace, run) for run in workspace.results()}
    assert (moment is second_run_is_measured) == (FIRST in done)
    finish(workspace)
    assert all(written(workspace, run) == mtime_ns for run, mtime_ns in done.items())


@pytest.mark.long
def test_runs_whose_agent_or_worker_is_killed_are_tried_again(workspace: Any) -> None:
    campaign = workspace.start("run", workspace.agenda(checkpoint_s=0, duration_s=3, on_failure={"retry": 1}))
    for number, role in enumerate(("agent", "worker"), 1):
        workspace.wait_for_stage(number, "measuring")
        os.kill(workspace.processes(role)[0].pid, signal.SIGKILL)
    outcome = workspace.wait_for_end(campaign)
    assert outcome.status == 0, outcome
    assert outcome.err.count("was killed by SIGKILL") >= 2
    assert outcome.err.count("retrying") == 2
    results = workspace.results()
    assert [results[run]["attempt"] for run in (FIRST, SECOND)] == [2, 2]
    for run in (FIRST, SECOND):
        assert results[run]["verification"]["status"] == "passed"
        logs = workspace.campaign / "runs" / run / "logs"
        assert {path.name for path in (logs / "attempt-1").iterdir()} == {"n1", "n2"}
    assert not workspace.processes()


@pytest.mark.long
def test_a_failed_run_does_not_end_the_campaign_and_is_repeated_by_resume(workspace: Any) -> None:
    campaign = workspace.start("run", workspace.agenda(checkpoint_s=0))
    workspace.wait_for_stage(1, "measuring")
    os.kill(workspace.workers()[-1].pid, signal.SIGKILL)
    outcome = workspace.wait_for_end(campaign)
    assert outcome.status == 1, outcome
    failed, ok = (workspace.results()[run] for run in (FIRST, SECOND))
    assert (failed["status"], ok["status"]) == ("failed", "ok")
    assert "was killed by SIGKILL" in failed["reason"]
    assert failed["verification"]["status"] == "none"
    assert failed["measured"] is None
    log = failed["reason"].rpartition("log: ")[2]
    assert (workspace.campaign / "runs" / FIRST / log).exists()
    before = written(workspace, SECOND)
    finish(workspace)
    assert written(workspace, SECOND) == before


@pytest.mark.long
def test_a_failure_stops_the_campaign_when_the_agenda_says_so(workspace: Any) -> None:
    campaign = workspace.start("run", workspace.agenda(checkpoint_s=0, on_failure={"then": "stop"}))
    workspace.wait_for_stage(1, "measuring")
    os.kill(workspace.workers()[0].pid, signal.SIGKILL)
    outcome = workspace.wait_for_end(campaign)
    assert outcome.status == 1, outcome
    assert [workspace.results()[run]["status"] for run in (FIRST, SECOND)] == ["failed", "skipped"]
    finish(workspace)


def test_ctrl_c_once_finishes_the_run_and_stops(workspace: Any) -> None:
    campaign = workspace.start("run", workspace.agenda())
    workspace.wait_for_stage(1, "measuring")
    campaign.send_signal(signal.SIGINT)
    outcome = workspace.wait_for_end(campaign)
    assert outcome.status == 130, outcome
    assert f"millrace run --resume results/short/{workspace.campaign.name}" in outcome.err
    assert [run["status"] for run in workspace.results().values()] == ["ok"]
    assert not workspace.processes()
    before = written(workspace, FIRST)
    finish(workspace)
    assert written(workspace, FIRST) == before


@pytest.mark.parametrize(
    "signals", [(signal.SIGINT, signal.SIGINT), pytest.param((signal.SIGTERM,), marks=pytest.mark.long)]
)
def test_ctrl_c_twice_or_sigterm_stops_at_once(workspace: Any, signals: tuple[signal.Signals, ...]) -> None:
    campaign = workspace.start("run", workspace.agenda(duration_s=3600))
    workspace.wait_for_stage(1, "measuring")
    for number in signals[:-1]:
        campaign.send_signal(number)
        # Two pending signals of a kind are delivered as one: wait for the reaction to the first, past other lines.
        assert any("interrupted" in line for line in iter(campaign.stderr.readline, ""))
    campaign.send_signal(signals[-1])
    outcome = workspace.wait_for_end(campaign)
    assert outcome.status == 130, outcome
    assert not workspace.results()
    assert not list((workspace.campaign / "runs").iterdir())
    assert not workspace.processes()
    assert not list(workspace.temporary.iterdir())
    assert workspace.live()["stage"] == "interrupted"


def test_ctrl_c_before_the_first_run_stops_at_once(workspace: Any) -> None:
    campaign = workspace.start("run", workspace.agenda())
    workspace.wait_for(lambda: any(path.suffix == ".jsonl" for path in workspace.state_files()), "the state file")
    for _ in range(2):
        campaign.send_signal(signal.SIGINT)
    outcome = workspace.wait_for_end(campaign)
    assert outcome.status == 130, outcome
    assert "Traceback" not in outcome.err
    assert not workspace.processes()
    assert not list(workspace.temporary.iterdir())


@pytest.mark.long
def test_a_second_campaign_is_refused_with_the_pid_of_the_first(workspace: Any) -> None:
    agenda = workspace.agenda(duration_s=3600)
    first = workspace.start("run", agenda)
    workspace.wait_for_stage(1, "measuring")
    folder = workspace.campaign
    second = workspace.run("run", agenda)
    assert second.status == 3
    assert f"pid {first.pid} of" in second.err
    assert str(folder) in second.err
    assert workspace.run("run", "--resume", str(folder)).status == 3
    assert workspace.campaign == folder
    first.send_signal(signal.SIGTERM)
    assert workspace.wait_for_end(first).status == 130


@pytest.fixture
def tiny(workspace: Any) -> Any:
    """Results folder on a file system with space for little more than one run."""
    folder = workspace.folder / "results"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.root
@pytest.mark.long
def test_a_disk_that_fills_up_keeps_finished_runs_and_is_reported_once(workspace: Any, tiny: Path) -> None:
    filler = tiny / "filler"
    campaign = workspace.start("run", workspace.agenda())
    workspace.wait_for_stage(2, "measuring")
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(512))
        except OSError:
            pass
    outcome = workspace.wait_for_end(campaign)
    assert outcome.status == 3, outcome
    assert outcome.err.count("is full; finished runs are kept. Make room, then: millrace run --resume") == 1
    assert "Traceback" not in outcome.err
    assert list(workspace.results()) == [FIRST]
    assert [path.name for path in (workspace.campaign / "runs").iterdir()] == [FIRST]
    assert not workspace.processes()
    before = written(workspace, FIRST)
    filler.unlink()
    finish(workspace)
    assert written(workspace, FIRST) == before


@pytest.mark.root
def test_a_full_disk_at_the_start_leaves_nothing(workspace: Any, tiny: Path) -> None:
    (tiny / "filler").write_bytes(bytes(600 * 1024))
    outcome = workspace.run("run", workspace.agenda())
    assert outcome.status == 3, outcome
    assert "is full" in outcome.err
    assert [path.name for path in tiny.iterdir()] == ["filler"]
    assert not list(workspace.temporary.iterdir())


@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        ({"schedulers": ["evn"]}, 2, "agenda.json:1: schedulers[0]: unknown scheduler 'evn'; did you mean 'even'?"),
        ({"inventory": "lopback"}, 2, "did you mean 'loopback'?"),
        ({"inventory": "none.yaml"}, 2, "'even' finds no place for 6 of 6 executors of 'wordcount'"),
        ({"inventory": "elsewhere.yaml"}, 3, "node n1: its address 192.0.2.7 cannot be bound on this host"),
        (
            {"timeline": [{"at_s": 1, "do": "move", "executor": "cont[0]", "to": "n1"}]},
            2,
            "timeline[0].executor: wordcount under even has no executor 'cont[0]'; did you mean 'count[0]'?",
        ),
    ],
)
def test_an_agenda_that_cannot_run_is_refused_before_anything_is_written(
    workspace: Any, changes: dict[str, Any], status: int, message: str
) -> None:
    (workspace.folder / "none.yaml").write_text("nodes: [{id: n1, slots: 0, ghz: 1, flops_per_cycle: 1}]")
    (workspace.folder / "elsewhere.yaml").write_text(
        "nodes: [{id: n1, address: 192.0.2.7, ghz: 1, flops_per_cycle: 1}]"
    )
    outcome = workspace.call("run", workspace.agenda(**changes))
    assert outcome.status == status, outcome
    assert message in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert not (workspace.folder / "results").exists()
    assert not workspace.state_files()
    assert not list(workspace.temporary.iterdir())


@pytest.mark.parametrize("text", ["missing.txt", "binary.txt", "folder"])
def test_an_unreadable_text_is_refused_before_anything_is_written(workspace: Any, text: str) -> None:
    (workspace.folder / "binary.txt").write_bytes(b"text\xff\xfe\n")
    (workspace.folder / "folder").mkdir()
    workload = {"name": "wordcount", "params": {"text": text}, "rate": {"kind": "max"}}
    outcome = workspace.call("run", workspace.agenda(inventory="loopback", workloads=[workload]))
    assert outcome.status == 2, outcome
    assert text in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert not (workspace.folder / "results").exists()
    assert not list(workspace.temporary.iterdir())


def test_a_missing_agenda_or_campaign_folder_is_a_usage_error(workspace: Any) -> None:
    outcome = workspace.call("run")
    assert outcome.status == 2
    assert "give an agenda, or --resume" in outcome.err
    outcome = workspace.call("run", "--resume", ".")
    assert outcome.status == 2
    assert "holds no campaign.json" in outcome.err


@pytest.mark.long
def test_every_result_document_is_valid_json_at_every_moment(workspace: Any) -> None:
    campaign = workspace.start("run", workspace.agenda(schedulers=["even"]))
    workspace.wait_for(lambda: bool(workspace.live()), "live.json")
    documents = 0
    while campaign.poll() is None:
        # os.walk skips a folder that is renamed meanwhile; rglob fails.
        for path in [Path(folder, name) for folder, _, names in os.walk(workspace.campaign) for name in names]:
            if path.suffix != ".json":
                continue
            try:
                text = path.read_text()
            except FileNotFoundError:
                continue  # a partial folder has just been renamed
            assert isinstance(json.loads(text), dict)
            documents += 1
    assert workspace.wait_for_end(campaign).status == 0
    assert documents > 0
