"""Order of a revision's moves: opposite moves together, loads within their bounds between waves."""

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import heappush
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol import MoveToPlace, Slot
from controller.coordinator.waves import MAX_LOAD, WaveLoads, waves_of

NODES = ("n1", "n2", "n3")


def loads(executors: dict[str, float], nodes: dict[str, float], highest: dict[str, float] | None = None) -> WaveLoads:
    return WaveLoads(executors, nodes, dict.fromkeys(NODES, 100.0), highest or {})


def names(waves: Sequence[tuple[MoveToPlace, ...]]) -> list[list[str]]:
    return [[move.executor for move in wave] for wave in waves]


def test_without_a_limit_all_moves_are_one_wave() -> None:
    moves = [MoveToPlace("a", Slot("n2", 0)), MoveToPlace("b", Slot("n3", 0))]
    places = {"a": Slot("n1", 0), "b": Slot("n1", 0)}
    assert names(waves_of(moves, places, loads({}, {}), 0)) == [["a", "b"]]


def test_the_lowest_resulting_load_goes_first() -> None:
    moves = [MoveToPlace("a", Slot("n2", 0)), MoveToPlace("b", Slot("n3", 0))]
    places = {"a": Slot("n1", 0), "b": Slot("n1", 0)}
    given_loads = loads({"a": 20, "b": 20}, {"n1": 0.8, "n2": 0.5, "n3": 0.1})
    assert names(waves_of(moves, places, given_loads, 1)) == [["b"], ["a"]]


def test_opposite_moves_go_together_even_beyond_the_limit() -> None:
    moves = [MoveToPlace("a", Slot("n2", 0)), MoveToPlace("b", Slot("n1", 0)), MoveToPlace("c", Slot("n3", 0))]
    places = {"a": Slot("n1", 0), "b": Slot("n2", 0), "c": Slot("n1", 0)}
    given_loads = loads({"a": 40, "b": 40, "c": 5}, {"n1": 0.8, "n2": 0.8, "n3": 0.9})
    assert names(waves_of(moves, places, given_loads, 1)) == [["a", "b"], ["c"]]


def test_a_node_is_emptied_before_it_is_filled() -> None:
    moves = [MoveToPlace("a", Slot("n2", 0)), MoveToPlace("b", Slot("n3", 0))]
    places = {"a": Slot("n1", 0), "b": Slot("n2", 0)}
    # n2 would have 1.2 if a came first, although n3 ends higher than n2.
    given_loads = loads({"a": 40, "b": 50}, {"n1": 0.5, "n2": 0.8, "n3": 0.3})
    assert names(waves_of(moves, places, given_loads, 1)) == [["b"], ["a"]]


def test_a_cycle_among_full_nodes_is_one_wave() -> None:
    moves = [MoveToPlace("a", Slot("n2", 0)), MoveToPlace("b", Slot("n3", 0)), MoveToPlace("c", Slot("n1", 0))]
    places = {"a": Slot("n1", 0), "b": Slot("n2", 0), "c": Slot("n3", 0)}
    given_loads = loads(dict.fromkeys("abc", 60.0), dict.fromkeys(NODES, 0.8))
    assert names(waves_of(moves, places, given_loads, 1)) == [["a", "b", "c"]]


def test_a_node_with_its_own_limit_does_not_exceed_it() -> None:
    moves = [MoveToPlace("a", Slot("n2", 0)), MoveToPlace("b", Slot("n3", 0))]
    places = {"a": Slot("n1", 0), "b": Slot("n2", 0)}
    given_loads = loads({"a": 10, "b": 20}, {"n1": 0.5, "n2": 0.4, "n3": 0.45}, {"n2": 0.45})
    assert names(waves_of(moves, places, given_loads, 1)) == [["b"], ["a"]]


def test_opposite_moves_wait_until_the_less_loaded_of_their_nodes_has_room() -> None:
    moves = [MoveToPlace("b", Slot("n1", 0)), MoveToPlace("a", Slot("n2", 0)), MoveToPlace("c", Slot("n3", 0))]
    places = {"a": Slot("n1", 0), "b": Slot("n2", 0), "c": Slot("n2", 0)}
    # a and b would leave n1 the higher load, 0.8, and take n2 to 0.4, above its limit.
    given_loads = loads({"a": 20, "b": 10, "c": 20}, {"n1": 0.9, "n2": 0.3, "n3": 0.75}, {"n2": 0.3})
    assert names(waves_of(moves, places, given_loads, 2)) == [["c"], ["b", "a"]]


