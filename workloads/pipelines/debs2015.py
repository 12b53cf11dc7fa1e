"""Pipelines `debs2015-q1`, frequent routes, and `debs2015-q2`, profitable areas.

Snapshots never examine all routes, or cells, at every tick. Of a block of neighbouring ticks, trips in the windows of
all ticks give each route a minimum count, and trips in any of the windows a maximum count; a cell has a minimum and a
maximum value in the block. Only those whose maximum is at least the minimum of the tenth can be listed in the block;
only these, some dozens, are computed tick by tick, in integers.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from workloads.operators import Bolt
from workloads.pipelines.pipeline import Known, Piece, Query, Step
from workloads.pipelines.taxi_tables import (
    DONE,
    ENDS,
    Field,
    PieceTicks,
    TripParams,
    cell_column,
    cell_name_column,
    log_of,
    ticks_of,
)
from workloads.recordings.parse import Mask, Values
from workloads.recordings.schema import CELLS_250_M, CELLS_500_M, DEBS2015, SEQ
from workloads.taxi import rides, routes
from workloads.taxi.areas import EMPTY_S, PROFIT_S
from workloads.taxi.layout import CHANGES, LISTED, ROUTE, SNAPSHOTS
from workloads.taxi.routes import WINDOW_S

ROUNDS = (2, 10)
"""Pieces of time in a window: first few, which is fast, then more for the remaining trips."""

_MOST_PIECES = 1 << 22
_FEW = 8
"""With fewer trips per piece no trip is dropped."""

_MANY = 63
"""Maximum count of trips; larger counts are equal to it."""


def contenders(times: Values, routes: Values, window_s: int, listed: int) -> Mask:
    """Return a mask of the trips that can count for a listing at any time.

    Args:
        times: of the trips, in seconds, ascending. Trips of the first and the last second may be incomplete, and
            earlier and later ones are missing; windows that reach there keep all their trips.
        routes: of the trips, integers below 2^40.
        window_s: a listing at T counts the trips in (T - window_s, T]; a multiple of all `ROUNDS`.
        listed: number of routes in a listing.
    """
    kept = np.arange(len(times))
    for pieces in ROUNDS:
        kept = kept[_round(times[kept], routes[kept], window_s, pieces, listed)]
    contends = np.zeros(len(times), np.bool_)
    contends[kept] = True
    return contends


def _round(times: Values, routes: Values, window_s: int, pieces: int, listed: int) -> Mask:
    """Return the same, by pieces of time of `window_s / pieces` seconds.

    Piece p has the trips in (p - 1, p] lengths. Windows that end in [p, p + 1) lengths have all trips of the pieces
    p - pieces + 2 .. p, and none outside of p - pieces + 1 .. p + 1.
    """
    if not len(times):
        return np.zeros(0, np.bool_)
    length = window_s // pieces
    piece = -(-times // length)
    piece -= piece[0] - pieces
    many = int(piece[-1]) + pieces + 1
    if many > min(len(times) // _FEW, _MOST_PIECES):
        # Tables would be larger than the trips, and keys too large.
        return np.ones(len(times), np.bool_)
    keys, place, counts = np.unique(routes * many + piece, return_inverse=True, return_counts=True)
    here = keys % many
    trips = _Trips(keys, counts, pieces)
    # A route counts once for a window (numbered by the piece after which it ends), at its last piece with trips there.
    having = np.zeros((many + pieces) * (_MANY + 1), np.int64)
    for ahead in range(pieces - 1):
        last = trips.gap > ahead
        least = np.minimum(trips.among(ahead - pieces + 2, 0)[last], _MANY)
        having += np.bincount((here[last] + ahead) * (_MANY + 1) + least, minlength=len(having))
    at_least = having.reshape(-1, _MANY + 1)[:, ::-1].cumsum(axis=1)[:, ::-1]
    needed = np.maximum((at_least >= listed).sum(axis=1) - 1, 0)
    # The pieces with the first and the last trips may be incomplete.
    needed[: 2 * pieces] = needed[int(piece[-1]) - 1 :] = 0
    kept = np.zeros(len(keys), np.bool_)
    for ahead in range(-1, pieces):
        kept |= trips.among(ahead - pieces + 1, ahead + 1) >= needed[here + ahead]
    mask: Mask = kept[place]
    return mask


class _Trips:
    """Numbers of trips of the same route in the pieces around each of its own.

    Attributes:
        gap: number of pieces until the route's next trips; larger than any if it has none.
    """

    def __init__(self, keys: Values, counts: Values, reach: int) -> None:
        """Count trips.

        Args:
            keys: an integer per route and piece with trips, ascending; pieces of a route have consecutive keys, and
                keys of two routes are more than `reach` apart.
            counts: trips of each.
            reach: maximum distance in pieces for `among`.
        """
        padded = np.append(keys, np.iinfo(np.int64).max)
        self.gap = np.diff(padded)
        before = np.concatenate(([0], np.cumsum(counts)))
        # Each step adds one key or none: much faster than a search.
        at = np.arange(1, len(padded))
        self._until = [before[at]]
        for pieces in range(1, reach + 1):
            at = at + (padded[at] == keys + pieces)
            self._until.append(before[at])
        at = np.arange(len(keys))
        self._since = [before[at]]
        for pieces in range(1, reach + 1):
            at = at - (padded[at - 1] == keys - pieces)
            self._since.append(before[at])

    def among(self, first: int, last: int) -> Values:
        """Return the trips in the pieces from `first` (0 or less) to `last` (0 or more), relative to each piece."""
        trips: Values = self._until[last] - self._since[-first]
        return trips


class _TaxiQuery(Query):
    """A query over taxi trips: listings at regular times, of trips in a time window, and a log of changes.

    Attributes:
        windowed: columns of trips that snapshots need.
        logged: columns of trips that the log needs.
        shown_s: time for which a trip counts.
        kept_s: time for which a trip is kept, for later pieces.
        Log: class of the bolt that keeps the log.
    """

    schema = DEBS2015
    Params: ClassVar[type[Any]] = TripParams
    order: ClassVar[Mapping[str, tuple[str, ...]]] = {SNAPSHOTS: ("ts",), CHANGES: ("change",)}
    windowed: ClassVar[Sequence[str]]
    logged: ClassVar[Sequence[str]]
    shown_s: ClassVar[int]
    kept_s: ClassVar[int]
    Log: ClassVar[type[Bolt]]

    def __init__(self, params: TripParams) -> None:
        self._params = params

    @abstractmethod
    def snapshots(self, trips: DataFrame, ticks: PieceTicks) -> DataFrame:
        """Return the listings of all ticks.

        Args:
            trips: columns `windowed`.
            ticks: ticks to list.
        """

    def advanced(self, known: Known, piece: Piece) -> Step:
        tables, numbers, kept = {}, {}, {}
        if self._params.snapshots:
            rows = piece.rows.select(*self.windowed)
            if "window" in known.tables:
                rows = known.tables["window"].unionByName(rows)
            ticks = ticks_of(known, piece, self._params.period_s, self.shown_s)
            tables[SNAPSHOTS] = self.snapshots(rows, ticks)
            numbers[DONE] = ticks.last
            kept["window"] = rows.where(F.col("dropoff_datetime") > ticks.last * ticks.period_s - self.kept_s)
        if self._params.changes:
            tables[CHANGES], kept["log"] = log_of(self.Log, piece.rows.select(*self.logged), known.tables.get("log"))
        return Step(tables, Known(numbers, kept))


class FrequentRoutes(_TaxiQuery):
    """The first query as a pipeline.

    Trips that no listing depends on are dropped where they are read (`contenders`), by the same rule over all windows
    that end in the same short time: a route whose maximum is below the minimum of the tenth is listed in none of them.
    A trip whose windows are all of this kind can be dropped: the count of its route only falls, and the route stays
    unlisted.
    """

    grid = CELLS_500_M
    columns = ("pickup_datetime", "dropoff_datetime", *ENDS)
    windowed = (SEQ, "route", "dropoff_datetime")
    logged = (*windowed, "pickup_datetime")
    shown_s = kept_s = WINDOW_S
    Log = routes.RouteLog

    def reduced(self, rows: pa.Table) -> pa.Table:
        routes = cell_column(rows, CELLS_500_M, "pickup") * ROUTE + cell_column(rows, CELLS_500_M, "dropoff")
        times = ("dropoff_datetime", *(("pickup_datetime",) if self._params.changes else ()))
        kept = rows.select([SEQ, *times]).append_column("route", pa.array(routes))
        if self._params.changes:
            return kept
        return kept.filter(pa.array(contenders(rows.column("dropoff_datetime").to_numpy(), routes, WINDOW_S, LISTED)))

    def snapshots(self, trips: DataFrame, ticks: PieceTicks) -> DataFrame:
        dropoff = F.col("dropoff_datetime")
        since, until = ticks.after(dropoff), ticks.after(dropoff + WINDOW_S)
        # Both uses of `seen` take the same columns (`SEQ` too) of the same rows, so that Spark partitions trips once.
        there = trips.where("route is not null")
        seen = ticks.dealt(there.select(SEQ, "route", since.alias("since"), until.alias("until")))
        few = _few_routes(seen, ticks.together).hint("shuffle_hash")
        counted = few.join(seen, ["chunk", "block", "route"]).groupBy("chunk", "block", "route", "needed")
        at_ticks = F.array(
            *(
                F.struct(
                    F.lit(at).alias("at"), F.col(f"count_{at}").alias("trips"), F.col(f"newest_{at}").alias("newest")
                )
                for at in range(ticks.together)
            )
        )
        by_tick = counted.agg(*(value for at in range(ticks.together) for value in _at_tick(at)))
        by_tick = by_tick.select("chunk", "block", "route", "needed", F.explode(at_ticks).alias("seen"))
        tick = F.col("block") * ticks.together + F.col("seen.at")
        listed = by_tick.select("chunk", tick.alias("tick"), "needed", "seen.trips", "seen.newest", "route")
        best = F.sort_array(F.collect_list(F.struct("trips", "newest", "route")), asc=False)
        ranked = listed.where("trips > 0 and trips >= needed").groupBy("chunk", "tick")
        listings = ranked.agg(F.slice(best, 1, LISTED).alias("listed")).select("tick", "listed")
        return ticks.laid_out(trips.sparkSession, listings, _ROUTE_SHOWN)


def _few_routes(seen: DataFrame, together: int) -> DataFrame:
    """Return the routes of each block that can be listed, with the minimum count for it."""
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
    """Return the number of trips in the window at a tick of the block, and the newest of them."""
    inside = (F.col("since") <= at) & (F.col("until") > at)
    return F.count_if(inside).alias(f"count_{at}"), F.max(F.when(inside, F.col(SEQ))).alias(f"newest_{at}")


_ROUTE_SHOWN: Mapping[str, Field] = {
    "start": lambda one: cell_name_column(F.call_function("div", one.route, F.lit(ROUTE))),
    "end": lambda one: cell_name_column(one.route % ROUTE),
    "count": lambda one: one.trips,
}


class ProfitableAreas(_TaxiQuery):
    """The second query as a pipeline.

    A trip makes a profit where it begins for some ticks, and an empty taxi where it ends, until that taxi's next trip.
    Amounts are in nanodollars.
    """

    columns = tuple(DEBS2015.columns)
    grid = CELLS_250_M
    windowed = (SEQ, "medallion", "dropoff_datetime", "start", "finish", "amount")
    logged = (SEQ, "start", "dropoff_datetime", "amount", "finish", "medallion", "pickup_datetime")
    shown_s, kept_s = PROFIT_S, EMPTY_S
    Log = rides.AreaLog

    def reduced(self, rows: pa.Table) -> pa.Table:
        names = ("medallion", "dropoff_datetime", *(("pickup_datetime",) if self._params.changes else ()))
        kept = rows.select([SEQ, *names])
        for name, end in (("start", "pickup"), ("finish", "dropoff")):
            kept = kept.append_column(name, pa.array(cell_column(rows, CELLS_250_M, end)))
        return kept.append_column("amount", pc.add(rows.column("fare_amount"), rows.column("tip_amount")))

    def snapshots(self, trips: DataFrame, ticks: PieceTicks) -> DataFrame:
        dropoff = F.col("dropoff_datetime")
        following = F.lead("dropoff_datetime").over(Window.partitionBy("medallion").orderBy(SEQ))
        gone = F.least(ticks.after(dropoff + EMPTY_S), ticks.after(following))
        # At the start of a trip its profit, at its end an empty taxi without an amount.
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
        middle = F.get("amounts", F.floor((count - 1) / 2).cast("int")) + F.get(
            "amounts", F.floor(count / 2).cast("int")
        )
        listed = worth.where((count > 0) & (F.col("empty") > 0)).select(
            "chunk", "tick", "cell", "empty", "newest", middle.alias("middle")
        )
        # Decimals of integers, with nine more places: the order of two values is never reversed.
        value = F.col("middle").cast("decimal(20,0)") / F.col("empty").cast("decimal(8,0)")
        best = F.sort_array(F.collect_list(F.struct(-value, -F.col("newest"), "cell", "empty", "middle")))
        listings = (
            listed.groupBy("chunk", "tick").agg(F.slice(best, 1, LISTED).alias("listed")).select("tick", "listed")
        )
        return ticks.laid_out(trips.sparkSession, listings, _AREA_SHOWN)


def _few_cells(seen: DataFrame, together: int) -> DataFrame:
    """Return the cells of each block that can be listed."""
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
    # Quotients of large numbers are inexact, so some more cells are included.
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
    """Return nanodollars divided by parts, to the nearest millionth of a dollar; halves are rounded away from zero."""
    halves = F.call_function("div", F.abs(amount), F.lit(1000) * parts)
    millionths = F.call_function("div", halves + 1, F.lit(2))
    return F.when(amount >= 0, millionths).otherwise(-millionths) / F.lit(1e6)


_AREA_SHOWN: Mapping[str, Field] = {
    "cell": lambda one: cell_name_column(one.cell),
    "empty": lambda one: one.empty,
    "profit": lambda one: _dollars(one.middle, 1),
    "value": lambda one: _dollars(one.middle, one.empty),
}
