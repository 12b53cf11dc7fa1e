"""The end of the transient of a run: where throughput and latency become steady, by the rule MSER-5.

MSER (White, An effective truncation heuristic for bias reduction in simulation output, Simulation 69(6), 1997) leaves
out as many values at the start as make the standard error of the mean of the others smallest; MSER-5 applies it to
means of five values each, which smooths them. A run whose rate is to change is never steady, and has no such end.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from analysis.records.campaign import Campaign, Run

Row = Mapping[str, Any]

BATCH = 5
"""Values per batch, as in MSER-5."""

FEWEST_BATCHES = 12
"""Number of batches below which the rule says nothing."""

LAST_BATCHES = 5
"""Batches at the end that are never left out: fewer may be equal by chance, with a standard error that is too small."""

STEADY_RATES = ("constant", "poisson", "max")
"""Kinds of rates that do not change on purpose."""

NEGLIGIBLE = 0.02
"""Share of the mean: a transient that changes it by less is noise, which MSER leaves out in one of five steady runs."""


def transient(values: Sequence[float]) -> int | None:
    """Return the number of values at the start that belong to the transient; 0 if it hardly changes their mean.

    None if there are too few values, or if leaving out more than half of them would be best: then no steady state was
    reached.
    """
    count = len(values) // BATCH
    if count < FEWEST_BATCHES:
        return None
    means = np.asarray(values[: count * BATCH], dtype=float).reshape(count, BATCH).mean(axis=1)
    scores = [means[cut:].var() / (count - cut) for cut in range(count - LAST_BATCHES + 1)]
    best = int(np.argmin(scores))
    rest = means[min(best, count // 2) :].mean()
    if abs(means.mean() - rest) <= NEGLIGIBLE * abs(rest):
        return 0
    return best * BATCH if best <= count // 2 else None


def steady_from_s(run: Run, steady: Set[str], throughput: Sequence[Row], latency: Sequence[Row]) -> float | None:
    """Return the second of a run from which throughput and latency are steady.

    Args:
        run: a run.
        steady: labels of the workloads whose rate does not change on purpose.
        throughput: its rows of the table `timeline`.
        latency: its rows of the table `latency_timeline`.

    Returns:
        Seconds from the start of the measured interval, negative in the warm-up; None for a run that is not steady, is
        too short, or changed on the way.
    """
    if run.file is None or not run.counts or run.recoveries or run.revisions:
        return None
    if (run.file.label or run.file.workload) not in steady:
        return None
    ends = [_end(throughput, "sink_tuples_per_s"), *([_end(latency, "latency_ms")] if latency else [])]
    known = [second for second in ends if second is not None]
    return max(known) if len(known) == len(ends) else None


def _end(rows: Sequence[Row], column: str) -> float | None:
    """Return the second at which the transient of a column ends."""
    ordered = sorted((row for row in rows if row[column] is not None), key=lambda row: row["second"])
    cut = transient([row[column] for row in ordered])
    return None if cut is None else float(ordered[cut]["second"])


def steady_workloads(campaign: Campaign) -> Set[str]:
    """Return the labels of the workloads whose rate does not change on purpose; none with a timeline of events."""
    if campaign.agenda.timeline:
        return frozenset()
    workloads = campaign.agenda.workloads
    return {str(w.get("label") or w.get("name")) for w in workloads if _kind(w.get("rate")) in STEADY_RATES}


def _kind(rate: object) -> object:
    return rate.get("kind") if isinstance(rate, Mapping) else None


def transient_notes(counted: Sequence[Row]) -> list[tuple[str, str]]:
    """Return the note on the warm-up; none when no run has a known end of its transient.

    Args:
        counted: rows of the runs that count.
    """
    known = [row["steady_from_s"] for row in counted if row["steady_from_s"] is not None]
    late = sum(second > 0 for second in known)
    if not known:
        return []
    rule = "throughput and latency are steady by the rule MSER-5"
    last = max(known)
    if late:
        words = (
            f"{rule} {last:g} s after the start of the measured interval at the latest, and in {late} of {len(known)} "
            f"runs after it: a warm-up of {last:g} s more would leave the transient out."
        )
    else:
        words = f"{rule} {-last:g} s before the measured interval at the latest, in all of {len(known)} runs."
    return [("Warm-up", words)]
