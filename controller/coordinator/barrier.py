"""Barriers: the consistent cuts at which a checkpoint is stored or executors are moved while the topology runs.

[precopy ->] prepare -> all ready -> cut -> all passed       or: a worker refuses or times out -> abandon

All moves of a wave happen at one barrier, together or not at all. There is therefore no intermediate placement that
could load a node more than the placements before and after. A target slot without a worker gets one first.

A revision may have a barrier for each of several waves (`waves`). Components may get other numbers of executors at a
barrier, too (`scaling`).
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Set

from agents.protocol import Abandon, Cut, Grow, Moved, MoveToPlace, Precopy, Prepare, Ready, RunSpec, Slot
from controller.coordinator.epoch_workers import (
    START_S,
    CheckpointSnapshots,
    EpochWorkers,
    executor_name,
    join_names,
    sources_in,
    worker_name,
)
from controller.coordinator.event_log import EventLog
from controller.coordinator.interfaces import Environment
from controller.host.condition import run_together
from inventory.errors import RunError
from inventory.times import NS

PRECOPY_S = 60.0
READY_S = 30.0
PASS_S = 120.0
"""Timeouts: executors move with state that is not copied in time; the barrier is abandoned when workers are not ready
in time; the run fails when they do not pass it."""

SLOWEST_COPY = 2_000_000
"""Bytes of state per second for which copies get more time."""


class AbandonedError(Exception):
    """A barrier was abandoned and the run continues without it. The message gives the reason."""


async def run_barrier(
    epoch_workers: EpochWorkers,
    barrier: int,
    complete: int,
    store: bool = False,
    moves: tuple[MoveToPlace, ...] = (),
    halt_s: float | None = None,
    scaled: RunSpec | None = None,
    aligned: bool = False,
) -> None:
    """Send barrier number `barrier` through the topology; return once all workers have passed it and moves are done.

    The next barrier may follow at once, even if snapshots are still being stored (`wait_until_stored`).

    Args:
        epoch_workers: workers of the epoch. They hold the results: `moved` and, with `store`, `snapshots`.
        barrier: higher than all earlier ones.
        complete: the last complete checkpoint.
        store: whether executors store their state.
        moves: executors to move, all or none.
        halt_s: sources stop for good, or for others to take over, so long before the barrier; None: they do not.
        scaled: the specification behind the barrier, if numbers of executors change there; moves are part of it.
        aligned: whether sources, which stop, emit exactly the first records of the whole input before it.

    Raises:
        AbandonedError: a worker refuses or is not ready in time, or the input of a source has ended, with `aligned`.
        RunError: a worker does not pass in time.
    """
    epoch_workers.forget_barrier(barrier, store)
    epoch = epoch_workers.spec.epoch
    changes = bool(moves) or scaled is not None
    arriving = {move.executor for move in moves} | (arriving_in(scaled, epoch_workers.spec) if scaled else set())
    await epoch_workers.send(
        Prepare(
            epoch=epoch,
            barrier=barrier,
            store=store,
            halt=halt_s is not None,
            moves=moves,
            scaled=scaled,
            # Only changes need new links, and these lists are long when there are many workers.
            workers=epoch_workers.workers if changes else (),
            ports=epoch_workers.named_ports if changes else {},
            complete=complete,
        )
    )
    ready = await _ready(epoch_workers, barrier, aligned)
    records = max(each.records or 0 for each in ready) if aligned else 0
    await asyncio.sleep(halt_s or 0.0)
    sources = sources_in(scaled) if scaled is not None and aligned else {}
    if changes:
        epoch_workers.reported.hold(epoch, min(sources.values(), default=None))
    await epoch_workers.send(Cut(epoch=epoch, barrier=barrier, tick=max(each.tick for each in ready), records=records))
    await epoch_workers.wait_for_all(
        lambda: epoch_workers.passed, epoch_workers.workers, PASS_S, f"barrier {barrier} was not passed"
    )
    await epoch_workers.wait_for_all(
        lambda: epoch_workers.moved.keys(), arriving, PASS_S, "the executors did not all take over"
    )
    if sources:
        epoch_workers.reported.share_anew((epoch, min(sources.values())), sources)
    if changes:
        epoch_workers.reported.release()


def arriving_in(after: RunSpec, before: RunSpec) -> set[str]:
    """Return the executors that have another slot or number behind a barrier."""
    placed = set(zip(before.numbered, before.executors, strict=True))
    now = zip(after.numbered, after.executors, strict=True)
    return {executor_name(executor) for number, executor in now if (number, executor) not in placed}


async def wait_until_stored(epoch_workers: EpochWorkers) -> CheckpointSnapshots:
    """Return the snapshots of the last checkpoint once all executors have stored theirs.

    Raises:
        RunError: they do not in time.
    """
    snapshots = epoch_workers.snapshots
    await epoch_workers.wait_for_all(
        lambda: snapshots.stored.keys(), snapshots.places.keys(), PASS_S, "the state was not stored"
    )
    return snapshots


async def _ready(epoch_workers: EpochWorkers, barrier: int, aligned: bool) -> Collection[Ready]:
    """Wait until all workers are ready; return their reports.

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
    elif aligned and (ended := [place for place, ready in epoch_workers.ready.items() if ready.records is None]):
        why = f"the input of sources has ended: {join_names(ended)}"
    else:
        return epoch_workers.ready.values()
    await epoch_workers.send(Abandon(epoch=epoch_workers.spec.epoch, barrier=barrier))
    raise AbandonedError(why)


