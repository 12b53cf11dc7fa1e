"""Planners while a topology runs: what they apply and when, with few moves, and that they converge."""

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from observed_rounds import SPREAD_PLACEMENT, chain, nodes, observed, past_revision, round_at

from inventory.cluster import Cluster, ExistingWorker
from inventory.plugins import given as parameters
from scheduler.online.observation import Change, Observation, Outcome, PastRevision
from scheduler.online.replanning import cut_of, heaviest_matching, renamed_slots, replan
from scheduler.online.revision import Revision
from scheduler.online.validation import CheckedOnline, make_online_scheduler
from scheduler.problem import Placement, Plan, Problem, Slot
from workloads.topology import Executor

PLANNERS = ("i-scheduler", "aniello-online", "t-storm", "d-storm", "p-scheduler", "matrix")


def moved_to(revision: Revision | None) -> dict[str, str]:
    """Return executor -> target node."""
    return {} if revision is None else {move.executor.name: move.target.node for move in revision.moves}


def text_of(revision: Revision | None) -> str:
    return "" if revision is None else revision.text


def with_fixed_plan(places: Mapping[str, str]) -> CheckedOnline:
    """`aniello-online` that always plans these places."""
    ready = make_online_scheduler("aniello-online", None)

    def place(problem: Problem) -> Plan:
        (topology,) = problem.topologies
        slots = {name: Slot(place.partition("/")[0], int(place.partition("/")[2])) for name, place in places.items()}
        return Plan({topology.id: Placement({topology.executor_named[name]: slot for name, slot in slots.items()})})

    ready.inner.place = place  # type: ignore[method-assign]
    return ready


@pytest.mark.parametrize("name", ["i-scheduler", "aniello-online"])
def test_the_first_plan_joins_the_busiest_pairs(name: str) -> None:
    observation = observed(60)
    revision = make_online_scheduler(name, None).revise(round_at(observation), observation)
    assert revision is not None
    assert moved_to(revision) == {"b[0]": "n2", "b[1]": "n1"}
    assert (revision.reason, revision.expects.cut) == ("cut", 90)
    assert revision.details["cut"] == {"now": 310, "plan": 90}


def test_groups_named_the_other_way_are_renamed() -> None:
    """As named, the plan would move all executors but b[0] and b[1]."""
    other_way = {"s[0]": "n2/0", "b[1]": "n2/0", "k[1]": "n2/0", "s[1]": "n1/0", "b[0]": "n1/0", "k[0]": "n1/0"}
    observation = observed(60)
    revision = with_fixed_plan(other_way).revise(round_at(observation), observation)
    assert revision is not None
    assert (revision.details["moves_before_renaming"], revision.details["moves_after_renaming"]) == (4, 2)
    assert moved_to(revision) == {"b[0]": "n2", "b[1]": "n1"}


@pytest.mark.parametrize(("planned", "is_applied"), [(94.0, True), (95.0, False)])
def test_aniello_requires_a_tenth_less_rounded_down(planned: float, is_applied: bool) -> None:
    """105 tuples/s between nodes now: floor(105 x 0.9) = 94."""
    rates = {("s[0]", "b[0]"): planned, ("b[0]", "k[0]"): 105.0}
    places = {"s[0]": "n1/0", "b[0]": "n1/0", "k[0]": "n2/0"}
    plan = {"s[0]": "n1/0", "b[0]": "n2/0", "k[0]": "n2/0"}
    topology = chain(sizes=(1, 1, 1))
    observation = observed(60, places, rates)
    revision = with_fixed_plan(plan).revise(round_at(observation, topology), observation)
    assert moved_to(revision) == ({"b[0]": "n2"} if is_applied else {})
    assert revision is not None
    assert revision.details["cut"] == {"now": 105, "plan": planned}


def test_aniello_decides_by_whole_tuples_and_predicts_exact_rates() -> None:
    """Of a hundred pairs of 1.9 tuples/s, the published code counts 1 each; measurements afterwards have all of it."""
    rates = {("s[0]", "b[0]"): 94.9, ("b[0]", "k[0]"): 120.9}
    places = {"s[0]": "n1/0", "b[0]": "n1/0", "k[0]": "n2/0"}
    plan = {"s[0]": "n1/0", "b[0]": "n2/0", "k[0]": "n2/0"}
    observation = observed(60, places, rates)
    revision = with_fixed_plan(plan).revise(round_at(observation, chain(sizes=(1, 1, 1))), observation)
    assert revision is not None
    assert revision.details["cut"] == {"now": 120, "plan": 94}
    assert revision.expects.cut == pytest.approx(94.9)


