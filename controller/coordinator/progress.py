"""Reported progress of executors across epochs; after a recovery, sources emit at least up to their known positions."""

from collections.abc import Mapping

from agents.protocol import Progress, Worked


class SourcePositions:
    """Highest reported position of each spout executor.

    The traces agree with it, because a worker sends its last report together with its last rows.
    """

    def __init__(self) -> None:
        self._positions: dict[str, int] = {}

    @property
    def positions(self) -> Mapping[str, int]:
        """Current positions, by name."""
        return dict(self._positions)

    def record(self, positions: Mapping[str, int]) -> None:
        """Record positions."""
        for name, position in positions.items():
            self._positions[name] = max(position, self._positions.get(name, 0))

    def record_report(self, progress: Progress) -> None:
        """Record the positions in a report of any epoch."""
        self.record({name: work.position for name, work in progress.executors.items() if work.position is not None})


class BoltCounts:
    """Highest reported counts of each bolt executor; the traces agree with them, as with `SourcePositions`."""

    def __init__(self) -> None:
        self._worked: dict[str, Worked] = {}

    @property
    def worked(self) -> Mapping[str, Worked]:
        """Current counts, by name."""
        return dict(self._worked)

    def record_report(self, progress: Progress) -> None:
        """Record the counts in a report of any epoch."""
        for name, work in progress.executors.items():
            if work.processed is not None:
                known = self._worked.get(name, Worked())
                self._worked[name] = Worked(max(known.emitted, work.emitted), max(known.processed, work.processed))
