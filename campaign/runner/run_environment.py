"""Inputs and endings of runs, and the environment of coordinators: nodes, CPUs, placements, traces, decisions."""

import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agents.protocol import MoveToPlace, Slot
from agents.trace import TraceWriter
from analysis.records.conditions import LoadRecord
from analysis.records.file_types import SKIPPED, RunRecord
from analysis.records.interval_metrics import Window
from campaign.agenda.agenda import AUTO, Agenda, IdleEntry, LingerMs
from campaign.agenda.application import Application
from campaign.agenda.cpu import ByNode
from campaign.agenda.online import OnlineRun
from campaign.agenda.plan import CombinationPlan, PlacedWorkload
from campaign.agenda.run_order import PlannedRun
from campaign.agenda.windows import windows_of
from campaign.results.live_file import LiveFile
from campaign.runner.cpu_settings import RunCpus
from campaign.runner.event_loop import in_daemon_thread
from controller.coordinator.decider import Decider
from controller.coordinator.interfaces import Assignment, Environment, RestartRules, SlotRecord
from controller.coordinator.online_loop import OnlineSettings
from controller.coordinator.reports import HERE
from controller.coordinator.scripted_events import ScriptedEvent
from controller.nodes.agents import Agents, ClockSync, RunNode
from controller.nodes.backend import Backend
from controller.nodes.transport import FolderReplicas
from inventory.errors import InputError, RunError
from inventory.foreign import printable
from scheduler.deciding import DECISIONS_FILE, SchedulerInFile
from scheduler.online.replanner import moves_off, slots_of_added
from scheduler.problem import CommunicationSchedule, Problem
from workloads.acks import untracked_places
from workloads.rates import Rate
from workloads.traffic import Traffic
from workloads.workload import PreparedInput

SLOTS_HELD = 5_000
"""Number of time slots that are buffered before they are written."""

SCHEDULER_LOG = "scheduler.log"
"""Standard error of the online scheduler, in the folder of logs."""


@dataclass(frozen=True)
class CampaignConditions:
    """Conditions that all runs of a campaign share.

    `idle` is None without the sensor `power`. `tier` and `processes` are those of
    `controller.nodes.backend.Backend`. With `accepts_shortfall`, nodes and links may have less than the requested
    capacity. `buffer_bytes` is the size of an executor's input queue; 0: the runtime's own. `linger_ms` is the
    agenda's. `doubts` make runs suspect. With `adapts_warmup` the measured interval begins when the transient has
    ended, after `warmup_s` at the latest.
    """

    campaign: str
    warmup_s: float
    duration_s: float
    drain_s: float
    sensors: tuple[str, ...]
    idle: IdleEntry | None
    checkpoint_s: float
    profile: bool
    tier: int
    accepts_shortfall: bool
    processes: Sequence[int] | None
    windows: Sequence[Window]
    buffer_bytes: int
    linger_ms: LingerMs
    doubts: Sequence[str] = ()
    adapts_warmup: bool = False

    @classmethod
    def of(cls, agenda: Agenda, backend: Backend, profile: bool, accepts_shortfall: bool) -> "CampaignConditions":
        """Return the conditions of an agenda's runs on the nodes of a backend."""
        return cls(
            agenda.name,
            agenda.longest_warmup_s,
            agenda.duration_s,
            agenda.longest_drain_s,
            agenda.sensors,
            agenda.idle if "power" in agenda.sensors else None,
            agenda.checkpoint_s,
            profile,
            backend.tier,
            accepts_shortfall,
            backend.processes,
            agenda.windows,
            round((agenda.buffer_mb or 0.0) * 1e6),
            agenda.linger_ms,
            adapts_warmup=agenda.warmup_s == AUTO,
        )

    def windows_of(self, rate: Rate) -> list[Window]:
        """Return the windows of a run: those of the agenda, and those of the steps of its rate."""
        return windows_of(self.windows, rate, self.warmup_s, self.duration_s)

    def edges_s(self, rate: Rate, stopped_s: float) -> set[float]:
        """Return begins and ends of the measured interval and its windows, in seconds since the sources started.

        The last one is the end of the sources, which stopped at `stopped_s`, or are to stop at a time before.
        """
        ends_s = min(self.warmup_s + self.duration_s, stopped_s)
        edges = {self.warmup_s + edge for window in self.windows_of(rate) for edge in (window.from_s, window.to_s)}
        return {ends_s, *(edge for edge in {self.warmup_s, *edges} if edge < ends_s)}


@dataclass(frozen=True)
class RunInputs:
    """One run and its inputs.

    Attributes:
        run: the run.
        application: its workload.
        placed: the placement at the start.
        scheduler: name of the scheduler, which is not its label.
        online: what makes the run online; None for a static run.
        inputs: the prepared inputs.
        members: all nodes of the run, by id.
        attempt: number of the attempt, from 1.
        events: events of the agenda's timeline, ordered by time; changes of rates are part of `application`.
        cpus: node -> CPU settings.
        place_without: computes a placement without nodes, after executors ran in workers, with observed traffic.
        problem: the topology and the cluster.
        load: the offered load, of which `application` has the rate; None if the rate is no load.
    """

    run: PlannedRun
    application: Application
    placed: PlacedWorkload
    scheduler: str
    online: OnlineRun | None
    inputs: Sequence[PreparedInput]
    members: Mapping[str, RunNode]
    attempt: int
    events: Sequence[ScriptedEvent]
    cpus: ByNode
    place_without: Callable[[Set[str], Mapping[str, Slot], Traffic | None], PlacedWorkload]
    problem: Problem
    load: LoadRecord | None = None