@pytest.mark.parametrize(("planned_load", "is_applied"), [(300.0, True), (345.0, False)])
def test_aniello_relieves_a_node_even_if_traffic_between_nodes_rises(planned_load: float, is_applied: bool) -> None:
    """Nodes of 400 points, of which executors may use 340; n1 has 345 now."""
    cluster = nodes(2, capacity=None)
    topology = chain(sizes=(1, 1, 1))
    places = {"s[0]": "n1/0", "b[0]": "n1/0", "k[0]": "n2/0"}
    plan = {"s[0]": "n1/0", "b[0]": "n2/0", "k[0]": "n1/0"}
    load = {"s[0]": 245.0, "b[0]": 100.0, "k[0]": planned_load - 245.0}
    rates = {("s[0]", "b[0]"): 100.0, ("b[0]", "k[0]"): 10.0}
    observation = observed(60, places, rates, load=load, cluster=cluster)
    revision = with_fixed_plan(plan).revise(round_at(observation, topology, cluster), observation)
    assert bool(moved_to(revision)) == is_applied
    relieved = "executors exceed their nodes by 0 instead of 5"
    assert text_of(revision) == (relieved if is_applied else "the plan saves too little")


@pytest.mark.parametrize(
    ("outcome", "at_s", "is_applied"), [("done", 239, False), ("done", 240, True), ("abandoned", 70, True)]
)
def test_aniello_waits_after_a_revision_that_took_effect(outcome: str, at_s: float, is_applied: bool) -> None:
    observation = observed(at_s, history=[past_revision(60, outcome)])
    revision = make_online_scheduler("aniello-online", None).revise(round_at(observation), observation)
    assert bool(moved_to(revision)) == is_applied


def test_i_scheduler_applies_a_second_plan_only_if_it_saves_enough_and_time_has_passed() -> None:
    ready = make_online_scheduler("i-scheduler", None)
    for at_s, why in ((115, "the last revision was 60 s ago"), (360, "310 -> 90 tuples/s between nodes")):
        observation = observed(at_s, history=[past_revision(55)])
        assert text_of(ready.revise(round_at(observation), observation)) == why


def test_i_scheduler_of_the_paper_revises_once() -> None:
    observation = observed(400, history=[past_revision(55)])
    revision = make_online_scheduler("i-scheduler", None, parameters(("once=true",))).revise(
        round_at(observation), observation
    )
    assert text_of(revision) == "the placement is revised once only"


def test_t_storm_plans_when_its_period_is_over_and_at_once_when_a_node_is_overloaded() -> None:
    calm = observed(20, cluster=nodes(3, capacity=None))
    ready = make_online_scheduler("t-storm", None)
    unchanged = ready.revise(round_at(calm, cluster=nodes(3, capacity=None)), calm)
    assert unchanged is not None
    assert not unchanged.changes
    assert unchanged.details["trigger"] == {"name": "period_s", "value": 20, "threshold": 300}
    overloaded = observed(40, load={"s[0]": 370.0}, cluster=nodes(3, capacity=None))
    revision = ready.revise(round_at(overloaded, cluster=nodes(3, capacity=None)), overloaded)
    assert revision is not None
    assert revision.reason == "overload"
    late = observed(300, cluster=nodes(3, capacity=None))
    again = ready.revise(round_at(late, cluster=nodes(3, capacity=None)), late)
    assert again is not None
    assert again.reason == "cut"


def test_d_storm_plans_anew_when_a_load_is_not_as_planned() -> None:
    cluster = nodes(3, capacity=None)
    ready = make_online_scheduler("d-storm", None)
    for load, reason in ((12.0, ""), (12.1, "infeasible")):
        observation = observed(60, load={"s[0]": load}, rates={}, cluster=cluster)
        revision = ready.revise(round_at(observation, cluster=cluster), observation)
        assert revision is not None
        assert revision.reason == reason
    assert revision is not None
    assert revision.details["urgent"] == {"infeasible": ["s[0]"]}
    # The node has room: the load is other than planned, not more than its capacity.
    assert revision.text == "s[0]: load differs from the planned one"


