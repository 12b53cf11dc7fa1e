"""Clock offsets: the true offset lies within the bound, whatever the delays in both directions."""

from hypothesis import given
from hypothesis import strategies as st

from controller.coordinator.clock_offset import DRIFT, WINDOW, Offset, OffsetEstimate

delays = st.integers(0, 10**9)
exchanges = st.lists(st.tuples(delays, delays, delays), min_size=1, max_size=2 * WINDOW)


def estimate(offset: int, drift: float, ways: list[tuple[int, int, int]]) -> tuple[Offset | None, int]:
    """Return the estimate for a clock that starts `offset` ahead and gains `drift`, and its true offset at the end."""
    found = OffsetEstimate()

    def there_at(now: int) -> int:
        return now + offset + round(now * drift)

    now = 0
    for there, inside, back in ways:
        received, answered, arrived = now + there, now + there + inside, now + there + inside + back
        found.add(now, there_at(received), there_at(answered), arrived)
        now = arrived + 10**9
    return found.at(now), there_at(now) - now


@given(st.integers(-(10**15), 10**15), st.floats(-DRIFT, DRIFT), exchanges)
def test_the_true_offset_lies_within_the_bound(offset: int, drift: float, ways: list[tuple[int, int, int]]) -> None:
    found, truth = estimate(offset, drift, ways)
    assert found is not None
    # Four readings and two ages are rounded to whole nanoseconds.
    assert abs(found.offset_ns - truth) <= found.bound_ns + 4


def test_an_old_tight_exchange_counts_until_a_fresh_one_is_tighter() -> None:
    found = OffsetEstimate()
    found.add(0, 500, 500, 1000)
    assert found.at(1000 + 10**8) == (0, 500 + round(10**8 * DRIFT))
    found.add(10**9, 10**9 + 40_000, 10**9 + 40_000, 10**9 + 50_000)
    assert found.at(10**9 + 50_000) == (15_000, 25_000 + round(50_000 * DRIFT))


def test_only_recent_exchanges_are_kept() -> None:
    found = OffsetEstimate()
    found.add(0, 0, 0, 0)
    for second in range(1, WINDOW + 1):
        found.add(second * 10**9, 10**6 + second * 10**9, 10**6 + second * 10**9, 2 * 10**6 + second * 10**9)
    last = found.at(WINDOW * 10**9 + 2 * 10**6)
    assert last is not None
    assert last.bound_ns > 10**6


def test_the_offset_is_unknown_before_the_first_reply() -> None:
    assert OffsetEstimate().at(0) is None
