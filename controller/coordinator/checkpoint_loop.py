"""The checkpoint loop: runs checkpoints when due, and changes on request, one barrier at a time, while sources emit."""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from agents.protocol import AGENT, Gates, MoveToPlace, RunSpec
from agents.trace import CONTROLLER
from controller.coordinator.barrier import (
    AbandonedError,
    check_move_targets,
    check_reachable,
    run_barrier,
    run_moves,
    wait_until_stored,
)
from controller.coordinator.checkpoint_store import CheckpointStore
from controller.coordinator.epoch_workers import EpochWorkers, executor_places
from controller.coordinator.event_log import ENDED, EventLog
from controller.coordinator.failures import Failure, RunFailedError
from controller.coordinator.interfaces import UNSCALED, Carried, Environment, RestartRules, RunListener, Scaling, Waves
from controller.coordinator.node_membership import NodeMembership
from controller.coordinator.reports import ReportedWork
from controller.coordinator.scaling import HaltedError, rescaled, rescaled_live, run_scaling
from controller.coordinator.scripted_events import ScriptedEvent
from controller.coordinator.time_slot_clock import change_schedule, change_steps, gates_around, gates_with
from controller.coordinator.timeline import RETRY_S
from controller.host.condition import Condition
from inventory.errors import RunError
from inventory.times import NS
from scheduler.problem import CommunicationSchedule


@dataclass(frozen=True)
class ControlSettings:
    """Control of a run between start and stop.

    Attributes:
        sensors: sensors that the nodes run.
        checkpoint_s: seconds between checkpoints; 0: no checkpoints and no recovery from failures.
        events: events of the timeline, ordered by time.
        withheld: nodes that get no executors until the timeline adds them.
        restart: how a revision restarts the topology; None: executors move while it runs.
    """

    sensors: tuple[str, ...] = ()
    checkpoint_s: float = 0.0
    events: tuple[ScriptedEvent, ...] = ()
    withheld: frozenset[str] = frozenset()
    restart: RestartRules | None = None


@dataclass(frozen=True)
class _Waves:
    """Requested changes: the number of their revision, moves with a barrier for each wave, and what follows then."""

    revision: int | None
    waves: Waves
    schedule: CommunicationSchedule | None
    scaling: Scaling
    carried: asyncio.Future[Carried]

    @property
    def outlasts_changes(self) -> bool:
        """True for moves that an agenda scripts: they remain wanted when the topology changes before they begin."""
        return self.revision is None and bool(self.waves)


