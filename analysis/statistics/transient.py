"""The end of the transient of a run: where throughput and latency become steady, by the rule MSER-5.

MSER (White, An effective truncation heuristic for bias reduction in simulation output, Simulation 69(6), 1997) leaves
out as many values at the start as make the standard error of the mean of the others smallest; MSER-5 applies it to
means of five values each, which smooths them. A run whose rate is to change is never steady, and has no such end.
A run under way is judged by its values of one second themselves, because five times as many would take a minute.
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

FEWEST_LIVE, LAST_LIVE = 10, 3
"""The same for a run under way, in values of one second."""

STEADY_RATES = ("constant", "poisson", "max")
"""Kinds of rates that do not change on purpose."""

NEGLIGIBLE = 0.02
"""Share of the mean: a transient that changes it by less is noise, which MSER leaves out in one of five steady runs."""


def transient(
    values: Sequence[float], batch: int = BATCH, fewest: int = FEWEST_BATCHES, last: int = LAST_BATCHES
) -> int | None:
    """Return the number of values at the start that belong to the transient; 0 if it hardly changes their mean.

    None if there are too few values, or if leaving out more than half of them would be best: then no steady state was
    reached.

    Args:
        values: in the order of time.
        batch: number of values per batch.
        fewest: number of batches below which the rule says nothing.
        last: number of batches at the end that are never left out.
    """
    count = len(values) // batch
    if count < fewest:
        return None
    means = np.asarray(values[: count * batch], dtype=float).reshape(count, batch).mean(axis=1)
    scores = [means[cut:].var() / (count - cut) for cut in range(count - last + 1)]
    best = int(np.argmin(scores))
    rest = means[min(best, count // 2) :].mean()
    if abs(means.mean() - rest) <= NEGLIGIBLE * abs(rest):
        return 0
    return best * batch if best <= count // 2 else None


class LiveTransient:
    """The transient of a run under way, by its throughput and latency, once a second."""

    def __init__(self) -> None:
        self._columns: tuple[list[float], list[float]] = ([], [])
        self._seconds: tuple[list[float], list[float]] = ([], [])

    def add(self, second: float, tuples_per_s: float | None, latency_ms: float | None) -> None:
        """Add values, of which unknown ones are None, at a time in seconds after the start of the sources."""
        for values, seconds, value in zip(self._columns, self._seconds, (tuples_per_s, latency_ms), strict=True):
            if value is not None:
                values.append(value)
                seconds.append(second)

    @property
    def end_s(self) -> float | None:
        """Seconds after the start of the sources at which it ended; None while it may not have ended.

        It has ended when the rule leaves out no more than the first half of the values of both; of latencies without
        any.
        """
        ends: list[float] = []
        throughput, latency = zip(self._columns, self._seconds, strict=True)
        for values, seconds in (throughput, latency) if latency[0] else (throughput,):
            cut = transient(values, 1, FEWEST_LIVE, LAST_LIVE)
            if cut is None:
                return None
            ends.append(seconds[cut - 1] if cut else 0.0)
        return max(ends)


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
