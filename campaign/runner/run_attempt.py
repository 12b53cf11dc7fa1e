"""One attempt at a run: agents, workers, warm-up, measured interval, drain, verification, collection."""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import UTC, datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from agents.host.facts import gather
from agents.protocol import ExecutorSpec, IdleBaseline, InputFile, RunSpec, workers_of
from agents.protocol.node_folders import component
from agents.trace import AGENT, CONTROLLER, TraceWriter
from analysis.measure.energy_account import NOT_MEASURED, Idle, account
from analysis.measure.revision_cost import COST_WINDOW_S, with_costs
from analysis.measure.run_metrics import measure
from analysis.records.accounts import Energy
from analysis.records.conditions import Calibrated, InputRecord, ProfileRecord
from analysis.records.file_types import (
    FAILED,
    INCOMPLETE,
    OK,
    ClockDifference,
    ClockRecord,
    Measured,
    NodeRecord,
    RevisionRecord,
    RunRecord,
    RunStatus,
    TimelineRecord,
    Times,
    Verification,
)
from analysis.records.interval_metrics import Draining
from analysis.statistics.transient import LiveTransient
from campaign.results.hdr_log import LATENCY_LOG, write_latency_log
from campaign.results.live_file import DRAINING, LiveFile
from campaign.results.suspect_runs import (
    checked_timeline,
    doubts_from_events,
    doubts_from_recoveries,
    why_incomplete,
    why_unfinished,
)
from campaign.runner.background import IdleMeters, measure_baselines, measuring_other_load
from campaign.runner.run_environment import CampaignConditions, RunEnvironment, RunInputs
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.coordinator import Coordinator
from controller.coordinator.event_log import EventLog
from controller.coordinator.failures import RunFailedError
from controller.coordinator.live_metrics import LiveMetrics
from controller.coordinator.scripted_events import withheld_nodes
from controller.host.condition import run_watched
from controller.host.ownership import CleanupLog
from controller.nodes.agents import Agents, ClockSync, KeptAgents
from controller.nodes.backend import Backend
from controller.nodes.transport import FolderReplicas, collect_answer, collect_logs, collect_profiles, collect_traces
from inventory.cluster import machines_of
from inventory.documents import to_plain
from inventory.errors import MillraceError, RunError
from inventory.foreign import printable
from inventory.times import NS, utc_stamp
from workloads.key_groups import first_ownership
from workloads.scaling import resized, sizes_of
from workloads.workload import PreparedInput, Verdict, source_positions, verified

EPOCH = 1
"""First epoch of every run."""


class MeasuredInterval(NamedTuple):
    """Start of the sources, and the measured interval, on the controller's monotonic clock."""

    source_start_ns: int
    start_ns: int
    end_ns: int


