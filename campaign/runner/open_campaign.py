"""Open a campaign: a new one from an agenda file, or an earlier one from its folder; select its backend.

Backends are addresses of this host, network namespaces, or machines over SSH.
"""

import dataclasses
import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from msgspec.structs import asdict, replace

from agents.host.facts import gather
from analysis.records.conditions import Continuation, Provenance, Seeds
from analysis.records.factors import INVENTORY
from analysis.records.file_types import CAMPAIGN_FILE, RESULTS_VERSION, CampaignRecord
from campaign.agenda.agenda import Agenda, agenda_of, find_agenda, with_second_labels
from campaign.agenda.campaign_plan import (
    CampaignPlan,
    Inputs,
    campaign_plan,
    chosen_runs,
    planned_runs,
    read_clusters,
)
from campaign.agenda.profile import Profiles
from campaign.agenda.profiling import ProfilingRun, profiling_runs
from campaign.agenda.run_order import PlannedRun, continued
from campaign.results.profiles import PROFILING, has_traffic, read_profiles
from campaign.results.result_store import ResultStore, new_folder, read_record
from campaign.runner.recorded_clusters import cluster_record, part_of, recorded_clusters
from controller.host.disk import writing
from controller.nodes.backend import Backend, CommandLineCallbacks, LoopbackBackend
from inventory.ansible_hosts import Hosts
from inventory.atomic_files import replace_file
from inventory.cluster import Cluster
from inventory.documents import Document, Located, read, to_plain
from inventory.errors import InputError, UnfitError
from inventory.reading import ReadCluster, read_cluster
from inventory.times import utc_stamp


@dataclass(frozen=True)
class Opened:
    """A campaign that can be started or resumed.

    Attributes:
        plan: the plan of the whole campaign.
        folder: folder of its results; missing for a new campaign.
        record: content of `campaign.json`.
        is_new: whether the folder has to be created.
        replan: returns the plan with the traffic of these profiling runs.
        profiling: all profiling runs of the campaign.
        notices: what the operator should know of its nodes.
    """

    plan: CampaignPlan
    folder: Path
    record: CampaignRecord
    is_new: bool
    replan: Callable[[Profiles], CampaignPlan]
    profiling: tuple[ProfilingRun, ...]
    notices: Sequence[str] = ()

    def accepting_shortfall(self) -> "Opened":
        """Return the campaign with the mark that nodes with less than the requested capacity are accepted."""
        return dataclasses.replace(self, record=replace(self.record, accepts_shortfall=True))

    def store(self) -> ResultStore:
        """Create the folder, or open the existing one; call it while the cluster is locked.

        Raises:
            DiskFullError, UnfitError: it cannot be written.
        """
        if self.is_new:
            store = ResultStore.create(self.folder, self.record)
            if (aa := self.plan.agenda.report.aa) is not None:
                from analysis.records.aa_rate import AA_FILE

                # A copy, so that the results are complete wherever they are taken.
                with writing(self.folder):
                    replace_file(self.folder / AA_FILE, (Path(aa) / AA_FILE).read_bytes())
            return store
        store = ResultStore(self.folder)
        store.rewrite(self.record)
        store.drop_partial()
        self.profiles.drop_partial()
        return store

    @property
    def profiles(self) -> ResultStore:
        """Folder of the results of profiling runs."""
        return ResultStore(self.folder, PROFILING)

    def unprofiled(self, runs: Sequence[PlannedRun]) -> tuple[ProfilingRun, ...]:
        """Return the profiling runs that these runs need and that have no traffic file yet."""
        waiting = [run for run in runs if self.plan.awaits_profile(run)]
        return tuple(
            each
            for each in self.profiling
            if not has_traffic(self.folder, each) and any(each.serves(run) for run in waiting)
        )

    def with_profiles(self) -> "Opened":
        """Return the campaign with placements by the traffic files in its folder.

        Raises:
            InputError, RunError: a file is invalid, or a workload cannot be placed with its traffic.
        """
        profiles = read_profiles(self.folder, self.plan, self.profiling)
        if not profiles:
            return self
        plan = dataclasses.replace(self.replan(profiles), runs=self.plan.runs)
        return dataclasses.replace(self, plan=plan)

    def check_inputs(self, inputs: Inputs) -> None:
        """Check that earlier runs of these workloads, and their profiling runs, have read the same inputs.

        Raises:
            InputError: an input differs.
        """
        store = ResultStore(self.folder)
        for run in self.plan.runs:
            prepared = inputs.get((run.combination, run.workload), ())
            store.check_inputs(run.name, {entry.name: entry.sha256 for entry in prepared})
        for each in self.profiling:
            prepared = inputs.get((each.run.combination, each.run.workload), ())
            self.profiles.check_inputs(each.run.name, {entry.name: entry.sha256 for entry in prepared})


