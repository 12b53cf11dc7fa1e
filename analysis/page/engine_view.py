"""Campaigns that ran the same placements on several engines: how far their rankings agree."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from analysis.page.factor_view import Family
from analysis.records.campaign import Campaign
from analysis.records.factors import value_text
from analysis.statistics.agreement import Agreement, Factor, OnEngine, agreement
from analysis.statistics.intervals import ConfidenceInterval
from analysis.statistics.metrics import METRICS, Metric, Row, Rows, by_repetition, saturated_count, suspect_count
from analysis.statistics.ranking import THROUGHPUT, primary_of

ENGINE = "engine"
"""The factor whose values are engines."""

_SIDE = (
    *("n", "ties", "best", "effect", "effect_low", "effect_high"),
    *("regret_percent", "regret_percent_low", "regret_percent_high"),
)

AGREEMENT_COLUMNS = (
    *("workload", "metric", "unit", "engine", "other", "schedulers", "suspect", "saturated"),
    *("tau", "tau_low", "tau_high", "discordant"),
    *_SIDE,
    *(f"other_{name}" for name in _SIDE),
)


def engine_cells(families: Sequence[Family]) -> dict[str, dict[str, str]]:
    """Return workload with its other factors -> engine -> label of the section; without those on one engine only."""
    cells_of: dict[str, dict[str, str]] = {}
    for family in families:
        for cell, factors in family.cells.items():
            if ENGINE in factors:
                others = family.text(cell, without=ENGINE)
                label = f"{family.label} ({others})" if others else family.label
                cells_of.setdefault(label, {})[value_text(factors[ENGINE])] = cell
    return {label: cells for label, cells in cells_of.items() if len(cells) > 1}


def agreement_rows(campaign: Campaign, families: Sequence[Family], runs: Rows) -> Rows:
    """Return a row per workload, primary metric and pair of engines; empty if `engine` is no factor.

    `effect` is the factor between the best and the worst scheduler on an engine; `regret_percent` is how much worse the
    other engine's best scheduler is there than its own, in per cent of the better one's value.

    Args:
        campaign: the campaign.
        families: its workloads that ran at several combinations of factors.
        runs: rows of the table `runs`.
    """
    primary = primary_of(campaign)
    metrics = [metric for metric in METRICS if metric.name in primary]
    return [
        row
        for workload, cells in engine_cells(families).items()
        for metric in metrics
        for pair in combinations(cells, 2)
        if (row := _row(campaign, runs, workload, metric, {name: cells[name] for name in pair}))
    ]


def _row(campaign: Campaign, runs: Rows, workload: str, metric: Metric, cells: Mapping[str, str]) -> Row | None:
    """Return the row of two engines; None if they have no two schedulers in common."""
    engine, other = cells
    values = {
        name: {s: values for s in campaign.schedulers if (values := by_repetition(runs, cell, s, metric.name))}
        for name, cell in cells.items()
    }
    is_higher_better = metric.name == THROUGHPUT
    seen = agreement(values[engine], values[other], is_higher_better, workload, metric.name, engine, other)
    if seen is None:
        return None
    return {
        "workload": workload,
        "metric": metric.name,
        "unit": metric.unit,
        "engine": engine,
        "other": other,
        "schedulers": len(seen.schedulers),
        **_doubts(runs, cells.values(), seen),
        **_ends("tau", seen.tau),
        "discordant": "; ".join(f"{pair.better} > {pair.worse}" for pair in seen.discordant),
        **_side(seen.engine, is_higher_better),
        **{f"other_{name}": value for name, value in _side(seen.other, is_higher_better).items()},
    }


def _doubts(runs: Rows, cells: Iterable[str], seen: Agreement) -> Row:
    """Return how many repetitions of both engines have suspect runs, and saturated sources."""
    schedulers = set(seen.schedulers)
    repetitions = {row["repetition"] for row in runs}
    return {
        "suspect": sum(suspect_count(runs, cell, schedulers, repetitions) for cell in cells),
        "saturated": sum(saturated_count(runs, cell, schedulers, repetitions) or 0 for cell in cells),
    }


def _side(side: OnEngine, is_higher_better: bool) -> Row:
    regret = side.regret
    worse = (None, None, None) if regret is None else (regret.estimate, regret.low, regret.high)
    percents = [None if factor is None else _percent(factor, is_higher_better) for factor in worse]
    return {
        "n": side.n,
        "ties": side.ties,
        "best": side.order[0],
        **_ends("effect", side.effect),
        **dict(zip(("regret_percent", "regret_percent_low", "regret_percent_high"), percents, strict=True)),
    }


def _percent(factor: float, is_higher_better: bool) -> float:
    """Return a factor between a better and a worse value as the loss in per cent of the better one.

    >>> _percent(2.0, True), _percent(2.0, False)
    (50.0, 100.0)
    """
    return 100 * (1 - 1 / factor) if is_higher_better else 100 * (factor - 1)


def _ends(name: str, seen: ConfidenceInterval | Factor | None) -> Row:
    if seen is None:
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"))
    return {name: seen.estimate, f"{name}_low": seen.low, f"{name}_high": seen.high}