def check_move_targets(moves: Iterable[MoveToPlace], executors: Collection[str], lost: Set[str]) -> None:
    """Check that these executors exist, and that no target is on a lost node.

    Raises:
        AbandonedError: that is not so.
    """
    for move in moves:
        if move.executor not in executors:
            raise AbandonedError(f"there is no executor {move.executor} now")
        check_reachable([move.to], lost)


def check_reachable(slots: Iterable[Slot], lost: Set[str]) -> None:
    """Check that no slot is on a lost node.

    Raises:
        AbandonedError: one is.
    """
    for slot in slots:
        if slot.node in lost:
            raise AbandonedError(f"node {slot.node} is lost")


async def run_moves(
    moves: tuple[MoveToPlace, ...],
    epoch_workers: EpochWorkers,
    barrier: int,
    complete: int,
    start_ns: int,
    environment: Environment,
    event_log: EventLog,
    stop_requested: Callable[[], bool],
    revision: int | None = None,
) -> None:
    """Move executors at barrier number `barrier`, and record their new slots in `epoch_workers`.

    Args:
        moves: at least one.
        epoch_workers: workers of the epoch.
        barrier, complete: as for `run_barrier`.
        start_ns: start of the sources, on the controller's monotonic clock.
        environment: provides inputs and clock offsets.
        event_log: records each move.
        stop_requested: whether the sources are to stop; then no more state is copied ahead of the barrier.
        revision: number of the revision that they are part of.

    Raises:
        AbandonedError: the barrier was abandoned; no executor has moved.
        RunError: a new worker does not start in time, or the barrier is not passed in time.
    """
    await prepare_slots(epoch_workers, {move.to for move in moves}, start_ns, environment)
    before = epoch_workers.places
    predicted = await copy_ahead(epoch_workers, barrier, stop_requested, moves)
    await run_barrier(epoch_workers, barrier, complete, moves=moves)
    epoch_workers.apply_moves(moves)
    log_moves(moves, before, epoch_workers.moved, predicted, start_ns, environment, event_log, revision)


async def prepare_slots(epoch_workers: EpochWorkers, slots: Set[Slot], start_ns: int, environment: Environment) -> None:
    """Start workers in those of the slots that have none, and expect work of all of them.

    Raises:
        RunError: a new worker does not start in time.
    """
    new = sorted(slots - set(epoch_workers.workers), key=lambda place: (place.node, place.index))
    if new:
        await _grow(epoch_workers, new, start_ns, environment)
    # Workers without executors or without sources may have reported drained or exhausted; that no longer holds.
    for place in slots:
        if place not in epoch_workers.places.values():
            epoch_workers.drained.pop(place, None)
        if place not in epoch_workers.sources:
            epoch_workers.exhausted.discard(place)


