"""Rounds of `resource-aware`: order of topologies, eviction, and invariants over sequences of rounds."""

from collections.abc import Mapping
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduling_rounds import Rounds, next_round, place_rounds, round_histories

from inventory.cluster import Cluster, ExistingWorker, Node
from inventory.errors import InputError
from inventory.plugins import given as params_given
from scheduler.algorithms.resource_aware import Guarantee, ResourceAware, ResourceAwareParams
from scheduler.problem import Plan, Problem, Slot
from scheduler.registry import Checked, make_scheduler
from workloads.topology import Component, Topology


def place(problem: Problem, params: ResourceAwareParams | None = None) -> Plan:
    return Checked(ResourceAware, params or ResourceAwareParams()).place(problem)


def topology(
    name: str, executors: int = 1, user: str = "u", cpu: float = 100.0, mb: float = 500.0, **own: object
) -> Topology:
    return Topology(id=name, components=(Component("s", "spout", executors, cpu=cpu, memory_mb=mb),), user=user, **own)


def running(problem: Problem, *names: str, params: ResourceAwareParams | None = None) -> Problem:
    """Return the round with the topologies `names` already running, placed without the others."""
    alone = replace_topologies(problem, [t for t in problem.topologies if t.id in names])
    return Problem(next_round(alone, place(alone, params)).cluster, problem.topologies)


def replace_topologies(problem: Problem, topologies: list[Topology]) -> Problem:
    return Problem(problem.cluster, tuple(topologies))


def pools(**pools: tuple[float, float]) -> Mapping[str, Guarantee]:
    return {user: Guarantee(*pool) for user, pool in pools.items()}


def statuses(plan: Plan) -> dict[str, str]:
    return {name: placement.status for name, placement in plan.placements.items()}


def test_users_below_their_guarantee_come_first_then_priority_then_age_then_id() -> None:
    problem = Problem(
        Cluster((Node(id="a", cpu=1000.0, memory_mb=10000.0),)),
        (
            topology("d", user="bob"),
            topology("c", user="alice", priority=20),
            topology("b", user="alice", priority=10, uptime_s=1.0),
            topology("a", user="alice", priority=10, uptime_s=2.0),
        ),
    )
    # alice: 200 points, 1000 MB guaranteed. Scores: alice -0.1 and 0, bob 0.1 (of 1000), then 100 / 800 each.
    plan = place(problem, ResourceAwareParams(user_pools=pools(alice=(200.0, 1000.0))))
    assert plan.details["scheduling_order"] == ["a", "b", "d", "c"] or plan.details["scheduling_order"][:2] == [
        "a",
        "b",
    ]
    assert plan.details["scheduling_order"] == ["a", "b", "c", "d"]  # equal scores: alice before bob


