"""Placements from the files of `millrace place`: one scheduler, or several on the same round."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from msgspec import UNSET, UnsetType
from msgspec.structs import replace as replaced

from inventory.cluster import Cluster
from inventory.documents import Located, Origin
from inventory.errors import InputError, MillraceError, RunError, UnfitError, nearest
from inventory.plugins import parameter_rows
from inventory.power_index import LackingNodeError
from inventory.reading import ReadCluster, with_links
from scheduler.explain.alternatives import MemoryRules, Why, explain_executor, find_executor
from scheduler.explain.best_known import find_best_known
from scheduler.explain.explanation import Explanation, LowerBound, compute_lower_bound, explain_plan
from scheduler.placement_file import PlacementFile, make_placement_file
from scheduler.problem import Aim, Needs, Plan, Problem, Scheduler, load_problem
from scheduler.registry import Checked, make_scheduler, scheduler_class
from scheduler.toolkit.objective import aim_of, check_aim
from workloads.topology import Topology
from workloads.traffic import Traffic

ANYTHING = Needs(traffic="used", cycles=True, shrinks=True)
"""Needs that every round with valid files meets."""


@dataclass(frozen=True)
class Round:
    """The files of a scheduling round.

    Attributes:
        cluster: the cluster file.
        topologies: the topology files, in order.
        traffic: the traffic file, if given, or what is derived from a load document.
        explain: whether placements are explained.
        why: executor whose alternatives are asked for, or None.
        is_derived: whether the traffic is derived.
    """

    cluster: Located[Cluster]
    topologies: Sequence[Located[Topology]]
    traffic: Located[Traffic] | None
    explain: bool
    why: str | None = None
    is_derived: bool = False

    def problem(self, needs: Needs) -> Problem:
        """Return the problem for a scheduler with these needs."""
        return load_problem(needs, self.cluster, self.topologies, self.traffic)


@dataclass(frozen=True)
class PlacedProblem:
    """A scheduler's plan for a problem, and its document."""

    problem: Problem
    plan: Plan
    answer: PlacementFile

    @property
    def document(self) -> PlacementFile:
        """The document that `--json` prints."""
        return self.answer


@dataclass(frozen=True)
class PlacementRefused:
    """A scheduler that cannot place the round, and why."""

    scheduler: str
    fault: MillraceError

    @property
    def document(self) -> dict[str, str]:
        """The document that `--json` prints."""
        return {"scheduler": self.scheduler, "error": str(self.fault)}


def place(ready: Checked, given: Round, least: LowerBound | None = None, aim: Aim | None = None) -> PlacedProblem:
    """Place a round with one scheduler.

    Args:
        ready: the scheduler.
        given: the round.
        least: its lower bound; None: computed if it is needed.
        aim: the objective by which the plan is judged, if the scheduler has none itself.

    Raises:
        MillraceError: the files are invalid, the scheduler cannot place such a round, or it failed.
    """
    given = _with_links(given, aim_of(ready.params) or aim)
    problem = given.problem(ready.needs)
    asked = find_executor(problem, given.why) if given.why is not None else None
    try:
        start = perf_counter()
        plan = ready.place(problem)
        elapsed_s = perf_counter() - start
        aim = plan.aim or aim
        if aim is not None:
            check_aim(problem, aim)
    except LackingNodeError as fault:
        raise _located(fault, given) from None
    account: Explanation | UnsetType = UNSET
    if given.explain:
        account = explain_plan(problem, plan, compute_lower_bound(problem) if least is None else least)
    why: Why | UnsetType = UNSET
    if asked is not None:
        memory = MemoryRules(ready.needs.memory, getattr(ready.inner, "heap", None))
        why = explain_executor(problem, plan, *asked, aim, memory)
    derived = problem.traffic if given.is_derived else None
    answer = make_placement_file(ready.name, ready.params, problem, plan, elapsed_s, account, why, aim, derived=derived)
    return PlacedProblem(problem, plan, answer)


def _located(fault: LackingNodeError, given: Round) -> InputError:
    """Return the error with file and line of the node."""
    at = [node.id for node in given.cluster.value.nodes].index(fault.node)
    return (given.cluster.origin / "nodes" / at).error(str(fault))


