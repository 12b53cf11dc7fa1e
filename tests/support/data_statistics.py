"""Statistics of raw data, under the names of docs/reference/generators.md; independent of the generators."""

import gzip
from collections import Counter
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd

READING = ["id", "timestamp", "value", "property", "plug", "household", "house"]
TRIP = [
    *("medallion", "licence", "pickup", "dropoff", "seconds", "miles", "from_x", "from_y", "to_x", "to_y"),
    *("payment", "fare", "surcharge", "tax", "tip", "tolls", "total"),
]


def of_readings(path: Path) -> dict[str, float]:
    """Return statistics of the start of a recording of smart plugs."""
    rows = pd.read_csv(path, header=None, names=READING)
    plug = ["house", "household", "plug"]
    load = rows[rows.property == 1]
    together = rows.groupby([*plug, "timestamp"]).property.nunique()
    once = rows.groupby([*plug, "timestamp", "property"]).size()
    return {
        "houses": rows.house.nunique(),
        "households": len(rows.groupby(["house", "household"])),
        "plugs": len(rows.groupby(plug)),
        "most plugs of a house": int(rows[plug].drop_duplicates().house.value_counts().max()),
        "most plugs of a household": int(rows.groupby(["house", "household"]).plug.nunique().max()),
        "rows in the first 6 s": int((rows.timestamp < rows.timestamp.iloc[0] + 6).sum()),
        "plug seconds with two readings, %": 100 * float((once > 1).mean()),
        "plug seconds without work or load, %": 100 * float((together == 1).mean()),
        "loads of 0 W, %": 100 * float((load.value == 0).mean()),
        "median load above 0, W": float(load.value[load.value > 0].median()),
        "95 % of loads are below, W": float(load.value.quantile(0.95)),
        "median work counter, kWh": float(rows.value[rows.property == 0].median()),
    }


def of_minutes(on: "np.ndarray[tuple[int, int], np.dtype[np.bool_]]") -> dict[str, float]:
    """Return statistics of `on[minute, plug]`: whether a plug draws power, over twelve hours."""
    share = on.mean(axis=0)
    spells = {True: [], False: []}
    for plug in on[:, (share > 0) & (share < 1)].T:
        inner = [(state, len(list(run))) for state, run in groupby(plug.tolist())][1:-1]
        for state, minutes in inner:
            spells[state].append(minutes)
    return {
        "plugs that are never on, %": 100 * float((share == 0).mean()),
        "plugs that are always on, %": 100 * float((share == 1).mean()),
        "minutes on, mean": float(np.mean(spells[True])),
        "minutes off, mean": float(np.mean(spells[False])),
    }


def minutes_of(path: Path) -> "np.ndarray[tuple[int, int], np.dtype[np.bool_]]":
    """Return `on[minute, plug]` of a recording with about one reading a minute, for `of_minutes`."""
    rows = pd.read_csv(path, header=None, names=READING)
    rows["at"] = rows.groupby(["household", "plug"]).cumcount()
    table = rows.pivot_table(index="at", columns=["household", "plug"], values="value")
    return (table.dropna() > 0).to_numpy()


def of_trips(path: Path) -> dict[str, float]:
    """Return statistics of the start of a recording of taxi trips, on cells of 500 m."""
    rows = pd.read_csv(path, header=None, names=TRIP, parse_dates=["pickup", "dropoff"])
    x = {end: np.floor((rows[f"{end}_x"] + 74.913585) / 0.005986 + 0.5) + 1 for end in ("from", "to")}
    y = {end: np.floor((41.474937 - rows[f"{end}_y"]) / 0.004491556 + 0.5) + 1 for end in ("from", "to")}
    inside = pd.concat([*x.values(), *y.values()], axis=1).apply(lambda cells: cells.between(1, 300)).all(axis=1)
    start, end = ((x[which] * 1000 + y[which])[inside] for which in ("from", "to"))
    starts, ends, routes = (found.value_counts(normalize=True) for found in (start, end, start * 1e6 + end))
    zero = rows[["from_x", "from_y", "to_x", "to_y"]] == 0
    minutes = (rows.dropoff - rows.pickup).dt.total_seconds() / 60
    card = rows.payment == "CRD"
    distance = (abs(x["from"] - x["to"]) + abs(y["from"] - y["to"]))[inside]
    return {
        "taxis": rows.medallion.nunique(),
        "most trips of a taxi": int(rows.medallion.value_counts().max()),
        "trips per minute, at the end": float(
            rows.dropoff.dt.floor("min").value_counts().sort_index().iloc[-11:-1].mean()
        ),
        "drop-offs at a full minute, %": 100 * float((rows.dropoff.dt.second == 0).mean()),
        "trips with a zero coordinate, %": 100 * float(zero.any(axis=1).mean()),
        "outliers, %": 100 * float((~inside).mean()),
        "start cells": len(starts),
        "end cells": len(ends),
        "trips from the first start cell, %": 100 * float(starts.iloc[0]),
        "trips from the first 10, %": 100 * float(starts.iloc[:10].sum()),
        "trips from the first 100, %": 100 * float(starts.iloc[:100].sum()),
        "trips to the first 10 end cells, %": 100 * float(ends.iloc[:10].sum()),
        "trips to the first 100, %": 100 * float(ends.iloc[:100].sum()),
        "routes": len(routes),
        "trips on the first 10 routes, %": 100 * float(routes.iloc[:10].sum()),
        "trips on the first 1000, %": 100 * float(routes.iloc[:1000].sum()),
        "trips within a cell, %": 100 * float((start == end).mean()),
        "median of cells between the ends": float(distance.median()),
        "median duration, min": float(minutes.median()),
        "median distance, miles": float(rows.miles.median()),
        "median fare, $": float(rows.fare.median()),
        "card payments, %": 100 * float(card.mean()),
        "card payments with a tip, %": 100 * float((rows.tip[card] > 0).mean()),
        "median tip of the fare, %": 100 * float((rows.tip / rows.fare)[rows.tip > 0].median()),
        "trip times that disagree, %": 100 * float((rows.seconds != minutes * 60).mean()),
    }


def of_lines(path: Path) -> dict[str, float]:
    """Return statistics of a text."""
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    text = raw.decode("utf-8-sig")
    lines, words = text.splitlines(), text.split()
    counts = np.array([len(line.split()) for line in lines])
    shares = np.cumsum([count for _, count in Counter(words).most_common()]) / len(words)
    return {
        "blank lines, %": 100 * float((counts == 0).mean()),
        "median of words in other lines": float(np.median(counts[counts > 0])),
        "most words of a line": int(counts.max()),
        "the first word, % of all": 100 * float(shares[0]),
        "the first 10 words, %": 100 * float(shares[9]),
        "the first 100, %": 100 * float(shares[99]),
        "the first 1000, %": 100 * float(shares[999]),
        "letters of a word, mean": float(np.mean([len(word) for word in words])),
    }
