"""Searches for the sustainable rate: the tables `searches` and `trials`, also of searches that found none."""

from analysis.records.campaign import Campaign, Run
from analysis.records.conditions import SearchRecord
from analysis.statistics.metrics import Rows

SEARCH_COLUMNS = (
    *("run", "workload", "scheduler", "repetition", "status", "reason", "tuples_per_s", "fails_tuples_per_s"),
    *("trials", "p99_limit_ms", "lag_slope_limit", "late_limit_s", "checks", "tolerance_percent"),
)

TRIAL_COLUMNS = (
    *("run", "workload", "scheduler", "repetition", "trial", "tuples_per_s", "holds", "reason"),
    *("source_tuples_per_s", "latency_p99_ms", "late_s", "lag_slope", "bracket_low", "bracket_high"),
)


def search_rows(campaign: Campaign) -> Rows:
    """Return one row per search: the sustainable rate and the lowest one that does not hold."""
    return [
        {
            **_identity(run),
            "status": run.status,
            "reason": run.left_out,
            "tuples_per_s": search.tuples_per_s,
            "fails_tuples_per_s": search.fails_tuples_per_s,
            "trials": len(search.trials),
            "p99_limit_ms": search.slo.p99_ms,
            "lag_slope_limit": search.slo.lag_slope_max,
            "late_limit_s": search.slo.late_s,
            "checks": search.checks,
            "tolerance_percent": search.tolerance_percent,
        }
        for run, search in _searches(campaign)
    ]


def trial_rows(campaign: Campaign) -> Rows:
    """Return one row per trial, in order, with the bracket before it; unknown ends are None."""
    rows: Rows = []
    for run, search in _searches(campaign):
        low: float | None = None
        high: float | None = None
        decided = iter(search.brackets)
        rate = search.trials[0].tuples_per_s if search.trials else None
        for number, trial in enumerate(search.trials, 1):
            if trial.tuples_per_s != rate:
                # Trials at another rate begin when the one before has been decided.
                low, high = next(decided, (low, high))
                rate = trial.tuples_per_s
            rows.append(
                {
                    **_identity(run),
                    "trial": number,
                    "tuples_per_s": trial.tuples_per_s,
                    "holds": trial.holds,
                    "reason": trial.reason,
                    "source_tuples_per_s": trial.source_tuples_per_s,
                    "latency_p99_ms": trial.p99_ms,
                    "late_s": trial.late_s,
                    "lag_slope": trial.lag_slope,
                    "bracket_low": low,
                    "bracket_high": high,
                }
            )
    return rows


def _searches(campaign: Campaign) -> list[tuple[Run, SearchRecord]]:
    return [(run, run.file.search) for run in campaign.runs if run.file is not None and run.file.search is not None]


def _identity(run: Run) -> dict[str, object]:
    return {"run": run.id, "workload": run.workload, "scheduler": run.scheduler, "repetition": run.repetition}
