"""One barrier: the cut behind which a checkpoint is stored, or executors change their places.

prepare -> ready of all -> cut -> passed of all       or: refused, or too slow -> abandon
"""

from agents.protocol import Abandon, Cut, Move, Prepare
from controller.coordinator.epoch_workers import EpochWorkers, at, listed

READY_S = 30.0
PASS_S = 120.0
"""How long workers may take: to get ready, or the barrier is abandoned; to pass, or the run is given up."""


class AbandonedError(Exception):
    """A barrier does not come; the run goes on as if nothing had been. The message says why."""


async def carry_out(
    epoch_workers: EpochWorkers, barrier: int, complete: int, store: bool = False, moves: tuple[Move, ...] = ()
) -> None:
    """Send barrier number `barrier` through the topology; return when all workers and moves are behind it.

    Args:
        epoch_workers: of the epoch; it has the answers in the end: `moved`, and, with `store`, `stored` of all
        executors. barrier: higher than all before. complete: the last complete checkpoint. store: whether executors
        store their state. moves: executors that change their places, all or none.

    Raises:
        AbandonedError: a worker refuses or does not get ready in time.
        RunError: a worker does not pass in time.
    """
    epoch_workers.forget_barrier(barrier)
    epoch = epoch_workers.spec.epoch
    await epoch_workers.tell(
        Prepare(
            epoch=epoch,
            barrier=barrier,
            store=store,
            moves=moves,
            # For new links; without moves there are none, and these are long where there are many workers.
            workers=epoch_workers.workers if moves else (),
            ports=epoch_workers.named_ports if moves else {},
            complete=complete,
        )
    )
    tick = await _ready(epoch_workers, barrier)
    await epoch_workers.tell(Cut(epoch=epoch, barrier=barrier, tick=tick))
    await epoch_workers.until(
        lambda: epoch_workers.passed, epoch_workers.workers, PASS_S, f"barrier {barrier} was not passed"
    )
    await epoch_workers.until(
        lambda: epoch_workers.moved.keys(), {move.executor for move in moves}, PASS_S, "the moves were not done"
    )
    if store:
        await epoch_workers.until(
            lambda: epoch_workers.stored.keys(), epoch_workers.places.keys(), PASS_S, "the state was not stored"
        )


async def _ready(epoch_workers: EpochWorkers, barrier: int) -> int:
    """Wait for all workers; return the tick before which the barrier comes.

    Raises:
        AbandonedError: see `carry_out`.
    """

    def refusals() -> list[str]:
        return [f"{at(place)}: {ready.refused}" for place, ready in epoch_workers.ready.items() if ready.refused]

    everybody = set(epoch_workers.workers)
    if not await epoch_workers.within(READY_S, lambda: bool(refusals()) or epoch_workers.ready.keys() >= everybody):
        why = f"not ready within {READY_S:.0f} s: {listed(everybody - epoch_workers.ready.keys())}"
    elif refusals():
        why = "; ".join(refusals())
    else:
        return max(ready.tick for ready in epoch_workers.ready.values())
    await epoch_workers.tell(Abandon(epoch=epoch_workers.spec.epoch, barrier=barrier))
    raise AbandonedError(why)
