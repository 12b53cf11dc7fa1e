"""Output of `millrace run --dry-run`: the runs, their placements, and the time and disk space that they need."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any

import click
from rich.filesize import decimal

from campaign.agenda.agenda import AUTO
from campaign.agenda.plan import CombinationPlan
from campaign.agenda.profiling import ProfilingRun, profiling_plan
from campaign.agenda.run_order import PlannedRun
from campaign.agenda.search import CALIBRATION
from campaign.results.estimate import (
    AGENTS_S,
    BRING_UP_S,
    START_S,
    Estimate,
    calibrations_left,
    estimate,
    report_s,
    trials_of,
)
from campaign.results.live_file import duration_text
from campaign.results.result_store import ResultStore
from campaign.runner.open_campaign import EMULATED, Opened
from inventory.ansible_hosts import Hosts
from inventory.documents import dump_json
from inventory.foreign import escaped
from scheduler.explain.worker_loads import count_text


def print_plan(opened: Opened, runs: Sequence[PlannedRun], with_report: bool = True) -> None:
    """Print the runs in order, profiling runs first, then every placement once, and the estimate."""
    plan = opened.plan
    profiling = _profiling(opened, runs)
    widest = max((len(run.name) for run in [*runs, *(each.run for each in profiling)]), default=0)
    for each in profiling:
        click.echo(escaped(f"{each.run.name:<{widest}}  {_profile_in_words(opened, each)}"))
    for run in runs:
        reason = plan.why_unplaced(run)
        notes = [*([run.combination] * bool(run.factors)), f"left out: {reason}" if reason else f"seed {run.seed}"]
        click.echo(escaped(f"{run.name:<{widest}}  {'  '.join(notes)}"))
    placed = [run for run in runs if not plan.why_unplaced(run)]
    shown: dict[tuple[str, str, str], PlannedRun] = {}
    for run in placed:
        shown.setdefault((run.combination, run.workload, run.scheduler), run)
    for run in shown.values():
        _print_placement(opened, run)
    todo = _todo(opened, runs)
    counts = [f"{len(placed)} runs"]
    counts += [f"{len(placed) - len(todo)} of them done"] * (len(todo) < len(placed))
    counts += [f"{len(runs) - len(placed)} left out"] * (len(placed) < len(runs))
    pending = opened.unprofiled(runs)
    counts += [f"{len(pending)} profiling run{'s' * (len(pending) > 1)} before them"] * bool(pending)
    estimated = _estimate(opened, runs)
    trials = trials_of(plan)
    counts += [f"each a search of at most {trials} trials"] * (trials > 1)
    calibrations = calibrations_left(plan, todo, opened.folder)
    click.echo()
    for name in calibrations:
        click.echo(escaped(f"before them: calibration of the load of {name}, at most {CALIBRATION.most_trials} trials"))
    about = "at most" if trials > 1 or calibrations or plan.agenda.warmup_s == AUTO else "about"
    around = _around(opened, runs, with_report)
    total_s = estimated.seconds + sum(around.values())
    click.echo(f"{', '.join(counts)}: {about} {duration_text(total_s)}, {decimal(estimated.size_bytes)} of results")
    click.echo(_basis(opened, estimated))
    if around:
        parts = " and ".join(f"{duration_text(seconds)} for {what}" for what, seconds in around.items())
        click.echo(f"(in addition to the runs, assumed {parts})")
    compared = _comparisons(placed)
    if compared.repetitions < compared.needed:
        click.echo(
            f"{compared.repetitions} repetitions are too few for conclusions: with {compared.number} comparisons per "
            f"metric, differences can be found from {compared.needed} repetitions on"
        )
    click.echo("nothing was started")


@dataclass(frozen=True)
class _Comparisons:
    """Pairs of schedulers per metric, fewest repetitions of a pair, and from which number on differences are found."""

    number: int
    repetitions: int
    needed: int


def _comparisons(placed: Sequence[PlannedRun]) -> _Comparisons:
    """Count all pairs of schedulers within each workload and combination, as the report compares them."""
    # It loads SciPy.
    from analysis.statistics.comparison import fewest_repetitions
    from analysis.statistics.intervals import ENOUGH

    repetitions: dict[tuple[str, str, str], dict[str, int]] = {}
    for run in placed:
        of_scheduler = repetitions.setdefault((run.workload, run.combination, run.cpu), {})
        of_scheduler[run.scheduler] = of_scheduler.get(run.scheduler, 0) + 1
    pairs = [min(pair) for each in repetitions.values() for pair in combinations(each.values(), 2)]
    if not pairs:
        return _Comparisons(0, 0, 0)
    return _Comparisons(len(pairs), min(pairs), max(ENOUGH, fewest_repetitions(len(pairs))))


def _around(opened: Opened, runs: Sequence[PlannedRun], with_report: bool) -> dict[str, float]:
    """Return what a campaign does before and after its runs -> assumed seconds."""
    plan, todo = opened.plan, _todo(opened, runs)
    seconds: dict[str, float] = {"the start": START_S + AGENTS_S} if todo else {}
    down = [name for name in dict.fromkeys(run.inventory for run in todo) if _is_brought_up(plan.clusters[name].hosts)]
    if down:
        seconds["bringing the cluster up and provisioning it"] = BRING_UP_S * len(down)
    if with_report and todo:
        seconds["the report"] = report_s(len([run for run in runs if not plan.why_unplaced(run)]))
    return seconds


def _is_brought_up(hosts: Hosts | None) -> bool:
    """Return whether the campaign brings these hosts up: an emulated cluster that is down."""
    if hosts is None or hosts.tier != EMULATED or os.geteuid() != 0:
        return False
    from controller.emulation.cluster import running_cluster

    return running_cluster(hosts, as_asked=False) is None


def runs_json(opened: Opened, runs: Sequence[PlannedRun], with_report: bool = True) -> str:
    """Return the runs and the estimate as JSON."""
    plan = opened.plan
    estimated = _estimate(opened, runs)
    rows = [
        {
            "name": run.name,
            "workload": run.workload,
            "scheduler": run.scheduler,
            "cpu": run.cpu or None,
            "factors": dict(run.factors),
            "repetition": run.repetition,
            "placed": not plan.why_unplaced(run),
            "reason": plan.why_unplaced(run),
            **_asked(plan.at(run), run),
            **({"most_trials": trials_of(plan)} if plan.agenda.search else {}),
        }
        for run in runs
    ]
    pending = opened.unprofiled(runs)
    profiling = [
        {
            "name": each.run.name,
            "workload": each.run.workload,
            "scheduler": each.run.scheduler,
            "runs": [run.name for run in runs if each.serves(run) and plan.uses_profile(run)],
            "done": each not in pending,
        }
        for each in _profiling(opened, runs)
    ]
    compared = _comparisons([run for run in runs if not plan.why_unplaced(run)])
    return dump_json(
        {
            "profiling": profiling,
            "runs": rows,
            "seconds": round(estimated.seconds + sum(_around(opened, runs, with_report).values()), 1),
            "bytes": estimated.size_bytes,
            "comparisons": asdict(compared),
        }
    )


def _asked(plan: CombinationPlan, run: PlannedRun) -> dict[str, Any]:
    """Return when the online scheduler of a run is asked, all null and 0 times if only at changes; {} without one."""
    if run.scheduler not in plan.online:
        return {}
    questions = plan.online[run.scheduler].questions(plan.agenda.longest_warmup_s + plan.agenda.duration_s)
    nothing = {"first_s": None, "every_s": None, "times": 0}
    return {"asked": nothing if questions is None else questions._asdict()}


def _asked_in_words(plan: CombinationPlan, scheduler: str) -> str:
    questions = plan.online[scheduler].questions(plan.agenda.longest_warmup_s + plan.agenda.duration_s)
    if questions is None or not questions.times:
        return "asked at changes only"
    times = f"{questions.times} time{'s' * (questions.times > 1)}"
    return f"asked first at {questions.first_s:g} s, then every {questions.every_s:g} s: {times}, and at changes"


def _profiling(opened: Opened, runs: Sequence[PlannedRun]) -> list[ProfilingRun]:
    """Return the profiling runs that these runs use."""
    users = [run for run in runs if opened.plan.uses_profile(run)]
    return [each for each in opened.profiling if any(each.serves(run) for run in users)]


def _profile_in_words(opened: Opened, profiling: ProfilingRun) -> str:
    pending = opened.unprofiled(opened.plan.runs)
    if profiling not in pending:
        return f"placed by {profiling.run.scheduler}; done"
    agenda = profiling_plan(opened.plan, [profiling]).agenda
    return f"placed by {profiling.run.scheduler}; {agenda.warmup_in_words}, {agenda.duration_s:g} s measured"


def _estimate(opened: Opened, runs: Sequence[PlannedRun]) -> Estimate:
    """Return the estimate for runs that are not done, with their profiling runs."""
    estimated = estimate(opened.plan, _todo(opened, runs), opened.folder)
    pending = opened.unprofiled(runs)
    if not pending:
        return estimated
    profiles = estimate(profiling_plan(opened.plan, pending), [each.run for each in pending], opened.folder)
    return replace(
        estimated, seconds=estimated.seconds + profiles.seconds, size_bytes=estimated.size_bytes + profiles.size_bytes
    )


def _todo(opened: Opened, runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Return the runs that are placed and have no good result yet."""
    store = ResultStore(opened.folder)
    return [run for run in runs if not opened.plan.why_unplaced(run) and not store.is_done(run.name)]


