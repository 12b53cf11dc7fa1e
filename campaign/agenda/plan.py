"""Plan of runs: an agenda, at one combination of its factors, resolved to workloads and placements, and checked.

Nothing is started, and no node is contacted. A placement depends on workload and scheduler only; it is computed once
and used by all repetitions.
"""

import dataclasses
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType

from msgspec.structs import replace

from agents.protocol import Gates, Slot
from campaign.agenda.acks import check_acks
from campaign.agenda.agenda import Agenda, SchedulerEntry
from campaign.agenda.application import Application, application_of
from campaign.agenda.cpu import ByNode, cpus_of
from campaign.agenda.engine import check_engine, check_program, worker_points
from campaign.agenda.gates import Gating, check_targets, gating_of
from campaign.agenda.online import OnlineRun, check_asked, online_run, starting_scheduler
from campaign.agenda.profile import ProfiledTraffic, uses_profile
from campaign.agenda.run_order import PlannedRun, ordered_runs
from campaign.agenda.timeline import RateEvent, events_in, scripted_events, scripted_rate
from campaign.agenda.timeline_checks import TimelineContext, check_timeline, check_used_nodes
from controller.coordinator.scripted_events import ScriptedEvent, withheld_nodes
from controller.host.addresses import with_addresses
from inventory.cluster import Cluster, ExistingWorker
from inventory.documents import Located
from inventory.errors import Faults, InputError, ParameterError
from inventory.power_index import LackingNodeError
from scheduler.placement_file import PlacementFile, make_placement_file
from scheduler.problem import Placement, Problem
from scheduler.registry import Checked, make_scheduler
from workloads.derived_traffic import DERIVED
from workloads.scaling import resized, sizes_of
from workloads.traffic import Traffic


@dataclass(frozen=True)
class PlacedWorkload:
    """Placement of a workload by a scheduler.

    Attributes:
        placement: executor -> slot.
        answer: the placement's document.
        not_given: missing input that the scheduler would use: `traffic`, `load`, `hardware`.
        gates: the communication schedule of runs.
        traffic: file with the measured traffic and loads that the scheduler got; `derived`: from rates, selectivities
            and costs; None: none.
    """

    placement: Placement
    answer: PlacementFile
    not_given: tuple[str, ...]
    gates: Gates | None = None
    traffic: str | None = None

    @property
    def places(self) -> dict[str, Slot]:
        """Executor's name -> worker."""
        return {executor.name: slot for executor, slot in self.placement.assignments.items()}


