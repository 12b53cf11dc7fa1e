"""The three queries in pandas, on one thread."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
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


def read_files(parts: list[str], names: tuple[str, ...], columns: list[str]) -> pd.DataFrame:
    """Return the columns of all files."""
    tables = (pd.read_csv(part, header=None, names=names, usecols=columns) for part in parts)
    return pd.concat(tables, ignore_index=True)


def to_nano(values: pd.Series) -> pd.Series:
    """Return whole nano-units."""
    return (values * 1e9).round().astype("int64")


def to_tick(seconds: pd.Series) -> pd.Series:
    """Return the first tick at or after a time."""
    return (seconds + PERIOD_S - 1) // PERIOD_S


def read_trips(parts: list[str], query: str, others: list[str]) -> pd.DataFrame:
    """Return columns seq, t, start, finish, since, and the others."""
    side, east, south, west, north = grid(query)
    places = [f"{end}_{axis}" for end in ("pickup", "dropoff") for axis in ("lon", "lat")]
    table = read_files(parts, TRIP, ["dropoff", *places, *others])
    inside = pd.Series(True, table.index)
    for end, name in (("pickup", "start"), ("dropoff", "finish")):
        x = (to_nano(table[f"{end}_lon"]) - west) // east + 1
        y = (north - to_nano(table[f"{end}_lat"])) // south + 1
        inside &= x.between(1, side) & y.between(1, side)
        table[name] = x * 1000 + y
    table = table.drop(columns=places)[inside].reset_index(names="seq")
    table["t"] = (
        pd.to_datetime(table.pop("dropoff"), format="%Y-%m-%d %H:%M:%S").astype("datetime64[s]").astype("int64")
    )
    table = table[table["t"] == table["t"].cummax()]
    return table.assign(since=to_tick(table["t"]))


def expand_ranges(table: pd.DataFrame, first: pd.Series, end: pd.Series, name: str) -> pd.DataFrame:
    """Return each row once per integer from `first` to before `end`, with the integer as column `name`."""
    times = (end - first).to_numpy()
    expanded = table.loc[table.index.repeat(times)]
    offsets = np.arange(len(expanded)) - np.repeat(times.cumsum() - times, times)
    return expanded.assign(**{name: np.repeat(first.to_numpy(), times) + offsets}).reset_index(drop=True)


def split_by_block(windows: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield each row of `windows` once per block that overlaps its ticks, `since` to before `until`.

    `a` and `z` are the first tick and the tick after the last, counted from the block's begin. A table has `BLOCKS`
    blocks.
    """
    end_tick = windows["since"].max() + 1
    windows["until"] = windows["until"].clip(upper=end_tick)
    ticks = BLOCKS * BLOCK
    for first in range(windows["since"].min() // ticks * ticks, end_tick, ticks):
        part = windows[(windows["since"] < windows["until"]) & (windows["since"] < first + ticks)]
        part = part[part["until"] > first].reset_index(drop=True)
        begin, end = part["since"].clip(lower=first), part["until"].clip(upper=first + ticks)
        block_rows = expand_ranges(part, begin // BLOCK, (end - 1) // BLOCK + 1, "block")
        start = block_rows["block"] * BLOCK
        block_rows["a"] = (block_rows.pop("since") - start).clip(lower=0)
        block_rows["z"] = (block_rows.pop("until") - start).clip(upper=BLOCK)
        yield block_rows


def tenth_highest(bounds: pd.DataFrame, column: str, otherwise: float) -> pd.Series:
    """Return the tenth highest value of a column in the block of each row of `bounds`."""
    descending = bounds[["block", column]].dropna().sort_values(column, ascending=False)
    tenth = descending.groupby("block")[column].nth(LISTED - 1)
    by_block = pd.Series(tenth.to_numpy(), descending.loc[tenth.index, "block"])
    return bounds["block"].map(by_block).fillna(otherwise)


def at_ticks(block_rows: pd.DataFrame, candidates: pd.DataFrame, key: str) -> pd.DataFrame:
    """Return the rows of candidate routes or cells, once per tick."""
    rows = block_rows.merge(candidates[["block", key]], on=["block", key])
    steps = expand_ranges(rows, rows["a"], rows["z"], "step")
    return steps.assign(tick=steps["block"] * BLOCK + steps["step"])


def first_ten(ranked: pd.DataFrame, by: list[str], ascending: list[bool]) -> pd.DataFrame:
    """Return the first ten rows per tick, with their place."""
    table = ranked.sort_values(["tick", *by], ascending=[True, *ascending])
    table["place"] = table.groupby("tick").cumcount() + 1
    return table[table["place"] <= LISTED].assign(ts=lambda rows: rows["tick"] * PERIOD_S)


def frequent_routes(parts: list[str], output: Path) -> None:
    """Write the ten most frequent routes per tick (`debs2015-q1`)."""
    table = read_trips(parts, "debs2015-q1", [])
    table["route"] = table["start"] * 1_000_000 + table["finish"]
    table["until"] = to_tick(table["t"] + ROUTES_S)
    listed = pd.concat([*map(rank_routes, split_by_block(table[["seq", "route", "since", "until"]]))])
    listed["start"], listed["finish"] = listed["route"] // 1_000_000, listed["route"] % 1_000_000
    listed[["ts", "place", "start", "finish", "trips"]].to_parquet(output / "snapshots.parquet", index=False)


def rank_routes(block_rows: pd.DataFrame) -> pd.DataFrame:
    """Return the ten most frequent routes per tick of some blocks."""
    block_rows["throughout"] = (block_rows["a"] == 0) & (block_rows["z"] == BLOCK)
    bounds = block_rows.groupby(["block", "route"], as_index=False, sort=False).agg(
        min_trips=("throughout", "sum"), max_trips=("seq", "size")
    )
    candidates = bounds[bounds["max_trips"] >= tenth_highest(bounds, "min_trips", 0)]
    rows = at_ticks(block_rows, candidates, "route").groupby(["tick", "route"], as_index=False, sort=False)
    return first_ten(rows.agg(trips=("seq", "size"), newest=("seq", "max")), ["trips", "newest"], [False, False])


def profitable_areas(parts: list[str], output: Path) -> None:
    """Write the ten most profitable cells per tick (`debs2015-q2`)."""
    table = read_trips(parts, "debs2015-q2", ["medallion", "fare", "tip"])
    amount = (to_nano(table["fare"]) + to_nano(table["tip"])).astype("float64")
    following = table.groupby("medallion", sort=False)["t"].shift(-1)
    empty_until = to_tick((table["t"] + EMPTY_S).where(following.isna(), np.minimum(table["t"] + EMPTY_S, following)))
    shared = table[["seq", "since"]]
    profits = shared.assign(cell=table["start"], amount=amount, until=to_tick(table["t"] + PROFIT_S))
    empty = shared.assign(cell=table["finish"], amount=np.nan, until=empty_until.astype("int64"))
    windows = pd.concat([profits, empty], ignore_index=True)
    del table, shared, profits, empty
    listed = pd.concat([*map(rank_cells, split_by_block(windows))])
    columns = ["ts", "place", "cell", "empty", "profit", "value"]
    listed[columns].to_parquet(output / "snapshots.parquet", index=False)


def rank_cells(block_rows: pd.DataFrame) -> pd.DataFrame:
    """Return the ten most profitable cells per tick of some blocks."""
    throughout = (block_rows["a"] == 0) & (block_rows["z"] == BLOCK)
    block_rows["is_empty"] = block_rows["amount"].isna()
    block_rows["sure_profit"] = throughout & ~block_rows["is_empty"]
    block_rows["sure_empty"] = throughout & block_rows["is_empty"]
    bounds = block_rows.groupby(["block", "cell"], as_index=False, sort=False).agg(
        low=("amount", "min"),
        high=("amount", "max"),
        min_profits=("sure_profit", "sum"),
        min_empty=("sure_empty", "sum"),
        max_empty=("is_empty", "sum"),
    )
    bounds = bounds[bounds["low"].notna() & (bounds["max_empty"] > 0)]
    fewest, most = bounds["min_empty"].clip(lower=1), bounds["max_empty"]
    at_most = bounds["high"] / fewest.where(bounds["high"] >= 0, most)
    at_least = bounds["low"] / most.where(bounds["low"] >= 0, fewest)
    bounds = bounds.assign(at_least=at_least.where((bounds["min_profits"] > 0) & (bounds["min_empty"] > 0)))
    candidates = bounds[at_most + at_most.abs() * 1e-12 >= tenth_highest(bounds, "at_least", float("-inf"))]
    rows = at_ticks(block_rows, candidates, "cell").groupby(["tick", "cell"], as_index=False, sort=False)
    counted = rows.agg(profit=("amount", "median"), empty=("is_empty", "sum"), newest=("seq", "max"))
    counted = counted[counted["profit"].notna() & (counted["empty"] > 0)]
    counted["profit"] /= 1e9
    counted["value"] = counted["profit"] / counted["empty"]
    return first_ten(counted, ["value", "newest", "cell"], [False, False, True])


def load_predictions(parts: list[str], output: Path) -> None:
    """Write the predicted loads of houses and plugs (`debs2014-q1`)."""
    table = read_files(parts, READING, ["timestamp", "value", "property", *PLUG])
    table["t"] = table.pop("timestamp") - BASE
    last = table["t"].max() // TICK_S
    table = table[(table["t"] == table["t"].cummax()) & (table["property"] == 1)]
    table["step"] = table["t"] // TICK_S
    sums = table.groupby([*PLUG, "step"], as_index=False).agg(total=("value", "sum"), count=("value", "size"))
    del table
    cells = []
    for length in SLICES:
        ticks = length // TICK_S
        keys = [*PLUG, "slice"]
        known = sums.assign(slice=sums["step"] // ticks)
        groups = known.groupby(keys, sort=False)
        known["load"] = groups["total"].cumsum() / groups["count"].cumsum()
        end = np.minimum((known["slice"] + 1) * ticks, last + 1)
        until = groups["step"].shift(-1).fillna(end).astype("int64")
        steps = expand_ranges(known[[*keys, "load"]], known["step"], until, "step")
        cells.append(steps.assign(slice_s=length))
    plugs = pd.concat(cells, ignore_index=True)
    houses = plugs.groupby(["house_id", "slice_s", "slice", "step"], as_index=False, sort=False)[["load"]].sum()
    for name, plug, rows in (("house", list(PLUG[:1]), houses), ("plug", list(PLUG), plugs)):
        predict(rows, [*plug, "slice_s"]).to_parquet(output / f"{name}.parquet", index=False)


def predict(cells: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return the predictions from the load of the slice and the median of past days."""
    past = cells[(cells["step"] + 1) % (cells["slice_s"] // TICK_S) == 0]
    past = past[[*keys, "slice", "load"]].rename(columns={"slice": "position", "load": "past"})
    past["of_day"] = past["position"] % (DAY_S // past["slice_s"])
    requested = cells[[*keys, "slice"]].drop_duplicates()
    requested["of_day"] = (requested["slice"] + 2) % (DAY_S // requested["slice_s"])
    pairs = requested.merge(past, on=[*keys, "of_day"])
    pairs = pairs[pairs["position"] < pairs["slice"] + 2]
    groups = pairs.groupby([*keys, "slice"], as_index=False, sort=False)
    medians = groups.agg(median=("past", "median"), n_history=("past", "size"))
    predictions = cells.merge(medians, "left", [*keys, "slice"])
    predictions["n_history"] = predictions["n_history"].fillna(0).astype("int64")
    predictions["tick"] = BASE + (predictions.pop("step") + 1) * TICK_S
    predictions["ts"] = BASE + (predictions.pop("slice") + 2) * predictions["slice_s"]
    load = predictions.pop("load")
    predictions["predicted_load"] = ((load + predictions.pop("median")) / 2).fillna(load)
    return predictions.sort_values(["tick", *keys])


if __name__ == "__main__":
    run_query({"debs2014-q1": load_predictions, "debs2015-q1": frequent_routes, "debs2015-q2": profitable_areas})
