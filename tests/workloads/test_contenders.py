"""Trips that pipelines may drop: no listing changes at any time without them."""

from collections import Counter
from itertools import pairwise
from random import Random

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from workloads.pipelines.debs2015 import ROUNDS, contenders

WINDOW_S, LISTED = 20, 2

Trip = tuple[int, int, int]
"""Number, time, route."""


def listing(trips: list[Trip], at: int) -> list[tuple[int, int, int]]:
    """Return (count, newest trip, route) of the routes with the most trips in the window, the best first."""
    in_window = [(seq, route) for seq, time, route in trips if at - WINDOW_S < time <= at]
    newest = dict.fromkeys(route for _, route in in_window) | {route: seq for seq, route in in_window}
    counts = Counter(route for _, route in in_window)
    return sorted(((counts[route], newest[route] or 0, route) for route in counts), reverse=True)[:LISTED]


def without_dropped(trips: list[Trip]) -> list[Trip]:
    times, routes = (np.array([trip[at] for trip in trips], np.int64) for at in (1, 2))
    mask = contenders(times, routes, WINDOW_S, LISTED)
    return [trip for trip, is_kept in zip(trips, mask, strict=True) if is_kept]


@given(
    st.integers(0, 1 << 32),
    st.integers(1, 12),
    st.sampled_from([0.9, 0.97, 0.99]),
    st.sampled_from([0.05, 0.1, 0.2]),
    st.sampled_from([3, 10, 11, 40]),
    st.lists(st.integers(0, 600), max_size=3),
)
@example(seed=0, rivals=11, hot=0.9, pace=0.05, pause_s=3, cuts=[326])
@example(seed=11, rivals=11, hot=0.9, pace=0.2, pause_s=3, cuts=[])
def test_no_listing_changes_for_any_division_into_stretches(
    seed: int, rivals: int, hot: float, pace: float, pause_s: int, cuts: list[int]
) -> None:
    random = Random(seed)  # noqa: S311 - no secret
    trips, now = [], random.randrange(-100, 100)
    for seq in range(600):
        # Between pauses, lower and upper bounds of a route's count are equal, so that a single trip matters to routes
        # that compete for the second place.
        now += random.random() < pace if random.random() < 0.99 else pause_s
        trips.append((seq, now, 0 if random.random() < hot else random.randint(1, rivals)))
    bounds = [0, *sorted(cuts), len(trips)]
    few = [trip for begin, end in pairwise(bounds) for trip in without_dropped(trips[begin:end])]
    for at in range(trips[0][1], trips[-1][1] + WINDOW_S):
        assert listing(few, at) == listing(trips, at)


def test_trips_of_a_rare_route_are_dropped_except_at_the_ends() -> None:
    trips = [(seq, seq // 4, 9 if seq % 40 == 20 else seq % 2) for seq in range(1000)]
    few = without_dropped(trips)
    rare = [time for _, time, route in few if route == 9]
    assert [trip for trip in trips if trip[2] != 9] == [trip for trip in few if trip[2] != 9]
    assert rare
    assert all(not 3 * WINDOW_S < time < 250 - 3 * WINDOW_S for time in rare)


def test_a_window_can_be_cut_into_pieces_of_whole_seconds() -> None:
    from workloads.taxi.routes import WINDOW_S as OF_ROUTES

    assert all(OF_ROUTES % pieces == WINDOW_S % pieces == 0 for pieces in ROUNDS)
