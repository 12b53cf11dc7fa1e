"""Plan of a campaign: an agenda resolved to workloads, placements and runs, and checked.

Nothing is started, and no node is contacted. A placement depends on workload and scheduler only; it is computed once
and used by all repetitions.
"""

import dataclasses
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from agents.protocol import Gates, Place
from campaign.agenda.agenda import Agenda, SchedulerEntry, WorkloadEntry
from campaign.agenda.cpu_settings import ByNode, settings_of
from campaign.agenda.gates import Gating, check_targets, gating_of
from campaign.agenda.run_order import Run, runs_of
from campaign.agenda.timeline import check_timeline
from campaign.place.slow_scheduler_notice import slow_scheduler_notice
from controller.host.addresses import with_addresses
from inventory.ansible_hosts import ClusterOfHosts, Hosts
from inventory.cluster import Cluster
from inventory.documents import Document, Steps
from inventory.errors import InputError, ParameterError, nearest
from inventory.flops import LackingNodeError
from inventory.params import as_plain
from scheduler.placement_file import PlacementFile, make_placement_file
from scheduler.problem import Placement, Problem
from scheduler.registry import make_scheduler
from scheduler.validation import Checked
from workloads.operators import Bolt
from workloads.rates import Rate
from workloads.registry import workload_of
from workloads.source_clock import check_rate
from workloads.topology import ACKER, Topology
from workloads.workload import PreparedInput, Workload

Inputs = Mapping[str, Sequence[PreparedInput]]
"""Prepared inputs by the workload's label."""


@dataclass(frozen=True)
class Application:
    """A workload of the agenda with all its parameters, its topology and its rate."""

    label: str
    name: str
    workload: Workload
    params: Mapping[str, Any]
    topology: Topology
    rate: Rate

    @cached_property
    def tables(self) -> Mapping[str, Mapping[str, str]]:
        """Tables of the answer and their fields, as declared by the topology's bolts."""
        bolts = (self.workload.operator(c.id) for c in self.topology.components if c.kind == "bolt" and c.id != ACKER)
        tables = (table for bolt in bolts if isinstance(bolt, Bolt) for table in bolt.tables())
        return {table.answer_table: table.answer_schema for table in tables}


@dataclass(frozen=True)
class Placed:
    """Placement of a workload by a scheduler.

    Attributes:
        placement: executor -> slot.
        answer: the placement's document.
        not_given: missing input that the scheduler would use: `traffic`, `load`, `hardware`.
        gates: the communication schedule of runs.
    """

    placement: Placement
    answer: PlacementFile
    not_given: tuple[str, ...]
    gates: Gates | None = None

    @property
    def places(self) -> dict[str, Place]:
        """Executor's name -> worker."""
        return {executor.name: Place(*slot) for executor, slot in self.placement.assignments.items()}


@dataclass(frozen=True)
class Plan:
    """Plan of a campaign.

    Attributes:
        agenda: the agenda with all defaults filled in.
        cluster: its nodes, each with an address.
        applications: label -> workload.
        placed: (workload's label, scheduler) -> placement.
        schedulers: name -> scheduler.
        gating: scheduler's name -> its communication schedule, for schedulers with `gates`.
        cpus: label of CPU settings -> settings per node.
        runs: all runs, in order.
        document: the agenda's document, for messages.
        hosts: the Ansible inventory of the cluster; None for a cluster file.
    """

    agenda: Agenda
    cluster: Cluster
    applications: Mapping[str, Application]
    placed: Mapping[tuple[str, str], Placed]
    schedulers: Mapping[str, Checked]
    gating: Mapping[str, Gating]
    cpus: Mapping[str, ByNode]
    runs: tuple[Run, ...]
    document: Document
    hosts: Hosts | None = None

    def place_without(self, run: Run, nodes: Set[str]) -> Placed:
        """Return the placement of a run without these lost nodes.

        Raises:
            InputError: the scheduler finds no placement.
            RunError: its plan is invalid.
        """
        left = tuple(replace(n, available=n.available and n.id not in nodes) for n in self.cluster.nodes)
        cluster = replace(self.cluster, nodes=left)
        scheduler = run.scheduler
        application = self.applications[run.workload]
        return _gated(_place(self.schedulers[scheduler], application, cluster), application, self.gating.get(scheduler))


def plan_of(document: Document, agenda: Agenda, inventory: Document) -> Plan:
    """Return the plan of an agenda.

    Args:
        document: the agenda's document, for messages.
        agenda: the agenda.
        inventory: the cluster file, or the cluster of an inventory.

    Raises:
        InputError: the cluster cannot be used, a parameter is invalid, a topology cannot run or cannot be placed, or
            the timeline contains an impossible event.
        UnfitError: a plug-in cannot be loaded, or CPUs cannot be set because nodes share a machine.
        RunError: a scheduler returns an invalid plan.
    """
    cluster = with_addresses(inventory)
    cpus = _cpus(document, agenda, cluster)
    applications = {
        label: _application(document, ("workloads", at), label, entry)
        for at, (label, entry) in enumerate(zip(agenda.labels, agenda.workloads, strict=True))
    }
    schedulers = {name: _scheduler(document, at, name) for at, name in enumerate(agenda.scheduler_names)}
    gating = {
        name: gating_of(document, ("schedulers", agenda.scheduler_names.index(name), "gates"), entry, cluster)
        for name, entry in agenda.gates.items()
    }
    placed = {}
    for at, (label, application) in enumerate(applications.items()):
        for scheduler in schedulers.values():
            try:
                found = _place(scheduler, application, cluster)
            except LackingNodeError as fault:
                node = [node.id for node in cluster.nodes].index(fault.node)
                raise inventory.error(("nodes", node), str(fault)) from None
            except ParameterError:
                raise
            except InputError as fault:
                raise document.error(("workloads", at), str(fault)) from None
            placed[label, scheduler.name] = _gated(found, application, gating.get(scheduler.name))
    check_timeline(
        document,
        agenda.timeline,
        agenda.warmup_s + agenda.duration_s,
        cluster,
        {key: p.places for key, p in placed.items()},
    )
    for (label, name), each in placed.items():
        if each.gates is not None:
            check_targets(document, agenda.timeline, label, name, each.gates)
    resolved = replace(
        agenda,
        workloads=tuple(
            replace(entry, label=label, params=applications[label].params)
            for label, entry in zip(agenda.labels, agenda.workloads, strict=True)
        ),
        schedulers=tuple(
            SchedulerEntry(name, scheduler.params, gating[name].entry if name in gating else None)
            for name, scheduler in schedulers.items()
        ),
    )
    runs = runs_of(
        agenda.labels, agenda.scheduler_names, agenda.repetitions, agenda.order, agenda.seed, agenda.cpu_labels
    )
    hosts = inventory.hosts if isinstance(inventory, ClusterOfHosts) else None
    return Plan(resolved, cluster, applications, placed, schedulers, gating, cpus, tuple(runs), document, hosts)


