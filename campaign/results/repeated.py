"""Findings of a campaign, compared with those of the same agenda on another machine."""

from analysis.records.campaign import Campaign
from analysis.statistics.metrics import Row, Rows
from analysis.statistics.pairs import pair_rows
from analysis.tables.summary import recorded_rows

HOLDS, HOLDS_NOT = "holds", "does not hold"
NOT_MEASURED = "not measured here"
UNDECIDED = "no conclusion here"
SAME, OTHER = "same direction, no conclusion", "other direction, no conclusion"

KEY = ("workload", "scheduler", "other", "metric")


def repeated_findings(before: Campaign, after: Campaign) -> Rows:
    """Return a row per pair of schedulers and metric of the report's first screen, and whether its outcome holds.

    A finding holds if both campaigns come to the same outcome: higher, lower, or not distinguishable. Without a
    conclusion before (too few repetitions, suspect runs, saturated sources), the directions are compared.

    Args:
        before: the campaign with the findings.
        after: its repetition.
    """
    baseline = before.baseline(None)
    here = {tuple(row[key] for key in KEY): row for row in pair_rows(after, recorded_rows(after), baseline)}
    found = []
    for row in pair_rows(before, recorded_rows(before), baseline):
        now = here.get(tuple(row[key] for key in KEY))
        found.append({key: row[key] for key in KEY} | {"before": row, "now": now, "verdict": _verdict(row, now)})
    return found


def _verdict(before: Row, now: Row | None) -> str:
    if now is None:
        return NOT_MEASURED
    if not before["outcome"]:
        return SAME if _direction(before) == _direction(now) else OTHER
    if not now["outcome"]:
        return UNDECIDED
    return HOLDS if before["outcome"] == now["outcome"] else HOLDS_NOT


def _direction(row: Row) -> int:
    difference: float = row["difference"]
    return (difference > 0) - (difference < 0)
