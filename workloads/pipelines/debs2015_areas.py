"""`debs2015-q2`: profitable areas.

A trip makes a profit where it begins for some ticks, and an empty taxi where it ends, until that taxi's next trip. As
with routes, a block of neighbouring ticks is looked at first: what a cell is worth at most anywhere in it, and at least
everywhere. Only cells that may reach what the tenth one has at least are worked out tick by tick, in whole numbers.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from workloads.pipelines.change_log import log_of
from workloads.pipelines.pipeline import Known, Piece, Query, Step
from workloads.pipelines.taxi_tables import DONE, Field, Ticks, TripParams, cell_name, cells, ticks_of
from workloads.recordings.grid import CELLS_250_M
from workloads.recordings.schema import DEBS2015, SEQ
from workloads.taxi.areas import EMPTY_S, PROFIT_S
from workloads.taxi.layout import CHANGES, LISTED, SNAPSHOTS
from workloads.taxi.rides import Log

_RIDE = (SEQ, "start", "dropoff_datetime", "amount", "finish", "medallion", "pickup_datetime")


class ProfitableAreas(Query):
    """The query as a pipeline."""

    schema = DEBS2015
    columns = tuple(DEBS2015.columns)
    grid = CELLS_250_M
    Params: ClassVar[type[Any]] = TripParams
    order: ClassVar[Mapping[str, tuple[str, ...]]] = {SNAPSHOTS: ("ts",), CHANGES: ("change",)}

    def __init__(self, params: TripParams) -> None:
        self._params = params

    def reduced(self, rows: pa.Table) -> pa.Table:
        names = ("medallion", "dropoff_datetime", *(("pickup_datetime",) if self._params.changes else ()))
        kept = rows.select([SEQ, *names])
        for name, end in (("start", "pickup"), ("finish", "dropoff")):
            kept = kept.append_column(name, pa.array(cells(rows, CELLS_250_M, end)))
        return kept.append_column("amount", pc.add(rows.column("fare_amount"), rows.column("tip_amount")))

    def advanced(self, known: Known, piece: Piece) -> Step:
        tables, numbers, kept = {}, {}, {}
        if self._params.snapshots:
            rows = piece.rows.select(SEQ, "medallion", "dropoff_datetime", "start", "finish", "amount")
            if "window" in known.tables:
                rows = known.tables["window"].unionByName(rows)
            ticks = ticks_of(known, piece, self._params.period_s, PROFIT_S)
            tables[SNAPSHOTS] = snapshots(rows, ticks)
            numbers[DONE] = ticks.last
            kept["window"] = rows.where(F.col("dropoff_datetime") > ticks.last * ticks.period_s - EMPTY_S)
        if self._params.changes:
            tables[CHANGES], kept["log"] = log_of(Log, piece.rows.select(*_RIDE), known.tables.get("log"))
        return Step(tables, Known(numbers, kept))


def snapshots(trips: DataFrame, ticks: Ticks) -> DataFrame:
    """Return the listings of all ticks.

    Args:
        trips: `SEQ`, `medallion`, `dropoff_datetime`, cells `start` and `finish`, `amount` in nanodollars.
        ticks: which.
    """
    dropoff = F.col("dropoff_datetime")
    following = F.lead("dropoff_datetime").over(Window.partitionBy("medallion").orderBy(SEQ))
    gone = F.least(ticks.after(dropoff + EMPTY_S), ticks.after(following))
    # In both places of one trip: what it earned, or a taxi without an amount.
    earned = F.struct(F.col("start").alias("cell"), "amount", ticks.after(dropoff + PROFIT_S).alias("until"))
    empty = F.struct(F.col("finish").alias("cell"), F.lit(None).cast("bigint").alias("amount"), gone.alias("until"))
    both = trips.select(SEQ, ticks.after(dropoff).alias("since"), F.array(earned, empty).alias("both"))
    parts = both.select(SEQ, "since", F.explode("both").alias("part")).select(SEQ, "since", "part.*")
    seen = ticks.dealt(parts)
    few = _few_cells(seen, ticks.together).hint("shuffle_hash")
    near = few.join(seen, ["chunk", "block", "cell"])
    inside = F.sequence(F.greatest("since", F.lit(0)), F.least("until", F.lit(ticks.together)) - 1)
    at_ticks = near.select("chunk", "block", "cell", SEQ, "amount", F.explode(inside).alias("at"))
    tick = F.col("block") * ticks.together + F.col("at")
    worth = at_ticks.groupBy("chunk", tick.alias("tick"), "cell").agg(
        F.sort_array(F.collect_list("amount")).alias("amounts"),
        F.count_if(F.col("amount").isNull()).alias("empty"),
        F.max(SEQ).alias("newest"),
    )
    count = F.size("amounts")
    middle = F.get("amounts", F.floor((count - 1) / 2).cast("int")) + F.get("amounts", F.floor(count / 2).cast("int"))
    listed = worth.where((count > 0) & (F.col("empty") > 0)).select(
        "chunk", "tick", "cell", "empty", "newest", middle.alias("middle")
    )
    # Of whole numbers, to nine places more: of two values, the smaller one never comes out larger.
    value = F.col("middle").cast("decimal(20,0)") / F.col("empty").cast("decimal(8,0)")
    best = F.sort_array(F.collect_list(F.struct(-value, -F.col("newest"), "cell", "empty", "middle")))
    listings = listed.groupBy("chunk", "tick").agg(F.slice(best, 1, LISTED).alias("listed")).select("tick", "listed")
    return ticks.laid_out(trips.sparkSession, listings, _SHOWN)


def _few_cells(seen: DataFrame, together: int) -> DataFrame:
    """Return the cells of each block that may be listed."""
    throughout = (F.col("since") <= 0) & (F.col("until") >= together)
    is_profit = F.col("amount").isNotNull()
    bounds = seen.groupBy("chunk", "block", "cell").agg(
        F.min("amount").alias("low"),
        F.max("amount").alias("high"),
        F.count_if(is_profit & throughout).alias("sure_profits"),
        F.count_if(~is_profit & throughout).alias("sure_empty"),
        F.count_if(~is_profit).alias("any_empty"),
    )
    bounds = bounds.where("low is not null and any_empty > 0")
    fewest, most = F.greatest("sure_empty", F.lit(1)), F.col("any_empty")
    at_most = F.col("high") / F.when(F.col("high") >= 0, fewest).otherwise(most)
    at_least = F.col("low") / F.when(F.col("low") >= 0, most).otherwise(fewest)
    sure = F.when((F.col("sure_profits") > 0) & (F.col("sure_empty") > 0), at_least)
    # Quotients of large numbers are not exact; a little more is looked at than would have to be.
    slack = F.abs(at_most) * 1e-12
    cells = bounds.select(
        "chunk", "block", F.struct("cell", (at_most + slack).alias("at_most"), sure.alias("sure")).alias("c")
    )
    together_cells = cells.groupBy("chunk", "block").agg(F.collect_list("c").alias("cells"))
    falling = F.sort_array(F.transform("cells", lambda one: one.sure), asc=False)
    needed = F.coalesce(F.get(falling, F.lit(LISTED - 1)), F.lit(float("-inf"))).alias("needed")
    few = F.explode(F.filter("cells", lambda one: one.at_most >= F.col("needed"))).alias("few")
    return together_cells.select("*", needed).select("chunk", "block", few).select("chunk", "block", "few.cell")


def _dollars(amount: Column, parts: Column | int) -> Column:
    """Return nanodollars by parts, to the nearest millionth of a dollar; a half goes away from zero."""
    halves = F.call_function("div", F.abs(amount), F.lit(1000) * parts)
    millionths = F.call_function("div", halves + 1, F.lit(2))
    return F.when(amount >= 0, millionths).otherwise(-millionths) / F.lit(1e6)


_SHOWN: Mapping[str, Field] = {
    "cell": lambda one: cell_name(one.cell),
    "empty": lambda one: one.empty,
    "profit": lambda one: _dollars(one.middle, 1),
    "value": lambda one: _dollars(one.middle, one.empty),
}
