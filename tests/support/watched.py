"""Rounds with observed traffic, and courses of them in which nodes and topologies come and go."""

from collections import Counter
from collections.abc import Callable, Mapping

from histories import left_running
from hypothesis import strategies as st
from msgspec.structs import replace
from problems import problems, traffic

from scheduler.problem import Placement, Plan, Problem
from workloads.traffic import Edge, Traffic

ControlSettings = tuple[Problem, list[tuple[frozenset[str], int, Traffic | None]]]


def seen(rates: Mapping[str, float], load: Mapping[str, float] | None = None) -> Traffic:
    """`seen({"a[0] b[0]": 5})`: 5 tuples/s from a[0] to b[0]."""
    return Traffic(tuple(Edge(*pair.split(), float(rate)) for pair, rate in rates.items()), load or {})


def by_slot(placement: Placement) -> dict[tuple[str, int], list[str]]:
    slots: dict[tuple[str, int], list[str]] = {}
    for executor, slot in placement.assignments.items():
        slots.setdefault(tuple(slot), []).append(executor.name)
    return {slot: sorted(names) for slot, names in sorted(slots.items())}


def on_nodes(plan: Plan) -> dict[str, str]:
    """Executor -> node, all topologies together."""
    return {e.name: slot.node for p in plan.placements.values() for e, slot in p.assignments.items()}


def workers_per_node(placement: Placement) -> Counter[str]:
    return Counter(slot.node for slot in set(placement.assignments.values()))


def listed_backwards(problem: Problem) -> Problem:
    """The same round with nodes, running workers and rates in another order."""
    cluster = replace(problem.cluster, nodes=problem.cluster.nodes[::-1], existing=problem.cluster.existing[::-1])
    rates = problem.traffic
    if rates is not None:
        rates = Traffic(rates.edges[::-1], dict(reversed(rates.load.items())), rates.node_load)
    return Problem(cluster, problem.topologies, rates)


@st.composite
def courses(draw: st.DrawFn, unwatched: bool = True) -> ControlSettings:
    """A round, and what the next rounds are like: nodes away, so many topologies, traffic."""
    first = draw(problems(cycles=True, observed=True))
    names = st.sampled_from([node.id for node in first.cluster.nodes])
    rates = traffic(first.topologies)
    later = st.tuples(
        st.frozensets(names, max_size=2),
        st.integers(1, len(first.topologies)),
        st.none() | rates if unwatched else rates,
    )
    return first, draw(st.lists(later, min_size=1, max_size=3))


def watch(course: ControlSettings, place: Callable[[Problem], Plan]) -> list[tuple[Problem, Plan]]:
    """All rounds with their answers; each starts from what the answer before left running."""
    problem, later = course
    played = [(problem, place(problem))]
    for away, count, rates in later:
        nodes = tuple(replace(node, available=node.id not in away) for node in problem.cluster.nodes)
        cluster = replace(problem.cluster, nodes=nodes, existing=left_running(*played[-1]))
        following = Problem(cluster, problem.topologies[:count], rates)
        played.append((following, place(following)))
    return played


def again(problem: Problem, plan: Plan) -> Problem:
    """The same round once more, with the plan carried out."""
    cluster = replace(problem.cluster, existing=left_running(problem, plan))
    return Problem(cluster, problem.topologies, problem.traffic)
