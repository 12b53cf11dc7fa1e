"""CPU time of this host that other processes use while a run is measured.

Nodes that are processes or namespaces of this host share its CPUs, and agents cannot separate other work from that of
other nodes. The controller compares the busy time of all cores with the CPU time of its own descendants and of those
of an emulated cluster's daemon.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from agents.power.host import MeteredHost
from agents.sensors.interference import Event, HostLoad

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
            await asyncio.to_thread(lambda: load.go_on(with_descendants(roots)))

    await asyncio.to_thread(lambda: load.begin(with_descendants(roots)))
    following = asyncio.create_task(follow())
    try:
        yield
    finally:
        over.set()
        await following
    for event in load.events("host"):
        report(event)


def with_descendants(roots: Iterable[int], proc: Path = Path("/proc")) -> list[int]:
    """Return these processes and all their living descendants."""
    children: dict[int, list[int]] = {}
    for entry in proc.iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                # The program name in parentheses may contain any character.
                parent = int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found = list(dict.fromkeys(roots))
    for process in found:
        found += [child for child in children.get(process, ()) if child not in found]
    return found
