"""State files, locks and `clean`, with real processes that are killed."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from campaign.runner.clean import clean
from controller.host.cluster_lock import ClusterClaim, ClusterLock, lock_path
from controller.host.disk import state_folder
from controller.host.ownership import MARKER, CleanupLog, read_state
from controller.host.process_identity import ProcessIdentity, end_processes, identify
from inventory.errors import UnfitError

CAMPAIGN = """
import subprocess, sys, time
from pathlib import Path
from controller.host.cluster_lock import ClusterClaim, ClusterLock
from controller.host.ownership import CleanupLog

final = Path(sys.argv[1])
with ClusterLock(ClusterClaim("five nodes", ("five",)), final.parent), CleanupLog(final.parent) as state:
    folder = state.partial(final)
    folder.mkdir()
    (folder / "trace.arrow").write_text("half")
    # Deaf to SIGTERM, in a session of its own and with a child, like an agent with a worker that hangs.
    deaf = ["setsid", "sh", "-c", "trap '' TERM; sleep 600 & echo up; wait; wait"]
    agent = subprocess.Popen(deaf, stdout=subprocess.PIPE)
    agent.stdout.readline()
    if "recorded" in sys.argv:
        state.started(agent.pid, "agent n1")
    print(agent.pid, flush=True)
    if "leave" not in sys.argv:
        time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("controller.host.process_identity.PATIENCE_S", 0.3)


@contextmanager
def _campaign(final: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], ProcessIdentity]]:
    """Start a campaign's process and its agent; end both afterwards."""
    final.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-c", textwrap.dedent(CAMPAIGN), str(final), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as controller:
        assert controller.stdout is not None
        agent = identify(int(controller.stdout.readline()))
        try:
            assert agent is not None
            yield controller, agent
        finally:
            controller.kill()
            controller.wait()
            end_processes([agent] if agent else [])
            clean()


@pytest.mark.parametrize("words", [(), ("recorded",)], ids=["found by its environment", "found by its line"])
def test_clean_removes_everything_left_by_a_killed_campaign(tmp_path: Path, words: tuple[str, ...]) -> None:
    final = tmp_path / "campaign" / "001-wordcount-even-r1"
    with _campaign(final, *words) as (controller, agent):
        child = int(Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()[0])
        controller.kill()
        controller.wait()
        assert agent.is_alive()
        outcome = clean()
        assert not agent.is_alive()
        assert identify(child) is None
        assert not list(final.parent.iterdir())
        assert not list(state_folder().iterdir())
        assert not outcome.failed
        report = "\n".join(outcome.done)
        assert f"process {agent.pid} ({'agent n1' if words else 'a process that it started'})" in report
        assert f"{final}.partial" in report
        assert clean().done == []


def test_clean_leaves_a_running_campaign_alone(tmp_path: Path) -> None:
    final = tmp_path / "campaign" / "001"
    with _campaign(final, "recorded") as (controller, agent):
        outcome = clean()
        assert outcome.done == []
        assert f"pid {controller.pid} of " in outcome.running[0]
        assert str(final.parent) in outcome.running[0]
        assert agent.is_alive()
        assert final.with_name("001.partial").is_dir()


def test_leaving_the_block_leaves_nothing_behind(tmp_path: Path) -> None:
    with _campaign(tmp_path / "campaign" / "001", "leave") as (controller, agent):
        assert controller.wait(timeout=30) == 0
        assert not agent.is_alive()
        assert not list((tmp_path / "campaign").iterdir())
        assert not list(state_folder().iterdir())


def test_a_finished_folder_is_kept(tmp_path: Path) -> None:
    with CleanupLog(tmp_path) as state:
        work = state.partial(tmp_path / "001")
        work.mkdir()
        work.rename(tmp_path / "001")
    assert (tmp_path / "001").is_dir()
    assert MARKER not in os.environ


