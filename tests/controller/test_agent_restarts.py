"""Agents that are killed during their start are replaced without any effect on the rest of the run."""

import asyncio
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from agents.protocol import Report
from controller.coordinator.node_membership import RESTART_S
from controller.nodes.agents import STARTS, Agents, RunNode
from controller.nodes.transport import LoopbackTransport, Remote
from inventory.errors import RunError

pytestmark = pytest.mark.loopback

T = TypeVar("T")
TIMEOUT_S = 60.0


class KillingTransport(LoopbackTransport):
    """Transport that kills the next `to_kill` agents: `after_s` after their start; if None, after their first line."""

    def __init__(self, folder: Path, after_s: float | None = 0.0) -> None:
        super().__init__(folder)
        self.to_kill = self.started = 0
        self._after_s = after_s

    async def start(self, module: str) -> Remote:
        remote = await super().start(module)
        self.started += 1
        if self.to_kill:
            self.to_kill -= 1
            assert remote.pid is not None
            if self._after_s is None:
                self._kill_after_first_line(remote, remote.pid)
            else:
                await asyncio.sleep(self._after_s)
                os.kill(remote.pid, signal.SIGKILL)
        return remote

    @staticmethod
    def _kill_after_first_line(remote: Remote, pid: int) -> None:
        read = remote.read_line

        async def read_line() -> bytes:
            line = await read()
            if line:
                os.kill(pid, signal.SIGKILL)
            return line

        remote.read_line = read_line  # type: ignore[method-assign]  # of this one only


class Listener:
    """Listener that records lost agents; see `controller.nodes.agents.AgentListener`."""

    def __init__(self) -> None:
        self.gone_nodes: list[str] = []

    def handle_report(self, node: str, report: Report) -> None:
        """Nothing runs here."""

    def handle_agent_gone(self, node: str, _reason: str) -> None:
        self.gone_nodes.append(node)


def run(step: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(step, TIMEOUT_S))


@pytest.mark.parametrize("after_s", [0.0, 0.1])
def test_an_agent_killed_before_its_hello_is_restarted(tmp_path: Path, after_s: float) -> None:
    transport = KillingTransport(tmp_path / "n1", after_s)
    listener = Listener()

    async def live() -> None:
        transport.to_kill = 2
        async with Agents({"n1": RunNode("127.0.0.2", transport)}, "c", lambda _node, _pid: None) as agents:
            agents.listen(listener)
            assert transport.started == 3
            transport.to_kill = 1
            await agents.restart("n1")
            assert transport.started == 5
            assert agents.offset("n1").bound_ns == 0

    run(live())
    assert listener.gone_nodes == []


def test_an_agent_killed_during_its_restart_is_restarted_again(tmp_path: Path) -> None:
    transport = KillingTransport(tmp_path / "n1", None)

    async def live() -> None:
        async with Agents({"n1": RunNode("127.0.0.2", transport)}, "c", lambda _node, _pid: None) as agents:
            agents.listen(Listener())
            transport.to_kill = 1
            async with asyncio.timeout(RESTART_S):
                await agents.restart("n1")
            assert transport.started == 3

    run(live())


def test_an_agent_that_is_killed_repeatedly_is_given_up(tmp_path: Path) -> None:
    transport = KillingTransport(tmp_path / "n1")
    transport.to_kill = 100

    async def live() -> None:
        with pytest.raises(RunError, match="the agent of n1 was killed by SIGKILL"):
            async with Agents({"n1": RunNode("127.0.0.2", transport)}, "c", lambda _node, _pid: None):
                pass

    run(live())
    assert transport.started == STARTS
