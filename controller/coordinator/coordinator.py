"""A run from `Start` to `Finished`, over as many epochs as it takes.

    epoch 1:  start, connect, go; checkpoints and moves, one barrier at a time; stop, drain; finish
    what breaks it begins the next epoch: mend, start from the last complete checkpoint, connect, go; ...

Whoever runs a session says only when to stop; that it had to begin again in between is in its journal.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from msgspec.structs import replace

from agents.protocol import (
    AGENT,
    Clock,
    Drained,
    Failed,
    Finish,
    Finished,
    Lost,
    Mark,
    Progress,
    Report,
    RunSpec,
    Sampling,
    Stopped,
    workers_of,
)
from controller.coordinator import epoch
from controller.coordinator.checkpoint_loop import CheckpointLoop, Course
from controller.coordinator.checkpoint_store import CheckpointStore, Part
from controller.coordinator.epoch_workers import EpochWorkers, WorkerProfiles, name_of
from controller.coordinator.event_log import EventLog
from controller.coordinator.failures import BrokenError, Failure, Failures, RunFailedError, explained
from controller.coordinator.interfaces import Environment, Seats
from controller.coordinator.live_metrics import LiveMetrics
from controller.coordinator.node_membership import NodeMembership
from controller.coordinator.reached_progress import Bolts, Reached
from controller.coordinator.report_watch import watch_reports
from controller.coordinator.time_slot_clock import SlotClock
from controller.host.condition import Condition, all_of, unless
from inventory.errors import RunError
from workloads.rates import NS

FINISH_S, PROFILES_S = 30.0, 15.0
"""How long agents may take to finish, and to write profiles before the run goes on without them."""

LEAD_NS = 200_000_000
"""Sources start so much later than the message that says so, for it to reach all nodes."""

PAUSES_S = (0.0, 1.0, 2.0, 4.0, 8.0)
"""Each of several recoveries in a row, without a new complete checkpoint in between, begins at least so long after the
one before: what goes wrong for some seconds must not use them up."""

MOST_RECOVERIES = len(PAUSES_S)
"""So many epochs in a row may break without a new complete checkpoint; one more, and the run fails."""


class Coordinator:
    """One run, as an asynchronous context manager that ends all it does; nodes are ended by their owner.

    Attributes:
        event_log: what happened.
        flow: what goes through the topology.
        profiles: sampled stacks of workers.
        positions: spout executor -> records emitted in all epochs together, after `stop`.
        answer: all parts of the answer, after `stop`.
    """

    def __init__(self, spec: RunSpec, environment: Environment, course: Course) -> None:
        """Prepare it; reports of nodes go to `take`, the end of an agent to `gone`."""
        self._spec, self._environment, self._course = spec, environment, course
        self._condition = Condition()
        self.event_log = EventLog(environment.note)
        self._checkpoint_store = CheckpointStore(environment.copies)
        self._membership = NodeMembership(environment, self.event_log, self._condition)
        self._failures = Failures(self._mends)
        self._epoch_workers = EpochWorkers(spec, environment, self._condition, self.gone)
        self.flow = LiveMetrics()
        self.profiles = WorkerProfiles(self._condition)
        self._reached, self._bolts = Reached(), Bolts()
        self._checkpoint_loop = CheckpointLoop(
            course,
            environment,
            self._condition,
            self.event_log,
            self._checkpoint_store,
            self._membership,
            self._reached,
            lambda: self._stop_asked,
        )
        self._broken: BrokenError | None = None
        self._in_a_row, self._mended_s = 0, -math.inf
        self._start_ns: int | None = None
        self._stop_asked = self._over = False
        self._finished: set[str] = set()
        self.positions: Mapping[str, int] = {}
        self.answer: list[Part] = []

    async def __aenter__(self) -> Self:
        self._leading = asyncio.create_task(self._lead())
        self._leading.add_done_callback(lambda _: self._condition.tell())
        self._calling = asyncio.create_task(self._membership.call_lost())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in (self._leading, self._calling):
            task.cancel()
        await asyncio.gather(self._leading, self._calling, return_exceptions=True)

    # --- what the run's owner asks for ---------------------------------------------------------------------------

    async def start(self) -> int:
        """Wait until sources start; return when they do, in nanoseconds of our monotonic clock.

        This and all others raise:
            RunFailedError: something happened that no new start can mend, or mending did not help.
            RunError: a step took too long.
        """
        await self._until(lambda: self._start_ns is not None)
        return self._source_start_ns

    async def wait_until(self, at_ns: int) -> None:
        """Return at `at_ns` of our monotonic clock, or earlier when the sources are exhausted."""
        await self._until(lambda: self._epoch_workers.all_exhausted, at_ns / NS)

    @property
    def exhausted(self) -> bool:
        """Whether all sources have come to the end of a finite input."""
        return self._epoch_workers.all_exhausted

    async def mark(self, kind: str) -> int:
        """Have the event written into all traces; return when it was sent, in ns of our monotonic clock."""
        now_ns = self._now_ns()
        self.event_log.mark(kind)
        await self._tell_those_who_hear(Mark(epoch=self._epoch_workers.spec.epoch, kind=kind))
        return now_ns

    async def set_clock(self, node: str, offset_ns: int) -> None:
        """Tell a node what its monotonic clock shows more than ours.

        Raises:
            RunError: it cannot be reached.
        """
        if node in self._epoch_workers.nodes & self._membership.usable:
            await self._environment.tell(node, Clock(epoch=self._epoch_workers.spec.epoch, offset_ns=offset_ns))

    async def sample_stacks(self, on: bool) -> None:
        """Have the stacks of all workers sampled from now on, or end that and wait for `profiles`, but not for ever."""
        await self._tell_those_who_hear(Sampling(epoch=self._epoch_workers.spec.epoch, on=on))
        if not on:
            deadline = asyncio.get_running_loop().time() + PROFILES_S
            await self._until(
                lambda: self.profiles.of.keys() >= self._epoch_workers.nodes & self._membership.usable, deadline
            )

    async def stop(self) -> None:
        """Have the sources end and the topology drain."""
        self._stop_asked = True
        self._condition.tell()
        await self._until(lambda: self._over)

    async def finish(self) -> None:
        """Have the workers exit and all trace files closed; what was lost is not waited for."""
        await self._tell_those_who_hear(Finish(epoch=self._epoch_workers.spec.epoch))

        async def finished() -> None:
            deadline = asyncio.get_running_loop().time() + FINISH_S
            if not await self._condition.by(
                deadline, lambda: self._finished >= self._epoch_workers.nodes & self._membership.usable
            ):
                missing = ", ".join(sorted(self._epoch_workers.nodes & self._membership.usable - self._finished))
                raise RunError(f"the agents did not all finish within {FINISH_S:.0f} s; missing: {missing}")

        await unless(finished(), self._failures.watch())

    @property
    def lost_nodes(self) -> frozenset[str]:
        """Nodes that cannot be reached."""
        return frozenset(self._membership.lost | self._membership.gone.keys())

    # --- what nodes report ---------------------------------------------------------------------------------------

    def take(self, node: str, report: Report) -> None:
        """Take a report; must be called in the event loop. One of an epoch that never began is passed over."""
        now, said = self._spec.epoch, getattr(report, "epoch", 0)
        if said > now:
            return
        if said == self._epoch_workers.spec.epoch:
            self._epoch_workers.heard.add(node)
        self.flow.take(node, report, asyncio.get_running_loop().time())
        self.profiles.take(node, report)
        match report:
            case Failed(epoch=number, died=True) | Lost(epoch=number) if number != now:
                # A worker of an older epoch: the new one has been given another, or will be.
                return
            case Failed():
                self._fail(Failure(node, report.slot, report.reason, report.log, "died" if report.died else "said"))
            case Lost(slot=slot, peer=peer, reason=reason):
                text = f"the link to slot {peer.slot} of {peer.node} broke: {reason}"
                self._fail(Failure(node, slot, text, kind="lost"))
            case Finished():
                self._finished.add(node)
                self._condition.tell()
            case Progress():
                self._reached.take(report)
                self._bolts.take(report)
            case _:
                if isinstance(report, Stopped | Drained):
                    self._reached.note(report.positions)
                try:
                    self._epoch_workers.take(node, report)
                except RunError as fault:
                    self._fail(Failure(node, getattr(report, "slot", AGENT), str(fault)))

    def gone(self, node: str, reason: str) -> None:
        """The agent of a node is gone; must be called in the event loop."""
        if node in self._membership.gone or node in self._membership.lost:
            return
        self._membership.gone[node] = reason
        self._epoch_workers.nodes.discard(node)
        self._checkpoint_store.forget(node)
        self._fail(Failure(node, AGENT, reason, kind="gone"))
        self._condition.tell()

    def _fail(self, failure: Failure) -> None:
        # Once the answer is complete, what dies has done its work; what a worker complains of counts all the same.
        if not (self._over and failure.mendable):
            self._failures.add(failure)

    # --- epoch after epoch ---------------------------------------------------------------------------------------

    async def _lead(self) -> None:
        while not self._over:
            try:
                await unless(self._epoch(), self._failures.watch())
            except BrokenError as broken:
                await self._break(broken)

    async def _break(self, broken: BrokenError) -> None:
        """Take what is left of an epoch into the next one, when that may begin.

        Raises:
            RunFailedError: there were too many in a row.
        """
        self._broken = self._broken or broken
        # A checkpoint that was completed in this epoch is not the one that it began with.
        self._in_a_row = 1 if self._checkpoint_store.complete > self._spec.restore else self._in_a_row + 1
        if self._in_a_row > MOST_RECOVERIES:
            raise RunFailedError(
                broken.cause, given_up=f"given up after {MOST_RECOVERIES} recoveries without a new checkpoint"
            )
        self._checkpoint_loop.broken(f"the run broke: {broken.cause}")
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._mended_s + PAUSES_S[self._in_a_row - 1] - loop.time())
        self._mended_s = loop.time()
        # What has died by now is mended with the rest; what a process says is still to be told.
        self._failures = self._failures.unmendable()
        until = dict(self._spec.until)
        if self._stop_asked:
            for stopped in self._epoch_workers.stopped.values():
                until |= stopped.positions
        reached = self._reached.positions
        self._spec = replace(
            self._epoch_workers.spec,
            epoch=self._spec.epoch + 1,
            restore=self._checkpoint_store.complete,
            until={name: reached[name] for name in until},
        )

    async def _epoch(self) -> None:
        """From the first message of an epoch to the last answer."""
        if self._broken is not None:
            await self._mend()
        self._membership.returned.clear()
        epoch_workers = self._epoch_workers = EpochWorkers(self._spec, self._environment, self._condition, self.gone)
        await epoch.start(epoch_workers, self._membership.usable, self._course.sensors, self._environment)
        await epoch.connect(epoch_workers)
        if self._start_ns is None:
            self._start_ns = self._now_ns() + LEAD_NS
        await epoch.go(epoch_workers, self._start_ns, self._reached.positions, self._environment)
        self._condition.tell()
        self._note_recovery()
        if epoch_workers.spec.gates is None:
            flowing = self._flow(epoch_workers)
        else:
            clock = SlotClock(epoch_workers, epoch_workers.spec.gates, self._environment.note_slot)
            flowing = unless(self._flow(epoch_workers, clock), clock.run())
        await unless(flowing, watch_reports(epoch_workers, self.gone))
        self.answer = await explained(self._checkpoint_store.keep_last(epoch_workers.spec.epoch, epoch_workers.drained))
        self.positions = self._reached.positions
        self._over = True
        self._failures = self._failures.unmendable()

    async def _flow(self, epoch_workers: EpochWorkers, clock: SlotClock | None = None) -> None:
        """From the start of the sources to the last tuple, and the time slot of that."""
        await self._checkpoint_loop.until_stop(epoch_workers, self._source_start_ns)
        await epoch.drain(epoch_workers, self._reached.positions, lambda: self.flow.worked_off)
        if clock is not None:
            await clock.last()

    async def _mend(self) -> None:
        """Have agents, places and snapshots for the next epoch.

        Raises:
            RunError: there is no placement without the lost nodes.
        """
        if self._checkpoint_loop.barrier > self._checkpoint_store.complete:
            await self._checkpoint_store.discard(self._checkpoint_loop.barrier)
        await self._membership.restart()
        spec = self._spec
        before = {name_of(executor): executor.place for executor in spec.executors}
        places, gates = await self._membership.place_again(Seats(before, spec.gates))
        executors = tuple(replace(executor, place=places[name_of(executor)]) for executor in spec.executors)
        await explained(self._checkpoint_store.spread(places))
        self._spec = replace(
            spec, executors=executors, workers=workers_of(executors), worked=self._bolts.worked, gates=gates
        )

    def _note_recovery(self) -> None:
        if self._broken is None:
            return
        broken, self._broken = self._broken, None
        loop = asyncio.get_running_loop()
        replayed = sum(
            at - self._checkpoint_store.positions.get(name, 0) for name, at in self._reached.positions.items()
        )
        self.event_log.recovery(
            broken.at_s - self._source_start_ns / NS,
            loop.time() - broken.at_s,
            str(broken.cause),
            self._checkpoint_store.complete,
            replayed,
        )

    # --- small things --------------------------------------------------------------------------------------------

    @property
    def _mends(self) -> bool:
        return self._course.checkpoint_s > 0

    @property
    def _source_start_ns(self) -> int:
        if self._start_ns is None:
            raise RuntimeError("the sources have not started yet")
        return self._start_ns

    def _now_ns(self) -> int:
        return round(asyncio.get_running_loop().time() * NS)

    async def _until(self, condition: Callable[[], bool], at_s: float | None = None) -> None:
        """Wait for `condition`, but not beyond `at_s`; raise what ends the run before."""
        await self._condition.by(at_s, lambda: condition() or self._leading.done())
        if self._leading.done() and not condition():
            self._leading.result()

    async def _tell_those_who_hear(self, message: Mark | Sampling | Finish) -> None:
        async def tell(node: str) -> None:
            try:
                await self._environment.tell(node, message)
            except RunError as fault:
                self.gone(node, str(fault))

        await all_of(tell(node) for node in sorted(self._epoch_workers.nodes & self._membership.usable))
