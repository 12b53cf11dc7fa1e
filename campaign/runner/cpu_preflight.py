"""Before a campaign begins: can its nodes have the CPU settings that it asks for?"""

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from agents.protocol import SetCpus
from campaign.agenda.cpu_settings import ByNode
from campaign.agenda.plan import Plan
from campaign.agenda.run_order import Run
from campaign.runner.cpu_settings import ask
from campaign.runner.event_loop import CampaignEventLoop
from controller.host.cleanup_log import CleanupLog
from controller.nodes.agents import Agents, Member
from controller.nodes.backend import Backend
from inventory.errors import UnfitError


def check_cpus(
    plan: Plan, runs: Sequence[Run], loop: CampaignEventLoop, backend: Backend, state: CleanupLog, work: Path
) -> None:
    """Ask the agent of every node, where the agenda says something of CPUs; nothing is set. Call it within the reach.

    Args:
        plan: of the campaign.
        loop: of the campaign.
        runs: which of its runs are wanted.
        backend: its nodes.
        state: is told of the agents.
        work: a folder for their files, removed afterwards.

    Raises:
        UnfitError: some settings are impossible; names node, setting and what is possible.
        RunError: a node cannot be asked.
    """
    wanted = [plan.cpus[label] for label in dict.fromkeys(run.cpu for run in runs) if plan.cpus[label]]
    if wanted:
        refused = loop.run(_refusals(plan.agenda.name, wanted, backend, state, work))
        if refused:
            raise UnfitError("the agenda asks for CPU settings that cannot be:\n" + "\n".join(refused))


async def _refusals(
    campaign: str, wanted: Sequence[ByNode], backend: Backend, state: CleanupLog, work: Path
) -> Sequence[str]:
    def started(node: str, pid: int) -> None:
        state.started(pid, f"agent {node}")

    members: Mapping[str, Member] = backend.members(work.name, work)
    try:
        async with Agents(members, campaign, started) as agents:
            nodes = dict.fromkeys(node for wishes in wanted for node in wishes)
            found = await asyncio.gather(*(_refused(agents, node, wanted) for node in nodes))
    finally:
        await asyncio.gather(*(member.transport.remove() for member in members.values()))
        shutil.rmtree(work, ignore_errors=True)
    return [line for lines in found for line in lines]


async def _refused(agents: Agents, node: str, wanted: Sequence[ByNode]) -> Sequence[str]:
    """What one node refuses, each thing once; it answers one question after the other."""
    lines: dict[str, None] = {}
    for wishes in wanted:
        if node in wishes:
            answer = await ask(agents, node, SetCpus(settings=wishes[node], check=True))
            lines |= dict.fromkeys(f"node {node}: {each}" for each in answer.refused)
    return list(lines)