def test_a_reused_pid_is_not_killed(tmp_path: Path) -> None:
    unrelated = subprocess.Popen(["sleep", "600"])
    try:
        final = tmp_path / "campaign" / "001"
        with _campaign(final) as (controller, _):
            state_file = next(state_folder().glob("campaign-*.jsonl"))
            identity = identify(unrelated.pid)
            assert identity is not None
            reused = {"pid": identity.pid, "start": identity.start - 1, "boot": identity.boot, "space": identity.space}
            controller.kill()
            controller.wait()
            with state_file.open("a") as lines:
                lines.write(json.dumps({"process": reused, "what": "agent n2"}) + "\n")
            clean()
        assert unrelated.poll() is None
    finally:
        unrelated.kill()
        unrelated.wait()


@pytest.mark.parametrize(
    "tail",
    ['{"folder": "/hal', '{"folder": "KEEP"}\n', '{"folder": "LINK.partial"}\n', '{"folder": "relative.partial"}\n'],
    ids=["cut short", "not partial", "a link", "relative"],
)
def test_a_damaged_state_file_removes_nothing_but_partial_folders(tmp_path: Path, tail: str) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (tmp_path / "link.partial").symlink_to(kept)
    final = tmp_path / "campaign" / "001"
    with _campaign(final) as (controller, agent):
        state_file = next(state_folder().glob("campaign-*.jsonl"))
        controller.kill()
        controller.wait()
        with state_file.open("a") as lines:
            lines.write(tail.replace("KEEP", str(kept)).replace("LINK", str(tmp_path / "link")))
        assert clean().failed == []
        assert not agent.is_alive()
    assert kept.is_dir()
    assert (tmp_path / "link.partial").is_symlink()


def test_a_state_file_of_another_boot_ends_no_process(tmp_path: Path) -> None:
    final = tmp_path / "campaign" / "001"
    with _campaign(final, "recorded") as (controller, agent):
        record = read_state(next(state_folder().glob("campaign-*.jsonl")))
        assert record is not None
        controller.kill()
        controller.wait()
        text = record.path.read_text()
        # A reboot gives a new boot id, and no process of the old boot can be there with its marker.
        text = text.replace(agent.boot, "0" * len(agent.boot)).replace(record.header.marker, "0" * 32)
        record.path.write_text(text)
        outcome = clean()
        assert agent.is_alive()
        assert not final.with_name("001.partial").exists()
        assert not record.path.exists()
        assert not outcome.failed


def test_an_unreadable_first_line_is_removed(tmp_path: Path) -> None:
    empty = state_folder() / "campaign-0.jsonl"
    empty.touch()
    assert "without a readable first line" in clean().done[0]
    assert not empty.exists()


def test_a_second_campaign_is_refused_with_the_owner_of_the_cluster(tmp_path: Path) -> None:
    final = tmp_path / "campaign" / "001"
    with _campaign(final) as (controller, _):
        with (
            pytest.raises(UnfitError) as refusal,
            ClusterLock(ClusterClaim("five nodes", ("five",)), tmp_path / "second"),
        ):
            pass
        assert f"pid {controller.pid} of " in str(refusal.value)
        assert f"campaign {final.parent}, since 2" in str(refusal.value)
        assert refusal.value.exit_status == 3
        with ClusterLock(ClusterClaim("another cluster", ("another",)), tmp_path / "second"):
            pass


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_any_death_releases_the_cluster_even_if_children_survive(tmp_path: Path, number: signal.Signals) -> None:
    with _campaign(tmp_path / "campaign" / "001") as (controller, agent):
        controller.send_signal(number)
        controller.wait()
        assert agent.is_alive()
        with ClusterLock(ClusterClaim("five nodes", ("five",)), tmp_path / "second") as lock:
            assert f'"pid":{os.getpid()}' in lock.path.read_text()
        assert not lock_path(ClusterClaim("five nodes", ("five",))).exists()
