"""The table of what a campaign found, and sentences: per workload the schedulers by the primary metrics."""

from collections.abc import Collection, Mapping, Sequence
from statistics import median

import numpy as np

from analysis.records.campaign import Campaign
from analysis.records.descriptions import PrimaryMetric
from analysis.statistics.comparison import variation
from analysis.statistics.intervals import ENOUGH, median_interval
from analysis.statistics.metrics import METRICS, Metric, Row, Rows, by_repetition, saturated_count, suspect_count

THROUGHPUT, TRAFFIC, CPU = "sink_tuples_per_s", "inter_node_tuples_per_s", "cpu_s_per_million_tuples"

PRIMARY: Mapping[PrimaryMetric, str] = {
    "throughput_tuples_per_s": THROUGHPUT,
    "latency_ms.p50": "latency_p50_ms",
    "latency_ms.p95": "latency_p95_ms",
    "latency_ms.p99": "latency_p99_ms",
    "latency_ms.max": "latency_max_ms",
    "hops.inter_node": TRAFFIC,
}
"""Metrics that may order schedulers, by their names in agendas and run.json -> in tables."""

DEFAULT_PRIMARY: tuple[PrimaryMetric, ...] = ("throughput_tuples_per_s", "latency_ms.p95")

HEADINGS: Mapping[str, str] = {
    THROUGHPUT: "throughput",
    "latency_p50_ms": "p50 latency",
    "latency_p95_ms": "p95 latency",
    "latency_p99_ms": "p99 latency",
    "latency_max_ms": "largest latency",
    TRAFFIC: "tuples between nodes",
    CPU: "CPU per 10⁶ tuples",
}
"""Metric that may be shown -> its name in headings and sentences."""


def primary_of(campaign: Campaign) -> tuple[str, ...]:
    """Return the metrics that order schedulers."""
    return tuple(PRIMARY[name] for name in campaign.agenda.report.get("primary") or DEFAULT_PRIMARY)


def shown_in(metrics: Collection[str]) -> tuple[Metric, ...]:
    """Return those of these metrics that may be shown, in the order of columns."""
    return tuple(metric for metric in METRICS if metric.name in HEADINGS and metric.name in metrics)


def shown_of(campaign: Campaign) -> tuple[Metric, ...]:
    """Return the metrics in which schedulers are compared first: the primary ones, tuples between nodes, and CPU."""
    return shown_in({*primary_of(campaign), TRAFFIC, CPU})


def shown_in_rows(rows: Rows) -> tuple[Metric, ...]:
    """Return the metrics of a table with a row per metric."""
    return shown_in({row["metric"] for row in rows})


SHOWN = shown_in({*(PRIMARY[name] for name in DEFAULT_PRIMARY), TRAFFIC, CPU})
"""The shown metrics of campaigns that choose none."""

HIGHER, LOWER, EQUAL = "higher", "lower", "not distinguishable"
"""Outcomes of a comparison; empty below `ENOUGH` repetitions, and where runs are suspect or had saturated sources."""

PAIR_COLUMNS = (
    *("workload", "scheduler", "other", "metric", "unit", "n", "suspect", "saturated"),
    *("ratio", "ratio_low", "ratio_high", "difference", "difference_low", "difference_high"),
    *("smallest_percent", "p_value", "adjusted_p", "outcome"),
)
RANKING_COLUMNS = (
    *("workload", "scheduler", "baseline", "metric", "unit", "n", "suspect", "saturated"),
    *("median", "low", "high", "variation_percent", "change_percent", "change_low", "change_high", "outcome", "rank"),
)


def ranking_rows(campaign: Campaign, runs: Rows, pairs: Rows, baseline: str | None) -> Rows:
    """Return median, change against the baseline and rank per workload, scheduler and shown metric.

    `low` and `high` are the median's interval from `ENOUGH` repetitions on, and the range below. Schedulers are ordered
    by the sum of their ranks in the primary metrics; those of equal sum, or without ranks, as in the campaign.

    Args:
        campaign: the campaign.
        runs: rows of the table `runs`.
        pairs: rows of the table `pairs`.
        baseline: the scheduler that others are compared with.
    """
    against = {(r["workload"], r["scheduler"], r["metric"]): r for r in pairs if r["other"] == baseline}
    ordered: Rows = []
    for workload in campaign.workloads:
        ranked = []
        for scheduler in campaign.schedulers:
            for metric in shown_of(campaign):
                mine = by_repetition(runs, workload, scheduler, metric.name)
                if not mine:
                    continue
                seen = list(mine.values())
                inner = median_interval(seen, workload, scheduler, metric.name)
                row = {
                    "workload": workload,
                    "scheduler": scheduler,
                    "baseline": baseline,
                    "metric": metric.name,
                    "unit": metric.unit,
                    "n": len(seen),
                    "suspect": suspect_count(runs, workload, {scheduler}, mine),
                    "saturated": saturated_count(runs, workload, {scheduler}, mine),
                    "median": median(seen),
                    "low": inner.low if inner else min(seen),
                    "high": inner.high if inner else max(seen),
                    "variation_percent": _percent(variation(np.array(seen))),
                    **_change(against.get((workload, scheduler, metric.name))),
                }
                if metric.name == TRAFFIC and row["change_percent"] is None and row["high"] == 0:
                    row |= _all_gone(against.get((workload, scheduler, metric.name)))
                row["rank"] = _rank(row, pairs)
                ranked.append(row)
        ranks: dict[str, list[int | None]] = {row["scheduler"]: [] for row in ranked}
        for row in ranked:
            if row["metric"] in primary_of(campaign):
                ranks[row["scheduler"]].append(row["rank"])
        sums = {s: sum(filter(None, each)) for s, each in ranks.items() if each and None not in each}
        ordered += sorted(ranked, key=lambda row: sums[row["scheduler"]]) if len(sums) == len(ranks) else ranked
    return ordered


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _change(pair: Row | None) -> Row:
    def percent(column: str) -> float | None:
        return 100 * (pair[column] - 1) if pair and pair[column] is not None else None

    return {
        "change_percent": percent("ratio"),
        "change_low": percent("ratio_low"),
        "change_high": percent("ratio_high"),
        "outcome": pair["outcome"] if pair else "",
    }


