"""The checkpoint loop: runs checkpoints and moves when they are due, one barrier at a time, while sources emit."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass

from agents.protocol import AGENT
from controller.coordinator import epoch
from controller.coordinator.barrier import AbandonedError, run_barrier
from controller.coordinator.checkpoint_store import CheckpointStore
from controller.coordinator.epoch_workers import EpochWorkers
from controller.coordinator.event_log import CONTROLLER, EventLog
from controller.coordinator.failures import BrokenError, Failure, delay_error
from controller.coordinator.interfaces import Environment
from controller.coordinator.migrations import MovePlan, moves_of, run_moves
from controller.coordinator.node_membership import NodeMembership
from controller.coordinator.progress import SourcePositions
from controller.host.condition import Condition
from inventory.errors import RunError
from workloads.rates import NS


@dataclass(frozen=True)
class ControlSettings:
    """What a run does between start and stop.

    Attributes:
        sensors: sensors that the nodes run.
        checkpoint_s: seconds between checkpoints; 0: no checkpoints and no recovery from failures.
        moves: plans, ordered by time.
    """

    sensors: tuple[str, ...] = ()
    checkpoint_s: float = 0.0
    moves: tuple[MovePlan, ...] = ()


class CheckpointLoop:
    """Checkpoint loop of one run, entered once per epoch.

    Attributes:
        barrier: number of the last barrier, 0 before the first; numbers keep rising across epochs.
    """

    def __init__(
        self,
        settings: ControlSettings,
        environment: Environment,
        condition: Condition,
        event_log: EventLog,
        checkpoint_store: CheckpointStore,
        membership: NodeMembership,
        source_positions: SourcePositions,
        stop_requested: Callable[[], bool],
    ) -> None:
        """Prepare the loop; `condition` is notified when the value of `stop_requested` may have changed."""
        self._settings, self._environment, self._condition, self._event_log = (
            settings,
            environment,
            condition,
            event_log,
        )
        self._checkpoint_store, self._membership, self._source_positions, self._stop_requested = (
            checkpoint_store,
            membership,
            source_positions,
            stop_requested,
        )
        self._plans = list(settings.moves)
        self._plan: MovePlan | None = None
        self.barrier = 0

    async def run_until_stop(self, epoch_workers: EpochWorkers, start_ns: int) -> None:
        """Run until a stop is requested; sources started at `start_ns` on the controller's monotonic clock.

        Raises:
            BrokenError: the epoch cannot continue.
        """
        checkpoint_at = self._next_checkpoint()
        while True:
            moves_at = start_ns / NS + self._plans[0].at_s if self._plans else math.inf
            due = min(checkpoint_at, moves_at)
            if await self._condition.wait_until(
                None if due == math.inf else due, lambda: self._stop_requested() or bool(self._membership.returned)
            ):
                if self._stop_requested():
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
        every = self._settings.checkpoint_s
        return asyncio.get_running_loop().time() + every if every else math.inf

    async def _checkpoint(self, epoch_workers: EpochWorkers) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        number = self._next_barrier()
        try:
            await run_barrier(epoch_workers, number, self._checkpoint_store.complete, store=True)
        except AbandonedError as why:
            self._event_log.abandoned(number, str(why))
            return
        self._source_positions.record(
            {name: report.position for name, (_, report) in epoch_workers.stored.items() if report.position is not None}
        )
        try:
            nbytes = await delay_error(self._checkpoint_store.store(number, epoch_workers.stored))
        except RunError as fault:
            # Sinks have already dropped the rows settled at this barrier, so the answer is complete only when the
            # run restarts from the previous checkpoint.
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
                await run_moves(
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
        """Record that the epoch broke; a move under way is abandoned."""
        if self._plan is not None:
            self._not_moved(self._plan, why)

    def _not_moved(self, plan: MovePlan, why: str) -> None:
        self._plan = None
        for request in plan.requests:
            self._event_log.not_moved(request.executor, request.target, plan.at_s, why)

    async def _include_returned(self, epoch_workers: EpochWorkers) -> None:
        """Let returned nodes join the epoch, without workers so far."""
        nodes, self._membership.returned = self._membership.returned, set()
        await epoch.join(epoch_workers, nodes, self._settings.sensors)

    def _next_barrier(self) -> int:
        self.barrier += 1
        return self.barrier