@pytest.mark.parametrize(("outcome", "reason"), [("stale", "infeasible"), ("done", "")])
def test_d_storm_plans_again_if_its_plan_was_not_carried_out(outcome: Outcome, reason: str) -> None:
    cluster = nodes(3, capacity=None)
    ready = make_online_scheduler("d-storm", None)
    loads = {"s[0]": 12.1}
    first = observed(60, load=loads, cluster=cluster)
    revision = ready.revise(round_at(first, cluster=cluster), first)
    assert revision is not None
    assert revision.moves
    past = PastRevision(at_s=60.3, reason=revision.reason, outcome=outcome, moves=len(revision.moves))
    later = observed(130, load=loads, cluster=cluster, history=(past,))
    again = ready.revise(round_at(later, cluster=cluster), later)
    assert again is not None
    assert again.reason.replace("cut", "") == reason


def test_matrix_moves_only_executors_of_a_lost_node() -> None:
    cluster = nodes(3)
    without_n2 = structs.replace(
        cluster, nodes=(cluster.nodes[0], structs.replace(cluster.nodes[1], available=False), cluster.nodes[2])
    )
    observation = observed(60, cluster=without_n2, changes=[Change.of(50, "node_down", "n2")])
    revision = make_online_scheduler("matrix", None).revise(round_at(observation, cluster=cluster), observation)
    assert revision is not None
    assert revision.reason == "nodes"
    assert set(moved_to(revision)) == {"s[1]", "b[1]", "k[0]"}
    assert "n2" not in moved_to(revision).values()


@pytest.mark.parametrize("name", PLANNERS)
def test_all_executors_leave_a_drained_node(name: str) -> None:
    cluster = nodes(4)
    places = {**SPREAD_PLACEMENT, "k[0]": "n3/0"}
    drained = structs.replace(
        cluster, nodes=(*cluster.nodes[:2], structs.replace(cluster.nodes[2], available=False), cluster.nodes[3])
    )
    observation = observed(400, places, cluster=drained, changes=[Change.of(390, "node_down", "n3")])
    revision = make_online_scheduler(name, None).revise(round_at(observation, cluster=cluster), observation)
    assert "k[0]" in moved_to(revision)
    assert "n3" not in moved_to(revision).values()


@pytest.mark.parametrize("name", [pytest.param(PLANNERS[0], marks=pytest.mark.long), *PLANNERS[1:]])
@settings(max_examples=20, deadline=None)
@given(draw=st.randoms(use_true_random=False))
def test_under_constant_traffic_a_plan_is_applied_at_most_once(name: str, draw: random.Random) -> None:
    """A plan is applied once; under the same rates no later revision changes anything."""
    cluster, topology = nodes(4), chain(3, (3, 3, 3))
    rates = {
        (one.name, other.name): float(draw.randint(0, 500))
        for one in topology.executors
        for other in topology.executors
        if other.component == {"s": "b", "b": "k"}.get(one.component)
    }
    places = {e.name: f"n{at % 4 + 1}/0" for at, e in enumerate(topology.executors)}
    ready = make_online_scheduler(name, None)
    history: list[PastRevision] = []
    revisions = 0
    for at_s in range(400, 4400, 400):
        observation = observed(at_s, places, rates, cluster=cluster, history=history)
        revision = ready.revise(round_at(observation, topology, cluster), observation)
        if revision is not None and revision.moves:
            revisions += 1
            history.append(past_revision(at_s))
            places |= {m.executor.name: f"{m.target.node}/{m.target.index}" for m in revision.moves}
    assert revisions <= 1


