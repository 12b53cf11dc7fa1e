"""Interrupted jobs: no process remains."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from analysis.tables.submit import _started

CHILD_WITHOUT_SIGTERM = "sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.1; done' & wait"
"""A leader that ends at SIGTERM, and a child that ignores it."""


def test_an_interrupted_job_ends_with_all_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analysis.tables.submit._PATIENCE_S", 0.3)
    children: list[psutil.Process] = []

    def interrupt() -> None:
        with _started(["sh", "-c", CHILD_WITHOUT_SIGTERM], dict(os.environ)) as (_, lines):
            children.append(psutil.Process(int(next(lines))))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    [child] = children
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


SIGTERM_WHILE_STARTING = """
import os, signal, subprocess, sys
from analysis.tables.submit import _started
from controller.host.signals import interrupted_once

os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGTERM))
try:
    with interrupted_once(), _started(["sleep", "100"], dict(os.environ)) as (process, _):
        process.wait()
except KeyboardInterrupt:
    print("interrupted")
"""


def test_a_signal_while_a_job_starts_is_not_lost() -> None:
    process = subprocess.run([sys.executable, "-c", SIGTERM_WHILE_STARTING], capture_output=True, text=True, timeout=60)
    assert (process.stdout, process.stderr, process.returncode) == ("interrupted\n", "", 0)


def test_a_job_starts_with_signals_unblocked(tmp_path: Path) -> None:
    masks = tmp_path / "masks"
    with _started(["sh", "-c", f"grep SigBlk /proc/self/status > {masks}"], dict(os.environ)) as (process, _):
        process.wait()
    blocked = int(masks.read_text().split()[1], 16)
    assert not any(blocked >> (number - 1) & 1 for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
