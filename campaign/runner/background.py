"""Background of a run: CPU time that other processes of this host use, and the power of idle machines.

Nodes that are processes or namespaces of this host share its CPUs, and agents cannot separate other work from that of
other nodes. The controller compares the busy time of all cores with the CPU time of its own descendants and of those
of an emulated cluster's daemon. Machines with meters are metered before and after a run, when no worker runs.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

from agents.power.reader import MeteredHost
from agents.protocol import IdleBaseline
from agents.sensors.host_load import PARENT, HostLoad, process_fields
from agents.sensors.interference import Event, background_events
from campaign.agenda.agenda import IdleEntry
from inventory.cluster import Machine

PERIOD_S = 0.5
"""Sampling period; the CPU time of a process between the last sample and its end is lost."""


@asynccontextmanager
async def measuring_other_load(roots: Sequence[int] | None, report: Callable[[Event], None]) -> AsyncIterator[None]:
    """Measure the load of other processes during the block; report it afterwards if it was high.

    Args:
        roots: as in `controller.nodes.backend.Backend.processes`; None: nothing is measured.
        report: takes the events.
    """
    if roots is None:
        yield
        return
    load = HostLoad(MeteredHost.here())
    over = asyncio.Event()

    async def follow() -> None:
        while not over.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), PERIOD_S)
            await asyncio.to_thread(lambda: load.update(with_descendants(roots)))

    await asyncio.to_thread(lambda: load.begin(with_descendants(roots)))
    following = asyncio.create_task(follow())
    try:
        yield
    finally:
        over.set()
        await following
    for event in background_events(load, "host"):
        report(event)


def with_descendants(roots: Iterable[int], proc: Path = Path("/proc")) -> list[int]:
    """Return these processes and all their living descendants."""
    children: dict[int, list[int]] = {}
    for process, fields in process_fields(proc):
        children.setdefault(int(fields[PARENT]), []).append(process)
    processes = list(dict.fromkeys(roots))
    for process in processes:
        processes += [child for child in children.get(process, ()) if child not in processes]
    return processes


class IdleMeters(Protocol):
    """Agents that meter their nodes: `controller.nodes.agents.Agents`, and those of other engines."""

    async def meter_idle(self, node: str, settle_s: float, measure_s: float) -> IdleBaseline:
        """See `controller.nodes.agents.Agents.meter_idle`."""
        ...


async def measure_baselines(
    agents: IdleMeters, machines: Sequence[Machine], entry: IdleEntry, lost: Collection[str] = ()
) -> dict[str, IdleBaseline]:
    """Meter all machines at the same time; return metered node -> its baseline.

    Args:
        agents: agents of all nodes.
        machines: the machines of the cluster.
        entry: seconds to settle and to measure.
        lost: nodes that cannot be reached.
    """
    nodes = [machine.metered for machine in machines if machine.metered not in lost]
    baselines = await asyncio.gather(*(agents.meter_idle(node, entry.settle_s, entry.measure_s) for node in nodes))
    return dict(zip(nodes, baselines, strict=True))