@st.composite
def two_placements(draw: st.DrawFn) -> tuple[Problem, Observation, dict[Executor, Slot]]:
    """A running topology with states of any size, and a plan for it."""
    topology = chain(1, (3, 3, 3))
    cluster = nodes(draw(st.integers(1, 4)), capacity=None)
    slots = st.tuples(st.sampled_from([node.id for node in cluster.nodes]), st.integers(0, 1))
    names = [e.name for e in topology.executors]
    now = {name: "/".join(map(str, draw(slots))) for name in names}
    state = {name: draw(st.integers(0, 9)) for name in names} if draw(st.booleans()) else {}
    rates = {("s[0]", "b[0]"): 5.0, ("s[1]", "b[2]"): 7.0, ("b[1]", "k[1]"): 3.0}
    observation = observed(60, now, rates, cluster=cluster, state=state)
    if draw(st.booleans()):
        free = [n.id for n in cluster.nodes if not any(p == f"{n.id}/1" for p in now.values())]
        if free:
            others = (ExistingWorker("other", free[0], 1, ("x[0]",)),)
            cluster = Cluster(cluster.nodes, existing=others)
    taken = {Slot(w.node, w.slot) for w in cluster.existing}
    possible = [Slot(n.id, i) for n in cluster.nodes for i in range(2) if Slot(n.id, i) not in taken]
    plan = {e: draw(st.sampled_from(possible)) for e in topology.executors}
    return round_at(observation, topology, cluster), observation, plan


@given(two_placements())
def test_renaming_keeps_the_cut_and_the_groups_and_never_moves_more_state(
    case: tuple[Problem, Observation, dict[Executor, Slot]],
) -> None:
    problem, observation, plan = case
    (topology,) = problem.topologies
    now = {topology.executor_named[name]: slot for name, slot in observation.places.items()}
    state = {topology.executor_named[name]: found.state_bytes for name, found in observation.executors.items()}
    found = renamed_slots(problem, now, plan, state)
    assert cut_of(problem, topology, found) == cut_of(problem, topology, plan)
    assert _groups(found) == _groups(plan)
    others = {Slot(w.node, w.slot) for w in problem.existing if w.topology != topology.id}
    assert not others & set(found.values())
    assert _cost(now, found, state) <= _cost(now, plan, state)


def _groups(slots: Mapping[Executor, Slot]) -> list[list[str]]:
    return sorted(sorted(e.name for e in slots if slots[e] == slot) for slot in set(slots.values()))


def _cost(
    now: Mapping[Executor, Slot], then: Mapping[Executor, Slot], state: Mapping[Executor, int | None]
) -> tuple[int, int]:
    """Return the bytes of state and the number of executors that move."""
    moving = [e for e in now if now[e] != then[e]]
    return sum(state[e] or 0 for e in moving), len(moving)


def test_a_plan_that_finds_no_room_changes_nothing() -> None:
    observation = observed(60)
    small = nodes(2, capacity=1.0)
    revision = make_online_scheduler("d-storm", None).revise(round_at(observation, cluster=small), observation)
    assert revision is not None
    assert not revision.moves
    assert revision.text.startswith("no plan: ")


def test_the_problem_of_a_plan_lacks_the_workers_that_it_replaces() -> None:
    observation = observed(60)
    problems: list[Problem] = []

    def place(problem: Problem) -> Plan:
        problems.append(problem)
        return Plan({"t": Placement({}, "failed", "nothing")})

    problem = round_at(observation)
    others = replace(
        problem,
        cluster=structs.replace(problem.cluster, existing=(*problem.existing, ExistingWorker("u", "n3", 1, ("x[0]",)))),
    )
    assert replan(others, observation, place).message == "nothing"
    assert [worker.topology for worker in problems[0].existing] == ["u"]


WEIGHTS = st.dictionaries(
    st.integers(0, 5), st.dictionaries(st.sampled_from("abcde"), st.integers(0, 9), max_size=5), max_size=5
)


def heaviest(weight: dict[int, dict[str, int]], rows: list[int], used: frozenset[str] = frozenset()) -> int:
    """Return the weight of the best of all matchings."""
    if not rows:
        return 0
    row, *others = rows
    taken = (w + heaviest(weight, others, used | {c}) for c, w in weight[row].items() if c not in used)
    return max([heaviest(weight, others, used), *taken])


@given(WEIGHTS)
def test_no_matching_is_heavier_and_no_column_is_used_twice(weight: dict[int, dict[str, int]]) -> None:
    total, pairs = heaviest_matching(weight)
    assert total == sum(weight[row][column] for row, column in pairs.items()) == heaviest(weight, list(weight))
    assert len(set(pairs.values())) == len(pairs)
