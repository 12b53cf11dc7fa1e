"""Scheduling rounds with observed traffic, and sequences of them in which nodes and topologies come and go."""

from collections import Counter
from collections.abc import Callable, Mapping

from hypothesis import strategies as st
from msgspec.structs import replace
from problems import problems, traffic
from scheduling_rounds import workers_after

from scheduler.problem import Placement, Plan, Problem
from workloads.traffic import Edge, Traffic

RoundSequence = tuple[Problem, list[tuple[frozenset[str], int, Traffic | None]]]


def traffic_of(rates: Mapping[str, float], load: Mapping[str, float] | None = None) -> Traffic:
    """Return traffic: `traffic_of({"a[0] b[0]": 5})` is 5 tuples/s from a[0] to b[0]."""
    return Traffic(tuple(Edge(*pair.split(), float(rate)) for pair, rate in rates.items()), load or {})


def by_slot(placement: Placement) -> dict[tuple[str, int], list[str]]:
    slots: dict[tuple[str, int], list[str]] = {}
    for executor, slot in placement.assignments.items():
        slots.setdefault(tuple(slot), []).append(executor.name)
    return {slot: sorted(names) for slot, names in sorted(slots.items())}


def node_by_executor(plan: Plan) -> dict[str, str]:
    """Return executor -> node of all topologies."""
    return {e.name: slot.node for p in plan.placements.values() for e, slot in p.assignments.items()}


def workers_per_node(placement: Placement) -> Counter[str]:
    return Counter(slot.node for slot in set(placement.assignments.values()))


def reversed_order(problem: Problem) -> Problem:
    """Return the same round with nodes, running workers and rates in reverse order."""
    cluster = replace(problem.cluster, nodes=problem.cluster.nodes[::-1], existing=problem.cluster.existing[::-1])
    rates = problem.traffic
    if rates is not None:
        rates = Traffic(rates.edges[::-1], dict(reversed(rates.load.items())), rates.node_load)
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
