"""`debs2015-q1`: frequent routes.

Snapshots never look at all routes at every tick. For a block of neighbouring ticks, trips that are in the windows of
all of them give each route a count that it has at least, and trips in any of the windows one that it has at most. What
the tenth route has at least, a route must have at most to be listed anywhere in the block; only such routes, some
dozens, are counted tick by tick.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from workloads.pipelines.change_log import log_of
from workloads.pipelines.pipeline import Known, Piece, Query, Step
from workloads.pipelines.taxi_tables import DONE, ENDS, Field, Ticks, TripParams, cell_name, cells, ticks_of
from workloads.pipelines.top_k_pruning import contenders
from workloads.recordings.grid import CELLS_500_M
from workloads.recordings.schema import DEBS2015, SEQ
from workloads.taxi.layout import CHANGES, LISTED, ROUTE, SNAPSHOTS
from workloads.taxi.routes import WINDOW_S, Log

_TRIP = (SEQ, "route", "dropoff_datetime", "pickup_datetime")


class FrequentRoutes(Query):
    """The query as a pipeline."""

    schema = DEBS2015
    grid = CELLS_500_M
    columns = ("pickup_datetime", "dropoff_datetime", *ENDS)
    Params: ClassVar[type[Any]] = TripParams
    order: ClassVar[Mapping[str, tuple[str, ...]]] = {SNAPSHOTS: ("ts",), CHANGES: ("change",)}

    def __init__(self, params: TripParams) -> None:
        self._params = params

    def reduced(self, rows: pa.Table) -> pa.Table:
        routes = cells(rows, CELLS_500_M, "pickup") * ROUTE + cells(rows, CELLS_500_M, "dropoff")
        times = ("dropoff_datetime", *(("pickup_datetime",) if self._params.changes else ()))
        kept = rows.select([SEQ, *times]).append_column("route", pa.array(routes))
        if self._params.changes:
            return kept
        return kept.filter(pa.array(contenders(rows.column("dropoff_datetime").to_numpy(), routes, WINDOW_S, LISTED)))

    def advanced(self, known: Known, piece: Piece) -> Step:
        tables, numbers, kept = {}, {}, {}
        if self._params.snapshots:
            rows = piece.rows.select(SEQ, "route", "dropoff_datetime")
            if "window" in known.tables:
                rows = known.tables["window"].unionByName(rows)
            ticks = ticks_of(known, piece, self._params.period_s, WINDOW_S)
            tables[SNAPSHOTS] = snapshots(rows, ticks)
            numbers[DONE] = ticks.last
            kept["window"] = rows.where(F.col("dropoff_datetime") > ticks.last * ticks.period_s - WINDOW_S)
        if self._params.changes:
            tables[CHANGES], kept["log"] = log_of(Log, piece.rows.select(*_TRIP), known.tables.get("log"))
        return Step(tables, Known(numbers, kept))


def snapshots(trips: DataFrame, ticks: Ticks) -> DataFrame:
    """Return the listings of all ticks.

    Args:
        trips: `SEQ`, `route`, `dropoff_datetime`.
        ticks: which.
    """
    dropoff = F.col("dropoff_datetime")
    since, until = ticks.after(dropoff), ticks.after(dropoff + WINDOW_S)
    # Both uses of what is seen take the same columns (`SEQ` too) of the same rows: trips are then dealt out once.
    there = trips.where("route is not null")
    seen = ticks.dealt(there.select(SEQ, "route", since.alias("since"), until.alias("until")))
    few = _few_routes(seen, ticks.together).hint("shuffle_hash")
    counted = few.join(seen, ["chunk", "block", "route"]).groupBy("chunk", "block", "route", "needed")
    at_ticks = F.array(
        *(
            F.struct(F.lit(at).alias("at"), F.col(f"count_{at}").alias("trips"), F.col(f"newest_{at}").alias("newest"))
            for at in range(ticks.together)
        )
    )
    found = counted.agg(*(value for at in range(ticks.together) for value in _at_tick(at)))
    found = found.select("chunk", "block", "route", "needed", F.explode(at_ticks).alias("seen"))
    tick = F.col("block") * ticks.together + F.col("seen.at")
    listed = found.select("chunk", tick.alias("tick"), "needed", "seen.trips", "seen.newest", "route")
    best = F.sort_array(F.collect_list(F.struct("trips", "newest", "route")), asc=False)
    ranked = listed.where("trips > 0 and trips >= needed").groupBy("chunk", "tick")
    listings = ranked.agg(F.slice(best, 1, LISTED).alias("listed")).select("tick", "listed")
    return ticks.laid_out(trips.sparkSession, listings, _SHOWN)


def _few_routes(seen: DataFrame, together: int) -> DataFrame:
    """Return the routes of each block that may be listed, with the count that they need for it at least."""
    throughout = (F.col("since") <= 0) & (F.col("until") >= together)
    bounds = seen.groupBy("chunk", "block", "route").agg(
        F.count_if(throughout).alias("least"), F.count(SEQ).alias("most")
    )
    routes = bounds.groupBy("chunk", "block").agg(F.collect_list(F.struct("least", "most", "route")).alias("routes"))
    falling = F.sort_array(F.transform("routes", lambda route: route.least), asc=False)
    needed = F.coalesce(F.get(falling, F.lit(LISTED - 1)), F.lit(0)).alias("needed")
    few = F.explode(F.filter("routes", lambda route: route.most >= F.col("needed"))).alias("few")
    return (
        routes.select("*", needed)
        .select("chunk", "block", "needed", few)
        .select("chunk", "block", "needed", "few.route")
    )


def _at_tick(at: int) -> tuple[Column, Column]:
    """Return how many trips are in the window at a tick of the block, and the newest of them."""
    inside = (F.col("since") <= at) & (F.col("until") > at)
    return F.count_if(inside).alias(f"count_{at}"), F.max(F.when(inside, F.col(SEQ))).alias(f"newest_{at}")


_SHOWN: Mapping[str, Field] = {
    "start": lambda one: cell_name(F.call_function("div", one.route, F.lit(ROUTE))),
    "end": lambda one: cell_name(one.route % ROUTE),
    "count": lambda one: one.trips,
}
