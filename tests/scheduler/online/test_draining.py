"""Draining of nodes by the runtime."""

from collections.abc import Mapping

from msgspec.structs import replace
from observed_rounds import chain, nodes, observed

from inventory.cluster import Cluster, ExistingWorker
from scheduler.online.replanner import drain
from scheduler.online.validation import revision_faults
from scheduler.problem import Problem
from workloads.topology import Topology


def targets(
    places: Mapping[str, str],
    drained: str = "n1",
    cluster: Cluster | None = None,
    topology: Topology | None = None,
) -> dict[str, str]:
    """Return executor -> target node/slot, after validating the revision."""
    cluster = nodes() if cluster is None else cluster
    observation = observed(60, places, {}, cluster=cluster)
    node_states = {name: replace(node, available=name not in drained) for name, node in observation.nodes.items()}
    observation = replace(observation, nodes=node_states)
    problem = Problem(cluster, (topology or chain(),))
    revision = drain(problem, observation)
    if revision is None:
        return {}
    unavailable = tuple(replace(node, available=node.id not in drained) for node in cluster.nodes)
    round_ = Problem(replace(cluster, nodes=unavailable), problem.topologies)
    assert revision_faults(round_, observation, revision) == []
    assert revision.reason == "nodes"
    return {m.executor.name: f"{m.target.node}/{m.target.index}" for m in revision.moves}


def test_the_node_with_the_fewest_executors_of_the_component_comes_first() -> None:
    places = {"s[0]": "n2/0", "s[1]": "n3/1", "b[0]": "n2/0", "b[1]": "n1/0", "k[0]": "n3/1", "k[1]": "n3/1"}
    assert targets(places) == {"b[1]": "n3/1"}


def test_then_the_fewest_executors_then_the_order_of_the_file() -> None:
    places = {"s[0]": "n1/0", "s[1]": "n1/0", "b[0]": "n2/0", "b[1]": "n3/0", "k[0]": "n3/0", "k[1]": "n2/0"}
    # Two each: s[0] to the first in the file, then s[1] to the node without executors of its component.
    assert targets(places) == {"s[0]": "n2/0", "s[1]": "n3/0"}
    one_more = {**places, "k[1]": "n3/0"}
    assert targets({**one_more, "s[1]": "n2/0", "b[0]": "n1/0", "s[0]": "n3/0"}) == {"b[0]": "n2/0"}


def test_nodes_that_are_not_in_use_stay_empty_and_the_lowest_worker_takes_them() -> None:
    places = dict.fromkeys(("s[0]", "s[1]", "b[0]"), "n1/0") | {"b[1]": "n2/1", "k[0]": "n2/1", "k[1]": "n2/1"}
    assert set(targets(places).values()) == {"n2/1"}


def test_if_no_other_node_is_in_use_all_available_nodes_count_without_slots_of_other_topologies() -> None:
    places = dict.fromkeys(("s[0]", "s[1]", "b[0]", "b[1]", "k[0]", "k[1]"), "n1/0")
    cluster = replace(nodes(), existing=(ExistingWorker("other", "n2", 0),))
    assert targets(places, cluster=cluster) == {
        "s[0]": "n2/1",
        "s[1]": "n3/0",
        "b[0]": "n2/1",
        "b[1]": "n3/0",
        "k[0]": "n2/1",
        "k[1]": "n3/0",
    }


def test_nothing_moves_when_no_executor_has_to_or_no_node_has_room() -> None:
    places = dict.fromkeys(("s[0]", "s[1]", "b[0]", "b[1]", "k[0]", "k[1]"), "n1/0")
    assert targets(places, drained="n2") == {}
    assert targets(places, drained="n1 n2 n3") == {}
