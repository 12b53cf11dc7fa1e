"""CPUs of a run's nodes: set by their agents before its workers start, put back after its end."""

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
"""What setting may take; a CPU that goes on or off takes up to a second."""

DECLARED = "nodes that share a machine have their clocks by declaration"


class RunCpus:
    """What one run wants of CPUs, and what became of it.

    Args:
        wishes: the agenda's settings.
        clocks: node -> clock in Hz that the scheduler gives it; one that cannot be set does not fail the run.
        shared: nodes that are not machines of their own.
    """

    def __init__(self, wishes: ByNode, clocks: Mapping[str, int], shared: Collection[str]) -> None:
        self._wishes = wishes
        self._clocks = {node: hz for node, hz in clocks.items() if node not in shared}
        self._rows: dict[tuple[str, str], dict[str, Any]] = {}
        self._again: list[str] = []
        self._moved: list[str] = []
        self._held: set[str] = set()
        self._shared = frozenset(shared)
        self._declare(clocks)

    @property
    def nodes(self) -> list[str]:
        """The nodes on which something is to be set."""
        return sorted(self._wishes.keys() | self._clocks.keys())

    @property
    def rows(self) -> list[dict[str, Any]]:
        """For `run.json`: `{node, setting, before, asked, got, ok, reason}`; `ok` None: it was not to be set."""
        return list(self._rows.values())

    @property
    def doubts(self) -> list[str]:
        """What makes the run suspect, in words."""
        missed = [row for row in self.rows if row["ok"] is False]
        return [
            *(f"{row['node']}: {row['setting']}: asked for {row['asked']}, {_got(row)}" for row in missed),
            *(f"{node}: its agent died, and its CPUs were set anew" for node in dict.fromkeys(self._again)),
            *(f"{node}: its clock was changed during the run" for node in dict.fromkeys(self._moved)),
        ]

    async def set(self, agents: Agents) -> None:
        """Set the CPUs of all nodes.

        Raises:
            RunError: one cannot fulfil what the agenda asks for, or is gone.
        """
        await run_all(self._set(agents, node) for node in self.nodes)

    async def set_again(self, agents: Agents, node: str) -> None:
        """Set the CPUs of a node whose agent has been started anew: they were put back when the old one died.

        Raises:
            RunError: see `set`.
        """
        if node in self.nodes:
            await self._set(agents, node)
            self._again.append(node)

    async def set_clocks(self, agents: Agents, clocks: Mapping[str, int], lost: Collection[str]) -> None:
        """Give nodes the clocks of a new placement; one that has none any more is as the agenda wants it.

        What a node does not do is noted, and does not end the run.

        Args:
            agents: of all nodes.
            clocks: node -> clock in Hz that the scheduler gives it now.
            lost: nodes that cannot be reached; they get theirs when they return.
        """
        before, self._clocks = self._clocks, {node: hz for node, hz in clocks.items() if node not in self._shared}
        self._declare(clocks)
        changed = {node for node in before.keys() | self._clocks if before.get(node) != self._clocks.get(node)}
        await asyncio.gather(*(self._change(agents, node) for node in sorted(changed.difference(lost))))

    async def _change(self, agents: Agents, node: str) -> None:
        self._moved.append(node)
        try:
            if node in self._clocks:
                await self._set_clock(agents, node)
                return
            self._rows = {key: row for key, row in self._rows.items() if key[0] != node}
            await ask(agents, node, RestoreCpus())
            if node in self._wishes:
                await self._set(agents, node)
        except RunError as fault:
            self._note_clock(node, self._clocks.get(node, 0), False, str(fault))

    async def restore(self, agents: Agents, lost: Collection[str]) -> None:
        """Put everything back; on lost nodes their guardians have done it.

        Raises:
            RunError: something is not as it was before.
        """
        nodes = sorted(self._held.difference(lost))
        answers = await asyncio.gather(*(ask(agents, node, RestoreCpus()) for node in nodes))
        left = [
            f"{node}: {setting.setting} is {setting.got}, was {setting.asked}"
            for node, answer in zip(nodes, answers, strict=True)
            for setting in answer.settings
            if not setting.ok
        ]
        if left:
            raise RunError(f"CPU settings could not be put back: {'; '.join(left)}")

    async def _set(self, agents: Agents, node: str) -> None:
        if node in self._wishes:
            self._held.add(node)
            answer = await ask(agents, node, SetCpus(settings=self._wishes[node]))
            if answer.refused:
                raise RunError(f"CPU settings are refused by {node}: {'; '.join(answer.refused)}")
            self._note(node, answer)
        if node in self._clocks:
            await self._set_clock(agents, node)

    async def _set_clock(self, agents: Agents, node: str) -> None:
        self._held.add(node)
        answer = await ask(agents, node, SetCpus(hz=self._clocks[node]))
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


async def ask(agents: Agents, node: str, question: SetCpus | RestoreCpus) -> CpusSet:
    """What a node's agent answers to a command about its CPUs.

    Raises:
        RunError: it is gone, or does not answer.
    """
    return await agents.request_reply(node, question, CpusSet, ANSWER_S)


def _got(row: Mapping[str, Any]) -> str:
    return f"got {row['got']}" + (f" ({row['reason']})" if row["reason"] else "")
