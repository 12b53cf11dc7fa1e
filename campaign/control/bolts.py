"""How much bolts are known to have done: what they do again after a recovery, up to there, is counted apart."""

from collections.abc import Mapping

from agents.protocol import Progress, Worked


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
