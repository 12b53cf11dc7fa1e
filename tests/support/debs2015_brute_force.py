"""Both queries of DEBS 2015 by brute force: every result is computed from all trips before it.

Shares no code with the workloads or the pipelines; arithmetic uses integers and fractions. Rows have the layout of the
tables `snapshots` and `changes`, without the last column of `changes`, `delay_ms`.
"""

import gzip
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from math import floor, isfinite
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

Row = tuple[Any, ...]

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  official times have no zone
DATE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", re.ASCII)
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
FREQUENT_SIDE, PROFITABLE_SIDE = 300, 600
LISTED = 10


class Trip(NamedTuple):
    """Valid trip: times in seconds, cells as (east, south), sum of fare and tip in dollars."""

    seq: int
    medallion: bytes
    pickup: int
    dropoff: int
    start: tuple[int, int]
    end: tuple[int, int]
    amount: Fraction


def lines_of(path: Path) -> list[bytes]:
    """Return the lines of a raw file, compressed or not, without line ends."""
    data = path.read_bytes()
    if data.startswith(b"\x1f\x8b"):
        data = gzip.decompress(data)
    data = data.removeprefix(b"\xef\xbb\xbf")
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return [line.removesuffix(b"\r") for line in lines]


def valid_trips(lines: Iterable[bytes], side: int) -> tuple[list[Trip], dict[str, int]]:
    """Return the valid trips on a grid of `side` cells in order, and the number of rejected rows by class."""
    trips: list[Trip] = []
    quarantined = {"malformed": 0, "outlier": 0, "out_of_order": 0}
    for seq, line in enumerate(lines):
        try:
            trip = _trip(seq, line, side)
        except (ValueError, OverflowError):
            quarantined["malformed"] += 1
            continue
        if not all(1 <= number <= side for number in (*trip.start, *trip.end)):
            quarantined["outlier"] += 1
        elif trips and trip.dropoff < trips[-1].dropoff:
            quarantined["out_of_order"] += 1
        else:
            trips.append(trip)
    return trips, quarantined


def _trip(seq: int, line: bytes, side: int) -> Trip:
    text = line.decode()
    fields = text.split(",")
    if len(fields) != 17 or not fields[0] or not fields[1] or "\r" in text:
        raise ValueError(line)
    pickup, dropoff = (_seconds(field) for field in fields[2:4])
    longitude, latitude, end_longitude, end_latitude = (_nano(field) for field in fields[6:10])
    fare, tip = _nano(fields[11]), _nano(fields[14])
    if max(abs(fare), abs(tip)) > 10**18:
        raise ValueError(line)
    start, end = _cell(longitude, latitude, side), _cell(end_longitude, end_latitude, side)
    return Trip(seq, fields[0].encode(), pickup, dropoff, start, end, Fraction(fare + tip, 10**9))


def _seconds(text: str) -> int:
    if not DATE.fullmatch(text):
        raise ValueError(text)
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(seconds=1)


def _nano(text: str) -> int:
    """Return integer billionths, rounded down."""
    if not NUMBER.fullmatch(text) or not isfinite(float(text)):
        raise ValueError(text)
    return floor(Fraction(text) * 10**9)


def _cell(longitude: int, latitude: int, side: int) -> tuple[int, int]:
    """Return the cell of a point in nanodegrees; the centre of the first cell is 41.474937 N, 74.913585 W."""
    east, south = {300: (5_986_000, 4_491_556), 600: (2_993_000, 2_245_778)}[side]
    x = Fraction(longitude + 74_913_585_000, east) + Fraction(1, 2)
    y = Fraction(41_474_937_000 - latitude, south) + Fraction(1, 2)
    return floor(x) + 1, floor(y) + 1


# --- windows and times --------------------------------------------------------------------------------------


def _within(trips: Sequence[Trip], time: int, seconds: int) -> list[Trip]:
    """Return those of `trips` (none later than `time`) in the window of that many seconds that ends at `time`."""
    first = len(trips)
    while first and trips[first - 1].dropoff > time - seconds:
        first -= 1
    return list(trips[first:])


