"""One attempt at a run: agents, workers, warm-up, measured interval, drain, verification, collection."""

import asyncio
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence, Set
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from agents.host.facts import gather
from agents.protocol import ExecutorSpec, IdleBaseline, InputFile, RunSpec, workers_of
from agents.protocol.node_folders import component
from agents.trace import AGENT, TraceWriter
from campaign.agenda.machines import machines_of
from campaign.agenda.plan import Placed
from campaign.results.energy_account import account
from campaign.results.hdr_log import LATENCY_LOG, write_latency_log
from campaign.results.idle_baseline import NOT_MEASURED, Idle
from campaign.results.live_file import LiveFile
from campaign.results.recovered_runs import doubt, why_incomplete
from campaign.results.result_store import FAILED, OK
from campaign.results.run_metrics import in_order, measure, verification, verified
from campaign.results.suspect_runs import reasons
from campaign.runner.cpu_settings import RunCpus
from campaign.runner.event_loop import in_daemon_thread
from campaign.runner.host_load import measuring_other_load
from campaign.runner.idle_baseline import measure_idle
from campaign.runner.run_inputs import Conditions, RunInputs
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.coordinator import Coordinator
from controller.coordinator.event_log import CONTROLLER
from controller.coordinator.failures import RunFailedError
from controller.coordinator.interfaces import Assignment, Environment, SlotRecord
from controller.coordinator.live_metrics import LiveMetrics
from controller.coordinator.report_validation import HERE
from controller.host.cleanup_log import CleanupLog
from controller.host.condition import run_watched
from controller.nodes.agents import Agents
from controller.nodes.backend import Backend, Calibrated
from controller.nodes.clock_sync import ClockDifference, ClockSync
from controller.nodes.collect import collect_answer, collect_logs, collect_profiles, collect_traces
from controller.nodes.replicas import FolderReplicas
from inventory.documents import to_plain
from inventory.errors import MillraceError, RunError
from inventory.foreign import printable, printable_all
from workloads.rates import NS
from workloads.workload import Verdict

EPOCH = 1
"""First epoch of a run; every run has agents of its own."""

SLOTS_HELD = 5_000
"""Number of time slots that are buffered before they are written."""