@dataclass(frozen=True)
class CombinationPlan:
    """Plan of the runs of a campaign at one combination of its factors.

    Attributes:
        agenda: the agenda with all defaults filled in.
        cluster: its nodes, each with an address.
        applications: label -> workload.
        placed: (workload's label, scheduler's label) -> placement at the start.
        unplaced: the same -> why there is no placement, for runs that are left out.
        schedulers: scheduler's label -> scheduler of that placement, and of those after the loss of nodes.
        events: (workload's label, scheduler's label) -> events of the timeline.
        online: scheduler's label -> what makes its runs online, for schedulers with `online`.
        gating: scheduler's label -> its communication schedule, for schedulers with `gates`.
        cpus: label of CPU settings -> settings per node.
        runs: its runs, in order.
        awaiting: (workload's label, scheduler's label) of placements that are made after a profiling run.
        profiled: workload's label -> traffic and loads of its profiling run.
    """

    agenda: Agenda
    cluster: Cluster
    applications: Mapping[str, Application]
    placed: Mapping[tuple[str, str], PlacedWorkload]
    unplaced: Mapping[tuple[str, str], str]
    events: Mapping[tuple[str, str], tuple[ScriptedEvent, ...]]
    schedulers: Mapping[str, Checked]
    online: Mapping[str, OnlineRun]
    gating: Mapping[str, Gating]
    cpus: Mapping[str, ByNode]
    runs: tuple[PlannedRun, ...]
    awaiting: Set[tuple[str, str]] = frozenset()
    profiled: Mapping[str, ProfiledTraffic] = field(default_factory=dict)

    def cluster_of(self, scheduler: str) -> Cluster:
        """Return the cluster with those nodes available that a scheduler, by its label, may use."""
        entry = self.agenda.schedulers[self.agenda.scheduler_labels.index(scheduler)]
        return self.cluster if isinstance(entry, str) else self.cluster.first_available(entry.nodes)

    def problem(self, application: Application, cluster: Cluster, traffic: Traffic | None = None) -> Problem:
        """Return the scheduling round of a workload on the engine of the agenda."""
        return Problem(cluster, (application.topology,), traffic, worker_points(self.agenda.engine))

    def place(self, label: str, scheduler: Checked) -> PlacedWorkload:
        """Return the placement of a workload by a scheduler that gets no traffic.

        Raises:
            InputError: the scheduler finds no placement.
            RunError: its plan is invalid.
        """
        application = self.applications[label]
        return _place(scheduler, self.problem(application, self.cluster), label, None, application.derived)

    def place_without(
        self, run: PlannedRun, nodes: Set[str], places: Mapping[str, Slot], traffic: Traffic | None = None
    ) -> PlacedWorkload:
        """Return the placement of a run without these nodes.

        Executors on other nodes stay if the scheduler leaves running executors where they are. If it cannot place the
        rest beside them, it places all executors again.

        Args:
            run: the run.
            nodes: nodes that are lost, or not up.
            places: executor's name -> worker, before.
            traffic: the last observed traffic, if there is any; otherwise that of the profiling run is used.

        Raises:
            InputError: the scheduler finds no placement.
            RunError: its plan is invalid.
        """
        scheduler, application = self.schedulers[run.scheduler], self.applications[run.workload]
        topology = resized(application.topology, sizes_of(places))
        application = dataclasses.replace(application, topology=topology)
        if traffic is None and run.workload in self.profiled and uses_profile(scheduler):
            traffic = self.profiled[run.workload].traffic
        elif traffic is None and uses_profile(scheduler):
            traffic = application.derived
        if traffic is not None and not {name for e in traffic.edges for name in (e.source, e.destination)} <= {*places}:
            traffic = None  # observed with other numbers of executors
        cluster = self.cluster_of(run.scheduler).without(nodes)
        workers: dict[Slot, list[str]] = {}
        for name, slot in places.items():
            if slot.node not in nodes:
                workers.setdefault(slot, []).append(name)
        running = tuple(
            ExistingWorker(application.topology.id, slot.node, slot.index, tuple(names))
            for slot, names in sorted(workers.items())
        )
        derived = application.derived
        measured = None if traffic is derived else traffic
        try:
            beside = replace(cluster, existing=(*cluster.existing, *running))
            problem = self.problem(application, beside, traffic)
            placed = _place(scheduler, problem, run.workload, measured, derived)
        except InputError:
            problem = self.problem(application, cluster, traffic)
            placed = _place(scheduler, problem, run.workload, measured, derived)
        return _gated(placed, application, self.gating.get(run.scheduler))


