"""Saturated sources: sentences on runs in which a workload's sources could not keep their schedule.

When an open-loop source falls behind, throughput is the limit of the source or of the topology, and latency includes
the wait at the source. Neither compares schedulers at the requested rate.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

from analysis.figures.data import quantity
from analysis.summary import Rows

WAITED_MUCH, WAITED_LITTLE = 0.5, 0.1
"""Shares of time without credit: from the first on the topology was the limit, up to the second the sources were."""


def saturation_text(runs: Rows, tables: Mapping[str, Rows]) -> str:
    """Return sentences on saturated sources of one scheduler's runs; empty when none was saturated."""
    late = [row for row in runs if row["saturated"]]
    if not late:
        return ""
    seconds = [row["worst_late_ms"] / 1e3 for row in late if row["worst_late_ms"] is not None]
    facts = [
        _range(late, "due_tuples_per_s", "{} tuples/s were due"),
        _range(late, "source_tuples_per_s", "{} were emitted"),
        f"the latest one {quantity(max(seconds))} s after its time" if seconds else "",
    ]
    words = f"in {len(late)} of {len(runs)} runs the sources fell behind"
    known = ", ".join(fact for fact in facts if fact)
    return f"{words}{': ' if known else ''}{known}. {_limit({row['run'] for row in late}, tables)}".rstrip()


def _limit(runs: set[str], tables: Mapping[str, Rows]) -> str:
    """Return a sentence on what limited the sources of these runs."""
    spouts = {(r["run"], r["component"]): r["executors"] for r in tables["components"] if r["role"] == "spout"}
    waited = [
        row["blocked_executors"] / spouts[row["run"], row["component"]]
        for row in tables["busy"]
        if row["run"] in runs and (row["run"], row["component"]) in spouts and row["blocked_executors"] is not None
    ]
    if not waited:
        return ""
    share = fmean(waited)
    words = f"They waited for the topology {100 * share:.0f} % of the time"
    if share >= WAITED_MUCH:
        return f"{words}: under this placement it took no more."
    if share <= WAITED_LITTLE:
        return f"{words}: the limit was in the sources themselves, whatever the placement of the others."
    return f"{words}."


def _range(runs: Sequence[Mapping[str, float | None]], column: str, words: str) -> str:
    values = [value for row in runs if (value := row[column]) is not None]
    if not values:
        return ""
    low, high = quantity(min(values)), quantity(max(values))
    return words.format(low if low == high else f"{low} to {high}")
