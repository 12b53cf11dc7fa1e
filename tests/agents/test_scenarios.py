"""Kills, lost nodes, broken links, moves and stops at any moment: the answer has every row exactly once.

`--scenarios N` sets their number. `--seed S`, which a failure names, repeats them exactly.
"""

from collections import Counter
from collections.abc import Mapping
from math import ceil
from random import Random, randrange

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


KILLS, FEW = 200, 8
RATE = 1000.0
STOP_S = 0.6
LAST_S = 0.5
"""Kills are at most this long before the stop."""


class LateKill(Scenario):
    """A run at a constant rate in which one worker or agent is killed shortly before the stop."""

    step_s = 0.004
    reports = 0.001

    def __init__(self, seed: int) -> None:
        random = Random(seed)  # noqa: S311 - it must be repeatable
        super().__init__(random, seed)
        self.oracle.records = 10 * round(RATE * STOP_S)
        self.rate: Mapping[str, object] = {"kind": "constant", "tuples_per_s": RATE}
        self.stop_ns = round(STOP_S * 1e9)
        self.moves = []
        self.faults = [(STOP_S - random.uniform(0.0, LAST_S), random.choice(["worker", "worker", "agent"]), None)]


def test_every_record_that_was_due_is_in_the_answer_after_a_kill_before_the_stop() -> None:
    for seed in range(FEW):
        run_and_check(LateKill(seed))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_every_record_that_was_due_is_in_the_answer_after_any_of_many_kills() -> None:
    for seed in range(KILLS):
        run_and_check(LateKill(seed))
