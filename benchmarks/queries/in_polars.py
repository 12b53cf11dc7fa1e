"""The three queries in Polars, on two threads (POLARS_MAX_THREADS), with its streaming engine where rows are many."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl
from terms import (
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
    answer,
    grid,
)

KINDS = {"timestamp": pl.Int64, "value": pl.Float64, "property": pl.Int8}
KINDS |= dict.fromkeys(("fare", "tip"), pl.Float64) | dict.fromkeys(PLUG, pl.Int64)
KINDS |= {f"{end}_{axis}": pl.Float64 for end in ("pickup", "dropoff") for axis in ("lon", "lat")}


def lines(parts: list[str], names: tuple[str, ...]) -> pl.LazyFrame:
    kinds = {name: KINDS.get(name, pl.String) for name in names}
    return pl.scan_csv(parts, has_header=False, schema=kinds, quote_char=None, row_index_name="seq")


def nano(name: str) -> pl.Expr:
    return (pl.col(name) * 1e9).round().cast(pl.Int64)


def tick(seconds: pl.Expr) -> pl.Expr:
    return (seconds + PERIOD_S - 1) // PERIOD_S


def trips(parts: list[str], query: str) -> pl.DataFrame:
    """Columns seq, medallion, t, start, finish, amount, since."""
    side, east, south, west, north = grid(query)
    t = pl.col("dropoff").str.to_datetime("%Y-%m-%d %H:%M:%S").dt.epoch("s").alias("t")
    x = {end: (nano(f"{end}_lon") - west) // east + 1 for end in ("pickup", "dropoff")}
    y = {end: (north - nano(f"{end}_lat")) // south + 1 for end in ("pickup", "dropoff")}
    inside = [axis[end].is_between(1, side) for axis in (x, y) for end in axis]
    cells = [(x[end] * 1000 + y[end]).alias(name) for end, name in (("pickup", "start"), ("dropoff", "finish"))]
    amount = (nano("fare") + nano("tip")).alias("amount")
    others = [pl.col("medallion"), amount] if query == "debs2015-q2" else []
    found = lines(parts, TRIP).filter(*inside).select(pl.col("seq").cast(pl.Int64), t, *cells, *others)
    table = found.collect(engine="streaming")
    return table.filter(pl.col("t") == pl.col("t").cum_max()).with_columns(since=tick(pl.col("t")))


def in_blocks(placed: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """What is seen from tick `since` to before `until`, once for each block, ticks `a` to before `z` counted in it.

    Some blocks at a time.
    """
    behind = placed["since"].max() + 1
    since, until, together = pl.col("since"), pl.min_horizontal("until", behind), BLOCKS * BLOCK
    for first in range(placed["since"].min() // together * together, behind, together):
        part = placed.lazy().filter(since < until, since < first + together, until > first)
        begin, end = since.clip(first), until.clip(upper_bound=first + together)
        blocks = pl.int_ranges(begin // BLOCK, (end - 1) // BLOCK + 1).alias("block")
        dealt = part.with_columns(blocks).explode("block")
        start = pl.col("block") * BLOCK
        a, z = (since - start).clip(0).cast(pl.Int8), (until - start).clip(upper_bound=BLOCK).cast(pl.Int8)
        yield dealt.with_columns(a=a, z=z).drop("since", "until").collect(engine="streaming")


THROUGHOUT = (pl.col("a") == 0) & (pl.col("z") == BLOCK)
TICK = (pl.col("block") * BLOCK + pl.col("step")).alias("tick")


def at_ticks(seen: pl.DataFrame, few: pl.LazyFrame, key: str) -> pl.LazyFrame:
    """What is seen of few routes or cells, tick by tick."""
    near = seen.lazy().join(few.select("block", key), on=["block", key])
    steps = pl.int_ranges("a", "z").alias("step")
    return near.with_columns(steps).explode("step").with_columns(TICK)


def best(ranked: pl.LazyFrame, by: list[str], falling: list[bool]) -> pl.DataFrame:
    """The first ten of each tick, with their place."""
    table = ranked.sort("tick", *by, descending=[False, *falling])
    table = table.with_columns(place=pl.int_range(1, pl.len() + 1).over("tick"))
    return table.filter(pl.col("place") <= LISTED).with_columns(ts=pl.col("tick") * PERIOD_S).collect()


def tenth(column: str, otherwise: float) -> pl.Expr:
    """What the tenth of a block has."""
    falling = pl.col(column).drop_nulls().top_k(LISTED)
    return pl.when(falling.len() == LISTED).then(falling.min()).otherwise(otherwise).alias("needed")


def routes(parts: list[str], output: Path) -> None:
    table = trips(parts, "debs2015-q1")
    route = (pl.col("start") * 1_000_000 + pl.col("finish")).alias("route")
    placed = table.select("seq", "since", route, until=tick(pl.col("t") + ROUTES_S))
    listed = pl.concat(map(frequent, in_blocks(placed)))
    ends = {"start": pl.col("route") // 1_000_000, "finish": pl.col("route") % 1_000_000}
    listed.select("ts", "place", **ends, trips="trips").write_parquet(output / "snapshots.parquet")


def frequent(seen: pl.DataFrame) -> pl.DataFrame:
    bounds = seen.lazy().group_by("block", "route").agg(least=THROUGHOUT.sum(), most=pl.len())
    needs = bounds.group_by("block").agg(tenth("least", 0))
    few = bounds.join(needs, on="block").filter(pl.col("most") >= pl.col("needed"))
    counted = at_ticks(seen, few, "route").group_by("tick", "route").agg(trips=pl.len(), newest=pl.col("seq").max())
    return best(counted, ["trips", "newest"], [True, True])


def areas(parts: list[str], output: Path) -> None:
    table = trips(parts, "debs2015-q2")
    following = table.with_columns(next=pl.col("t").shift(-1).over("medallion"))
    profits = table.select("seq", "since", "amount", cell="start", until=tick(pl.col("t") + PROFIT_S))
    gone = tick(pl.min_horizontal(pl.col("t") + EMPTY_S, "next"))
    empty = following.select("seq", "since", amount=pl.lit(None, pl.Int64), cell="finish", until=gone)
    placed = pl.concat([profits, empty.select(profits.columns)])
    del table, following, profits, empty
    listed = pl.concat(map(profitable, in_blocks(placed)))
    listed.select("ts", "place", "cell", "empty", "profit", "value").write_parquet(output / "snapshots.parquet")


def profitable(seen: pl.DataFrame) -> pl.DataFrame:
    is_empty = pl.col("amount").is_null()
    bounds = (
        seen.lazy()
        .group_by("block", "cell")
        .agg(
            low=pl.col("amount").min(),
            high=pl.col("amount").max(),
            profits=(THROUGHOUT & ~is_empty).sum(),
            sure=(THROUGHOUT & is_empty).sum(),
            most=is_empty.sum(),
        )
        .filter(pl.col("low").is_not_null(), pl.col("most") > 0)
    )
    fewest = pl.col("sure").clip(1)
    at_most = pl.col("high") / pl.when(pl.col("high") >= 0).then(fewest).otherwise("most")
    at_least = pl.col("low") / pl.when(pl.col("low") >= 0).then("most").otherwise(fewest)
    is_sure = (pl.col("profits") > 0) & (pl.col("sure") > 0)
    worth = bounds.with_columns(at_most=at_most, at_least=pl.when(is_sure).then(at_least))
    needs = worth.group_by("block").agg(tenth("at_least", float("-inf")))
    slack = pl.col("at_most").abs() * 1e-12
    few = worth.join(needs, on="block").filter(pl.col("at_most") + slack >= pl.col("needed"))
    counted = (
        at_ticks(seen, few, "cell")
        .group_by("tick", "cell")
        .agg(profit=pl.col("amount").median() / 1e9, empty=is_empty.sum(), newest=pl.col("seq").max())
        .filter(pl.col("profit").is_not_null(), pl.col("empty") > 0)
        .with_columns(value=pl.col("profit") / pl.col("empty"))
    )
    return best(counted, ["value", "newest", "cell"], [True, True, False])


def loads(parts: list[str], output: Path) -> None:
    readings = lines(parts, READING).select(*PLUG, "value", "property", t=pl.col("timestamp") - BASE)
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
        predicted(rows, [*name, "slice_s"]).write_parquet(output / f"{table}.parquet")


def predicted(cells: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    day = DAY_S // pl.col("slice_s")
    past = cells.filter((pl.col("step") + 1) % (pl.col("slice_s") // TICK_S) == 0)
    past = past.select(*keys, position="slice", past="load", of_day=pl.col("slice") % day)
    asked = cells.select(*keys, "slice").unique().with_columns(of_day=(pl.col("slice") + 2) % day)
    pairs = asked.lazy().join(past.lazy(), on=[*keys, "of_day"]).filter(pl.col("position") < pl.col("slice") + 2)
    middles = pairs.group_by(*keys, "slice").agg(middle=pl.col("past").median(), days=pl.len()).collect()
    found = cells.join(middles, on=[*keys, "slice"], how="left")
    return found.select(
        *keys,
        tick=BASE + (pl.col("step") + 1) * TICK_S,
        ts=BASE + (pl.col("slice") + 2) * pl.col("slice_s"),
        predicted_load=pl.coalesce((pl.col("load") + pl.col("middle")) / 2, "load"),
        n_history=pl.col("days").fill_null(0),
    ).sort("tick", *keys)


if __name__ == "__main__":
    answer({"debs2014-q1": loads, "debs2015-q1": routes, "debs2015-q2": areas})
