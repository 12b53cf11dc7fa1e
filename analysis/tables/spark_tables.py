"""The report's tables, each an aggregation over the traces of all runs; only their rows are loaded into Python.

Rates are means over the measured interval. Every function returns a DataFrame that begins with `run` and whose
size does not depend on how long a run was.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from analysis.records.descriptions import MOMENT_LABELS
from analysis.tables.slot_tables import slot_balance, slot_timeline, slots
from analysis.tables.traces import Traces, component_of, duration_s, measured, measured_share, share_within
from inventory.times import NS

GRAIN = 100_000
"""Quantiles are whole parts of this, so that a rank is computed in integers."""

QUANTILES = (
    *range(1_000, 90_000, 2_000),
    *(5_000, 10_000, 20_000, 25_000, 30_000, 40_000, 50_000, 60_000, 70_000, 75_000, 80_000),
    *range(90_000, 99_000, 500),
    *range(99_000, 99_900, 100),
    *(99_900, 99_950, 99_990, 99_999, GRAIN),
)
"""The quantiles of the table `latency`, in parts of `GRAIN`."""


def components(traces: Traces) -> DataFrame:
    """Return tuples per second in and out of a component; for spouts also tuples due and the largest lateness (ms)."""
    # `due` counts from the sources' start on, also while nothing is reported; of a source that is added again, anew.
    of_source = Window.partitionBy("run", "executor").orderBy("t_ns")
    before = F.lag("due", 1, 0).over(of_source)
    more = F.greatest(F.col("due") - before, F.lit(0))
    risen = F.when(F.col("due") < before / 2, F.col("due")).when(F.col("due").isNotNull(), more)
    since = F.coalesce(F.lag("t_ns").over(of_source), "since_ns")
    rows = traces.table("throughput").withColumns({"newly_due": risen, "due_since_ns": since})
    share = measured_share()
    per_second = share / duration_s()
    due_per_second = share_within(F.col("from_ns"), F.col("to_ns"), "due_since_ns") / duration_s()
    return rows.groupBy("run", "component", "role").agg(
        F.size(F.collect_set("executor")).alias("executors"),
        F.sum(F.col("emitted") * per_second).alias("emitted_tuples_per_s"),
        F.sum(F.col("processed") * per_second).alias("processed_tuples_per_s"),
        F.sum(F.col("newly_due") * due_per_second).alias("due_tuples_per_s"),
        (F.max(F.when((F.col("role") == "spout") & (share > 0), F.col("late_ns"))) / 1e6).alias("worst_late_ms"),
    )


def busy(traces: Traces) -> DataFrame:
    """Return a component's CPU cores in use, its blocked executors, and its longest queue (rows)."""
    rows = traces.table("executor").withColumn("component", component_of("executor"))
    share = measured_share()
    per_ns = share / (duration_s() * NS)
    return rows.groupBy("run", "component").agg(
        F.sum(F.col("busy_ns") * per_ns).alias("busy_cores"),
        F.sum(F.col("blocked_ns") * per_ns).alias("blocked_executors"),
        F.max(F.when(share > 0, F.col("queued"))).alias("longest_queue"),
    )


