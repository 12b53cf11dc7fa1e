"""`aa.json`: the false-positive rate of a testbed, as an A/A campaign measured it."""

from pathlib import Path

from msgspec import Struct

from analysis.records.campaign import read_file

AA_FILE = "aa.json"


class FalsePositives(Struct, frozen=True, kw_only=True):
    """`aa.json`: the share of comparisons that seem to differ at 5 %, with its 95 % interval.

    Attributes:
        rate, low, high: the share and its interval; null without a comparison.
        comparisons: pairs of labels, workloads and metrics that were compared. Metrics without any difference between
            the two labels are not: they cannot differ.
        repetitions: number of repetitions.
        date: day of the campaign's start, UTC.
    """

    rate: float | None
    low: float | None
    high: float | None
    comparisons: int
    repetitions: int
    date: str

    @property
    def in_words(self) -> str:
        """The rate with its interval, comparisons and date."""
        counts = f"{self.comparisons} comparisons over {self.repetitions} repetitions, {self.date}"
        if self.rate is None or self.low is None or self.high is None:
            return f"unknown, {counts}"
        return f"{100 * self.rate:.1f} % [{100 * self.low:.1f}, {100 * self.high:.1f}] of {counts}"


def read_false_positives(folder: Path) -> FalsePositives | None:
    """Return the content of `aa.json` in `folder`; None if there is none.

    Raises:
        InputError: it cannot be read.
    """
    path = folder / AA_FILE
    return read_file(path, FalsePositives) if path.exists() else None
