"""The table of all pairs of schedulers, compared within repetitions."""

from itertools import combinations

from analysis.records.campaign import Campaign
from analysis.statistics.comparison import SIGNIFICANCE, Comparison, compare, fewest_repetitions, holm
from analysis.statistics.intervals import ENOUGH, ConfidenceInterval
from analysis.statistics.metrics import Row, Rows, by_repetition, saturated_count, suspect_count
from analysis.statistics.ranking import EQUAL, HIGHER, LOWER, shown_in_rows, shown_of


def pair_rows(campaign: Campaign, runs: Rows, baseline: str | None) -> Rows:
    """Return a row per workload, shown metric and pair of schedulers; the baseline is always the `other` of its pairs.

    From `ENOUGH` repetitions on, intervals and an outcome are given. p values are adjusted over all pairs and workloads
    of a metric. Two schedulers differ if the adjusted p value is significant and the interval excludes no change.
    """
    first = [s for s in campaign.schedulers if s == baseline]
    order = first + [s for s in campaign.schedulers if s != baseline]
    all_rows = []
    for metric in shown_of(campaign):
        rows = []
        for workload in campaign.workloads:
            values = {s: by_repetition(runs, workload, s, metric.name) for s in order}
            for other, scheduler in combinations(order, 2):
                seen = compare(values[scheduler], values[other], workload, scheduler, other, metric.name)
                if seen is not None:
                    both = values[scheduler].keys() & values[other].keys()
                    who = {scheduler, other}
                    rows.append(
                        {
                            "workload": workload,
                            "scheduler": scheduler,
                            "other": other,
                            "metric": metric.name,
                            "unit": metric.unit,
                            "n": seen.n,
                            "suspect": suspect_count(runs, workload, who, both),
                            "saturated": saturated_count(runs, workload, who, both),
                            **estimates(seen),
                        }
                    )
        _conclude(rows)
        all_rows += rows
    return sorted(all_rows, key=lambda row: campaign.workloads.index(row["workload"]))


def rows_without_suspect(campaign: Campaign, runs: Rows, pairs: Rows, baseline: str | None) -> Rows:
    """Return the pairs that involve suspect runs once more, without the repetitions in which one of the two is suspect.

    p values are adjusted over all pairs without suspect runs. Pairs without any other repetition are left out.
    """
    doubtful = {_subject(row) for row in pairs if row["suspect"]}
    if not doubtful:
        return []
    others = pair_rows(campaign, [row for row in runs if not row["suspect"]], baseline)
    return [row for row in others if _subject(row) in doubtful]


def _subject(row: Row) -> tuple[str, ...]:
    return row["workload"], row["scheduler"], row["other"], row["metric"]


def estimates(seen: Comparison) -> Row:
    """Return ratio and difference, one estimate in two units; below `ENOUGH` repetitions without intervals.

    The difference is the ratio's share of the other scheduler's median, so that both point in the same direction, which
    estimates of their own need not do. Where a value is not positive, there is no ratio, and the difference is that
    within repetitions.
    """
    enough = seen.n >= ENOUGH
    if seen.ratio_estimate is None:
        ratio, difference = _ends(None, None), _ends(seen.hodges_lehmann, seen.difference if enough else None)
    else:
        ratio = _ends(seen.ratio_estimate, seen.ratio if enough else None)
        difference = tuple(None if end is None else seen.baseline_median * (end - 1) for end in ratio)
    return {
        **dict(zip(("ratio", "ratio_low", "ratio_high"), ratio, strict=True)),
        **dict(zip(("difference", "difference_low", "difference_high"), difference, strict=True)),
        "smallest_percent": 100 * seen.smallest_effect if enough and seen.smallest_effect is not None else None,
        "p_value": seen.p_value if enough else None,
    }


def _ends(estimate: float | None, interval: ConfidenceInterval | None) -> tuple[float | None, ...]:
    return (estimate, None, None) if interval is None else (interval.estimate, interval.low, interval.high)


def _conclude(rows: Rows) -> None:
    """Add the adjusted p values and the outcomes of one metric's rows."""
    tested = [row for row in rows if row["p_value"] is not None]
    adjusted = holm([row["p_value"] for row in tested])
    for row in rows:
        row |= {"adjusted_p": None, "outcome": ""}
    for row, p_value in zip(tested, adjusted, strict=True):
        row["adjusted_p"] = p_value
        if not (row["suspect"] or row["saturated"]):
            row["outcome"] = _outcome(row)


def _outcome(row: Row) -> str:
    low, high = row["difference_low"], row["difference_high"]
    ratio = [end for end in (row["ratio_low"], row["ratio_high"]) if end is not None]
    if row["adjusted_p"] > SIGNIFICANCE or low <= 0 <= high or (ratio and ratio[0] <= 1 <= ratio[1]):
        return EQUAL
    return LOWER if high < 0 else HIGHER


def power_notes(pairs: Rows) -> list[tuple[str, str]]:
    """Return the note on too few repetitions for so many comparisons, as (subject, sentence); empty if they suffice."""
    for metric in shown_in_rows(pairs):
        tested = [row["n"] for row in pairs if row["metric"] == metric.name and row["p_value"] is not None]
        needed = fewest_repetitions(len(tested))
        if tested and min(tested) < needed:
            words = (
                f"with {len(tested)} comparisons per metric, differences are distinguishable from {needed} repetitions "
                f"on; some have {min(tested)}."
            )
            return [("Comparisons", words)]
    return []
