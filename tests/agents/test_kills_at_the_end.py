"""Kills just before the sources stop, in virtual time: the answer has every record that was due by then.

The coordinator, the tasks of all workers and their schedules are real. Workers report rarely, so that what the dead
one had emitted last is unknown.
"""

from collections.abc import Mapping
from random import Random

import pytest
from scenarios import Scenario, run_and_check

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
