"""Rates that no schedule can represent are refused as input errors, before they fail in a worker."""

import math

import pytest

from inventory.errors import InputError
from workloads.rates import rate_of


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 0, -1, 1.1e9, 1e300, "fast", None])
def test_an_impossible_rate_is_an_input_error(value: object) -> None:
    with pytest.raises(InputError, match="tuples_per_s"):
        rate_of({"kind": "constant", "tuples_per_s": value})
    with pytest.raises(InputError, match="steps"):
        rate_of({"kind": "steps", "steps": [[0, value if value != 0 else -1]]})


@pytest.mark.parametrize("start", [math.inf, math.nan, 1e10, -1])
def test_a_step_with_an_impossible_start_is_an_input_error(start: float) -> None:
    with pytest.raises(InputError, match="steps"):
        rate_of({"kind": "steps", "steps": [[0, 5], [start, 7]]})


def test_the_highest_rate_has_a_schedule() -> None:
    schedule = rate_of({"kind": "constant", "tuples_per_s": 1e9}).schedule()
    assert schedule is not None
    assert [schedule.due_ns(record) for record in (0, 1, 10**12)] == [0, 1, 10**12]
    assert schedule.due_count(5) == 6
