"""The genetic search: its operators against their definitions, and when it ends."""

from itertools import chain
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.toolkit.genetic import GeneticSettings, evolve, pmx, roulette


class Loaded(Random):
    """Throws what the test says."""

    def __init__(self, *throws: float) -> None:
        super().__init__()
        self._throws = iter(throws)

    def random(self) -> float:
        return next(self._throws)


def settings(**given: float) -> GeneticSettings:
    usual = {"population": 6, "generations": 20, "p_c": 0.8, "p_m": 0.3, "stall": 60, "seed": 1}
    return GeneticSettings(**(usual | given))  # type: ignore[arg-type]


def printed_pmx(parent: list[int], donor: list[int], first: int, last: int) -> list[int]:
    """Goldberg and Lingle's crossover by following the mapping of the segment, one gene at a time."""
    mapping = dict(zip(donor[first:last], parent[first:last], strict=True))
    child: list[int] = []
    for at, gene in enumerate(parent):
        if first <= at < last:
            child.append(donor[at])
            continue
        while gene in mapping:
            gene = mapping[gene]
        child.append(gene)
    return child


def test_pmx_of_the_textbook() -> None:
    one, other = [0, 1, 2, 3, 4, 5, 6, 7, 8], [8, 2, 6, 7, 1, 5, 4, 0, 3]
    assert pmx(np.array(one), np.array(other), 3, 7).tolist() == [0, 6, 2, 7, 1, 5, 4, 3, 8]


@given(st.integers(1, 12).flatmap(lambda n: st.tuples(*[st.permutations(range(n))] * 2, *[st.integers(0, n)] * 2)))
def test_pmx_follows_the_mapping(case: tuple[list[int], list[int], int, int]) -> None:
    parent, donor, *cuts = case
    first, last = sorted(cuts)
    child = pmx(np.array(parent), np.array(donor), first, last).tolist()
    assert child == printed_pmx(parent, donor, first, last)
    assert sorted(child) == sorted(parent)


def test_roulette_gives_each_value_its_share_of_the_wheel() -> None:
    # Of 10 parts 3 belong to the first, 6 to the third, 1 to the last one.
    throws = (0.0, 0.29, 0.3, 0.89)
    assert roulette([3, 0, 6, 1], Loaded(*throws)) == [0, 0, 2, 2]
    assert roulette([3, 0, 6, 1], Loaded(0.9, 0.999, 0.5, 0.1)) == [3, 3, 2, 0]


def test_a_wheel_without_parts_is_fair() -> None:
    assert roulette([0, 0, 0, 0], Loaded(0.0, 0.26, 0.74, 0.99)) == [0, 1, 2, 3]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8).filter(any), st.integers())
def test_what_is_worth_nothing_is_never_drawn(values: list[int], seed: int) -> None:
    assert all(values[at] > 0 for at in roulette(values, Random(seed)))  # noqa: S311  # a search, no secret


def in_place(chromosome: "np.ndarray[tuple[int, ...], np.dtype[np.int64]]") -> int:
    """Genes that are where they belong."""
    return int((chromosome == np.arange(len(chromosome))).sum())


def test_the_search_sorts_a_permutation() -> None:
    best = evolve(8, in_place, 8, settings(population=40, generations=400, stall=400))
    assert best.tolist() == list(range(8))


@given(st.integers(1, 9), st.integers(1, 7), st.integers(0, 12), st.floats(0, 1), st.floats(0, 1), st.integers(0, 99))
def test_the_best_ever_seen_is_returned(
    size: int, population: int, generations: int, p_c: float, p_m: float, seed: int
) -> None:
    seen: list[int] = []

    def fitness(chromosome: "np.ndarray[tuple[int, ...], np.dtype[np.int64]]") -> int:
        assert sorted(chromosome) == list(range(size))
        seen.append(in_place(chromosome))
        return seen[-1]

    how = GeneticSettings(population, generations, p_c, p_m, 1000, seed)
    best = evolve(size, fitness, size + 1, how)
    assert in_place(best) == max(seen)
    assert len(seen) == population * (generations + 1)
    assert evolve(size, in_place, size + 1, how).tolist() == best.tolist()
    # The best so far takes part in every later generation.
    rounds = [seen[at : at + population] for at in range(0, len(seen), population)]
    for at in range(1, len(rounds)):
        assert rounds[at][0] == max(chain.from_iterable(rounds[:at]))


@pytest.mark.parametrize(
    ("target", "stall", "rounds"),
    [(5, 7, 1), (6, 7, 8), (6, 1000, 21)],
    ids=["target reached", "no progress", "limit"],
)
def test_when_the_search_ends(target: int, stall: int, rounds: int) -> None:
    asked = 0

    def fitness(_: object) -> int:
        nonlocal asked
        asked += 1
        return 5

    evolve(4, fitness, target, settings(stall=stall))
    assert asked == 6 * rounds


def test_other_seeds_search_elsewhere() -> None:
    ends = {tuple(evolve(9, lambda _: 0, 1, settings(generations=3, seed=seed)).tolist()) for seed in range(5)}
    assert len(ends) == 5


@given(st.permutations(range(6)), st.integers(0, 5))
def test_a_known_permutation_stays_unless_a_fitter_one_is_found(known: list[int], seed: int) -> None:
    def fixed_points(chromosome: np.ndarray) -> int:
        return int((chromosome == np.arange(6)).sum())

    start = np.array(known)
    found = evolve(6, fixed_points, 6, settings(seed=seed), start)
    assert fixed_points(found) > fixed_points(start) or found.tolist() == known
    assert evolve(6, lambda _: 1, 2, settings(seed=seed), start).tolist() == known
