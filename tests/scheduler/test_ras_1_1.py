"""Differences of Storm 1.1's resource-aware scheduler from that of 2.x."""

from dataclasses import replace as with_params

from scheduling_rounds import next_round

from inventory.cluster import Cluster, ExistingWorker, Node
from scheduler.algorithms.resource_aware import Guarantee, ResourceAware, ResourceAwareParams
from scheduler.problem import Plan, Problem
from scheduler.ras.executor_order import by_connections
from scheduler.registry import Checked
from workloads.topology import Component, Input, Topology

PARAMS = ResourceAwareParams(engine="1.1", user_pools={"u": Guarantee(50.0, 4000.0)})


def place(problem: Problem, params: ResourceAwareParams = PARAMS) -> Plan:
    return Checked(ResourceAware, params).place(problem)


def topology(name: str, executors: int = 1, cpu: float = 100.0, user: str = "u", priority: int = 0) -> Topology:
    spout = Component("s", "spout", executors, cpu=cpu, memory_mb=100.0)
    return Topology(id=name, components=(spout,), user=user, priority=priority)


def place_newcomers(problem: Problem, *newcomers: Topology, params: ResourceAwareParams = PARAMS) -> Plan:
    """Place `newcomers` while the topologies of `problem` run as they are placed."""
    running = Problem(next_round(problem, place(problem, params)).cluster, problem.topologies + newcomers)
    return place(running, params)


def nodes_of(plan: Plan, name: str) -> list[str]:
    return sorted(slot.node for slot in plan.placements[name].assignments.values())


def components_of(graph: Topology, largest_first: bool) -> list[str]:
    return [executor.component for executor in by_connections(graph, graph.executors, largest_first)]


def test_after_an_eviction_nodes_have_the_order_of_the_first_attempt() -> None:
    cluster = Cluster((Node(id="a", cpu=100.0, memory_mb=4000.0), Node(id="b", cpu=300.0, memory_mb=4000.0)))
    low, high = topology("low", cpu=250.0, priority=30), topology("high", 4, cpu=50.0, priority=1)
    plan = place_newcomers(Problem(cluster, (low,)), high)
    assert nodes_of(plan, "high") == ["a", "a", "b", "b"]


def test_the_first_of_the_submitters_less_important_topologies_is_evicted_not_the_last() -> None:
    cluster = Cluster((Node(id="n", cpu=300.0, memory_mb=4000.0),))
    plan = place_newcomers(
        Problem(cluster, tuple(topology(f"p{priority}", priority=priority) for priority in (10, 20, 30))),
        topology("high", priority=1),
    )
    assert plan.details["scheduling_order"] == ["high", "p10", "p20", "p30"]
    assert [name for name, placement in plan.placements.items() if placement.status == "failed"] == ["p30"]


def test_connections_count_once_per_stream() -> None:
    graph = Topology(
        id="t",
        components=(
            Component("s", "spout", 2),
            Component("p", "bolt", 2, inputs=(Input("s"), Input("s", stream="other"))),
            Component("z", "spout", 2),
            Component("q", "bolt", 3, inputs=(Input("z"),)),
        ),
    )
    assert components_of(graph, largest_first=True)[:4] == ["p", "s", "p", "s"]
    assert components_of(graph, largest_first=False)[:4] == ["q", "z", "q", "z"]


def test_a_component_that_feeds_itself_is_its_own_neighbour() -> None:
    graph = Topology(
        id="t",
        components=(Component("s", "spout", 1), Component("m", "bolt", 3, inputs=(Input("s"), Input("m")))),
    )
    assert components_of(graph, largest_first=True) == ["m", "m", "s", "m"]
    assert components_of(graph, largest_first=False) == ["m", "s", "m", "m"]


def test_only_the_first_node_of_a_host_is_used() -> None:
    shared = [Node(id=name, host="h", cpu=100.0, memory_mb=4000.0) for name in "ab"]
    alone = Node(id="c", cpu=100.0, memory_mb=4000.0)
    assert nodes_of(place(Problem(Cluster((*shared, alone)), (topology("t", 2),))), "t") == ["a", "c"]
    assert place(Problem(Cluster(tuple(shared)), (topology("t", 2),))).placements["t"].status == "failed"


def test_without_any_cpu_nodes_are_ordered_by_id() -> None:
    cluster = Cluster(tuple(Node(id=name, cpu=0.0, memory_mb=mb) for name, mb in (("a", 1000.0), ("b", 2000.0))))
    assert nodes_of(place(Problem(cluster, (topology("t", cpu=0.0),))), "t") == ["a"]


def test_a_pool_that_is_used_less_comes_first_however_small_the_difference() -> None:
    pools = {"a": Guarantee(10000.0, 200.0), "b": Guarantee(5000.0, 200.0)}
    params = with_params(PARAMS, user_pools=pools)
    cluster = Cluster((Node(id="n", cpu=100000.0, memory_mb=4000.0),))
    running = (topology("a", cpu=5000.0, user="a"), topology("b", cpu=2499.9, user="b"))
    plan = place_newcomers(Problem(cluster, running), topology("a2", user="a"), topology("b2", user="b"), params=params)
    assert plan.details["scheduling_order"] == ["b2", "a2"]


def test_the_order_of_racks_is_that_of_the_first_topology_that_waits() -> None:
    # In the order of 2.x, the running topology of the other user would come first, with its rack r1.
    cluster = Cluster(
        (Node(id="a", rack="r1"), Node(id="b", rack="r2")),
        existing=(ExistingWorker("runs", "a", 0, ("s[0]",)), ExistingWorker("waits", "b", 0, ("s[0]",))),
    )
    plan = place(Problem(cluster, (topology("runs", user="t"), topology("waits", 2, user="u"))))
    assert plan.details["scheduling_order"] == ["waits"]
    assert plan.details["rack_order"] == ["r2", "r1"]
