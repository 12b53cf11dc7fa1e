"""Whole runs of a coordinator in virtual time, with fake nodes."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import virtual_time
from fake_nodes import PLACES, FakeNodes

from inventory.times import NS

START_S = 0.5
"""Upper bound of a start of `FakeNodes`, including the lead time of the sources."""

MID, SINK = PLACES["mid[0]"], PLACES["sink[0]"]


def run_coordinator(
    nodes: Callable[[], FakeNodes],
    seconds: float,
    during: Callable[[FakeNodes], Coroutine[Any, Any, None]] | None = None,
) -> FakeNodes:
    """Run for some seconds of virtual time; check that the controller kept the protocol.

    Args:
        nodes: makes the nodes and their coordinator.
        seconds: time from the start of the sources until they stop.
        during: runs concurrently from the start of the sources on.
    """

    async def run() -> FakeNodes:
        fake = nodes()
        async with fake.coordinator as coordinator:
            start_ns = await coordinator.start()
            concurrent = asyncio.create_task(during(fake)) if during is not None else None
            await coordinator.wait_until(start_ns + round(seconds * NS))
            await coordinator.stop()
            await coordinator.finish()
            if concurrent is not None:
                await concurrent
        assert not fake.violations
        return fake

    return virtual_time.run(run())


def answer_files(nodes: FakeNodes) -> list[str]:
    """Return the replicas of the parts of the answer."""
    return [nodes.replicas.files[part.name] for part in nodes.coordinator.answer]
