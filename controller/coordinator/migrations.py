"""Executors that change their places while the topology runs.

All moves of a plan happen at one barrier: they come about together or not at all, and there is no state between the
placement before and the one after that could load a node more than these two do. Where an executor is to go to a slot
without a worker, the worker is there first.
"""

from collections.abc import Set
from dataclasses import dataclass

from agents.protocol import Grow, Move, Place
from controller.coordinator.barrier import AbandonedError, carry_out
from controller.coordinator.epoch import START_S
from controller.coordinator.epoch_workers import EpochWorkers, at
from controller.coordinator.event_log import EventLog
from controller.coordinator.failures import explained
from controller.coordinator.interfaces import Environment
from controller.host.condition import all_of
from workloads.rates import NS


@dataclass(frozen=True)
class MoveRequest:
    """An executor, by name, and the node where it is to go; to this slot of it, or to one that suits."""

    executor: str
    node: str
    slot: int | None = None

    @property
    def target(self) -> str:
        """`node` or `node/slot`, as it was asked for."""
        return self.node if self.slot is None else f"{self.node}/{self.slot}"

    def met_by(self, place: Place) -> bool:
        """Whether an executor at `place` is where it is to go."""
        return place.node == self.node and self.slot in (None, place.slot)


@dataclass(frozen=True)
class MovePlan:
    """Moves that are due together, `at_s` seconds after the sources' start."""

    at_s: float
    wishes: tuple[MoveRequest, ...]


def chosen_slot(node: str, workers: Set[Place]) -> int:
    """The lowest slot of a node that has a worker, else the lowest of all."""
    return min((place.slot for place in workers if place.node == node), default=0)


def moves_of(plan: MovePlan, epoch_workers: EpochWorkers, lost: Set[str]) -> tuple[Move, ...]:
    """The moves that bring about what the plan wishes; none for executors that are where they are to go.

    Raises:
        AbandonedError: a node is lost.
    """
    places, workers = epoch_workers.places, set(epoch_workers.workers)
    moves = []
    for request in plan.wishes:
        if request.node in lost:
            raise AbandonedError(f"node {request.node} is lost")
        if not request.met_by(places[request.executor]):
            slot = chosen_slot(request.node, workers) if request.slot is None else request.slot
            moves.append(Move(request.executor, Place(request.node, slot)))
    return tuple(moves)


async def carry_out_moves(
    moves: tuple[Move, ...],
    epoch_workers: EpochWorkers,
    barrier: int,
    complete: int,
    start_ns: int,
    environment: Environment,
    event_log: EventLog,
) -> None:
    """Do these moves at barrier number `barrier`; afterwards `epoch_workers` knows the new places.

    Args:
        moves: of executors of the crew, at least one.
        epoch_workers: of the epoch.
        barrier, complete: as `carry_out` takes them.
        start_ns: when the sources started, on our monotonic clock.
        environment: where inputs and clocks are.
        event_log: is told how each went.

    Raises:
        AbandonedError: the barrier was abandoned; everything is where it was.
        RunError: a new worker does not start in time, or the barrier is not passed in time.
    """
    new = sorted({move.to for move in moves} - set(epoch_workers.workers), key=lambda place: (place.node, place.slot))
    if new:
        await _grow(epoch_workers, new, start_ns, environment)
    before = epoch_workers.places
    # A worker without executors, or without sources, has nothing left to do and may have said so; now it has.
    for move in moves:
        if move.to not in before.values():
            epoch_workers.drained.pop(move.to, None)
        if move.to not in epoch_workers.sources:
            epoch_workers.exhausted.discard(move.to)
    await carry_out(epoch_workers, barrier, complete, moves=moves)
    epoch_workers.settle(moves)
    for move in moves:
        node, said = epoch_workers.moved[move.executor]
        source = before[move.executor]
        ended_ns = said.cut_ns - environment.offset(source.node).offset_ns
        live_ns = said.live_ns - environment.offset(node).offset_ns
        event_log.moved(
            move.executor,
            at(source),
            at(move.to),
            at_s=(ended_ns - start_ns) / NS,
            pause_s=(live_ns - ended_ns) / NS,
            state_bytes=said.state_bytes,
            buffered=said.buffered,
            cpu_ns=said.cpu_ns,
        )


async def _grow(epoch_workers: EpochWorkers, places: list[Place], start_ns: int, environment: Environment) -> None:
    """Have workers started at `places`, where there are none yet."""
    nodes = sorted({place.node for place in places})
    await explained(all_of(environment.supply(node) for node in nodes))
    epoch_workers.grow(places)

    def message(node: str) -> Grow:
        offset_ns = environment.offset(node).offset_ns
        return Grow(spec=epoch_workers.spec, at_ns=start_ns + offset_ns, offset_ns=offset_ns, seen=epoch_workers.seen)

    await epoch_workers.tell(message, nodes)
    await epoch_workers.until(lambda: epoch_workers.ports.keys(), places, START_S, "the new workers did not all start")
