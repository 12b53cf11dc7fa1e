"""Sequences of scheduling rounds: each round starts from the result of the previous one; nodes come and go."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import TypeVar

from hypothesis import strategies as st
from msgspec.structs import replace
from problems import problems, traffic

from inventory.cluster import Cluster, ExistingWorker, Node
from scheduler.problem import Placement, Plan, Problem, Slot
from workloads.topology import Component, Executor, Input, Topology
from workloads.traffic import Edge, Traffic

T = TypeVar("T")
Rounds = tuple[Cluster, tuple[Topology, ...], list[tuple[frozenset[str], int]]]


def workers_after(problem: Problem, plan: Plan) -> tuple[ExistingWorker, ...]:
    """Return the workers that run after `plan` is applied."""
    listed = {topology.id for topology in problem.topologies}
    freed = {(worker.node, worker.slot) for worker in plan.freed}
    kept = [
        worker
        for worker in problem.existing
        if worker.topology not in listed
        and (worker.node, worker.slot) not in freed
        and problem.cluster.by_id[worker.node].available
    ]
    for topology in problem.topologies:
        slots: dict[Slot, list[str]] = {}
        for executor, slot in plan.placements[topology.id].assignments.items():
            slots.setdefault(slot, []).append(executor.name)
        kept.extend(ExistingWorker(topology.id, *slot, tuple(names)) for slot, names in slots.items())
    return tuple(kept)


def next_round(problem: Problem, plan: Plan, nodes: Sequence[Node] | None = None) -> Problem:
    """Return the next round, with the same topologies and `nodes` (default: the same)."""
    cluster = replace(
        problem.cluster, nodes=tuple(nodes or problem.cluster.nodes), existing=workers_after(problem, plan)
    )
    return Problem(cluster, problem.topologies)


def place_rounds(rounds: Rounds, place: Callable[[Problem], Plan]) -> list[tuple[Problem, Plan]]:
    """Place all rounds; return them with their plans. A step is (unavailable nodes, number of topologies)."""
    cluster, topologies, steps = rounds
    placed: list[tuple[Problem, Plan]] = []
    existing: tuple[ExistingWorker, ...] = cluster.existing
    for away, count in steps:
        nodes = tuple(replace(node, available=node.id not in away) for node in cluster.nodes)
        problem = Problem(replace(cluster, nodes=nodes, existing=existing), topologies[:count])
        plan = place(problem)
        placed.append((problem, plan))
        existing = workers_after(problem, plan)
    return placed


@st.composite
def tenant_topologies(draw: st.DrawFn, name: str) -> Topology:
    """Draw a topology of one of two users, with or without isolated nodes, with demands of its own."""
    components = [Component("s", "spout", draw(st.integers(1, 4)))]
    for at in range(draw(st.integers(0, 3))):
        inputs = tuple(
            Input(source, draw(st.sampled_from(["shuffle", "all"])))
            for source in draw(st.lists(st.sampled_from([c.id for c in components]), min_size=1, unique=True))
        )
        components.append(
            Component(
                "bcd"[at],
                "bolt",
                draw(st.integers(1, 5)),
                cpu=draw(st.sampled_from([None, 0.0, 25.0, 33.3, 60.0])),
                onheap_mb=draw(st.sampled_from([None, 0.0, 100.0, 290.0])),
                offheap_mb=draw(st.sampled_from([None, 100.0, 0.5])),
                inputs=inputs,
            )
        )
    if draw(st.booleans()):
        components.append(Component("__acker", "bolt", draw(st.integers(1, 3))))
    return Topology(
        id=name,
        components=tuple(draw(st.permutations(components))),
        user=draw(st.sampled_from(["alice", "bob"])),
        priority=draw(st.sampled_from([0, 29])),
        uptime_s=float(draw(st.sampled_from([0, 5]))),
        workers=draw(st.integers(1, 6)),
        isolated_nodes=draw(st.none() | st.integers(1, 3)),
    )


@st.composite
def shared_clusters(draw: st.DrawFn) -> Cluster:
    """Draw small nodes, some on one host, in one or two racks."""
    return Cluster(
        tuple(
            Node(
                id=name,
                host=draw(st.sampled_from([None, "h"])),
                rack=draw(st.sampled_from(["r1", "r2"])),
                slots=draw(st.integers(0, 3)),
                cpu=draw(st.sampled_from([100.0, 150.5, 400.0])),
                memory_mb=draw(st.sampled_from([512.0, 1500.5, 4096.0])),
            )
            for name in draw(st.permutations(["n1", "n10", "n2", "m"]))[: draw(st.integers(1, 4))]
        )
    )


@st.composite
def round_histories(draw: st.DrawFn) -> Rounds:
    """Draw a cluster that may run an unknown topology at first, up to three topologies, and two to four rounds."""
    cluster = draw(shared_clusters())
    topologies = tuple(
        draw(tenant_topologies(name)) for name in draw(st.permutations("tuv"))[: draw(st.integers(1, 3))]
    )
    first = cluster.nodes[0]
    if first.slots and draw(st.booleans()):
        cluster = replace(cluster, existing=(ExistingWorker("other", first.id, 0, (Executor("x", 0).name,)),))
    names = st.sampled_from([node.id for node in cluster.nodes])
    away = draw(st.lists(st.frozensets(names, max_size=2), min_size=2, max_size=4))
    submitted = sorted(draw(st.integers(1, len(topologies))) for _ in away)
    return cluster, topologies, list(zip(away, submitted, strict=True))


RoundSequence = tuple[Problem, list[tuple[frozenset[str], int, Traffic | None]]]


def traffic_of(rates: Mapping[str, float], load: Mapping[str, float] | None = None) -> Traffic:
    """Return traffic: `traffic_of({"a[0] b[0]": 5})` is 5 tuples/s from a[0] to b[0]."""
    return Traffic(tuple(Edge(*pair.split(), float(rate)) for pair, rate in rates.items()), load or {})


def by_slot(plan: Plan, topology: str = "t") -> dict[tuple[str, int], list[str]]:
    """Return (node, slot) -> names of executors, all sorted."""
    slots: dict[tuple[str, int], list[str]] = {}
    for executor, slot in plan.placements[topology].assignments.items():
        slots.setdefault(tuple(slot), []).append(executor.name)
    return {slot: sorted(names) for slot, names in sorted(slots.items())}


def node_by_executor(plan: Plan) -> dict[str, str]:
    """Return executor -> node of all topologies."""
    return {e.name: slot.node for p in plan.placements.values() for e, slot in p.assignments.items()}


def workers_per_node(placement: Placement) -> Counter[str]:
    return Counter(slot.node for slot in set(placement.assignments.values()))


def shuffled(problem: Problem, random: Random) -> Problem:
    """Return the same round with nodes, running workers and rates in another order."""

    def turned(items: Iterable[T]) -> tuple[T, ...]:
        return tuple(sorted(items, key=lambda _: random.random()))

    cluster = replace(problem.cluster, nodes=turned(problem.cluster.nodes), existing=turned(problem.existing))
    rates = problem.traffic
    if rates is not None:
        rates = Traffic(turned(rates.edges), dict(turned(rates.load.items())), rates.node_load)
    return Problem(cluster, problem.topologies, rates)


@st.composite
def round_sequences(draw: st.DrawFn, unobserved: bool = True) -> RoundSequence:
    """Draw a round, and for each later round the unavailable nodes, the number of topologies and the traffic."""
    first = draw(problems(cycles=True, observed=True))
    names = st.sampled_from([node.id for node in first.cluster.nodes])
    rates = traffic(first.topologies)
    later = st.tuples(
        st.frozensets(names, max_size=2),
        st.integers(1, len(first.topologies)),
        st.none() | rates if unobserved else rates,
    )
    return first, draw(st.lists(later, min_size=1, max_size=3))


def place_sequence(sequence: RoundSequence, place: Callable[[Problem], Plan]) -> list[tuple[Problem, Plan]]:
    """Place all rounds, each starting from the result of the previous one; return them with their plans."""
    problem, later = sequence
    rounds = [(problem, place(problem))]
    for away, count, rates in later:
        nodes = tuple(replace(node, available=node.id not in away) for node in problem.cluster.nodes)
        cluster = replace(problem.cluster, nodes=nodes, existing=workers_after(*rounds[-1]))
        following = Problem(cluster, problem.topologies[:count], rates)
        rounds.append((following, place(following)))
    return rounds


def repeated_round(problem: Problem, plan: Plan) -> Problem:
    """Return the same round after the plan is applied."""
    cluster = replace(problem.cluster, existing=workers_after(problem, plan))
    return Problem(cluster, problem.topologies, problem.traffic)
