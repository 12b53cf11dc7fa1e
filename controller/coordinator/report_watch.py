"""Agents that answer heartbeats and report nothing of the epoch under way are given up, as those that are silent.

An agent reports every second (`Vitals`), however busy its workers are and whatever its sensors do. What counts is
looks, not seconds: when it was the controller that slept, it has looked once.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import NoReturn

from agents.protocol import SILENCE_S
from controller.coordinator.epoch_workers import EpochWorkers

LOOK_S = 1.0
"""From one look to the next."""

MOST_LOOKS = round(SILENCE_S / LOOK_S)
"""So many looks in a row without a report, and the agent is given up."""


async def watch_reports(epoch_workers: EpochWorkers, on_gone: Callable[[str, str], None]) -> NoReturn:
    """Call `on_gone(node, reason)` for agents of an epoch that report nothing of it; never return."""
    quiet: Counter[str] = Counter()
    while True:
        await asyncio.sleep(LOOK_S)
        heard, epoch_workers.heard = epoch_workers.heard, set()
        for node in sorted(epoch_workers.nodes):
            quiet[node] = 0 if node in heard else quiet[node] + 1
            if quiet[node] >= MOST_LOOKS:
                seconds = quiet.pop(node) * LOOK_S
                on_gone(node, f"its agent answers heartbeats, but has reported nothing of the run for {seconds:.0f} s")
