"""Clock offsets: the true offset lies within the bound, whatever the two ways took."""

from hypothesis import given
from hypothesis import strategies as st

from campaign.clock import WINDOW, OffsetEstimate

delays = st.integers(0, 10**9)
exchanges = st.lists(st.tuples(delays, delays, delays), min_size=1, max_size=2 * WINDOW)


def estimate(offset: int, ways: list[tuple[int, int, int]]) -> OffsetEstimate:
    found = OffsetEstimate()
    now = 10**12
    for there, inside, back in ways:
        received = now + there + offset
        found.add(now, received, received + inside, now + there + inside + back)
        now += 10**9
    return found


@given(st.integers(-(10**15), 10**15), exchanges)
def test_the_true_offset_lies_within_the_bound(offset: int, ways: list[tuple[int, int, int]]) -> None:
    best = estimate(offset, ways).best
    assert best is not None
    assert abs(best.offset_ns - offset) <= best.bound_ns


@given(exchanges)
def test_the_narrowest_recent_exchange_counts(ways: list[tuple[int, int, int]]) -> None:
    best = estimate(0, ways).best
    assert best is not None
    assert best.bound_ns == min((there + back + 1) // 2 for there, _, back in ways[-WINDOW:])


def test_nothing_is_known_before_the_first_answer() -> None:
    assert OffsetEstimate().best is None
