"""Affinity: CPUs that a process lost while they were offline are restored, and its other CPUs are kept."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from trees.processors import acpi_shared

from agents.cpu.node_cpus import CpuAffinity, format_cpus
from agents.power.reader import ROOT_VARIABLE
from agents.protocol import CpusSet, RestoreCpus, SetCpus

CPUS = os.sched_getaffinity(0)

pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="there is no second CPU that a process could lack")

THREADS = """
import sys, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture
def child() -> Iterator[int]:
    """A process with two threads."""
    with subprocess.Popen([sys.executable, "-c", THREADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def tasks(process: int) -> list[int]:
    return [int(task.name) for task in Path(f"/proc/{process}/task").iterdir()]


def test_every_thread_gets_its_missing_cpus_back_and_only_changes_are_reported(child: int) -> None:
    affinity = CpuAffinity()
    assert affinity.restore_all([child]) == []
    assert len(tasks(child)) == 2
    for task in tasks(child):
        os.sched_setaffinity(task, {min(CPUS)})
    (restored,) = affinity.restore_all([child])
    assert (restored.process, restored.ok) == (child, True)
    assert restored.before == {min(CPUS)}
    assert {frozenset(os.sched_getaffinity(task)) for task in tasks(child)} == {frozenset(CPUS)}
    assert affinity.restore_all([child]) == []


def test_additional_cpus_of_a_process_are_kept(child: int) -> None:
    try:
        os.sched_setaffinity(0, {min(CPUS)})
        affinity = CpuAffinity()
    finally:
        os.sched_setaffinity(0, CPUS)
    assert affinity.restore_all([child]) == []
    assert os.sched_getaffinity(child) == CPUS


def test_a_process_that_has_ended_is_ignored() -> None:
    assert CpuAffinity().restore_all([2**22 + 1]) == []


@pytest.mark.loopback
def test_an_agent_restores_its_own_affinity_and_reports_it(start_agent, tmp_path: Path) -> None:
    root = acpi_shared().build(tmp_path)
    agent = start_agent(env={ROOT_VARIABLE: str(root)})
    agent.welcome()
    os.sched_setaffinity(agent.pid, {max(CPUS)})
    agent.send(SetCpus(settings={"governor": "performance"}))
    rows = {setting.setting: setting for setting in agent.expect(CpusSet).settings}
    restored = rows[f"CPUs of process {agent.pid}"]
    assert (restored.before, restored.asked, restored.got, restored.ok) == (
        format_cpus({max(CPUS)}),
        format_cpus(CPUS),
        format_cpus(CPUS),
        True,
    )
    assert os.sched_getaffinity(agent.pid) == CPUS
    os.sched_setaffinity(agent.pid, {max(CPUS)})
    agent.send(RestoreCpus())
    agent.expect(CpusSet)
    assert os.sched_getaffinity(agent.pid) == CPUS
