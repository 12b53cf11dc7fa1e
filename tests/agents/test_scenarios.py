"""Kills, lost nodes, broken links, moves and stops at any moment: the answer is the right one, every row once.

`--scenarios N` asks for more of them, and `--seed S`, which a failure names, repeats them exactly.
"""

from collections import Counter
from math import ceil
from random import randrange

import hypothesis
import pytest
from hypothesis import strategies as st
from scenarios import PHASES, Scenario, run_and_check

PARTS = 4
"""Parts of the scenarios, so that cores share them; in each of them everything happens."""

ENOUGH = 400
"""Scenarios in which everything happens that may happen."""

SCENARIOS = st.builds(Scenario, st.randoms(use_true_random=False), st.integers(0, 2**32))


@pytest.mark.timeout(3600)  # there may be any number of them, on a machine that does much else
@pytest.mark.parametrize("part", range(PARTS))
def test_the_answer_is_right_whatever_is_killed_or_moved(request: pytest.FixtureRequest, part: int) -> None:
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
    assert examples < ENOUGH or happened.keys() >= expected, happened
