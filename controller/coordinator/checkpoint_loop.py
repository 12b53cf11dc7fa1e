"""What is done while the sources of an epoch run: checkpoints and moves when they are due, one barrier at a time."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass

from agents.protocol import AGENT
from controller.coordinator import epoch
from controller.coordinator.barrier import AbandonedError, carry_out
from controller.coordinator.checkpoint_store import CheckpointStore
from controller.coordinator.epoch_workers import EpochWorkers
from controller.coordinator.event_log import CONTROLLER, EventLog
from controller.coordinator.failures import BrokenError, Failure, explained
from controller.coordinator.interfaces import Environment
from controller.coordinator.migrations import MovePlan, carry_out_moves, moves_of
from controller.coordinator.node_membership import NodeMembership
from controller.coordinator.reached_progress import Reached
from controller.host.condition import Condition
from inventory.errors import RunError
from workloads.rates import NS


@dataclass(frozen=True)
class Course:
    """What is to happen between start and stop.

    Attributes:
        sensors: what nodes measure.
        checkpoint_s: time from one checkpoint to the next; 0: none, and nothing that breaks is mended.
        moves: plans in order of their times.
    """

    sensors: tuple[str, ...] = ()
    checkpoint_s: float = 0.0
    moves: tuple[MovePlan, ...] = ()


class CheckpointLoop:
    """Tends the epochs of one run, one after the other.

    Attributes:
        barrier: number of the last barrier, 0 before the first; they rise from epoch to epoch.
    """

    def __init__(
        self,
        course: Course,
        environment: Environment,
        condition: Condition,
        event_log: EventLog,
        checkpoint_store: CheckpointStore,
        membership: NodeMembership,
        reached: Reached,
        stop_asked: Callable[[], bool],
    ) -> None:
        """`stop_asked` returns whether the run is to stop; `condition` is notified when that may have changed."""
        self._course, self._environment, self._condition, self._event_log = course, environment, condition, event_log
        self._checkpoint_store, self._membership, self._reached, self._stop_asked = (
            checkpoint_store,
            membership,
            reached,
            stop_asked,
        )
        self._plans = list(course.moves)
        self._plan: MovePlan | None = None
        self.barrier = 0

    async def until_stop(self, epoch_workers: EpochWorkers, start_ns: int) -> None:
        """Return when the run is to stop; sources started at `start_ns` of our monotonic clock.

        Raises:
            BrokenError: the epoch cannot go on.
        """
        checkpoint_at = self._next_checkpoint()
        while True:
            moves_at = start_ns / NS + self._plans[0].at_s if self._plans else math.inf
            due = min(checkpoint_at, moves_at)
            if await self._condition.by(
                None if due == math.inf else due, lambda: self._stop_asked() or bool(self._membership.returned)
            ):
                if self._stop_asked():
                    break
                await self._include_returned(epoch_workers)
            elif moves_at <= checkpoint_at:
                await self._move(epoch_workers, start_ns)
            else:
                checkpoint_at = self._next_checkpoint()
                await self._checkpoint(epoch_workers)
        while self._plans:
            self._not_moved(self._plans.pop(0), "the sources had ended")

    def _next_checkpoint(self) -> float:
        every = self._course.checkpoint_s
        return asyncio.get_running_loop().time() + every if every else math.inf

    async def _checkpoint(self, epoch_workers: EpochWorkers) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        number = self._next_barrier()
        try:
            await carry_out(epoch_workers, number, self._checkpoint_store.complete, store=True)
        except AbandonedError as why:
            self._event_log.abandoned(number, str(why))
            return
        self._reached.note(
            {name: said.position for name, (_, said) in epoch_workers.stored.items() if said.position is not None}
        )
        try:
            nbytes = await explained(self._checkpoint_store.store(number, epoch_workers.stored))
        except RunError as fault:
            # Sinks have given up the rows that they settled here: only from the checkpoint before is the answer whole.
            reason = f"no second copy of checkpoint {number}: {fault}"
            self._event_log.abandoned(number, reason)
            raise BrokenError(Failure(CONTROLLER, AGENT, reason, kind="gone"), loop.time()) from None
        self._event_log.checkpoint(number, loop.time() - begun, nbytes)

    async def _move(self, epoch_workers: EpochWorkers, start_ns: int) -> None:
        plan = self._plan = self._plans.pop(0)
        number = self._next_barrier()
        try:
            moves = moves_of(plan, epoch_workers, self._membership.lost)
            if moves:
                await carry_out_moves(
                    moves,
                    epoch_workers,
                    number,
                    self._checkpoint_store.complete,
                    start_ns,
                    self._environment,
                    self._event_log,
                )
        except AbandonedError as why:
            self._event_log.abandoned(number, str(why))
            self._not_moved(plan, str(why))
        self._plan = None

    def broken(self, why: str) -> None:
        """The epoch has ended before its time; a move under way is given up."""
        if self._plan is not None:
            self._not_moved(self._plan, why)

    def _not_moved(self, plan: MovePlan, why: str) -> None:
        self._plan = None
        for request in plan.wishes:
            self._event_log.not_moved(request.executor, request.target, plan.at_s, why)

    async def _include_returned(self, epoch_workers: EpochWorkers) -> None:
        """Nodes that have returned take part in the epoch, without workers as yet."""
        nodes, self._membership.returned = self._membership.returned, set()
        await epoch.join(epoch_workers, nodes, self._course.sensors)

    def _next_barrier(self) -> int:
        self.barrier += 1
        return self.barrier
