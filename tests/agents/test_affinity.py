"""CPUs that processes have lost while they were off are given back; what else they may use stays."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from trees.processors import acpi_shared

from agents.cpu.node_cpus import Affinity, format_cpus
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


def test_every_thread_gets_back_what_it_lacked_and_only_then_anything_is_told(child: int) -> None:
    affinity = Affinity()
    assert affinity.restore_all([child]) == []
    assert len(tasks(child)) == 2
    for task in tasks(child):
        os.sched_setaffinity(task, {min(CPUS)})
    (bound,) = affinity.restore_all([child])
    assert (bound.process, bound.ok) == (child, True)
    assert bound.before == {min(CPUS)}
    assert {frozenset(os.sched_getaffinity(task)) for task in tasks(child)} == {frozenset(CPUS)}
    assert affinity.restore_all([child]) == []


def test_what_a_process_has_besides_is_not_taken(child: int) -> None:
    try:
        os.sched_setaffinity(0, {min(CPUS)})
        affinity = Affinity()
    finally:
        os.sched_setaffinity(0, CPUS)
    assert affinity.restore_all([child]) == []
    assert os.sched_getaffinity(child) == CPUS


def test_a_process_that_is_gone_is_left_out() -> None:
    assert Affinity().restore_all([2**22 + 1]) == []


@pytest.mark.loopback
def test_an_agent_whose_cpus_are_set_has_its_own_back_and_says_so(start_agent, tmp_path: Path) -> None:
    root = acpi_shared().build(tmp_path)
    agent = start_agent(env={ROOT_VARIABLE: str(root)})
    agent.welcome()
    os.sched_setaffinity(agent.pid, {max(CPUS)})
    agent.send(SetCpus(settings={"governor": "performance"}))
    rows = {setting.setting: setting for setting in agent.expect(CpusSet).settings}
    given = rows[f"CPUs of process {agent.pid}"]
    assert (given.before, given.asked, given.got, given.ok) == (
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
