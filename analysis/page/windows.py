"""Windows of runs: their metrics as tables, compared like those of the whole measured interval."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from analysis.records.campaign import Campaign, Run
from analysis.records.interval_metrics import WindowRecord
from analysis.statistics.intervals import Spread, spread
from analysis.statistics.metrics import (
    COMPARISON_COLUMNS,
    DIFFERENCE_COLUMNS,
    HOPS,
    METRICS,
    Metric,
    Row,
    Rows,
    by_repetition,
    comparison_rows,
    difference_rows,
    saturated_count,
    suspect_count,
)
from analysis.statistics.pairs import pair_rows
from analysis.statistics.ranking import PAIR_COLUMNS
from analysis.tables.summary import interval_figures

PERCENTILES = ("p50", "p95", "p99", "max")

FIGURES = (
    *("due_tuples_per_s", "source_tuples_per_s", "throughput_tuples_per_s", "sink_tuples_per_s"),
    *(f"latency_{name}_ms" for name in PERCENTILES),
    *("latency_bound_ms", "latency_samples"),
    *(f"{hop}_tuples_per_s" for hop in HOPS),
)
"""Figures of a window; those of the same name in the table `runs` are of the whole interval."""

WINDOW_METRICS = tuple(metric for metric in METRICS if metric.name in FIGURES and metric.name != "latency_bound_ms")
"""Metrics of windows on the page."""

WINDOW_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "windows": (
        *("run", "workload", "scheduler", "repetition", "window", "from_s", "to_s", "seconds", "saturated", "suspect"),
        *FIGURES,
    ),
    "window_comparison": ("window", *COMPARISON_COLUMNS),
    "window_differences": ("window", *DIFFERENCE_COLUMNS),
    "window_pairs": ("window", *PAIR_COLUMNS),
}
"""Tables of windows -> their columns."""


def window_tables(campaign: Campaign, baseline: str | None) -> dict[str, Rows]:
    """Return the tables of `WINDOW_COLUMNS`; without rows if no run has windows.

    A window of several workloads, such as the first step of their rates, is compared within each of them.
    """
    windows = [_row(run, window) for run in campaign.counted for window in _windows_of(run)]
    names = dict.fromkeys(row["window"] for row in windows)
    # Metrics that windows do not have are unknown.
    complete = [{**dict.fromkeys(metric.name for metric in METRICS), **row, "counts": True} for row in windows]

    def by_window(compared: Callable[[Rows], Rows]) -> Rows:
        parts = [(name, [row for row in complete if row["window"] == name]) for name in names]
        return [{"window": name, **row} for name, rows in parts for row in compared(rows)]

    return {
        "windows": windows,
        "window_comparison": by_window(lambda rows: comparison_rows(campaign, rows)),
        "window_differences": by_window(lambda rows: difference_rows(campaign, rows, baseline)),
        "window_pairs": by_window(lambda rows: pair_rows(campaign, rows, baseline)),
    }


def _windows_of(run: Run) -> Sequence[WindowRecord]:
    return run.file.measured.windows if run.file and run.file.measured else ()


def _row(run: Run, window: WindowRecord) -> Row:
    row = {
        "run": run.id,
        "workload": run.workload,
        "scheduler": run.scheduler,
        "repetition": run.repetition,
        "window": window.name,
        "from_s": window.from_s,
        "to_s": window.to_s,
        "seconds": window.seconds,
        "saturated": window.saturated,
        "suspect": run.suspect,
        "throughput_tuples_per_s": window.throughput_tuples_per_s,
        "latency_bound_ms": window.latency_ms.bound,
        **interval_figures(window, window.seconds),
    }
    return {column: row[column] for column in WINDOW_COLUMNS["windows"]}


@dataclass(frozen=True)
class WindowGroup:
    """The runs of a scheduler in one window of a workload.

    Attributes:
        window, from_s, to_s: the window; seconds since the begin of the measured interval.
        scheduler: its label.
        n: number of runs.
        saturated, suspect: number of runs with saturated sources in the window, and of suspect runs.
        spreads: metric -> its values.
    """

    window: str
    from_s: float
    to_s: float
    scheduler: str
    n: int
    saturated: int
    suspect: int
    spreads: Mapping[str, Spread | None]


def window_groups(label: str, schedulers: Sequence[str], rows: Rows) -> list[WindowGroup]:
    """Return the windows of a workload in order of time, each under every scheduler.

    Args:
        label: the workload's label.
        schedulers: the schedulers, in order.
        rows: rows of the table `windows`.
    """
    mine = [{**row, "counts": True} for row in rows if row["workload"] == label]
    spans = sorted({(row["from_s"], row["to_s"], row["window"]) for row in mine})
    return [
        _group(from_s, to_s, name, scheduler, [row for row in mine if row["window"] == name])
        for from_s, to_s, name in spans
        for scheduler in schedulers
        if any(row["window"] == name and row["scheduler"] == scheduler for row in mine)
    ]


def _group(from_s: float, to_s: float, name: str, scheduler: str, rows: Rows) -> WindowGroup:
    own = [row for row in rows if row["scheduler"] == scheduler]
    label, repetitions = own[0]["workload"], [row["repetition"] for row in own]

    def spread_of(metric: Metric) -> Spread | None:
        values = by_repetition(rows, label, scheduler, metric.name)
        return spread(list(values.values()), label, scheduler, metric.name)

    return WindowGroup(
        window=name,
        from_s=from_s,
        to_s=to_s,
        scheduler=scheduler,
        n=len(own),
        saturated=saturated_count(rows, label, {scheduler}, repetitions) or 0,
        suspect=suspect_count(rows, label, {scheduler}, repetitions),
        spreads={metric.name: spread_of(metric) for metric in WINDOW_METRICS},
    )
