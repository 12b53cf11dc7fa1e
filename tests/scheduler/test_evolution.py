"""The genetic search: its operators against their definitions, and when it ends."""

from itertools import chain
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.toolkit.genetic import GeneticSettings, evolve, pmx, roulette


class FixedRandom(Random):
    """Random numbers that a test chooses."""

    def __init__(self, *throws: float) -> None:
        super().__init__()
        self._throws = iter(throws)

    def random(self) -> float:
        return next(self._throws)


def settings(**changes: float) -> GeneticSettings:
    defaults = {"population": 6, "generations": 20, "p_c": 0.8, "p_m": 0.3, "stall": 60, "seed": 1}
    return GeneticSettings(**(defaults | changes))  # type: ignore[arg-type]


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


def test_pmx_agrees_with_the_textbook_example() -> None:
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
    # Of 10 parts, 3 are those of the first value, 6 those of the third, 1 is that of the last.
    throws = (0.0, 0.29, 0.3, 0.89)
    assert roulette([3, 0, 6, 1], FixedRandom(*throws)) == [0, 0, 2, 2]
    assert roulette([3, 0, 6, 1], FixedRandom(0.9, 0.999, 0.5, 0.1)) == [3, 3, 2, 0]


def test_a_wheel_of_zeros_draws_uniformly() -> None:
    assert roulette([0, 0, 0, 0], FixedRandom(0.0, 0.26, 0.74, 0.99)) == [0, 1, 2, 3]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8).filter(any), st.integers())
def test_values_of_0_are_never_drawn(values: list[int], seed: int) -> None:
    assert all(values[at] > 0 for at in roulette(values, Random(seed)))  # noqa: S311  # a search, no secret


def genes_in_place(chromosome: "np.ndarray[tuple[int, ...], np.dtype[np.int64]]") -> int:
    """Return the number of genes at their own index."""
    return int((chromosome == np.arange(len(chromosome))).sum())


def test_the_search_sorts_a_permutation() -> None:
    best = evolve(8, genes_in_place, 8, settings(population=40, generations=400, stall=400))
    assert best.tolist() == list(range(8))


@given(st.integers(1, 9), st.integers(1, 7), st.integers(0, 12), st.floats(0, 1), st.floats(0, 1), st.integers(0, 99))
def test_the_best_of_all_generations_is_returned(
    size: int, population: int, generations: int, p_c: float, p_m: float, seed: int
) -> None:
    fitnesses: list[int] = []

    def fitness(chromosome: "np.ndarray[tuple[int, ...], np.dtype[np.int64]]") -> int:
        assert sorted(chromosome) == list(range(size))
        fitnesses.append(genes_in_place(chromosome))
        return fitnesses[-1]

    genetic_settings = GeneticSettings(population, generations, p_c, p_m, 1000, seed)
    best = evolve(size, fitness, size + 1, genetic_settings)
    assert genes_in_place(best) == max(fitnesses)
    assert len(fitnesses) == population * (generations + 1)
    assert evolve(size, genes_in_place, size + 1, genetic_settings).tolist() == best.tolist()
    # The best so far takes part in every later generation.
    rounds = [fitnesses[at : at + population] for at in range(0, len(fitnesses), population)]
    for at in range(1, len(rounds)):
        assert rounds[at][0] == max(chain.from_iterable(rounds[:at]))


@pytest.mark.parametrize(
    ("target", "stall", "rounds"),
    [(5, 7, 1), (6, 7, 8), (6, 1000, 21)],
    ids=["target reached", "no progress", "limit"],
)
def test_the_search_ends_at_the_target_without_progress_or_at_the_limit(target: int, stall: int, rounds: int) -> None:
    evaluations = 0

    def fitness(_: object) -> int:
        nonlocal evaluations
        evaluations += 1
        return 5

    evolve(4, fitness, target, settings(stall=stall))
    assert evaluations == 6 * rounds


def test_seeds_give_different_searches() -> None:
    results = {tuple(evolve(9, lambda _: 0, 1, settings(generations=3, seed=seed)).tolist()) for seed in range(5)}
    assert len(results) == 5


@given(st.permutations(range(6)), st.integers(0, 5))
def test_a_known_permutation_stays_unless_a_fitter_one_is_found(known: list[int], seed: int) -> None:
    def fixed_points(chromosome: np.ndarray) -> int:
        return int((chromosome == np.arange(6)).sum())

    start = np.array(known)
    found = evolve(6, fixed_points, 6, settings(seed=seed), start)
    assert fixed_points(found) > fixed_points(start) or found.tolist() == known
    assert evolve(6, lambda _: 1, 2, settings(seed=seed), start).tolist() == known
