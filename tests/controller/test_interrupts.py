"""Interruptions: signals that arrive while others are handled; cancelled clean-up is completed first."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from controller.host.condition import run_to_end
from controller.nodes.agents import Agents, RunNode
from controller.nodes.transport import LoopbackTransport

PROGRAM = """
import os, signal, subprocess, sys, time
from controller.host.signals import interrupted_once
numbers = signal.SIGTERM, signal.SIGHUP
for number in numbers:
    signal.signal(number, lambda *_: None)
send = "".join(f"os.kill({os.getpid()}, {int(number)}); " for number in numbers)
sender = subprocess.Popen([sys.executable, "-c", f"import os\\nwhile True: {send}"])
interrupted = 0
try:
    end_s = time.monotonic() + 20
    while interrupted < 200 and time.monotonic() < end_s:
        try:
            with interrupted_once():
                time.sleep(0.01)
        except KeyboardInterrupt:
            interrupted += 1
finally:
    sender.kill()
    sender.wait()
print(interrupted)
"""


def test_signals_that_arrive_together_interrupt_once_and_python_reports_no_error() -> None:
    completed = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True, timeout=60)
    assert int(completed.stdout) >= 20
    assert completed.stderr == ""


def test_a_step_that_is_cancelled_again_and_again_ends_before_the_cancellation() -> None:
    async def run() -> list[str]:
        done: list[str] = []

        async def step() -> None:
            await asyncio.sleep(0.05)
            done.append("step")

        task = asyncio.create_task(run_to_end(step()))
        for _ in range(3):
            await asyncio.sleep(0)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return done

    assert asyncio.run(run()) == ["step"]


def test_a_step_returns_its_result_or_raises_its_error() -> None:
    async def fail() -> None:
        raise ValueError("no")

    async def answer() -> int:
        return 7

    assert asyncio.run(run_to_end(answer())) == 7
    with pytest.raises(ValueError, match="no"):
        asyncio.run(run_to_end(fail()))


@pytest.mark.loopback
def test_agents_have_ended_when_the_cancellation_of_their_closing_is_raised(tmp_path: Path) -> None:
    async def run() -> None:
        pids: list[int] = []
        members = {name: RunNode("127.0.0.2", LoopbackTransport(tmp_path / name)) for name in ("n1", "n2")}
        agents = Agents(members, "campaign", lambda _, pid: pids.append(pid))
        await agents.__aenter__()
        closing = asyncio.create_task(agents.__aexit__(None, None, None))
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert len(pids) == 2
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())