def new(
    name_or_path: str,
    inventory: str | None,
    out: Path,
    meanwhile: Callable[[], object] = lambda: None,
    repetitions: int | None = None,
    aa: bool = False,
    choice: str | None = None,
) -> Opened:
    """Return a new campaign; nothing is written yet.

    Args:
        name_or_path: the agenda.
        inventory: overrides the agenda's inventory.
        out: folder of all campaigns' results.
        meanwhile: called while Ansible reads the inventory, if it is one of Ansible.
        repetitions: overrides the agenda's number.
        aa: whether it is an A/A campaign.
        choice: selection of runs, checked before anything is placed (`chosen_runs`).

    Raises:
        InputError, UnfitError: the agenda cannot be run, see `campaign_plan`.
    """
    planned = _plans(name_or_path, inventory, meanwhile, repetitions, aa, choice=choice)
    plan = planned({})
    clusters = {name: cluster_record(each) for name, each in plan.clusters.items()}
    first = next(iter(clusters.values()))
    record = CampaignRecord(
        agenda=to_plain(plan.agenda),
        **asdict(provenance()),
        seeds=Seeds(plan.agenda.seed, {run.name: run.seed for run in plan.runs}),
        cluster=first.cluster,
        inventory=first.inventory,
        hosts=first.hosts,
        clusters=clusters if INVENTORY in plan.agenda.factors else {},
        results_version=RESULTS_VERSION,
    )
    folder = new_folder(out, plan.agenda.name)
    return Opened(plan, folder, record, is_new=True, replan=planned, profiling=profiling_runs(plan))


def resumed(
    folder: Path,
    name_or_path: str | None,
    inventory: str | None,
    meanwhile: Callable[[], object],
    repetitions: int | None = None,
    aa: bool = False,
    without: Sequence[str] = (),
    choice: str | None = None,
) -> Opened:
    """Return an earlier campaign with its original plan, or with more repetitions behind it.

    Args:
        folder: folder with `campaign.json`.
        name_or_path: its agenda, which must be the same, if given.
        inventory: inventory with which its nodes are reached now.
        meanwhile: called while Ansible reads the inventory, if it is one of Ansible.
        repetitions: new number of repetitions, at least the number so far.
        aa: whether the given agenda is that of an A/A campaign.
        without: nodes to leave out: runs that are not finished are placed on the others, and suspect.
        choice: selection of runs, checked before anything is placed (`chosen_runs`).

    Raises:
        InputError: the folder contains no campaign, the campaign of another agenda, or one with more repetitions.
        UnfitError: this version would plan other runs.
    """
    document = read_record(folder)
    agenda, *_ = (part_of(document, key) for key in ("agenda", "seeds", "cluster", "resumed"))
    record = document.convert(CampaignRecord)
    clusters, notices = recorded_clusters(folder, document, record, inventory, without, meanwhile)
    begun = agenda_of(agenda)
    so_far = begun.value.repetitions
    if repetitions is not None and repetitions < so_far:
        raise InputError(f"--repetitions {repetitions}: {folder} has {so_far} repetitions already, which are kept")
    again = agenda_of(_repeated(agenda, repetitions))
    seeds = {} if record.seeds is None else record.seeds.runs
    chosen_runs(again.value, continued(planned_runs(again), [*seeds]), choice)
    planned = _planned(again, clusters, without)
    plan = planned({})
    plan = dataclasses.replace(plan, runs=tuple(continued(plan.runs, [*seeds])))
    if seeds != {run.name: run.seed for run in plan.runs if run.repetition <= so_far}:
        raise UnfitError(f"{folder}: this version of Millrace would do other runs than those of {CAMPAIGN_FILE}")
    if name_or_path is not None:
        # An inventory that has moved, or is no longer complete, has been compared node by node.
        moved = clusters if inventory is not None or without or notices else None
        _check_same(
            folder,
            plan,
            name_or_path,
            _plans(name_or_path, None, meanwhile, repetitions, aa, moved, left_out=without)({}),
        )
    hosts = next(iter(clusters.values())).hosts
    continuation = Continuation(
        **asdict(provenance()),
        reached_by=None if hosts is None else str(hosts.path.absolute()),
        left_out=tuple(without),
    )
    record = replace(
        record,
        agenda={**record.agenda, "repetitions": plan.agenda.repetitions},
        seeds=Seeds(plan.agenda.seed, {run.name: run.seed for run in plan.runs}),
        resumed=[*record.resumed, continuation],
    )
    profiling = profiling_runs(plan)
    opened = Opened(plan, folder.resolve(), record, is_new=False, replan=planned, profiling=profiling, notices=notices)
    return opened.with_profiles()


