"""Latency between nodes whose clocks differ: values within the clock error are not shown."""

from analysis.results import Campaign
from analysis.summary import Rows


def without_withheld(campaign: Campaign, latency: Rows) -> Rows:
    """Return the table `latency` with None for values that do not exceed the clock error of their run."""
    bounds = {run.id: run.latency_bound_ms or 0.0 for run in campaign.runs}

    def known(run: str, value: float | None) -> float | None:
        bound = bounds.get(run, 0.0)
        return None if value is not None and bound and value <= bound else value

    return [{**row, "latency_ms": known(row["run"], row["latency_ms"])} for row in latency]


def clock_notes(campaign: Campaign) -> list[tuple[str, str]]:
    """Return the note on clock error; empty when all nodes share one clock."""
    bounds = [bound for run in campaign.counted if (bound := run.latency_bound_ms)]
    if not bounds:
        return []
    low, high = f"{min(bounds):.2g}", f"{max(bounds):.2g}"
    between = low if low == high else f"{low} to {high}"
    withheld = sum(
        bool(run.file.measured.latency_ms.get("withheld")) for run in campaign.counted if run.file and run.file.measured
    )
    words = (
        f"nodes have clocks of their own, whose offsets were measured throughout each run: a latency may be off by "
        f"{between} ms (column ± clocks)."
    )
    if withheld:
        runs = f"{withheld} of {len(campaign.counted)} runs"
        words += f" In {runs} some latencies were no larger than that; they are left out."
    return [("Clocks", words)]