def _all_gone(pair: Row | None) -> Row:
    """Return the change to no traffic between nodes at all: a real zero, unlike that of a meter."""
    if pair is None or pair["difference"] >= 0:
        return {}
    return {"change_percent": -100.0} | (
        dict.fromkeys(("change_low", "change_high"), -100.0) if pair["p_value"] else {}
    )


def _rank(row: Row, pairs: Rows) -> int | None:
    """Return 1 + the number of schedulers that are distinguishably ahead; None without conclusions."""
    ahead = 0
    for pair in pairs:
        who = (pair["scheduler"], pair["other"])
        if (pair["workload"], pair["metric"]) != (row["workload"], row["metric"]) or row["scheduler"] not in who:
            continue
        if not pair["outcome"]:
            return None
        more = pair["outcome"] == (LOWER if row["scheduler"] == pair["scheduler"] else HIGHER)
        less = pair["outcome"] == (HIGHER if row["scheduler"] == pair["scheduler"] else LOWER)
        ahead += more if row["metric"] == THROUGHPUT else less
    return 1 + ahead if row["n"] >= ENOUGH else None


def sentences(pairs: Rows, workload: str, baseline: str | None, without_suspect: Sequence[Row] = ()) -> list[str]:
    """Return how schedulers compare with the baseline: a sentence each, and one without suspect runs if there are any.

    Below `ENOUGH` repetitions there is none.

    Args:
        pairs: rows of the table `pairs`.
        workload: label of the workload.
        baseline: the scheduler that others are compared with.
        without_suspect: rows of the table `pairs_without_suspect`.
    """
    clear = _sentences(without_suspect, workload, baseline)
    return [
        sentence
        for scheduler, words in _sentences(pairs, workload, baseline).items()
        for sentence in (words, *([f"Without suspect runs: {clear[scheduler]}"] if scheduler in clear else []))
    ]


def _sentences(pairs: Sequence[Row], workload: str, baseline: str | None) -> dict[str, str]:
    """Return scheduler -> sentence."""
    by_scheduler: dict[str, dict[str, Row]] = {}
    for row in pairs:
        if (row["workload"], row["other"]) == (workload, baseline) and row["n"] >= ENOUGH:
            by_scheduler.setdefault(row["scheduler"], {})[row["metric"]] = row
    return {scheduler: _sentence(scheduler, str(baseline), rows) for scheduler, rows in by_scheduler.items()}


def _sentence(scheduler: str, baseline: str, rows: Mapping[str, Row]) -> str:
    numbers = sorted({round(row["n"]) for row in rows.values()})
    n = "–".join(map(str, dict.fromkeys((numbers[0], numbers[-1]))))
    doubts = [
        f"{count} with {words}"
        for name, words in (("saturated", "saturated sources"), ("suspect", "suspect runs"))
        if (count := round(max(row[name] or 0 for row in rows.values())))
    ]
    if doubts:
        return f"{scheduler} against {baseline}: no conclusion, of {n} repetitions there are {' and '.join(doubts)}."
    metrics = [m.name for m in shown_in(rows.keys() - {THROUGHPUT, TRAFFIC})] + [THROUGHPUT] * (THROUGHPUT in rows)
    clauses = [_clause(metric, rows[metric]) for metric in metrics]
    traffic = rows.get(TRAFFIC)
    if traffic and traffic["outcome"] != EQUAL:
        size, interval = _size(traffic)
        how = "fewer" if traffic["outcome"] == LOWER else "more"
        clauses.insert(0, f"{scheduler} sends {size} {how} {HEADINGS[TRAFFIC]} than {baseline} {interval}")
    else:
        first = [f"{HEADINGS[TRAFFIC]} {_equal(traffic)}"] if traffic else []
        clauses = [f"{scheduler} against {baseline}: {', '.join([*first, *clauses])}"]
    return f"{', '.join(clauses)}, n = {n}."


def _clause(metric: str, row: Row) -> str:
    if row["outcome"] == EQUAL:
        return f"{HEADINGS[metric]} {_equal(row)}"
    size, interval = _size(row)
    return f"{HEADINGS[metric]} {size} {row['outcome']} {interval}"


def _equal(row: Row) -> str:
    """Return the outcome with the smallest effect that would have been found; reports of earlier versions have none."""
    smallest = row.get("smallest_percent")
    return f"{EQUAL} ({_short(smallest, 0)} % would be)" if smallest else EQUAL


def _size(row: Row) -> tuple[str, str]:
    """Return the size of an effect and its interval: in per cent, or in the metric's unit without a ratio."""
    if row["ratio_low"] is None:
        parts = [row["difference"], row["difference_low"], row["difference_high"]]
    else:
        parts = [100 * (row[column] - 1) for column in ("ratio", "ratio_low", "ratio_high")]
    estimate, low, high = map(abs, parts)
    three = (estimate, min(low, high), max(low, high))
    size, *ends = (_short(value, 0) for value in three)
    if ends[0] == ends[1]:
        size, *ends = (_short(value, 1) for value in three)
    return f"{size} {'%' if row['ratio_low'] is not None else row['unit']}", f"[{', '.join(ends)}]"


def _short(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}" if value >= 10 else f"{value:.2g}"
