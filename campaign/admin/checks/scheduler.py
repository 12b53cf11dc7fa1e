"""Checks of a scheduler: valid plans, the same for the same problem, in time, and only from declared input.

An online scheduler is also asked to revise (`campaign.admin.checks.revisions`).
"""

from collections.abc import Callable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from campaign.admin.checks.revisions import (
    ENCODING,
    OBSERVED,
    REPLAY,
    REVISIONS,
    needs_faults,
    rhythm_faults,
    try_revisions,
)
from campaign.admin.checks.trial import (
    CALL_S,
    Check,
    Trial,
    TrialEndedError,
    TrialReporter,
    check_interface,
    first_difference,
    run_trial,
    try_interface,
)
from inventory.cluster import Cluster, ExistingWorker, Node
from inventory.documents import to_plain
from inventory.errors import InputError, MillraceError
from inventory.plugins import find_plugin
from scheduler.online.validation import rhythm_of
from scheduler.placement_file import make_placement_file
from scheduler.problem import Needs, Problem
from scheduler.registry import GROUP, Checked, make_scheduler, scheduler_class
from workloads.topology import Component, Input, Topology
from workloads.traffic import Edge, Traffic

Round = Callable[[], Problem]
"""Function that makes a new problem, which shares no object with others."""


def rounds_for(needs: Needs) -> Mapping[str, Round]:
    """Return rounds by description, for a scheduler with these needs: with traffic and, unless required, without."""
    plain: dict[str, Round] = {
        "a chain on five equal nodes": lambda: Problem(_equal(5), (_chain("chain", 2, 4, 3),)),
        "a diamond on unequal nodes, one of them not available": lambda: Problem(_unequal(), (_diamond(),)),
        "two topologies on few slots": lambda: Problem(_equal(2), (_chain("one", 2, 3), _chain("two", 1, 4, 2))),
        "nodes on which workers run already": lambda: Problem(_running(), (_chain("chain", 2, 4, 3),)),
        "a cluster without a free slot": lambda: Problem(_full(), (_chain("chain", 1, 2),)),
        "twenty executors on six nodes": lambda: Problem(_equal(6), (_chain("wide", 4, 8, 6, 2),)),
    }
    if needs.cycles:
        plain["a topology with a cycle"] = lambda: Problem(_equal(3), (_cycle(),))
    without_traffic = {} if needs.traffic == "required" else plain
    return {**without_traffic, **{f"{what}, with traffic": _with_traffic(made) for what, made in plain.items()}}


def _with_traffic(made: Round) -> Round:
    def observed() -> Problem:
        problem = made()
        return Problem(problem.cluster, problem.topologies, _observed(problem))

    return observed


def _observed(problem: Problem) -> Traffic:
    """Return different rates and loads for all executors whose names are unique."""
    names = [executor.name for topology in problem.topologies for executor in topology.executors]
    pairs = [
        (source.name, target.name)
        for topology in problem.topologies
        for source, target in topology.pairs()
        if names.count(source.name) == names.count(target.name) == 1
    ]
    edges = tuple(Edge(*pair, float(1 + at * 37 % 100), float(64 * (1 + at % 5))) for at, pair in enumerate(pairs))
    load = {name: float(2 + at * 7 % 19) for at, name in enumerate(names) if names.count(name) == 1}
    return Traffic(edges, load, {node.id: 0.25 for node in problem.cluster.nodes})


def _node(number: int, slots: int = 4, cores: int = 4, ghz: float = 2.4, available: bool = True) -> Node:
    return Node(
        id=f"n{number}",
        address=f"127.0.0.{number + 1}",
        rack=f"r{number % 2}",
        slots=slots,
        cores=cores,
        ghz=ghz,
        flops_per_cycle=8,
        ram_gb=4.0 + number,
        memory_mb=8192.0,
        available=available,
    )


def _equal(count: int) -> Cluster:
    return Cluster(tuple(_node(number) for number in range(1, count + 1)))


def _unequal() -> Cluster:
    return Cluster(
        (_node(10, 2, 2, 1.8), _node(2, 4, 8, 3.4), _node(3, 1, 4, 2.0, available=False), _node(1, 3, 4, 2.8))
    )


def _running() -> Cluster:
    existing = (
        ExistingWorker("other", "n1", 0, ("x[0]", "x[1]")),
        ExistingWorker("chain", "n2", 1, ("a[0]", "b[0]", "b[1]")),
    )
    return Cluster(_equal(4).nodes, existing=existing)


def _full() -> Cluster:
    return Cluster((_node(1, 1),), existing=(ExistingWorker("other", "n1", 0, ("x[0]",)),))


def _chain(name: str, *parallelism: int) -> Topology:
    ids = [f"{name[0]}{at}" if name != "chain" else "abcdef"[at] for at in range(len(parallelism))]
    components = [
        Component(ids[at], "bolt" if at else "spout", size, inputs=(Input(ids[at - 1]),) if at else ())
        for at, size in enumerate(parallelism)
    ]
    return Topology(name, tuple(components), workers=3)


