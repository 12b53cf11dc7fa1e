"""How far sources are known to have come: up to there records are emitted again after a recovery, whenever it stops."""

from collections.abc import Mapping

from agents.protocol import Progress, Worked


class Reached:
    """Positions of spout executors, the highest that was ever heard of.

    It is what traces say, too: a worker's last report goes with the last rows that it wrote.
    """

    def __init__(self) -> None:
        self._positions: dict[str, int] = {}

    @property
    def positions(self) -> Mapping[str, int]:
        """By name, as they are known now."""
        return dict(self._positions)

    def note(self, positions: Mapping[str, int]) -> None:
        """Sources have come so far."""
        for name, position in positions.items():
            self._positions[name] = max(position, self._positions.get(name, 0))

    def take(self, progress: Progress) -> None:
        """A worker of some epoch reports."""
        self.note({name: work.position for name, work in progress.executors.items() if work.position is not None})


class Bolts:
    """Work of bolt executors, the most that was ever heard of.

    It is what traces say, too: a worker's last report goes with the last rows that it wrote.
    """

    def __init__(self) -> None:
        self._worked: dict[str, Worked] = {}

    @property
    def worked(self) -> Mapping[str, Worked]:
        """By name, as it is known now."""
        return dict(self._worked)

    def take(self, progress: Progress) -> None:
        """A worker of some epoch reports."""
        for name, work in progress.executors.items():
            if work.processed is not None:
                known = self._worked.get(name, Worked())
                self._worked[name] = Worked(max(known.emitted, work.emitted), max(known.processed, work.processed))
