"""A worker that hangs is found, killed and reported as one that died; one that works, or gets no CPU, is left alone."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from agents.agent import worker_process
from agents.agent.worker_process import MAX_CHECKS, HangDetector
from agents.protocol import Bye, Failed, Finish, Finished
from controller.host.process_identity import identify

TIMEOUT_S = 60.0
WAITS = "import time; time.sleep(3600)"
COMPUTES = "while True: pass"

Start = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a Python that runs code, and kills it afterwards."""
    started: list[subprocess.Popen[bytes]] = []

    def start(code: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-S", "-c", code])
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def until(state: str, pid: int) -> None:
    """Wait until a process is in that state."""
    deadline = time.monotonic() + TIMEOUT_S
    while worker_process._state(pid) != state:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def checks_until_it_hangs(of: HangDetector, most: int) -> int | None:
    """Return the number of checks; None when `most` are not enough."""
    return next((number for number in range(1, most + 1) if of.check()), None)


def test_a_stopped_process_hangs_after_fifteen_checks_at_which_nothing_had_happened(start: Start):
    process = start(COMPUTES)
    process.send_signal(signal.SIGSTOP)
    until("T", process.pid)
    found = checks_until_it_hangs(HangDetector(process.pid), 100)
    # At the first one it had just begun; at the second, or while it is being stopped, it has used CPU time.
    assert found is not None
    assert 2 + MAX_CHECKS["T"] <= found <= 2 * MAX_CHECKS["T"]


def test_a_word_in_between_lets_the_looks_count_anew(start: Start):
    process = start(COMPUTES)
    process.send_signal(signal.SIGSTOP)
    until("T", process.pid)
    it = HangDetector(process.pid)
    assert checks_until_it_hangs(it, 1 + MAX_CHECKS["T"]) is None
    it.note_output()
    assert checks_until_it_hangs(it, 1 + MAX_CHECKS["T"]) is None
    assert checks_until_it_hangs(it, MAX_CHECKS["T"])


def test_one_that_computes_never_hangs_whether_it_gets_a_cpu_or_not(start: Start):
    process = start(COMPUTES)
    until("R", process.pid)
    assert checks_until_it_hangs(HangDetector(process.pid), 2 * MAX_CHECKS["S"]) is None


def test_one_that_waits_is_given_longer_than_one_that_is_stopped(start: Start, monkeypatch: pytest.MonkeyPatch):
    process = start(WAITS)
    until("S", process.pid)
    # It may have been asleep on its way already.
    monkeypatch.setattr(worker_process, "process_cpu_ns", lambda _pid: 1)
    assert checks_until_it_hangs(HangDetector(process.pid), 1000) == 2 + MAX_CHECKS["S"]
    assert MAX_CHECKS["S"] > 2 * MAX_CHECKS["T"]


def test_one_that_is_gone_does_not_hang(start: Start):
    process = start("")
    process.wait()
    assert checks_until_it_hangs(HangDetector(process.pid), 2 * MAX_CHECKS["S"]) is None


IMPATIENT = (
    "import sys; from agents.agent import worker_process; worker_process.MAX_CHECKS = {'T': 2}; "
    "from agents.__main__ import main; sys.exit(main())"
)


@pytest.mark.loopback
def test_a_stopped_worker_is_killed_and_reported_as_dead_and_its_place_is_taken(
    start_agent: Any, wordcount: Any, gone_within: Any
):
    agent = start_agent(command=(sys.executable, "-P", "-c", IMPATIENT))
    agent.welcome()
    run = wordcount(agent)
    listening = run.start()
    stopped = identify(listening["n1/1"].pid)
    os.kill(listening["n1/1"].pid, signal.SIGSTOP)
    try:
        failed = agent.expect(Failed)
        assert (failed.epoch, failed.slot, failed.died) == (1, 1, True)
        assert f"process {listening['n1/1'].pid}) hangs, and is killed: it is stopped" in failed.reason
        assert gone_within([stopped], TIMEOUT_S)
    finally:
        with suppress(ProcessLookupError):
            os.kill(listening["n1/1"].pid, signal.SIGCONT)
    again = run.start(epoch=2)
    assert again["n1/0"].pid == listening["n1/0"].pid
    assert again["n1/1"].pid != listening["n1/1"].pid
    agent.send(Finish(epoch=2))
    agent.expect(Finished)
    agent.send(Bye())
    assert agent.wait() == 0
    events = run.traces(agent.folder / "collected")["event"].to_pylist()
    [event] = [row for row in events if row["kind"] == "worker_failed"]
    assert (event["subject"], event["detail"]) == ("worker 1", failed.reason)
