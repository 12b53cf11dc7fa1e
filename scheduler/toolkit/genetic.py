"""Genetic search over permutations: roulette selection, two-point PMX, swap mutation, elitism.

The operators of Er-Stream's Algorithm 1 with corrections: the count of generations always grows, and the best
permutation of all generations is returned. All random numbers come from one generator that is the same on every
platform.
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
"""Work of a generation per gene, and per chromosome of any length, in numbers handled."""


@dataclass(frozen=True)
class GeneticSettings:
    """Settings of the search.

    Attributes:
        population: chromosomes per generation, at least 1.
        generations: maximum number of generations after the first.
        p_c: probability of crossover between two neighbours.
        p_m: probability of mutation of a chromosome.
        stall: generations without progress after which the search ends.
        seed: seed of the random number generator.
    """

    population: int
    generations: int
    p_c: float
    p_m: float
    stall: int
    seed: int


def evolve(
    size: int,
    fitness: Callable[["Integers"], int],
    target: int,
    settings: GeneticSettings,
    known: "Integers | None" = None,
) -> "Integers":
    """Return the fittest permutation of `0..size-1` found by the search.

    Args:
        size: genes of a chromosome, at least 1.
        fitness: returns the fitness of a chromosome, 0 or more.
        target: fitness at which the search stops.
        settings: settings of the search.
        known: a chromosome of the first generation, returned unless a fitter one is found; the others are random.
    """
    import numpy as np

    random = Random(settings.seed)  # noqa: S311  # a search, no secret
    population = np.array([_permutation(size, random) for _ in range(settings.population)])
    if known is not None:
        population[0] = known
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
    """Return as many positions as there are values, each drawn with a probability proportional to its value.

    All are equally likely when all values are 0.
    """
    sums = list(accumulate(values))
    if not sums[-1]:
        return [_below(len(values), random) for _ in values]
    return [bisect_right(sums, _below(sums[-1], random)) for _ in values]


def pmx(parent: "Integers", donor: "Integers", first: int, last: int) -> "Integers":
    """Return the partially mapped crossover: genes `first..last-1` of `donor`, the others of `parent` where possible.

    A gene that is already in the segment is replaced by the gene that it replaced in the segment, and so on.
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
    """Return a random permutation; all are equally likely."""
    import numpy as np

    return np.argsort([random.random() for _ in range(size)], kind="stable")


def _below(limit: int, random: Random) -> int:
    """Return a random number from 0 to `limit` - 1, using `random()`, which is the same in every Python version."""
    return min(int(random.random() * limit), limit - 1)
