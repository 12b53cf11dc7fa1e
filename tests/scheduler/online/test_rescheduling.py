"""A new partition: groups renamed, tested by the traffic between nodes, and accepted group by group."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from observed_rounds import ObservedCluster, rates_of
from problems import chain

from inventory.cluster import Cluster, Node
from scheduler.online.predicted_loads import PredictedLoads
from scheduler.online.rescheduling import RescheduleDecision, grouped, is_worth_it, node_cut, renamed_nodes, reschedule
from workloads.topology import Executor


def placed(**nodes: str) -> dict[Executor, str]:
    """`placed(a="x y")`: x[0] and y[0] are on a."""
    return {Executor(name, 0): node for node, names in nodes.items() for name in names.split()}


@pytest.mark.parametrize(
    ("now", "plan", "alpha", "worth"),
    [
        (120, 100, 1.2, False),
        (121, 100, 1.2, True),
        (100, 120, 0, False),
        (100, 100, 0, False),
        (101, 100, 0, True),
        (0, 0, 0, False),
        (5, 0, 1e9, True),
        (100, 120, 0.5, False),
    ],
)
def test_a_plan_must_be_better_by_the_ratio(now: float, plan: float, alpha: float, worth: bool) -> None:
    assert is_worth_it(now, plan, alpha) is worth


def test_groups_that_differ_in_their_names_only_are_the_same() -> None:
    now = placed(n1="a b", n2="c d", n3="e")
    plan = placed(n1="c d", n2="a b", n3="e")
    assert renamed_nodes(now, plan, {"n1": 2, "n2": 2, "n3": 1}) == now
    assert renamed_nodes(now, plan, {"n1": 2, "n2": 3, "n3": 1}) == plan  # nodes of different sizes keep their groups
    assert renamed_nodes(now, placed(n1="e", n2="a c", n3="b d"), dict.fromkeys(("n1", "n2", "n3"), 2)) in (
        placed(n3="e", n1="a c", n2="b d"),
        placed(n3="e", n2="a c", n1="b d"),
    )


def test_opposite_changes_are_pairs_and_cycles_one_group() -> None:
    now = placed(n1="a b c", n2="d e f", n3="g")
    target = now | placed(n2="a c", n1="f", n3="b", n2_="") | {Executor("e", 0): "n3", Executor("g", 0): "n1"}
    names = [[change[0].component for change in group] for group in grouped(now, target)]
    assert names == [["a", "f"], ["b", "g"], ["c", "e"]]
    target = placed(n2="a b c", n1="d e f", n3="g")
    assert [[c[0].component for c in group] for group in grouped(now, target)] == [["a", "d"], ["b", "e"], ["c", "f"]]
    assert grouped(now, now) == []


def exchange(points: float = 30.0, slots: int = 8) -> ObservedCluster:
    """a sends to d and c to b, across nodes."""
    return ObservedCluster(
        nodes=Cluster(tuple(Node(id=name, cpu=100, slots=slots) for name in ("n1", "n2"))),
        topology=chain(1, 1, 1, 1),
        places={"a[0]": "n1", "b[0]": "n1", "c[0]": "n2", "d[0]": "n2"},
        points={"a[0]": 20.0, "b[0]": 20.0, "c[0]": 20.0, "d[0]": points},
        rates=rates_of({"a-d": 100, "c-b": 80, "a-b": 10, "c-d": 12}),
    )


BETTER_PLAN = placed(n1="a d", n2="c b")


def decide(
    simulated: ObservedCluster, plan: dict[Executor, str], alpha: float = 1.2, held: str = ""
) -> tuple[RescheduleDecision, PredictedLoads]:
    loads = simulated.predicted()
    found = reschedule(
        simulated.topology, loads, plan, simulated.by_number, alpha, {Executor(name, 0) for name in held.split()}
    )
    return found, loads


def test_executors_are_exchanged_where_it_saves_enough() -> None:
    found, loads = decide(exchange(), BETTER_PLAN)
    assert (found.cut_now, found.cut_plan, found.cut_accepted, found.named) == (180, 22, 22, 2)
    assert [(executor.component, source, target) for executor, source, target in found.accepted] == [
        ("b", "n1", "n2"),
        ("d", "n2", "n1"),
    ]
    assert loads.load == pytest.approx({"n1": 0.52, "n2": 0.42})
    assert found.account == {
        "asked": True,
        "cut_old": 180,
        "cut_new": 22,
        "cut_accepted": 22,
        "alpha": 1.2,
        "fired": True,
        "moves_before_renaming": 2,
        "moves_after_renaming": 2,
        "groups": [{"changes": [["b[0]", "n1", "n2"], ["d[0]", "n2", "n1"]], "size": 2, "refusal": ""}],
        "rejected": [],
        "accepted": 2,
        "outcome": "180 -> 22 tuples/s between nodes",
    }


def test_nodes_of_a_plan_are_renamed() -> None:
    found, _ = decide(exchange(), placed(n2="a d", n1="c b"))
    assert found.named == 2
    assert len(found.accepted) == 2


def test_nothing_changes_if_a_plan_saves_too_little() -> None:
    simulated = exchange()
    found, loads = decide(simulated, BETTER_PLAN, alpha=9)
    assert (found.accepted, found.cut_accepted, found.text) == ((), 180, "the plan saves too little")
    assert loads.load == simulated.predicted().load
    assert decide(simulated, placed(n1="a c", n2="b d"))[0].text == "the plan is not better"


def test_a_receiver_must_end_below_its_bound() -> None:
    simulated = exchange(points=63.0)  # 0.02 + 0.20 + 0.63
    found, loads = decide(simulated, BETTER_PLAN)
    assert found.groups[0].refusal == "the load of n1 would reach its bound"
    assert found.text == "no change is accepted"
    assert loads.load == pytest.approx(simulated.predicted().load)
    assert decide(exchange(points=62.0), BETTER_PLAN)[0].accepted


def test_executors_that_moved_a_short_time_ago_stay() -> None:
    found, _ = decide(exchange(), BETTER_PLAN, held="d")
    assert found.groups[0].refusal == "moved a short time ago: d[0]"
    assert not found.accepted


def test_the_accepted_part_of_a_plan_must_save_enough() -> None:
    simulated = ObservedCluster(
        nodes=Cluster(tuple(Node(id=name, cpu=100, slots=8) for name in ("n1", "n2", "n3", "n4"))),
        topology=chain(*[1] * 8),
        places={
            "a[0]": "n1",
            "b[0]": "n1",
            "c[0]": "n2",
            "d[0]": "n2",
            "e[0]": "n3",
            "f[0]": "n3",
            "g[0]": "n4",
            "h[0]": "n4",
        },
        points=dict.fromkeys((f"{name}[0]" for name in "abcdefgh"), 10.0) | {"e[0]": 60.0, "h[0]": 30.0},
        rates=rates_of({"a-d": 5, "c-b": 5, "e-h": 100, "g-f": 50}),
    )
    plan = placed(n1="a d", n2="c b", n3="e h", n4="g f")
    found, loads = decide(simulated, plan)
    assert [group.refusal for group in found.groups] == ["", "the load of n3 would reach its bound"]
    assert (found.cut_now, found.cut_accepted) == (160, 160)
    assert found.text == "what was accepted of the plan saves too little"
    assert loads.load == pytest.approx(simulated.predicted().load)
    assert decide(simulated, plan, alpha=1.0)[0].cut_accepted == 150


@st.composite
def plans(draw: st.DrawFn) -> tuple[dict[Executor, str], dict[Executor, str], dict[str, int]]:
    """Current and planned placement, and nodes with room for both."""
    nodes = [f"n{at}" for at in range(draw(st.integers(1, 5)))]
    executors = [Executor("e", at) for at in range(draw(st.integers(1, 10)))]
    now = {executor: draw(st.sampled_from(nodes)) for executor in executors}
    plan = {executor: draw(st.sampled_from(nodes)) for executor in executors}
    return now, plan, {node: draw(st.sampled_from([10, 11])) for node in nodes}


@given(plans(), st.lists(st.integers(0, 9), min_size=45, max_size=45))
def test_renaming_keeps_the_cut_and_moves_the_fewest(
    drawn: tuple[dict[Executor, str], dict[Executor, str], dict[str, int]], rates: list[int]
) -> None:
    now, plan, places = drawn
    found = renamed_nodes(now, plan, places)
    topology = chain(len(now), names="e")
    pairs = [(one, other) for one in range(len(now)) for other in range(one + 1, len(now))]
    traffic = {pair: float(rate) for pair, rate in zip(pairs, rates, strict=False)}
    assert node_cut(topology, found, traffic) == node_cut(topology, plan, traffic)
    new_name = {plan[executor]: found[executor] for executor in plan}
    assert len(set(new_name.values())) == len(new_name)
    assert all(places[one] == places[other] for one, other in new_name.items())
    moves = sum(now[executor] != found[executor] for executor in now)
    fewest = min(
        sum(now[executor] != dict(zip(places, names, strict=True))[plan[executor]] for executor in now)
        for names in permutations(places)
        if all(places[one] == places[other] for one, other in zip(places, names, strict=True))
    )
    assert moves == fewest <= sum(now[executor] != plan[executor] for executor in now)


@given(plans())
def test_groups_are_all_changes_once_and_pairs_first(
    drawn: tuple[dict[Executor, str], dict[Executor, str], dict[str, int]],
) -> None:
    now, plan, _ = drawn
    groups = grouped(now, plan)
    changes = [change for group in groups for change in group]
    assert sorted(changes) == sorted((e, now[e], plan[e]) for e in now if now[e] != plan[e])
    for group in groups[:-1]:
        (_, source, target), (_, source_back, target_back) = group
        assert (source, target) == (target_back, source_back)
    if groups and len(groups[-1]) != 2:
        links = {(source, target) for _, source, target in groups[-1]}
        assert not any((target, source) in links for source, target in links)
