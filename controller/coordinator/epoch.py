"""The steps that all workers of an epoch take together: from `Start` to flowing tuples, from `Stop` to the answer."""

from collections.abc import Callable, Collection, Mapping

from agents.protocol import Connect, Go, Start, Stop
from controller.coordinator.epoch_workers import EpochWorkers, listed
from controller.coordinator.failures import explained
from controller.coordinator.interfaces import Environment
from controller.host.condition import all_of
from inventory.errors import RunError

START_S = 120.0
CONNECT_S = 30.0
"""How long a step may take before the run is given up."""

DRAIN_S = 120.0
"""How long nothing may move while the topology drains. How long there is something left depends on the operators."""


async def start(
    epoch_workers: EpochWorkers, nodes: Collection[str], sensors: tuple[str, ...], environment: Environment
) -> None:
    """Have all workers of the epoch started and listening.

    Raises:
        RunError: inputs cannot be put on a node, or it takes too long.
    """
    await explained(
        all_of(environment.supply(node) for node in sorted({place.node for place in epoch_workers.workers}))
    )
    await epoch_workers.begin(Start(spec=epoch_workers.spec, sensors=sensors), nodes)
    await epoch_workers.until(
        lambda: epoch_workers.ports.keys(), epoch_workers.workers, START_S, "the workers did not all start"
    )


async def connect(epoch_workers: EpochWorkers) -> None:
    """Have all workers linked to one another.

    Raises:
        RunError: it takes too long.
    """
    await epoch_workers.tell(Connect(epoch=epoch_workers.spec.epoch, ports=epoch_workers.named_ports))
    await epoch_workers.until(
        lambda: epoch_workers.connected, epoch_workers.workers, CONNECT_S, "the workers did not all connect"
    )


async def go(epoch_workers: EpochWorkers, at_ns: int, seen: Mapping[str, int], environment: Environment) -> None:
    """Have the sources follow their schedule, which begins at `at_ns` of our monotonic clock.

    `seen` are positions reached in earlier epochs. All workers are connected by now, so that none will say anything
    more of those.
    """
    epoch_workers.seen = seen

    def message(node: str) -> Go:
        offset_ns = environment.offset(node).offset_ns
        return Go(epoch=epoch_workers.spec.epoch, at_ns=at_ns + offset_ns, offset_ns=offset_ns, seen=seen)

    await epoch_workers.tell(message)


async def join(epoch_workers: EpochWorkers, nodes: Collection[str], sensors: tuple[str, ...]) -> None:
    """Have nodes without workers take part in the epoch that is under way."""
    await epoch_workers.begin(Start(spec=epoch_workers.spec, sensors=sensors), nodes)


async def drain(epoch_workers: EpochWorkers, reached: Mapping[str, int], worked_off: Callable[[], int]) -> None:
    """Have the sources end, those with a known end there, and wait until all that they emitted is worked off.

    Args:
        epoch_workers: the epoch's workers.
        reached: positions before which sources must not end, by name.
        worked_off: tuples so far, by what the workers report.

    Raises:
        RunError: nothing has moved for too long.
    """
    if epoch_workers.spouts - epoch_workers.spec.until.keys():
        await epoch_workers.tell(Stop(epoch=epoch_workers.spec.epoch, positions=reached))
    workers = set(epoch_workers.places.values())
    before = worked_off()
    while not await epoch_workers.within(DRAIN_S, lambda: epoch_workers.drained.keys() >= workers):
        last, before = before, worked_off()
        if before == last:
            missing = listed(workers - epoch_workers.drained.keys())
            raise RunError(f"the topology does not drain: nothing has moved for {DRAIN_S:.0f} s; missing: {missing}")
