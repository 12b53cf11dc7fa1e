"""Heaviest matchings: as heavy as the best of all, and consistent."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler.online.replanning import heaviest_matching

WEIGHTS = st.dictionaries(
    st.integers(0, 5), st.dictionaries(st.sampled_from("abcde"), st.integers(0, 9), max_size=5), max_size=5
)


def heaviest(weight: dict[int, dict[str, int]], rows: list[int], used: frozenset[str] = frozenset()) -> int:
    """Return the weight of the best of all matchings."""
    if not rows:
        return 0
    row, *others = rows
    taken = (w + heaviest(weight, others, used | {c}) for c, w in weight[row].items() if c not in used)
    return max([heaviest(weight, others, used), *taken])


@given(WEIGHTS)
def test_no_matching_is_heavier_and_no_column_is_used_twice(weight: dict[int, dict[str, int]]) -> None:
    total, pairs = heaviest_matching(weight)
    assert total == sum(weight[row][column] for row, column in pairs.items()) == heaviest(weight, list(weight))
    assert len(set(pairs.values())) == len(pairs)
