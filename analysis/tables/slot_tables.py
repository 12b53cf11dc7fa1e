"""Tables about time slots, for runs that follow a communication schedule: lengths, stalls, buffers, balance."""

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from analysis.records.campaign import BALANCE_S, Run
from analysis.tables.traces import Traces, measured
from inventory.times import NS

MB = 1_000_000


def slots(traces: Traces) -> DataFrame:
    """Return statistics of time slots per run: lengths, stages and stalls (ms, means), parts, tuples, and buffers.

    Columns that older versions did not record are null.
    """
    rows = measured(traces.table("slot"))
    measures = rows.groupBy("run").agg(
        F.count(F.lit(1)).alias("slots"),
        F.count_if(F.col("parts") == 0).alias("idle_slots"),
        (F.avg("lasted_ns") / 1e6).alias("slot_ms"),
        F.sum("parts").alias("parts"),
        F.sum("tuples").alias("tuples"),
        F.max("largest_parts").alias("most_parts"),
        F.count_if(_stalled()).alias("stalled_slots"),
        *_stalls(),
        F.avg("waiting").alias("waiting"),
        F.max("largest_outbox").alias("largest_outbox"),
        F.avg("queued_bytes").alias("queued_bytes"),
        F.max("queued_bytes").alias("most_queued_bytes"),
    )
    percent = 100 / (F.col("executors") * traces.buffer_mb * MB)
    return (
        measures.join(_of_runs(traces), "run", "left")
        .join(_stages(rows.join(_of_runs(traces), "run")), "run", "left")
        .join(slot_balance(traces).groupBy("run").agg(F.avg("spread").alias("spread")), "run", "left")
        .withColumn("buffer_percent", F.col("queued_bytes") * percent)
        .withColumn("most_buffer_percent", F.col("most_queued_bytes") * percent)
    )


def slot_timeline(traces: Traces) -> DataFrame:
    """Return the columns of `slots` that are of interest over time, for each whole step of the measured interval.

    `second` is the start of a step of `step_s`. A slot belongs to the step in which it ended. `overlapped_ms` is the
    mean time between the ends of slots by the recurrence.
    """
    at = F.floor((F.col("t_ns") - F.col("from_ns") - 1) / (traces.step_s * NS)) * traces.step_s
    steps = measured(traces.table("slot")).withColumn("second", at).join(_of_runs(traces), "run")
    rows = steps.where((F.col("second") + traces.step_s) * NS <= F.col("length_ns"))
    percent = 100 / (F.first("executors") * traces.buffer_mb * MB)
    measures = rows.groupBy("run", "second").agg(
        F.lit(traces.step_s).alias("step_s"),
        F.count(F.lit(1)).alias("slots"),
        F.count_if(_stalled()).alias("stalled_slots"),
        *_stalls(),
        (F.avg("queued_bytes") * percent).alias("buffer_percent"),
        (F.max("queued_bytes") * percent).alias("most_buffer_percent"),
    )
    last = F.lag("packed", 1, 0).over(Window.partitionBy("run").orderBy("n"))
    stages = _staged(rows).withColumn("later", F.col("packed") - last).groupBy("run", "second")
    overlapped = (F.avg("later") / 1e6).alias("overlapped_ms")
    return measures.join(stages.agg(*_stage_means(), overlapped), ["run", "second"], "left")


def slot_balance(traces: Traces) -> DataFrame:
    """Return mean and standard deviation of the parts that the nodes of the schedule received, per `BALANCE_S`.

    `second` is the start of an interval, counted from that of the measured interval; the last one may be shorter.
    """
    rows = measured(traces.table("slot")).where(F.col("node_parts").isNotNull())
    step = F.floor((F.col("t_ns") - F.col("from_ns") - 1) / (BALANCE_S * NS))
    pair = F.explode(F.split("node_parts", " ")).alias("pair")
    of_node = rows.select("run", (step * BALANCE_S).alias("second"), pair).where(F.col("pair") != "")
    parts = F.sum(F.substring_index("pair", "=", -1).cast("bigint")).alias("parts")
    by_node = of_node.groupBy("run", "second", F.regexp_replace("pair", r"=\d+$", "").alias("node")).agg(parts)
    return by_node.groupBy("run", "second").agg(
        F.count(F.lit(1)).alias("nodes"),
        F.avg("parts").alias("parts_per_node"),
        F.stddev_pop("parts").alias("spread"),
    )


