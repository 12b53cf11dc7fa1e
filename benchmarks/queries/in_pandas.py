"""The three queries in plain pandas."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
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


def lines(parts: list[str], names: tuple[str, ...], wanted: list[str]) -> pd.DataFrame:
    tables = (pd.read_csv(part, header=None, names=names, usecols=wanted) for part in parts)
    return pd.concat(tables, ignore_index=True)


def nano(values: pd.Series) -> pd.Series:
    return (values * 1e9).round().astype("int64")


def tick(seconds: pd.Series) -> pd.Series:
    return (seconds + PERIOD_S - 1) // PERIOD_S


def trips(parts: list[str], query: str, others: list[str]) -> pd.DataFrame:
    """Columns seq, t, start, finish, since, and the others."""
    side, east, south, west, north = grid(query)
    places = [f"{end}_{axis}" for end in ("pickup", "dropoff") for axis in ("lon", "lat")]
    table = lines(parts, TRIP, ["dropoff", *places, *others])
    inside = pd.Series(True, table.index)
    for end, name in (("pickup", "start"), ("dropoff", "finish")):
        x = (nano(table[f"{end}_lon"]) - west) // east + 1
        y = (north - nano(table[f"{end}_lat"])) // south + 1
        inside &= x.between(1, side) & y.between(1, side)
        table[name] = x * 1000 + y
    table = table.drop(columns=places)[inside].reset_index(names="seq")
    table["t"] = (
        pd.to_datetime(table.pop("dropoff"), format="%Y-%m-%d %H:%M:%S").astype("datetime64[s]").astype("int64")
    )
    table = table[table["t"] == table["t"].cummax()]
    return table.assign(since=tick(table["t"]))


def repeated(table: pd.DataFrame, first: pd.Series, behind: pd.Series, name: str) -> pd.DataFrame:
    """Each row once for every whole number from `first` to before `behind`."""
    times = (behind - first).to_numpy()
    many = table.loc[table.index.repeat(times)]
    offsets = np.arange(len(many)) - np.repeat(times.cumsum() - times, times)
    return many.assign(**{name: np.repeat(first.to_numpy(), times) + offsets}).reset_index(drop=True)


def in_blocks(placed: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """What is seen from tick `since` to before `until`, once for each block, ticks `a` to before `z` counted in it.

    Some blocks at a time.
    """
    behind = placed["since"].max() + 1
    placed["until"] = placed["until"].clip(upper=behind)
    together = BLOCKS * BLOCK
    for first in range(placed["since"].min() // together * together, behind, together):
        part = placed[(placed["since"] < placed["until"]) & (placed["since"] < first + together)]
        part = part[part["until"] > first].reset_index(drop=True)
        begin, end = part["since"].clip(lower=first), part["until"].clip(upper=first + together)
        seen = repeated(part, begin // BLOCK, (end - 1) // BLOCK + 1, "block")
        start = seen["block"] * BLOCK
        seen["a"] = (seen.pop("since") - start).clip(lower=0)
        seen["z"] = (seen.pop("until") - start).clip(upper=BLOCK)
        yield seen


def needed(bounds: pd.DataFrame, column: str, otherwise: float) -> pd.Series:
    """What the tenth of a block has, for each row of `bounds`."""
    falling = bounds[["block", column]].dropna().sort_values(column, ascending=False)
    tenth = falling.groupby("block")[column].nth(LISTED - 1)
    by_block = pd.Series(tenth.to_numpy(), falling.loc[tenth.index, "block"])
    return bounds["block"].map(by_block).fillna(otherwise)


def at_ticks(seen: pd.DataFrame, few: pd.DataFrame, key: str) -> pd.DataFrame:
    """What is seen of few routes or cells, tick by tick."""
    near = seen.merge(few[["block", key]], on=["block", key])
    steps = repeated(near, near["a"], near["z"], "step")
    return steps.assign(tick=steps["block"] * BLOCK + steps["step"])


def best(ranked: pd.DataFrame, by: list[str], rising: list[bool]) -> pd.DataFrame:
    """The first ten of each tick, with their place."""
    table = ranked.sort_values(["tick", *by], ascending=[True, *rising])
    table["place"] = table.groupby("tick").cumcount() + 1
    return table[table["place"] <= LISTED].assign(ts=lambda rows: rows["tick"] * PERIOD_S)


def routes(parts: list[str], output: Path) -> None:
    table = trips(parts, "debs2015-q1", [])
    table["route"] = table["start"] * 1_000_000 + table["finish"]
    table["until"] = tick(table["t"] + ROUTES_S)
    listed = pd.concat([*map(frequent, in_blocks(table[["seq", "route", "since", "until"]]))])
    listed["start"], listed["finish"] = listed["route"] // 1_000_000, listed["route"] % 1_000_000
    listed[["ts", "place", "start", "finish", "trips"]].to_parquet(output / "snapshots.parquet", index=False)


def frequent(seen: pd.DataFrame) -> pd.DataFrame:
    seen["throughout"] = (seen["a"] == 0) & (seen["z"] == BLOCK)
    bounds = seen.groupby(["block", "route"], as_index=False, sort=False).agg(
        least=("throughout", "sum"), most=("seq", "size")
    )
    few = bounds[bounds["most"] >= needed(bounds, "least", 0)]
    rows = at_ticks(seen, few, "route").groupby(["tick", "route"], as_index=False, sort=False)
    return best(rows.agg(trips=("seq", "size"), newest=("seq", "max")), ["trips", "newest"], [False, False])


def areas(parts: list[str], output: Path) -> None:
    table = trips(parts, "debs2015-q2", ["medallion", "fare", "tip"])
    amount = (nano(table["fare"]) + nano(table["tip"])).astype("float64")
    following = table.groupby("medallion", sort=False)["t"].shift(-1)
    gone = tick((table["t"] + EMPTY_S).where(following.isna(), np.minimum(table["t"] + EMPTY_S, following)))
    shared = table[["seq", "since"]]
    profits = shared.assign(cell=table["start"], amount=amount, until=tick(table["t"] + PROFIT_S))
    empty = shared.assign(cell=table["finish"], amount=np.nan, until=gone.astype("int64"))
    placed = pd.concat([profits, empty], ignore_index=True)
    del table, shared, profits, empty
    listed = pd.concat([*map(profitable, in_blocks(placed))])
    columns = ["ts", "place", "cell", "empty", "profit", "value"]
    listed[columns].to_parquet(output / "snapshots.parquet", index=False)


def profitable(seen: pd.DataFrame) -> pd.DataFrame:
    throughout = (seen["a"] == 0) & (seen["z"] == BLOCK)
    seen["is_empty"] = seen["amount"].isna()
    seen["sure_profit"], seen["sure_empty"] = throughout & ~seen["is_empty"], throughout & seen["is_empty"]
    bounds = seen.groupby(["block", "cell"], as_index=False, sort=False).agg(
        low=("amount", "min"),
        high=("amount", "max"),
        profits=("sure_profit", "sum"),
        sure=("sure_empty", "sum"),
        most=("is_empty", "sum"),
    )
    bounds = bounds[bounds["low"].notna() & (bounds["most"] > 0)]
    fewest, most = bounds["sure"].clip(lower=1), bounds["most"]
    at_most = bounds["high"] / fewest.where(bounds["high"] >= 0, most)
    at_least = bounds["low"] / most.where(bounds["low"] >= 0, fewest)
    bounds = bounds.assign(at_least=at_least.where((bounds["profits"] > 0) & (bounds["sure"] > 0)))
    few = bounds[at_most + at_most.abs() * 1e-12 >= needed(bounds, "at_least", float("-inf"))]
    rows = at_ticks(seen, few, "cell").groupby(["tick", "cell"], as_index=False, sort=False)
    counted = rows.agg(profit=("amount", "median"), empty=("is_empty", "sum"), newest=("seq", "max"))
    counted = counted[counted["profit"].notna() & (counted["empty"] > 0)]
    counted["profit"] /= 1e9
    counted["value"] = counted["profit"] / counted["empty"]
    return best(counted, ["value", "newest", "cell"], [False, False, True])


def loads(parts: list[str], output: Path) -> None:
    table = lines(parts, READING, ["timestamp", "value", "property", *PLUG])
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
        steps = repeated(known[[*keys, "load"]], known["step"], until, "step")
        cells.append(steps.assign(slice_s=length))
    plugs = pd.concat(cells, ignore_index=True)
    houses = plugs.groupby(["house_id", "slice_s", "slice", "step"], as_index=False, sort=False)["load"].sum()
    for name, keys, rows in (("house", PLUG[:1], houses), ("plug", PLUG, plugs)):
        predicted(rows, [*keys, "slice_s"]).to_parquet(output / f"{name}.parquet", index=False)


def predicted(cells: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    past = cells[(cells["step"] + 1) % (cells["slice_s"] // TICK_S) == 0]
    past = past[[*keys, "slice", "load"]].rename(columns={"slice": "position", "load": "past"})
    past["of_day"] = past["position"] % (DAY_S // past["slice_s"])
    asked = cells[[*keys, "slice"]].drop_duplicates()
    asked["of_day"] = (asked["slice"] + 2) % (DAY_S // asked["slice_s"])
    pairs = asked.merge(past, on=[*keys, "of_day"])
    pairs = pairs[pairs["position"] < pairs["slice"] + 2].groupby([*keys, "slice"], as_index=False, sort=False)
    found = cells.merge(pairs.agg(middle=("past", "median"), n_history=("past", "size")), "left", [*keys, "slice"])
    found["n_history"] = found["n_history"].fillna(0).astype("int64")
    found["tick"] = BASE + (found.pop("step") + 1) * TICK_S
    found["ts"] = BASE + (found.pop("slice") + 2) * found["slice_s"]
    load = found.pop("load")
    found["predicted_load"] = ((load + found.pop("middle")) / 2).fillna(load)
    return found.sort_values(["tick", *keys])


if __name__ == "__main__":
    answer({"debs2014-q1": loads, "debs2015-q1": routes, "debs2015-q2": areas})