def _with_links(given: Round, aim: Aim | None) -> Round:
    """Return the round with the links of its inventory, if the objective uses them."""
    if aim is None or aim.hops != "links" or not isinstance(given.cluster, ReadCluster):
        return given
    return replace(given, cluster=with_links(given.cluster))


def compare_schedulers(names: Sequence[str], given: Round, *sources: Origin) -> list[PlacedProblem | PlacementRefused]:
    """Place the same round with several schedulers, one after the other, with gaps to the best known placement.

    A parameter is passed to every scheduler that has one of that name.

    Args:
        names: names of the schedulers.
        given: the round.
        sources: origins of mappings of parameters; later ones take precedence.

    Raises:
        InputError: the files are invalid, a scheduler is unknown, or no scheduler has a parameter of that name.
    """
    classes: dict[str, type[Scheduler] | PlacementRefused] = {name: _kind(name) for name in names}
    kinds = {name: kind for name, kind in classes.items() if not isinstance(kind, PlacementRefused)}
    everyone = {entry["name"] for kind in kinds.values() for entry in parameter_rows(kind.Params)}
    for source in sources:
        if not isinstance(source.plain, Mapping | None):
            raise source.error("a mapping of parameters was expected")
        for key in source.plain or ():
            if str(key).replace(".", "_") not in everyone:
                raise (source / key).error(f"unknown parameter {key!r}{nearest(key, everyone)}")
    ready = {name: make_scheduler(name, *sources, ignore_unknown=True) for name in kinds}
    aim = next((aim for each in ready.values() if (aim := aim_of(each.params)) is not None), None)
    given = _with_links(given, aim)
    everything = given.problem(ANYTHING)
    if aim is not None:
        try:
            check_aim(everything, aim)
        except LackingNodeError as fault:
            raise _located(fault, given) from None
    least = compute_lower_bound(everything) if given.explain else None
    outcomes: list[PlacedProblem | PlacementRefused] = []
    for name, kind in classes.items():
        if isinstance(kind, PlacementRefused):
            outcomes.append(kind)
            continue
        try:
            outcomes.append(place(ready[name], given, least, aim))
        except MillraceError as fault:
            outcomes.append(PlacementRefused(name, fault))
    return _with_gaps(outcomes, everything, least, aim)


def _with_gaps(
    outcomes: Sequence[PlacedProblem | PlacementRefused], everything: Problem, least: LowerBound | None, aim: Aim | None
) -> list[PlacedProblem | PlacementRefused]:
    """Return the outcomes with the best known placement and the gap of each plan to it."""
    plans = {each.answer.scheduler: (each.problem, each.plan) for each in outcomes if isinstance(each, PlacedProblem)}
    known = find_best_known(plans, everything, least, aim) if plans else {}
    return [
        replace(each, answer=replaced(each.answer, best_known=known[each.answer.scheduler]))
        if isinstance(each, PlacedProblem)
        else each
        for each in outcomes
    ]


def _kind(name: str) -> type[Scheduler] | PlacementRefused:
    try:
        return scheduler_class(name)
    except UnfitError as fault:
        return PlacementRefused(name, fault)


def listed_schedulers(first: str | None, text: str) -> list[str]:
    """Return the names of a list like `even,top-storm`, after `first` if it is given and not in the list.

    Raises:
        InputError: a name is missing or given twice.
    """
    names = [name.strip() for name in text.split(",")]
    for at, name in enumerate(names):
        if not name:
            raise InputError(f"--compare: got {text!r}: a name is missing; expected NAME,NAME,...")
        if name in names[:at]:
            raise InputError(f"--compare: {name!r} is named twice")
    return names if first is None or first in names else [first, *names]


def status_of(outcomes: Sequence[PlacedProblem | PlacementRefused]) -> int:
    """Return the exit status of a comparison: 1 if a scheduler failed; that of the first if none can place."""
    statuses = [outcome.fault.exit_status for outcome in outcomes if isinstance(outcome, PlacementRefused)]
    if RunError.exit_status in statuses:
        return RunError.exit_status
    return statuses[0] if len(statuses) == len(outcomes) else 0
