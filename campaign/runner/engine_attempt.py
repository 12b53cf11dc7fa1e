"""One attempt at a run on another engine: its processes, warm-up, measured interval, drain, verification, traces."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
from msgspec.structs import replace

from agents.agent.run_sensors import RunSensors
from agents.collected_traces import collect
from agents.host.facts import gather
from agents.protocol import VERSION, Slot, Welcome
from agents.protocol.node_folders import copy_logs
from agents.sensors.interference import Event
from agents.sensors.sampler import LONGEST_WAIT_S
from agents.trace import AGENT, CONTROLLER, TraceWriter
from agents.worker.process.answer_files import Fields
from analysis.measure.revision_cost import with_costs
from analysis.records.file_types import (
    FAILED,
    INCOMPLETE,
    OK,
    ClockRecord,
    EngineRecord,
    Measured,
    NodeRecord,
    RunRecord,
    RunStatus,
)
from campaign.agenda.engine import TEXTS, program_of
from campaign.results.suspect_runs import why_unfinished
from campaign.runner.background import measuring_other_load
from campaign.runner.event_loop import in_daemon_thread
from campaign.runner.run_attempt import MeasuredInterval, RunAttempt
from controller.nodes.local_nodes import LocalNode, LocalNodes
from engines.conducting import DrainedRun, RunTimes, conduct, write_due
from engines.job import INPUTS, LOGS, REPORTS, EngineJob
from engines.limits import RunLimits
from engines.placed_processes import PlacedProcesses
from engines.reports import Reports, read_answer
from engines.selection import ENGINES, ready, release_of
from inventory.errors import MillraceError
from inventory.times import NS, utc_stamp
from scheduler.problem import Placement
from scheduler.toolkit.cost import Cost, cost
from workloads.apps import exclamation, wordcount_operators
from workloads.arrays import stream_schema
from workloads.data.row_digest import digest_of
from workloads.operators import Row
from workloads.topology import ACKER, Topology
from workloads.workload import Answer, verified

ENGINE_FOLDER = "engine"
"""Folder of an engine's files, in the controller's folder of the run."""

NETWORK = "network"
"""Sensor that is left out where nodes are addresses of this host: they share one network, which is not the host's."""

POWER = "power"
"""Sensor that is left out on nodes whose machine is metered by another node."""


