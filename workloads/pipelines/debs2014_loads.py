"""Pipeline `debs2014-q1`: loads of houses and plugs, predicted at every tick.

Readings become sums by plug and interval between two ticks; `at` is the number of the interval, 0 begins at `BASE`. A
row of sums is carried forward to the ticks before the plug's next row, within its slice, which gives cells: a plug's
load at a tick. A window over all cells of the same time of day then gives each the median of those that end a slice on
an earlier day: no join is needed, and rows partitioned by plug stay in place.

The state for later pieces consists of the sums of open slices, and the loads of completed slices.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program gives it

from workloads.pipelines.pipeline import Known, Piece, Query, Step
from workloads.recordings.schema import DEBS2014, SEQ
from workloads.smart_home.query import BASE, TICK_S, WATT_SECONDS_OF_A_KWH, QueryParams

PLUG = ("house_id", "household_id", "plug_id")
NAMES: Mapping[str, tuple[str, ...]] = {"house": PLUG[:1], "plug": PLUG}
"""Table of the answer -> columns that name the subject of its rows."""

_DONE, _SUMS = "done", "sums"
_LATEST = 1 << 62


class LoadsPipeline(Query):
    """The query as a pipeline.

    The state consists of `done`, the last `at` that has been answered, `sums` on which later ticks depend (see
    `summed`), and for each table of the answer the loads of completed slices (name, `slice_s`, `slice`, `load`).
    """

    schema = DEBS2014
    columns = tuple(DEBS2014.columns)
    Params: ClassVar[type[Any]] = QueryParams
    order: ClassVar[Mapping[str, tuple[str, ...]]] = {
        table: ("tick", "slice_s", *name) for table, name in NAMES.items()
    }

    def __init__(self, params: QueryParams) -> None:
        self._params = params

    def reduced(self, rows: pa.Table) -> pa.Table:
        names = [*PLUG, "at"]
        at = (rows.column("timestamp").to_numpy() - BASE) // TICK_S
        rows = pa.table({**{name: rows.column(name) for name in rows.column_names}, "at": at})
        is_load = pc.equal(rows.column("property"), 1)
        loads = (
            rows.filter(is_load).group_by(names, use_threads=False).aggregate([("value", "sum"), ("value", "count")])
        )
        loads = loads.rename_columns({"value_sum": "total", "value_count": "count"})
        if self._params.fill == "none":
            return loads
        # Of work, the first and the last reading of each plug and interval.
        work = rows.filter(pc.invert(is_load))
        ends = work.group_by(names, use_threads=False).aggregate([(SEQ, "min"), (SEQ, "max")])
        numbers = np.concatenate([ends.column(f"{SEQ}_{end}").to_numpy() for end in ("min", "max")])
        is_end = np.isin(work.column(SEQ).to_numpy(), numbers)
        work = work.filter(pa.array(is_end)).select([*names, SEQ, "timestamp", "value"])
        return pa.concat_tables([loads, work], promote_options="default")

    def advanced(self, known: Known, piece: Piece) -> Step:
        query, done = self._params, known.numbers.get(_DONE)
        sums = summed(piece.rows)
        if _SUMS in known.tables:
            sums = _merged(known.tables[_SUMS].unionByName(sums))
        sums = sums.persist()
        until = (piece.newest - BASE) // TICK_S - (not piece.over)
        plugs = _cells(sums, query, done, until)
        houses = plugs.groupBy(*NAMES["house"], "slice_s", "slice", "at").agg(F.sum("load").alias("load"))
        tables, kept = {}, {_SUMS: _still_needed(sums, query, until)}
        for table, cells in (("house", houses), ("plug", plugs)):
            before = known.tables.get(table)
            tables[table] = _predictions(cells, before, NAMES[table], query)
            ended = cells.where(_ends_slice() & (F.col("slice") >= 0)).select(*NAMES[table], "slice_s", "slice", "load")
            kept[table] = ended if before is None else before.unionByName(ended)
        return Step(tables, Known({_DONE: until}, kept))


def summed(rows: DataFrame) -> DataFrame:
    """Return `total` and `count` of load readings by plug and `at`, and `first` and `last` of work if it fills gaps.

    Args:
        rows: reduced readings.
    """
    if SEQ not in rows.columns:
        return _merged(rows)
    work = F.when(F.col(SEQ).isNotNull(), F.struct(SEQ, "timestamp", "value"))
    return _merged(rows.select(*PLUG, "at", "total", "count", work.alias("first"), work.alias("last")))


def _merged(sums: DataFrame) -> DataFrame:
    ways = {"total": F.sum, "count": F.sum, "first": F.min, "last": F.max}
    # The ends of work are structs, for which Spark sorts: only present where needed.
    merged = [ways[name](name).alias(name) for name in sums.columns if name in ways]
    return sums.groupBy(*PLUG, "at").agg(*merged)


def _cells(sums: DataFrame, query: QueryParams, done: int | None, until: int) -> DataFrame:
    """Return loads of plugs at the ticks after `done`, up to `until`: name, `slice_s`, `slice`, `at`, `load`."""
    if query.fill == "work":
        before = Window.partitionBy(*PLUG).orderBy("at").rowsBetween(Window.unboundedPreceding, -1)
        begin = F.when(F.col("last").isNotNull(), F.coalesce(F.last("last", True).over(before), F.col("first")))
        sums = sums.withColumn("begin", begin)
    lengths = F.explode(F.array(*(F.lit(length).cast("bigint") for length in query.lengths)))
    rows = sums.withColumn("slice_s", lengths).withColumn("slice", _whole_part(F.col("at"), _ticks()))
    if done is not None:
        rows = rows.where((F.col("slice") + 1) * _ticks() > done + 1)
    in_slice = Window.partitionBy(*PLUG, "slice_s", "slice").orderBy("at")
    so_far = in_slice.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    load = F.sum("total").over(so_far) / F.nullif(F.sum("count").over(so_far), F.lit(0))
    if query.fill == "work":
        load = F.coalesce(load, _load_of_work(F.first("begin", True).over(so_far), F.last("last", True).over(so_far)))
    following = F.coalesce(F.lead("at").over(in_slice), F.lit(_LATEST))
    end = F.least(following, (F.col("slice") + 1) * _ticks(), F.lit(until + 1))
    start = F.col("at") if done is None else F.greatest("at", F.lit(done + 1))
    known = rows.select(*PLUG, "slice_s", "slice", start.alias("start"), end.alias("end"), load.alias("load"))
    times = F.explode(F.sequence("start", F.col("end") - 1)).alias("at")
    return known.where("load is not null and start < end").select(*PLUG, "slice_s", "slice", times, "load")


def _load_of_work(begin: Column, end: Column) -> Column:
    """Return W from the work between two readings; null if it is undefined."""
    seconds, kwh = end["timestamp"] - begin["timestamp"], end["value"] - begin["value"]
    return F.when((seconds > 0) & (kwh >= 0), kwh * WATT_SECONDS_OF_A_KWH / seconds)


def _predictions(cells: DataFrame, past: DataFrame | None, name: tuple[str, ...], query: QueryParams) -> DataFrame:
    """Return rows of the answer for all cells.

    Every cell queries slices before `position`; a cell that ends a slice is also an answer, at that slice's `position`.
    """
    asks = F.struct((F.col("slice") + 2).alias("position"), F.lit(None).cast("double").alias("past"))
    answers = F.struct(F.col("slice").alias("position"), F.col("load").alias("past"))
    both = F.when(_ends_slice() & (F.col("slice") >= 0), F.array(asks, answers)).otherwise(F.array(asks))
    rows = cells.select(*name, "slice_s", "slice", "at", "load", F.explode(both).alias("role"))
    rows = rows.select(*name, "slice_s", "slice", "at", "load", "role.*")
    if past is not None:
        nothing = F.lit(None)
        rows = rows.unionByName(
            past.select(
                *(*name, "slice_s", "slice"),
                nothing.cast("bigint").alias("at"),
                nothing.cast("double").alias("load"),
                F.col("slice").alias("position"),
                F.col("load").alias("past"),
            )
        )
    time_of_day = F.pmod(F.col("position"), _whole_part(F.lit(query.day_s), F.col("slice_s")))
    earlier = Window.partitionBy(*name, "slice_s", time_of_day).orderBy("position")
    earlier = earlier.rangeBetween(Window.unboundedPreceding, -1)
    days, middle = F.count("past").over(earlier), F.percentile("past", F.lit(0.5)).over(earlier)
    predicted = rows.withColumns({"days": days, "middle": middle}).where("past is null and at is not null")
    load = F.when(F.col("days") > 0, (F.col("load") + F.col("middle")) / 2).otherwise(F.col("load"))
    return predicted.select(
        (BASE + (F.col("at") + 1) * TICK_S).alias("tick"),
        "slice_s",
        (BASE + F.col("position") * F.col("slice_s")).alias("ts"),
        *name,
        load.alias("predicted_load"),
        F.col("days").alias("n_history"),
    )


def _still_needed(sums: DataFrame, query: QueryParams, until: int) -> DataFrame:
    """Return sums of open slices, and each plug's last reading of work before these."""
    open_from = min((until + 1) // (length // TICK_S) * (length // TICK_S) for length in query.lengths)
    if query.fill == "none":
        return sums.where(F.col("at") >= open_from)
    before = Window.partitionBy(*PLUG)
    last = F.max(F.when((F.col("at") < open_from) & F.col("last").isNotNull(), F.col("at"))).over(before)
    return sums.withColumn("kept", last).where((F.col("at") >= open_from) | (F.col("at") == F.col("kept"))).drop("kept")


def _ticks() -> Column:
    """Return the number of ticks in a slice."""
    return _whole_part(F.col("slice_s"), F.lit(TICK_S))


def _ends_slice() -> Column:
    return F.pmod(F.col("at") + 1, _ticks()) == 0


def _whole_part(value: Column, by: Column) -> Column:
    """Return `value` / `by`, both integers, rounded down."""
    return F.call_function("div", value - F.pmod(value, by), by)