class RunAttempt:
    """One attempt at a run; `record` describes its current state at any time."""

    def __init__(
        self,
        job: RunInputs,
        conditions: CampaignConditions,
        folder: Path,
        work: Path,
        live_file: LiveFile,
        state: CleanupLog,
        check_facts: Callable[[Mapping[str, Mapping[str, Any]]], None],
        kept: KeptAgents | None = None,
    ) -> None:
        """Prepare the attempt.

        Args:
            job: the run and its inputs.
            conditions: settings of the campaign.
            folder: folder of the run's results, still partial.
            work: folder for the controller's own files during the run.
            live_file: shows stages and live metrics.
            state: log of started agents.
            check_facts: called with the facts of all nodes before the sources start.
            kept: agents that runs of the campaign take over from each other; None: the run has agents of its own.
        """
        self._check_facts, self._kept = check_facts, kept
        self._job, self._conditions, self._folder = job, conditions, folder
        self._live_file, self._state = live_file, state
        self._transports = {node: member.transport for node, member in job.members.items()}
        self._traces = work / "traces"
        self._copies = FolderReplicas(work / "copies", self._transports)
        self._stages: dict[str, float] = {}
        self._times = Times(created_utc=utc_stamp(), stages_s=self._stages)
        self._interval = MeasuredInterval(0, 0, 0)
        self._stage, self._stage_since = "", time.monotonic()
        self._nodes: dict[str, NodeRecord] = {}
        here = {node for node, member in job.members.items() if member.shared}
        self._machines = machines_of({node: member.address for node, member in job.members.items()}, here)
        shared = {node for machine in self._machines if len(machine.nodes) > 1 for node in machine.nodes}
        self._environment = RunEnvironment(job, self._copies, live_file, shared)
        self._cpus = self._environment.cpus
        self._suspect: list[str] = []
        self._timeline: Sequence[TimelineRecord] = ()
        self._idle: dict[str, Idle] = {}
        self._clock_differences: list[ClockDifference] = []
        self._verdict: Verdict | None = None
        self._measured: Measured | None = None
        self._drained = False
        self._left = Draining(rows=0)
        self._event_log: EventLog | None = None
        self._profiles: list[ProfileRecord] | None = None
        self._calibration: Sequence[Calibrated] = ()

    async def calibrate(self, backend: Backend) -> None:
        """Measure nodes and links before the run.

        Raises:
            RunError: their capacity is below the requested one, and the campaign does not accept that.
        """
        self._enter("calibrating")
        calibration = await backend.calibrate()
        self._calibration = calibration.rows
        if not calibration.shortfall:
            return
        shortfall = f"calibration below the requested capacity: {calibration.shortfall}"
        if not self._conditions.accepts_shortfall:
            raise RunError(f"{shortfall}; the host is busy or too small (run anyway with --accept-shortfall)")
        self._suspect.append(f"{shortfall} (--accept-shortfall)")

    async def run(self) -> RunRecord:
        """Execute the run; return its record: `ok`, `incomplete`, or `failed` with a wrong answer.

        Raises:
            RunError: the run failed before its end.
            OSError: its results could not be written.
        """
        coordinator = await self._run_topology()
        if self._drained:
            await self._verify(coordinator)
        return await self._collect(coordinator)

    async def _verify(self, coordinator: Coordinator) -> None:
        """Compare the answer with the reference."""
        self._enter("verifying")
        parts = [(part.table, self._copies.path(part.name)) for part in coordinator.answer]
        answer = collect_answer(parts, self._folder / "answer", self._job.application.tables)
        topology = resized(self._job.application.topology, sizes_of(coordinator.positions))
        positions = source_positions(topology, coordinator.positions)
        workload, inputs = self._job.application.workload, self._job.inputs
        self._verdict = await asyncio.to_thread(verified, workload, answer, positions, inputs)

    async def _collect(self, coordinator: Coordinator) -> RunRecord:
        """Collect traces and logs, and compute the metrics; return the record."""
        self._enter("collecting")
        traces = self._folder / "traces"
        within_reach = {node: self._transports[node] for node in self._transports if node not in coordinator.lost_nodes}
        await collect_traces(within_reach, self._job.run.name, self._traces, traces, coordinator.unreported)
        await collect_logs(within_reach, self._job.run.name, self._folder / "logs")
        if self._conditions.profile:
            target = self._folder / "profiles"
            self._profiles = await collect_profiles(within_reach, self._job.run.name, coordinator.profiles.of, target)
        offsets = {node: known.clock.offset_ns for node, known in self._nodes.items()}
        start_ns = self._interval.source_start_ns
        self._suspect += self._cpus.doubts
        figures = await self._figures(traces, offsets)
        event_log = coordinator.event_log
        end_s = (self._interval.end_ns - start_ns) / NS
        incomplete = await asyncio.to_thread(
            why_incomplete, traces, offsets, figures, event_log.recoveries, coordinator.lost_nodes, end_s
        )
        stopped_s = ((self._times.stopped_ns or 0) - start_ns) / NS
        edges_s = self._conditions.edges_s(self._job.application.rate, stopped_s)
        self._timeline = checked_timeline(event_log.timeline, edges_s)
        self._suspect += doubts_from_recoveries(event_log.recoveries, incomplete)
        self._suspect += [event.doubt for event in self._timeline if event.doubt]
        if self._job.online is not None and not event_log.questions:
            self._suspect.append(f"the online scheduler {self._job.online.scheduler} was never asked")
        known = event_log.added_to(replace(figures, incomplete=incomplete))
        window_s = self._job.online.revision.cost_window_s if self._job.online else COST_WINDOW_S
        known = await asyncio.to_thread(with_costs, known, traces, self._machines, offsets, start_ns, end_s, window_s)
        self._measured = known.with_printable_text()
        if self._verdict is not None and not self._verdict.passed:
            return self.record(FAILED, f"wrong answer: {self._verdict.message}")
        reason = why_unfinished(self._left, self._drained, self._conditions.drain_s)
        return self.record(INCOMPLETE if reason else OK, reason)

    async def _figures(self, traces: Path, offsets: Mapping[str, int]) -> Measured:
        """Compute the metrics with energy, note what makes them doubtful, and write the log of latencies.

        Args:
            traces: folder of `<table>.parquet`.
            offsets: see `analysis.measure.run_metrics.measure`.
        """
        seconds = (self._interval.end_ns - self._interval.start_ns) / NS
        windows = self._conditions.windows_of(self._job.application.rate)
        figures = await asyncio.to_thread(measure, traces, seconds, offsets, self._clock_differences, windows)
        metered = [CONTROLLER, *(machine.metered for machine in self._machines)]
        self._suspect += await asyncio.to_thread(doubts_from_events, traces, metered)
        energy = await asyncio.to_thread(self._account_energy, traces, offsets)
        await asyncio.to_thread(self._log_latencies, traces, self._interval.source_start_ns, offsets)
        return replace(figures, energy=energy)

    async def keep_logs(self, fault: MillraceError) -> str:
        """Copy the logs of a failed attempt; return the path of the log of the failure within the run's folder."""
        target = self._folder / "logs" / f"attempt-{self._job.attempt}"
        await collect_logs(self._transports, self._job.run.name, target)
        failure = fault.failure if isinstance(fault, RunFailedError) else None
        if failure is None or not failure.log:
            return str(target.relative_to(self._folder))
        try:
            log = target / failure.node / component(Path(failure.log).name)
        except RunError:
            log = target
        return str((log if log.is_file() else target).relative_to(self._folder))

    def record(self, status: RunStatus, reason: str) -> RunRecord:
        """Return the record of the attempt so far."""
        run, verdict = self._job.run, self._verdict
        self._leave()
        if self._measured is None and self._event_log is not None:
            self._timeline = self._event_log.timeline
        self._times = replace(self._times, ended_utc=utc_stamp())
        return RunRecord(
            status=status,
            reason=printable(reason),
            attempt=self._job.attempt,
            workload=self._job.application.name,
            label=run.workload,
            scheduler=run.scheduler,
            scheduler_name=self._job.scheduler,
            repetition=run.repetition,
            seed=run.seed,
            tier=self._conditions.tier,
            placement=to_plain(self._job.placed.answer),
            not_given=self._job.placed.not_given,
            traffic=self._job.placed.traffic,
            gates=to_plain(self._job.placed.gates),
            cpu_settings=run.cpu or None,
            factors=dict(run.factors),
            cpu=self._cpus.rows,
            suspect=[printable(reason) for reason in (*self._conditions.doubts, *self._suspect)],
            inputs=[
                InputRecord(name=i.name, sha256=i.sha256, records=i.records, origin=i.origin) for i in self._job.inputs
            ],
            nodes=self._nodes,
            timeline=[replace(event, reason=printable(event.reason)) for event in self._timeline],
            clocks=self._clock_differences,
            times=self._times,
            verification=_verification(verdict, self._job.inputs),
            measured=self._measured,
            revisions=self._unmeasured_revisions(),
            profiles=self._profiles,
            calibration=self._calibration,
            load=self._job.load,
            linger_ms=self._conditions.linger_ms,
            left=self._left if status == INCOMPLETE else None,
        )

    def _unmeasured_revisions(self) -> Sequence[RevisionRecord]:
        """Return the decisions of a run that ended before its metrics were computed, with printable text."""
        if self._measured is not None or self._event_log is None:
            return ()
        return Measured(revisions=self._event_log.revisions).with_printable_text().revisions

    async def _run_topology(self) -> Coordinator:
        """Run the topology, from the start of the first agent to the end of the last one."""
        job, conditions = self._job, self._conditions
        self._enter("starting agents")
        traces = TraceWriter(self._traces, job.run.name, CONTROLLER, AGENT)
        try:
            async with Agents(job.members, conditions.campaign, self._agent_started, self._kept) as agents:
                course = ControlSettings(
                    conditions.sensors,
                    conditions.checkpoint_s,
                    tuple(job.events),
                    withheld_nodes(job.events),
                    self._environment.restart,
                )
                self._check_facts(agents.facts)
                clocks = ClockSync(agents.offset, self._traces, job.run.name)
                if self._cpus.nodes:
                    self._enter("setting CPUs")
                    await self._cpus.set(agents)
                before = await self._meter_idle(agents)
                environment = self._environment.make(agents, clocks, traces)
                online = self._environment.online(conditions, self._folder)
                coordinator = Coordinator(self._spec(agents), environment, course, online)
                self._event_log = coordinator.event_log
                self._live_file.follow(coordinator.event_log)
                agents.listen(coordinator)
                async with coordinator:
                    await run_watched(self._stream_tuples(coordinator), clocks.run(job.members, coordinator.set_clock))
                    self._note_nodes(agents, clocks)
                    self._enter("finishing")
                    await coordinator.finish()
                after = await self._meter_idle(agents, coordinator.lost_nodes)
                await self._cpus.restore(agents, coordinator.lost_nodes)
                self._note_idle(before, after)
                await asyncio.to_thread(clocks.close)
        finally:
            await asyncio.to_thread(traces.close)
        return coordinator

    async def _meter_idle(self, agents: IdleMeters, lost: Set[str] = frozenset()) -> Mapping[str, IdleBaseline]:
        """Meter the machines while agents run without workers; return metered node -> its baseline."""
        entry = self._conditions.idle
        if entry is None or not entry.measure_s:
            return {}
        self._enter("metering without workers", entry.settle_s + entry.measure_s)
        return await measure_baselines(agents, self._machines, entry, lost)

    def _note_idle(self, before: Mapping[str, IdleBaseline], after: Mapping[str, IdleBaseline]) -> None:
        """Keep the baselines before and after the run."""
        nodes = [machine.metered for machine in self._machines]
        self._idle = {node: Idle(before.get(node, NOT_MEASURED), after.get(node, NOT_MEASURED)) for node in nodes}

    async def _stream_tuples(self, coordinator: Coordinator) -> None:
        """Start the workers, warm up, measure and drain."""
        self._enter("starting workers")
        source_start = await coordinator.start()
        self._times = replace(self._times, started_utc=utc_stamp(), source_start_ns=source_start)
        self._enter("warming up", self._conditions.warmup_s, coordinator.live_metrics)
        await self._warm_up(coordinator, source_start)
        over = coordinator.exhausted
        begun = await coordinator.mark("measure_start")
        self._times = replace(self._times, measure_start_ns=begun)
        if self._conditions.profile:
            await coordinator.sample_stacks(on=True)
        self._enter("measuring", self._conditions.duration_s, coordinator.live_metrics)
        async with measuring_other_load(self._conditions.processes, coordinator.event_log.host_event):
            await coordinator.wait_until(begun + round(self._conditions.duration_s * NS))
            ended = await coordinator.mark("measure_end")
        # If the input ended in the warm-up, the measured interval is empty, although the marks differ by milliseconds.
        self._interval = MeasuredInterval(source_start, begun, begun if over else ended)
        self._times = replace(self._times, measure_end_ns=self._interval.end_ns)
        if self._conditions.profile:
            await coordinator.sample_stacks(on=False)
        self._enter(DRAINING, None, coordinator.live_metrics)
        self._times = replace(self._times, stopped_ns=time.monotonic_ns())
        self._drained = await coordinator.stop(self._conditions.drain_s)
        self._left = coordinator.live_metrics.left(time.monotonic())
        if self._drained:
            self._times = replace(self._times, drained_ns=time.monotonic_ns())

    async def _warm_up(self, coordinator: Coordinator, source_start: int) -> None:
        """Wait for the end of the warm-up: for the agenda's time, or for the end of the transient."""
        limit_s = self._conditions.warmup_s
        if self._conditions.adapts_warmup:
            transient = LiveTransient()
            for second in range(1, ceil(limit_s)):
                await coordinator.wait_until(source_start + second * NS)
                transient.add(second, *coordinator.live_metrics.sample(time.monotonic()))
                if coordinator.exhausted:
                    return
                if transient.end_s is not None:
                    self._times = replace(self._times, transient_s=transient.end_s)
                    return
            self._suspect.append(f"its transient had not ended after {limit_s:g} s (warmup_limit_s)")
        await coordinator.wait_until(source_start + round(limit_s * NS))

    def _enter(self, stage: str, seconds: float | None = None, flow: LiveMetrics | None = None) -> None:
        """Begin a stage and record the duration of the previous one."""
        self._live_file.stage(stage, seconds, flow)
        self._leave()
        self._stage = stage

    def _leave(self) -> None:
        now = time.monotonic()
        if self._stage:
            # Machines are metered before the run and after it, in a stage of the same name.
            before_s = self._stages.get(self._stage, 0.0)
            self._stages[self._stage] = round(before_s + now - self._stage_since, 3)
        self._stage, self._stage_since = "", now

    def _agent_started(self, node: str, pid: int) -> None:
        self._state.started(pid, f"agent {node}")

    def _spec(self, agents: Agents) -> RunSpec:
        job, linger_ms = self._job, self._conditions.linger_ms
        topology, places = job.application.running, job.application.running_places(job.placed.places)
        executors = tuple(
            ExecutorSpec(executor.component, executor.index, places[executor.name]) for executor in topology.executors
        )
        return RunSpec(
            run=job.run.name,
            epoch=EPOCH,
            workload=job.application.name,
            params=job.application.params,
            topology=to_plain(topology),
            executors=executors,
            workers=workers_of(executors),
            owners=first_ownership(topology.keyed),
            addresses={node: member.address for node, member in job.members.items()},
            key=secrets.token_hex(32),
            rate=to_plain(job.application.rate),
            seed=job.run.seed,
            inputs=tuple(InputFile(entry.name, entry.path.name, entry.sha256) for entry in job.inputs),
            shared_clock=agents.share_clock,
            gates=job.placed.gates,
            observed=job.online is not None,
            buffer_bytes=self._conditions.buffer_bytes,
            linger_us=None if isinstance(linger_ms, str) else round(linger_ms * 1_000),
            columns=job.application.columns,
        )

    def _note_nodes(self, agents: Agents, clocks: ClockSync) -> None:
        """Record addresses, facts and clocks of nodes; facts of this host are in `campaign.json` and left out."""
        ours = gather()
        for node, facts in agents.facts.items():
            self._nodes[node] = NodeRecord(
                address=agents.members[node].address,
                facts=None if facts == ours else facts,
                clock=ClockRecord(*clocks.current(node)),
                agent_replaced=agents.replaced.get(node, ""),
            )
        self._clock_differences = clocks.differences()

    def _log_latencies(self, traces: Path, start_ns: int, offsets: Mapping[str, int]) -> None:
        start_utc = datetime.now(UTC) - timedelta(seconds=(time.monotonic_ns() - start_ns) / NS)
        write_latency_log(traces, self._folder / LATENCY_LOG, start_ns, start_utc, self._interval[1:], offsets)

    def _account_energy(self, traces: Path, offsets: Mapping[str, int]) -> Energy | None:
        if self._conditions.idle is None:
            return None
        return account(traces, self._job.run.name, self._machines, self._idle, offsets)


QUARANTINED = ("malformed", "outlier", "out_of_order")
"""Classes of rows that are left out of prepared inputs."""


def _verification(verdict: Verdict | None, inputs: Sequence[PreparedInput]) -> Verification:
    """Return the block `verification` of `run.json`; without a verdict the answer was not compared."""
    return Verification(
        status="none" if verdict is None else "passed" if verdict.passed else "failed",
        checked=None if verdict is None else verdict.checked,
        message="" if verdict is None else printable(verdict.message),
        quarantined={kind: sum(entry.quarantined.get(kind, 0) for entry in inputs) for kind in QUARANTINED},
    )
