"""A genetic search over permutations: roulette selection, two-point PMX, swaps, the best never lost.

The operators of Er-Stream's Algorithm 1 as corrected: the count of generations always grows, and what is returned
is the best ever seen. All chance comes from one generator that gives the same numbers everywhere.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

GENE_WORK = 15
CHROMOSOME_WORK = 2000
"""What a generation costs per gene, and per chromosome whatever its length, if handling one number costs 1."""


@dataclass(frozen=True)
class GeneticSettings:
    """How to search.

    Attributes:
        population: chromosomes per generation, at least 1.
        generations: most generations after the first.
        p_c: probability that two neighbours are crossed.
        p_m: probability that a chromosome is mutated.
        stall: generations without progress after which the search ends.
        seed: of the generator.
    """

    population: int
    generations: int
    p_c: float
    p_m: float
    stall: int
    seed: int


def evolve(size: int, fitness: Callable[["Integers"], int], target: int, settings: GeneticSettings) -> "Integers":
    """The fittest permutation of `0..size-1` that the search comes across.

    Args:
        size: genes of a chromosome, at least 1.
        fitness: of a chromosome, 0 or more.
        target: a fitness that is good enough to stop.
        settings: how to search.
    """
    import numpy as np

    random = Random(settings.seed)  # noqa: S311  # a search, no secret
    population = np.array([_permutation(size, random) for _ in range(settings.population)])
    best: Integers = population[0]
    best_fitness, quiet = -1, 0
    for generation in range(settings.generations + 1):
        values = [fitness(chromosome) for chromosome in population]
        fittest = max(range(len(values)), key=values.__getitem__)
        quiet += 1
        if values[fittest] > best_fitness:
            best, best_fitness, quiet = population[fittest].copy(), values[fittest], 0
        if best_fitness >= target or quiet >= settings.stall or generation == settings.generations:
            break
        population = population[roulette(values, random)]
        for at in range(0, len(population) - 1, 2):
            if random.random() < settings.p_c:
                first, last = sorted((_below(size + 1, random), _below(size + 1, random)))
                one, other = population[at].copy(), population[at + 1].copy()
                population[at], population[at + 1] = pmx(one, other, first, last), pmx(other, one, first, last)
        for chromosome in population:
            if random.random() < settings.p_m:
                i, j = _below(size, random), _below(size, random)
                chromosome[i], chromosome[j] = chromosome[j], chromosome[i]
        population[0] = best
    return best


def roulette(values: list[int], random: Random) -> list[int]:
    """As many positions as there are values, each drawn with a probability proportional to its value.

    All are equally likely when all values are 0.
    """
    sums = list(accumulate(values))
    if not sums[-1]:
        return [_below(len(values), random) for _ in values]
    return [bisect_right(sums, _below(sums[-1], random)) for _ in values]


def pmx(parent: "Integers", donor: "Integers", first: int, last: int) -> "Integers":
    """Partially mapped crossover: genes `first..last-1` of `donor`, the others of `parent` as far as they can stay.

    A gene that the segment holds already gives way to the one that it replaced in the segment, and so on.
    """
    import numpy as np

    child = parent.copy()
    child[first:last] = donor[first:last]
    replaced = np.full(len(parent), -1, dtype=np.int64)
    replaced[donor[first:last]] = parent[first:last]
    outside = np.concatenate((np.arange(first), np.arange(last, len(parent))))
    outside = outside[replaced[child[outside]] >= 0]
    while len(outside):
        child[outside] = replaced[child[outside]]
        outside = outside[replaced[child[outside]] >= 0]
    return child


def _permutation(size: int, random: Random) -> "Integers":
    """A permutation, all equally likely."""
    import numpy as np

    return np.argsort([random.random() for _ in range(size)], kind="stable")


def _below(limit: int, random: Random) -> int:
    """A number from 0 to `limit` - 1; only `random()` is promised to be the same in every Python."""
    return min(int(random.random() * limit), limit - 1)
