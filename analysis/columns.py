"""Columns of the tables of the Spark job, and a fixed order of their rows."""

from collections.abc import Mapping

from analysis.summary import Rows
from inventory.foreign import printable_all

SPARK_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "components": (
        *("run", "component", "role", "executors", "emitted_tuples_per_s", "processed_tuples_per_s"),
        *("due_tuples_per_s", "worst_late_ms"),
    ),
    "busy": ("run", "component", "busy_cores", "blocked_executors", "longest_queue"),
    "timeline": ("run", "second", "step_s", "source_tuples_per_s", "sink_tuples_per_s"),
    "latency": ("run", "quantile", "latency_ms", "samples"),
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
    found = [{column: _tidied(row[column]) for column in columns} for row in rows]
    return sorted(found, key=lambda row: [(row[c] is not None, row[c]) for c in columns if _sortable(row[c])])


def _tidied(value: object) -> object:
    return float(f"{value:.9g}") if isinstance(value, float) else printable_all(value)


def _sortable(value: object) -> bool:
    return value is None or isinstance(value, (str, int, float))