def plan_of(
    read_agenda: Located[Agenda],
    read_cluster: Located[Cluster],
    runs: Sequence[PlannedRun] | None = None,
    profiled: Mapping[str, ProfiledTraffic] = MappingProxyType({}),
) -> CombinationPlan:
    """Return the plan of an agenda on a cluster, with the values of `factors` already applied to both.

    Args:
        read_agenda: the agenda.
        read_cluster: the cluster.
        runs: the runs; by default all runs of an agenda without factors.
        profiled: workload's label -> traffic and loads of its profiling run, for those that have been profiled.

    Raises:
        InputError: the cluster cannot be used, a parameter is invalid, a topology cannot run or cannot be placed, or
            the timeline contains an impossible event.
        UnfitError: a plug-in cannot be loaded, or CPUs cannot be set because nodes share a machine.
        RunError: a scheduler returns an invalid plan.
    """
    agenda, origin = read_agenda.value, read_agenda.origin
    if runs is None:
        runs = ordered_runs(
            agenda.labels, agenda.scheduler_labels, agenda.repetitions, agenda.order, agenda.seed, agenda.cpu_labels
        )
    faults = Faults()
    with faults.gathered():
        if agenda.acks:
            check_acks(agenda, origin)
    with faults.gathered():
        check_engine(agenda, origin)
    pairs = {(run.workload, run.scheduler) for run in runs}
    cluster = with_addresses(read_cluster)
    cpus: Mapping[str, ByNode] = {}
    with faults.gathered():
        cpus = cpus_of(Located(agenda.cpu, origin / "cpu"), cluster)
    applications: dict[str, Application] = {}
    for at, (label, workload) in enumerate(zip(agenda.labels, agenda.workloads, strict=True)):
        with faults.gathered():
            applications[label] = application_of(Located(workload, origin / "workloads" / at), label, agenda.acks)
            check_program(agenda.engine, applications[label])
    listed: dict[str, _Listed] = {}
    for at, (label, entry) in enumerate(zip(agenda.scheduler_labels, agenda.schedulers, strict=True)):
        with faults.gathered():
            derivable = all(each.derived is not None for each in applications.values())
            listed[label] = _listed(Located(entry, origin / "schedulers" / at), label, agenda, cluster, derivable)
    faults.check()
    schedulers = {label: each.places for label, each in listed.items()}
    online = {label: each.online for label, each in listed.items() if each.online is not None}
    gating = {label: each.gating for label, each in listed.items() if each.gating is not None}
    timeline = Located(agenda.timeline, origin / "timeline")
    topologies = {label: each.topology for label, each in applications.items()}

    def why_component_fixed(label: str, component: str) -> str:
        return applications[label].fixed.get(component, "")

    ends_s = agenda.longest_warmup_s + agenda.duration_s
    scheduled = {label for label, each in gating.items() if each.entry.schedule is not None}
    check_timeline(
        timeline,
        TimelineContext(ends_s, cluster, topologies, why_component_fixed, listed.keys(), online, scheduled, cpus),
    )
    applications = {
        label: dataclasses.replace(each, rate=scripted_rate(each.rate, label, timeline))
        for label, each in applications.items()
    }
    limited = {}
    for at, (by, each) in enumerate(listed.items()):
        limited[by] = cluster.first_available(each.entry.nodes)
        usable = len(limited[by].available)
        if each.entry.nodes is not None and usable < each.entry.nodes and agenda.unplaceable == "refuse":
            here = origin / "schedulers" / at / "nodes"
            raise here.error(f"got {each.entry.nodes}, but the cluster has {usable} available nodes")
        check_used_nodes(timeline, by, {node.id for node in cluster.available} - {n.id for n in limited[by].available})
    placed, unplaced, events = {}, {}, {}
    awaiting: set[tuple[str, str]] = set()
    for label, application in applications.items():
        for by, scheduler in ((by, scheduler) for by, scheduler in schedulers.items() if (label, by) in pairs):
            mine = events_in(timeline, label, by)
            events[label, by] = scripted_events(mine)
            if (asked := listed[by].entry.online) is not None:
                here = origin / "schedulers" / agenda.scheduler_labels.index(by) / "online"
                check_asked(online[by], Located(asked, here), ends_s, events[label, by])
            profile = profiled.get(label) if uses_profile(scheduler) else None
            if agenda.profile is not None and uses_profile(scheduler) and profile is None:
                awaiting.add((label, by))
                if scheduler.needs.traffic == "required" or agenda.unplaceable == "skip":
                    continue
            try:
                wanted, usable = listed[by].entry.nodes, len(limited[by].available)
                if wanted is not None and usable < wanted:
                    raise InputError(f"the scheduler {by!r} uses {wanted} nodes, and there are {usable}")
                beside = limited[by].without(withheld_nodes(events[label, by]))
                traffic = None if profile is None else profile.traffic
                problem = Problem(beside, (application.topology,), traffic, worker_points(agenda.engine))
                if profile is None and uses_profile(scheduler) and application.derived is not None:
                    planned = _place_by_derived(scheduler, problem, application.derived, label)
                else:
                    measured = profiled[label].traffic if label in profiled else None
                    planned = _place(scheduler, problem, label, measured, application.derived)
            except LackingNodeError as fault:
                node = [node.id for node in cluster.nodes].index(fault.node)
                raise (read_cluster.origin / "nodes" / node).error(str(fault)) from None
            except ParameterError:
                raise
            except InputError as fault:
                if agenda.unplaceable == "skip":
                    unplaced[label, by] = str(fault)
                    continue
                raise application.origin.error(str(fault)) from None
            if by in online:
                # The rest is observed while the topology runs.
                lacking = tuple(what for what in planned.not_given if what == "hardware")
                planned = dataclasses.replace(planned, not_given=lacking)
            if profile is not None:
                planned = dataclasses.replace(planned, traffic=profile.file)
            gated = _gated(planned, application, gating.get(by))
            if gated.gates is not None:
                check_targets(mine, by, gated.gates)
            # Without its profile a placement is only checked: whether there is one.
            if (label, by) not in awaiting:
                placed[label, by] = gated
    resolved = replace(
        agenda,
        workloads=tuple(
            replace(entry, label=label, params=applications[label].params, rate=applications[label].rate)
            for label, entry in zip(agenda.labels, agenda.workloads, strict=True)
        ),
        timeline=tuple(event for event in agenda.timeline if not isinstance(event, RateEvent)),
        schedulers=tuple(each.entry for each in listed.values()),
    )
    return CombinationPlan(
        agenda=resolved,
        cluster=cluster,
        applications=applications,
        placed=placed,
        unplaced=unplaced,
        events=events,
        schedulers=schedulers,
        online=online,
        gating=gating,
        cpus=cpus,
        runs=tuple(runs),
        awaiting=awaiting,
        profiled=profiled,
    )