def _ticks(trips: Sequence[Trip], period_s: int) -> range:
    if not trips:
        return range(0)
    first, last = (-(-trip.dropoff // period_s) * period_s for trip in (trips[0], trips[-1]))
    return range(first, last + 1, period_s)


def _until(trips: Sequence[Trip], time: int) -> list[Trip]:
    return [trip for trip in trips if trip.dropoff <= time]


def _date(seconds: int) -> str:
    return (EPOCH + timedelta(seconds=seconds)).isoformat(sep=" ")


def _name(cell: tuple[int, int]) -> str:
    return f"{cell[0]}.{cell[1]}"


def _padded(fields: Sequence[Any], each: int) -> Row:
    return (*fields, *[None] * (LISTED * each - len(fields)))


# --- query 1: frequent routes -------------------------------------------------------------------------------


def frequent_routes(trips: Sequence[Trip], time: int) -> list[tuple[str, str, int]]:
    """Return start, end and count of the routes listed at `time`; no trip is later."""
    window = _within(trips, time, 1800)
    counts = Counter((trip.start, trip.end) for trip in window)
    newest = {(trip.start, trip.end): trip.seq for trip in window}
    few = sorted(counts.values(), reverse=True)[:LISTED]
    listed = [route for route, count in counts.items() if count >= few[-1]]
    listed.sort(key=lambda route: (counts[route], newest[route]), reverse=True)
    return [(_name(start), _name(end), counts[start, end]) for start, end in listed[:LISTED]]


def frequent_snapshots(trips: Sequence[Trip], period_s: int = 60) -> list[Row]:
    """Return rows `ts`, followed by `start end count` ten times."""
    rows = []
    for time in _ticks(trips, period_s):
        listed = frequent_routes(_until(trips, time), time)
        rows.append((_date(time), *_padded([field for route in listed for field in route], 3)))
    return rows


def frequent_changes(trips: Sequence[Trip]) -> list[Row]:
    """Return rows `change pickup_datetime dropoff_datetime`, followed by `start end` ten times."""
    rows: list[Row] = []
    printed: list[str] = []
    for at, trip in enumerate(trips):
        listed = [name for *ends, _ in frequent_routes(trips[: at + 1], trip.dropoff) for name in ends]
        if listed != printed:
            rows.append((len(rows), _date(trip.pickup), _date(trip.dropoff), *_padded(listed, 2)))
            printed = listed
    return rows


# --- query 2: profitable areas ------------------------------------------------------------------------------


def profitable_areas(trips: Sequence[Trip], time: int) -> list[tuple[str, int, float, float]]:
    """Return cell, empty taxis, profit and value of the areas listed at `time`; no trip is later.

    One trip can be the newest of two cells, because it yields profit where it starts and an empty taxi where it ends.
    With equal values the smaller cell comes first, by its first number and then by its second.
    """
    amounts: defaultdict[tuple[int, int], list[Fraction]] = defaultdict(list)
    newest: dict[tuple[int, int], int] = {}
    for trip in _within(trips, time, 900):
        amounts[trip.start].append(trip.amount)
        newest[trip.start] = trip.seq
    last_of_taxi = {trip.medallion: trip for trip in _within(trips, time, 1800)}
    empty = Counter(trip.end for trip in last_of_taxi.values())
    for trip in last_of_taxi.values():
        newest[trip.end] = max(newest.get(trip.end, -1), trip.seq)
    profit = {cell: median(amounts[cell]) for cell in amounts if empty[cell]}
    value = {cell: profit[cell] / empty[cell] for cell in profit}
    listed = sorted(value, key=lambda cell: (-value[cell], -newest[cell], cell))[:LISTED]
    return [(_name(cell), empty[cell], _six_places(profit[cell]), _six_places(value[cell])) for cell in listed]


def _six_places(dollars: Fraction) -> float:
    """Round to the nearest millionth, half away from zero."""
    size = floor(abs(dollars) * 10**6 + Fraction(1, 2))
    return (-size if dollars < 0 else size) / 1e6


def profitable_snapshots(trips: Sequence[Trip], period_s: int = 60) -> list[Row]:
    """Return rows `ts`, followed by `cell empty profit value` ten times."""
    rows = []
    for time in _ticks(trips, period_s):
        listed = profitable_areas(_until(trips, time), time)
        rows.append((_date(time), *_padded([field for area in listed for field in area], 4)))
    return rows


def profitable_changes(trips: Sequence[Trip]) -> list[Row]:
    """Return rows `change pickup_datetime dropoff_datetime`, followed by `cell empty profit value` ten times."""
    rows: list[Row] = []
    printed: list[object] = []
    for at, trip in enumerate(trips):
        listed = [field for area in profitable_areas(trips[: at + 1], trip.dropoff) for field in area]
        if listed != printed:
            rows.append((len(rows), _date(trip.pickup), _date(trip.dropoff), *_padded(listed, 4)))
            printed = listed
    return rows
