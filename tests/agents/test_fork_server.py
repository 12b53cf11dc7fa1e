"""Fork server: forked from the agent at its start, and replaced by a separate program."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agents.agent.spawner import ANSWER_S
from agents.protocol import Bye, Failed

pytestmark = pytest.mark.loopback


def process_name(pid: int) -> str:
    """Return the name of a process in `ps` and `top`."""
    return Path(f"/proc/{pid}/comm").read_text().rstrip("\n")


def program(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def open_files(pid: int) -> set[str]:
    """Return the targets of a process's descriptors, pipes by their numbers."""
    return {str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()}


def test_processes_of_a_node_have_distinct_names_and_only_the_agent_holds_its_channel(start_agent: Any, wordcount: Any):
    agent = start_agent()
    agent.welcome()
    workers = [report.pid for report in wordcount(agent).start().values()]
    [server], children = agent.children()
    assert sorted(children) == sorted(workers)
    assert [process_name(pid) for pid in (agent.pid, server, *workers)] == [
        "millrace-agent",
        "millrace-server",
        *["millrace-worker"] * len(workers),
    ]
    channel = {f"pipe:[{os.fstat(pipe.fileno()).st_ino}]" for pipe in (agent.process.stdin, agent.process.stdout)}
    assert channel <= open_files(agent.pid)
    assert not [pid for pid in (server, *workers) if channel & open_files(pid)]


def loaded(pid: int) -> set[str]:
    """Return the stems of the names of files that a process has mapped."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {Path(line.split(maxsplit=5)[5]).name.split(".")[0] for line in lines if "/" in line}


def test_a_worker_loads_no_library_that_only_its_agent_or_columns_need(start_agent: Any, wordcount: Any):
    agent = start_agent()
    agent.welcome()
    run = wordcount(agent)
    listening = run.start(sensors=("cpu", "memory"))
    workers = [report.pid for report in listening.values()]
    [server], _ = agent.children()
    run.connect(listening)
    run.go()
    agent.expect_progress(lambda p: p.emitted > 0)
    # By then, traces and the answer have been written.
    assert any(drained.answers for drained in run.drain())
    libraries = {"_psutil_linux", "libarrow"}
    assert [libraries & loaded(pid) for pid in (agent.pid, server, *workers)] == [{"_psutil_linux"}] + [set()] * 3


def test_a_server_loads_arrow_once_workers_need_it_for_columns(start_agent: Any, wordcount: Any):
    agent = start_agent()
    agent.welcome()
    workers = [report.pid for report in wordcount(agent).start(columns=True).values()]
    [server], _ = agent.children()
    libraries = {"pandas", "libarrow", "_multiarray_umath"}
    assert [libraries & loaded(pid) for pid in (agent.pid, server, *workers)] == [set()] + [libraries - {"pandas"}] * 3


def test_the_first_server_is_forked_and_when_it_dies_a_program_replaces_it(start_agent: Any, wordcount: Any):
    agent = start_agent()
    agent.welcome()
    [first], _ = agent.children()
    assert program(first) == program(agent.pid)
    os.kill(first, signal.SIGKILL)
    run = wordcount(agent)
    listening = run.start()
    [second], _ = agent.children()
    assert "agents.worker" in program(second)
    assert {program(report.pid)[-2] for report in listening.values()} == {"agents.worker"}
    run.connect(listening)
    run.go()
    agent.expect_progress(lambda p: p.emitted > 0)
    run.drain()
    run.finish()
    agent.send(Bye())
    assert agent.wait() == 0


FAILING_FORK = """
import os, sys
from agents.__main__ import main

def refuse():
    raise BlockingIOError(11, "no more processes")

os.fork = refuse
sys.exit(main())
"""


def test_an_agent_that_cannot_fork_at_its_start_gets_its_workers_from_a_program(start_agent: Any, wordcount: Any):
    agent = start_agent(command=(sys.executable, "-P", "-c", FAILING_FORK))
    agent.welcome()
    listening = wordcount(agent).start()
    assert {program(report.pid)[-2] for report in listening.values()} == {"agents.worker"}


DESCRIPTORS = """
import asyncio, os, sys

def listed():
    os.write(1, " ".join(sorted(os.listdir("/proc/self/fd"))).encode())
    return 0

PROGRAM = (sys.executable, "-P", "-c", '''
import os
from agents.worker.process.fork_server import run_fork_server
run_fork_server()
os.write(1, " ".join(sorted(os.listdir("/proc/self/fd"))).encode())
''')

for number in (20, 21):
    os.dup2(2, number, inheritable=True)
from agents.worker.process.fork_server import start_fork_server
first = start_fork_server(listed) if sys.argv[1] == "split off" else None
from agents.agent.spawner import Spawner

async def main():
    spawner = Spawner(PROGRAM, first)
    for _ in range(2):
        process = await spawner.spawn(2, os.open("/", os.O_RDONLY))
        print(os.read(process.stdout, 100).decode(), flush=True)
    await spawner.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("server", ["split off", "a program"])
def test_a_worker_holds_no_descriptor_that_it_was_not_given(server: str):
    result = subprocess.run(
        [sys.executable, "-P", "-c", DESCRIPTORS, server], capture_output=True, text=True, check=True, timeout=60
    )
    # Number 3 is the listing itself.
    assert result.stdout.splitlines() == ["0 1 2 3"] * 2


def test_a_server_that_is_killed_with_one_of_its_workers_is_detected_at_once(start_agent: Any, wordcount: Any):
    agent = start_agent()
    agent.welcome()
    run = wordcount(agent)
    listening = run.start()
    [server], _ = agent.children()
    for pid in (server, listening["n1/0"].pid):
        os.kill(pid, signal.SIGKILL)
    assert agent.expect(Failed).died
    began_s = time.monotonic()
    again = run.start(epoch=2)
    assert time.monotonic() - began_s < ANSWER_S / 2
    assert again["n1/0"].pid != listening["n1/0"].pid
    assert again["n1/1"].pid == listening["n1/1"].pid
