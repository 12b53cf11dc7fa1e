"""Trips of taxis in the schema of DEBS 2015, in the order of their drop-off times.

Times are whole minutes, with few exceptions, so that hundreds of trips have one drop-off time. Cells are popular by
rank; a cell has favourite destinations, and many other trips go to the nearer one of two popular cells.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from workloads.generate.draws import Draws, Integers
from workloads.recordings.schema import CELLS_500_M, CENTRE_LATITUDE, CENTRE_LONGITUDE

FIRST_MINUTE = 1356998520 // 60
TRIPS_A_MINUTE = (200, 235, 255, 270, 330)
WITH_SECONDS = 6_600

TAXIS, ACTIVE, NEW_A_MINUTE = 13_000, 4_400, 9
"""Number of taxis, of those on the road at a time, and of those replaced per minute."""

CENTRE = (157, 162)
SPREAD = (3, 6)
"""The busiest cell, and the spread of popularity around it, in cells east and south."""

ROUGHNESS = (20, 60, 100, 300, 900)
"""Deviation of the popularity of single cells."""

RANKS = (0, 1, 10, 20, 50, 75, 100, 125, 150, 200, 300, 410, 680)
PICKUP_SHARES = (0, 209, 1644, 2981, 5809, 7392, 8338, 8875, 9217, 9575, 9878, 10_000, 10_000)
DROPOFF_SHARES = (0, 184, 1492, 2632, 5049, 6477, 7470, 8036, 8419, 8912, 9427, 9670, 10_000)
"""Numbers of trips, of 10,000, that begin or end in the cells up to a rank."""

SAME_CELL = 30_000
TO_FAVOURITE, TO_NEARER = 200_000, 600_000
FAVOURITES = (20, 16, 13, 11, 9, 8, 7, 6, 5, 5)

ALL_ZERO, PICKUP_ZERO, DROPOFF_ZERO, ASTRAY = 14_700, 900, 2_000, 200
"""Numbers of trips, of a million, without coordinates, and with a coordinate on another continent."""

DETOUR_PERCENT = (100, 110, 120, 128, 136, 144, 155, 176, 260)
START_S, SECONDS_A_MILE = 210, 168
PACE_PERCENT = (45, 70, 85, 100, 115, 135, 180)
MOST_MINUTES = 47
NO_TIME, WRONG_TIME = 6_000, 2_900
PAYMENTS = ("CSH", "CRD", "UNK")
PAYMENT_SHARES = (6_002, 3_996, 2)
TIPPED = 944_500
TIP_PER_MILLE = (
    *(50, 105, 143, 176, 204, 206, 208, 210, 212, 214),
    *(217, 225, 259, 267, 308, 325, 600),
)
SURCHARGES, SURCHARGE_SHARES = (50, 0), (9_925, 75)
TAXES, TAX_SHARES = (50, 0), (9_977, 23)
TOLLS, TOLL_SHARES = (0, 480, 1_025, 220), (9_878, 101, 14, 7)

_CHUNK_MINUTES = 1000
_MICRO = 1000
_MILES_EAST, _MILES_NORTH = 84.3 / 1.609, 111.2 / 1.609
"""Miles per degree, in New York."""


@dataclass(frozen=True)
class City:
    """The cells of a seed by rank, most popular first.

    Attributes:
        x, y: numbers of each cell.
        pickups, dropoffs: numbers of trips, of 2^32, that begin or end in the cells up to each.
    """

    x: Integers
    y: Integers
    pickups: Integers
    dropoffs: Integers


def city_of(seed: int) -> City:
    """Return the cells of a seed; cells nearer to the centre are roughly more popular."""
    reach = 60
    x, y = (axis.ravel() for axis in np.meshgrid(np.arange(-reach, reach + 1), np.arange(-reach, reach + 1)))
    distance = (x * SPREAD[1]) ** 2 + (y * SPREAD[0]) ** 2
    rough = Draws(seed, "cells").by_quantiles(np.arange(len(x)), ROUGHNESS)
    order = np.argsort(distance * rough, kind="stable")[: RANKS[-1]]
    ranks = np.arange(RANKS[-1] + 1)

    def reached(shares: tuple[int, ...]) -> Integers:
        steps = np.searchsorted(RANKS, ranks[1:], side="left")
        low, high = np.array(RANKS)[steps - 1], np.array(RANKS)[steps]
        first, last = np.array(shares)[steps - 1], np.array(shares)[steps]
        area: Integers = (first * (high - ranks[1:]) + last * (ranks[1:] - low) << 32) // ((high - low) * shares[-1])
        return area

    return City(x[order] + CENTRE[0], y[order] + CENTRE[1], reached(PICKUP_SHARES), reached(DROPOFF_SHARES))


def taxi_trips(rows: int, seed: int) -> Iterator[pa.RecordBatch]:
    """Yield the first `rows` rows of a seed, in batches."""
    city, taxis = city_of(seed), _Taxis(seed)
    done, minute = 0, 0
    while done < rows:
        minutes = np.arange(minute, minute + _CHUNK_MINUTES)
        trips = Draws(seed, "trips a minute").by_quantiles(minutes, TRIPS_A_MINUTE)
        count = int(trips.sum())
        batch = _trips(seed, city, taxis, np.repeat(minutes, trips), np.arange(done, done + count))
        batch = batch.slice(0, rows - done)
        done += len(batch)
        minute += _CHUNK_MINUTES
        yield batch


class _Taxis:
    """Names of taxis and of their drivers' licences."""

    def __init__(self, seed: int) -> None:
        numbers = np.arange(2 * TAXIS)
        high, low = Draws(seed, "medallions").bits(numbers), Draws(seed, "licences").bits(numbers)
        names = pa.array([f"{a:016X}{b:016X}" for a, b in zip(high.tolist(), low.tolist(), strict=True)])
        self.medallions, self.licences = names.slice(0, TAXIS), names.slice(TAXIS)


