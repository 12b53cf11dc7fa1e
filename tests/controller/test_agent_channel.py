"""Control channel with real and fake agents, and the clock offsets that it measures.

The true offset lies within the bound, whatever the delays in both directions.
"""

import asyncio
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol import VERSION, Report, Start
from analysis.records.file_types import ClockDifference
from controller.coordinator.interfaces import Offset
from controller.host.process_identity import identify
from controller.nodes import agents
from controller.nodes.agent_channel import DRIFT, WINDOW, AgentChannel, OffsetEstimate
from controller.nodes.agents import ClockSync
from controller.nodes.transport import LoopbackTransport, Remote
from inventory.errors import RunError

T = TypeVar("T")
TIMEOUT_S = 60.0

HELLO = '{"type": "hello", "version": %d, "pid": 1, "python": "3", "facts": {"clock": null}}'

delays = st.integers(0, 10**9)
exchanges = st.lists(st.tuples(delays, delays, delays), min_size=1, max_size=2 * WINDOW)


class FakeAgentTransport(LoopbackTransport):
    """Transport that starts a program of the test in place of an agent."""

    def __init__(self, folder: Path, program: str) -> None:
        super().__init__(folder)
        (folder / "pretended_agent.py").write_text(program)

    async def start(self, module: str) -> Remote:
        assert module == "agents"
        return await super().start("pretended_agent")


def run(step: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(step, TIMEOUT_S))


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


def fake_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> FakeAgentTransport:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return FakeAgentTransport(tmp_path, program)


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
            await channel.send(Start(spec=None))  # type: ignore[arg-type]  # it is not read

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


def test_nothing_more_is_written_to_an_agent_that_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def live() -> None:
        gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        channel, pid = await opened(LoopbackTransport(tmp_path), gone)
        os.kill(pid, signal.SIGKILL)
        await gone
        for _ in range(10):
            with pytest.raises(RunError, match="the agent of n1 is gone"):
                await channel.send(Start(spec=None))  # type: ignore[arg-type]  # it is not read
        await channel.close()

    run(live())
    # asyncio logs repeated writes to a closed pipe, and the operator would see that.
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import sys; sys.exit(3)", "the agent of n1 ended with status 3$"),
        (
            "import sys; sys.exit('these limits do not hold')",
            "the agent of n1 ended with status 1: these limits do not",
        ),
        ("print('good morning', flush=True); input(); input()", "the agent of n1: not a report of control protocol"),
        (
            f"print('''{HELLO % 99}''', flush=True); input(); input()",
            f"uses control protocol 99, this one uses {VERSION}",
        ),
        ("print('x' * (17 << 20), flush=True); input()", "the agent of n1: a line of more than"),
    ],
    ids=["ends", "ends with a reason", "speaks nonsense", "speaks another version", "never stops talking"],
)
def test_a_program_without_the_protocol_is_refused_and_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, message: str
) -> None:
    transport = fake_agent(tmp_path, monkeypatch, program)

    async def live() -> None:
        with pytest.raises(RunError, match=message):
            await opened(transport, asyncio.get_running_loop().create_future())

    run(live())


@pytest.mark.slow
def test_an_agent_that_ignores_bye_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stubborn = f"import sys, time; print('''{HELLO % VERSION}''', flush=True); time.sleep(3600)"
    transport = fake_agent(tmp_path, monkeypatch, stubborn)

    async def live() -> None:
        channel, pid = await opened(transport, asyncio.get_running_loop().create_future())
        process = identify(pid)
        await channel.close()
        assert process is not None
        assert not process.is_alive()

    run(live())


def estimate(offset: int, drift: float, delays_ns: list[tuple[int, int, int]]) -> tuple[Offset | None, int]:
    """Return the estimate for a clock that starts `offset` ahead and gains `drift`, and its true offset at the end."""
    found = OffsetEstimate()

    def remote_time(now: int) -> int:
        return now + offset + round(now * drift)

    now = 0
    for to_agent, inside, to_controller in delays_ns:
        received, answered, arrived = now + to_agent, now + to_agent + inside, now + to_agent + inside + to_controller
        found.add(now, remote_time(received), remote_time(answered), arrived)
        now = arrived + 10**9
    return found.at(now), remote_time(now) - now


@given(st.integers(-(10**15), 10**15), st.floats(-DRIFT, DRIFT), exchanges)
def test_the_true_offset_lies_within_the_bound(
    offset: int, drift: float, delays_ns: list[tuple[int, int, int]]
) -> None:
    found, truth = estimate(offset, drift, delays_ns)
    assert found is not None
    # Four readings and two ages are rounded to whole nanoseconds.
    assert abs(found.offset_ns - truth) <= found.bound_ns + 4


def test_an_old_tight_exchange_counts_until_a_fresh_one_is_tighter() -> None:
    found = OffsetEstimate()
    found.add(0, 500, 500, 1000)
    assert found.at(1000 + 10**8) == (0, 500 + round(10**8 * DRIFT))
    found.add(10**9, 10**9 + 40_000, 10**9 + 40_000, 10**9 + 50_000)
    assert found.at(10**9 + 50_000) == (15_000, 25_000 + round(50_000 * DRIFT))


def test_only_recent_exchanges_are_kept() -> None:
    found = OffsetEstimate()
    found.add(0, 0, 0, 0)
    for second in range(1, WINDOW + 1):
        found.add(second * 10**9, 10**6 + second * 10**9, 10**6 + second * 10**9, 2 * 10**6 + second * 10**9)
    last = found.at(WINDOW * 10**9 + 2 * 10**6)
    assert last is not None
    assert last.bound_ns > 10**6


def test_the_offset_is_unknown_before_the_first_reply() -> None:
    assert OffsetEstimate().at(0) is None


def test_stamps_are_as_wrong_as_their_offset_has_turned_out_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "CLOCKS_EVERY_S", 0.0)
    measured = {"n1": [Offset(1000, 10), Offset(1500, 20), Offset(1490, 5)], "n2": [Offset(-7, 3)]}
    sent: list[tuple[str, int]] = []

    def measure(node: str) -> Offset:
        if not measured[node]:
            raise RunError("the node cannot be reached")
        return measured[node].pop(0)

    async def send(node: str, offset_ns: int) -> None:
        sent.append((node, offset_ns))

    async def until_all_are_measured(clocks: ClockSync) -> None:
        running = asyncio.create_task(clocks.run(["n1"], send))
        while measured["n1"]:
            await asyncio.sleep(0.001)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    clocks = ClockSync(measure, tmp_path, "r")
    assert (clocks.current("n1"), clocks.current("n2")) == (Offset(1000, 10), Offset(-7, 3))
    asyncio.run(until_all_are_measured(clocks))
    clocks.close()
    assert sent == [("n1", 1500), ("n1", 1490)]
    # Until the second measurement, stamps of n1 were wrong by up to 500 ns and the bound of that measurement.
    assert clocks.current("n1") == Offset(1490, 520)
    assert clocks.differences() == [ClockDifference("n1", "n2", 523)]
