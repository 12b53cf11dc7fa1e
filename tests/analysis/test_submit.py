"""Jobs that are left early: nothing of them goes on."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from analysis.submit import _started

DEAF_CHILD = "sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.1; done' & wait"
"""A leader that ends when it is asked to, and a child that does not."""


def test_a_job_that_is_left_ends_with_all_that_it_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analysis.submit._PATIENCE_S", 0.3)
    children: list[psutil.Process] = []

    def leave() -> None:
        with _started(["sh", "-c", DEAF_CHILD], dict(os.environ)) as (_, lines):
            children.append(psutil.Process(int(next(lines))))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        leave()
    [child] = children
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


ASKED_WHILE_STARTING = """
import os, signal, subprocess, sys
from analysis.submit import _started
from controller.host.signals import interrupted_once

os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGTERM))
try:
    with interrupted_once(), _started(["sleep", "100"], dict(os.environ)) as (process, _):
        process.wait()
except KeyboardInterrupt:
    print("interrupted")
"""


def test_a_request_to_end_that_comes_while_a_job_starts_is_heard() -> None:
    done = subprocess.run([sys.executable, "-c", ASKED_WHILE_STARTING], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)


def test_a_job_gets_signals(tmp_path: Path) -> None:
    masks = tmp_path / "masks"
    with _started(["sh", "-c", f"grep SigBlk /proc/self/status > {masks}"], dict(os.environ)) as (process, _):
        process.wait()
    blocked = int(masks.read_text().split()[1], 16)
    assert not any(blocked >> (number - 1) & 1 for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
