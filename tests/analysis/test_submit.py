"""Jobs that are left early: nothing of them goes on."""

import os

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
