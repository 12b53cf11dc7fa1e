"""The strategies of `resource-aware` against a reference implementation, and worked examples."""

from collections.abc import Sequence
from dataclasses import replace as with_params
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from msgspec.structs import replace
from scheduling_rounds import by_slot, shared_clusters, tenant_topologies

from inventory.cluster import Cluster, ExistingWorker, Node
from scheduler.algorithms.resource_aware import ResourceAware, ResourceAwareParams
from scheduler.problem import Plan, Problem
from scheduler.ras.executor_order import ackers_last, by_connections, by_proximity, by_severity
from scheduler.registry import Checked
from workloads.topology import ACKER, Component, Constraints, Executor, Input, Topology

Place = tuple[str, int]


def exact(value: float) -> Fraction:
    return Fraction(repr(value))


class BruteForceStrategy:
    """One attempt to place the waiting executors of the only topology of a problem."""

    def __init__(self, problem: Problem, params: Any, order: Sequence[Executor]) -> None:
        self.topology: Topology = problem.topologies[0]
        self.params = params
        self.order = list(order)
        self.nodes = sorted(problem.cluster.available, key=lambda node: node.id)
        self.old = {(w.node, w.slot): w for w in problem.existing}
        self.new: dict[Place, list[Executor]] = {}
        self.bound: list[Executor] = []
        self.states = 0

    def component(self, name: str) -> Component:
        return self.topology.component[name]

    def cost(self, workers: Sequence[tuple[str, Sequence[str]]]) -> tuple[Fraction, Fraction]:
        cpu = memory = Fraction(0)
        for owner, components in workers:
            known = owner == self.topology.id
            points = sum(
                (exact(self.component(c).cpu_points) if known else Fraction(10) for c in components), Fraction()
            )
            memory += sum(
                (
                    exact(self.component(c).onheap) + exact(self.component(c).offheap) if known else Fraction(128)
                    for c in components
                ),
                Fraction(),
            )
            cpu += max(points, exact(self.params.worker_min_cpu)) if components else points
        return cpu, memory

    def workers_on(self, node: str) -> list[tuple[str, list[str]]]:
        old = [
            (w.topology, [name.split("[")[0] for name in w.executors])
            for (where, _), w in self.old.items()
            if where == node
        ]
        mine = [(self.topology.id, [e.component for e in es]) for (where, _), es in self.new.items() if where == node]
        return old + mine

    def left(self, node: Any) -> tuple[Fraction, Fraction]:
        cpu, memory = self.cost(self.workers_on(node.id))
        return max(exact(node.cpu_points) - cpu, Fraction()), max(exact(node.memory_mb) - memory, Fraction())

    def mine_on(self, nodes: Sequence[Any]) -> int:
        return sum(len(cs) for node in nodes for owner, cs in self.workers_on(node.id) if owner == self.topology.id)

    def sort(self) -> list[str]:
        def ranked(groups: dict[Any, list[Any]]) -> list[Any]:
            left = {
                name: [sum(column) for column in zip(*map(self.left, group), strict=True)]
                for name, group in groups.items()
            }
            totals = [sum(column) for column in zip(*left.values(), strict=True)]

            def key(name: Any) -> tuple[Any, ...]:
                shares = [have / total for have, total in zip(left[name], totals, strict=True) if total]
                smallest = min([Fraction(1), *shares])
                mean = sum(shares) / len(shares) if shares else Fraction(1)
                first, second = (smallest, mean) if self.params.strategy == "default-old" else (mean, smallest)
                return -self.mine_on(groups[name]), -first, -second, name

            return sorted(groups, key=key)

        def by(attribute: str, nodes: Sequence[Any]) -> dict[str, list[Any]]:
            groups: dict[str, list[Any]] = {}
            for node in nodes:
                groups.setdefault(getattr(node, attribute), []).append(node)
            return groups

        order: list[str] = []
        racks = by("rack", self.nodes)
        for rack in ranked(racks):
            hosts = by("machine", racks[rack])
            for host in ranked(hosts):
                order.extend(ranked(by("id", hosts[host])))
        favored = [name for name in self.params.favored_nodes if name in order]
        unfavored = [name for name in self.params.unfavored_nodes if name in order and name not in favored]
        return favored + [name for name in order if name not in favored + unfavored] + unfavored

    def candidates(self, name: str) -> list[Place]:
        node = next(node for node in self.nodes if node.id == name)
        return [(name, index) for index in node.slot_order if (name, index) not in self.old]

    def fits(self, executor: Executor, place: Place) -> bool:
        node = next(node for node in self.nodes if node.id == place[0])
        before = self.new.get(place, [])
        if self.params.one_executor_per_worker and before:
            return False
        if self.params.one_component_per_worker and any(e.component != executor.component for e in before):
            return False
        if self.params.strategy == "constraint" and self.topology.constraints is not None:
            for one, other in self.topology.constraints.incompatible:
                for mine, theirs in ((one, other), (other, one)):
                    if executor.component == mine and any(e.component == theirs for e in before):
                        return False
            most = self.topology.constraints.max_per_node.get(executor.component)
            there = sum(
                cs.count(executor.component) for owner, cs in self.workers_on(node.id) if owner == self.topology.id
            )
            if most is not None and there >= most:
                return False
        heap = sum((exact(self.component(e.component).onheap) for e in [*before, executor]), Fraction())
        if heap > exact(self.topology.worker_max_heap_mb):
            return False
        left = self.left(node)
        had = self.cost([(self.topology.id, [e.component for e in before])])
        has = self.cost([(self.topology.id, [e.component for e in [*before, executor]])])
        return has[0] - had[0] <= left[0] and has[1] - had[1] <= left[1]

    def put(self, executor: Executor, place: Place) -> int:
        """Place an executor; return the number of ackers that were bound."""
        opened = place not in self.new
        self.new.setdefault(place, []).append(executor)
        if not opened or executor.component == ACKER or ACKER not in self.topology.component:
            return 0
        if self.params.one_executor_per_worker or self.params.one_component_per_worker:
            return 0
        user = [c for c in self.topology.components if not c.id.startswith("__")]
        heap, limit = sum(exact(c.onheap) * c.parallelism for c in user), exact(self.topology.worker_max_heap_mb)
        each = -(-self.component(ACKER).parallelism // max(1, -int(-heap // limit)))
        waiting = [e for e in self.order if e.component == ACKER and e not in self.bound]
        most = min(each, len(waiting))
        if self.component(ACKER).onheap:
            room = (limit - exact(self.component(executor.component).onheap)) // exact(self.component(ACKER).onheap)
            most = min(most, int(room))
        bound = 0
        for acker in waiting[:most]:
            if not self.fits(acker, place):
                break
            self.new[place].append(acker)
            self.bound.append(acker)
            bound += 1
        return bound

    def take_back(self, place: Place, bound: int) -> None:
        for _ in range(bound):
            self.new[place].pop()
            self.bound.pop()
        self.new[place].pop()
        if not self.new[place]:
            del self.new[place]

    def search(self, limit: int) -> bool:
        steps: list[tuple[int, Place, int]] = []
        nodes: list[str] = []
        position = 0
        while position < len(self.order):
            executor = self.order[position]
            if executor in self.bound:
                position += 1
                continue
            if self.states > limit:
                return False
            same = position > 0 and executor.component == self.order[position - 1].component
            once = self.params.strategy == "default-old"
            if position == 0 or (not once and same != self.params.intended_sorting):
                nodes = self.sort()
            place = next((p for name in nodes for p in self.candidates(name) if self.fits(executor, p)), None)
            while place is None:
                if not steps:
                    return False
                position, was, bound = steps.pop()
                executor = self.order[position]
                self.take_back(was, bound)
                if self.states > limit:
                    return False
                nodes = self.sort()
                options = [p for name in nodes for p in self.candidates(name)]
                place = next((p for p in options[options.index(was) + 1 :] if self.fits(executor, p)), None)
            steps.append((position, place, self.put(executor, place)))
            self.states += 1
            position += 1
        return True

    def round_robin(self) -> bool:
        nodes = [name for name in self.sort() if all(owner == self.topology.id for owner, _ in self.workers_on(name))][
            : self.topology.isolated_nodes
        ]
        cursor = 0
        for position, executor in enumerate(self.order):
            if executor in self.bound:
                continue
            same = position > 0 and executor.component == self.order[position - 1].component
            if cursor == len(nodes) or same != self.params.intended_sorting:
                cursor = 0
            place = None
            while place is None and cursor < len(nodes):
                place = next((p for p in self.candidates(nodes[cursor]) if self.fits(executor, p)), None)
                cursor += 1
            if place is None:
                return False
            self.put(executor, place)
        return True


STATES = 60


def place(problem: Problem, params: ResourceAwareParams | None = None) -> Plan:
    return Checked(ResourceAware, params or ResourceAwareParams()).place(problem)


@st.composite
def scheduling_attempts(draw: st.DrawFn) -> tuple[Problem, ResourceAwareParams]:
    """One topology, partly running, workers of another one, and any parameters of engine 2.3."""
    cluster, topology = draw(shared_clusters()), draw(tenant_topologies("t"))
    names = [component.id for component in topology.components]
    constraints = Constraints(
        tuple(draw(st.lists(st.tuples(st.sampled_from(names), st.sampled_from(names)), max_size=2))),
        draw(st.dictionaries(st.sampled_from(names), st.integers(1, 3), max_size=2)),
    )
    topology = replace(
        topology, constraints=constraints, worker_max_heap_mb=draw(st.sampled_from([300.0, 768.0, 1500.0]))
    )
    existing: list[ExistingWorker] = []
    places = [(node.id, index) for node in cluster.nodes for index in range(node.slots)]
    for node, index in draw(st.permutations(places))[: draw(st.integers(0, 2))]:
        if draw(st.booleans()):
            existing.append(ExistingWorker("other", node, index, ("x[0]", "x[1]")))
        else:
            running = {name for worker in existing for name in worker.executors}
            waiting = [executor.name for executor in topology.executors if executor.name not in running]
            chosen = draw(st.lists(st.sampled_from(waiting), max_size=3, unique=True)) if waiting else []
            existing.append(ExistingWorker("t", node, index, tuple(chosen)))
    params = ResourceAwareParams(
        strategy=draw(st.sampled_from(["default", "default-old", "generic", "constraint", "round-robin"])),
        worker_min_cpu=draw(st.sampled_from([0.0, 0.0, 30.0, 33.4])),
        order_by_proximity=draw(st.booleans()),
        one_executor_per_worker=draw(st.integers(0, 9)) == 0,
        one_component_per_worker=draw(st.integers(0, 9)) == 0,
        intended_sorting=draw(st.booleans()),
        search_states=STATES,
        favored_nodes=tuple(draw(st.lists(st.sampled_from([n.id for n in cluster.nodes]), max_size=1))),
        unfavored_nodes=tuple(draw(st.lists(st.sampled_from([n.id for n in cluster.nodes]), max_size=1))),
    )
    return Problem(replace(cluster, existing=tuple(existing)), (topology,)), params


@given(scheduling_attempts())
def test_every_strategy_agrees_with_the_reference_implementation(case: tuple[Problem, ResourceAwareParams]) -> None:
    problem, params = case
    topology = problem.topologies[0]
    running = {name for worker in problem.existing if worker.topology == "t" for name in worker.executors}
    waiting = [executor for executor in topology.executors if executor.name not in running]
    order = by_connections(topology, waiting)
    if params.strategy == "constraint":
        order = by_severity(topology, waiting)
    elif params.order_by_proximity:
        order = by_proximity(topology, waiting)
    reference = BruteForceStrategy(problem, params, ackers_last(order))
    placement = place(problem, params).placements["t"]
    if placement.message.startswith(("Failed", "Not enough")) and "Cannot schedule by" not in placement.message:
        event("refused without a search")
        assert len(placement.assignments) == len(running)
        return
    placed = reference.round_robin() if params.strategy == "round-robin" else reference.search(STATES)
    event(f"{params.strategy}: {'placed' if placed else 'not placed'}")
    if "states traversed" in placement.message:
        event(f"{'placed' if placed else 'not placed'}, way back taken: {', backtracked 0' not in placement.message}")
    new = {(e.name, *slot) for e, slot in placement.assignments.items() if e.name not in running}
    if placed:
        assert new == {(e.name, *slot) for slot, executors in reference.new.items() for e in executors}
        assert params.strategy == "round-robin" or waiting == [] or f"({reference.states} states" in placement.message
    else:
        assert new == set()
        if "states traversed" in placement.message:
            assert f"({reference.states} states" in placement.message
        elif params.strategy != "round-robin":
            event("hopeless without a search")
            reasons = (" fit into free slots", " of heap are missing", " of heap (worker_max_heap_mb), and an executor")
            assert any(reason in placement.message for reason in reasons)


def linear(*parallelism: int, name: str = "t", **own: object) -> Topology:
    """spout -> b1 -> b2 ..., every executor with the same demands."""
    ids = ["spout", *(f"b{at}" for at in range(1, len(parallelism)))]
    components = tuple(
        Component(ids[at], "bolt" if at else "spout", size, inputs=(Input(ids[at - 1]),) if at else (), **own)
        for at, size in enumerate(parallelism)
    )
    return Topology(id=name, components=components)


def names(order: list[Executor]) -> list[str]:
    return [executor.component for executor in order]


def test_executors_by_connections_as_in_the_worked_example() -> None:
    chain = linear(1, 2, 2, 2)
    assert names(by_connections(chain, chain.executors)) == ["b2", "b1", "b3", "b2", "b1", "b3", "spout"]


def test_neighbours_are_smallest_first_in_2x_and_largest_first_in_1x() -> None:
    star = Topology(
        id="t",
        components=(
            Component("s", "spout", 1),
            Component("m", "bolt", 3, inputs=(Input("s"),)),
            Component("z", "bolt", 2, inputs=(Input("m"),)),
        ),
    )
    assert names(by_connections(star, star.executors))[:3] == ["m", "s", "z"]
    assert names(by_connections(star, star.executors, largest_first=True))[:3] == ["m", "z", "s"]


def test_system_executors_come_last_and_ackers_after_them() -> None:
    topology = Topology(
        id="t", components=(Component("__acker", "bolt", 2), Component("__zz", "bolt", 1), *linear(1, 1).components)
    )
    assert names(by_connections(topology, topology.executors)) == ["b1", "spout", "__acker", "__acker", "__zz"]
    order = ackers_last(by_connections(topology, topology.executors))
    assert names(order) == ["b1", "spout", "__zz", "__acker", "__acker"]


def test_by_proximity_each_spout_is_followed_by_its_share_of_a_shuffled_bolt() -> None:
    chain = linear(2, 5)
    assert names(by_proximity(chain, chain.executors)) == ["spout", "b1", "b1", "spout", "b1", "b1", "b1"]


def test_by_proximity_other_groupings_come_first_and_one_by_one() -> None:
    topology = Topology(
        id="t",
        components=(
            Component("s", "spout", 1),
            Component("a", "bolt", 2, inputs=(Input("s"),)),
            Component("b", "bolt", 2, inputs=(Input("s", "fields", ("k",)),)),
        ),
    )
    assert names(by_proximity(topology, topology.executors)) == ["s", "b", "a", "a", "b"]


def test_by_proximity_components_on_a_cycle_come_at_the_end_and_long_chains_are_no_problem() -> None:
    ring = Topology(
        id="t",
        components=(
            Component("b", "bolt", 2, inputs=(Input("a"),)),
            Component("a", "bolt", 2, inputs=(Input("b"),)),
            Component("s", "spout", 1),
        ),
    )
    assert names(by_proximity(ring, ring.executors)) == ["s", "a", "b", "a", "b"]
    chain = linear(*[1] * 3000)
    assert len(by_proximity(chain, chain.executors)) == 3000


def test_by_severity_last_id_first_among_equals() -> None:
    topology = replace(
        linear(1, 1, 1, 1), constraints=Constraints((("b1", "b2"),), {"b3": 2})
    )  # severities: b1 1, b2 1, b3 4 // 2, spout 0
    assert names(by_severity(topology, topology.executors)) == ["b3", "b2", "b1", "spout"]


def test_executors_fill_the_first_slot_up_to_its_heap() -> None:
    plan = place(Problem(Cluster((Node(id="a"),)), (linear(8),)))
    assert by_slot(plan) == {
        ("a", 0): [f"spout[{at}]" for at in range(6)],
        ("a", 1): ["spout[6]", "spout[7]"],
    }


@pytest.mark.parametrize(("engine", "workers"), [("2.3", 1), ("1.1", 2)])
def test_off_heap_memory_counts_against_the_heap_only_in_1_1(engine: str, workers: int) -> None:
    topology = linear(6, onheap_mb=100.0, offheap_mb=100.0)
    plan = place(Problem(Cluster((Node(id="a"),)), (topology,)), ResourceAwareParams(engine=engine))
    assert len(by_slot(plan)) == workers


def test_cpu_and_memory_are_hard_limits() -> None:
    plan = place(Problem(Cluster((Node(id="a", cpu=50.0), Node(id="b", memory_mb=384.0))), (linear(8),)))
    assert {node: sum(len(x) for (n, _), x in by_slot(plan).items() if n == node) for node in "ab"} == {"a": 5, "b": 3}
    assert place(Problem(Cluster((Node(id="a", cpu=50.0),)), (linear(6),))).placements["t"].status == "failed"


def test_decimals_are_exact() -> None:
    plan = place(Problem(Cluster((Node(id="a", cpu=1.0),)), (linear(10, cpu=0.1),)))
    assert plan.placements["t"].status == "placed"
    assert place(Problem(Cluster((Node(id="a", cpu=0.3),)), (linear(4, cpu=0.1),))).placements["t"].status == "failed"


def test_a_worker_costs_at_least_the_floor() -> None:
    params = ResourceAwareParams(worker_min_cpu=100.0)
    nodes = (Node(id="a", cpu=150.0), Node(id="b", cpu=150.0))
    plan = place(Problem(Cluster(nodes), (linear(8),)), params)
    assert sorted(by_slot(plan)) == [("a", 0), ("b", 0)]
    assert place(Problem(Cluster(nodes[:1]), (linear(8),)), params).placements["t"].status == "failed"


def test_running_workers_get_no_further_executors() -> None:
    cluster = Cluster((Node(id="a", slots=2),), existing=(ExistingWorker("t", "a", 0, ("spout[0]",)),))
    assert by_slot(place(Problem(cluster, (linear(2),)))) == {("a", 0): ["spout[0]"], ("a", 1): ["spout[1]"]}


def test_the_rack_with_the_larger_mean_share_comes_first_or_with_the_larger_smaller_share() -> None:
    # Shares of CPU and memory: r1 3/4 and 1/8, r2 1/4 and 7/8 (mean larger), as nodes of one rack likewise.
    nodes = (
        Node(id="a", rack="r1", cpu=300.0, memory_mb=1024.0),
        Node(id="b", rack="r2", cpu=100.0, memory_mb=7168.0),
        Node(id="c", rack="r3", cpu=80.0, memory_mb=1600.0),
    )
    problem = Problem(Cluster(nodes), (linear(2),))
    assert place(problem).details["rack_order"] == ["r2", "r1", "r3"]
    assert place(problem, ResourceAwareParams(strategy="default-old")).details["rack_order"] == ["r2", "r3", "r1"]


def test_the_rack_that_holds_most_of_the_topology_comes_first() -> None:
    nodes = (Node(id="a", rack="r1"), Node(id="b", rack="r2", cpu=300.0))
    cluster = Cluster(nodes, existing=(ExistingWorker("t", "b", 0, ("spout[0]",)),))
    plan = place(Problem(cluster, (linear(2),)))
    assert plan.details["rack_order"] == ["r2", "r1"]
    assert by_slot(plan)["b", 1] == ["spout[1]"]


@pytest.mark.parametrize(("intended", "node"), [(False, "a"), (True, "b")])
def test_nodes_are_sorted_again_when_the_component_stays_the_same_and_as_intended_when_it_changes(
    intended: bool, node: str
) -> None:
    # b1 takes the better node a, b2 fits on b only; then b has more left than a.
    nodes = (Node(id="a", cpu=390.0, memory_mb=1100.0), Node(id="b", cpu=400.0, memory_mb=1000.0))
    components = tuple(
        replace(component, onheap_mb=mb)
        for component, mb in zip(linear(1, 1, 1).components, (100.0, 700.0, 500.0), strict=True)
    )
    topology = Topology(id="t", components=components)
    plan = place(Problem(Cluster(nodes), (topology,)), ResourceAwareParams(intended_sorting=intended))
    assert {executor.component: slot.node for executor, slot in plan.placements["t"].assignments.items()} == {
        "b1": "a",
        "b2": "b",
        "spout": node,
    }


def test_default_old_sorts_nodes_once() -> None:
    # c2 has no room on a, where c1 is. c3 has: by the order at the beginning it goes there, by the present one to b.
    nodes = (Node(id="a", cpu=400.0, memory_mb=1000.0), Node(id="b", cpu=400.0, memory_mb=900.0))
    components = tuple(
        Component(id=name, kind="spout", parallelism=count, cpu=10.0, onheap_mb=mb)
        for name, count, mb in (("c1", 1, 700.0), ("c2", 2, 400.0), ("c3", 1, 100.0))
    )
    problem = Problem(Cluster(nodes), (Topology(id="t", components=components),))
    plan = place(problem, ResourceAwareParams(strategy="default-old"))
    assert [(executor.name, slot.node) for executor, slot in sorted(plan.placements["t"].assignments.items())] == [
        ("c1[0]", "a"),
        ("c2[0]", "b"),
        ("c2[1]", "b"),
        ("c3[0]", "a"),
    ]


def test_ackers_are_bound_to_workers_as_these_are_opened() -> None:
    topology = Topology(id="t", components=(*linear(10).components, Component("__acker", "bolt", 2)))
    plan = place(Problem(Cluster((Node(id="a"),)), (topology,)))
    # 10 x 128 MB need 2 workers, hence 1 acker for each.
    assert by_slot(plan) == {
        ("a", 0): ["__acker[0]", *(f"spout[{at}]" for at in range(5))],
        ("a", 1): ["__acker[1]", *(f"spout[{at}]" for at in range(5, 10))],
    }


def test_round_robin_alternates_components_over_nodes_but_fills_up_with_a_run_of_one() -> None:
    nodes = Cluster((Node(id="a"), Node(id="b"), Node(id="c")))
    params = ResourceAwareParams(strategy="round-robin")
    alternating = place(Problem(nodes, (linear(2, 2),)), params)
    assert [len(x) for x in by_slot(alternating).values()] == [2, 1, 1]
    assert by_slot(place(Problem(nodes, (linear(4),)), params)) == {("a", 0): [f"spout[{at}]" for at in range(4)]}


def test_round_robin_uses_the_requested_number_of_nodes_and_none_of_other_topologies() -> None:
    existing = (ExistingWorker("other", "a", 0, ("x[0]",)),)
    cluster = Cluster((Node(id="a"), Node(id="b"), Node(id="c"), Node(id="d")), existing=existing)
    topology = replace(linear(3, 3), isolated_nodes=2)
    plan = place(Problem(cluster, (topology,)), ResourceAwareParams(strategy="round-robin"))
    assert {node for node, _ in by_slot(plan)} == {"b", "c"}


def test_constraints_keep_components_apart_by_backtracking() -> None:
    topology = replace(linear(2, 2), constraints=Constraints((("spout", "b1"),), {"b1": 1}))
    nodes = Cluster((Node(id="a", slots=2), Node(id="b", slots=2)))
    plan = place(Problem(nodes, (topology,)), ResourceAwareParams(strategy="constraint"))
    for executors in by_slot(plan).values():
        assert len({name.split("[")[0] for name in executors}) == 1
    assert {node for (node, _), names in by_slot(plan).items() if "b1" in names[0]} == {"a", "b"}


def test_more_executors_than_the_nodes_may_hold_fail_at_once() -> None:
    topology = replace(linear(1, 3), constraints=Constraints((), {"b1": 1}))
    placement = place(
        Problem(Cluster((Node(id="a"), Node(id="b"))), (topology,)), ResourceAwareParams(strategy="constraint")
    ).placements["t"]
    assert placement.status == "failed"
    assert placement.message == ("Failed to schedule: 3 executors of 'b1' cannot lie on 2 nodes, at most 1 on each")


def test_a_topology_without_a_spout_and_one_beyond_the_states_fail_without_a_search() -> None:
    bolt = Topology(id="t", components=(Component("b", "bolt"),))
    assert place(Problem(Cluster((Node(id="a"),)), (bolt,))).placements["t"].message == (
        "Failed to schedule: Cannot find a spout"
    )
    params = ResourceAwareParams(search_states=8)
    assert place(Problem(Cluster((Node(id="a"),)), (linear(8),)), params).placements["t"].message == (
        "Failed to schedule: 8 executors cannot be placed within 8 states"
    )
    assert place(Problem(Cluster((Node(id="a"),)), (linear(7),)), params).placements["t"].status == "placed"


def test_a_search_ends_after_so_many_states_whatever_the_clock_says() -> None:
    # Of nodes of 3 GB, four hold a large executor and then no small one, the other two hold four of the six small ones.
    nodes = Cluster(tuple(Node(id=f"n{at}", slots=8, memory_mb=3000.0) for at in range(6)))
    large, small = Component("large", "spout", 4, memory_mb=2000.0), Component("small", "spout", 6, memory_mb=1500.0)
    topology = Topology(id="t", components=(large, small), worker_max_heap_mb=2000.0)
    plan = place(Problem(nodes, (topology,)), ResourceAwareParams(search_states=500))
    assert "(501 states traversed" in plan.placements["t"].message
    assert plan.details["limit_hit"] is False


@given(scheduling_attempts())
def test_node_and_component_order_in_the_files_does_not_matter(case: tuple[Problem, ResourceAwareParams]) -> None:
    problem, params = case
    topology = problem.topologies[0]
    turned = Problem(
        replace(problem.cluster, nodes=problem.cluster.nodes[::-1], existing=problem.existing[::-1]),
        (replace(topology, components=topology.components[::-1]),),
    )
    assert place(turned, params).placements["t"].assignments == place(problem, params).placements["t"].assignments


@pytest.mark.parametrize(
    "change", [{"strategy": "generic"}, {"worker_min_cpu": 1.0}, {"priority": "fifo"}, {"intended_sorting": True}]
)
def test_engine_1_1_refuses_later_options(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"engine 1.1 has no"):
        with_params(ResourceAwareParams(engine="1.1"), **change)


@pytest.mark.parametrize(
    ("nodes", "slots_each", "sizes", "demand", "why"),
    [
        (50, 1, [60], 500.0, "of 60 executors of 'spout' at most 50 fit into free slots"),
        (2, 9, [30, 31], 230.4, "14054.4 MB of heap are missing, free slots offer 13824 MB"),
    ],
)
def test_a_search_that_slots_or_heap_make_impossible_is_not_started(
    nodes: int, slots_each: int, sizes: list[int], demand: float, why: str
) -> None:
    topology = linear(*sizes, cpu=0.0, memory_mb=demand)
    machines = tuple(Node(id=f"n{at:02}", slots=slots_each, memory_mb=1e6) for at in range(nodes))
    placement = place(Problem(Cluster(machines), (topology,))).placements["t"]
    assert placement.status == "failed"
    assert placement.message.endswith(f"Cannot schedule by DefaultResourceAwareStrategy: {why}")


def test_an_executor_larger_than_the_heap_of_a_worker_is_named_without_a_search() -> None:
    topology = linear(60, cpu=0.0, memory_mb=800.0)
    placement = place(Problem(Cluster((Node(id="n", memory_mb=1e6),)), (topology,))).placements["t"]
    assert placement.status == "failed"
    assert placement.message == (
        "Not enough resources to schedule - 0/60 executors scheduled: "
        "a worker has 768 MB of heap (worker_max_heap_mb), and an executor of 'spout' needs 800 MB"
    )
