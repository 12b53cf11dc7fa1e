"""Plan of a campaign: clusters, plans at all combinations of its factors, the order of its runs, and their inputs."""

import dataclasses
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from analysis.records.factors import INVENTORY, factors_text, inventory_of, value_text
from campaign.agenda.agenda import Agenda, SchedulerEntry
from campaign.agenda.factors import NODES, agenda_at, cluster_at, combinations_of, names_in, rules_of, too_few_nodes
from campaign.agenda.load import LoadCalibration, calibrations_of
from campaign.agenda.plan import CombinationPlan, plan_of
from campaign.agenda.profile import Profiles, uses_profile
from campaign.agenda.run_order import PlannedRun, ordered_runs
from campaign.agenda.search import check_search
from controller.host.addresses import find_beside, with_addresses
from inventory.ansible_hosts import Hosts
from inventory.atomic_files import replace_file
from inventory.cluster import Cluster
from inventory.documents import Located, Origin, dump_json
from inventory.errors import InputError, nearest
from inventory.reading import ReadCluster, read_cluster, with_links
from workloads.workload import PreparedInput

Inputs = Mapping[tuple[str, str], Sequence[PreparedInput]]
"""Prepared inputs by the combination of factors, as text, and the workload's label."""


class PlannedCluster(NamedTuple):
    """All nodes of a cluster, each with an address, and its Ansible inventory; None for a cluster file."""

    cluster: Cluster
    hosts: Hosts | None


@dataclass(frozen=True)
class CampaignPlan:
    """Plan of a campaign.

    Attributes:
        agenda: the agenda with all defaults filled in; what a factor varies has its value at the first combination.
        clusters: inventory, as in `Run.inventory`, -> its cluster.
        plans: combination of factors, as text, -> plan of its runs.
        runs: all runs, in order.
        calibrations: (combination of factors, as text, workload's label) -> calibration of the load, of runs with one.
        left_out: nodes that a resumed campaign does without.
    """

    agenda: Agenda
    clusters: Mapping[str, PlannedCluster]
    plans: Mapping[str, CombinationPlan]
    runs: tuple[PlannedRun, ...]
    calibrations: Mapping[tuple[str, str], LoadCalibration] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    @property
    def cluster(self) -> Cluster:
        """The cluster; the first one if the inventory is a factor."""
        return next(iter(self.clusters.values())).cluster

    def at(self, run: PlannedRun) -> CombinationPlan:
        """Return the plan at a run's combination of factors."""
        return self.plans[run.combination]

    def calibration_of(self, run: PlannedRun) -> LoadCalibration | None:
        """Return the calibration of a run's load; None if its rate is no load."""
        return self.calibrations.get((run.combination, run.workload))

    def why_unplaced(self, run: PlannedRun) -> str:
        """Return why a run cannot be placed and is left out; empty if it is placed."""
        return self.at(run).unplaced.get((run.workload, run.scheduler), "")

    def doubts(self, run: PlannedRun) -> tuple[str, ...]:
        """Return why a run is suspect before it begins: nodes of the first start are missing."""
        missing = [name for name in self.left_out if name in self.at(run).cluster.by_id]
        return (f"placed without {', '.join(missing)}, left out when the campaign was resumed",) if missing else ()

    def uses_profile(self, run: PlannedRun) -> bool:
        """Return whether a run is placed with the traffic of a profiling run."""
        return self.agenda.profile is not None and uses_profile(self.at(run).schedulers[run.scheduler])

    def awaits_profile(self, run: PlannedRun) -> bool:
        """Return whether a run is placed only after a profiling run."""
        return (run.workload, run.scheduler) in self.at(run).awaiting


def planned_runs(read_agenda: Located[Agenda]) -> list[PlannedRun]:
    """Return all runs of an agenda, in order, without placing anything.

    Raises:
        InputError: the factors or rules cannot be used, or leave out every run.
    """
    agenda = read_agenda.value
    runs = ordered_runs(
        agenda.labels,
        agenda.scheduler_labels,
        agenda.repetitions,
        agenda.order,
        agenda.seed,
        agenda.cpu_labels,
        combinations_of(read_agenda),
        rules_of(read_agenda),
    )
    if not runs:
        key = "except" if agenda.excluded else "only"
        raise (read_agenda.origin / key).error("leaves out every run")
    return runs


