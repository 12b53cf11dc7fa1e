"""The three queries in Polars, on two threads (POLARS_MAX_THREADS), with its streaming engine for large tables."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl
from query_definitions import (
    BASE,
    BLOCK,
    BLOCKS,
    DAY_S,
    EMPTY_S,
    LISTED,
    PERIOD_S,
    PLUG,
    PROFIT_S,
    READING,
    ROUTES_S,
    SLICES,
    TICK_S,
    TRIP,
    grid,
    run_query,
)

COLUMN_TYPES = {"timestamp": pl.Int64, "value": pl.Float64, "property": pl.Int8}
COLUMN_TYPES |= dict.fromkeys(("fare", "tip"), pl.Float64) | dict.fromkeys(PLUG, pl.Int64)
COLUMN_TYPES |= {f"{end}_{axis}": pl.Float64 for end in ("pickup", "dropoff") for axis in ("lon", "lat")}


def scan_files(parts: list[str], names: tuple[str, ...]) -> pl.LazyFrame:
    """Return all rows of the files, numbered by column seq."""
    schema = {name: COLUMN_TYPES.get(name, pl.String) for name in names}
    return pl.scan_csv(parts, has_header=False, schema=schema, quote_char=None, row_index_name="seq")


def to_nano(name: str) -> pl.Expr:
    """Return a column in whole nano-units."""
    return (pl.col(name) * 1e9).round().cast(pl.Int64)


def to_tick(seconds: pl.Expr) -> pl.Expr:
    """Return the first tick at or after a time."""
    return (seconds + PERIOD_S - 1) // PERIOD_S


def read_trips(parts: list[str], query: str) -> pl.DataFrame:
    """Return columns seq, t, start, finish, since; for `debs2015-q2` medallion and amount, too."""
    side, east, south, west, north = grid(query)
    t = pl.col("dropoff").str.to_datetime("%Y-%m-%d %H:%M:%S").dt.epoch("s").alias("t")
    x = {end: (to_nano(f"{end}_lon") - west) // east + 1 for end in ("pickup", "dropoff")}
    y = {end: (north - to_nano(f"{end}_lat")) // south + 1 for end in ("pickup", "dropoff")}
    inside = [axis[end].is_between(1, side) for axis in (x, y) for end in axis]
    cells = [(x[end] * 1000 + y[end]).alias(name) for end, name in (("pickup", "start"), ("dropoff", "finish"))]
    amount = (to_nano("fare") + to_nano("tip")).alias("amount")
    others = [pl.col("medallion"), amount] if query == "debs2015-q2" else []
    on_grid = scan_files(parts, TRIP).filter(*inside).select(pl.col("seq").cast(pl.Int64), t, *cells, *others)
    table = on_grid.collect(engine="streaming")
    return table.filter(pl.col("t") == pl.col("t").cum_max()).with_columns(since=to_tick(pl.col("t")))


def split_by_block(windows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield each row of `windows` once per block that overlaps its ticks, `since` to before `until`.

    `a` and `z` are the first tick and the tick after the last, counted from the block's begin. A table has `BLOCKS`
    blocks.
    """
    end_tick = windows["since"].max() + 1
    since, until, ticks = pl.col("since"), pl.min_horizontal("until", end_tick), BLOCKS * BLOCK
    for first in range(windows["since"].min() // ticks * ticks, end_tick, ticks):
        part = windows.lazy().filter(since < until, since < first + ticks, until > first)
        begin, end = since.clip(first), until.clip(upper_bound=first + ticks)
        blocks = pl.int_ranges(begin // BLOCK, (end - 1) // BLOCK + 1).alias("block")
        by_block = part.with_columns(blocks).explode("block")
        start = pl.col("block") * BLOCK
        a, z = (since - start).clip(0).cast(pl.Int8), (until - start).clip(upper_bound=BLOCK).cast(pl.Int8)
        yield by_block.with_columns(a=a, z=z).drop("since", "until").collect(engine="streaming")


THROUGHOUT = (pl.col("a") == 0) & (pl.col("z") == BLOCK)
TICK = (pl.col("block") * BLOCK + pl.col("step")).alias("tick")


def at_ticks(block_rows: pl.DataFrame, candidates: pl.LazyFrame, key: str) -> pl.LazyFrame:
    """Return the rows of candidate routes or cells, once per tick."""
    rows = block_rows.lazy().join(candidates.select("block", key), on=["block", key])
    steps = pl.int_ranges("a", "z").alias("step")
    return rows.with_columns(steps).explode("step").with_columns(TICK)


def first_ten(ranked: pl.LazyFrame, by: list[str], descending: list[bool]) -> pl.DataFrame:
    """Return the first ten rows per tick, with their place."""
    table = ranked.sort("tick", *by, descending=[False, *descending])
    table = table.with_columns(place=pl.int_range(1, pl.len() + 1).over("tick"))
    return table.filter(pl.col("place") <= LISTED).with_columns(ts=pl.col("tick") * PERIOD_S).collect()


def tenth_highest(column: str, otherwise: float) -> pl.Expr:
    """Return the tenth highest value of a column in a group."""
    descending = pl.col(column).drop_nulls().top_k(LISTED)
    return pl.when(descending.len() == LISTED).then(descending.min()).otherwise(otherwise).alias("threshold")


def frequent_routes(parts: list[str], output: Path) -> None:
    """Write the ten most frequent routes per tick (`debs2015-q1`)."""
    table = read_trips(parts, "debs2015-q1")
    route = (pl.col("start") * 1_000_000 + pl.col("finish")).alias("route")
    windows = table.select("seq", "since", route, until=to_tick(pl.col("t") + ROUTES_S))
    listed = pl.concat(map(rank_routes, split_by_block(windows)))
    ends = {"start": pl.col("route") // 1_000_000, "finish": pl.col("route") % 1_000_000}
    listed.select("ts", "place", **ends, trips="trips").write_parquet(output / "snapshots.parquet")


def rank_routes(block_rows: pl.DataFrame) -> pl.DataFrame:
    """Return the ten most frequent routes per tick of some blocks."""
    bounds = block_rows.lazy().group_by("block", "route").agg(min_trips=THROUGHOUT.sum(), max_trips=pl.len())
    thresholds = bounds.group_by("block").agg(tenth_highest("min_trips", 0))
    candidates = bounds.join(thresholds, on="block").filter(pl.col("max_trips") >= pl.col("threshold"))
    rows = at_ticks(block_rows, candidates, "route").group_by("tick", "route")
    counted = rows.agg(trips=pl.len(), newest=pl.col("seq").max())
    return first_ten(counted, ["trips", "newest"], [True, True])


def profitable_areas(parts: list[str], output: Path) -> None:
    """Write the ten most profitable cells per tick (`debs2015-q2`)."""
    table = read_trips(parts, "debs2015-q2")
    following = table.with_columns(next=pl.col("t").shift(-1).over("medallion"))
    profits = table.select("seq", "since", "amount", cell="start", until=to_tick(pl.col("t") + PROFIT_S))
    empty_until = to_tick(pl.min_horizontal(pl.col("t") + EMPTY_S, "next"))
    empty = following.select("seq", "since", amount=pl.lit(None, pl.Int64), cell="finish", until=empty_until)
    windows = pl.concat([profits, empty.select(profits.columns)])
    del table, following, profits, empty
    listed = pl.concat(map(rank_cells, split_by_block(windows)))
    listed.select("ts", "place", "cell", "empty", "profit", "value").write_parquet(output / "snapshots.parquet")


def rank_cells(block_rows: pl.DataFrame) -> pl.DataFrame:
    """Return the ten most profitable cells per tick of some blocks."""
    is_empty = pl.col("amount").is_null()
    bounds = (
        block_rows.lazy()
        .group_by("block", "cell")
        .agg(
            low=pl.col("amount").min(),
            high=pl.col("amount").max(),
            min_profits=(THROUGHOUT & ~is_empty).sum(),
            min_empty=(THROUGHOUT & is_empty).sum(),
            max_empty=is_empty.sum(),
        )
        .filter(pl.col("low").is_not_null(), pl.col("max_empty") > 0)
    )
    fewest = pl.col("min_empty").clip(1)
    at_most = pl.col("high") / pl.when(pl.col("high") >= 0).then(fewest).otherwise("max_empty")
    at_least = pl.col("low") / pl.when(pl.col("low") >= 0).then("max_empty").otherwise(fewest)
    is_sure = (pl.col("min_profits") > 0) & (pl.col("min_empty") > 0)
    value_bounds = bounds.with_columns(at_most=at_most, at_least=pl.when(is_sure).then(at_least))
    thresholds = value_bounds.group_by("block").agg(tenth_highest("at_least", float("-inf")))
    slack = pl.col("at_most").abs() * 1e-12
    candidates = value_bounds.join(thresholds, on="block").filter(pl.col("at_most") + slack >= pl.col("threshold"))
    counted = (
        at_ticks(block_rows, candidates, "cell")
        .group_by("tick", "cell")
        .agg(profit=pl.col("amount").median() / 1e9, empty=is_empty.sum(), newest=pl.col("seq").max())
        .filter(pl.col("profit").is_not_null(), pl.col("empty") > 0)
        .with_columns(value=pl.col("profit") / pl.col("empty"))
    )
    return first_ten(counted, ["value", "newest", "cell"], [True, True, False])


def load_predictions(parts: list[str], output: Path) -> None:
    """Write the predicted loads of houses and plugs (`debs2014-q1`)."""
    readings = scan_files(parts, READING).select(*PLUG, "value", "property", t=pl.col("timestamp") - BASE)
    accepted = readings.filter(pl.col("t") == pl.col("t").cum_max())
    step = (pl.col("t") // TICK_S).alias("step")
    is_load = pl.col("property") == 1
    sums = (
        accepted.group_by(*PLUG, step)
        .agg(total=pl.col("value").filter(is_load).sum(), count=is_load.sum())
        .collect(engine="streaming")
    )
    last = sums["step"].max()
    sums = sums.filter(pl.col("count") > 0).sort(*PLUG, "step")
    cells = []
    for length in SLICES:
        ticks = length // TICK_S
        keys = [*PLUG, "slice"]
        known = sums.with_columns(slice=pl.col("step") // ticks).with_columns(
            load=pl.col("total").cum_sum().over(keys) / pl.col("count").cum_sum().over(keys),
            following=pl.col("step").shift(-1).over(keys),
        )
        until = pl.min_horizontal("following", (pl.col("slice") + 1) * ticks, pl.lit(last + 1))
        steps = known.with_columns(step=pl.int_ranges("step", until)).explode("step")
        cells.append(steps.select(*keys, "step", "load", slice_s=pl.lit(length, pl.Int64)))
    plugs = pl.concat(cells)
    houses = plugs.group_by("house_id", "slice_s", "slice", "step").agg(pl.col("load").sum())
    for table, name, rows in (("house", PLUG[:1], houses), ("plug", PLUG, plugs)):
        predict(rows, [*name, "slice_s"]).write_parquet(output / f"{table}.parquet")


def predict(cells: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Return the predictions from the load of the slice and the median of past days."""
    day = DAY_S // pl.col("slice_s")
    past = cells.filter((pl.col("step") + 1) % (pl.col("slice_s") // TICK_S) == 0)
    past = past.select(*keys, position="slice", past="load", of_day=pl.col("slice") % day)
    requested = cells.select(*keys, "slice").unique().with_columns(of_day=(pl.col("slice") + 2) % day)
    pairs = requested.lazy().join(past.lazy(), on=[*keys, "of_day"]).filter(pl.col("position") < pl.col("slice") + 2)
    medians = pairs.group_by(*keys, "slice").agg(median=pl.col("past").median(), days=pl.len()).collect()
    predictions = cells.join(medians, on=[*keys, "slice"], how="left")
    return predictions.select(
        *keys,
        tick=BASE + (pl.col("step") + 1) * TICK_S,
        ts=BASE + (pl.col("slice") + 2) * pl.col("slice_s"),
        predicted_load=pl.coalesce((pl.col("load") + pl.col("median")) / 2, "load"),
        n_history=pl.col("days").fill_null(0),
    ).sort("tick", *keys)


if __name__ == "__main__":
    run_query({"debs2014-q1": load_predictions, "debs2015-q1": frequent_routes, "debs2015-q2": profitable_areas})
