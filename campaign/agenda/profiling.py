"""Profiling runs of a campaign: which ones it needs, and the plan of these runs.

There is one for each workload, cluster and scheduler of the profile that differ; combinations of factors that change
none of them share it.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from campaign.agenda.agenda import SchedulerEntry
from campaign.agenda.application import Application
from campaign.agenda.campaign_plan import CampaignPlan
from campaign.agenda.plan import CombinationPlan, PlacedWorkload
from campaign.agenda.profile import ProfileEntry
from campaign.agenda.run_order import PlannedRun, run_seed
from inventory.documents import Origin, dump_json
from inventory.errors import InputError
from scheduler.registry import Checked, make_scheduler
from workloads.rates import Constant

REPETITION = 0
"""Repetition of profiling runs, whose seeds differ from those of the measured runs."""


@dataclass(frozen=True)
class ProfilingRun:
    """A profiling run.

    Attributes:
        run: the run, at the first combination of factors that uses it.
        combinations: all combinations of factors that use it, as text.
        scheduler: the scheduler of its placement.
        placed: the placement.
        measured_s: length of the measured interval.
    """

    run: PlannedRun
    combinations: tuple[str, ...]
    scheduler: Checked
    placed: PlacedWorkload
    measured_s: float

    def serves(self, run: PlannedRun) -> bool:
        """Return whether its traffic is that of a measured run's workload and cluster."""
        return run.workload == self.run.workload and run.combination in self.combinations


def profiling_runs(plan: CampaignPlan) -> tuple[ProfilingRun, ...]:
    """Return the profiling runs of a campaign, in the order of its workloads; none without `profile`.

    Raises:
        InputError: a workload cannot be placed for its profile.
    """
    entry = plan.agenda.profile
    if entry is None:
        return ()
    used: dict[str, list[PlannedRun]] = {}
    schedulers: dict[str, Checked] = {}
    order = {label: at for at, label in enumerate(plan.agenda.labels)}
    combinations = {combination: at for at, combination in enumerate(plan.plans)}
    cpus = {label: at for at, label in enumerate(plan.agenda.cpu_labels)}
    for run in sorted(plan.runs, key=lambda run: (order[run.workload], combinations[run.combination], cpus[run.cpu])):
        here = plan.at(run)
        if plan.uses_profile(run):
            _check_rate(here.applications[run.workload])
            scheduler = _scheduler_of(entry, here)
            same = _what_matters(run, here, scheduler)
            used.setdefault(same, []).append(run)
            schedulers[same] = scheduler
    profiling = []
    for number, (same, runs) in enumerate(used.items(), 1):
        first, scheduler = runs[0], schedulers[same]
        name = f"profile-{number:03d}-{first.workload}"
        seed = run_seed(plan.agenda.seed, first.workload, REPETITION)
        run = first._replace(number=number, scheduler=entry.scheduler, repetition=REPETITION, name=name, seed=seed)
        shared = tuple(dict.fromkeys(each.combination for each in runs))
        placed = _placed(plan.at(first), first.workload, scheduler)
        profiling.append(ProfilingRun(run, shared, scheduler, placed, entry.duration_s))
    return tuple(profiling)


def profiling_plan(plan: CampaignPlan, profiling: Sequence[ProfilingRun]) -> CampaignPlan:
    """Return the plan of these profiling runs: without events, gates and revisions, measured by the sensor `cpu`."""
    first = profiling[0]
    agenda = replace(
        plan.agenda,
        duration_s=first.measured_s,
        schedulers=(
            SchedulerEntry(name=first.scheduler.name, label=first.run.scheduler, params=first.scheduler.params),
        ),
        on_failure=replace(plan.agenda.on_failure, then="stop"),
        timeline=(),
        search=None,
        sensors=("cpu",),
    )
    plans: dict[str, CombinationPlan] = {}
    for each in profiling:
        key, pair = each.run.combination, (each.run.workload, each.run.scheduler)
        here = plans.get(key) or dataclasses.replace(
            plan.plans[key],
            agenda=agenda,
            placed={},
            unplaced={},
            events={},
            schedulers={each.run.scheduler: each.scheduler},
            online={},
            gating={},
            awaiting=frozenset(),
            profiled={},
        )
        plans[key] = dataclasses.replace(
            here,
            placed={**here.placed, pair: each.placed},
            events={**here.events, pair: ()},
        )
    return CampaignPlan(agenda, plan.clusters, plans, tuple(each.run for each in profiling), left_out=plan.left_out)


def _check_rate(application: Application) -> None:
    """Check that the rate of a profiling run is known before loads are calibrated.

    Raises:
        InputError: it is a load.
    """
    rate = application.rate
    if isinstance(rate, Constant) and rate.load is not None:
        raise (application.origin / "rate" / "load").error(
            "loads are calibrated after profiling runs, which need the rate; give tuples_per_s, or leave out `profile`"
        )


def _scheduler_of(entry: ProfileEntry, plan: CombinationPlan) -> Checked:
    """Return the scheduler of profiling runs.

    Raises:
        InputError: it needs observed traffic itself.
    """
    scheduler = plan.schedulers.get(entry.scheduler) or make_scheduler(entry.scheduler)
    if scheduler.needs.traffic == "required":
        raise _origin(plan).error(
            f"the scheduler {entry.scheduler!r} needs observed traffic, which profiling runs find out; "
            "give one that does not, like 'even'"
        )
    return scheduler


def _what_matters(run: PlannedRun, plan: CombinationPlan, scheduler: Checked) -> str:
    """Return, as text, all that the traffic of a profiling run depends on."""
    application = plan.applications[run.workload]
    return dump_json(
        [
            run.inventory,
            run.workload,
            application.params,
            application.rate,
            application.topology,
            plan.cluster,
            scheduler.name,
            scheduler.params,
        ]
    )


def _placed(plan: CombinationPlan, label: str, scheduler: Checked) -> PlacedWorkload:
    try:
        return plan.place(label, scheduler)
    except InputError as fault:
        raise _origin(plan).error(f"the profile cannot be placed: {fault}") from None


def _origin(plan: CombinationPlan) -> Origin:
    document = next(iter(plan.applications.values())).origin.document
    return Origin(document) / "profile" / "scheduler"
