"""A controller that is killed at any time: no process of its run is left two seconds later."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.loopback

SEED = 20_260_301
LIMIT_S = 2.0
LATEST_S = 5.0
"""Latest time of a kill, after the first process of an agent; sources have started by then."""

CHANGES: Mapping[str, Any] = {
    "workloads": [
        {
            "name": "wordcount",
            "params": {"workers": 4, "ackers": 0, "parallelism": {"spout": 2, "split": 2, "count": 2}},
            "rate": {"kind": "constant", "tuples_per_s": 300},
        }
    ],
    "schedulers": ["even"],
    "warmup_s": 0.2,
    "duration_s": 30,
    "checkpoint_s": 0.3,
    "timeline": [{"at_s": 1, "do": "move", "executor": "count[0]", "to": "n2/1"}],
}
"""Two workers on each of two nodes, checkpoints and a move."""

KILLED_BEFORE: Sequence[Sequence[str]] = ((), ("worker",), ("server", "worker"), ("server", "worker"))
"""Roles of the processes that are killed within half a second before the controller."""


def left_behind(workspace: Any, struck: Sequence[str], at_s: float | None, before_s: float) -> str:
    """Kill a controller; return a description of the processes that are left too long, or an empty text.

    Args:
        workspace: where its campaign is started.
        struck: roles of processes on one node that are killed first.
        at_s: time of these kills, after the start of the first agent; None: once tuples flow.
        before_s: time from these kills to that of the controller.
    """
    campaign = workspace.start("run", workspace.agenda(**CHANGES))
    if at_s is None:
        workspace.wait_for_stage(1, "measuring")
    else:
        workspace.wait_for(lambda: len(workspace.processes()) > 1, "a process of an agent")
        time.sleep(at_s)
    # A process may end by itself meanwhile.
    with suppress(psutil.NoSuchProcess):
        node = [child for agent in workspace.processes("agent")[:1] for child in psutil.Process(agent.pid).children()]
        for role in struck:
            for process in [child for child in node if child.name() == f"millrace-{role}"][:1]:
                process.kill()
    time.sleep(before_s if struck else 0)
    assert campaign.poll() is None, workspace.wait_for_end(campaign)
    campaign.kill()
    campaign.wait()
    began_s = time.monotonic()
    while left := workspace.processes():
        if time.monotonic() - began_s > LIMIT_S:
            shown = {
                process.pid: name for name in ("agent", "server", "worker") for process in workspace.processes(name)
            }
            workspace.wait_until_no_process()
            took_s = time.monotonic() - began_s
            return f"{struck} at {at_s}, {before_s:.2f} s before: {[shown.get(p.pid) for p in left]} for {took_s:.1f} s"
        time.sleep(0.02)
    campaign.communicate()
    return ""


def test_nothing_is_left_two_seconds_after_a_server_a_worker_and_the_controller_were_killed(workspace: Any) -> None:
    assert not left_behind(workspace, ("server", "worker"), None, 0.4)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_nothing_is_left_of_200_controllers_killed_at_random_times(workspace: Any) -> None:
    random = Random(SEED)  # noqa: S311 - times of kills, repeatable
    found = [
        left_behind(workspace, random.choice(KILLED_BEFORE), random.uniform(0, LATEST_S), random.uniform(0, 0.5))
        for _ in range(200)
    ]
    assert not [left for left in found if left]
