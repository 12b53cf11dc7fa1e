"""How far sources are known to have come: what they emit again after a recovery, up to there, is counted apart."""

from collections.abc import Mapping, Set

from agents.protocol import Progress


class Reached:
    """Positions of spout executors, the highest that was ever heard of.

    It is what traces say, too: a worker's last report goes with the last rows that it wrote.
    """

    def __init__(self) -> None:
        self._positions: dict[str, int] = {}
        self._before: dict[int, Mapping[str, int]] = {}

    @property
    def positions(self) -> Mapping[str, int]:
        """By name."""
        return self._positions

    def begin(self, epoch: int) -> Mapping[str, int]:
        """The positions at the beginning of an epoch, for its spec."""
        self._before[epoch] = dict(self._positions)
        return self._before[epoch]

    def note(self, positions: Mapping[str, int]) -> None:
        """Sources have come so far."""
        for name, position in positions.items():
            self._positions[name] = max(position, self._positions.get(name, 0))

    def take(self, progress: Progress, spouts: Set[str]) -> None:
        """A worker of some epoch reports; what it counts as emitted lies behind what was known at the beginning."""
        before = self._before.get(progress.epoch, {})
        self.note(
            {name: before.get(name, 0) + work.emitted for name, work in progress.executors.items() if name in spouts}
        )