@dataclass(frozen=True)
class _Listed:
    """An entry of `schedulers`, complete: the scheduler of its placements, and what its runs are and follow."""

    entry: SchedulerEntry
    places: Checked
    online: OnlineRun | None
    gating: Gating | None


def _listed(
    located: Located[str | SchedulerEntry], label: str, agenda: Agenda, cluster: Cluster, derivable: bool
) -> _Listed:
    """Return an entry, complete; `derivable`: whether the traffic of every workload follows from its costs."""
    origin = located.origin
    entry = SchedulerEntry(name=located.value) if isinstance(located.value, str) else located.value
    scheduler = make_scheduler(entry.name, *([origin / "params"] if entry.params is not None else []))
    gating = (
        None if entry.gates is None else gating_of(Located(entry.gates, origin / "gates"), cluster, scheduler.overlap)
    )
    resolved = replace(entry, label=label, params=scheduler.params, gates=None if gating is None else gating.entry)
    if entry.online is not None:
        located_online = Located(entry.online, origin / "online")
        scheduled = gating is not None and gating.entry.schedule is not None
        online = online_run(located_online, scheduler, agenda.revision, agenda.sensors, scheduled)
        return _Listed(resolved, starting_scheduler(scheduler, origin), online, gating)
    if scheduler.needs.traffic == "required" and agenda.profile is None and not derivable:
        raise origin.error(
            f"the scheduler {scheduler.name!r} needs observed traffic: add profile: {{scheduler: even}} to the agenda, "
            "or make its runs online: online: {}"
        )
    return _Listed(resolved, scheduler, None, gating)


def _place(
    scheduler: Checked, problem: Problem, label: str, measured: Traffic | None, derived: Traffic | None
) -> PlacedWorkload:
    """Return the placement of the workload with this label, whose topology is that of the problem.

    Its cost is counted by measured traffic and loads, else by derived ones, also where the scheduler uses none.
    """
    (topology,) = problem.topologies
    begun = time.perf_counter()
    plan = scheduler.place(problem)
    elapsed_s = time.perf_counter() - begun
    answer = make_placement_file(
        scheduler.name, scheduler.params, problem, plan, elapsed_s, measured=measured, derived=derived
    )
    placement = plan.placements[topology.id]
    if placement.status != "placed":
        left = len(topology.executors) - len(placement.assignments)
        raise InputError(
            f"the scheduler {scheduler.name!r} finds no place for {left} of {len(topology.executors)} executors of "
            f"{label!r}: {placement.message or placement.status}"
        )
    return PlacedWorkload(placement, answer, scheduler.not_given(problem))


def _place_by_derived(scheduler: Checked, problem: Problem, derived: Traffic, label: str) -> PlacedWorkload:
    """Return the placement by derived traffic; without its loads where they are more than the cluster can do."""
    try:
        placed = _place(scheduler, dataclasses.replace(problem, traffic=derived), label, None, derived)
        return dataclasses.replace(placed, traffic=DERIVED)
    except InputError:
        placed = _place(scheduler, dataclasses.replace(problem, traffic=Traffic(derived.edges)), label, None, derived)
        return dataclasses.replace(placed, traffic=f"{DERIVED}, without loads, which are more than the nodes can do")


def _gated(placed: PlacedWorkload, application: Application, gating: Gating | None) -> PlacedWorkload:
    """Return the placement with the gates of runs under this scheduler."""
    if gating is None:
        return placed
    answer = placed.answer
    gates = gating.gates(answer.scheduler, application.topology, placed.places, answer.communication_schedule)
    return dataclasses.replace(placed, gates=gates)
