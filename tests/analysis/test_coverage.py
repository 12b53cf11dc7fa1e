"""Coverage of the interval of a comparison, by simulated campaigns with a known effect."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from analysis.statistics.comparison import hodges_lehmann_interval

TRIALS = 1000
EFFECT = math.log(1.1)
Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]


def normal(generator: np.random.Generator, n: int) -> NDArray[np.float64]:
    return np.log(1 + 0.05 * generator.standard_normal(n))


def lognormal(generator: np.random.Generator, n: int) -> NDArray[np.float64]:
    return 0.5 * generator.standard_normal(n)


def heavy_tailed(generator: np.random.Generator, n: int) -> NDArray[np.float64]:
    return np.log(np.maximum(1 + 0.05 * generator.standard_t(3, n), 0.01))


@pytest.mark.parametrize(("n", "coverage"), [(5, 0.9375), (10, 0.9512), (20, 0.9516)])
@pytest.mark.parametrize("draw", [normal, lognormal, heavy_tailed])
def test_the_interval_has_its_nominal_coverage(draw: Draw, n: int, coverage: float) -> None:
    generator = np.random.default_rng(n)
    held = 0
    for _ in range(TRIALS):
        found = hodges_lehmann_interval(EFFECT + draw(generator, n) - draw(generator, n))
        assert found is not None
        held += found.low <= EFFECT <= found.high
    # The exact coverage of symmetric values, in 99.9 % binomial bounds.
    low, high = stats.binom.ppf([0.0005, 0.9995], TRIALS, coverage)
    assert low <= held <= high