def test_without_guarantees_users_are_ordered_by_their_resources() -> None:
    names = [topology(name, user=user) for name, user in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b"))]
    plan = place(Problem(Cluster((Node(id="n", cpu=1000.0, memory_mb=10000.0),)), tuple(names)))
    # After a1 both heads score 100 / 900 and 200 / 900; after b1 the two are equal, and b comes before a by then.
    assert plan.details["scheduling_order"] == ["a1", "b1", "b2", "a2"]


def test_fifo_prefers_younger_topologies_beyond_the_guarantee() -> None:
    problem = Problem(
        Cluster((Node(id="n", cpu=1000.0, memory_mb=10000.0),)),
        (topology("old", user="a", uptime_s=100.0), topology("young", user="b", uptime_s=1.0)),
    )
    assert place(problem).details["scheduling_order"] == ["old", "young"]
    assert place(problem, ResourceAwareParams(priority="fifo")).details["scheduling_order"] == ["young", "old"]


def test_a_more_important_topology_evicts_the_least_important_one_whole() -> None:
    cluster = Cluster((Node(id="n", cpu=250.0, memory_mb=4096.0),))
    problem = Problem(
        cluster, (topology("low", priority=30), topology("mid", priority=20), topology("high", priority=10))
    )
    plan = place(running(problem, "low", "mid"))
    assert plan.details["scheduling_order"] == ["high", "mid", "low"]
    assert statuses(plan) == {"low": "failed", "mid": "placed", "high": "placed"}
    assert [worker.topology for worker in plan.freed] == ["low"]
    assert plan.placements["high"].message.startswith(
        "Running - Fully Scheduled by DefaultResourceAwareStrategy (1 states traversed"
    )
    assert plan.placements["mid"].message == "Fully Scheduled"
    assert plan.placements["low"].message.startswith("Not enough resources to schedule - 0/1 executors scheduled")


def test_more_important_topologies_are_not_evicted() -> None:
    cluster = Cluster((Node(id="n", cpu=300.0, memory_mb=4096.0),))
    problem = running(Problem(cluster, (topology("low", 2, priority=30), topology("high", 2, priority=10))), "high")
    plan = place(problem)
    assert statuses(plan) == {"low": "failed", "high": "placed"}
    assert plan.freed == []


def test_eviction_that_does_not_help_is_undone() -> None:
    # After the eviction 2000 MB are free in total, but a worker of 1500 MB fits on no node.
    nodes = tuple(Node(id=f"n{at}", memory_mb=1000.0, cpu=400.0) for at in range(2))
    low = topology("low", 1, mb=500.0, priority=30)
    high = topology("high", 1, mb=1500.0, priority=10, worker_max_heap_mb=2000.0)
    problem = running(Problem(Cluster(nodes), (low, high)), "low")
    plan = place(problem)
    assert statuses(plan) == {"low": "placed", "high": "failed"}
    assert plan.freed == []
    assert plan.placements["high"].message.startswith("Not enough resources to schedule - 0/1 executors")


def test_eviction_continues_until_it_covers_the_missing_resources() -> None:
    # 200 points are free, 50 on each node, but the evicted topologies must themselves cover the missing 150.
    cluster = Cluster(tuple(Node(id=f"n{at}", cpu=150.0, memory_mb=4096.0) for at in range(4)))
    small = [topology(f"s{at}", cpu=100.0, priority=30 + at) for at in range(4)]
    big = topology("big", 1, cpu=150.0, priority=10)
    plan = place(running(Problem(cluster, (*small, big)), *(t.id for t in small)))
    assert statuses(plan)["big"] == "placed"
    evicted = [name for name, status in statuses(plan).items() if status == "failed"]
    assert evicted == ["s3"]  # s3 and s2 are evicted (2 x 100 cover 150); s2 is placed again
    assert plan.details["scheduling_order"] == ["big", "s0", "s1", "s2", "s3"]


def test_eviction_covers_only_executors_that_the_failed_attempt_did_not_place() -> None:
    nodes = {"a": 300.0, "b": 100.0, "c": 300.0}
    low, middle = topology("low", priority=30), topology("middle", priority=20)
    cluster = Cluster(
        tuple(Node(id=name, cpu=cpu, memory_mb=4096.0) for name, cpu in nodes.items()),
        existing=(ExistingWorker("low", "b", 0, ("s[0]",)), ExistingWorker("middle", "c", 0, ("s[0]",))),
    )
    high = topology("high", 4, priority=10, worker_max_heap_mb=4096.0)
    # round-robin avoids nodes of others: three executors fit on `a`, and evicting `low` makes room for the fourth.
    plan = place(Problem(cluster, (low, middle, high)), ResourceAwareParams(strategy="round-robin"))
    assert statuses(plan) == {"low": "failed", "middle": "placed", "high": "placed"}


def test_a_running_topology_counts_for_its_user() -> None:
    cluster = Cluster((Node(id="n", cpu=1000.0, memory_mb=20000.0),))
    problem = running(
        Problem(
            cluster, (topology("a1", 5, user="a"), topology("a2", user="a", priority=40), topology("b", 1, user="b"))
        ),
        "a1",
    )
    assert place(problem).details["scheduling_order"] == ["b", "a1", "a2"]


def test_1_1_prefers_the_least_used_pool_and_evicts_one_topology_at_a_time() -> None:
    params = ResourceAwareParams(engine="1.1", user_pools=pools(a=(200.0, 2000.0), b=(200.0, 2000.0)))
    cluster = Cluster((Node(id="n", cpu=400.0, memory_mb=4000.0),))
    a = [topology(f"a{at}", cpu=100.0, user="a", priority=10 + at) for at in range(4)]
    problem = running(
        Problem(cluster, (*a, topology("b", 2, cpu=100.0, user="b"))), "a0", "a1", "a2", "a3", params=params
    )
    plan = place(problem, params)
    # b stays within its guarantee, a is above its own: the lowest of a's topologies are evicted, one per failure.
    assert statuses(plan) == {"a0": "placed", "a1": "placed", "a2": "failed", "a3": "failed", "b": "placed"}
    assert plan.details["scheduling_order"] == ["b", "a2", "a3"]


def test_1_1_evicts_nothing_without_a_guarantee() -> None:
    cluster = Cluster((Node(id="n", cpu=100.0, memory_mb=4000.0),))
    params = ResourceAwareParams(engine="1.1")
    problem = running(Problem(cluster, (topology("low", priority=30), topology("high", priority=1))), "low")
    assert statuses(place(problem, params)) == {"low": "placed", "high": "failed"}


def test_1_1_evicts_the_submitters_own_less_important_topology() -> None:
    cluster = Cluster((Node(id="n", cpu=100.0, memory_mb=4000.0),))
    params = ResourceAwareParams(engine="1.1", user_pools=pools(u=(50.0, 4000.0)))
    problem = running(Problem(cluster, (topology("low", priority=30), topology("high", priority=1))), "low")
    assert statuses(place(problem, params)) == {"low": "failed", "high": "placed"}


def test_parameters_come_from_files_and_command_lines() -> None:
    assert make_scheduler("resource-aware", params_given(["engine=1.1"])).params["engine"] == "1.1"
    pools = params_given(["user_pools={alice: {cpu: 400, memory_mb: 2048}}"])
    assert make_scheduler("resource-aware", pools).params["user_pools"] == {
        "alice": {"cpu": 400.0, "memory_mb": 2048.0}
    }
    with pytest.raises(InputError, match=r"engine 1\.1 has no strategy 'generic'"):
        make_scheduler("resource-aware", params_given(["engine=1.1", "strategy=generic"]))
    with pytest.raises(InputError, match="favored_nodes: unknown node 'm'"):
        place(Problem(Cluster((Node(id="n"),)), (topology("t"),)), ResourceAwareParams(favored_nodes=("m",)))


ENGINES = st.one_of(
    st.builds(
        ResourceAwareParams,
        strategy=st.sampled_from(["default", "default-old", "generic", "round-robin", "constraint"]),
        worker_min_cpu=st.sampled_from([0.0, 30.0]),
        order_by_proximity=st.booleans(),
        intended_sorting=st.booleans(),
        priority=st.sampled_from(["default", "fifo"]),
        search_states=st.just(100),
        user_pools=st.just(pools(alice=(200.0, 2000.0))),
    ),
    st.just(ResourceAwareParams(engine="1.1", user_pools=pools(alice=(200.0, 2000.0), bob=(50.0, 500.0)))),
)


@settings(deadline=None)
@given(round_histories(), ENGINES)
def test_capacities_hold_and_topologies_are_whole_in_any_round_sequence(
    rounds: Rounds, params: ResourceAwareParams
) -> None:
    for problem, plan in place_rounds(rounds, lambda problem: place(problem, params)):
        assert set(plan.details["scheduling_order"]) <= {t.id for t in problem.topologies}
        used = {node.id: [Fraction(0), Fraction(0)] for node in problem.cluster.available}
        freed = {(worker.node, worker.slot) for worker in plan.freed}
        for worker in problem.existing:
            known = {t.id for t in problem.topologies}
            if worker.topology not in known and worker.node in used and (worker.node, worker.slot) not in freed:
                used[worker.node][0] += 10 * len(worker.executors)
                used[worker.node][1] += 128 * len(worker.executors)
        for t in problem.topologies:
            placement = plan.placements[t.id]
            running_count = sum(len(w.executors) for w in problem.existing if w.topology == t.id and w.node in used)
            assert len(placement.assignments) in {0, running_count, len(t.executors)}
            assert (placement.status == "placed") == placement.message.startswith(("Running - ", "Fully Scheduled"))
            heap: dict[Slot, Fraction] = {}
            for executor, slot in placement.assignments.items():
                component = t.component[executor.component]
                used[slot.node][0] += Fraction(repr(component.cpu_points))
                used[slot.node][1] += Fraction(repr(component.onheap)) + Fraction(repr(component.offheap))
                heap[slot] = heap.get(slot, Fraction(0)) + Fraction(repr(component.onheap))
            assert all(total <= t.worker_max_heap_mb for total in heap.values())
        # Earlier workers stay even if placed by another strategy or floor; what this round placed is within the limits.
        for node in problem.cluster.available:
            assert used[node.id][0] <= Fraction(repr(node.cpu_points))
            assert used[node.id][1] <= Fraction(repr(node.memory_mb))
        assert {worker.topology for worker in plan.freed} <= {t.id for t in problem.topologies}


@settings(deadline=None)
@given(round_histories(), ENGINES)
def test_a_round_after_one_that_placed_all_topologies_changes_nothing(
    rounds: Rounds, params: ResourceAwareParams
) -> None:
    for problem, plan in place_rounds(rounds, lambda problem: place(problem, params)):
        if set(statuses(plan).values()) == {"placed"}:
            again = place(next_round(problem, plan), params)
            assert again.freed == []
            assert {n: p.assignments for n, p in again.placements.items()} == {
                n: p.assignments for n, p in plan.placements.items()
            }
