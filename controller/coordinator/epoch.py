"""Steps that all workers of an epoch take together: from `Start` to running sources, from `Stop` to the answer."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import NoReturn

from agents.protocol import SILENCE_S, Connect, Go, Start, Stop
from controller.coordinator.epoch_workers import EpochWorkers, join_names
from controller.coordinator.failures import delay_error
from controller.coordinator.interfaces import Environment
from controller.host.condition import run_all
from inventory.errors import RunError

START_S = 120.0
CONNECT_S = 30.0
"""Timeout of a step; the run fails when it is exceeded."""

DRAIN_S = 120.0
"""Timeout without progress while the topology drains; the total time depends on the operators and has no limit."""

LOOK_S = 1.0
"""Interval between two checks for reports."""

MOST_LOOKS = round(SILENCE_S / LOOK_S)
"""Number of consecutive checks without a report after which an agent counts as gone."""


async def start(
    epoch_workers: EpochWorkers, nodes: Collection[str], sensors: tuple[str, ...], environment: Environment
) -> None:
    """Start all workers of the epoch and wait until they listen.

    Raises:
        RunError: inputs cannot be copied to a node, or a timeout.
    """
    await delay_error(
        run_all(environment.supply(node) for node in sorted({place.node for place in epoch_workers.workers}))
    )
    await epoch_workers.start(Start(spec=epoch_workers.spec, sensors=sensors), nodes)
    await epoch_workers.wait_for_all(
        lambda: epoch_workers.ports.keys(), epoch_workers.workers, START_S, "the workers did not all start"
    )


async def connect(epoch_workers: EpochWorkers) -> None:
    """Connect all workers to one another.

    Raises:
        RunError: a timeout.
    """
    await epoch_workers.send(Connect(epoch=epoch_workers.spec.epoch, ports=epoch_workers.named_ports))
    await epoch_workers.wait_for_all(
        lambda: epoch_workers.connected, epoch_workers.workers, CONNECT_S, "the workers did not all connect"
    )


async def start_sources(
    epoch_workers: EpochWorkers, at_ns: int, seen: Mapping[str, int], environment: Environment
) -> None:
    """Start the sources' schedules at `at_ns` on the controller's monotonic clock.

    `seen` are positions reached in earlier epochs. They are final: all workers are connected, so no further report of
    an earlier epoch can arrive.
    """
    epoch_workers.seen = seen

    def message(node: str) -> Go:
        offset_ns = environment.offset(node).offset_ns
        return Go(epoch=epoch_workers.spec.epoch, at_ns=at_ns + offset_ns, offset_ns=offset_ns, seen=seen)

    await epoch_workers.send(message)


async def join(epoch_workers: EpochWorkers, nodes: Collection[str], sensors: tuple[str, ...]) -> None:
    """Add nodes without workers to the current epoch."""
    await epoch_workers.start(Start(spec=epoch_workers.spec, sensors=sensors), nodes)


async def drain(epoch_workers: EpochWorkers, reached: Mapping[str, int], processed_tuples: Callable[[], int]) -> None:
    """Stop the sources and wait until the topology has drained. Draining continues while tuples make progress.

    Args:
        epoch_workers: the epoch's workers.
        reached: spout executor -> position before which it must not stop; a source with a known end stops there.
        processed_tuples: returns the number of tuples processed so far, as reported by workers.

    Raises:
        RunError: no progress for too long.
    """
    if epoch_workers.spouts - epoch_workers.spec.until.keys():
        await epoch_workers.send(Stop(epoch=epoch_workers.spec.epoch, positions=reached))
    workers = set(epoch_workers.places.values())
    before = processed_tuples()
    while not await epoch_workers.wait_within(DRAIN_S, lambda: epoch_workers.drained.keys() >= workers):
        last, before = before, processed_tuples()
        if before == last:
            missing = join_names(workers - epoch_workers.drained.keys())
            raise RunError(f"the topology does not drain: nothing has moved for {DRAIN_S:.0f} s; missing: {missing}")


async def watch_reports(epoch_workers: EpochWorkers, on_gone: Callable[[str, str], None]) -> NoReturn:
    """Call `on_gone(node, reason)` for agents that answer heartbeats but report nothing of the epoch; never return.

    An agent reports every second (`Vitals`), however busy its workers and sensors are. Checks are counted instead of
    seconds, so that a controller that was suspended itself counts one check only.
    """
    quiet: Counter[str] = Counter()
    while True:
        await asyncio.sleep(LOOK_S)
        heard, epoch_workers.heard = epoch_workers.heard, set()
        for node in sorted(epoch_workers.nodes):
            quiet[node] = 0 if node in heard else quiet[node] + 1
            if quiet[node] >= MOST_LOOKS:
                seconds = quiet.pop(node) * LOOK_S
                on_gone(node, f"its agent answers heartbeats, but has reported nothing of the run for {seconds:.0f} s")
