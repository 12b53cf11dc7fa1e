"""Hang detection: a hung worker is killed and reported as dead; one that works, or gets no CPU time, is not."""

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


def wait_for_state(state: str, pid: int) -> None:
    """Wait until a process is in that state."""
    deadline = time.monotonic() + TIMEOUT_S
    while worker_process.process_state(pid) != state:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def checks_until_it_hangs(detector: HangDetector, most: int) -> int | None:
    """Return the number of checks; None when `most` are not enough."""
    return next((number for number in range(1, most + 1) if detector.check()), None)


def test_a_stopped_process_hangs_after_fifteen_checks_without_activity(start: Start):
    process = start(COMPUTES)
    process.send_signal(signal.SIGSTOP)
    wait_for_state("T", process.pid)
    found = checks_until_it_hangs(HangDetector(process.pid), 100)
    # The first check only starts the count; at the second, or while it is being stopped, it has used CPU time.
    assert found is not None
    assert 2 + MAX_CHECKS["T"] <= found <= 2 * MAX_CHECKS["T"]


def test_output_restarts_the_count_of_checks(start: Start):
    process = start(COMPUTES)
    process.send_signal(signal.SIGSTOP)
    wait_for_state("T", process.pid)
    detector = HangDetector(process.pid)
    assert checks_until_it_hangs(detector, 1 + MAX_CHECKS["T"]) is None
    detector.note_output()
    assert checks_until_it_hangs(detector, 1 + MAX_CHECKS["T"]) is None
    assert checks_until_it_hangs(detector, MAX_CHECKS["T"])


def test_a_computing_process_never_hangs_with_or_without_a_cpu(start: Start):
    process = start(COMPUTES)
    wait_for_state("R", process.pid)
    assert checks_until_it_hangs(HangDetector(process.pid), 2 * MAX_CHECKS["S"]) is None


def test_a_waiting_process_gets_more_checks_than_a_stopped_one(start: Start, monkeypatch: pytest.MonkeyPatch):
    process = start(WAITS)
    wait_for_state("S", process.pid)
    # The process may have slept during its start, and used CPU time since.
    monkeypatch.setattr(worker_process, "process_cpu_ns", lambda _pid: 1)
    assert checks_until_it_hangs(HangDetector(process.pid), 1000) == 2 + MAX_CHECKS["S"]
    assert MAX_CHECKS["S"] > 2 * MAX_CHECKS["T"]


def test_a_process_that_has_ended_does_not_hang(start: Start):
    process = start("")
    process.wait()
    assert checks_until_it_hangs(HangDetector(process.pid), 2 * MAX_CHECKS["S"]) is None


IMPATIENT = (
    "import sys; from agents.agent import worker_process; worker_process.MAX_CHECKS = {'T': 2}; "
    "from agents.__main__ import main; sys.exit(main())"
)


@pytest.mark.loopback
def test_a_stopped_worker_is_killed_reported_as_dead_and_replaced(start_agent: Any, wordcount: Any, gone_within: Any):
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