def _stalled() -> Column:
    return F.col("largest_parts") > 1


def _stalls() -> list[Column]:
    """Return the predicted and the measured stall (ms), means over the stalled slots; null without any."""
    names = ("stall_predicted", "stall")
    return [(F.avg(F.when(_stalled(), F.col(f"{name}_ns"))) / 1e6).alias(f"{name}_ms") for name in names]


def _stages(rows: DataFrame) -> DataFrame:
    """Return the means of the stages of time slots, and the mean length if they overlapped."""
    overlapped = (F.max("packed") / F.max("n") / 1e6).alias("overlapped_ms")
    return _staged(rows).groupBy("run").agg(*_stage_means(), overlapped)


def _stage_means() -> list[Column]:
    """Return the mean time (ms) of each stage of a time slot with parts, and their mean length."""
    names = {"t": "transfer_ms", "v": "processing_ms", "w": "packing_ms", "lasted_ns": "busy_slot_ms"}
    return [(F.avg(column) / 1e6).alias(name) for column, name in names.items()]


def _staged(rows: DataFrame) -> DataFrame:
    """Return time slots with parts, numbered by n, with the times of their stages and their end by a recurrence (ns).

    That is PMOD's, with the measured transfer of every slot, t, and the mean times of processing, v, and packing, w:
    T(n) = T(n-1) + t(n), P(n) = max(T(n), P(n-1)) + v, K(n) = max(P(n), K(n-1)) + w, which is the column `packed`.
    Unrolled, P(n) is the largest T(j) + (n - j + 1) v of all j up to n, and likewise K(n). In runs whose slots overlap,
    a slot's processing counts from its start on, as it may be of the step before; slots that end before it do not
    count.
    """
    known = rows.where((F.col("parts") > 0) & F.col("arrived_ns").isNotNull() & F.col("packed_ns").isNotNull())
    timed = known.withColumns(
        {
            "t": F.col("arrived_ns"),
            "v": F.when(F.col("overlaps"), F.col("processed_ns")).otherwise(
                F.greatest(F.col("processed_ns") - F.col("arrived_ns"), F.lit(0))
            ),
            "w": F.greatest(F.col("packed_ns") - F.col("processed_ns"), F.lit(0)),
        }
    )
    whole = Window.partitionBy("run")
    upto = whole.orderBy("epoch", "number").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    n = F.row_number().over(whole.orderBy("epoch", "number"))

    def after(earlier: str, each: str) -> Column:
        return F.max(F.col(earlier) - (F.col("n") - 1) * F.col(each)).over(upto) + F.col("n") * F.col(each)

    return (
        timed.withColumn("n", n)
        .withColumn("mean_v", F.avg("v").over(whole))
        .withColumn("mean_w", F.avg("w").over(whole))
        .withColumn("arrived", F.sum("t").over(upto))
        .withColumn("processed", after("arrived", "mean_v"))
        .withColumn("packed", after("processed", "mean_w"))
    )


def _of_runs(traces: Traces) -> DataFrame:
    """Return the number of executors of each run, and whether transfers overlap with processing."""
    columns = {
        "run": pa.array([run.id for run in traces.runs], pa.string()),
        "executors": pa.array([sum(map(len, run.slots.values())) for run in traces.runs], pa.int64()),
        "overlaps": pa.array([_overlaps(run) for run in traces.runs], pa.bool_()),
    }
    return traces.spark.createDataFrame(pa.table(columns))


def _overlaps(run: Run) -> bool:
    gates = None if run.file is None else run.file.gates
    return gates is not None and gates.get("overlap") == "transfer"