@given(st.data())
def test_every_move_is_made_once_and_loads_stay_within_their_bounds(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 8))
    most = data.draw(st.integers(0, 4))
    executors = {f"e{at}": data.draw(st.integers(0, 60)) for at in range(count)}
    places = {name: Slot(data.draw(st.sampled_from(NODES)), 0) for name in executors}
    moves = [MoveToPlace(name, Slot(data.draw(st.sampled_from(NODES)), 1)) for name in executors]
    before = {node: sum(executors[e] for e in executors if places[e].node == node) / 100 for node in NODES}
    waves = waves_of(moves, places, loads(executors, before), most)
    assert sorted(move.executor for wave in waves for move in wave) == sorted(executors)
    now = {name: place.node for name, place in places.items()}
    target = {move.executor: move.to.node for move in moves}
    after = {node: sum(executors[e] for e in executors if target[e] == node) / 100 for node in NODES}
    for wave in waves:
        now |= {move.executor: move.to.node for move in wave}
        for node in NODES:
            load = sum(executors[e] for e in executors if now[e] == node) / 100
            assert load <= max(before[node], after[node], MAX_LOAD) + 1e-6
    for wave in waves[:-1]:
        assert most
        assert len(wave) <= max(most, 2)


def brute_force_waves(
    moves: Sequence[MoveToPlace], places: Mapping[str, Slot], given_loads: WaveLoads, most: int
) -> list[tuple[MoveToPlace, ...]]:
    """Return the waves by exhaustive search: every remaining group is tried before each choice."""
    groups: list[list[MoveToPlace]] = []
    for move in moves:
        source, target = places[move.executor].node, move.to.node
        for group in groups:
            (first, *more) = group
            opposite = (places[first.executor].node, first.to.node) == (target, source)
            if opposite and source != target and not more:
                group.append(move)
                break
        else:
            groups.append([move])

    def applied(now: Mapping[str, float], group: Sequence[MoveToPlace]) -> dict[str, float]:
        result = dict(now)
        for move in group:
            load = given_loads.executors.get(move.executor, 0.0)
            for node, sign in ((places[move.executor].node, -1), (move.to.node, 1)):
                result[node] = result.get(node, 0.0) + sign * load / given_loads.points[node]
        return result

    before = dict(given_loads.nodes)
    after = applied(before, moves)
    bound = {
        node: max(before.get(node, 0.0), load, given_loads.highest.get(node, MAX_LOAD)) for node, load in after.items()
    }
    now, waves = before, []
    while groups:
        wave: list[list[MoveToPlace]] = []
        while True:
            size = sum(map(len, wave))
            fitting = []
            for at, group in enumerate(groups):
                result = applied(now, group)
                if all(load <= bound[node] + 1e-9 for node, load in result.items()) and (
                    not wave or size + len(group) <= most
                ):
                    fitting.append((max(result[move.to.node] for move in group), at, result))
            if not fitting:
                break
            _, at, now = min(fitting, key=lambda each: each[:2])
            wave.append(groups.pop(at))
        if not wave:
            wave, groups = groups, []
        waves.append(tuple(move for group in wave for move in group))
    return waves


@given(st.randoms(use_true_random=False), st.integers(1, 40), st.integers(2, 6), st.integers(1, 7))
def test_waves_equal_those_of_an_exhaustive_search(random: Random, count: int, node_count: int, most: int) -> None:
    # Sums of multiples of 1/1024 are exact, so that equal loads are equal in both computations.
    nodes = [f"n{at}" for at in range(node_count)]
    sizes = [0, 64, 64, random.randrange(128), random.randrange(512)]
    executors = {f"e{at}": float(random.choice(sizes)) for at in range(count)}
    points = {node: float(random.choice([512, 1024])) for node in nodes}
    places = {name: Slot(random.choice(nodes), 0) for name in executors}
    moves = [MoveToPlace(name, Slot(random.choice(nodes), 1)) for name in executors]
    random.shuffle(moves)
    before = {node: random.randrange(1024) / 1024 for node in nodes if random.random() < 0.9}
    highest = {node: random.randrange(1024) / 1024 for node in nodes if random.random() < 0.3}
    given_loads = WaveLoads(executors, before, points, highest)
    most = min(most, count - 1)
    if most:
        assert waves_of(moves, places, given_loads, most) == brute_force_waves(moves, places, given_loads, most)


def test_ten_thousand_moves_are_examined_a_few_times_each(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(5)  # noqa: S311 - no secret
    nodes = [f"n{at}" for at in range(100)]
    executors = {f"e{at}": random.uniform(0.5, 1.0) for at in range(10_000)}
    places = {name: Slot(random.choice(nodes), 0) for name in executors}
    moves = [MoveToPlace(name, Slot(random.choice(nodes), 1)) for name in executors]
    pushes: Counter[str] = Counter()

    def counting_push(heap: list[object], entry: object) -> None:
        pushes["all"] += 1
        heappush(heap, entry)

    monkeypatch.setattr("controller.coordinator.waves.heappush", counting_push)
    waves = waves_of(moves, places, WaveLoads(executors, {}, dict.fromkeys(nodes, 100.0), {}), 100)
    assert sum(map(len, waves)) == len(moves)
    # An exhaustive search would examine each move some thousand times.
    assert len(moves) < pushes["all"] < 10 * len(moves)