class CheckpointLoop:
    """Checkpoint loop of one run, entered once per epoch.

    Attributes:
        barrier: number of the last barrier, 0 before the first; numbers keep rising across epochs.
        unfinished: number of a checkpoint that has begun and is not complete; 0: none.
    """

    def __init__(
        self,
        settings: ControlSettings,
        environment: Environment,
        condition: Condition,
        event_log: EventLog,
        checkpoint_store: CheckpointStore,
        membership: NodeMembership,
        reported: ReportedWork,
        stop_requested: Callable[[], bool],
        listener: RunListener,
    ) -> None:
        """Prepare the loop; `condition` is notified when the value of `stop_requested` may have changed."""
        self._settings, self._environment, self._condition = settings, environment, condition
        self._event_log, self._checkpoint_store, self._membership = event_log, checkpoint_store, membership
        self._reported, self._stop_requested, self._listener = reported, stop_requested, listener
        self._waves: deque[_Waves] = deque()
        self._has_begun = False  # the first of them
        self._storing: asyncio.Task[None] | None = None
        self._checkpoint_at = math.inf
        self._sources_scaled: tuple[int, RunSpec] | None = None
        self.barrier = self.unfinished = 0

    async def run_until_stop(self, epoch_workers: EpochWorkers, start_ns: int) -> None:
        """Run until a stop is requested; sources started at `start_ns` on the controller's monotonic clock.

        Raises:
            RunError: the epoch cannot continue.
        """
        try:
            await self._run(epoch_workers, start_ns)
            if self._storing is not None:
                await self._storing
        finally:
            storing, self._storing = self._storing, None
            if storing is not None:
                storing.cancel()
                await asyncio.gather(storing, return_exceptions=True)
        while self._waves:
            self._end_first(Carried("abandoned", ENDED))

    async def carry(
        self,
        revision: int | None,
        waves: Waves,
        schedule: CommunicationSchedule | None = None,
        scaling: Scaling = UNSCALED,
    ) -> Carried:
        """Move executors, one wave per barrier, and change the schedule; what is done stays when more is abandoned.

        A revision is carried out by a restart if the settings say so, and so is a scaling.
        """
        if self._stop_requested():
            return Carried("abandoned", ENDED)
        request = _Waves(revision, waves, schedule, scaling, asyncio.get_running_loop().create_future())
        self._waves.append(request)
        self._condition.notify()
        return await request.carried

    async def _run(self, epoch_workers: EpochWorkers, start_ns: int) -> None:
        self._checkpoint_at = self._next_checkpoint()
        while not self._stop_requested():
            if self._storing is not None and self._storing.done():
                storing, self._storing = self._storing, None
                storing.result()
            # A checkpoint waits until the one before is complete; a move does not.
            checkpoint_at = self._checkpoint_at if self._storing is None else math.inf
            if await self._condition.wait_until(None if checkpoint_at == math.inf else checkpoint_at, self._is_called):
                await self._include_returned(epoch_workers)
                await self._carry_waves(epoch_workers, start_ns)
            else:
                self._checkpoint_at = self._next_checkpoint()
                await self._checkpoint(epoch_workers)

    def _is_called(self) -> bool:
        stored = self._storing is not None and self._storing.done()
        return stored or self._stop_requested() or bool(self._membership.returned or self._waves)

    def _next_checkpoint(self) -> float:
        every = self._settings.checkpoint_s
        return asyncio.get_running_loop().time() + every if every else math.inf

    async def _checkpoint(self, epoch_workers: EpochWorkers) -> None:
        """Send a barrier at which executors store their state; the copies are made in the background."""
        begin_s = asyncio.get_running_loop().time()
        number = self._next_barrier()
        self.unfinished = number
        try:
            await run_barrier(epoch_workers, number, self._checkpoint_store.complete, store=True)
        except AbandonedError as why:
            self._event_log.abandoned(number, str(why))
            self.unfinished = 0
            return
        self._storing = asyncio.create_task(self._store(epoch_workers, begin_s))
        self._storing.add_done_callback(lambda _: self._condition.notify())

    async def _wait_stored(self) -> None:
        """Wait until the last checkpoint is complete."""
        if self._storing is not None:
            await self._storing
            self._storing = None

    async def _store(self, epoch_workers: EpochWorkers, begin_s: float) -> None:
        snapshots = await wait_until_stored(epoch_workers)
        number, stored = snapshots.barrier, snapshots.stored
        self._reported.record_positions(epoch_workers.spec.epoch, snapshots.positions)
        try:
            nbytes = await self._checkpoint_store.store(number, stored, snapshots.divisions)
        except RunError as fault:
            # Sinks have already dropped the rows settled at this barrier, so the answer is complete only when the
            # run restarts from the previous checkpoint.
            reason = f"no second copy of checkpoint {number}: {fault}"
            self._event_log.abandoned(number, reason)
            raise RunFailedError(Failure(CONTROLLER, AGENT, reason, kind="lost")) from None
        self.unfinished = 0
        self._listener.stored({name: report.nbytes for name, (_, report) in stored.items()})
        self._event_log.checkpoint(number, asyncio.get_running_loop().time() - begin_s, nbytes)

    async def _run_moves(
        self,
        moves: tuple[MoveToPlace, ...],
        number: int,
        epoch_workers: EpochWorkers,
        start_ns: int,
        revision: int | None,
    ) -> None:
        await self._include_returned(epoch_workers)
        complete = self._checkpoint_store.complete
        rest = self._environment, self._event_log, self._stop_requested, revision
        await run_moves(moves, epoch_workers, number, complete, start_ns, *rest)
        self._listener.moved(epoch_workers.places)

    def broken(self, why: str, is_restarting: bool = False) -> None:
        """Record that the epoch broke; changes under way are abandoned, but not a restart that a recovery finishes."""
        restarting = [self._waves.popleft()] if is_restarting else []
        self._has_begun = self._has_begun and not is_restarting
        if self._has_begun:
            self._end_first(Carried("broken", why))
        self._give_up(Carried("broken", why))
        self._waves.extendleft(restarting)

    def _give_up(self, carried: Carried) -> None:
        """End the requests that were made for the topology as it was before a change."""
        for _ in range(len(self._waves)):
            if self._waves[0].outlasts_changes:
                self._waves.rotate(-1)
            else:
                self._end_first(carried)

    async def _carry_waves(self, epoch_workers: EpochWorkers, start_ns: int) -> None:
        """Carry out the requested waves; a request stays in the queue until its end, for `broken`."""
        while self._waves and not self._stop_requested():
            request = self._waves[0]
            if request.carried.done():  # withdrawn, as the topology broke before it began
                self._waves.popleft()
                continue
            self._has_begun = True
            scales, rules = bool(request.scaling.parallelism), self._settings.restart
            if rules is not None and (scales or request.revision is not None):
                await self._halt(epoch_workers, request, rules)
            elif scales:
                self._end_scaling(await self._scale(epoch_workers, request, start_ns))
            else:
                self._end_first(await self._carry_out(request, epoch_workers, start_ns))

    async def _carry_out(self, request: _Waves, epoch_workers: EpochWorkers, start_ns: int) -> Carried:
        try:
            steps = change_steps(request.waves, request.schedule, epoch_workers.spec.gates, epoch_workers.places)
        except AbandonedError as why:
            return Carried("abandoned", str(why))
        for at, step in enumerate(steps):
            if isinstance(step, Gates):
                await self._follow(epoch_workers, step)
                continue
            number = self._next_barrier()
            try:
                check_move_targets(step, epoch_workers.places, self._membership.lost)
                await self._run_moves(step, number, epoch_workers, start_ns, request.revision)
            except AbandonedError as why:
                self._event_log.abandoned(number, str(why))
                return Carried("partial" if at else "abandoned", str(why))
        return Carried("done")

    async def _scale(self, epoch_workers: EpochWorkers, request: _Waves, start_ns: int) -> Carried:
        """Change the numbers of executors and make all moves at one barrier, while the topology runs.

        A checkpoint follows at once, because the counts of the one before are of others, and other sources cannot
        continue from it.
        """
        await self._wait_stored()
        number, first = self._next_barrier(), None
        try:
            moves = self._all_moves(request, epoch_workers)
            after = executor_places(rescaled_live(epoch_workers.spec, request.scaling, moves))
            first, last = gates_around(request.schedule, epoch_workers.spec.gates, epoch_workers.places, after)
            await self._follow(epoch_workers, first)
            await self._include_returned(epoch_workers)
            self._reported.bolts.forget(request.scaling.added)
            before, checkpoint_at = epoch_workers.spec, asyncio.get_running_loop().time()
            scaling, complete = request.scaling, self._checkpoint_store.complete
            rest = self._environment, self._event_log, self._stop_requested, request.revision
            record = await run_scaling(scaling, moves, epoch_workers, number, complete, start_ns, *rest)
        except AbandonedError as why:
            self._event_log.abandoned(number, str(why))
            return Carried("abandoned" if first is None else "partial", str(why))
        self._listener.scaled(epoch_workers.spec)
        if self._settings.checkpoint_s:
            self._checkpoint_at = checkpoint_at
            if epoch_workers.are_spouts(request.scaling.parallelism):
                self._sources_scaled = number, before
                await self._secure(epoch_workers)
        record()
        await self._follow(epoch_workers, last)
        return Carried("done")

    def _all_moves(self, request: _Waves, epoch_workers: EpochWorkers) -> tuple[MoveToPlace, ...]:
        """Return the moves of all waves.

        Raises:
            AbandonedError: they or the executors that are added cannot be where they are to be.
        """
        moves = tuple(move for wave in request.waves for move in wave)
        check_move_targets(moves, epoch_workers.places, self._membership.lost)
        check_reachable(request.scaling.added.values(), self._membership.lost)
        return moves

    async def _follow(self, epoch_workers: EpochWorkers, gates: Gates | None) -> None:
        if gates is not None:
            await change_schedule(epoch_workers, gates, self._event_log)
            self._listener.scheduled(gates)

    async def _halt(self, epoch_workers: EpochWorkers, request: _Waves, rules: RestartRules) -> None:
        """Store a checkpoint at a barrier, behind which the topology starts again with all changes.

        Raises:
            HaltedError: the sources have halted.
            RunError: the epoch cannot continue.
        """
        await self._wait_stored()
        halted_s = asyncio.get_running_loop().time()
        number = self.unfinished = self._next_barrier()
        try:
            moves = self._all_moves(request, epoch_workers)
            rescaled(epoch_workers.spec, request.scaling)  # raises before the sources halt
            aligned, complete = epoch_workers.are_spouts(request.scaling.parallelism), self._checkpoint_store.complete
            await run_barrier(epoch_workers, number, complete, store=True, halt_s=rules.wait_s, aligned=aligned)
        except AbandonedError as why:
            self._event_log.abandoned(number, str(why))
            self.unfinished = 0
            self._end_first(Carried("abandoned", str(why)))
            return
        await self._store(epoch_workers, halted_s)
        if request.schedule is not None and epoch_workers.spec.gates is not None:
            epoch_workers.follow(gates_with(epoch_workers.spec.gates, request.schedule), 0)
        raise HaltedError(moves, rules.fresh, epoch_workers.snapshots, halted_s, request.revision, request.scaling)

    async def _secure(self, epoch_workers: EpochWorkers) -> None:
        """Complete a checkpoint of scaled sources, without which a recovery undoes the scaling."""
        while self.recoverable(epoch_workers.spec) is not epoch_workers.spec and not self._stop_requested():
            await self._checkpoint(epoch_workers)
            if self._storing is None:
                await asyncio.sleep(RETRY_S)
            await self._wait_stored()
        self._checkpoint_at = self._next_checkpoint()

    def recoverable(self, spec: RunSpec) -> RunSpec:
        """Return what a recovery from `spec` starts: without a scaling of sources that no checkpoint follows."""
        number, before = self._sources_scaled or (0, spec)
        return before if before.epoch == spec.epoch and self._checkpoint_store.complete <= number else spec

    def restarted(self, halted: HaltedError, start_ns: int) -> None:
        """Record that the topology runs again; sources started at `start_ns` on the controller's monotonic clock."""
        pause_s = asyncio.get_running_loop().time() - halted.halted_s
        at_s = halted.halted_s - start_ns / NS
        self._event_log.restarted(halted.moves, halted.snapshots, at_s, pause_s, halted.revision)
        if halted.scaling.parallelism:
            pauses = dict.fromkeys(halted.scaling.parallelism, (at_s, pause_s))
            self._event_log.scaled(halted.scaling, halted.snapshots.places, "restart", pauses, halted.revision)
            self._end_scaling(Carried("done"))
        else:
            self._end_first(Carried("done"))

    def _end_scaling(self, carried: Carried) -> None:
        self._end_first(carried)
        if carried.outcome == "done":  # what else was requested is about other executors
            self._give_up(Carried("abandoned", "the numbers of executors have changed"))

    def _end_first(self, carried: Carried) -> None:
        self._has_begun = False
        request = self._waves.popleft()
        if not request.carried.done():
            request.carried.set_result(carried)

    async def _include_returned(self, epoch_workers: EpochWorkers) -> None:
        """Let returned nodes join the epoch, without workers so far; before changes, whose workers may start there."""
        nodes, self._membership.returned = self._membership.returned, set()
        if nodes:
            await epoch_workers.join(nodes, self._settings.sensors)

    def _next_barrier(self) -> int:
        self.barrier += 1
        return self.barrier
