"""Where workers come from: a fork server that the agent splits off itself, and the program that takes its place."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from agents.protocol import Bye

pytestmark = pytest.mark.loopback


def shown(pid: int) -> str:
    """The name under which `ps` and `top` show a process."""
    return Path(f"/proc/{pid}/comm").read_text().rstrip("\n")


def program(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def opened(pid: int) -> set[str]:
    """What the descriptors of a process are, pipes by their numbers."""
    return {str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()}


def test_processes_of_a_node_are_told_apart_and_none_but_the_agent_holds_its_channel(start_agent: Any, wordcount: Any):
    agent = start_agent()
    agent.welcome()
    workers = [report.pid for report in wordcount(agent).start().values()]
    [server], children = agent.children()
    assert sorted(children) == sorted(workers)
    assert [shown(pid) for pid in (agent.pid, server, *workers)] == [
        "millrace-agent",
        "millrace-server",
        *["millrace-worker"] * len(workers),
    ]
    channel = {f"pipe:[{os.fstat(pipe.fileno()).st_ino}]" for pipe in (agent.process.stdin, agent.process.stdout)}
    assert channel <= opened(agent.pid)
    assert not [pid for pid in (server, *workers) if channel & opened(pid)]


def loaded(pid: int) -> set[str]:
    """Stems of the files that a process has in its memory."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {Path(line.split(maxsplit=5)[5]).name.split(".")[0] for line in lines if "/" in line}


def test_a_worker_has_nothing_in_its_memory_that_only_its_agent_needs(start_agent: Any, wordcount: Any):
    agent = start_agent()
    agent.welcome()
    workers = [report.pid for report in wordcount(agent).start().values()]
    [server], _ = agent.children()
    asked = {"_psutil_linux", "libarrow"}
    assert [asked & loaded(pid) for pid in (agent.pid, server, *workers)] == [
        asked,
        *[{"libarrow"}] * (1 + len(workers)),
    ]


def test_the_first_server_is_split_off_and_when_it_dies_a_program_takes_its_place(start_agent: Any, wordcount: Any):
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


UNFORKED = """
import os, sys
from agents.begin import main

def refuse():
    raise BlockingIOError(11, "no more processes")

os.fork = refuse
sys.exit(main())
"""


def test_an_agent_that_cannot_be_forked_when_it_begins_has_its_workers_from_a_program(start_agent: Any, wordcount: Any):
    agent = start_agent(command=(sys.executable, "-P", "-c", UNFORKED))
    agent.welcome()
    listening = wordcount(agent).start()
    assert {program(report.pid)[-2] for report in listening.values()} == {"agents.worker"}
