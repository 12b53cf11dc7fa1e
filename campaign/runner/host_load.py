"""How much of this host works for others than the campaign while a run is measured.

Where nodes are processes or namespaces of this host, an agent knows no work but its own. The controller does: it
compares what all cores have done with the CPU time of the processes that descend from it and from the keeper of an
emulated cluster.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from agents.power.host import MeteredHost
from agents.sensors.interference import Event, HostLoad

LOOK_S = 0.5
"""A process that ends takes with it what it has done since the last look."""


@asynccontextmanager
async def watching_others(roots: Sequence[int] | None, say: Callable[[Event], None]) -> AsyncIterator[None]:
    """Watch as long as the block lasts; say afterwards what others did, if it was much.

    Args:
        roots: as in `controller.nodes.backend.Backend.processes`; None: nothing is watched.
        say: takes what was seen.
    """
    if roots is None:
        yield
        return
    load = HostLoad(MeteredHost.here())
    over = asyncio.Event()

    async def follow() -> None:
        while not over.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), LOOK_S)
            await asyncio.to_thread(lambda: load.go_on(family(roots)))

    await asyncio.to_thread(lambda: load.begin(family(roots)))
    following = asyncio.create_task(follow())
    try:
        yield
    finally:
        over.set()
        await following
    for event in load.events("host"):
        say(event)


def family(roots: Iterable[int], proc: Path = Path("/proc")) -> list[int]:
    """These processes and all that descend from them, as far as they live."""
    children: dict[int, list[int]] = {}
    for entry in proc.iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                # The name of the program, in brackets, may hold anything.
                parent = int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found = list(dict.fromkeys(roots))
    for process in found:
        found += [child for child in children.get(process, ()) if child not in found]
    return found
