"""Kills, lost nodes, broken links, moves and stops at any moment: the answer has every row exactly once.

`--scenarios N` sets their number. `--seed S`, which a failure names, repeats them exactly.
"""

from collections import Counter
from math import ceil
from random import randrange

import hypothesis
import pytest
from hypothesis import strategies as st
from scenarios import PHASES, Scenario, run_and_check

PARTS = 4
"""Parts of the scenarios, for parallel processes; every kind of event happens in each."""

ENOUGH_FOR_ALL_EVENTS = 400
"""Number of scenarios in which every kind of event happens."""

SCENARIOS = st.builds(Scenario, st.randoms(use_true_random=False), st.integers(0, 2**32))


@pytest.mark.timeout(3600)  # any number of scenarios, on a busy machine
@pytest.mark.parametrize("part", range(PARTS))
def test_the_answer_is_correct_whatever_is_killed_or_moved(request: pytest.FixtureRequest, part: int) -> None:
    seed = request.config.getoption("--seed")
    seed = randrange(10**6) if seed is None else seed  # noqa: S311 - any will do
    examples = ceil(request.config.getoption("--scenarios") / PARTS)
    happened: Counter[str] = Counter()

    @hypothesis.seed(seed + part)
    @hypothesis.settings(
        max_examples=examples,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        print_blob=False,
    )
    @hypothesis.given(SCENARIOS)
    def scenarios(scenario: Scenario) -> None:
        happened.update(run_and_check(scenario))

    try:
        scenarios()
    except BaseException as fault:
        fault.add_note(f"again: pytest {__file__} --scenarios {request.config.getoption('--scenarios')} --seed {seed}")
        raise
    expected = {"checkpoint", "recovery", "move", "node_lost", "stop in a recovery", *PHASES}
    assert examples < ENOUGH_FOR_ALL_EVENTS or happened.keys() >= expected, happened