def _diamond() -> Topology:
    components = (
        Component("source", "spout", 2, cpu=20.0),
        Component("left", "bolt", 3, cpu=30.0, memory_mb=256.0, inputs=(Input("source", "fields", ("key",)),)),
        Component("right", "bolt", 2, inputs=(Input("source", "all"),)),
        Component("sink", "bolt", 1, inputs=(Input("left", "global"), Input("right"))),
        Component("__acker", "bolt", 1),
    )
    return Topology("diamond", components, workers=4)


def _cycle() -> Topology:
    components = (
        Component("source", "spout", 2),
        Component("ahead", "bolt", 2, inputs=(Input("source"), Input("back"))),
        Component("back", "bolt", 2, inputs=(Input("ahead"),)),
    )
    return Topology("cycle", components, workers=2)


PLANS, PURE, PROBLEM, NEEDS = "plans", "purity", "problem", "needs"


def try_class(name: str, reporter: TrialReporter) -> None:
    """Report what is wrong about the class of the scheduler `name`, or why no instance of it can be made."""

    def faults(kind: type) -> Iterator[str]:
        yield from needs_faults(kind.needs)  # type: ignore[attr-defined]  # of every scheduler's class
        yield from rhythm_faults(kind)

    try_interface(reporter, lambda: scheduler_class(name), lambda: make_scheduler(name), faults)


def try_scheduler(name: str, reporter: TrialReporter, only_answers: bool) -> None:
    """Report the answers of the scheduler `name` and, unless `only_answers`, its faults."""
    made_first = make_scheduler(name)
    needs = made_first.needs
    revises = rhythm_of(made_first) is not None
    if revises:
        reporter.note(REVISIONS, "")
    placed, rounds = 0, rounds_for(needs)
    for label, made in rounds.items():
        trial = _RoundTrial(name, label, reporter)
        ready, problem = make_scheduler(name), made()
        first = trial.answer(ready, problem)
        reporter.answer(label, first)
        if only_answers:
            continue
        placed += '"assignments":[{' in first
        changed = _changed(problem, made())
        if changed:
            reporter.fault(PROBLEM, f"{label}: it changes {changed}")
        for whom, other in (("the same instance", ready), ("a second instance", make_scheduler(name))):
            again = trial.answer(other, made())
            if again != first:
                reporter.fault(
                    PURE, f"{label}: {whom} answers differently the second time: {answer_difference(first, again)}"
                )
        _try_needs(trial, needs, made, first)
    if not placed:
        reporter.fault(PLANS, f"it places nothing in any of {len(rounds)} rounds")
    reporter.note(PLANS, f"{len(rounds)} rounds, something placed in {placed}")
    if revises:
        try_revisions(name, reporter, only_answers)


class _RoundTrial:
    """Trial of one round; a fault of its plan is reported once."""

    def __init__(self, name: str, label: str, reporter: TrialReporter) -> None:
        self.label, self.reporter = label, reporter
        self._name = name
        self._failed = False

    def answer(self, ready: Checked, problem: Problem) -> str:
        """Return the placement document with a time of 0, or why there is none."""
        try:
            with self.reporter.call(self.label):
                plan = ready.place(problem)
            document = to_plain(make_placement_file(ready.name, ready.params, problem, plan, 0.0))
        except InputError as fault:
            return f"refused: {fault}"
        except MillraceError as fault:
            if not self._failed:
                self.reporter.fault(PLANS, f"{self.label}: {fault}")
            self._failed = True
            return f"failed: {type(fault).__name__}"
        return msgspec.json.encode(document).decode()

    def again(self, problem: Problem) -> str:
        """Return the answer of a new instance."""
        return self.answer(make_scheduler(self._name), problem)


def _try_needs(trial: _RoundTrial, needs: Needs, made: Round, usual: str) -> None:
    """Report input that changes placements although the scheduler declares it as ignored."""
    problem = made()
    traffic = problem.traffic
    without: dict[str, Problem] = {}
    if traffic is not None and needs.traffic == "ignored":
        without["traffic"] = Problem(problem.cluster, problem.topologies)
    elif traffic is not None and not needs.load:
        without["load"] = Problem(problem.cluster, problem.topologies, Traffic(traffic.edges))
    if not needs.hardware:
        without["hardware"] = Problem(_bare(problem.cluster), problem.topologies, traffic)
    for what, poorer in without.items():
        if _placements(trial.again(poorer)) != _placements(usual):
            declared = 'traffic="used"' if what == "traffic" else f"{what}=True"
            trial.reporter.fault(
                NEEDS, f"{trial.label}: without {what} it places differently, and `needs` does not say {declared}"
            )


def _placements(answer: str) -> object:
    """Return only the placements of an answer."""
    return msgspec.json.decode(answer)["topologies"] if answer[0] == "{" else answer


