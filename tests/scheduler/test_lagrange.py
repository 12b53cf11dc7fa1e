"""Prices of classes: the best set for a node is that of exhaustive search, and bounds are valid."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from partitioning_problems import cluster, rounds

from scheduler.partitioning import lagrange
from scheduler.partitioning.bounds import Density
from scheduler.partitioning.exact import search
from scheduler.partitioning.instance import Instance, instance_of
from scheduler.partitioning.kernels_pricing import price
from scheduler.partitioning.lagrange import PARTS, Prices, Pricing, can_price, find_prices
from scheduler.partitioning.rows import ints
from scheduler.problem import Problem
from workloads.example_topologies import layered

NO_LIMIT = 10**6


def never_stop() -> bool:
    return False


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    """Up to five classes of up to three members, with loads from 0 on, some of which communicate among themselves."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=5))
    near: list[dict[int, int]] = [{} for _ in sizes]
    for one, other in draw(st.lists(st.tuples(*[st.integers(0, len(sizes) - 1)] * 2), max_size=12)):
        near[one][other] = near[other][one] = draw(st.sampled_from([1, 2, 3, 40]))
    first = [sum(sizes[:at]) for at in range(len(sizes))]
    return Instance(
        members=tuple(range(start, start + size) for start, size in zip(first, sizes, strict=True)),
        load=tuple(draw(st.integers(0, 4)) for _ in sizes),
        memory=(0,) * len(sizes),
        topology=(0,) * len(sizes),
        near=tuple(near),
        capacity=(9, 5),
        room=(0, 0),
        slots=(1, 1),
        rate_scale=1,
        load_unit=1.0,
        home=(-1,) * sum(sizes),
    )


def _value(instance: Instance, counts: tuple[int, ...], profit: list[int]) -> int:
    doubled = 0
    for one, neighbours in enumerate(instance.near):
        for other, rate in neighbours.items():
            doubled += rate * counts[one] * (counts[other] - (one == other))
    return PARTS * doubled // 2 + sum(map(int.__mul__, counts, profit))


@given(instances(), st.integers(0, 9), st.integers(1, 12), st.data())
def test_the_best_set_is_that_of_exhaustive_search_and_limits_only_raise_the_bound(
    instance: Instance, room: int, limit: int, data: st.DataObject
) -> None:
    size = len(instance.members)
    profit = data.draw(st.lists(st.integers(-300, 100), min_size=size, max_size=size))
    sizes = [len(members) for members in instance.members]
    best = max(
        _value(instance, counts, profit)
        for counts in product(*(range(count + 1) for count in sizes))
        if sum(map(int.__mul__, counts, instance.load)) <= room
    )
    pricing = Pricing(instance)
    assert pricing.most(ints(sizes), ints(profit), room, NO_LIMIT) == best
    chosen = tuple(pricing.chosen)
    assert _value(instance, chosen, profit) == best
    assert sum(map(int.__mul__, chosen, instance.load)) <= room
    assert pricing.most(ints(sizes), ints(profit), room, limit) >= best


def test_compiled_and_interpreted_code_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    topology, traffic = layered(40, 5)
    instance = instance_of(Problem(cluster(*[8] * 6), (topology,), traffic), [topology])
    fast = find_prices(instance, 0, never_stop, 20)
    monkeypatch.setattr(lagrange, "compiled_kernels", lambda: SimpleNamespace(price=price))
    monkeypatch.setattr(lagrange, "ROUNDS", 12)
    slow = find_prices(instance, 0, never_stop, 20)
    monkeypatch.undo()
    monkeypatch.setattr(lagrange, "ROUNDS", 12)
    again = find_prices(instance, 0, never_stop, 20)
    assert (slow.prices, slow.most) == (again.prices, again.most)
    assert fast.most <= again.most


@given(rounds(most=9, nodes=4), st.data())
def test_no_prices_bound_less_than_the_optimum_and_searches_with_them_agree(
    problem: Problem, data: st.DataObject
) -> None:
    instance = instance_of(problem, problem.topologies)
    density = Density(instance)
    optimum = search(instance, density, -1, never_stop)
    assert can_price(instance)
    found = find_prices(instance, -1, never_stop, NO_LIMIT)
    size = len(instance.members)
    drawn = tuple(data.draw(st.lists(st.integers(-200, 200), min_size=size, max_size=size)))
    for prices in (found, Prices(found.pricing, drawn, 0)):
        priced = search(instance, density, -1, never_stop, prices)
        assert (priced.complete, priced.most) == (True, optimum.most)
        if priced.node_of is not None:
            assert instance.fits(priced.node_of)
            assert instance.cut(priced.node_of) == instance.total_rate - optimum.most
    if optimum.node_of is not None:
        assert found.most >= optimum.most


def test_numbers_that_could_overflow_are_not_priced() -> None:
    topology, traffic = layered(30, 1)
    instance = instance_of(Problem(cluster(*[8] * 6), (topology,), traffic), [topology])
    assert can_price(instance)
    huge = tuple({other: rate << 50 for other, rate in near.items()} for near in instance.near)
    assert not can_price(replace(instance, near=huge))


def test_prices_bound_more_tightly_than_loads_alone() -> None:
    topology, _ = layered(60, 2)
    instance = instance_of(Problem(cluster(*[10] * 7), (topology,)), [topology])
    bound = instance.total_rate - find_prices(instance, -1, never_stop, 10_000).most
    assert Density(instance).least_cut(instance) < bound <= 274  # W of a known placement
