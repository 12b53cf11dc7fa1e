"""Coordinator of a run, from `Start` to `Finished`, over as many epochs as needed.

    epoch 1:  start, connect, go; checkpoints and moves, one barrier at a time; stop, drain; finish
    a failure starts the next epoch: recover, start from the last complete checkpoint, connect, go; ...

The caller only decides when to stop. Recoveries in between are recorded in the event log.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf
from types import TracebackType
from typing import Self

from msgspec.structs import replace

from agents.collected_traces import UnreportedRows
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
    Pulse,
    Report,
    RunSpec,
    Sampling,
    Stopped,
    workers_of,
)
from controller.coordinator.checkpoint_loop import CheckpointLoop, ControlSettings
from controller.coordinator.checkpoint_store import CheckpointStore, Part
from controller.coordinator.epoch_workers import EpochWorkers, WorkerProfiles, executor_name, links_of
from controller.coordinator.event_log import EventLog
from controller.coordinator.failures import EpochBrokenError, Failure, Failures, RecoveryBackoff
from controller.coordinator.interfaces import Assignment, Environment, RunListener
from controller.coordinator.live_metrics import LiveMetrics
from controller.coordinator.node_membership import NodeMembership
from controller.coordinator.online_loop import OnlineLoop, OnlineSettings
from controller.coordinator.reports import ReportedWork
from controller.coordinator.scaling import HaltedError, undo_scaling
from controller.coordinator.time_slot_clock import SlotClock
from controller.coordinator.timeline import Timeline
from controller.host.condition import Condition, run_watched
from inventory.errors import RunError
from inventory.times import NS

FINISH_S, PROFILES_S = 30.0, 15.0
"""Timeouts for agents: to finish, and to write profiles before the run continues without these."""

LEAD_NS = 200_000_000
"""Delay between the `Go` message and the start of the sources, so that the message reaches all nodes first."""


class Coordinator:
    """Coordinator of one run, an asynchronous context manager that cancels its own tasks; the caller ends the nodes.

    Attributes:
        event_log: checkpoints, recoveries and moves.
        live_metrics: current rates and latencies of the topology.
        profiles: sampled stacks of workers.
        positions: spout executor -> records emitted over all epochs, after `stop`.
        answer: all parts of the answer, after `stop`.
    """

    _checkpoint_loop: CheckpointLoop

    def __init__(
        self, spec: RunSpec, environment: Environment, settings: ControlSettings, online: OnlineSettings | None = None
    ) -> None:
        """Prepare the run; pass reports of nodes to `handle_report` and the loss of an agent to `handle_agent_gone`."""
        self._spec, self._environment, self._settings = spec, environment, settings
        self._condition, self.event_log = Condition(), EventLog(environment.note)
        self._checkpoint_store = CheckpointStore(environment.replicas)
        self._listener = RunListener()
        if online is not None:
            self._listener = OnlineLoop(
                online, environment, self.event_log, lambda *what: self._checkpoint_loop.carry(*what), settings.withheld
            )
        self._membership = NodeMembership(
            environment, self.event_log, self._condition, self._listener.changed, settings.withheld
        )
        self._failures, self._reported = Failures(recovers=settings.checkpoint_s > 0), ReportedWork()
        self._epoch_workers = EpochWorkers(spec, environment, self._condition, self._reported, self.handle_agent_gone)
        self.live_metrics, self.profiles = LiveMetrics(links_of(spec)), WorkerProfiles(self._condition)
        common = settings, environment, self._condition, self.event_log, self._checkpoint_store, self._membership
        self._checkpoint_loop = CheckpointLoop(*common, self._reported, self._stop_requested, self._listener)
        self._timeline = Timeline(
            settings.events,
            environment,
            self._membership,
            self.event_log,
            self._listener,
            self._recoverable_spec,
            self._checkpoint_loop.carry,
            drains=online is None,
        )
        self._broken: EpochBrokenError | None = None
        self._restart: HaltedError | None = None
        self._backoff = RecoveryBackoff()
        self._start_ns: int | None = None
        self._stop_ns: int | None = None
        self._over = False
        self._finished: set[str] = set()
        self.positions: Mapping[str, int] = {}
        self.answer: list[Part] = []

    async def __aenter__(self) -> Self:
        watch = run_watched(self._timeline.run(self.start), self._listener.run())
        self._epochs_task = asyncio.create_task(run_watched(self._run_epochs(), watch))
        self._epochs_task.add_done_callback(lambda _: self._condition.notify())
        self._retry_task = asyncio.create_task(self._membership.retry_lost())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in (self._epochs_task, self._retry_task):
            task.cancel()
        await asyncio.gather(self._epochs_task, self._retry_task, return_exceptions=True)

    # --- requests of the caller ----------------------------------------------------------------------------------

    async def start(self) -> int:
        """Wait until sources start; return their start time in nanoseconds on the controller's monotonic clock.

        This method and all below raise:
            RunFailedError: a failure cannot be recovered from, or recovery did not help.
            RunError: a step timed out.
        """
        await self._until(lambda: self._start_ns is not None)
        return self._source_start_ns

    async def wait_until(self, at_ns: int) -> None:
        """Wait until `at_ns` on the controller's monotonic clock, or until the sources are exhausted."""
        await self._until(lambda: self._epoch_workers.all_exhausted, at_ns / NS)

    @property
    def exhausted(self) -> bool:
        """True if all sources have reached the end of a finite input."""
        return self._epoch_workers.all_exhausted

    async def mark(self, kind: str) -> int:
        """Write a mark into all traces; return when it was sent, in ns on the controller's monotonic clock."""
        now_ns = self._now_ns()
        self.event_log.mark(kind)
        marking = Mark(epoch=self._epoch_workers.spec.epoch, kind=kind)
        await self._epoch_workers.send_to(self._membership.usable, marking)
        return now_ns

    async def set_clock(self, node: str, offset_ns: int) -> None:
        """Send a node the offset of its monotonic clock from the controller's.

        Raises:
            RunError: it cannot be reached.
        """
        if node in self._epoch_workers.nodes & self._membership.usable:
            await self._environment.send(node, Clock(epoch=self._epoch_workers.spec.epoch, offset_ns=offset_ns))

    async def sample_stacks(self, on: bool) -> None:
        """Start sampling the stacks of all workers, or stop it and wait up to `PROFILES_S` for `profiles`."""
        sampling = Sampling(epoch=self._epoch_workers.spec.epoch, on=on)
        await self._epoch_workers.send_to(self._membership.usable, sampling)
        if not on:
            deadline, profiled = asyncio.get_running_loop().time() + PROFILES_S, self.profiles.of.keys()
            await self._until(lambda: profiled >= self._epoch_workers.nodes & self._membership.usable, deadline)

    async def stop(self, within_s: float = inf) -> bool:
        """Stop the sources behind what is due by now, and wait until the topology has drained; return whether it has.

        One that has not after `within_s` is given up, without an answer.
        """
        self._stop_ns = self._now_ns()
        self._timeline.stop()
        self._condition.notify()
        await self._listener.stopping()
        await self._until(lambda: self._over, self._stop_ns / NS + within_s)
        if self._over:
            return True
        self._end(self._epoch_workers.spouts)
        self._epochs_task.cancel()
        await asyncio.gather(self._epochs_task, return_exceptions=True)
        return False

    def _end(self, spouts: Collection[str]) -> None:
        """Note the final positions of these sources, and that processes that die from now on have done their work."""
        reached = self._reported.sources.positions
        self.positions = {name: at for name, at in reached.items() if name in spouts}
        self._over = True
        self._failures = self._failures.unrecoverable()

    async def finish(self) -> None:
        """Wait until the workers of all reachable nodes have exited and their trace files are closed."""
        await self._epoch_workers.send_to(self._membership.usable, Finish(epoch=self._epoch_workers.spec.epoch))

        nodes = frozenset(self._epoch_workers.nodes)

        def done() -> frozenset[str]:
            return nodes - (self._epoch_workers.nodes & self._membership.usable - self._finished)

        waiting = self._epoch_workers.wait_for_all(done, nodes, FINISH_S, "the agents did not all finish")
        await run_watched(waiting, self._failures.watch())

    @property
    def unreported(self) -> Sequence[UnreportedRows]:
        """Rows of traces whose work was done again after a recovery."""
        return self._reported.times.unreported

    @property
    def lost_nodes(self) -> frozenset[str]:
        """Nodes that cannot be reached."""
        return frozenset(self._membership.lost | self._membership.gone.keys())

    # --- reports of nodes ----------------------------------------------------------------------------------------

    def handle_report(self, node: str, report: Report) -> None:
        """Handle a report, in the event loop. Reports of an epoch that never started are ignored."""
        current, reported = self._spec.epoch, getattr(report, "epoch", 0)
        if reported > current:
            return
        if reported == self._epoch_workers.spec.epoch:
            self._epoch_workers.heard.add(node)
        if reported == self._epoch_workers.spec.epoch or isinstance(report, Pulse):
            self._listener.reported(node, report)
        self.live_metrics.record(node, report, asyncio.get_running_loop().time())
        self.profiles.record(node, report)
        match report:
            case Failed(epoch=number, died=True) | Lost(epoch=number) if number != current:
                # A worker of an earlier epoch; the current epoch replaces it.
                return
            case Failed():
                self._fail(Failure(node, report.slot, report.reason, report.log, "died" if report.died else "reported"))
            case Lost(slot=slot, peer=peer, reason=reason):
                text = f"the link to slot {peer.index} of {peer.node} broke: {reason}"
                self._fail(Failure(node, slot, text, kind="lost"))
            case Finished():
                self._finished.add(node)
                self._condition.notify()
            case Progress():
                self._reported.record(node, report)
            case _:
                if isinstance(report, Stopped | Drained):
                    self._reported.record_positions(reported, report.positions)
                try:
                    self._epoch_workers.handle_report(node, report)
                except RunError as fault:
                    self._fail(Failure(node, getattr(report, "slot", AGENT), str(fault)))

    def handle_agent_gone(self, node: str, reason: str) -> None:
        """Handle the loss of a node's agent, in the event loop."""
        if node in self._membership.gone or node in self._membership.lost:
            return
        self._membership.gone[node] = reason
        self._epoch_workers.nodes.discard(node)
        self._checkpoint_store.forget(node)
        self._fail(Failure(node, AGENT, reason, kind="gone"))
        self._condition.notify()

    def _fail(self, failure: Failure) -> None:
        # Once the answer is complete, a process that dies has done its work; an error that it reports still counts.
        if not (self._over and failure.recoverable):
            self._failures.add(failure)

    # --- epoch after epoch ---------------------------------------------------------------------------------------

    async def _run_epochs(self) -> None:
        while not self._over:
            try:
                await self._failures.run(self._run_epoch())
            except EpochBrokenError as broken:
                await self._break(broken)
            except HaltedError as restart:
                self._restart = restart
                restart.apply(self._epoch_workers, self._reported)
                self._begin_next_epoch()

    async def _break(self, broken: EpochBrokenError) -> None:
        """Wait until the next epoch may start, and prepare its specification.

        Raises:
            RunFailedError: too many recoveries in a row.
        """
        self._broken = self._broken or broken
        # The count starts again when this epoch has completed a checkpoint of its own.
        self._backoff.count(broken.cause, self._checkpoint_store.complete > self._spec.restore)
        if self._restart is not None and not self._restart.is_finished_by_recovery:
            self._restart = None
        self._checkpoint_loop.broken(f"the run broke: {broken.cause}", self._restart is not None)
        self._listener.broke(str(broken.cause))
        await self._backoff.wait()
        self._begin_next_epoch()

    def _begin_next_epoch(self) -> None:
        """Prepare the specification of the next epoch from that of the last one."""
        # It covers everything that has died so far; errors that a process reported itself are kept.
        self._failures = self._failures.unrecoverable()
        until = set(self._spec.until)
        if self._stop_requested():
            until.update(*(stopped.positions for stopped in self._epoch_workers.stopped.values()))
        spec = self._recoverable_spec()
        if spec is not self._epoch_workers.spec:
            undo_scaling(spec, self._epoch_workers.spec, self._reported)
            until = set(self._reported.sources.positions) if until else until
        reached = self._reported.sources.positions
        self._spec = replace(
            self._checkpoint_store.restoring(spec),
            epoch=self._spec.epoch + 1,
            until={name: reached[name] for name in until},
        )

    async def _run_epoch(self) -> None:
        """Run one epoch, from its first message to the last part of the answer."""
        if self._broken is not None or self._restart is not None:
            await self._recover()
        self._membership.returned.clear()
        epoch_workers = self._epoch_workers = EpochWorkers(
            self._spec, self._environment, self._condition, self._reported, self.handle_agent_gone
        )
        fresh = self._restart is not None and self._restart.fresh
        await epoch_workers.start(self._membership.usable, self._settings.sensors, fresh)
        await epoch_workers.connect()
        if self._start_ns is None:
            self._start_ns = self._now_ns() + LEAD_NS
        nodes = epoch_workers.nodes | {place.node for place in epoch_workers.workers}  # those that have just gone, too
        starts = {node: self._now_ns() + self._environment.offset(node).offset_ns for node in nodes}
        self._reported.times.start_epoch(self._spec.epoch, epoch_workers.spec.workers, starts)
        await epoch_workers.start_sources(self._start_ns, self._reported.counted.positions)
        self._condition.notify()
        self._note_recovery()
        if self._restart is not None:
            self._checkpoint_loop.restarted(self._restart, self._start_ns)
            self._restart = None
        self._listener.epoch_started(epoch_workers.spec, self._start_ns)
        if epoch_workers.spec.gates is None:
            running = self._run_sources(epoch_workers)
        else:
            clock = SlotClock(epoch_workers, epoch_workers.spec.gates, self._environment.note_slot)
            running = run_watched(self._run_sources(epoch_workers, clock), clock.run())
        await run_watched(running, epoch_workers.watch_reports())
        self.answer = await self._checkpoint_store.copy_rest(epoch_workers.spec.epoch, epoch_workers.drained)
        self._end(epoch_workers.spouts)

    async def _run_sources(self, epoch_workers: EpochWorkers, clock: SlotClock | None = None) -> None:
        """Wait from the start of the sources to the last tuple, and to the end of its time slot."""
        await self._checkpoint_loop.run_until_stop(epoch_workers, self._source_start_ns)
        stopped_ns = self._now_ns() if self._stop_ns is None else self._stop_ns
        await epoch_workers.drain(stopped_ns - self._source_start_ns, self._reported.sources.positions)
        if clock is not None:
            await clock.wait_for_last()

    async def _recover(self) -> None:
        """Provide agents, slots and snapshots for the next epoch.

        Raises:
            RunError: there is no placement without the lost nodes.
        """
        if self._checkpoint_loop.unfinished:
            await self._checkpoint_store.discard(self._checkpoint_loop.unfinished)
            self._checkpoint_loop.unfinished = 0
        await self._membership.restart()
        spec = self._spec
        before = {executor_name(executor): executor.place for executor in spec.executors}
        places, gates = await self._membership.reassign(Assignment(before, spec.gates), await self._listener.traffic())
        executors = tuple(replace(executor, place=places[executor_name(executor)]) for executor in spec.executors)
        await self._checkpoint_store.distribute(places, spec.stored)
        self._reported.hold(spec.epoch - 1)
        self._spec = replace(
            spec, executors=executors, workers=workers_of(executors), worked=self._reported.bolts.worked, gates=gates
        )

    def _note_recovery(self) -> None:
        if self._broken is None:
            return
        broken, self._broken = self._broken, None
        replayed = self._checkpoint_store.emitted_since(self._reported.sources.positions)
        at_s, took_s = broken.at_s - self._source_start_ns / NS, asyncio.get_running_loop().time() - broken.at_s
        self.event_log.recovery(at_s, took_s, str(broken.cause), self._checkpoint_store.complete, replayed)

    # --- helpers -------------------------------------------------------------------------------------------------

    @property
    def _source_start_ns(self) -> int:
        if self._start_ns is None:
            raise RuntimeError("the sources have not started yet")
        return self._start_ns

    def _stop_requested(self) -> bool:
        return self._stop_ns is not None

    def _recoverable_spec(self) -> RunSpec:
        """Return what a recovery from the current epoch starts."""
        return self._checkpoint_loop.recoverable(self._epoch_workers.spec)

    def _now_ns(self) -> int:
        return round(asyncio.get_running_loop().time() * NS)

    async def _until(self, condition: Callable[[], bool], at_s: float | None = None) -> None:
        """Wait for `condition` until `at_s` at the latest; raise the error that ended the run before."""
        await self._condition.wait_until(at_s, lambda: condition() or self._epochs_task.done())
        if self._epochs_task.done() and not condition():
            self._epochs_task.result()
