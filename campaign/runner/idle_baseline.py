"""Idle baselines: the power of each metered machine without workers, before and after a run."""

import asyncio
from collections.abc import Collection, Sequence

from agents.protocol import IdleBaseline
from campaign.agenda.agenda import IdleEntry
from campaign.agenda.machines import Machine
from controller.nodes.agents import Agents


async def measure_idle(
    agents: Agents, machines: Sequence[Machine], entry: IdleEntry, lost: Collection[str] = ()
) -> dict[str, IdleBaseline]:
    """Meter all machines at the same time; return metered node -> its baseline.

    Args:
        agents: agents of all nodes.
        machines: the machines of the cluster.
        entry: seconds to settle and to measure.
        lost: nodes that cannot be reached.
    """
    nodes = [machine.metered for machine in machines if machine.metered not in lost]
    found = await asyncio.gather(*(agents.meter_idle(node, entry.settle_s, entry.measure_s) for node in nodes))
    return dict(zip(nodes, found, strict=True))