def log_moves(
    moves: Iterable[MoveToPlace],
    before: Mapping[str, Slot],
    moved: Mapping[str, tuple[str, Moved]],
    predicted: Mapping[str, int | None],
    start_ns: int,
    environment: Environment,
    event_log: EventLog,
    revision: int | None,
) -> None:
    """Record moves that are done.

    Args:
        moves: the moves.
        before: slots of all executors before.
        moved: node that reports, and its report, by executor.
        predicted: as returned by `copy_ahead`.
        start_ns, environment, event_log, revision: as for `run_moves`.
    """
    for move in moves:
        report = moved[move.executor][1]
        ended_ns, live_ns = pause_of(moved[move.executor], before, environment)
        event_log.moved(
            move.executor,
            worker_name(before[move.executor]),
            worker_name(move.to),
            at_s=(ended_ns - start_ns) / NS,
            pause_s=(live_ns - ended_ns) / NS,
            state_bytes=report.state_bytes,
            buffered=report.buffered,
            cpu_ns=report.cpu_ns,
            revision=revision,
            predicted_ns=predicted.get(move.executor),
        )


def pause_of(moved: tuple[str, Moved], before: Mapping[str, Slot], environment: Environment) -> tuple[int, int]:
    """Return the end of an executor's work before the barrier and its start behind it, on the controller's clock in ns.

    Args:
        moved: node that reports, and its report.
        before: slots of all executors before.
        environment: provides clock offsets.

    Raises:
        RunError: the executor continues one that did not exist.
    """
    node, report = moved
    source = before.get(report.source or report.executor)
    if source is None:
        raise RunError(f"{node}: {report.executor} continues {report.source!r}, which did not exist")
    ended_ns = report.cut_ns - environment.offset(source.node).offset_ns
    return ended_ns, report.live_ns - environment.offset(node).offset_ns


async def copy_ahead(
    epoch_workers: EpochWorkers,
    barrier: int,
    stop_requested: Callable[[], bool],
    moves: tuple[MoveToPlace, ...] = (),
    scaled: RunSpec | None = None,
) -> Mapping[str, int | None]:
    """Copy state ahead of a barrier to the executors that arrive there, while those that have it work.

    Args:
        epoch_workers: workers of the epoch.
        barrier: its number.
        stop_requested: whether the sources are to stop; then nothing more is copied.
        moves: of executors that keep their numbers.
        scaled: the specification behind the barrier, if numbers of executors change there.

    Returns:
        executor -> `predicted_ns` of `Precopied`.
    """
    epoch_workers.forget_barrier(barrier)
    epoch, workers, ports = epoch_workers.spec.epoch, epoch_workers.workers, epoch_workers.named_ports
    message = Precopy(epoch=epoch, barrier=barrier, moves=moves, workers=workers, ports=ports, scaled=scaled)
    await epoch_workers.send(message)
    arriving = {move.executor for move in moves} | (arriving_in(scaled, epoch_workers.spec) if scaled else set())
    stored = sum(report.nbytes for _, report in epoch_workers.snapshots.stored.values())
    limit_s = PRECOPY_S + stored / SLOWEST_COPY
    await epoch_workers.wait_within(limit_s, lambda: stop_requested() or epoch_workers.precopied.keys() >= arriving)
    return {executor: report.predicted_ns for executor, report in epoch_workers.precopied.items()}


async def _grow(epoch_workers: EpochWorkers, places: list[Slot], start_ns: int, environment: Environment) -> None:
    """Start workers at `places`, which have none yet."""
    nodes = sorted({place.node for place in places})
    await run_together(environment.supply(node) for node in nodes)
    epoch_workers.add_workers(places)

    def message(node: str) -> Grow:
        offset_ns = environment.offset(node).offset_ns
        return Grow(
            spec=epoch_workers.spec,
            at_ns=start_ns + offset_ns,
            offset_ns=offset_ns,
            seen=epoch_workers.seen,
            first_slot=epoch_workers.first_slot,
        )

    await epoch_workers.send(message, nodes)
    await epoch_workers.wait_for_all(
        lambda: epoch_workers.ports.keys(), places, START_S, "the new workers did not all start"
    )
