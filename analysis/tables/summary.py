"""One row per run: from the tables of the Spark job, or from `run.json` alone."""

from collections.abc import Iterable, Mapping

from analysis.records.campaign import Campaign, Run
from analysis.records.descriptions import ONE_HOST
from analysis.records.interval_metrics import IntervalMetrics
from analysis.statistics.metrics import HOPS, Row, Rows
from analysis.statistics.transient import steady_from_s, steady_workloads
from inventory.foreign import printable_all
from inventory.times import NS


def run_rows(campaign: Campaign, tables: Mapping[str, Rows]) -> Rows:
    """Return one row per run of the campaign; runs that do not count have a reason and empty figures."""
    by_run = {name: _grouped(rows) for name, rows in tables.items()}
    steady = steady_workloads(campaign)
    over_time = [by_run.get(name, {}) for name in ("timeline", "latency_timeline")]
    return [
        {
            **_outcome(run),
            "steady_from_s": steady_from_s(run, steady, *(rows.get(run.id, []) for rows in over_time)),
            **_figures(run, {name: groups.get(run.id, []) for name, groups in by_run.items()}),
        }
        for run in campaign.runs
    ]


def recorded_rows(campaign: Campaign) -> Rows:
    """Return the rows of `run_rows` with the figures that `run.json` has; others are None.

    They need no report: `analysis.measure` computed them from the traces at the end of the run.
    """
    return [
        dict.fromkeys(RUN_COLUMNS) | _outcome(run) | (_recorded_figures(run) if run.counts else {})
        for run in campaign.runs
    ]


def _outcome(run: Run) -> Row:
    return {
        "run": run.id,
        "workload": run.workload,
        "scheduler": run.scheduler,
        "repetition": run.repetition,
        "status": run.status,
        "counts": run.counts,
        "reason": run.left_out,
        "verification": run.file.verification.status if run.file else "none",
        "checked_rows": run.file.verification.checked if run.file else None,
        "saturated": run.file.measured.saturated if run.file and run.file.measured else None,
        "suspect": run.suspect,
        "not_given": run.not_given,
        "recoveries": run.recoveries if run.counts else None,
        "incomplete": run.incomplete,
    }


def _recorded_figures(run: Run) -> Row:
    measured = run.file.measured if run.file else None
    if measured is None:
        return {}
    seconds = ((run.times.measure_end_ns or 0) - (run.times.measure_start_ns or 0)) / NS
    return interval_figures(measured, seconds) | _conditions(run)


def interval_figures(metrics: IntervalMetrics, seconds: float) -> Row:
    """Return rates and latencies of an interval of `seconds`, as columns of tables; None for unknown values."""
    latency = metrics.latency_ms
    tuples = {hop: metrics.hops.get(hop) for hop in HOPS}
    return {
        "due_tuples_per_s": metrics.due_tuples_per_s,
        "source_tuples_per_s": metrics.source_tuples_per_s,
        "sink_tuples_per_s": metrics.sink_tuples_per_s,
        **{f"latency_{name}_ms": getattr(latency, name) for name in _PERCENTILES},
        "latency_samples": latency.samples,
        **{
            f"{hop}_tuples_per_s": None if count is None or seconds <= 0 else count / seconds
            for hop, count in tuples.items()
        },
    }


def _conditions(run: Run) -> Row:
    return {
        "latency_bound_ms": run.latency_bound_ms,
        "nodes_used": len({node for node, _ in run.slots}) or None,
        "slots_used": len(run.slots) or None,
    }


def _figures(run: Run, tables: Mapping[str, Rows]) -> Row:
    """Return the figures of one run; None for values that were not measured."""
    if not run.counts:
        return dict.fromkeys(_figure_names())
    components, busy, cpu = tables["components"], tables["busy"], tables["cpu"]
    at = {row["quantile"]: row for row in tables["latency"]}
    hops = {row["hop"]: row for row in tables["hops"]}
    sink = _total(row["processed_tuples_per_s"] for row in components if row["role"] == "sink")
    workers = _total(row["cores"] for row in cpu if row["scope"] == "worker")
    memory = [row for row in tables["memory"] if row["kind"] == "rss"]
    figures: Row = {
        "due_tuples_per_s": _total(row["due_tuples_per_s"] for row in components if row["role"] == "spout"),
        "source_tuples_per_s": _total(row["emitted_tuples_per_s"] for row in components if row["role"] == "spout"),
        "sink_tuples_per_s": sink,
        "worst_late_ms": max(
            (row["worst_late_ms"] for row in components if row["worst_late_ms"] is not None), default=None
        ),
        **{f"latency_{name}_ms": at[q]["latency_ms"] if at else None for name, q in _PERCENTILES.items()},
        "latency_samples": next((row["samples"] for row in tables["latency"]), 0),
        # No row means that no tuple took that kind of hop: a count of 0.
        **{f"{hop}_tuples_per_s": hops[hop]["tuples_per_s"] if hop in hops else 0.0 for hop in HOPS},
        **{f"{hop}_bytes_per_s": hops[hop]["bytes_per_s"] if hop in hops else 0.0 for hop in HOPS[1:]},
        **_conditions(run),
        "worker_cores": workers,
        "agent_cores": _total(row["cores"] for row in cpu if row["scope"] == "agent"),
        "host_cores": _host_cores(run, [row for row in cpu if row["scope"] == "core"]),
        "cpu_s_per_million_tuples": workers / sink * 1e6 if workers is not None and sink else None,
        "busy_cores": _total(row["busy_cores"] for row in busy),
        "blocked_executors": _total(row["blocked_executors"] for row in busy),
        "worker_memory_mb": _total(row["mean_mb"] for row in memory if row["scope"] == "worker"),
        "agent_memory_mb": _total(row["mean_mb"] for row in memory if row["scope"] == "agent"),
    }
    return figures


_PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}


def _figure_names() -> list[str]:
    """Return the columns of `_figures`, in its order."""
    return [
        "due_tuples_per_s",
        "source_tuples_per_s",
        "sink_tuples_per_s",
        "worst_late_ms",
        *(f"latency_{name}_ms" for name in _PERCENTILES),
        "latency_bound_ms",
        "latency_samples",
        *(f"{hop}_tuples_per_s" for hop in HOPS),
        *(f"{hop}_bytes_per_s" for hop in HOPS[1:]),
        "nodes_used",
        "slots_used",
        "worker_cores",
        "agent_cores",
        "host_cores",
        "cpu_s_per_million_tuples",
        "busy_cores",
        "blocked_executors",
        "worker_memory_mb",
        "agent_memory_mb",
    ]


RUN_COLUMNS = (
    *("run", "workload", "scheduler", "repetition", "status", "counts", "reason"),
    *("verification", "checked_rows", "saturated", "suspect", "not_given", "recoveries", "incomplete"),
    "steady_from_s",
    *_figure_names(),
)


def _host_cores(run: Run, rows: Rows) -> float | None:
    """Return the cores in use of all hosts; nodes on one host all report that host."""
    if not rows:
        return None
    total: float = sum(row["cores"] for row in rows)
    # Earlier agents on emulated nodes did not mark cores as shared.
    is_one = any(row["shared"] for row in rows) or (run.file is not None and run.file.tier in ONE_HOST)
    return total / len(rows) if is_one else total


def _total(values: Iterable[float | None]) -> float | None:
    """Return the sum of the values that are not None; None when there is none."""
    there = [value for value in values if value is not None]
    return sum(there) if there else None


def _grouped(rows: Rows) -> dict[str, Rows]:
    groups: dict[str, Rows] = {}
    for row in rows:
        groups.setdefault(row["run"], []).append(row)
    return groups


SPARK_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "components": (
        *("run", "component", "role", "executors", "emitted_tuples_per_s", "processed_tuples_per_s"),
        *("due_tuples_per_s", "worst_late_ms"),
    ),
    "busy": ("run", "component", "busy_cores", "blocked_executors", "longest_queue"),
    "timeline": ("run", "second", "step_s", "source_tuples_per_s", "sink_tuples_per_s"),
    "latency": ("run", "quantile", "latency_ms", "samples"),
    "latency_timeline": ("run", "second", "step_s", "latency_ms", "samples"),
    "hops": ("run", "hop", "tuples_per_s", "batches_per_s", "bytes_per_s"),
    "cpu": ("run", "node", "scope", "cores", "shared"),
    "memory": ("run", "node", "scope", "kind", "mean_mb", "most_mb", "shared"),
    "network": (
        *("run", "node", "interface", "rx_bytes_per_s", "tx_bytes_per_s", "rx_packets_per_s", "tx_packets_per_s"),
        "shared",
    ),
    "slots": (
        *("run", "slots", "idle_slots", "slot_ms", "parts", "tuples", "most_parts", "stalled_slots"),
        *("stall_predicted_ms", "stall_ms", "waiting", "largest_outbox"),
        *("transfer_ms", "processing_ms", "packing_ms", "busy_slot_ms", "overlapped_ms"),
        *("buffer_percent", "most_buffer_percent", "spread"),
    ),
    "slot_balance": ("run", "second", "nodes", "parts_per_node", "spread"),
    "slot_timeline": (
        *("run", "second", "step_s", "slots", "transfer_ms", "processing_ms", "packing_ms", "busy_slot_ms"),
        *("overlapped_ms", "stalled_slots", "stall_predicted_ms", "stall_ms", "buffer_percent", "most_buffer_percent"),
    ),
    "power": (
        *("run", "node", "domain", "role", "source", "modelled", "in_total", "second", "step_s", "watts"),
        *("flags", "shared"),
    ),
    "consumers": (
        *("run", "node", "worker", "consumer", "executor", "source", "modelled", "cpu_s", "joules"),
        "clamped",
    ),
    "moments": ("run", "second", "node", "kind", "subject", "detail"),
    "events": ("run", "kind", "subject", "times", "mean_value", "detail"),
}
"""Tables of the Spark job -> their columns; rows are sorted by them from left to right."""


def tidy(table: str, rows: Rows) -> Rows:
    """Return sorted rows with printable text, and numbers to nine digits: Spark's order of summation varies."""
    columns = SPARK_COLUMNS[table]
    tidied = [{column: _tidied(row[column]) for column in columns} for row in rows]
    return sorted(tidied, key=lambda row: [(row[c] is not None, row[c]) for c in columns if _sortable(row[c])])


def _tidied(value: object) -> object:
    return float(f"{value:.9g}") if isinstance(value, float) else printable_all(value)


def _sortable(value: object) -> bool:
    return value is None or isinstance(value, (str, int, float))