def _plans(
    name_or_path: str,
    inventory: str | None,
    meanwhile: Callable[[], object],
    repetitions: int | None,
    aa: bool,
    known: Mapping[str, ReadCluster] | None = None,
    choice: str | None = None,
    left_out: Sequence[str] = (),
) -> Callable[[Profiles], CampaignPlan]:
    """Read agenda and inventory; return a function that returns their plan, given the traffic of profiling runs.

    Clusters that are `known` are not read.
    """
    path = find_agenda(name_or_path)
    document = _repeated(read(path), repetitions)
    agenda = agenda_of(with_second_labels(document) if aa else document)
    agenda = _with_absolute_aa(agenda, path.parent)
    chosen_runs(agenda.value, planned_runs(agenda), choice)
    # An inventory in the agenda is relative to the agenda's folder, one on the command line to the working directory.
    clusters: Mapping[str, ReadCluster]
    if known is not None:
        clusters = known
    elif inventory is None:
        clusters = read_clusters(agenda, path.parent, meanwhile)
    elif INVENTORY in agenda.value.factors:
        raise InputError(
            f"--inventory: the inventory is a factor of this agenda ({(agenda.origin / 'factors' / INVENTORY).where}); "
            f"select a value: --only {INVENTORY}=VALUE"
        )
    else:
        clusters = {"": read_cluster(inventory, meanwhile)}
        agenda = Located(replace(agenda.value, inventory=inventory), agenda.origin)
    return _planned(agenda, clusters, left_out)


def _planned(
    agenda: Located[Agenda], clusters: Mapping[str, ReadCluster], left_out: Sequence[str] = ()
) -> Callable[[Profiles], CampaignPlan]:
    def planned(profiles: Profiles) -> CampaignPlan:
        return campaign_plan(agenda, *clusters.values(), inventories=[*clusters], profiles=profiles, left_out=left_out)

    return planned


def _repeated(agenda: Document, repetitions: int | None) -> Document:
    """Return the agenda with another number of repetitions; None keeps its own."""
    if repetitions is None or not isinstance(agenda.data, Mapping):
        return agenda
    return Document(agenda.source, {**agenda.data, "repetitions": repetitions}, agenda.lines)


def _with_absolute_aa(agenda: Located[Agenda], beside: Path) -> Located[Agenda]:
    """Return the agenda with the absolute path of its A/A campaign, which is relative to the agenda's folder."""
    if agenda.value.report.aa is None:
        return agenda
    # This imports pyarrow, which most campaigns need only later.
    from analysis.records.aa_rate import AA_FILE, read_false_positives

    folder, origin = (beside / agenda.value.report.aa).resolve(), agenda.origin / "report" / "aa"
    try:
        false_positives = read_false_positives(folder)
    except InputError as fault:
        raise origin.error(str(fault)) from None
    if false_positives is None:
        raise origin.error(f"{folder}: holds no {AA_FILE}; expected the folder of a campaign by millrace run --aa")
    return Located(replace(agenda.value, report=replace(agenda.value.report, aa=str(folder))), agenda.origin)


def _check_same(folder: Path, plan: CampaignPlan, name_or_path: str, again: CampaignPlan) -> None:
    # The path of the same cluster may differ; compare the content.
    theirs, ours = (_with_clusters(each) for each in (plan, again))
    different = [key for key in theirs if ours[key] != theirs[key]]
    if different:
        raise InputError(
            f"{name_or_path}: is not the agenda of {folder}, which has another {', '.join(different)}; "
            "leave the agenda out to go on with the campaign as it was begun"
        )


def _with_clusters(plan: CampaignPlan) -> dict[str, Any]:
    """Return the agenda with its clusters in place of the inventory's name."""
    return {**to_plain(plan.agenda), INVENTORY: to_plain({name: each.cluster for name, each in plan.clusters.items()})}


ROOT = Path(__file__).parents[2]


def provenance() -> Provenance:
    """Return version, commit, host and start of this process."""
    commit, dirty = git_state(ROOT)
    return Provenance(
        version=version("millrace"),
        git_commit=commit,
        git_dirty=dirty,
        host={**gather(), "python": platform.python_version()},
        started_utc=utc_stamp("seconds"),
    )


def git_state(root: Path) -> tuple[str | None, bool | None]:
    """Return the commit of the checkout at `root`, and whether its tracked files have changed since.

    Both are None if `root` itself is not a checkout; it may be installed inside another project's checkout.
    """
    if not (root / ".git").exists():
        return None, None
    try:
        commit = _git(root, "rev-parse", "HEAD")
        return commit, bool(_git(root, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return None, None


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, check=True, timeout=10, text=True)
    return done.stdout.strip()


EMULATED = 2
"""Tier of nodes that are namespaces of this host."""


def select_backend(cluster: Cluster, hosts: Hosts | None, owner: str, operator: CommandLineCallbacks) -> Backend:
    """Return the backend of `cluster`: over SSH if it comes from an Ansible inventory, emulated or not.

    Args:
        cluster: with addresses.
        hosts: the Ansible inventory of the cluster, if any.
        owner: description of the campaign for other controllers.
        operator: callbacks for backends that bring a cluster up.
    """
    if hosts is None:
        return LoopbackBackend(cluster)
    # Their imports take a second, which a cluster on this host does not need.
    if hosts.tier == EMULATED and os.geteuid() != 0:
        from controller.emulation.backend import LinksBackend

        return LinksBackend(cluster, hosts, operator)
    from controller.emulation.backend import EmulatedBackend
    from controller.ssh.backend import SshBackend

    if hosts.tier == EMULATED:
        return EmulatedBackend(cluster, hosts, owner, operator)
    return SshBackend(cluster, hosts, owner)
