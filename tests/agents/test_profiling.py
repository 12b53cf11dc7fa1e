"""Sampled stacks of workers during a run; a missing profile has a reason and does not affect the run."""

import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from agents.protocol import Bye, Failed, Profile, Profiled, Sampling

pytestmark = pytest.mark.loopback

STACK = re.compile(r"(?P<frames>[^;]+(;[^;]+)*) (?P<count>[1-9][0-9]*)")


def stacks(file: Path) -> dict[str, int]:
    found = {}
    for line in file.read_text().splitlines():
        match = STACK.fullmatch(line)
        assert match, line
        found[match["frames"]] = int(match["count"])
    return found


def with_py_spy(program: str | None, patience_s: float = 10.0) -> tuple[str, ...]:
    """Return the command of an agent that finds this program as py-spy."""
    code = (
        "import sys; from agents.agent import worker_reports;"
        f"worker_reports.find_py_spy = lambda: {program!r}; worker_reports.PATIENCE_S = {patience_s};"
        "from agents.__main__ import main; sys.exit(main())"
    )
    return (sys.executable, "-P", "-c", code)


def sampled(agent: Any, run: Any) -> tuple[Profile, ...]:
    """Start a run, sample until tuples were emitted, and end the run normally; return the profiles."""
    run.connect(run.start())
    agent.send(Sampling(epoch=1, on=True))
    run.go()
    agent.expect_progress(lambda p: p.emitted > 500)
    agent.send(Sampling(epoch=1, on=False))
    profiles: tuple[Profile, ...] = agent.expect(Profiled).profiles
    run.drain()
    run.finish()
    agent.send(Bye())
    assert agent.wait() == 0
    return profiles


@pytest.mark.profiler
def test_every_worker_has_a_file_of_collapsed_stacks(start_agent, wordcount):
    agent = start_agent()
    agent.welcome()
    run = wordcount(agent)
    profiles = sampled(agent, run)
    assert [(profile.slot, profile.reason) for profile in profiles] == [(0, ""), (1, "")]
    for profile in profiles:
        file = agent.folder / profile.file
        assert file == agent.folder / "run-1" / "profiles" / f"n1-{profile.slot}.folded"
        assert sum(stacks(file).values()) == profile.samples
    assert any(
        "agents/worker/process/event_loop.py" in stack for p in profiles for stack in stacks(agent.folder / p.file)
    )


@pytest.mark.profiler
def test_a_killed_worker_leaves_its_samples(start_agent, wordcount):
    agent = start_agent()
    agent.welcome()
    run = wordcount(agent)
    listening = run.start()
    run.connect(listening)
    run.go()
    agent.send(Sampling(epoch=1, on=True))
    agent.expect_progress(lambda p: p.emitted > 500)
    os.kill(listening["n1/0"].pid, signal.SIGKILL)
    agent.expect(Failed)
    agent.send(Sampling(epoch=1, on=False))
    profiles = agent.expect_after_failures(Profiled).profiles
    assert [profile.reason for profile in profiles] == ["", ""]
    assert all((agent.folder / profile.file).is_file() for profile in profiles)


def test_without_py_spy_there_is_a_reason_and_the_run_goes_on(start_agent, wordcount):
    agent = start_agent(command=with_py_spy(None))
    agent.welcome()
    profiles = sampled(agent, wordcount(agent))
    assert profiles == tuple(Profile(slot, reason="py-spy is not installed") for slot in range(2))


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            "echo 'Permission Denied: Try running again with elevated permissions' >&2; exit 1",
            "the kernel does not let",
        ),
        ("echo >&2; echo 'Error: no Python here' >&2; exit 3", "py-spy: no Python here"),
        ("trap '' INT; while :; do sleep 0.1; done", "did not end within 0.3 s"),
    ],
)
def test_a_failure_of_py_spy_is_a_reason_too(start_agent, wordcount, tmp_path, script: str, reason: str):
    program = tmp_path / "py-spy"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    agent = start_agent(command=with_py_spy(str(program), patience_s=0.3))
    agent.welcome()
    profiles = sampled(agent, wordcount(agent))
    assert [profile.slot for profile in profiles] == [0, 1]
    assert all(reason in profile.reason and not profile.file for profile in profiles)


def test_samples_without_a_stack_are_left_out(start_agent, wordcount, tmp_path):
    program = tmp_path / "py-spy"
    written = r"printf ' 3\nmain;loop 2\nmain 1\n' > $file; exit 0"
    program.write_text(f'#!/bin/sh\nfor file; do :; done\ntrap "{written}" INT\nwhile :; do sleep 0.1; done\n')
    program.chmod(0o755)
    agent = start_agent(command=with_py_spy(str(program)))
    agent.welcome()
    for profile in sampled(agent, wordcount(agent)):
        assert (profile.reason, profile.samples) == ("", 3)
        assert stacks(agent.folder / profile.file) == {"main;loop": 2, "main": 1}


def test_a_stop_without_a_start_has_no_profiles(start_agent, wordcount):
    agent = start_agent()
    agent.welcome()
    run = wordcount(agent)
    run.connect(run.start())
    agent.send(Sampling(epoch=1, on=False))
    assert agent.expect(Profiled).profiles == ()
