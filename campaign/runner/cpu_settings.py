"""CPU settings of a run's nodes: applied by agents before workers start, restored after the run."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from agents.protocol import CpusSet, RestoreCpus, SetCpus
from campaign.agenda.cpu_settings import ByNode
from controller.host.condition import run_all
from controller.nodes.agents import Agents
from inventory.documents import to_plain
from inventory.errors import RunError

ANSWER_S = 30.0
"""Longest time of a request; a CPU that goes online or offline takes up to a second."""

DECLARED = "clocks of nodes that share a machine are declared, not set"


class RunCpus:
    """Requested and actual CPU settings of one run.

    Args:
        requested: the agenda's settings.
        clocks: node -> clock in Hz from the scheduler; a clock that cannot be set does not fail the run.
        shared: nodes that are not machines of their own.
    """

    def __init__(self, requested: ByNode, clocks: Mapping[str, int], shared: Collection[str]) -> None:
        self._requested = requested
        self._clocks = {node: hz for node, hz in clocks.items() if node not in shared}
        self._rows: dict[tuple[str, str], dict[str, Any]] = {}
        self._set_again: list[str] = []
        self._changed: list[str] = []
        self._held: set[str] = set()
        self._shared = frozenset(shared)
        self._declare(clocks)

    @property
    def nodes(self) -> list[str]:
        """Nodes with requested settings or clocks."""
        return sorted(self._requested.keys() | self._clocks.keys())

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Rows of `run.json`: `{node, setting, before, asked, got, ok, reason}`; `ok` is None if it was not set."""
        return list(self._rows.values())

    @property
    def doubts(self) -> list[str]:
        """Reasons that make the run suspect."""
        missed = [row for row in self.rows if row["ok"] is False]
        return [
            *(f"{row['node']}: {row['setting']}: asked for {row['asked']}, {_got(row)}" for row in missed),
            *(f"{node}: its agent died, and its CPUs were set again" for node in dict.fromkeys(self._set_again)),
            *(f"{node}: its clock was changed during the run" for node in dict.fromkeys(self._changed)),
        ]

    async def set(self, agents: Agents) -> None:
        """Set the CPUs of all nodes.

        Raises:
            RunError: a node does not support the agenda's settings, or is gone.
        """
        await run_all(self._set(agents, node) for node in self.nodes)

    async def set_again(self, agents: Agents, node: str) -> None:
        """Set the CPUs of a node whose agent was restarted: they were restored when the old agent died.

        Raises:
            RunError: see `set`.
        """
        if node in self.nodes:
            await self._set(agents, node)
            self._set_again.append(node)

    async def set_clocks(self, agents: Agents, clocks: Mapping[str, int], lost: Collection[str]) -> None:
        """Set the clocks of a new placement; a node without a clock gets the agenda's settings.

        A failure is recorded and does not end the run.

        Args:
            agents: agents of all nodes.
            clocks: node -> clock in Hz of the new placement.
            lost: nodes that cannot be reached; their clocks are set when they return.
        """
        before, self._clocks = self._clocks, {node: hz for node, hz in clocks.items() if node not in self._shared}
        self._declare(clocks)
        changed = {node for node in before.keys() | self._clocks if before.get(node) != self._clocks.get(node)}
        await asyncio.gather(*(self._change(agents, node) for node in sorted(changed.difference(lost))))

    async def _change(self, agents: Agents, node: str) -> None:
        self._changed.append(node)
        try:
            if node in self._clocks:
                await self._set_clock(agents, node)
                return
            self._rows = {key: row for key, row in self._rows.items() if key[0] != node}
            await request(agents, node, RestoreCpus())
            if node in self._requested:
                await self._set(agents, node)
        except RunError as fault:
            self._note_clock(node, self._clocks.get(node, 0), False, str(fault))

    async def restore(self, agents: Agents, lost: Collection[str]) -> None:
        """Restore all settings; on lost nodes the guardians have restored them.

        Raises:
            RunError: a setting could not be restored.
        """
        nodes = sorted(self._held.difference(lost))
        answers = await asyncio.gather(*(request(agents, node, RestoreCpus()) for node in nodes))
        left = [
            f"{node}: {setting.setting} is {setting.got}, was {setting.asked}"
            for node, answer in zip(nodes, answers, strict=True)
            for setting in answer.settings
            if not setting.ok
        ]
        if left:
            raise RunError(f"CPU settings could not be restored: {'; '.join(left)}")

    async def _set(self, agents: Agents, node: str) -> None:
        if node in self._requested:
            self._held.add(node)
            answer = await request(agents, node, SetCpus(settings=self._requested[node]))
            if answer.refused:
                raise RunError(f"CPU settings are refused by {node}: {'; '.join(answer.refused)}")
            self._note(node, answer)
        if node in self._clocks:
            await self._set_clock(agents, node)

    async def _set_clock(self, agents: Agents, node: str) -> None:
        self._held.add(node)
        answer = await request(agents, node, SetCpus(hz=self._clocks[node]))
        self._note(node, answer)
        if answer.refused:
            self._note_clock(node, self._clocks[node], False, "; ".join(answer.refused))

    def _declare(self, clocks: Mapping[str, int]) -> None:
        for node in sorted(self._shared):
            self._rows.pop((node, "clock"), None)
            if node in clocks:
                self._note_clock(node, clocks[node], None, DECLARED)

    def _note(self, node: str, answer: CpusSet) -> None:
        for setting in answer.settings:
            self._rows[node, setting.setting] = {"node": node, **to_plain(setting)}

    def _note_clock(self, node: str, hz: int, ok: bool | None, reason: str) -> None:
        row = {"setting": "clock", "before": "", "asked": str(hz // 1000), "got": None, "ok": ok, "reason": reason}
        self._rows[node, "clock"] = {"node": node, **row}


async def request(agents: Agents, node: str, command: SetCpus | RestoreCpus) -> CpusSet:
    """Send a CPU command to a node's agent and return its answer.

    Raises:
        RunError: the agent is gone or does not answer.
    """
    return await agents.request_reply(node, command, CpusSet, ANSWER_S)


def _got(row: Mapping[str, Any]) -> str:
    return f"got {row['got']}" + (f" ({row['reason']})" if row["reason"] else "")