def campaign_plan(
    read_agenda: Located[Agenda],
    *read_clusters: Located[Cluster],
    inventories: Sequence[str] = ("",),
    profiles: Profiles = MappingProxyType({}),
    left_out: Sequence[str] = (),
) -> CampaignPlan:
    """Return the plan of an agenda on its clusters.

    Args:
        read_agenda: the agenda.
        read_clusters: its cluster, or those of the values of the factor `inventory`.
        inventories: these values, as text, in the same order.
        profiles: traffic of profiling runs; placements that use a profile are part of the plan when it is among these.
        left_out: nodes that a resumed campaign does without; runs with a number of nodes that needs them are left out.

    Raises:
        InputError, UnfitError, RunError: see `plan_of`; or the factors cannot be used.
    """
    agenda = read_agenda.value
    combinations = combinations_of(read_agenda)
    runs = planned_runs(read_agenda)
    located = dict(zip(inventories, read_clusters, strict=True))
    named = [entry for entry in agenda.schedulers if isinstance(entry, SchedulerEntry)]
    if any((entry.params or {}).get("hops") == "links" for entry in named):
        located = {name: with_links(each) if isinstance(each, ReadCluster) else each for name, each in located.items()}
    clusters = {
        name: PlannedCluster(with_addresses(each), each.hosts if isinstance(each, ReadCluster) else None)
        for name, each in located.items()
    }
    plans: dict[str, CombinationPlan] = {}
    for factors in combinations:
        combination = factors_text(factors)
        mine = [run for run in runs if run.combination == combination]
        if not mine:
            continue
        name = inventory_of(factors)
        here = agenda_at(read_agenda, factors)
        try:
            lacking = too_few_nodes(read_agenda, factors, clusters[name].cluster) if left_out else None
            if lacking is not None:
                factors = {key: value for key, value in factors.items() if key != NODES}
                here = Located(replace(here.value, unplaceable="skip"), here.origin)
            nodes = Located(cluster_at(read_agenda, factors, clusters[name].cluster), located[name].origin)
            measured = {label: profiles[at, label] for at, label in profiles if at == combination}
            plan = plan_of(here, nodes, mine, measured)
            check_search(
                Located(agenda.search, read_agenda.origin / "search"),
                agenda.duration_s,
                [Located(each.rate, each.origin / "rate") for each in plan.applications.values()],
            )
        except InputError as fault:
            raise _named(fault, combination, read_agenda.origin) from None
        if lacking is not None:
            unplaced = {(run.workload, run.scheduler): str(lacking) for run in mine}
            plan = dataclasses.replace(plan, placed={}, unplaced=unplaced, awaiting=frozenset())
        plans[combination] = plan
    if not any(plan.placed or plan.awaiting for plan in plans.values()):
        reason = next(reason for plan in plans.values() for reason in plan.unplaced.values())
        raise (read_agenda.origin / "unplaceable").error(f"no run can be placed; the first one: {reason}")
    resolved = replace(next(iter(plans.values())).agenda, unplaceable=agenda.unplaceable)
    if agenda.factors:
        # Events of the timeline change rates, which may be those of factors.
        workloads = zip(resolved.workloads, agenda.workloads, strict=True)
        entries = tuple(replace(entry, rate=given.rate) for entry, given in workloads)
        resolved = replace(resolved, workloads=entries, timeline=agenda.timeline)
    return CampaignPlan(resolved, clusters, plans, tuple(runs), calibrations_of(runs, plans), tuple(left_out))


def _named(fault: InputError, combination: str, agenda: Origin) -> InputError:
    """Return the error with the combination of factors at which it occurs."""
    return InputError(f"{fault} (at {combination}; factors: {(agenda / 'factors').where})") if combination else fault


def select_runs(plan: CampaignPlan, choice: str | None) -> list[PlannedRun]:
    """Return the runs of a plan that `choice` selects (`chosen_runs`)."""
    return chosen_runs(plan.agenda, plan.runs, choice)


