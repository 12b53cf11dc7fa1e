"""A run that emitted tuples fails if no row of its answer was compared."""

from collections.abc import Sequence

import pytest

from campaign.results.run_metrics import verified
from workloads.workload import Answer, PreparedInput, Verdict


class Lenient:
    """A workload that compares `checked` rows of a reference of `rows`, and finds all well."""

    def __init__(self, rows: int, checked: int) -> None:
        self.rows, self.checked = rows, checked

    def reference(self, _positions: Sequence[int], _inputs: Sequence[PreparedInput]) -> Answer:
        return {"empty": [], "counts": [("word", 1)] * self.rows}

    def compare(self, _answer: Answer, _reference: Answer) -> Verdict:
        return Verdict(True, self.checked)


@pytest.mark.parametrize(
    ("positions", "rows", "checked", "passed"),
    [
        ([700, 0], 5, 0, False),
        ([700, 0], 5, 5, True),
        # All that was emitted may be filtered out.
        ([700, 0], 0, 0, True),
        ([0, 0], 5, 0, True),
    ],
)
def test_a_run_that_emitted_and_checked_nothing_fails_unless_the_reference_is_empty(
    positions: list[int], rows: int, checked: int, passed: bool
) -> None:
    verdict = verified(Lenient(rows, checked), {}, positions, [])  # type: ignore[arg-type]
    assert verdict.passed is passed
    assert ("700 records were emitted" in verdict.message) is not passed
