"""`replan` in runs that follow a communication schedule: it changes with the plan."""

import pytest
from msgspec.structs import replace
from observed_rounds import SKEWED_RATES, SPREAD_PLACEMENT, chain, nodes, observed, round_at

from inventory.cluster import Cluster
from scheduler.online.observation import Observation
from scheduler.online.replanner import Replan
from scheduler.online.revision import Revision
from scheduler.online.validation import make_online_scheduler
from scheduler.problem import CommunicationSchedule, Problem
from scheduler.registry import make_scheduler

CLUSTER = nodes()
PLANNERS = ["pipeline-linear", "pmod"]


def within(observation: Observation, names: set[str]) -> Observation:
    """The window with these nodes available only."""
    found = {name: replace(node, available=name in names) for name, node in observation.nodes.items()}
    return replace(observation, nodes=found)


def start(name: str, available: set[str]) -> Observation:
    """A run that has started as the scheduler places it on these nodes."""
    cluster = Cluster(tuple(replace(node, available=node.id in available) for node in CLUSTER.nodes))
    plan = make_scheduler(name).place(Problem(cluster, (chain(),)))
    (placement,) = plan.placements.values()
    places = {executor.name: f"{slot.node}/{slot.index}" for executor, slot in placement.assignments.items()}
    return within(replace(observed(60, places), schedule=plan.schedule), available)


def revise(name: str, observation: Observation, **rules: float) -> Revision:
    made = make_online_scheduler(name, Replan(**rules))
    revision = made.revise(round_at(observation, cluster=CLUSTER), observation)
    assert revision is not None
    return revision


def after(observation: Observation, revision: Revision) -> Observation:
    executors = dict(observation.executors)
    for move in revision.moves:
        name, (node, slot) = move.executor.name, (move.target.node, move.target.index)
        executors[name] = replace(executors[name], node=node, slot=slot)
    return replace(observation, executors=executors, schedule=revision.schedule or observation.schedule, at_s=999.0)


@pytest.mark.parametrize("name", PLANNERS)
def test_the_plan_that_runs_needs_no_other_schedule(name: str) -> None:
    assert not revise(name, start(name, {"n1", "n2"})).changes


@pytest.mark.parametrize("name", PLANNERS)
def test_executors_leave_a_node_and_the_schedule_with_them(name: str) -> None:
    begun = start(name, {"n1", "n2", "n3"})
    gone = within(begun, {"n1", "n3"})
    revision = revise(name, gone)
    assert revision.reason == "nodes"
    assert revision.schedule is not None
    assert set(revision.schedule.nodes) == {"n1", "n3"}
    assert revision.schedule.unserved is None
    later = after(gone, revision)
    assert {slot.node for slot in later.places.values()} <= {"n1", "n3"}
    assert not revise(name, later).changes


def test_other_steps_of_the_plan_are_followed_though_nobody_moves() -> None:
    begun = start("pmod", {"n1", "n2"})
    other = CommunicationSchedule(("n1", "n2"), ((1, 0), (0, 1)), 1)
    assert begun.schedule is not None
    revision = revise("pmod", replace(begun, schedule=other))
    assert (revision.reason, revision.moves, revision.schedule) == ("schedule", (), begun.schedule)


@pytest.mark.parametrize("name", PLANNERS)
def test_a_node_that_comes_joins_the_schedule_though_nobody_moves_to_it(name: str) -> None:
    joined = within(start(name, {"n1", "n2"}), {"n1", "n2", "n3"})
    revision = revise(name, joined, min_gain_percent=99.0)
    assert (revision.reason, revision.moves) == ("schedule", ())
    assert revision.schedule is not None
    assert set(revision.schedule.nodes) == {"n1", "n2", "n3"}
    assert not revise(name, after(joined, revision), min_gain_percent=99.0).changes


def test_the_schedule_has_the_names_of_the_nodes_that_the_groups_run_on() -> None:
    begun = start("pipeline-linear", {"n1", "n2", "n3"})
    swapped = {"n1": "n2", "n2": "n3", "n3": "n1"}
    places = {name: f"{swapped[slot.node]}/{slot.index}" for name, slot in begun.places.items()}
    assert begun.schedule is not None
    turned = replace(observed(60, places), schedule=begun.schedule)
    revision = revise("pipeline-linear", turned)
    assert (revision.reason, revision.moves) == ("schedule", ())
    assert revision.schedule is not None
    assert revision.schedule.nodes == tuple(swapped[node] for node in begun.schedule.nodes)
    assert revision.schedule.steps == begun.schedule.steps


@pytest.mark.parametrize("name", ["even", *PLANNERS])
def test_nodes_do_not_join_while_others_leave(name: str) -> None:
    # n3 has come without being used; then n1 goes.
    two = CommunicationSchedule(("n1", "n2"), ((0, 1), (1, 0)), 1)
    observation = within(
        replace(observed(60, SPREAD_PLACEMENT, SKEWED_RATES, cluster=CLUSTER), schedule=two), {"n2", "n3"}
    )
    roomy = nodes(capacity=6.0)
    made = make_online_scheduler(name, Replan())
    revision = made.revise(round_at(observation, cluster=roomy), observation)
    assert revision is not None
    assert revision.reason == "nodes"
    assert {move.target.node for move in revision.moves} == {"n2"}
    assert revision.schedule is None or revision.schedule.nodes == ("n2",)


@pytest.mark.parametrize("name", PLANNERS)
def test_a_run_without_gates_gets_no_schedule(name: str) -> None:
    begun = replace(start(name, {"n1", "n2", "n3"}), schedule=None)
    assert revise(name, within(begun, {"n1", "n2"})).schedule is None