def chosen_runs(agenda: Agenda, runs: Sequence[PlannedRun], choice: str | None) -> list[PlannedRun]:
    """Return those of an agenda's runs that `choice` selects, a text with parts that are separated by commas.

    A part is `workload=LABEL`, `scheduler=LABEL`, `cpu=LABEL`, `FACTOR=VALUE`, or the name of a run. A repeated key
    selects all of its values, and several names all of these runs; None selects all runs.

    Raises:
        InputError: the choice has another form, or a name is not part of the campaign.
    """
    names = names_in(agenda)
    known = [run.name for run in runs]
    forms = " or ".join(f"{name}={'VALUE' if name in agenda.factors else 'LABEL'}" for name in names)
    wanted: dict[str, set[str]] = {}
    named: set[str] = set()
    for part in (part.strip() for part in choice.split(",")) if choice is not None else ():
        if part in known or ("=" not in part and part[:1].isdecimal()):
            if part not in known:
                raise InputError(f"--only: the agenda has no run {part!r}{nearest(part, known)}")
            named.add(part)
            continue
        key, _, value = (word.strip() for word in part.partition("="))
        if key not in names:
            raise InputError(f"--only: got {part!r}, which is no name of a run; expected {forms}{nearest(key, names)}")
        if value not in names[key]:
            raise InputError(f"--only: the agenda has no {key} {value!r}{nearest(value, names[key])}")
        wanted.setdefault(key, set()).add(value)
    chosen = [
        run
        for run in runs
        if (not named or run.name in named) and all(run.labels[key] in values for key, values in wanted.items())
    ]
    if choice is not None and not chosen:
        raise InputError(f"--only {choice}: no run of the agenda is all of that")
    return chosen


def prepare_inputs(plan: CampaignPlan, runs: Sequence[PlannedRun], folder: Path, kept: Path) -> Inputs:
    """Prepare the inputs of these runs' workloads below `folder`, the same ones once.

    Args:
        plan: the campaign.
        runs: the runs.
        folder: where to.
        kept: folder in which `keep_measured` has kept measured inputs; it need not exist.

    Raises:
        InputError: an input cannot be used.
        UnfitError: it cannot be prepared on this machine.
    """
    inputs: dict[tuple[str, str], Sequence[PreparedInput]] = {}
    prepared: dict[str, Sequence[PreparedInput]] = {}
    for run in sorted(runs, key=lambda run: run.workload):
        application = plan.at(run).applications[run.workload]
        same = dump_json([run.workload, application.params])
        if same not in prepared:
            own = folder / f"{run.workload}-{sha256(same.encode()).hexdigest()[:12]}"
            if (kept / own.name).is_dir():
                shutil.copytree(kept / own.name, own)
            try:
                prepared[same] = application.workload.prepare(own)
            except InputError as fault:
                located = (application.origin / "params").error(str(fault))
                agenda = Origin(application.origin.document)
                raise _named(located, run.combination, agenda) from None
        inputs[run.combination, run.workload] = prepared[same]
    return inputs


def keep_measured(inputs: Inputs, folder: Path, kept: Path) -> None:
    """Keep the measured inputs of `folder`, for runs after an interruption, which have to read the same ones."""
    for entry in chain.from_iterable(inputs.values()):
        if not entry.is_measured:
            continue
        file = kept / entry.path.relative_to(folder)
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            replace_file(file, entry.path.read_bytes(), durable=True)


def read_clusters(agenda: Located[Agenda], beside: Path, meanwhile: Callable[[], object]) -> dict[str, ReadCluster]:
    """Return inventory, as in `Run.inventory`, -> its cluster.

    Args:
        agenda: the agenda.
        beside: the agenda's folder; paths of inventories may be relative to it.
        meanwhile: called while Ansible reads an inventory.

    Raises:
        InputError: there is no such inventory, or it is invalid.
        UnfitError: Ansible is needed and missing.
    """
    if INVENTORY not in agenda.value.factors:
        return {"": _read(agenda.value.inventory, agenda.origin / "inventory", beside, meanwhile)}
    clusters = {}
    for at, value in enumerate(agenda.value.factors[INVENTORY]):
        origin = agenda.origin / "factors" / INVENTORY / at
        if not isinstance(value, str):
            raise origin.error(f"got {value_text(value)}, expected the name or the path of an inventory")
        if value not in clusters:
            clusters[value] = _read(value, origin, beside, meanwhile)
    return clusters


def _read(name_or_path: str, origin: Origin, beside: Path, meanwhile: Callable[[], object]) -> ReadCluster:
    try:
        path = find_beside(name_or_path, beside)
    except InputError as fault:
        raise origin.error(str(fault)) from None
    return read_cluster(path, meanwhile)
