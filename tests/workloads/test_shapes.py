"""Topologies of scheduler benchmarks have the published sizes."""

import pytest

from workloads.example_topologies import (
    MICRO_SIZES,
    chain,
    diamond,
    layered,
    linear,
    products,
    smart_home,
    star,
    taxi,
)


@pytest.mark.parametrize("size", MICRO_SIZES)
def test_micro_benchmarks_have_the_published_executors_and_pairs(size: int) -> None:
    for shape, pairs in ((linear, 4 * (size // 2 - 1)), (diamond, 8 * (size - 8)), (star, 4 * (size - 4))):
        topology = shape(size)
        assert len(topology.executors) == size
        assert len(list(topology.pairs())) == pairs


def test_applications_have_the_published_executors_and_pairs() -> None:
    for topology, executors, pairs in ((smart_home(), 40, 400), (taxi(), 45, 420)):
        assert (len(topology.executors), len(list(topology.pairs()))) == (executors, pairs)


def test_a_chain_has_one_pair_less_than_executors() -> None:
    assert len(list(chain(50).pairs())) == 49


def test_products_have_equal_components_and_every_pair_of_a_link() -> None:
    topology = products(10, 7, 1)
    assert topology == products(10, 7, 1) != products(10, 7, 2)
    assert [component.parallelism for component in topology.components] == [7] * 10
    assert all(component.inputs for component in topology.components if component.kind == "bolt")
    assert len(list(topology.pairs())) == 7 * 7 * len(list(topology.links()))


def test_layered_graphs_follow_from_their_seed_and_carry_skewed_rates() -> None:
    topology, traffic = layered(300, 7)
    assert (topology, traffic) == layered(300, 7)
    assert traffic != layered(300, 8)[1]
    assert len(topology.executors) == 300
    assert {(e.source, e.destination) for e in traffic.edges} == {(a.name, b.name) for a, b in topology.pairs()}
    rates = sorted(edge.tuples_per_s for edge in traffic.edges)
    assert sum(rates[-len(rates) // 10 :]) > sum(rates) / 3
