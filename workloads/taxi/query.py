"""Common base of both queries: trips on a grid, and the reference."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from workloads.rates import NS
from workloads.recordings.grid import Grid
from workloads.taxi.layout import CHANGES, SNAPSHOTS, same
from workloads.taxi.trips import TaxiParams, prepare_trips
from workloads.workload import Answer, PreparedInput, Verdict


class TaxiQuery:
    """The part of a workload that does not depend on its query.

    Attributes:
        grid: grid that must contain both ends of a trip.
        plain: module of the reference, which nodes need not import.
    """

    grid: ClassVar[Grid]
    plain: ClassVar[str]

    def __init__(self, params: TaxiParams) -> None:
        self.params = params

    def prepare(self, folder: Path) -> Sequence[PreparedInput]:
        """Prepare the trips with both ends on the grid."""
        return [prepare_trips(self.params, self.grid, folder)]

    def reference(self, positions: Sequence[int], inputs: Sequence[PreparedInput]) -> Answer:
        """Return both tables, computed from the emitted trips."""
        from workloads.recordings.positions import emitted
        from workloads.recordings.recording import Recording

        plain: Any = import_module(self.plain)
        path = inputs[0].path
        answer: dict[str, Sequence[tuple[object, ...]]] = {}
        if self.params.snapshots:
            first_s = -(-Recording(path).origin_ns // NS)
            tables = emitted(path, positions, plain.COLUMNS)
            answer[SNAPSHOTS] = list(plain.snapshots(tables, self.grid, self.params.period_s, first_s))
        if self.params.changes:
            answer[CHANGES] = list(plain.changes(emitted(path, positions, plain.COLUMNS), self.grid))
        return answer

    def compare(self, answer: Answer, reference: Answer) -> Verdict:
        """Compare row by row, ignoring the delays of changes."""
        return same(answer, reference)
