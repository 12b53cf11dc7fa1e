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


def with_available(observation: Observation, names: set[str]) -> Observation:
    """Return the window with only these nodes available."""
    node_states = {name: replace(node, available=name in names) for name, node in observation.nodes.items()}
    return replace(observation, nodes=node_states)


def start(name: str, available: set[str]) -> Observation:
    """Return the first window of a run that the scheduler placed on these nodes."""
    cluster = Cluster(tuple(replace(node, available=node.id in available) for node in CLUSTER.nodes))
    plan = make_scheduler(name).place(Problem(cluster, (chain(),)))
    (placement,) = plan.placements.values()
    places = {executor.name: f"{slot.node}/{slot.index}" for executor, slot in placement.assignments.items()}
    return with_available(replace(observed(60, places), schedule=plan.schedule), available)


def revise(name: str, observation: Observation, **rules: float) -> Revision:
    scheduler = make_online_scheduler(name, Replan(**rules))
    revision = scheduler.revise(round_at(observation, cluster=CLUSTER), observation)
    assert revision is not None
    return revision


def apply_revision(observation: Observation, revision: Revision) -> Observation:
    executors = dict(observation.executors)
    for move in revision.moves:
        name, (node, slot) = move.executor.name, (move.target.node, move.target.index)
        executors[name] = replace(executors[name], node=node, slot=slot)
    return replace(observation, executors=executors, schedule=revision.schedule or observation.schedule, at_s=999.0)


@pytest.mark.parametrize("name", PLANNERS)
def test_the_current_plan_keeps_its_schedule(name: str) -> None:
    assert not revise(name, start(name, {"n1", "n2"})).changes


@pytest.mark.parametrize("name", PLANNERS)
def test_a_lost_node_leaves_the_schedule_with_its_executors(name: str) -> None:
    observation = start(name, {"n1", "n2", "n3"})
    without_n2 = with_available(observation, {"n1", "n3"})
    revision = revise(name, without_n2)
    assert revision.reason == "nodes"
    assert revision.schedule is not None
    assert set(revision.schedule.nodes) == {"n1", "n3"}
    assert revision.schedule.unserved is None
    later = apply_revision(without_n2, revision)
    assert {slot.node for slot in later.places.values()} <= {"n1", "n3"}
    assert not revise(name, later).changes


def test_a_plan_with_other_steps_changes_the_schedule_without_moves() -> None:
    observation = start("pmod", {"n1", "n2"})
    other = CommunicationSchedule(("n1", "n2"), ((1, 0), (0, 1)), 1)
    assert observation.schedule is not None
    revision = revise("pmod", replace(observation, schedule=other))
    assert (revision.reason, revision.moves, revision.schedule) == ("schedule", (), observation.schedule)


@pytest.mark.parametrize("name", PLANNERS)
def test_a_new_node_joins_the_schedule_without_moves(name: str) -> None:
    joined = with_available(start(name, {"n1", "n2"}), {"n1", "n2", "n3"})
    revision = revise(name, joined, min_gain_percent=99.0)
    assert (revision.reason, revision.moves) == ("schedule", ())
    assert revision.schedule is not None
    assert set(revision.schedule.nodes) == {"n1", "n2", "n3"}
    assert not revise(name, apply_revision(joined, revision), min_gain_percent=99.0).changes


def test_the_schedule_has_the_names_of_the_nodes_that_the_groups_run_on() -> None:
    observation = start("pipeline-linear", {"n1", "n2", "n3"})
    swapped = {"n1": "n2", "n2": "n3", "n3": "n1"}
    places = {name: f"{swapped[slot.node]}/{slot.index}" for name, slot in observation.places.items()}
    assert observation.schedule is not None
    swapped_run = replace(observed(60, places), schedule=observation.schedule)
    revision = revise("pipeline-linear", swapped_run)
    assert (revision.reason, revision.moves) == ("schedule", ())
    assert revision.schedule is not None
    assert revision.schedule.nodes == tuple(swapped[node] for node in observation.schedule.nodes)
    assert revision.schedule.steps == observation.schedule.steps


@pytest.mark.parametrize("name", ["even", *PLANNERS])
def test_nodes_do_not_join_while_others_leave(name: str) -> None:
    # n3 has joined without being used; then n1 leaves.
    two = CommunicationSchedule(("n1", "n2"), ((0, 1), (1, 0)), 1)
    observation = with_available(
        replace(observed(60, SPREAD_PLACEMENT, SKEWED_RATES, cluster=CLUSTER), schedule=two), {"n2", "n3"}
    )
    roomy = nodes(capacity=6.0)
    scheduler = make_online_scheduler(name, Replan())
    revision = scheduler.revise(round_at(observation, cluster=roomy), observation)
    assert revision is not None
    assert revision.reason == "nodes"
    assert {move.target.node for move in revision.moves} == {"n2"}
    assert revision.schedule is None or revision.schedule.nodes == ("n2",)


@pytest.mark.parametrize("name", PLANNERS)
def test_a_run_without_gates_gets_no_schedule(name: str) -> None:
    observation = replace(start(name, {"n1", "n2", "n3"}), schedule=None)
    assert revise(name, with_available(observation, {"n1", "n2"})).schedule is None
