"""Generated data: reproducible, in the official schema, and with the statistics on its page."""

import gzip
import hashlib
from collections import Counter
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from workloads.generate.draws import Draws, quantile_values, stratified
from workloads.generate.smart_plugs import Plugs
from workloads.generate.writing import KINDS, write_rows
from workloads.recordings.schema import DEBS2014, DEBS2015

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


DIFFERS = "plug seconds without work or load, %"
"""The only statistic that differs on purpose."""

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "generators.md"
SEED, ROWS = 1, {"debs2014": 10_000, "debs2015": 10_004, "text": 20_000}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("generated")
    made = {}
    for name, rows in ROWS.items():
        made[name] = folder / f"{name}.csv"
        write_rows(made[name], KINDS[name](rows, SEED), lambda _written: None)
    return made


def page_tables() -> list[dict[str, tuple[str, str]]]:
    """Return the tables of the page: statistic -> (real, generated), as text."""
    tables: list[dict[str, tuple[str, str]]] = []
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| statistic"):
            tables.append({})
        elif line.startswith("| "):
            tables[-1][cells[0]] = (cells[1], cells[2])
    return tables


def shown(statistics: dict[str, float]) -> dict[str, str]:
    return {name: f"{value:.4g}" for name, value in statistics.items()}


def minutes(plugs: Plugs) -> np.ndarray:
    every = np.arange(plugs.count)
    return np.array([plugs.is_on(every, np.full(plugs.count, second)) for second in range(0, 43_200, 60)])


def test_generated_data_has_the_statistics_on_its_page(files: dict[str, Path]) -> None:
    found = [
        of_readings(files["debs2014"]),
        of_minutes(minutes(Plugs(SEED))),
        of_trips(files["debs2015"]),
        of_lines(files["text"]),
    ]
    for table, statistics in zip(page_tables(), found, strict=True):
        assert shown(statistics) == {name: generated for name, (_, generated) in table.items()}


def test_real_data_has_the_statistics_on_the_page(shared_data: Path) -> None:
    house = minutes_of(shared_data / "debs2014" / "house0-60s-first12h.csv.gz")
    books = [
        of_lines(shared_data / "text" / f"{name}.txt.gz")
        for name in ("moby-dick", "pride-and-prejudice", "sherlock-holmes")
    ]
    found = [
        of_readings(shared_data / "debs2014" / "all-houses-first10000.csv.gz"),
        of_minutes(house),
        of_trips(shared_data / "debs2015" / "trips-first-56min.csv.gz"),
        {name: float(np.mean([book[name] for book in books])) for name in books[0]},
    ]
    for table, statistics in zip(page_tables(), found, strict=True):
        assert shown(statistics) == {name: real for name, (real, _) in table.items()}


def test_statistics_of_generated_and_real_data_are_similar() -> None:
    unlike = {
        name: (real, generated)
        for table in page_tables()
        for name, (real, generated) in table.items()
        if name != DIFFERS and not 0.6 < (float(generated) + 1) / (float(real) + 1) < 1.5
    }
    assert unlike == {}


@pytest.mark.parametrize("name", KINDS)
def test_the_first_rows_of_a_seed_do_not_depend_on_the_number_of_rows(name: str, tmp_path: Path) -> None:
    few, many = tmp_path / "few", tmp_path / "many"
    write_rows(few, KINDS[name](300, 5), lambda _written: None)
    write_rows(many, KINDS[name](700_000 if name == "debs2014" else 1000, 5), lambda _written: None)
    with many.open("rb") as lines:
        assert [next(lines) for _ in range(300)] == few.read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize("name", KINDS)
def test_seeds_differ(name: str, tmp_path: Path) -> None:
    found = set()
    for seed in (0, 1, 2):
        write_rows(tmp_path / "rows", KINDS[name](50, seed), lambda _written: None)
        found.add((tmp_path / "rows").read_bytes())
    assert len(found) == 3


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("debs2014", "74dd07ad321e8ea4"),
        ("debs2015", "98d6fffff57eeb1e"),
        ("text", "b5bfca579407953e"),
    ],
)
def test_a_seed_gives_the_same_bytes_on_every_machine(name: str, digest: str, files: dict[str, Path]) -> None:
    assert hashlib.sha256(files[name].read_bytes()).hexdigest()[:16] == digest


def test_rows_are_in_the_official_schema_and_in_order(files: dict[str, Path]) -> None:
    readings = [line.split(",") for line in files["debs2014"].read_text().splitlines()]
    assert {len(row) for row in readings} == {len(DEBS2014.fields)}
    assert [int(row[0]) for row in readings] == list(range(1, len(readings) + 1))
    assert sorted(readings, key=lambda row: int(row[1])) == readings
    trips = [line.split(",") for line in files["debs2015"].read_text().splitlines()]
    assert {len(row) for row in trips} == {len(DEBS2015.fields)}
    assert sorted(trips, key=lambda row: row[3]) == trips
    assert all(row[2] <= row[3] and len(row[0]) == len(row[1]) == 32 for row in trips)
    assert all(round(sum(map(float, row[11:16])) - float(row[16]), 6) == 0 for row in trips)


def test_work_counters_rise_as_the_mean_load_says() -> None:
    plugs = Plugs(3)
    every = np.arange(plugs.count)
    day = [plugs.on_seconds(every, np.full(plugs.count, second)) for second in (0, 43_200, 86_400)]
    assert (day[0] == 0).all()
    assert (day[1] <= day[2]).all()
    assert (day[2] <= 86_400).all()
    on = sum(plugs.is_on(every, np.full(plugs.count, second)).astype(int) for second in range(2000))
    assert (plugs.on_seconds(every, np.full(plugs.count, 2000)) == on).all()


def test_a_gzip_file_has_the_same_rows_and_no_timestamp(tmp_path: Path, files: dict[str, Path]) -> None:
    packed = [tmp_path / "a.csv.gz", tmp_path / "b.csv.gz"]
    for path in packed:
        write_rows(path, KINDS["text"](ROWS["text"], SEED), lambda _written: None)
    assert packed[0].read_bytes() == packed[1].read_bytes()
    assert gzip.decompress(packed[0].read_bytes()) == files["text"].read_bytes()


def test_draws_follow_their_shares_and_quantiles() -> None:
    numbers = np.arange(100_000)
    draws = Draws(9, "test")
    shares = np.bincount(draws.by_share(numbers, (1, 0, 3))) / len(numbers)
    assert shares == pytest.approx([0.25, 0, 0.75], abs=0.01)
    values = draws.by_quantiles(numbers, (0, 100, 1000))
    assert np.quantile(values, [0.25, 0.5, 0.75]) == pytest.approx([50, 100, 550], rel=0.05)
    assert quantile_values(np.array([0, (1 << 32) - 1], np.uint64), (5, 7, 90)).tolist() == [5, 89]
    assert sorted(stratified(draws, 5, (0, 500)).tolist()) == pytest.approx([50, 150, 250, 350, 450], abs=50)
    assert not set(draws.bits(numbers).tolist()) & set(Draws(9, "other").bits(numbers).tolist())