@dataclass(frozen=True)
class Ending:
    """End of a campaign: whether it was interrupted, and the reasons of runs that are not `ok`."""

    interrupted: bool
    failed: Mapping[str, str]


def unplaced_record(run: PlannedRun, plan: CombinationPlan, tier: int) -> RunRecord:
    """Return the record of a run that cannot be placed."""
    return RunRecord(
        status=SKIPPED,
        reason=printable(f"cannot be placed: {plan.unplaced[run.workload, run.scheduler]}"),
        attempt=0,
        workload=plan.applications[run.workload].name,
        label=run.workload,
        scheduler=run.scheduler,
        scheduler_name=plan.agenda.scheduler_named[run.scheduler],
        repetition=run.repetition,
        seed=run.seed,
        tier=tier,
        cpu_settings=run.cpu or None,
        factors=dict(run.factors),
    )


class RunEnvironment:
    """Environment of one attempt at a run."""

    def __init__(self, job: RunInputs, replicas: FolderReplicas, live_file: LiveFile, shared: Set[str]) -> None:
        """Prepare it.

        Args:
            job: the run and its inputs.
            replicas: replicas of nodes' files.
            live_file: shows how far inputs have been copied.
            shared: nodes that are not machines of their own.
        """
        self._job, self._replicas, self._live_file = job, replicas, live_file
        self._supplied: set[str] = set()
        self.cpus = RunCpus(job.cpus, self._clocks_of(job.placed), shared)

    def make(self, agents: Agents, clocks: ClockSync, traces: TraceWriter) -> Environment:
        """Return the environment for a coordinator of these agents."""

        def note(kind: str, subject: str, detail: str, value: float | None) -> None:
            traces.add("event", time.monotonic_ns(), kind, subject, printable(detail), value)

        def note_slot(record: SlotRecord) -> None:
            traces.add("slot", time.monotonic_ns(), *record)
            if record.number % SLOTS_HELD == SLOTS_HELD - 1:
                traces.flush()

        async def restart(node: str) -> None:
            self._supplied.discard(node)
            await agents.restart(node)
            await self.cpus.set_again(agents, node)

        async def place(lost: Set[str], places: Mapping[str, Slot], traffic: Traffic | None) -> Assignment:
            placed = await in_daemon_thread(partial(self._job.place_without, lost, untracked_places(places), traffic))
            await self.cpus.set_clocks(agents, self._clocks_of(placed), lost)
            return Assignment(self._job.application.running_places(placed.places), placed.gates)

        async def schedule(places: Mapping[str, Slot], nodes: Set[str]) -> CommunicationSchedule | None:
            try:
                placed = await in_daemon_thread(partial(self._job.place_without, nodes, places, None))
            except InputError as fault:
                raise RunError(f"no communication schedule: {fault}") from None
            return placed.answer.communication_schedule if placed.places == places else None

        return Environment(
            nodes=tuple(self._job.members),
            send=agents.send,
            restart=restart,
            supply=self._supply,
            place=place,
            offset=clocks.current,
            replicas=self._replicas,
            note=note,
            set_clocks=partial(self.cpus.change_clocks, agents),
            set_cpus=partial(self.cpus.change, agents),
            drain=self._drain,
            enlarge=partial(slots_of_added, self._job.problem),
            schedule=schedule,
            note_slot=note_slot,
            tables=self._job.application.tables.keys(),
        )

    @property
    def restart(self) -> RestartRules | None:
        """Rules by which revisions restart the topology; None if executors move while it runs."""
        rules = None if self._job.online is None else self._job.online.revision
        if rules is None or rules.how != "restart":
            return None
        return RestartRules(rules.wait_s, rules.processes == "new")

    def online(self, conditions: CampaignConditions, folder: Path) -> OnlineSettings | None:
        """Return the settings of the run's online scheduler; None for a static run.

        Args:
            conditions: settings of the campaign.
            folder: folder of the run's results.
        """
        online = self._job.online
        if online is None:
            return None
        logs = folder / "logs"
        logs.mkdir(exist_ok=True)
        rules = online.revision
        scheduler = SchedulerInFile(online.scheduler, dict(online.params), online.replan)
        return OnlineSettings(
            Decider(scheduler, folder / DECISIONS_FILE, logs / SCHEDULER_LOG, rules.deadline_s),
            online.rhythm,
            rules,
            self._job.problem,
            conditions.warmup_s + conditions.duration_s,
            self._clocks_of(self._job.placed),
            self._job.application.fixed,
        )

    def _clocks_of(self, placed: PlacedWorkload) -> dict[str, int]:
        """Return node -> clock in Hz of a placement."""
        return {node: hz for node, hz in placed.answer.frequencies_hz.items() if node in self._job.members}

    def _drain(self, places: Mapping[str, Slot], nodes: Set[str]) -> Sequence[MoveToPlace]:
        moves = moves_off(self._job.problem, places, nodes)
        return [MoveToPlace(move.executor.name, move.target) for move in moves]

    async def _supply(self, node: str) -> None:
        """Copy the prepared inputs to a node unless they are there; they are lost only with its agent."""
        if node not in self._supplied:
            for entry in self._job.inputs:
                moved = partial(self._live_file.send, f"{node}/{entry.path.name}")
                transport = self._job.members[node].transport
                await transport.put(entry.path, str(HERE.input(entry.path.name)), moved)
            self._supplied.add(node)