def _basis(opened: Opened, estimated: Estimate) -> str:
    """Describe what the estimate is based on."""
    agenda = opened.plan.agenda
    each = f"per {'trial' if agenda.search else 'run'} {agenda.warmup_in_words}, {agenda.duration_s:g} s measured"
    if estimated.measured_runs:
        return (
            f"({each}, {estimated.overhead_s:.1f} s before and after; the latter, and bytes per second, "
            f"are means of {estimated.measured_runs} earlier runs of this campaign)"
        )
    idle = agenda.idle.settle_s + agenda.idle.measure_s if agenda.idle.measure_s and "power" in agenda.sensors else 0.0
    metered = f"; {2 * idle:g} s more on nodes with a power meter" if idle else ""
    return (
        f"({each}, and assumed {estimated.overhead_s:.1f} s before and after{metered}; "
        "bytes are assumed by executors and seconds)"
    )


def _print_placement(opened: Opened, run: PlannedRun) -> None:
    plan, workload, scheduler = opened.plan.at(run), run.workload, run.scheduler
    where = f" at {escaped(run.combination)}" if run.factors else ""
    if opened.plan.awaits_profile(run):
        name = next(each.run.name for each in opened.profiling if each.serves(run))
        click.echo(f"\n{workload} by {scheduler}{where}: placed after {name}, with its traffic and loads")
        return
    placed = plan.placed[workload, scheduler]
    answer, cost = placed.answer, placed.answer.cost
    notes = [
        *([f"online: {_asked_in_words(plan, scheduler)}"] if scheduler in plan.online else []),
        *([f"placed by {answer.scheduler}"] if answer.scheduler != scheduler else []),
        *([f"traffic: {placed.traffic}"] if placed.traffic else []),
        *(["cost by derived traffic and loads"] if answer.traffic and not placed.traffic else []),
        *([f"not given: {', '.join(placed.not_given)}"] if placed.not_given else []),
        *(topology.note for topology in answer.topologies.values() if topology.note),
    ]
    noted = f" ({'; '.join(notes)})" if notes else ""
    click.echo(
        f"\n{workload} by {scheduler}{noted}{where}: {cost.nodes_used} nodes, {cost.slots_used} slots, "
        f"{cost.inter_node_edges} executor pairs between nodes; overloaded nodes {cost.overloaded_nodes}, "
        f"workers {count_text(cost.overloaded_workers, cost.undetermined_workers)}"
    )
    slots: dict[tuple[str, int], list[str]] = {}
    for entry in (entry for topology in answer.topologies.values() for entry in topology.assignments):
        slots.setdefault((entry.node, entry.slot), []).append(entry.executor)
    for (node, slot), executors in slots.items():
        click.echo(escaped(f"  {node} slot {slot}: {' '.join(executors)}"))
