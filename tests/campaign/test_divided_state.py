"""Stateful bolts of the built-in workloads emit the same rows after their state is divided and merged."""

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaign.admin.checks.restores import divided, merged_operator
from inventory.times import NS
from workloads.apps.exclamation import LastExclaim
from workloads.apps.top_n import Rank, RollingCount
from workloads.apps.wordcount_operators import Count, CountCombined
from workloads.operator_state import OperatorState
from workloads.operators import Batch, Bolt, Emitted, Row
from workloads.smart_home.application import SmartHomeParams
from workloads.smart_home.loads import HouseLoads, LoadPredictor, PredictionSink
from workloads.taxi import rides, routes
from workloads.topology import Component, Input

Rows = Callable[[Random, int], tuple[str, Row]]
"""Function that makes the row of a number in the input; returns its source component and the row."""

START_S, TICK_S, ROWS_PER_TICK = 1_377_986_400, 60, 7
"""Stream time of the first row, seconds between ticks, and rows between ticks."""


def time_s(number: int) -> int:
    """Return the stream time of a row; a tick has that of the next row."""
    return START_S + number // ROWS_PER_TICK * TICK_S + number % ROWS_PER_TICK


def words(random: Random, number: int) -> tuple[str, Row]:
    return "split", (random.choice("abcdefghij"),)


def counted(random: Random, number: int) -> tuple[str, Row]:
    return "split", (random.choice("abcdefghij"), random.randrange(1, 5))


def readings(random: Random, number: int) -> tuple[str, Row]:
    plug = random.randrange(3), random.randrange(2), random.randrange(2)
    return "source", (*plug, random.randrange(2), number / 2, time_s(number), number)


def loads(random: Random, number: int) -> tuple[str, Row]:
    return "source", readings(random, number)[1][:5]


def trips(random: Random, number: int) -> tuple[str, Row]:
    return "route", (number, random.randrange(20), time_s(number), START_S, 0)


def listed(random: Random, number: int) -> tuple[str, Row]:
    # Each route once between two ticks, as a counting bolt emits them.
    return "count", (random.randrange(9), number, random.randrange(7) * ROWS_PER_TICK + number % ROWS_PER_TICK)


def ranked(random: Random, number: int) -> tuple[str, Row]:
    return "count", (f"w{random.randrange(3) * ROWS_PER_TICK + number % ROWS_PER_TICK}", random.randrange(1, 5))


def paid(random: Random, number: int) -> tuple[str, Row]:
    start, end, taxi = random.randrange(9), random.randrange(9), f"taxi {random.randrange(6)}"
    return "amount", (number, start, time_s(number), random.randrange(900), end, taxi, START_S, 0)


def areas(random: Random, number: int) -> tuple[str, Row]:
    cell = random.randrange(20)
    if random.random() < 0.5:
        return "profit", (cell, random.randrange(3), random.randrange(1, 900), number)
    return "taxi", (cell, number, 1)


def predictions(random: Random, number: int) -> tuple[str, Row]:
    return random.choice([("house", (1, 60, 0, number, 1.5, 2)), ("plug", (1, 60, 0, number, 1, 1, 1.5, 2))])


FILLED = SmartHomeParams(slices=(60, 300), day_s=900, fill="work")
KEYED: Mapping[str, tuple[Callable[[], Bolt], Rows]] = {
    "wordcount": (Count, words),
    "wordcount, combined": (CountCombined, counted),
    "top-n count": (lambda: RollingCount(3, 3), words),
    "top-n rank": (lambda: Rank(3), ranked),
    "plugs": (lambda: LoadPredictor(SmartHomeParams(slices=(60, 300), day_s=900)), loads),
    "plugs with work": (lambda: LoadPredictor(FILLED), readings),
    "houses": (lambda: HouseLoads(FILLED), readings),
    "routes": (routes.CountRoutes, trips),
    "ranked routes": (routes.RankRoutes, listed),
    "profits": (rides.Profit, paid),
    "taxis": (rides.TaxiPositions, paid),
    "areas": (rides.Value, areas),
}
MERGING: Mapping[str, tuple[Callable[[], Bolt], Rows]] = {
    "digest": (LastExclaim, words),
    "predictions": (PredictionSink, predictions),
}


def work(bolts: Iterable[Bolt], rows: Rows, random: Random, first: int, count: int) -> list[list[Any]]:
    """Process the same rows with all bolts, from number `first`, and ticks between; return their sorted output."""
    emitted: list[list[Any]] = [[] for _ in bolts]

    def record(given: Iterable[Emitted]) -> None:
        for so_far, more in zip(emitted, given, strict=True):
            so_far.append(sorted(row for part in more.values() for row in part))

    for number in range(first, first + count):
        source, row = rows(random, number)
        record([bolt.process(Batch(source, "default", [row])) for bolt in bolts])
        if number % ROWS_PER_TICK == ROWS_PER_TICK - 1:
            record([bolt.on_tick(time_s(number + 1) * NS) for bolt in bolts])
    return emitted


def answers(bolt: Bolt) -> list[list[Row]]:
    return [sorted([*table.settled(), *table.answer()]) for table in bolt.tables()]


@pytest.mark.parametrize("name", sorted(KEYED))
@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6), before=st.integers(0, 150), after=st.integers(1, 60))
def test_state_divided_among_any_owners_and_merged_is_unchanged(name: str, seed: int, before: int, after: int):
    make, rows = KEYED[name]
    fields = ("house", "household", "plug") if name.startswith("plugs") else ("key",)
    component = Component("bolt", "bolt", inputs=(Input("read", "fields", fields),))
    random = Random(seed)  # noqa: S311 - repeatable
    bolt = make()
    work([bolt], rows, random, 0, before)
    again = divided(bolt, component, 0, make, random)
    assert isinstance(again, Bolt)
    one, other = work([bolt, again], rows, random, before, after)
    assert one == other
    assert answers(bolt) == answers(again)


@pytest.mark.parametrize("name", sorted(MERGING))
@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6), count=st.integers(0, 60), shares=st.integers(1, 4))
def test_states_of_any_executors_merge_into_that_of_one(name: str, seed: int, count: int, shares: int):
    make, rows = MERGING[name]
    random = Random(seed)  # noqa: S311 - repeatable
    whole, parts = make(), [make() for _ in range(shares)]
    for number in range(count):
        source, row = rows(random, number)
        for bolt in (whole, random.choice(parts)):
            bolt.process(Batch(source, "default", [row]))
    again = merged_operator([OperatorState(part).snapshot() for part in parts], make)
    assert isinstance(again, Bolt)
    assert answers(again) == answers(whole)