def _trips(seed: int, city: City, taxis: _Taxis, minute: Integers, trip: Integers) -> pa.RecordBatch:
    def drawn(kind: str) -> Draws:
        return Draws(seed, f"trips {kind}")

    odd = drawn("seconds").happens(trip, WITH_SECONDS)
    second = np.where(odd, drawn("second").below(trip, 60), 0)
    dropoff = np.sort((minute + FIRST_MINUTE) * 60 + second, kind="stable")
    pickup_cell, dropoff_cell = _cells(seed, city, trip)
    from_longitude, from_latitude = _points(drawn("pickup points"), city, pickup_cell, trip)
    to_longitude, to_latitude = _points(drawn("dropoff points"), city, dropoff_cell, trip)
    hundredths = _hundredths_of_miles(drawn("detours"), from_longitude, from_latitude, to_longitude, to_latitude, trip)
    duration = _durations(drawn, hundredths, trip, dropoff)
    reported = duration + drawn("wrong times").happens(trip, WRONG_TIME) * 60
    lost = drawn("lost").below(trip, 1_000_000)
    no_pickup = lost < ALL_ZERO + PICKUP_ZERO
    no_dropoff = (lost < ALL_ZERO) | ((lost >= ALL_ZERO + PICKUP_ZERO) & (lost < ALL_ZERO + PICKUP_ZERO + DROPOFF_ZERO))
    to_longitude = to_longitude - np.where(lost >= 1_000_000 - ASTRAY, 8_000_000, 0)
    fare = 250 + 50 * (hundredths * 75 // 1000 + 1)
    payment = drawn("payments").by_share(trip, PAYMENT_SHARES)
    tipped = (payment != 0) & drawn("tipped").happens(trip, TIPPED)
    tip = np.where(tipped, fare * drawn("tips").by_quantiles(trip, TIP_PER_MILLE) // 1000, 0)
    surcharge = np.array(SURCHARGES)[drawn("surcharges").by_share(trip, SURCHARGE_SHARES)]
    tax = np.array(TAXES)[drawn("taxes").by_share(trip, TAX_SHARES)]
    toll = np.array(TOLLS)[drawn("tolls").by_share(trip, TOLL_SHARES)]
    taxi = pa.array(_taxi(drawn("taxis"), minute, trip))
    columns = {
        "medallion": taxis.medallions.take(taxi),
        "hack_license": taxis.licences.take(taxi),
        "pickup_datetime": _time(dropoff - duration),
        "dropoff_datetime": _time(dropoff),
        "trip_time_in_secs": pa.array(reported),
        "trip_distance": _decimal(hundredths, 2),
        "pickup_longitude": _decimal(np.where(no_pickup, 0, from_longitude), 6),
        "pickup_latitude": _decimal(np.where(no_pickup, 0, from_latitude), 6),
        "dropoff_longitude": _decimal(np.where(no_dropoff, 0, to_longitude), 6),
        "dropoff_latitude": _decimal(np.where(no_dropoff, 0, to_latitude), 6),
        "payment_type": pa.array(PAYMENTS).take(pa.array(payment)),
        "fare_amount": _decimal(fare, 2),
        "surcharge": _decimal(surcharge, 2),
        "mta_tax": _decimal(tax, 2),
        "tip_amount": _decimal(tip, 2),
        "tolls_amount": _decimal(toll, 2),
        "total_amount": _decimal(fare + surcharge + tax + tip + toll, 2),
    }
    return pa.RecordBatch.from_pydict(columns)


def _cells(seed: int, city: City, trip: Integers) -> tuple[Integers, Integers]:
    """Return the ranks of the cells of both ends."""

    def popular(kind: str, numbers: Integers, reached: Integers) -> Integers:
        shares = Draws(seed, kind).bits(numbers) >> np.uint64(32)
        return np.searchsorted(reached, shares.astype(np.int64), side="right").astype(np.int64)

    pickup = popular("pickups", trip, city.pickups)
    favourite = Draws(seed, "favourites").by_share(trip, FAVOURITES)
    habit = Draws(seed, "habits").happens(trip, TO_FAVOURITE)
    number = np.where(habit, (pickup * len(FAVOURITES) + favourite) - (1 << 40), trip)
    first, second = (popular(f"dropoffs {turn}", number, city.dropoffs) for turn in (1, 2))

    def far(cell: Integers) -> Integers:
        cells: Integers = np.abs(city.x[cell] - city.x[pickup]) + np.abs(city.y[cell] - city.y[pickup])
        return cells

    near = habit | Draws(seed, "nearness").happens(trip, TO_NEARER)
    nearer = np.where(near & (far(second) < far(first)), second, first)
    return pickup, np.where(Draws(seed, "stays").happens(trip, SAME_CELL), pickup, nearer)


def _points(draws: Draws, city: City, cell: Integers, trip: Integers) -> tuple[Integers, Integers]:
    """Return longitudes and latitudes in a cell, in millionths of a degree."""
    grid = CELLS_500_M
    east, south = draws.below(2 * trip, grid.east), draws.below(2 * trip + 1, grid.south)
    longitude = CENTRE_LONGITUDE - grid.east // 2 + (city.x[cell] - 1) * grid.east + east
    latitude = CENTRE_LATITUDE + grid.south // 2 - (city.y[cell] - 1) * grid.south - south
    return longitude // _MICRO, latitude // _MICRO


def _hundredths_of_miles(
    detours: Draws, x: Integers, y: Integers, to_x: Integers, to_y: Integers, trip: Integers
) -> Integers:
    east, north = (x - to_x) / 1e6 * _MILES_EAST, (y - to_y) / 1e6 * _MILES_NORTH
    detour = detours.by_quantiles(trip, DETOUR_PERCENT)
    hundredths: Integers = np.rint(np.sqrt(east * east + north * north) * detour).astype(np.int64)
    return hundredths


def _durations(drawn: Callable[[str], Draws], hundredths: Integers, trip: Integers, dropoff: Integers) -> Integers:
    """Return durations in roughly whole minutes; a drop-off at a full minute has its pick-up at one."""
    meant = START_S + hundredths * SECONDS_A_MILE // 100
    seconds = meant * drawn("paces").by_quantiles(trip, PACE_PERCENT) // 100
    minutes = np.clip((seconds + 30) // 60, 1, MOST_MINUTES) * 60
    reported = np.where(dropoff % 60 > 0, np.maximum(1, seconds), minutes)
    durations: Integers = np.where(drawn("no time").happens(trip, NO_TIME), 0, reported)
    return durations


def _taxi(draws: Draws, minute: Integers, trip: Integers) -> Integers:
    """Return the taxi of each trip: half of the trips are assigned in turn, the others at random."""
    turn = np.where(trip % 2 == 0, trip // 2 % ACTIVE, draws.below(trip, ACTIVE))
    taxi: Integers = (turn + minute * NEW_A_MINUTE) % TAXIS
    return taxi


def _time(seconds: Integers) -> pa.Array:
    return pa.array(seconds).cast(pa.timestamp("s"))


def _decimal(values: Integers, places: int) -> pa.Array:
    """Return integers in units of the last place as decimals, which are written with all places."""
    words = np.stack([values, values >> 63], axis=1)
    return pa.Array.from_buffers(pa.decimal128(18, places), len(values), [None, pa.py_buffer(words)])
