"""Reference answer, computed by whole columns instead of reading by reading.

A cell is a plug, or house, and a tick. Readings are summed by plug and time between two ticks; summed up within every
slice, and carried on to the ticks without a reading, they make the loads of all cells. The cells at ends of slices are
the history.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from workloads.recordings.recording import emitted
from workloads.smart_home.query import BASE, TICK_S, WATT_SECONDS_OF_A_KWH, QueryParams
from workloads.workload import Answer

PLUG = ["house_id", "household_id", "plug_id"]
_AT = "at"
"""Number of the interval between two ticks: `at` 0 begins at `BASE`, and the tick after it covers it."""


def predictions(path: Path, positions: Sequence[int], query: QueryParams) -> Answer:
    """Return the tables `house` and `plug` of the answer to the emitted records.

    Args:
        path: the prepared recording.
        positions: records emitted by each source executor.
        query: parameters of the query.
    """
    sums, work, last = _readings(path, positions, query.fill == "work")
    predicted: dict[str, list[pd.DataFrame]] = {"house": [], "plug": []}
    for length in query.lengths:
        plugs = _plug_loads(sums, work, length // TICK_S, last)
        houses = plugs.groupby([PLUG[0], _AT], as_index=False)[["load"]].sum()
        predicted["plug"].append(_predicted(plugs, PLUG, length, query.day_s))
        predicted["house"].append(_predicted(houses, PLUG[:1], length, query.day_s))
    return {table: _rows(pd.concat(parts, ignore_index=True)) for table, parts in predicted.items()}


def _readings(path: Path, positions: Sequence[int], fills: bool) -> tuple[pd.DataFrame, pd.DataFrame, int]:
    """Load readings summed up by plug and time, first and last readings of work, and the last time with any reading."""
    loads, work, last = [], [], -(1 << 62)
    for piece in emitted(path, positions, ["timestamp", "value", "property", *PLUG]):
        if not len(piece):
            continue
        rows = piece.to_pandas()
        rows[_AT] = (rows["timestamp"] - BASE) // TICK_S
        last = max(last, int(rows[_AT].iloc[-1]))
        is_load = rows["property"] == 1
        loads.append(rows[is_load].groupby([*PLUG, _AT], as_index=False)["value"].agg(["sum", "count"]))
        if fills:
            work.append(_ends(rows[~is_load].assign(first=rows["timestamp"], begin=rows["value"])))
    empty = pd.DataFrame(columns=[*PLUG, _AT], dtype="int64")
    sums = pd.concat(loads).groupby([*PLUG, _AT], as_index=False).sum() if loads else empty.assign(sum=0.0, count=0)
    counters = pd.concat(work) if work else empty.assign(timestamp=0, value=0.0, first=0, begin=0.0)
    return sums, _ends(counters), last


def _ends(work: pd.DataFrame) -> pd.DataFrame:
    """Return the earliest (`first`, `begin`) and latest (`timestamp`, `value`) of each plug and time.

    Rows are in order.
    """
    return work.groupby([*PLUG, _AT], as_index=False).agg(
        first=("first", "first"), begin=("begin", "first"), timestamp=("timestamp", "last"), value=("value", "last")
    )


def _plug_loads(sums: pd.DataFrame, work: pd.DataFrame, ticks: int, last: int) -> pd.DataFrame:
    """Return `load` of every plug at every tick at which it is defined; a slice has `ticks` ticks."""
    so_far = sums.groupby([*PLUG, sums[_AT] // ticks])[["sum", "count"]].cumsum()
    cells = _carried(sums[[*PLUG, _AT]].assign(load=so_far["sum"] / so_far["count"]), ticks, last)
    if work.empty:
        return cells
    before = work.groupby(PLUG)[["timestamp", "value"]].shift()
    begins = work.assign(first=before["timestamp"].fillna(work["first"]), begin=before["value"].fillna(work["begin"]))
    begin = begins.groupby([*PLUG, work[_AT] // ticks])[["first", "begin"]].transform("first")
    seconds, kwh = work["timestamp"] - begin["first"], work["value"] - begin["begin"]
    estimated = (kwh * WATT_SECONDS_OF_A_KWH / seconds).where((seconds > 0) & (kwh >= 0))
    filled = _carried(work[[*PLUG, _AT]].assign(load=estimated), ticks, last)
    both = cells.merge(filled, how="outer", on=[*PLUG, _AT], suffixes=("", "_filled"))
    both["load"] = both["load"].fillna(both.pop("load_filled"))
    return both.dropna(subset="load")


def _carried(cells: pd.DataFrame, ticks: int, last: int) -> pd.DataFrame:
    """Every row again for the ticks up to the plug's next row, the end of the slice, or the last tick of all."""
    following = cells.groupby(PLUG)[_AT].shift(-1).fillna(last + 1).astype("int64")
    end = np.minimum(np.minimum(following, (cells[_AT] // ticks + 1) * ticks), last + 1)
    times = (end - cells[_AT]).to_numpy()
    carried = cells.loc[cells.index.repeat(times)].reset_index(drop=True)
    carried[_AT] += np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
    return carried


def _predicted(cells: pd.DataFrame, name: list[str], length: int, day_s: int) -> pd.DataFrame:
    """Return rows of the answer for all cells, for slices of one length."""
    ticks, of_a_day = length // TICK_S, day_s // length
    cells = cells.assign(predicted=cells[_AT] // ticks + 2)
    over = cells[(cells[_AT] % ticks == ticks - 1) & (cells[_AT] >= 0)]
    past = over[name].assign(slice=over["predicted"] - 2, of_day=(over["predicted"] - 2) % of_a_day, past=over["load"])
    wanted = cells[[*name, "predicted"]].drop_duplicates()
    wanted["of_day"] = wanted["predicted"] % of_a_day
    days = wanted.merge(past, on=[*name, "of_day"])
    days = days[days["slice"] < days["predicted"]]
    known = days.groupby([*name, "predicted"], as_index=False)["past"].agg(["median", "count"])
    cells = cells.merge(known, how="left", on=[*name, "predicted"])
    history = cells["count"].fillna(0).astype("int64")
    load = cells["load"].where(history == 0, (cells["load"] + cells["median"]) / 2)
    head = {"tick": BASE + (cells[_AT] + 1) * TICK_S, "slice_s": length, "ts": BASE + cells["predicted"] * length}
    columns = {column: cells[column] for column in name}
    return pd.DataFrame({**head, **columns, "predicted_load": load, "n_history": history})


def _rows(table: pd.DataFrame) -> list[tuple[int | float, ...]]:
    return list(zip(*(table[column].tolist() for column in table.columns), strict=True))