class EngineAttempt(RunAttempt):
    """A `RunAttempt` on another engine than Millrace's agents."""

    _engine: EngineRecord | None = None

    def use(
        self,
        name: str,
        options: Mapping[str, bool | int | float | str],
        work: Path,
        cluster: LocalNodes | None,
        master: str,
    ) -> None:
        """Set the engine.

        Args:
            name: its name.
            options: its own settings.
            work: folder for its files.
            cluster: nodes made of namespaces.
            master: address of this host on which machines of their own reach it; empty if nodes are none.
        """
        self._name, self._options, self._engine_folder = name, options, work / ENGINE_FOLDER
        self._cluster, self._master = cluster, master
        self._trace_folders: Sequence[Path] = ()
        self._host_events: list[Event] = []
        self._namespaces: Mapping[str, LocalNode] = {} if cluster is None else cluster.nodes

    async def run(self) -> RunRecord:
        self._enter("preparing the engine")
        engine, programs = await in_daemon_thread(partial(ready, self._name))
        job = await asyncio.to_thread(self._make_job)
        self._engine = EngineRecord(name=self._name, release=release_of(engine))
        reports = Reports(job.folder / REPORTS, self._job.run.name, job.topology, self._traces)
        self._enter("starting agents")
        limits = RunLimits(self._cluster, {slot.node for slot in job.workers})
        try:
            async with limits, ENGINES[self._name].processes(job, engine, programs) as processes:
                before = await self._meter_idle(processes)
                self._enter(f"starting {ENGINES[self._name].title}")
                await processes.place()
                outcome = await self._conduct(job, processes, reports, limits)
                self._note(outcome, processes)
                await processes.end()
                self._note_idle(before, await self._meter_idle(processes))
            self._trace_folders = processes.traces
        finally:
            self._engine = replace(self._engine, quotas=limits.quotas)
            await asyncio.to_thread(reports.close)
        return await self._measure(job, outcome)

    async def keep_logs(self, fault: MillraceError) -> str:
        target = self._folder / "logs" / f"attempt-{self._job.attempt}"
        await asyncio.to_thread(copy_logs, self._engine_folder / LOGS, target)
        return str(target.relative_to(self._folder))

    def record(self, status: RunStatus, reason: str) -> RunRecord:
        return replace(super().record(status, reason), engine=self._engine)

    def _make_job(self) -> EngineJob:
        """Write the files of the run, and return it."""
        run, application = self._job.run, self._job.application
        self._engine_folder.mkdir(parents=True)
        due = self._engine_folder / "due"
        seconds = self._conditions.warmup_s + self._conditions.duration_s
        write_due(application.rate.schedule(run.seed), seconds, due)
        program = program_of(self._name, application)
        topology = program.topology if application.acks else without_ackers(program.topology)
        inputs = self._engine_folder / INPUTS
        inputs.mkdir()
        for entry in self._job.inputs:
            (inputs / entry.path.name).symlink_to(entry.path)
        text = {entry.name: f"{INPUTS}/{entry.path.name}" for entry in self._job.inputs}
        job = EngineJob(
            run=run.name,
            program=program.name,
            topology=topology,
            places={executor.name: self._job.placed.places[executor.name] for executor in topology.executors},
            addresses={node: member.address for node, member in self._job.members.items()},
            folder=self._engine_folder,
            settings={**text, **program.settings, "due": due.name, "seed": run.seed},
            options=self._options,
            nodes=self._namespaces,
            controller=None if self._cluster is None else self._cluster.controller,
            machines=self._job.members if self._master else {},
            master=self._master if self._cluster is None else self._cluster.controller.address,
            sensors=self._conditions.sensors,
            campaign=self._conditions.campaign,
            on_start=self._agent_started,
        )
        job.write_properties()
        return job

    async def _conduct(
        self, job: EngineJob, processes: PlacedProcesses, reports: Reports, limits: RunLimits
    ) -> DrainedRun:
        """Run the topology while the sensors measure the nodes."""
        sensors: dict[str, RunSensors] = {}
        try:
            for node in () if job.machines else self._job.members:
                sensors[node] = await asyncio.to_thread(self._start_sensors, node, processes, reports)
            conditions, measured = self._conditions, self._measuring([*sensors.values()])
            seconds = conditions.warmup_s, conditions.duration_s, conditions.drain_s
            return await conduct(job, processes, reports, limits, measured, *seconds, self._enter)
        except BaseException:
            for each in sensors.values():
                each.give_up()
            raise
        finally:
            stopped = await asyncio.gather(*(asyncio.to_thread(s.stop, LONGEST_WAIT_S) for s in sensors.values()))
            for node, sampled in zip(sensors, stopped, strict=True):
                if not sampled:
                    self._suspect.append(f"a sensor does not return: the last samples of {node} are missing")

    @asynccontextmanager
    async def _measuring(self, sensors: Sequence[RunSensors]) -> AsyncIterator[None]:
        """Have the sensors of this host mark the measured interval, and measure what else runs here in it."""
        async with measuring_other_load(self._conditions.processes, self._host_events.append):
            for each in sensors:
                each.mark("measure_start")
            yield
            for each in sensors:
                each.mark("measure_end")

    def _start_sensors(self, node: str, processes: PlacedProcesses, reports: Reports) -> RunSensors:
        """Start the sensors of a node, all of whose processes are on this host."""
        known_pids: dict[int, int] = {}

        def workers() -> Mapping[int, int]:
            for slot, pid in reports.pids.items():
                if slot.node == node and slot.index not in known_pids:
                    known_pids[slot.index] = processes.host_pid(pid) or 0
            return {slot: pid for slot, pid in known_pids.items() if pid}

        member, there = self._job.members[node], self._namespaces.get(node)
        lacking = set() if there else {NETWORK}
        if node not in {machine.metered for machine in self._machines}:
            lacking.add(POWER)
        return RunSensors(
            [name for name in self._conditions.sensors if name not in lacking],
            Welcome(
                version=VERSION,
                node=node,
                address=member.address,
                folder=str(self._engine_folder),
                power=member.power,
                meter_lag=member.meter_lag,
                shared=member.shared,
            ),
            self._job.run.name,
            self._traces,
            processes.daemons.get(node),
            workers,
            lambda: (),
            self._suspect.append,
            root=there.root if there else Path("/"),
        )

    def _note(self, outcome: DrainedRun, processes: PlacedProcesses) -> None:
        """Record the times of a run, its places and its nodes."""
        times, self._left = outcome.times, outcome.left
        self._interval = MeasuredInterval(times.start_ns, times.measure_start_ns, times.measure_end_ns)
        started = datetime.now(UTC) - timedelta(seconds=(time.monotonic_ns() - times.start_ns) / NS)
        self._times = replace(
            self._times,
            started_utc=utc_stamp(at=started),
            source_start_ns=times.start_ns,
            measure_start_ns=times.measure_start_ns,
            measure_end_ns=times.measure_end_ns,
            stopped_ns=times.stop_ns,
            drained_ns=times.drained_ns if outcome.drained else None,
        )
        places = {name: f"{slot.node}/{slot.index}" for name, slot in outcome.places.items()}
        assert self._engine is not None  # noqa: S101 # it has run
        self._engine = replace(self._engine, places=places, cost=self._cost(outcome.places))
        facts, clocks, ours = processes.facts, processes.clocks, gather()
        for node in self._job.members:
            # Nodes that are no machines of their own are this host, with one clock.
            self._nodes[node] = NodeRecord(
                address=self._job.members[node].address,
                facts=None if facts.get(node, ours) == ours else facts[node],
                clock=ClockRecord(0, 0) if clocks is None else ClockRecord(*clocks.current(node)),
            )
        self._clock_differences = [] if clocks is None else clocks.differences()

    def _cost(self, places: Mapping[str, Slot]) -> Cost:
        """Return the cost of the places that executors had, by what the scheduler was given."""
        problem = self._job.problem
        (topology,) = problem.topologies
        assignments = {topology.executor_named[name]: slot for name, slot in places.items()}
        return cost(problem, {topology.id: Placement(assignments)})

    async def _measure(self, job: EngineJob, outcome: DrainedRun) -> RunRecord:
        """Compare the answer, collect traces and logs, and compute the metrics."""
        # Replayed rows have no answer, but a row that is lost fails every run.
        if job.program in TEXTS and outcome.drained:
            self._enter("verifying")
            workload, inputs, tables = self._job.application.workload, self._job.inputs, self._job.application.tables
            answer = answer_of(job.program, read_answer(outcome.answers))
            write_answer(answer, tables, self._folder / "answer")
            self._verdict = await asyncio.to_thread(verified, workload, answer, [*outcome.positions.values()], inputs)
        self._enter("collecting")
        traces = self._folder / "traces"
        self._write_marks(outcome.times)
        await asyncio.to_thread(collect, [*self._trace_folders, self._traces], traces)
        await asyncio.to_thread(copy_logs, job.folder / LOGS, self._folder / "logs")
        offsets = {node: known.clock.offset_ns for node, known in self._nodes.items()}
        figures = await self._figures(traces, offsets)
        start_ns, _, end_ns = self._interval
        costs: Callable[[], Measured] = partial(
            with_costs, figures, traces, self._machines, offsets, start_ns, (end_ns - start_ns) / NS
        )
        self._measured = (await asyncio.to_thread(costs)).with_printable_text()
        if self._verdict is not None and not self._verdict.passed:
            return self.record(FAILED, f"wrong answer: {self._verdict.message}")
        reason = why_unfinished(outcome.left, outcome.drained, self._conditions.drain_s)
        return self.record(INCOMPLETE if reason else OK, reason)

    def _write_marks(self, times: RunTimes) -> None:
        """Write the events of the run, on the controller's clock."""
        writer = TraceWriter(self._traces, self._job.run.name, CONTROLLER, AGENT)
        for kind, at_ns in zip(
            ("source_started", "measure_start", "measure_end", "source_stopped", "drained"), times, strict=True
        ):
            writer.add("event", at_ns, kind, "", "", None)
        for event in self._host_events:
            writer.add("event", times.measure_end_ns, *event)
        writer.close()


def without_ackers(topology: Topology) -> Topology:
    """Return the topology as it runs without acknowledgements, which leave ackers without any work."""
    return replace(topology, components=tuple(each for each in topology.components if each.id != ACKER))


def answer_of(program: str, counted: Sequence[tuple[str, int]]) -> Answer:
    """Return the answer of a program whose sinks have counted words."""
    if program != "exclamation":
        return {wordcount_operators.TABLE: counted}
    counts: Counter[Row] = Counter()
    for word, count in counted:
        counts[word,] += count
    return {exclamation.TABLE: [digest_of(counts).row]}


def write_answer(answer: Answer, tables: Mapping[str, Fields], target: Path) -> None:
    """Write an answer as that of a run on agents: `target/<table>/part-00000.parquet`."""
    for name, rows in answer.items():
        (target / name).mkdir(parents=True, exist_ok=True)
        columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in tables[name]]
        written = pa.table(columns, schema=stream_schema(tables[name]))
        pyarrow.parquet.write_table(written, target / name / "part-00000.parquet")
