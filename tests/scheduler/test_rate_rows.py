"""Rounds with very many observed pairs: the same problem as with one dict per executor."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from msgspec.structs import replace as replaced
from partitioning_problems import cluster

from scheduler.partitioning import instance as instance_module
from scheduler.partitioning.instance import Instance, instance_of
from scheduler.partitioning.rate_rows import RateRows
from scheduler.partitioning.rows import listed_pairs
from scheduler.problem import Problem
from workloads.example_topologies import layered
from workloads.traffic import Edge, Traffic

TOPOLOGY, TRAFFIC = layered(300, 5, widest=8)


def problem(edges: tuple[Edge, ...]) -> Problem:
    return Problem(cluster(*[60] * 6), (TOPOLOGY,), Traffic(edges))


def in_rows(monkeypatch: pytest.MonkeyPatch, case: Problem) -> Instance:
    with monkeypatch.context() as patched:
        patched.setattr(instance_module, "MANY", 0)
        return instance_of(case, case.topologies)


def rounds() -> Iterator[Problem]:
    yield problem(TRAFFIC.edges)
    for seed in range(8):
        random = Random(seed)  # noqa: S311 - no secret
        edges = tuple(replaced(edge, tuples_per_s=random.random() * 10**seed) for edge in TRAFFIC.edges)
        reversed_edges = tuple(Edge(edge.destination, edge.source, edge.tuples_per_s / 3) for edge in edges[::3])
        foreign_edges = (Edge("elsewhere[0]", edges[0].source, 5.0), Edge(edges[1].source, edges[1].source, 7.0))
        tiny_edges = (replaced(edges[2], tuples_per_s=0.0), Edge(edges[0].source, edges[-1].destination, 1e-300))
        yield problem((*edges, *reversed_edges, *foreign_edges, *tiny_edges, *edges[::7]))


def test_rows_hold_the_same_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    for case in rounds():
        as_dicts, as_rows = instance_of(case, case.topologies), in_rows(monkeypatch, case)
        assert isinstance(as_rows.near, RateRows)
        assert not isinstance(as_dicts.near, RateRows)
        assert as_rows.rate_scale == as_dicts.rate_scale
        one, other = listed_pairs(as_rows), listed_pairs(as_dicts)
        assert list(one.xadj) == list(other.xadj)
        for begin, end in zip(one.xadj, one.xadj[1:], strict=False):
            neighbours = sorted(zip(one.adj[begin:end], one.wgt[begin:end], strict=True))
            assert neighbours == sorted(zip(other.adj[begin:end], other.wgt[begin:end], strict=True))


def test_an_instance_in_rows_has_the_same_values(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(1)  # noqa: S311 - no secret
    for case in rounds():
        as_dicts, as_rows = instance_of(case, case.topologies), in_rows(monkeypatch, case)
        node_of = [random.randrange(6) for _ in range(as_rows.executors)]
        assert as_rows.distinct
        assert as_rows.cut(node_of) == as_dicts.cut(node_of) > 0
        assert (as_rows.pairs, as_rows.total_rate) == (as_dicts.pairs, as_dicts.total_rate)
        assert as_rows.links == as_rows.pairs
        assert as_rows.fits(node_of) == as_dicts.fits(node_of)
        near = as_rows.near
        same = replace(as_rows, near=tuple(near))
        assert (same.pairs, same.total_rate, same.links) == (as_rows.pairs, as_rows.total_rate, as_rows.links)
        assert near[2:4] == [near[2], near[3]]
        assert near[-1] == near[len(near) - 1]


def test_equal_executors_stay_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    equal = tuple(replaced(edge, tuples_per_s=1.0) for edge in TRAFFIC.edges)
    found = in_rows(monkeypatch, problem(equal))
    assert not isinstance(found.near, RateRows)
    assert len(found.members) < 0.9 * found.executors


def test_rows_may_be_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    found = in_rows(monkeypatch, problem(()))
    assert found.pairs == found.total_rate == 0
