"""`pipeline-linear` while a topology runs: a new plan when nodes or numbers of executors change, else nothing."""

import pytest
from msgspec.structs import replace
from observed_rounds import chain, nodes, observed, round_at

from inventory.cluster import Cluster
from scheduler.online.observation import Change, Observation
from scheduler.online.revision import Revision
from scheduler.online.validation import make_online_scheduler, rhythm_of
from scheduler.problem import Problem
from scheduler.registry import make_scheduler
from workloads.topology import Topology

CLUSTER = nodes(4, capacity=None)


def within(names: set[str]) -> Cluster:
    return Cluster(tuple(replace(node, available=node.id in names) for node in CLUSTER.nodes))


def placed(topology: Topology, names: set[str]) -> Observation:
    """A run that was placed on these nodes, with its schedule."""
    plan = make_scheduler("pipeline-linear").place(Problem(within(names), (topology,)))
    places = {e.name: f"{slot.node}/{slot.index}" for e, slot in plan.placements["t"].assignments.items()}
    return replace(observed(60, places, {}, cluster=within(names)), schedule=plan.schedule)


def revise(topology: Topology, observation: Observation, names: set[str]) -> Revision:
    ready = make_online_scheduler("pipeline-linear", None)
    revision = ready.revise(round_at(observation, topology, within(names)), observation)
    assert revision is not None
    return revision


def after(observation: Observation, revision: Revision) -> Observation:
    moved = {move.executor.name: move.target for move in revision.moves}
    executors = {
        name: replace(found, node=moved[name].node, slot=moved[name].index) if name in moved else found
        for name, found in observation.executors.items()
    }
    schedule = observation.schedule if revision.schedule is None else revision.schedule
    return replace(observation, executors=executors, schedule=schedule, changes=())


ALL = {"n1", "n2", "n3", "n4"}


def test_it_is_asked_at_changes_only() -> None:
    rhythm = rhythm_of(make_online_scheduler("pipeline-linear", None))
    assert rhythm is not None
    assert (rhythm.first_s, rhythm.ask_s) == (None, None)


@pytest.mark.parametrize("names", [ALL, {"n1", "n3"}])
def test_what_runs_as_it_was_placed_stays(names: set[str]) -> None:
    topology = chain(4, (3, 4, 3))
    revision = revise(topology, placed(topology, names), names)
    assert (revision.changes, revision.text) == (False, "the plan is what runs")


@pytest.mark.parametrize("gated", [True, False])
def test_a_node_that_goes_leads_to_the_plan_for_the_others(gated: bool) -> None:
    topology = chain(4, (3, 4, 3))
    observation = placed(topology, ALL)
    left = ALL - {"n2"}
    found = {name: replace(node, available=name in left) for name, node in observation.nodes.items()}
    schedule = observation.schedule if gated else None
    observation = replace(observation, nodes=found, schedule=schedule, changes=(Change.of(55, "node_down", "n2"),))
    revision = revise(topology, observation, left)
    assert revision.reason == "nodes"
    later = after(observation, revision)
    assert {slot.node for slot in later.places.values()} <= left
    if gated:
        assert revision.schedule is not None
        assert set(revision.schedule.nodes) == left
    else:
        assert revision.schedule is None
    assert not revise(topology, later, left).changes


def test_components_with_other_numbers_of_executors_are_distributed_anew() -> None:
    topology = chain(4, (4, 5, 4))
    ran = placed(chain(4, (3, 4, 3)), ALL)
    places = {e.name: "n1/0" for e in topology.executors}
    places |= {name: f"{slot.node}/{slot.index}" for name, slot in ran.places.items()}
    grown = replace(observed(60, places, {}, cluster=CLUSTER), schedule=ran.schedule)
    observation = replace(grown, changes=(Change.of(55, "scale", "b"),))
    revision = revise(topology, observation, ALL)
    assert revision.reason == "scale"
    assert revision.moves
    later = after(observation, revision)
    assert not revise(topology, later, ALL).changes
    fresh = placed(topology, ALL)
    per_node = [sorted(slot.node for slot in found.places.values()) for found in (later, fresh)]
    assert sorted(map(per_node[0].count, ALL)) == sorted(map(per_node[1].count, ALL))
