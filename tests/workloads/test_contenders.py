"""Trips that pipelines leave out: no listing at any time is another one without them."""

from collections import Counter
from itertools import pairwise
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workloads.pipelines.contenders import ROUNDS, contenders

WINDOW_S, LISTED = 12, 2

Trip = tuple[int, int, int]
"""Number, time, route."""


def listing(trips: list[Trip], at: int) -> list[tuple[int, int, int]]:
    """Count, newest trip and route of the routes with the most trips in the window, the best first."""
    there = [(seq, route) for seq, time, route in trips if at - WINDOW_S < time <= at]
    newest = dict.fromkeys(route for _, route in there) | {route: seq for seq, route in there}
    counts = Counter(route for _, route in there)
    return sorted(((counts[route], newest[route] or 0, route) for route in counts), reverse=True)[:LISTED]


def kept(trips: list[Trip]) -> list[Trip]:
    times, routes = (np.array([trip[at] for trip in trips], np.int64) for at in (1, 2))
    mask = contenders(times, routes, WINDOW_S, LISTED)
    return [trip for trip, is_kept in zip(trips, mask, strict=True) if is_kept]


@given(st.integers(0, 1 << 32), st.sampled_from([1.1, 1.5, 3.0]), st.lists(st.integers(0, 300), max_size=6))
def test_no_listing_changes_whatever_is_cut_into_stretches(seed: int, skew: float, cuts: list[int]) -> None:
    random = Random(seed)  # noqa: S311 - no secret
    trips, now = [], random.randrange(-100, 100)
    for seq in range(300):
        now += random.choice([0, 0, 0, 1, 1, 2]) if random.random() < 0.99 else 40
        trips.append((seq, now, int(random.paretovariate(skew))))
    bounds = [0, *sorted(cuts), len(trips)]
    few = [trip for begin, end in pairwise(bounds) for trip in kept(trips[begin:end])]
    for at in range(trips[0][1], trips[-1][1] + WINDOW_S):
        assert listing(few, at) == listing(trips, at)


def test_trips_of_a_route_that_others_leave_behind_go_and_those_at_the_ends_stay() -> None:
    trips = [(seq, seq // 4, 9 if seq % 40 == 20 else seq % 2) for seq in range(1000)]
    few = kept(trips)
    rare = [time for _, time, route in few if route == 9]
    assert [trip for trip in trips if trip[2] != 9] == [trip for trip in few if trip[2] != 9]
    assert rare
    assert all(not 3 * WINDOW_S < time < 250 - 3 * WINDOW_S for time in rare)


def test_a_window_can_be_cut_into_pieces_of_whole_seconds() -> None:
    from workloads.taxi.routes import WINDOW_S as OF_ROUTES

    assert all(OF_ROUTES % pieces == WINDOW_S % pieces == 0 for pieces in ROUNDS)
