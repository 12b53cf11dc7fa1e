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


def with_available(names: set[str]) -> Cluster:
    return Cluster(tuple(replace(node, available=node.id in names) for node in CLUSTER.nodes))


def placed(topology: Topology, names: set[str]) -> Observation:
    """A run that was placed on these nodes, with its schedule."""
    plan = make_scheduler("pipeline-linear").place(Problem(with_available(names), (topology,)))
    places = {e.name: f"{slot.node}/{slot.index}" for e, slot in plan.placements["t"].assignments.items()}
    return replace(observed(60, places, {}, cluster=with_available(names)), schedule=plan.schedule)


def revise(topology: Topology, observation: Observation, names: set[str]) -> Revision:
    ready = make_online_scheduler("pipeline-linear", None)
    revision = ready.revise(round_at(observation, topology, with_available(names)), observation)
    assert revision is not None
    return revision


def apply_revision(observation: Observation, revision: Revision) -> Observation:
    moved = {move.executor.name: move.target for move in revision.moves}
    executors = {
        name: replace(found, node=moved[name].node, slot=moved[name].index) if name in moved else found
        for name, found in observation.executors.items()
    }
    schedule = observation.schedule if revision.schedule is None else revision.schedule
    return replace(observation, executors=executors, schedule=schedule, changes=())


ALL_NODES = {"n1", "n2", "n3", "n4"}


def test_it_revises_only_after_changes() -> None:
    rhythm = rhythm_of(make_online_scheduler("pipeline-linear", None))
    assert rhythm is not None
    assert (rhythm.first_s, rhythm.ask_s) == (None, None)


@pytest.mark.parametrize("names", [ALL_NODES, {"n1", "n3"}])
def test_an_unchanged_run_is_not_revised(names: set[str]) -> None:
    topology = chain(4, (3, 4, 3))
    revision = revise(topology, placed(topology, names), names)
    assert (revision.changes, revision.text) == (False, "the plan is what runs")


@pytest.mark.parametrize("gated", [True, False])
def test_a_lost_node_leads_to_the_plan_for_the_others(gated: bool) -> None:
    topology = chain(4, (3, 4, 3))
    observation = placed(topology, ALL_NODES)
    remaining = ALL_NODES - {"n2"}
    node_states = {name: replace(node, available=name in remaining) for name, node in observation.nodes.items()}
    schedule = observation.schedule if gated else None
    observation = replace(
        observation, nodes=node_states, schedule=schedule, changes=(Change.of(55, "node_down", "n2"),)
    )
    revision = revise(topology, observation, remaining)
    assert revision.reason == "nodes"
    later = apply_revision(observation, revision)
    assert {slot.node for slot in later.places.values()} <= remaining
    if gated:
        assert revision.schedule is not None
        assert set(revision.schedule.nodes) == remaining
    else:
        assert revision.schedule is None
    assert not revise(topology, later, remaining).changes


def test_scaled_components_are_distributed_again() -> None:
    topology = chain(4, (4, 5, 4))
    before = placed(chain(4, (3, 4, 3)), ALL_NODES)
    places = {e.name: "n1/0" for e in topology.executors}
    places |= {name: f"{slot.node}/{slot.index}" for name, slot in before.places.items()}
    scaled = replace(observed(60, places, {}, cluster=CLUSTER), schedule=before.schedule)
    observation = replace(scaled, changes=(Change.of(55, "scale", "b"),))
    revision = revise(topology, observation, ALL_NODES)
    assert revision.reason == "scale"
    assert revision.moves
    later = apply_revision(observation, revision)
    assert not revise(topology, later, ALL_NODES).changes
    placed_anew = placed(topology, ALL_NODES)
    per_node = [sorted(slot.node for slot in found.places.values()) for found in (later, placed_anew)]
    assert sorted(map(per_node[0].count, ALL_NODES)) == sorted(map(per_node[1].count, ALL_NODES))
