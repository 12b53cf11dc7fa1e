"""The reference answers of `taxi`, on the controller, from the trips that were emitted.

Snapshots sort each window anew. The log keeps all routes of the window in one sorted list and reads its end.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from workloads.operators import Row
from workloads.recordings.schema import CENTRE_LATITUDE, CENTRE_LONGITUDE, Grid
from workloads.taxi.layout import CELL, LISTED, listing_fields, route_names, time_text
from workloads.taxi.trips import Trips

Whole = npt.NDArray[np.int64]

COLUMNS = Trips.columns
WINDOW_S = 1800


def end_cells(table: pa.Table, end: str, grid: Grid) -> Whole:
    """The cells of one end of trips: which centre of a cell is nearest, and the eastern or southern one of two."""
    east: Whole = table.column(f"{end}_longitude").to_numpy() - CENTRE_LONGITUDE
    south: Whole = CENTRE_LATITUDE - table.column(f"{end}_latitude").to_numpy()
    x = (2 * east + grid.east) // (2 * grid.east) + 1
    y = (2 * south + grid.south) // (2 * grid.south) + 1
    cells: Whole = x * CELL + y
    return cells


def windows(
    tables: Iterable[tuple[Whole, ...]], window_s: int, period_s: int, first_s: int
) -> Iterator[tuple[int, list[Whole]]]:
    """Each tick with the columns of the trips in its window.

    Args:
        tables: columns of trips, in order, piece by piece; the first is the drop-off time.
        window_s: length of the window that ends at the tick.
        period_s: between ticks.
        first_s: drop-off time of the first trip of the recording, whether it was emitted or not.
    """
    tick = -(-first_s // period_s) * period_s
    held: list[Whole] = []
    for table in tables:
        if not len(table[0]):
            continue
        held = [np.concatenate(pair) for pair in zip(held, table, strict=True)] if held else list(table)
        newest = held[0][-1]
        while tick < newest:
            yield tick, _part(held, tick - window_s, tick)
            tick += period_s
        held = _part(held, tick - window_s, int(newest))
    if held:
        yield tick, _part(held, tick - window_s, tick)


def _part(columns: list[Whole], behind: int, until: int) -> list[Whole]:
    first, last = np.searchsorted(columns[0], [behind, until], side="right")
    return [column[first:last] for column in columns]


def snapshots(tables: Iterable[pa.Table], grid: Grid, period_s: int, first_s: int) -> Iterator[Row]:
    """Yield rows of the table `snapshots`."""
    columns = (
        (
            table.column("dropoff_datetime").to_numpy(),
            table.column("seq").to_numpy(),
            end_cells(table, "pickup", grid) * CELL * CELL + end_cells(table, "dropoff", grid),
        )
        for table in tables
    )
    for tick, (_, seqs, routes) in windows(columns, WINDOW_S, period_s, first_s):
        # Of the reversed routes, unique finds the last trip of each.
        distinct, last, counts = np.unique(routes[::-1], return_index=True, return_counts=True)
        best = np.lexsort((seqs[::-1][last], counts))[: -LISTED - 1 : -1]
        listed = [(*route_names(int(distinct[at])), int(counts[at])) for at in best]
        yield time_text(tick), *listing_fields(listed, 3)


def changes(tables: Iterable[pa.Table], grid: Grid) -> Iterator[Row]:
    """Yield rows of the table `changes`, without delays."""
    window: deque[tuple[int, int]] = deque()
    place: dict[int, tuple[int, int, int]] = {}
    order: list[tuple[int, int, int]] = []
    printed: list[int] = []
    number = 0

    def move(route: int, by: int, seq: int) -> None:
        count, newest, _ = place.pop(route, (0, 0, route))
        if count:
            del order[bisect_left(order, (count, newest, route))]
        if count + by:
            place[route] = count + by, max(newest, seq), route
            insort(order, place[route])

    for table in tables:
        routes = (end_cells(table, "pickup", grid) * CELL * CELL + end_cells(table, "dropoff", grid)).tolist()
        times = (table.column(name).to_pylist() for name in ("seq", "pickup_datetime", "dropoff_datetime"))
        for route, seq, pickup, dropoff in zip(routes, *times, strict=True):
            while window and window[0][0] <= dropoff - WINDOW_S:
                move(window.popleft()[1], -1, -1)
            window.append((dropoff, route))
            move(route, 1, seq)
            listed = [entry[2] for entry in order[: -LISTED - 1 : -1]]
            if listed != printed:
                yield number, time_text(pickup), time_text(dropoff), *listing_fields(map(route_names, listed), 2), None
                printed, number = listed, number + 1
