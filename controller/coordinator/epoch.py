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


async def start(crew: EpochWorkers, nodes: Collection[str], sensors: tuple[str, ...], world: Environment) -> None:
    """Have all workers of the epoch started and listening.

    Raises:
        RunError: inputs cannot be put on a node, or it takes too long.
    """
    await explained(all_of(world.supply(node) for node in sorted({place.node for place in crew.workers})))
    await crew.begin(Start(spec=crew.spec, sensors=sensors), nodes)
    await crew.until(lambda: crew.ports.keys(), crew.workers, START_S, "the workers did not all start")


async def connect(crew: EpochWorkers) -> None:
    """Have all workers linked to one another.

    Raises:
        RunError: it takes too long.
    """
    await crew.tell(Connect(epoch=crew.spec.epoch, ports=crew.named_ports))
    await crew.until(lambda: crew.connected, crew.workers, CONNECT_S, "the workers did not all connect")


async def go(crew: EpochWorkers, at_ns: int, seen: Mapping[str, int], world: Environment) -> None:
    """Have the sources follow their schedule, which begins at `at_ns` of our monotonic clock.

    `seen` are positions reached in earlier epochs. All workers are connected by now, so that none will say anything
    more of those.
    """
    crew.seen = seen

    def message(node: str) -> Go:
        offset_ns = world.offset(node).offset_ns
        return Go(epoch=crew.spec.epoch, at_ns=at_ns + offset_ns, offset_ns=offset_ns, seen=seen)

    await crew.tell(message)


async def join(crew: EpochWorkers, nodes: Collection[str], sensors: tuple[str, ...]) -> None:
    """Have nodes without workers take part in the epoch that is under way."""
    await crew.begin(Start(spec=crew.spec, sensors=sensors), nodes)


async def drain(crew: EpochWorkers, reached: Mapping[str, int], worked_off: Callable[[], int]) -> None:
    """Have the sources end, those with a known end there, and wait until all that they emitted is worked off.

    Args:
        crew: the epoch's workers.
        reached: positions before which sources must not end, by name.
        worked_off: tuples so far, by what the workers report.

    Raises:
        RunError: nothing has moved for too long.
    """
    if crew.spouts - crew.spec.until.keys():
        await crew.tell(Stop(epoch=crew.spec.epoch, positions=reached))
    workers = set(crew.places.values())
    before = worked_off()
    while not await crew.within(DRAIN_S, lambda: crew.drained.keys() >= workers):
        last, before = before, worked_off()
        if before == last:
            missing = listed(workers - crew.drained.keys())
            raise RunError(f"the topology does not drain: nothing has moved for {DRAIN_S:.0f} s; missing: {missing}")