def _bare(cluster: Cluster) -> Cluster:
    nodes = tuple(replace(node, ghz=None, flops_per_cycle=None, ram_gb=None) for node in cluster.nodes)
    return replace(cluster, nodes=nodes)


def _changed(problem: Problem, fresh: Problem) -> str:
    """Return which part of a problem has changed, including its cached views."""
    pairs = [
        ("the cluster", problem.cluster, fresh.cluster),
        *(("a node", *pair) for pair in zip(problem.cluster.nodes, fresh.cluster.nodes, strict=True)),
        *(("a topology", *pair) for pair in zip(problem.topologies, fresh.topologies, strict=True)),
        ("the traffic", problem.traffic, fresh.traffic),
    ]
    for what, now, before in pairs:
        if now is None or before is None:
            continue
        if now != before:
            return what
        for view, value in vars(now).items():
            if value != getattr(before, view):
                return f"{what}: its view {view!r}"
    return ""


def answer_difference(one: str, other: str) -> str:
    """Return a description of how two answers differ."""
    if one[0] != "{" or other[0] != "{":
        return f"{_short(one)}; then {_short(other)}"
    first, second = msgspec.json.decode(one), msgspec.json.decode(other)
    for topology, entry in first.get("topologies", {}).items():
        here = {a["executor"]: f"{a['node']}/{a['slot']}" for a in entry["assignments"]}
        there = {a["executor"]: f"{a['node']}/{a['slot']}" for a in second["topologies"][topology]["assignments"]}
        for executor in sorted({*here, *there}):
            places = here.get(executor, "nowhere"), there.get(executor, "nowhere")
            if places[0] != places[1]:
                return f"{executor} of {topology} is on {places[0]}, then on {places[1]}"
    return "in " + ", ".join(repr(key) for key in first if first[key] != second[key])


def _short(answer: str) -> str:
    return "a plan" if answer[0] == "{" else answer


PARTS = ("all", "answers")
"""Arguments of the two processes, each with a hash seed of its own."""

HOLDS = {
    PURE: "the same answer from the same instance, from a second one, and in another process",
    PROBLEM: "no problem is changed",
    NEEDS: "input that `needs` declares as ignored has no influence",
    ENCODING: "the same answers with and without JSON between a run and the scheduler's process",
    REPLAY: "a second instance that is asked the same questions answers the same",
    OBSERVED: "neither problems nor observations are changed",
}


def check_scheduler(name: str) -> Iterator[Check]:
    """Check the scheduler `name` with its default parameters.

    Raises:
        InputError: no such scheduler.
        UnfitError: two packages have one of that name.
    """
    find_plugin(GROUP, name)
    interface = check_interface("scheduler", name, "it is a scheduler, and every parameter has a default")
    yield interface
    if not interface.ok:
        return
    trials: list[Trial] = []
    death = ""
    for seed, part in enumerate(PARTS, 1):
        try:
            trials.append(run_trial(["scheduler", name, part], seed))
        except TrialEndedError as died:
            if PLANS not in died.trial.notes:
                yield Check(PLANS, False, str(died))
                return
            # All plans are made; it has died in a revision.
            death = death or str(died)
            trials.append(died.trial)
        if trials[-1].calling or trials[-1].faults:
            break
    first = trials[0]
    wrong = first.fault_of(PLANS)
    yield Check(PLANS, not wrong, wrong or first.notes.get(PLANS, "every plan is valid"))
    yield _in_time(trials)
    yield _unless_overdue(PURE, first.fault_of(PURE) or _apart(trials), trials)
    for check in (PROBLEM, NEEDS):
        yield _unless_overdue(check, first.fault_of(check), trials)
    if REVISIONS not in first.notes:
        return
    wrong = first.fault_of(REVISIONS) or death
    yield _unless_overdue(REVISIONS, wrong, trials, first.notes.get(REVISIONS, ""))
    for check in (ENCODING, REPLAY, OBSERVED):
        if wrong:
            yield Check(check, False, "unknown: a revision is wrong")
        else:
            yield _unless_overdue(check, first.fault_of(check), trials)


def _in_time(trials: list[Trial]) -> Check:
    overdue = next((trial.calling for trial in trials if trial.calling), "")
    if overdue:
        return Check("time", False, f"{overdue}: no answer within {CALL_S:g} s")
    seconds, what = max(trial.longest for trial in trials)
    return Check("time", True, f"at most {seconds:.3f} s ({what}); {CALL_S:g} s are allowed")


def _apart(trials: list[Trial]) -> str:
    """Return the first answer that differs between two processes, or an empty string."""
    difference = first_difference(trials)
    if difference is None:
        return ""
    label, one, other = difference
    return f"{label}: another process with another hash seed answers differently: {answer_difference(one, other)}"


def _unless_overdue(name: str, fault: str, trials: list[Trial], holds: str = "") -> Check:
    if not fault and any(trial.calling for trial in trials):
        return Check(name, False, "unknown: a call took too long")
    return Check(name, not fault, fault or holds or HOLDS[name])
