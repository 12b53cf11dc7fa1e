"""CPU settings of nodes: checked before a campaign, applied before a run's workers start, restored after the run."""

import asyncio
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from agents.protocol import CpusSet, RestoreCpus, SetCpus
from analysis.records.conditions import CpuRecord
from campaign.agenda.campaign_plan import CampaignPlan
from campaign.agenda.cpu import ByNode
from campaign.agenda.run_order import PlannedRun
from campaign.runner.event_loop import CampaignEventLoop
from controller.coordinator.scripted_events import SetCpu
from controller.host.condition import run_together
from controller.host.ownership import CleanupLog
from controller.nodes.agents import Agents, RunNode
from controller.nodes.backend import Backend
from inventory.errors import RunError, UnfitError

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
        self._rows: dict[tuple[str, str], CpuRecord] = {}
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
    def rows(self) -> list[CpuRecord]:
        """Settings of all nodes so far."""
        return list(self._rows.values())

    @property
    def doubts(self) -> list[str]:
        """Reasons that make the run suspect."""
        missed = [row for row in self.rows if row.ok is False]
        return [
            *(f"{row.node}: {row.setting}: asked for {row.asked}, {_got(row)}" for row in missed),
            *(f"{node}: its agent died, and its CPUs were set again" for node in dict.fromkeys(self._set_again)),
            *(f"{node}: its clock was changed during the run" for node in dict.fromkeys(self._changed)),
        ]

    async def set(self, agents: Agents) -> None:
        """Set the CPUs of all nodes.

        Raises:
            RunError: a node does not support the agenda's settings, or is gone.
        """
        await run_together(self._set(agents, node) for node in self.nodes)

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

    async def change_clocks(self, agents: Agents, clocks: Mapping[str, int | None]) -> Mapping[str, str]:
        """Set clocks that an online scheduler wants, None = the agenda's settings.

        Args:
            agents: agents of all nodes.
            clocks: node -> clock in Hz.

        Returns:
            Node -> description, for clocks that came out otherwise.
        """
        wanted = {node: hz for node, hz in self._clocks.items() if node not in clocks}
        wanted |= {node: hz for node, hz in clocks.items() if hz is not None}
        already = list(self._changed)
        await self.set_clocks(agents, wanted, ())
        # What the scheduler itself changes is no doubt about the run.
        self._changed = already
        rows = [row for row in self.rows if row.node in clocks and "clock" in row.setting and row.ok is not True]
        return {row.node: row.reason or f"asked for {row.asked}, {_got(row)}" for row in rows}

    async def change(self, agents: Agents, node: str, settings: Mapping[str, Any]) -> None:
        """Change the CPU settings of a node during the run, as the timeline demands.

        Raises:
            RunError: the node does not support them, or is gone.
        """
        self._requested = {**self._requested, node: {**self._requested.get(node, {}), **settings}}
        self._changed.append(node)
        await self._set(agents, node)

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
            self._rows[node, setting.setting] = CpuRecord(node=node, **asdict(setting))

    def _note_clock(self, node: str, hz: int, ok: bool | None, reason: str) -> None:
        self._rows[node, "clock"] = CpuRecord(
            node=node, setting="clock", before="", asked=str(hz // 1000), got=None, ok=ok, reason=reason
        )


async def request(agents: Agents, node: str, command: SetCpus | RestoreCpus) -> CpusSet:
    """Send a CPU command to a node's agent and return its answer.

    Raises:
        RunError: the agent is gone or does not answer.
    """
    return await agents.request_reply(node, command, CpusSet, ANSWER_S)


def _got(row: CpuRecord) -> str:
    return f"got {row.got}" + (f" ({row.reason})" if row.reason else "")


def check_cpus(
    plan: CampaignPlan,
    runs: Sequence[PlannedRun],
    loop: CampaignEventLoop,
    backend: Backend,
    state: CleanupLog,
    work: Path,
) -> None:
    """Check the CPU settings of the agenda and its timeline on every node; call it inside the backend's context.

    Args:
        plan: the plan of the campaign.
        runs: its selected runs.
        loop: event loop of the campaign.
        backend: its nodes.
        state: log of started agents.
        work: a folder for their files, removed afterwards.

    Raises:
        UnfitError: some settings are not supported; the message names node, setting and possible values.
        RunError: an agent cannot be reached.
    """
    settings = {(run.combination, run.cpu): plan.at(run).cpus[run.cpu] for run in runs}
    scripted = {(run.combination, run.workload, run.scheduler): _events(plan, run) for run in runs}
    wanted = [by_node for by_node in settings.values() if by_node]
    wanted += [{event.node: event.settings} for events in scripted.values() for event in events]
    if wanted:
        refused = loop.run(_refusals(plan.agenda.name, wanted, backend, state, work))
        if refused:
            raise UnfitError("the agenda requests CPU settings that are not supported:\n" + "\n".join(refused))


def _events(plan: CampaignPlan, run: PlannedRun) -> list[SetCpu]:
    return [event for event in plan.at(run).events[run.workload, run.scheduler] if isinstance(event, SetCpu)]


async def _refusals(
    campaign: str, wanted: Sequence[ByNode], backend: Backend, state: CleanupLog, work: Path
) -> Sequence[str]:
    def started(node: str, pid: int) -> None:
        state.started(pid, f"agent {node}")

    members: Mapping[str, RunNode] = backend.members(work.name, work)
    try:
        async with Agents(members, campaign, started) as agents:
            nodes = dict.fromkeys(node for settings in wanted for node in settings)
            refusals = await asyncio.gather(*(_refused(agents, node, wanted) for node in nodes))
    finally:
        await asyncio.gather(*(member.transport.remove() for member in members.values()))
        shutil.rmtree(work, ignore_errors=True)
    return [line for lines in refusals for line in lines]


async def _refused(agents: Agents, node: str, wanted: Sequence[ByNode]) -> Sequence[str]:
    """Return what one node refuses, without duplicates; an agent handles one request at a time."""
    lines: dict[str, None] = {}
    for settings in wanted:
        if node in settings:
            answer = await request(agents, node, SetCpus(settings=settings[node], check=True))
            lines |= dict.fromkeys(f"node {node}: {each}" for each in answer.refused)
    return list(lines)
