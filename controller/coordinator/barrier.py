"""One barrier: the consistent cut at which a checkpoint is stored or executors are moved.

prepare -> all ready -> cut -> all passed       or: a worker refuses or times out -> abandon
"""

from agents.protocol import Abandon, Cut, Move, Prepare
from controller.coordinator.epoch_workers import EpochWorkers, join_names, worker_name

READY_S = 30.0
PASS_S = 120.0
"""Timeouts: the barrier is abandoned when workers are not ready in time; the run fails when they do not pass it."""


class AbandonedError(Exception):
    """A barrier was abandoned and the run continues without it. The message gives the reason."""


async def run_barrier(
    epoch_workers: EpochWorkers, barrier: int, complete: int, store: bool = False, moves: tuple[Move, ...] = ()
) -> None:
    """Send barrier number `barrier` through the topology; return once all workers have passed it and moves are done.

    Args:
        epoch_workers: workers of the epoch. They hold the results: `moved` and, with `store`, `stored`, by executor.
        barrier: higher than all earlier ones.
        complete: the last complete checkpoint.
        store: whether executors store their state.
        moves: executors to move, all or none.

    Raises:
        AbandonedError: a worker refuses or is not ready in time.
        RunError: a worker does not pass in time.
    """
    epoch_workers.forget_barrier(barrier)
    epoch = epoch_workers.spec.epoch
    await epoch_workers.send(
        Prepare(
            epoch=epoch,
            barrier=barrier,
            store=store,
            moves=moves,
            # Only moves need new links, and these lists are long when there are many workers.
            workers=epoch_workers.workers if moves else (),
            ports=epoch_workers.named_ports if moves else {},
            complete=complete,
        )
    )
    tick = await _ready(epoch_workers, barrier)
    await epoch_workers.send(Cut(epoch=epoch, barrier=barrier, tick=tick))
    await epoch_workers.wait_for_all(
        lambda: epoch_workers.passed, epoch_workers.workers, PASS_S, f"barrier {barrier} was not passed"
    )
    await epoch_workers.wait_for_all(
        lambda: epoch_workers.moved.keys(), {move.executor for move in moves}, PASS_S, "the moves were not done"
    )
    if store:
        await epoch_workers.wait_for_all(
            lambda: epoch_workers.stored.keys(), epoch_workers.places.keys(), PASS_S, "the state was not stored"
        )


async def _ready(epoch_workers: EpochWorkers, barrier: int) -> int:
    """Wait until all workers are ready; return the tick that the barrier precedes.

    Raises:
        AbandonedError: see `run_barrier`.
    """

    def refusals() -> list[str]:
        return [
            f"{worker_name(place)}: {ready.refused}" for place, ready in epoch_workers.ready.items() if ready.refused
        ]

    everybody = set(epoch_workers.workers)
    if not await epoch_workers.wait_within(
        READY_S, lambda: bool(refusals()) or epoch_workers.ready.keys() >= everybody
    ):
        why = f"not ready within {READY_S:.0f} s: {join_names(everybody - epoch_workers.ready.keys())}"
    elif refusals():
        why = "; ".join(refusals())
    else:
        return max(ready.tick for ready in epoch_workers.ready.values())
    await epoch_workers.send(Abandon(epoch=epoch_workers.spec.epoch, barrier=barrier))
    raise AbandonedError(why)
