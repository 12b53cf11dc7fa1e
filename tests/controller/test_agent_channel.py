"""Control channel with real agents, and with programs that only pretend to be agents."""

import asyncio
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from agents.protocol import VERSION, Report, Start
from controller.host.process_identity import identify
from controller.nodes.agent_channel import AgentChannel
from controller.nodes.transport import LoopbackTransport, Remote
from inventory.errors import RunError

T = TypeVar("T")
LONG_S = 60.0

HELLO = '{"type": "hello", "version": %d, "pid": 1, "python": "3", "facts": {"clock": null}}'


class Pretender(LoopbackTransport):
    """Starts a program of the test's in place of an agent."""

    def __init__(self, folder: Path, program: str) -> None:
        super().__init__(folder)
        (folder / "pretended_agent.py").write_text(program)

    async def start(self, module: str) -> Remote:
        assert module == "agents"
        return await super().start("pretended_agent")


def run(step: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(step, LONG_S))


async def opened(transport: LoopbackTransport, gone: asyncio.Future[str]) -> tuple[AgentChannel, int]:
    pids: list[int] = []

    def on_report(_node: str, _report: Report) -> None:
        """Nothing is run here."""

    channel = AgentChannel("n1", transport, on_report, lambda _node, reason: gone.set_result(reason))
    try:
        await channel.open("127.0.0.1", "test", pids.append)
    except BaseException:
        await channel.close()
        raise
    return channel, pids[0]


def pretender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> Pretender:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return Pretender(tmp_path, program)


def test_handshake_clock_measurement_and_exit_of_an_agent(tmp_path: Path) -> None:
    async def live() -> None:
        channel, pid = await opened(LoopbackTransport(tmp_path), asyncio.get_running_loop().create_future())
        process = identify(pid)
        assert process is not None
        assert channel.facts["cores_online"] == os.cpu_count()
        while channel.offset is None:
            await asyncio.sleep(0.01)
        # It reads our own clock: the true offset is 0 and must lie within the bound.
        assert abs(channel.offset.offset_ns) <= channel.offset.bound_ns
        await channel.close()
        assert not process.is_alive()
        await channel.close()
        with pytest.raises(RunError, match="the agent of n1 is not running"):
            await channel.send(Start(spec=None))  # type: ignore[arg-type]  # nobody is there to read it

    run(live())


def test_the_death_of_an_agent_is_reported_with_its_cause(tmp_path: Path) -> None:
    async def live() -> str:
        gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        channel, pid = await opened(LoopbackTransport(tmp_path), gone)
        os.kill(pid, signal.SIGKILL)
        reason = await gone
        await channel.close()
        return reason

    assert run(live()) == "the agent of n1 was killed by SIGKILL"


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import sys; sys.exit(3)", "the agent of n1 ended with status 3"),
        ("print('good morning', flush=True); input(); input()", "the agent of n1: not a report of control protocol"),
        (
            f"print('''{HELLO % 99}''', flush=True); input(); input()",
            f"uses control protocol 99, this one uses {VERSION}",
        ),
        ("print('x' * (17 << 20), flush=True); input()", "the agent of n1: a line of more than"),
    ],
    ids=["ends", "speaks nonsense", "speaks another version", "never stops talking"],
)
def test_a_program_without_the_protocol_is_refused_and_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, message: str
) -> None:
    transport = pretender(tmp_path, monkeypatch, program)

    async def live() -> None:
        with pytest.raises(RunError, match=message):
            await opened(transport, asyncio.get_running_loop().create_future())

    run(live())


@pytest.mark.slow
def test_an_agent_that_ignores_bye_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stubborn = f"import sys, time; print('''{HELLO % VERSION}''', flush=True); time.sleep(3600)"
    transport = pretender(tmp_path, monkeypatch, stubborn)

    async def live() -> None:
        channel, pid = await opened(transport, asyncio.get_running_loop().create_future())
        process = identify(pid)
        await channel.close()
        assert process is not None
        assert not process.is_alive()

    run(live())
