"""Engine 1.1 against a reference implementation, and extreme numbers of input files."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from scheduling_rounds import shared_clusters, tenant_topologies

from inventory.cluster import Cluster, ExistingWorker, Node
from scheduler.algorithms.r_storm import RStorm, RStormParams
from scheduler.algorithms.resource_aware import Guarantee, ResourceAware, ResourceAwareParams
from scheduler.problem import Plan, Problem
from scheduler.ras.executor_order import by_connections
from scheduler.registry import Checked
from workloads.topology import Component, Topology


def place(problem: Problem, params: ResourceAwareParams) -> Plan:
    return Checked(ResourceAware, params).place(problem)


def reference_placement(problem: Problem) -> dict[str, tuple[str, int]] | None:
    """Place as Storm 1.1: racks and nodes are sorted once by the smaller share; the first slot that fits is taken.

    Of the nodes of a host only the first is used.
    """
    topology = problem.topologies[0]
    taken = {(worker.node, worker.slot) for worker in problem.existing}
    free = {
        node.id: [Fraction(repr(node.cpu_points)), Fraction(repr(node.memory_mb))] for node in problem.cluster.nodes
    }
    for worker in problem.existing:
        free[worker.node][0] -= 10 * len(worker.executors)
        free[worker.node][1] -= 128 * len(worker.executors)
    free = {name: [max(value, Fraction(0)) for value in amounts] for name, amounts in free.items()}
    first: dict[str, str] = {}
    racks: dict[str, list[str]] = {}
    for node in sorted(problem.cluster.nodes, key=lambda node: node.id):
        if first.setdefault(node.machine, node.id) == node.id:
            racks.setdefault(node.rack, []).append(node.id)

    def ranked(groups: dict[str, list[str]]) -> list[str]:
        sums = {
            name: [sum(free[node][resource] for node in group) for resource in (0, 1)] for name, group in groups.items()
        }
        total = [sum(amounts[resource] for amounts in sums.values()) for resource in (0, 1)]

        def key(name: str) -> tuple[Fraction, Fraction, str]:
            if not all(total):
                return Fraction(0), Fraction(0), name
            shares = [Fraction(amount) / whole for amount, whole in zip(sums[name], total, strict=True)]
            return -min(shares), -sum(shares, Fraction(0)), name

        return sorted(groups, key=key)

    nodes = [node for rack in ranked(racks) for node in ranked({name: [name] for name in racks[rack]})]
    slots = {
        node.id: [(node.id, i) for i in node.slot_order if (node.id, i) not in taken] for node in problem.cluster.nodes
    }
    heap: dict[tuple[str, int], Fraction] = {}
    slot_of: dict[str, tuple[str, int]] = {}
    for executor in by_connections(topology, topology.executors, largest_first=True):
        component = topology.component[executor.component]
        cpu = Fraction(repr(component.cpu_points))
        memory = Fraction(repr(component.onheap)) + Fraction(repr(component.offheap))
        slot = next(
            (
                slot
                for node in nodes
                if cpu <= free[node][0] and memory <= free[node][1]
                for slot in slots[node]
                if heap.get(slot, 0) + memory <= Fraction(repr(topology.worker_max_heap_mb))
            ),
            None,
        )
        if slot is None:
            return None
        heap[slot] = heap.get(slot, Fraction(0)) + memory
        free[slot[0]][0] -= cpu
        free[slot[0]][1] -= memory
        slot_of[executor.name] = slot
    return slot_of


@settings(deadline=None)
@given(shared_clusters(), tenant_topologies("t"), st.booleans())
def test_engine_1_1_agrees_with_the_reference_implementation(cluster: Cluster, topology: Topology, busy: bool) -> None:
    places = [(node.id, index) for node in cluster.nodes for index in range(node.slots)]
    existing = tuple(ExistingWorker("other", *slot, ("x[0]",)) for slot in places[: 1 if busy else 0])
    problem = Problem(replace(cluster, existing=existing), (topology,))
    placement = place(problem, ResourceAwareParams(engine="1.1")).placements["t"]
    expected = reference_placement(problem)
    assert {executor.name: tuple(slot) for executor, slot in placement.assignments.items()} == (expected or {})
    assert placement.status == ("failed" if expected is None else "placed")


AMOUNTS = st.sampled_from([0.0, 5e-324, 1e-300, 0.1, 1.0, 128.0, 1e16, 1e300, 1.7976931348623157e308])


@given(st.data())
def test_every_number_that_a_file_may_contain_is_accepted(data: st.DataObject) -> None:
    nodes = tuple(
        Node(id=f"n{at}", rack=f"r{at % 2}", slots=2, cpu=data.draw(AMOUNTS), memory_mb=data.draw(AMOUNTS))
        for at in range(data.draw(st.integers(1, 3)))
    )
    topologies = tuple(
        Topology(
            id=name,
            user=name,
            components=(Component("s", "spout", 3, cpu=data.draw(AMOUNTS), memory_mb=data.draw(AMOUNTS)),),
            worker_max_heap_mb=data.draw(AMOUNTS),
            uptime_s=data.draw(AMOUNTS),
        )
        for name in ("t", "u")
    )
    problem = Problem(Cluster(nodes), topologies)
    pools = {"t": Guarantee(data.draw(AMOUNTS), data.draw(AMOUNTS))}
    for engine in ("2.3", "1.1"):
        place(problem, ResourceAwareParams(engine=engine, user_pools=pools))
    place(problem, ResourceAwareParams(worker_min_cpu=data.draw(AMOUNTS), priority="fifo"))
    for variant in ("rstorm_paper", "780a472ad", "rstorm_1_0"):
        Checked(RStorm, RStormParams(variant, wc=data.draw(AMOUNTS), wn=data.draw(AMOUNTS))).place(problem)


@pytest.mark.parametrize("slots", [1, 65535])
def test_a_node_may_have_very_many_slots(slots: int) -> None:
    topology = Topology(id="t", components=(Component("s", "spout", 9000, cpu=0.0, memory_mb=500.0),))
    node = Node(id="n", slots=slots, memory_mb=1e9)
    placement = place(Problem(Cluster((node,)), (topology,)), ResourceAwareParams()).placements["t"]
    assert placement.status == ("placed" if slots > 9000 else "failed")