def timeline(traces: Traces) -> DataFrame:
    """Return tuples per second emitted by spouts and received by sinks, in steps of whole seconds of the run.

    `second` is the start of a step of `step_s`, counted from the measured interval's start; steps before 0 are warm-up.
    Only steps throughout which the sources were running are given.
    """
    step_ns = traces.step_s * NS
    first, last = F.col("since_ns") - F.col("from_ns"), F.col("t_ns") - 1 - F.col("from_ns")
    rows = traces.table("throughput").where(F.col("role").isin("spout", "sink"))
    steps = rows.withColumn("step", F.explode(F.sequence(F.floor(first / step_ns), F.floor(last / step_ns))))
    since_start = F.col("step") * step_ns
    begin = F.col("from_ns") + since_start
    per_second = share_within(begin, begin + step_ns) / (step_ns / NS)
    # All processes of a run must have the same steps; a step missing in some would show too little throughput.
    whole = (since_start >= -F.col("lead_ns")) & (since_start + step_ns <= F.col("length_ns"))
    source, sink = (F.when(F.col("role") == role, F.col(count)) for role, count in _ENDS.items())
    return (
        steps.where(whole)
        .groupBy("run", (F.col("step") * (step_ns // NS)).alias("second"))
        .agg(
            F.sum(source * per_second).alias("source_tuples_per_s"),
            F.sum(sink * per_second).alias("sink_tuples_per_s"),
        )
        .withColumn("step_s", F.lit(step_ns // NS))
    )


def latency(traces: Traces) -> DataFrame:
    """Return end-to-end latency (ms) at `QUANTILES`: the smallest bucket that covers this share of the samples."""
    buckets = (
        measured(traces.table("latency"))
        .groupBy("run", "value_ns")
        .agg(F.sum("count").alias("count"))
        .where(F.col("count") > 0)
    )
    whole = Window.partitionBy("run")
    upto = whole.orderBy("value_ns").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ranked = buckets.withColumn("upto", F.sum("count").over(upto)).withColumn("samples", F.sum("count").over(whole))
    asked = F.array(*(F.lit(quantile).cast("bigint") for quantile in sorted(set(QUANTILES))))
    # The rank of a quantile, rounded up, in integers: ceil(samples * quantile / GRAIN).
    rank = F.expr(f"(samples * quantile + {GRAIN - 1}) div {GRAIN}")
    return (
        ranked.withColumn("quantile", F.explode(asked))
        .where((rank > F.col("upto") - F.col("count")) & (rank <= F.col("upto")))
        .select(
            "run",
            (F.col("quantile") / GRAIN).alias("quantile"),
            (F.col("value_ns") / 1e6).alias("latency_ms"),
            "samples",
        )
    )


def latency_timeline(traces: Traces) -> DataFrame:
    """Return the mean end-to-end latency (ms) of the samples in the steps of the timeline.

    The samples of a row are counted in the step that holds the middle of the time covered.
    """
    step_ns = traces.step_s * NS
    at = F.floor((F.expr("(since_ns + t_ns) div 2") - F.col("from_ns")) / step_ns)
    steps = traces.table("latency").withColumn("step", at)
    since_start = F.col("step") * step_ns
    whole = (since_start >= -F.col("lead_ns")) & (since_start + step_ns <= F.col("length_ns"))
    return (
        steps.where(whole)
        .groupBy("run", (F.col("step") * (step_ns // NS)).alias("second"))
        .agg(
            (F.sum(F.col("value_ns") * F.col("count")) / F.sum("count") / 1e6).alias("latency_ms"),
            F.sum("count").alias("samples"),
        )
        .withColumn("step_s", F.lit(step_ns // NS))
    )


def hops(traces: Traces) -> DataFrame:
    """Return tuples, batches and bytes per second by kind of hop; bytes are null where nothing is encoded."""
    rows = traces.table("channel")
    per_second = measured_share() / duration_s()
    return rows.groupBy("run", "hop").agg(
        F.sum(F.col("tuples") * per_second).alias("tuples_per_s"),
        F.sum(F.col("batches") * per_second).alias("batches_per_s"),
        F.sum(F.col("bytes") * per_second).alias("bytes_per_s"),
    )


def cpu(traces: Traces) -> DataFrame:
    """Return CPU cores in use per node and scope; `shared` marks readings of a host that several nodes share."""
    rows = traces.table("cpu").withColumn("inside_ns", measured_share() * (F.col("t_ns") - F.col("since_ns")))
    known = rows.where((F.col("inside_ns") > 0) & F.col("cores").isNotNull()).groupBy("run", "node", "scope", "name")
    mean = F.sum(F.col("cores") * F.col("inside_ns")) / F.sum("inside_ns")
    means = known.agg(mean.alias("cores"), F.bool_or("shared").alias("shared"))
    return means.groupBy("run", "node", "scope").agg(F.sum("cores").alias("cores"), F.bool_or("shared").alias("shared"))


def memory(traces: Traces) -> DataFrame:
    """Return memory in MB per node, scope and kind: the mean, and the sum of the peaks of all processes."""
    each = measured(traces.table("memory")).groupBy("run", "node", "scope", "kind", "name")
    means = each.agg(F.avg("bytes").alias("mean"), F.max("bytes").alias("most"), F.bool_or("shared").alias("shared"))
    return means.groupBy("run", "node", "scope", "kind").agg(
        (F.sum("mean") / 1e6).alias("mean_mb"),
        (F.sum("most") / 1e6).alias("most_mb"),
        F.bool_or("shared").alias("shared"),
    )


def network(traces: Traces) -> DataFrame:
    """Return bytes and packets per second through each interface, from the kernel's counters."""
    seconds = (F.max("t_ns") - F.min("t_ns")) / NS
    counters = ("rx_bytes", "tx_bytes", "rx_packets", "tx_packets")
    return (
        measured(traces.table("network"))
        .groupBy("run", "node", "interface")
        .agg(
            *(
                ((F.max(name) - F.min(name)) / F.nullif(seconds, F.lit(0.0))).alias(f"{name}_per_s")
                for name in counters
            ),
            F.bool_or("shared").alias("shared"),
        )
    )


def events(traces: Traces) -> DataFrame:
    """Return events by kind and subject: their number, the mean of their value, and one of their details."""
    return (
        traces.table("event")
        .groupBy("run", "kind", "subject")
        .agg(
            F.count(F.lit(1)).alias("times"),
            F.avg("value").alias("mean_value"),
            F.min("detail").alias("detail"),
        )
    )


def power(traces: Traces) -> DataFrame:
    """Return watts of every domain in the steps of the timeline, from its joules; null where a part is missing."""
    step_ns = traces.step_s * NS
    series = Window.partitionBy("run", "node", "domain", "source").orderBy("t_ns")
    known = F.last("joules", ignorenulls=True).over(series.rowsBetween(Window.unboundedPreceding, -1))
    # A restarted agent counts from 0: the energy in between is unknown.
    begun = F.array_contains(_flags(), "first")
    rows = (
        traces.table("power")
        .withColumns({"since_ns": F.lag("t_ns").over(series), "drawn": F.when(~begun, F.col("joules") - known)})
        .where(F.col("since_ns") < F.col("t_ns"))
    )
    first, last = F.col("since_ns") - F.col("from_ns"), F.col("t_ns") - 1 - F.col("from_ns")
    steps = rows.withColumn("step", F.explode(F.sequence(F.floor(first / step_ns), F.floor(last / step_ns))))
    since_start = F.col("step") * step_ns
    begin = F.col("from_ns") + since_start
    share = share_within(begin, begin + step_ns)
    covered_ns = F.sum(F.when(F.col("drawn").isNotNull(), share * (F.col("t_ns") - F.col("since_ns"))))
    whole = (since_start >= -F.col("lead_ns")) & (since_start + step_ns <= F.col("length_ns"))
    key = ("run", "node", "domain", "role", "source", "in_total")
    return (
        steps.where(whole)
        .groupBy(*key, (F.col("step") * (step_ns // NS)).alias("second"))
        .agg(
            F.when(covered_ns > 0.999 * step_ns, F.sum(F.col("drawn") * share) / (step_ns / NS)).alias("watts"),
            F.array_sort(F.array_distinct(F.flatten(F.collect_list(_flags())))).alias("found"),
            F.bool_or("shared").alias("shared"),
        )
        .withColumns(
            {
                "step_s": F.lit(step_ns // NS),
                "modelled": F.array_contains("found", "modelled"),
                "flags": F.array_join(F.array_remove(F.col("found"), "first"), ", "),
            }
        )
    )


def consumers(traces: Traces) -> DataFrame:
    """Return joules and CPU seconds of executors, transport, rest and idle, summed over the total's domains."""
    who = ("run", "node", "worker", "consumer", "name", "source")
    of_domain = (
        traces.table("energy")
        .groupBy(*who, "domain")
        .agg(
            F.sum("joules").alias("joules"),
            F.sum("cpu_ns").alias("cpu_ns"),
            F.bool_or(F.array_contains(_flags(), "modelled")).alias("modelled"),
            F.bool_or(F.array_contains(_flags(), "clamped")).alias("clamped"),
        )
    )
    return of_domain.groupBy(*(F.col(name).alias("executor" if name == "name" else name) for name in who)).agg(
        F.sum("joules").alias("joules"),
        # All domains have the same CPU time.
        (F.max("cpu_ns") / NS).alias("cpu_s"),
        F.bool_or("modelled").alias("modelled"),
        F.bool_or("clamped").alias("clamped"),
    )


def moments(traces: Traces) -> DataFrame:
    """Return the events marked in the figure of power over time, in seconds from the measured interval's start."""
    rows = traces.table("event").where(F.col("kind").isin(*MOMENT_LABELS))
    second = (F.col("t_ns") - F.col("from_ns")) / NS
    return rows.select("run", second.alias("second"), "node", "kind", "subject", "detail")


def _flags() -> Column:
    """Return the flags of a row of energy as an array."""
    return F.array_remove(F.split(F.coalesce(F.col("flags"), F.lit("")), ","), "")


_ENDS = {"spout": "emitted", "sink": "processed"}
"""Role at an end of the topology -> its column of the table `throughput`."""

TABLES: Mapping[str, Callable[[Traces], DataFrame]] = {
    "components": components,
    "busy": busy,
    "timeline": timeline,
    "latency": latency,
    "latency_timeline": latency_timeline,
    "hops": hops,
    "cpu": cpu,
    "memory": memory,
    "network": network,
    "slots": slots,
    "slot_balance": slot_balance,
    "slot_timeline": slot_timeline,
    "power": power,
    "consumers": consumers,
    "moments": moments,
    "events": events,
}
"""Table -> function that builds it."""


def collected(traces: Traces, name: str) -> list[dict[str, Any]]:
    """Return the rows of a table; without Spark where no run follows a communication schedule."""
    if name in ("slots", "slot_balance", "slot_timeline") and not any(run.sizes["slot"][0] for run in traces.runs):
        return []
    table_rows: list[dict[str, Any]] = TABLES[name](traces).toArrow().to_pylist()
    return table_rows
