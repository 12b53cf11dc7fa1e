"""Migration of executors while the topology runs.

All moves of a plan happen at one barrier, together or not at all. There is therefore no intermediate placement that
could load a node more than the placements before and after. A target slot without a worker gets one first.
"""

from collections.abc import Set
from dataclasses import dataclass

from agents.protocol import Grow, Move, Place
from controller.coordinator.barrier import AbandonedError, run_barrier
from controller.coordinator.epoch import START_S
from controller.coordinator.epoch_workers import EpochWorkers, worker_name
from controller.coordinator.event_log import EventLog
from controller.coordinator.failures import delay_error
from controller.coordinator.interfaces import Environment
from controller.host.condition import run_all
from workloads.rates import NS


@dataclass(frozen=True)
class MoveRequest:
    """Request to move an executor, by name, to a node: to the given slot, or to one chosen by `chosen_slot`."""

    executor: str
    node: str
    slot: int | None = None

    @property
    def target(self) -> str:
        """The requested target, `node` or `node/slot`."""
        return self.node if self.slot is None else f"{self.node}/{self.slot}"

    def is_met_by(self, place: Place) -> bool:
        """Return whether an executor at `place` is at its target."""
        return place.node == self.node and self.slot in (None, place.slot)


@dataclass(frozen=True)
class MovePlan:
    """Moves that are due together, `at_s` seconds after the start of the sources."""

    at_s: float
    requests: tuple[MoveRequest, ...]


def chosen_slot(node: str, workers: Set[Place]) -> int:
    """Return the lowest slot of a node that has a worker, or 0 when none has one."""
    return min((place.slot for place in workers if place.node == node), default=0)


def moves_of(plan: MovePlan, epoch_workers: EpochWorkers, lost: Set[str]) -> tuple[Move, ...]:
    """Return the moves that fulfil a plan, without those of executors that are at their target already.

    Raises:
        AbandonedError: a node is lost.
    """
    places, workers = epoch_workers.places, set(epoch_workers.workers)
    moves = []
    for request in plan.requests:
        if request.node in lost:
            raise AbandonedError(f"node {request.node} is lost")
        if not request.is_met_by(places[request.executor]):
            slot = chosen_slot(request.node, workers) if request.slot is None else request.slot
            moves.append(Move(request.executor, Place(request.node, slot)))
    return tuple(moves)


async def run_moves(
    moves: tuple[Move, ...],
    epoch_workers: EpochWorkers,
    barrier: int,
    complete: int,
    start_ns: int,
    environment: Environment,
    event_log: EventLog,
) -> None:
    """Move executors at barrier number `barrier`, and record their new slots in `epoch_workers`.

    Args:
        moves: at least one.
        epoch_workers: workers of the epoch.
        barrier, complete: as for `run_barrier`.
        start_ns: start of the sources, on the controller's monotonic clock.
        environment: provides inputs and clock offsets.
        event_log: records each move.

    Raises:
        AbandonedError: the barrier was abandoned; no executor has moved.
        RunError: a new worker does not start in time, or the barrier is not passed in time.
    """
    new = sorted({move.to for move in moves} - set(epoch_workers.workers), key=lambda place: (place.node, place.slot))
    if new:
        await _grow(epoch_workers, new, start_ns, environment)
    before = epoch_workers.places
    # Workers without executors or without sources may have reported drained or exhausted; that no longer holds.
    for move in moves:
        if move.to not in before.values():
            epoch_workers.drained.pop(move.to, None)
        if move.to not in epoch_workers.sources:
            epoch_workers.exhausted.discard(move.to)
    await run_barrier(epoch_workers, barrier, complete, moves=moves)
    epoch_workers.apply_moves(moves)
    for move in moves:
        node, report = epoch_workers.moved[move.executor]
        source = before[move.executor]
        ended_ns = report.cut_ns - environment.offset(source.node).offset_ns
        live_ns = report.live_ns - environment.offset(node).offset_ns
        event_log.moved(
            move.executor,
            worker_name(source),
            worker_name(move.to),
            at_s=(ended_ns - start_ns) / NS,
            pause_s=(live_ns - ended_ns) / NS,
            state_bytes=report.state_bytes,
            buffered=report.buffered,
            cpu_ns=report.cpu_ns,
        )


async def _grow(epoch_workers: EpochWorkers, places: list[Place], start_ns: int, environment: Environment) -> None:
    """Start workers at `places`, which have none yet."""
    nodes = sorted({place.node for place in places})
    await delay_error(run_all(environment.supply(node) for node in nodes))
    epoch_workers.add_workers(places)

    def message(node: str) -> Grow:
        offset_ns = environment.offset(node).offset_ns
        return Grow(spec=epoch_workers.spec, at_ns=start_ns + offset_ns, offset_ns=offset_ns, seen=epoch_workers.seen)

    await epoch_workers.send(message, nodes)
    await epoch_workers.wait_for_all(
        lambda: epoch_workers.ports.keys(), places, START_S, "the new workers did not all start"
    )
