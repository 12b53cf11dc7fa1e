"""Check before a campaign: do its nodes support the requested CPU settings?"""

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from agents.protocol import SetCpus
from campaign.agenda.cpu_settings import ByNode
from campaign.agenda.plan import Plan
from campaign.agenda.run_order import Run
from campaign.runner.cpu_settings import request
from campaign.runner.event_loop import CampaignEventLoop
from controller.host.cleanup_log import CleanupLog
from controller.nodes.agents import Agents, Member
from controller.nodes.backend import Backend
from inventory.errors import UnfitError


def check_cpus(
    plan: Plan, runs: Sequence[Run], loop: CampaignEventLoop, backend: Backend, state: CleanupLog, work: Path
) -> None:
    """Check the agenda's CPU settings on every node without setting them; call it inside the backend's context.

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
    wanted = [plan.cpus[label] for label in dict.fromkeys(run.cpu for run in runs) if plan.cpus[label]]
    if wanted:
        refused = loop.run(_refusals(plan.agenda.name, wanted, backend, state, work))
        if refused:
            raise UnfitError("the agenda requests CPU settings that are not supported:\n" + "\n".join(refused))


async def _refusals(
    campaign: str, wanted: Sequence[ByNode], backend: Backend, state: CleanupLog, work: Path
) -> Sequence[str]:
    def started(node: str, pid: int) -> None:
        state.started(pid, f"agent {node}")

    members: Mapping[str, Member] = backend.members(work.name, work)
    try:
        async with Agents(members, campaign, started) as agents:
            nodes = dict.fromkeys(node for settings in wanted for node in settings)
            found = await asyncio.gather(*(_refused(agents, node, wanted) for node in nodes))
    finally:
        await asyncio.gather(*(member.transport.remove() for member in members.values()))
        shutil.rmtree(work, ignore_errors=True)
    return [line for lines in found for line in lines]


async def _refused(agents: Agents, node: str, wanted: Sequence[ByNode]) -> Sequence[str]:
    """Return what one node refuses, without duplicates; an agent handles one request at a time."""
    lines: dict[str, None] = {}
    for settings in wanted:
        if node in settings:
            answer = await request(agents, node, SetCpus(settings=settings[node], check=True))
            lines |= dict.fromkeys(f"node {node}: {each}" for each in answer.refused)
    return list(lines)