class RunAttempt:
    """One attempt at a run; `record` describes its current state at any time."""

    def __init__(
        self, job: RunInputs, conditions: Conditions, folder: Path, work: Path, live_file: LiveFile, state: CleanupLog
    ) -> None:
        """Prepare the attempt.

        Args:
            job: the run and its inputs.
            conditions: settings of the campaign.
            folder: folder of the run's results, still partial.
            work: folder for the controller's own files during the run.
            live_file: shows stages and live metrics.
            state: log of started agents.
        """
        self._job, self._conditions, self._folder = job, conditions, folder
        self._live_file, self._state = live_file, state
        self._transports = {node: member.transport for node, member in job.members.items()}
        self._traces = work / "traces"
        self._copies = FolderReplicas(work / "copies", self._transports)
        self._supplied: set[str] = set()
        self._stages: dict[str, float] = {}
        self._times: dict[str, Any] = {"created_utc": _utc(), "stages_s": self._stages}
        self._stage, self._stage_since = "", time.monotonic()
        self._nodes: dict[str, Any] = {}
        here = {node for node, member in job.members.items() if member.shared}
        self._machines = machines_of({node: member.address for node, member in job.members.items()}, here)
        shared = {node for machine in self._machines if len(machine.nodes) > 1 for node in machine.nodes}
        self._cpus = RunCpus(job.cpus, self._clocks_of(job.placed), shared)
        self._suspect: list[str] = []
        self._idle: dict[str, Idle] = {}
        self._clock_differences: list[ClockDifference] = []
        self._verdict: Verdict | None = None
        self._measured: dict[str, Any] | None = None
        self._profiles: list[dict[str, Any]] | None = None
        self._calibration: Sequence[Calibrated] = ()

    async def calibrate(self, backend: Backend) -> None:
        """Measure nodes and links before the run.

        Raises:
            RunError: their capacity is below the requested one, and the campaign does not accept that.
        """
        self._enter("calibrating")
        found = await backend.calibrate()
        self._calibration = found.rows
        if found.shortfall and not self._conditions.accepts_shortfall:
            raise RunError(
                f"calibration below the requested capacity: {found.shortfall}; the host is busy or too small "
                "(run anyway with --accept-shortfall)"
            )

    async def run(self) -> dict[str, Any]:
        """Execute the run; return the content of `run.json` with status `ok` or, for a wrong answer, `failed`.

        Raises:
            RunError: the run failed before its end.
            OSError: its results could not be written.
        """
        coordinator = await self._run_topology()
        self._enter("verifying")
        parts = [(part.table, self._copies.path(part.name)) for part in coordinator.answer]
        answer = collect_answer(parts, self._folder / "answer", self._job.application.tables)
        positions = in_order(self._job.application.topology, coordinator.positions)
        self._verdict = await asyncio.to_thread(
            verified, self._job.application.workload, answer, positions, self._job.inputs
        )
        self._enter("collecting")
        traces = self._folder / "traces"
        within_reach = {node: self._transports[node] for node in self._transports if node not in coordinator.lost_nodes}
        await collect_traces(within_reach, self._job.run.name, self._traces, traces)
        await collect_logs(within_reach, self._job.run.name, self._folder / "logs")
        if self._conditions.profile:
            target = self._folder / "profiles"
            self._profiles = await collect_profiles(within_reach, self._job.run.name, coordinator.profiles.of, target)
        offsets = {node: known["clock"]["offset_ns"] for node, known in self._nodes.items()}
        figures = await asyncio.to_thread(measure, traces, self._measured_s, offsets, self._clock_differences)
        seen = await asyncio.to_thread(reasons, traces, [CONTROLLER, *(machine.metered for machine in self._machines)])
        figures["energy"] = await asyncio.to_thread(self._account_energy, traces, offsets)
        await asyncio.to_thread(self._log_latencies, traces, offsets)
        event_log = coordinator.event_log
        end_s = (self._times["measure_end_ns"] - self._times["source_start_ns"]) / NS
        incomplete = await asyncio.to_thread(
            why_incomplete, traces, offsets, figures, event_log.recoveries, coordinator.lost_nodes, end_s
        )
        self._suspect = self._cpus.doubts + seen + doubt(event_log.recoveries, incomplete)
        self._measured = figures | {
            "checkpoints": event_log.checkpoints,
            "incomplete": incomplete,
            "recoveries": event_log.recoveries,
            "moves": event_log.moves,
        }
        if not self._verdict.passed:
            return self.record(FAILED, f"wrong answer: {self._verdict.message}")
        return self.record(OK, "")

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

    def record(self, status: str, reason: str) -> dict[str, Any]:
        """Return the content of `run.json`."""
        run, verdict = self._job.run, self._verdict
        self._leave()
        self._times["ended_utc"] = _utc()
        return {
            "status": status,
            "reason": printable(reason),
            "attempt": self._job.attempt,
            "workload": self._job.application.name,
            "label": run.workload,
            "scheduler": run.scheduler,
            "repetition": run.repetition,
            "seed": run.seed,
            "tier": self._conditions.tier,
            "placement": self._job.placed.answer,
            "not_given": self._job.placed.not_given,
            "gates": self._job.placed.gates,
            "cpu_settings": run.cpu or None,
            "cpu": self._cpus.rows,
            "suspect": printable_all(self._suspect),
            "inputs": [
                {"name": i.name, "sha256": i.sha256, "records": i.records, "origin": i.origin} for i in self._job.inputs
            ],
            "nodes": self._nodes,
            "clocks": [pair._asdict() for pair in self._clock_differences],
            "times": self._times,
            "verification": verification(verdict, self._job.inputs),
            "measured": printable_all(self._measured),
            "profiles": self._profiles,
            "calibration": self._calibration,
        }

    async def _run_topology(self) -> Coordinator:
        """Run the topology, from the start of the first agent to the end of the last one."""
        job, conditions = self._job, self._conditions
        self._enter("starting agents")
        traces = TraceWriter(self._traces, job.run.name, CONTROLLER, AGENT)
        try:
            async with Agents(job.members, conditions.campaign, self._agent_started) as agents:
                course = ControlSettings(conditions.sensors, conditions.checkpoint_s, tuple(job.moves))
                clocks = ClockSync(agents.offset, self._traces, job.run.name)
                if self._cpus.nodes:
                    self._enter("setting CPUs")
                    await self._cpus.set(agents)
                before = await self._meter_idle(agents)
                coordinator = Coordinator(self._spec(agents), self._environment(agents, clocks, traces), course)
                agents.listen(coordinator)
                async with coordinator:
                    await run_watched(self._stream_tuples(coordinator), clocks.run(job.members, coordinator.set_clock))
                    self._note_nodes(agents, clocks)
                    self._enter("finishing")
                    await coordinator.finish()
                after = await self._meter_idle(agents, coordinator.lost_nodes)
                await self._cpus.restore(agents, coordinator.lost_nodes)
                self._idle = {
                    machine.metered: Idle(
                        before.get(machine.metered, NOT_MEASURED), after.get(machine.metered, NOT_MEASURED)
                    )
                    for machine in self._machines
                }
                await asyncio.to_thread(clocks.close)
        finally:
            await asyncio.to_thread(traces.close)
        return coordinator

    async def _meter_idle(self, agents: Agents, lost: Set[str] = frozenset()) -> Mapping[str, IdleBaseline]:
        """Meter the machines while agents run without workers."""
        entry = self._conditions.idle
        if entry is None or not entry.measure_s:
            return {}
        self._enter("metering without workers", entry.settle_s + entry.measure_s)
        return await measure_idle(agents, self._machines, entry, lost)

    async def _stream_tuples(self, coordinator: Coordinator) -> None:
        """Start the workers, warm up, measure and drain."""
        self._enter("starting workers")
        source_start = await coordinator.start()
        self._times |= {"started_utc": _utc(), "source_start_ns": source_start}
        self._enter("warming up", self._conditions.warmup_s, coordinator.live_metrics)
        await coordinator.wait_until(source_start + round(self._conditions.warmup_s * NS))
        over = coordinator.exhausted
        self._times["measure_start_ns"] = begun = await coordinator.mark("measure_start")
        if self._conditions.profile:
            await coordinator.sample_stacks(on=True)
        self._enter("measuring", self._conditions.duration_s, coordinator.live_metrics)
        async with measuring_other_load(self._conditions.processes, coordinator.event_log.host_event):
            await coordinator.wait_until(begun + round(self._conditions.duration_s * NS))
            ended = await coordinator.mark("measure_end")
        # If the input ended in the warm-up, the measured interval is empty, although the marks differ by milliseconds.
        self._times["measure_end_ns"] = begun if over else ended
        if self._conditions.profile:
            await coordinator.sample_stacks(on=False)
        self._enter("draining", None, coordinator.live_metrics)
        self._times["stopped_ns"] = time.monotonic_ns()
        await coordinator.stop()
        self._times["drained_ns"] = time.monotonic_ns()

    def _environment(self, agents: Agents, clocks: ClockSync, traces: TraceWriter) -> Environment:
        def note(kind: str, subject: str, detail: str, value: float | None) -> None:
            traces.add("event", time.monotonic_ns(), kind, subject, printable(detail), value)

        def note_slot(record: SlotRecord) -> None:
            traces.add("slot", time.monotonic_ns(), *record)
            if record.number % SLOTS_HELD == SLOTS_HELD - 1:
                traces.flush()

        async def restart(node: str) -> None:
            self._supplied.discard(node)
            await agents.restart(node)
            await self._cpus.set_again(agents, node)

        async def place(lost: Set[str]) -> Assignment:
            placed = await in_daemon_thread(partial(self._job.place_without, lost))
            await self._cpus.set_clocks(agents, self._clocks_of(placed), lost)
            return Assignment(placed.places, placed.gates)

        return Environment(
            nodes=tuple(self._job.members),
            send=agents.send,
            restart=restart,
            supply=self._supply,
            place=place,
            offset=clocks.current,
            replicas=self._copies,
            note=note,
            note_slot=note_slot,
            tables=self._job.application.tables.keys(),
        )

    def _clocks_of(self, placed: Placed) -> dict[str, int]:
        """Return node -> clock in Hz of a placement."""
        return {node: hz for node, hz in placed.answer.frequencies_hz.items() if node in self._job.members}

    async def _supply(self, node: str) -> None:
        """Copy the prepared inputs to a node unless they are there; they are lost only with its agent."""
        if node not in self._supplied:
            for entry in self._job.inputs:
                moved = partial(self._live_file.send, f"{node}/{entry.path.name}")
                await self._transports[node].put(entry.path, str(HERE.input(entry.path.name)), moved)
            self._supplied.add(node)

    def _enter(self, stage: str, seconds: float | None = None, flow: LiveMetrics | None = None) -> None:
        """Begin a stage and record the duration of the previous one."""
        self._live_file.stage(stage, seconds, flow)
        self._leave()
        self._stage = stage

    def _leave(self) -> None:
        now = time.monotonic()
        if self._stage:
            self._stages[self._stage] = round(now - self._stage_since, 3)
        self._stage, self._stage_since = "", now

    def _agent_started(self, node: str, pid: int) -> None:
        self._state.started(pid, f"agent {node}")

    def _spec(self, agents: Agents) -> RunSpec:
        job = self._job
        places = job.placed.places
        executors = tuple(
            ExecutorSpec(executor.component, executor.index, places[executor.name])
            for executor in job.application.topology.executors
        )
        return RunSpec(
            run=job.run.name,
            epoch=EPOCH,
            workload=job.application.name,
            params=job.application.params,
            topology=to_plain(job.application.topology),
            executors=executors,
            workers=workers_of(executors),
            addresses={node: member.address for node, member in job.members.items()},
            key=secrets.token_hex(32),
            rate=to_plain(job.application.rate),
            seed=job.run.seed,
            inputs=tuple(InputFile(entry.name, entry.path.name, entry.sha256) for entry in job.inputs),
            shared_clock=agents.share_clock,
            gates=job.placed.gates,
        )

    def _note_nodes(self, agents: Agents, clocks: ClockSync) -> None:
        """Record addresses, facts and clocks of nodes; facts of this host are in `campaign.json` and left out."""
        ours = gather()
        for node, facts in agents.facts.items():
            self._nodes[node] = {
                "address": agents.members[node].address,
                "facts": None if facts == ours else facts,
                "clock": clocks.current(node)._asdict(),
            }
        self._clock_differences = clocks.differences()

    def _log_latencies(self, traces: Path, offsets: Mapping[str, int]) -> None:
        start_ns = self._times["source_start_ns"]
        start_utc = datetime.now(UTC) - timedelta(seconds=(time.monotonic_ns() - start_ns) / NS)
        measured_ns = self._times["measure_start_ns"], self._times["measure_end_ns"]
        write_latency_log(traces, self._folder / LATENCY_LOG, start_ns, start_utc, measured_ns, offsets)

    def _account_energy(self, traces: Path, offsets: Mapping[str, int]) -> dict[str, Any] | None:
        if self._conditions.idle is None:
            return None
        return account(traces, self._job.run.name, self._machines, self._idle, offsets)

    @property
    def _measured_s(self) -> float:
        return float(self._times["measure_end_ns"] - self._times["measure_start_ns"]) / NS


def remove_results(folder: Path) -> None:
    """Remove the results of a failed attempt before a retry, except logs."""
    for name in ("traces", "answer", "profiles"):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / LATENCY_LOG).unlink(missing_ok=True)


def _utc() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