def select_runs(plan: Plan, choice: str | None) -> list[Run]:
    """Return the runs that `choice` selects: `workload=LABEL`, `scheduler=NAME`, `cpu=LABEL`, with commas.

    A repeated key selects all of its values; None selects all runs.

    Raises:
        InputError: the choice has another form, or a name is not part of the campaign.
    """
    names = {"workload": plan.agenda.labels, "scheduler": plan.agenda.scheduler_names}
    if isinstance(plan.agenda.cpu, tuple):
        names["cpu"] = plan.agenda.cpu_labels
    forms = " or ".join(f"{name}={'NAME' if name == 'scheduler' else 'LABEL'}" for name in names)
    wanted: dict[str, set[str]] = {}
    for part in choice.split(",") if choice is not None else ():
        key, _, value = (word.strip() for word in part.partition("="))
        if key not in names:
            raise InputError(f"--only: got {part!r}, expected {forms}{nearest(key, names)}")
        if value not in names[key]:
            raise InputError(f"--only: the agenda has no {key} {value!r}{nearest(value, names[key])}")
        wanted.setdefault(key, set()).add(value)
    return [run for run in plan.runs if all(getattr(run, key) in values for key, values in wanted.items())]


def prepare_inputs(plan: Plan, labels: Sequence[str], folder: Path) -> Inputs:
    """Prepare the inputs of the workloads with these labels below `folder`.

    Raises:
        InputError: an input cannot be used.
        UnfitError: it cannot be prepared on this machine.
    """
    inputs = {}
    for label in labels:
        try:
            inputs[label] = plan.applications[label].workload.prepare(folder / label)
        except InputError as fault:
            raise plan.document.error(("workloads", plan.agenda.labels.index(label), "params"), str(fault)) from None
    return inputs


def _application(document: Document, steps: Steps, label: str, entry: WorkloadEntry) -> Application:
    sources = [(document, (*steps, "params"))] if entry.params is not None else []
    try:
        workload = workload_of(entry.name, *sources)
        topology = workload.topology()
    except InputError as fault:
        # Errors about combinations of values have no place in the file yet.
        if str(fault).startswith(document.source):
            raise
        raise document.error(steps, str(fault)) from None
    try:
        check_rate(entry.rate, workload)
    except InputError as fault:
        raise document.error((*steps, "rate"), str(fault)) from None
    return Application(label, entry.name, workload, as_plain(workload.params), topology, entry.rate)


def _cpus(document: Document, agenda: Agenda, cluster: Cluster) -> dict[str, ByNode]:
    match agenda.cpu:
        case None:
            return {"": {}}
        case tuple(variants):
            return {
                variant.label: settings_of(document, ("cpu", at, "nodes"), variant.nodes, cluster)
                for at, variant in enumerate(variants)
            }
        case by_class:
            return {"": settings_of(document, ("cpu",), by_class, cluster)}


def _scheduler(document: Document, at: int, name: str) -> Checked:
    entry = document.value(("schedulers", at))
    has_params = isinstance(entry, dict) and entry.get("params") is not None
    scheduler = make_scheduler(name, *([(document, ("schedulers", at, "params"))] if has_params else []))
    if scheduler.needs.traffic == "required":
        raise document.error(
            ("schedulers", at), f"the scheduler {name!r} needs observed traffic, which a campaign does not give yet"
        )
    return scheduler


def _place(scheduler: Checked, application: Application, cluster: Cluster) -> Placed:
    topology = application.topology
    problem = Problem(cluster, (topology,))
    with slow_scheduler_notice(scheduler.name):
        begun = time.perf_counter()
        plan = scheduler.place(problem)
        elapsed_s = time.perf_counter() - begun
    answer = make_placement_file(scheduler.name, scheduler.params, problem, plan, elapsed_s)
    placement = plan.placements[topology.id]
    if placement.status != "placed":
        left = len(topology.executors) - len(placement.assignments)
        raise InputError(
            f"the scheduler {scheduler.name!r} finds no place for {left} of {len(topology.executors)} executors of "
            f"{application.label!r}: {placement.message or placement.status}"
        )
    return Placed(placement, answer, scheduler.not_given(problem))


def _gated(placed: Placed, application: Application, gating: Gating | None) -> Placed:
    """Return the placement with the gates of runs under this scheduler."""
    if gating is None:
        return placed
    answer = placed.answer
    gates = gating.gates(answer.scheduler, application.topology, placed.places, answer.communication_schedule)
    return dataclasses.replace(placed, gates=gates)
