"""Random choices as functions of numbers: any part of the data can be made without the parts before it.

The hash is SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators") of a counter.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]

MILLION = 1_000_000
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


class Draws:
    """Choices of one kind, by number; those of different kinds or seeds have nothing to do with one another."""

    def __init__(self, seed: int, kind: str) -> None:
        self._key = np.uint64(int.from_bytes(blake2b(f"{kind} {seed}".encode(), digest_size=8).digest(), "big"))

    def bits(self, numbers: npt.NDArray[Any]) -> Bits:
        """Return 64 random bits for each number."""
        z = numbers.astype(np.uint64) * _GOLDEN + self._key
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: Bits = z ^ (z >> np.uint64(31))
        return mixed

    def below(self, numbers: npt.NDArray[Any], most: int | npt.NDArray[Any]) -> Integers:
        """Return 0..most - 1, all alike; `most` up to 2^32."""
        return ((self.bits(numbers) >> _HALF) * np.asarray(most, np.uint64) >> _HALF).astype(np.int64)

    def happens(self, numbers: npt.NDArray[Any], in_a_million: int) -> npt.NDArray[np.bool_]:
        """Return whether what happens so often happens."""
        return self.below(numbers, MILLION) < in_a_million

    def by_share(self, numbers: npt.NDArray[Any], weights: Sequence[int] | Integers) -> Integers:
        """Return positions in `weights`, each with a frequency in proportion to its weight."""
        reached = np.cumsum(np.asarray(weights, np.int64))
        return np.searchsorted(reached, self.below(numbers, int(reached[-1])), side="right").astype(np.int64)

    def by_quantiles(self, numbers: npt.NDArray[Any], quantiles: Sequence[int]) -> Integers:
        """Return values with these quantiles, at equal distances from the smallest to the largest.

        Between them, linear.
        """
        return quantile_values(self.bits(numbers) >> _HALF, quantiles)


def quantile_values(shares: Bits, quantiles: Sequence[int]) -> Integers:
    """Return the values at shares of 2^32 of a distribution, by its quantiles at equal distances."""
    table = np.asarray(quantiles, np.int64)
    place = shares * np.uint64(len(table) - 1)
    step, into = (place >> _HALF).astype(np.int64), (place & _LOW).astype(np.int64)
    low = table[step]
    values: Integers = low + ((table[step + 1] - low) * into >> 32)
    return values


def stratified(draws: Draws, count: int, quantiles: Sequence[int]) -> Integers:
    """Return `count` values that keep to their quantiles as well as so few can, in random order."""
    numbers = np.arange(count)
    shares = ((numbers.astype(np.uint64) << _HALF) + (draws.bits(numbers) >> _HALF)) // np.uint64(count)
    order = np.argsort(draws.bits(numbers + count), kind="stable")
    return quantile_values(shares, quantiles)[order]
