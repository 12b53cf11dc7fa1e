"""Tables of a report that follow from one row per run and from the records of runs; none needs Spark.

Also the findings of a campaign beside those of its repetition on another machine.
"""

from collections.abc import Mapping

from analysis.page import changes
from analysis.page import energy_comparison as comparison
from analysis.page.engine_view import AGREEMENT_COLUMNS, agreement_rows
from analysis.page.factor_view import RATIO_COLUMNS, families_of, ratio_rows
from analysis.page.searches import SEARCH_COLUMNS, TRIAL_COLUMNS, search_rows, trial_rows
from analysis.page.windows import WINDOW_COLUMNS, window_tables
from analysis.records.campaign import Campaign
from analysis.statistics.metrics import (
    COMPARISON_COLUMNS,
    DIFFERENCE_COLUMNS,
    Row,
    Rows,
    comparison_rows,
    difference_rows,
)
from analysis.statistics.pairs import pair_rows, rows_without_suspect
from analysis.statistics.ranking import PAIR_COLUMNS, RANKING_COLUMNS, ranking_rows
from analysis.tables.summary import RUN_COLUMNS, recorded_rows

COMPARED_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "ranking": RANKING_COLUMNS,
    "pairs": PAIR_COLUMNS,
    "pairs_without_suspect": PAIR_COLUMNS,
    "ratios": RATIO_COLUMNS,
    "agreement": AGREEMENT_COLUMNS,
    "runs": RUN_COLUMNS,
    "comparison": COMPARISON_COLUMNS,
    "differences": DIFFERENCE_COLUMNS,
    "revisions": changes.REVISION_COLUMNS,
    "decisions": changes.DECISION_COLUMNS,
    "means": changes.MEAN_COLUMNS,
    "searches": SEARCH_COLUMNS,
    "trials": TRIAL_COLUMNS,
    "energy": comparison.ENERGY_COLUMNS,
    "energy_domains": comparison.DOMAIN_COLUMNS,
    "energy_hops": comparison.HOP_COLUMNS,
    "energy_comparison": comparison.COMPARISON_COLUMNS,
    "energy_differences": comparison.DIFFERENCE_COLUMNS,
    "energy_front": comparison.FRONT_COLUMNS,
    **WINDOW_COLUMNS,
}
"""Table -> its columns."""


def compared_tables(campaign: Campaign, runs: Rows, baseline: str | None) -> dict[str, Rows]:
    """Return the rows of every table of `COMPARED_COLUMNS`.

    Args:
        campaign: the campaign.
        runs: rows of `summary.run_rows`, or of `summary.recorded_rows` without a report.
        baseline: the scheduler that others are compared with.
    """
    energy = comparison.energy_rows(campaign, runs)
    cells = comparison.energy_cells(campaign, energy)
    pairs = pair_rows(campaign, runs, baseline)
    families = families_of(campaign)
    return {
        "ranking": ranking_rows(campaign, runs, pairs, baseline),
        "pairs": pairs,
        "pairs_without_suspect": rows_without_suspect(campaign, runs, pairs, baseline),
        "ratios": ratio_rows(families, pairs, baseline),
        "agreement": agreement_rows(campaign, families, runs),
        "runs": runs,
        "comparison": comparison_rows(campaign, runs),
        "differences": difference_rows(campaign, runs, baseline),
        "revisions": changes.revision_rows(campaign),
        "decisions": changes.decision_rows(campaign),
        "means": changes.mean_rows(campaign),
        "searches": search_rows(campaign),
        "trials": trial_rows(campaign),
        "energy": energy,
        "energy_domains": comparison.domain_rows(campaign),
        "energy_hops": comparison.hop_rows(campaign),
        "energy_comparison": comparison.energy_cell_rows(cells),
        "energy_differences": comparison.energy_difference_rows(cells, baseline),
        "energy_front": comparison.front_rows(cells),
        **window_tables(campaign, baseline),
    }


def recorded_tables(campaign: Campaign) -> dict[str, Rows]:
    """Return the tables from the records of runs alone, against the agenda's baseline."""
    return compared_tables(campaign, recorded_rows(campaign), campaign.baseline(None))


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
    compared = []
    for row in pair_rows(before, recorded_rows(before), baseline):
        now = here.get(tuple(row[key] for key in KEY))
        compared.append({key: row[key] for key in KEY} | {"before": row, "now": now, "verdict": _verdict(row, now)})
    return compared


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
