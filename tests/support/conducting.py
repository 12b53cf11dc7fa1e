"""A whole run under the control, in virtual time, with nodes that do as they are told."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import virtual_time
from obedient import PLACES, Obedient

from inventory.times import NS

START_S = 0.5
"""All starts of `Obedient` take less, the lead of the sources included."""

MID, SINK = PLACES["mid[0]"], PLACES["sink[0]"]


def conduct(
    nodes: Callable[[], Obedient], seconds: float, during: Callable[[Obedient], Coroutine[Any, Any, None]] | None = None
) -> Obedient:
    """A run of so many seconds, in which `during` happens from the start of the sources on; nothing may be wrong."""

    async def run() -> Obedient:
        made = nodes()
        async with made.coordinator as coordinator:
            started = await coordinator.start()
            happening = asyncio.create_task(during(made)) if during is not None else None
            await coordinator.wait_until(started + round(seconds * NS))
            await coordinator.stop()
            await coordinator.finish()
            if happening is not None:
                await happening
        assert not made.wrong
        return made

    return virtual_time.run(run())


def parts(nodes: Obedient) -> list[str]:
    """The answer, as the copies of its parts."""
    return [nodes.copies.files[part.name] for part in nodes.coordinator.answer]
