"""Trial of a scheduler in its process: every round is solved several times."""

import msgspec
from msgspec.structs import replace

from campaign.admin.checks.rounds import Round, rounds_for
from campaign.admin.checks.trial import TrialReporter
from inventory.cluster import Cluster
from inventory.documents import to_plain
from inventory.errors import InputError, MillraceError
from scheduler.placement_file import make_placement_file
from scheduler.problem import Needs, Problem
from scheduler.registry import make_scheduler
from scheduler.validation import Checked
from workloads.traffic import Traffic

PLANS, PURE, PROBLEM, NEEDS = "plans", "purity", "problem", "needs"

NOTHING_PLACED = ""
"""Placements of a round that a scheduler has refused."""


def try_scheduler(name: str, reporter: TrialReporter, only_answers: bool) -> None:
    """Report the answers of the scheduler `name` and, unless `only_answers`, its faults."""
    needs = make_scheduler(name).needs
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
                reporter.fault(PURE, f"{label}: {whom} answers differently the second time: {difference(first, again)}")
        _try_needs(trial, needs, made, first)
    if not placed:
        reporter.fault(PLANS, f"it places nothing in any of {len(rounds)} rounds")
    reporter.note(PLANS, f"{len(rounds)} rounds, something placed in {placed}")


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


def difference(one: str, other: str) -> str:
    """Return a description of how two answers differ."""
    if one[0] != "{" or other[0] != "{":
        return f"{_short(one)}; then {_short(other)}"
    first, second = msgspec.json.decode(one), msgspec.json.decode(other)
    for topology, entry in first["topologies"].items():
        here = {a["executor"]: f"{a['node']}/{a['slot']}" for a in entry["assignments"]}
        there = {a["executor"]: f"{a['node']}/{a['slot']}" for a in second["topologies"][topology]["assignments"]}
        for executor in sorted({*here, *there}):
            places = here.get(executor, "nowhere"), there.get(executor, "nowhere")
            if places[0] != places[1]:
                return f"{executor} of {topology} is on {places[0]}, then on {places[1]}"
    return "in " + ", ".join(repr(key) for key in first if first[key] != second[key])


def _short(answer: str) -> str:
    return "a plan" if answer[0] == "{" else answer
