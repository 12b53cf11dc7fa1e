"""Agents that are kept between runs: taken over while they are clean and alive, and replaced otherwise."""

import asyncio
import os
import shutil
import signal
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from agents.protocol import CpusSet, RestoreCpus
from controller.host.process_identity import identify
from controller.nodes import agent_channel, agents
from controller.nodes.agents import Agents, KeptAgents, RunNode
from controller.nodes.transport import LoopbackTransport

pytestmark = pytest.mark.loopback

T = TypeVar("T")
TIMEOUT_S = 60.0


class Runs:
    """Runs one after the other, in folders of their own.

    Attributes:
        kept: agents between them.
        pids: node -> process ids of its agents, in the order of their starts.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self.kept = folder, KeptAgents()
        self.pids: dict[str, list[int]] = {"n1": [], "n2": []}
        self._count = 0

    async def run(self, *nodes: str, fails: bool = False, leave: bool = False) -> dict[str, str]:
        """Run nothing on these nodes; return why kept agents were replaced; with `leave`, files stay there."""
        self._count += 1
        folder = self._folder / str(self._count)
        members = {n: RunNode(f"127.0.0.{n[1:]}", LoopbackTransport(folder / n)) for n in nodes}
        with suppress(ValueError):
            async with Agents(members, "c", lambda node, pid: self.pids[node].append(pid), self.kept) as agents:
                assert agents.facts.keys() == members.keys()
                # An answered request: the agents have taken their folders.
                await asyncio.gather(*(agents.request_reply(n, RestoreCpus(), CpusSet, TIMEOUT_S) for n in nodes))
                if fails:
                    raise ValueError
        if not leave:
            shutil.rmtree(folder)
        return agents.replaced

    def living(self) -> set[str]:
        """Return the nodes whose last agent is alive."""
        return {node for node, pids in self.pids.items() if pids and identify(pids[-1]) is not None}


def execute(folder: Path, step: Any) -> Runs:
    """Execute runs, and end all agents."""
    runs = None

    async def work() -> None:
        nonlocal runs
        runs = Runs(folder)
        try:
            await step(runs)
        finally:
            await runs.kept.end_all()
        assert runs.living() == set()

    bounded(work())
    assert runs is not None
    return runs


def bounded(step: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(step, TIMEOUT_S))


def test_the_next_run_takes_over_the_agents(tmp_path: Path) -> None:
    async def step(runs: Runs) -> None:
        for _ in range(3):
            assert await runs.run("n1", "n2") == {}

    assert [len(pids) for pids in execute(tmp_path, step).pids.values()] == [1, 1]


def test_agents_of_nodes_that_a_run_does_not_have_are_ended_before_it(tmp_path: Path) -> None:
    async def step(runs: Runs) -> None:
        await runs.run("n1", "n2")
        assert runs.living() == {"n1", "n2"}
        await runs.run("n1")
        assert runs.living() == {"n1"}
        assert await runs.run("n1", "n2") == {}

    assert [len(pids) for pids in execute(tmp_path, step).pids.values()] == [1, 2]


def test_no_agent_is_kept_of_a_run_that_failed(tmp_path: Path) -> None:
    async def step(runs: Runs) -> None:
        await runs.run("n1", "n2", fails=True)
        assert runs.living() == set()
        assert await runs.run("n1", "n2") == {}

    assert [len(pids) for pids in execute(tmp_path, step).pids.values()] == [2, 2]


def test_an_agent_that_was_killed_between_two_runs_is_replaced(tmp_path: Path) -> None:
    async def step(runs: Runs) -> None:
        await runs.run("n1", "n2")
        os.kill(runs.pids["n2"][0], signal.SIGKILL)
        assert await runs.run("n1", "n2") == {"n2": "the agent of n2 was killed by SIGKILL"}
        assert await runs.run("n1", "n2") == {}

    assert [len(pids) for pids in execute(tmp_path, step).pids.values()] == [1, 2]


def test_an_agent_that_hangs_between_two_runs_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "REUSE_S", 2.0)
    monkeypatch.setattr(agent_channel, "BYE_S", 0.5)

    async def step(runs: Runs) -> None:
        await runs.run("n1", "n2")
        os.kill(runs.pids["n1"][0], signal.SIGSTOP)
        assert await runs.run("n1", "n2") == {"n1": "the agent of n1 did not answer within 2 s"}
        assert await runs.run("n1", "n2") == {}

    assert [len(pids) for pids in execute(tmp_path, step).pids.values()] == [2, 1]


def test_an_agent_whose_last_run_left_something_behind_is_replaced(tmp_path: Path) -> None:
    async def step(runs: Runs) -> None:
        await runs.run("n1", leave=True)
        replaced = await runs.run("n1")
        assert replaced["n1"].startswith("the agent of n1 was not clean after its last run: files in ")
        assert await runs.run("n1") == {}

    assert [len(pids) for pids in execute(tmp_path, step).pids.values()] == [2, 0]
