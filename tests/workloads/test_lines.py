"""Spout of lines: records of each executor, snapshots, and how often each record is emitted."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.data.text import LineSpout, times_emitted
from workloads.operators import Context

SIZE = st.integers(1, 40)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Function that returns the path of a prepared file of a number of records; record i is `record i`."""
    folder = tmp_path_factory.mktemp("records")

    def path(size):
        file = folder / f"{size}.txt"
        if not file.exists():
            file.write_text("".join(f"record {i}\n" for i in range(size)))
        return str(file)

    return path


def opened(path, index, parallelism):
    spout = LineSpout()
    spout.open(Context("spout", index, parallelism, inputs={"text": path}))
    return spout


@given(SIZE, st.integers(1, 60), st.data())
def test_executor_i_of_n_emits_records_i_i_plus_n_and_so_on_in_a_loop(prepared, size, parallelism, data):
    index = data.draw(st.integers(0, parallelism - 1))
    limits = data.draw(st.lists(st.integers(1, 100), max_size=8))
    spout = opened(prepared(size), index, parallelism)
    emitted = []
    for limit in limits:
        batch = spout.next_batch(limit)
        assert len(batch) == limit
        emitted.extend(batch)
    assert emitted == [(f"record {(index + k * parallelism) % size}",) for k in range(sum(limits))]
    assert spout.position == len(emitted)


@given(SIZE, st.integers(1, 60), st.data())
def test_a_restored_spout_continues_where_the_snapshot_was_taken(prepared, size, parallelism, data):
    index = data.draw(st.integers(0, parallelism - 1))
    before, after, lost = (data.draw(st.integers(1, 100)) for _ in range(3))
    first, other = opened(prepared(size), index, parallelism), opened(prepared(size), index, parallelism)
    first.next_batch(before)
    state = first.snapshot()
    expected = first.next_batch(after)
    other.next_batch(lost)
    other.restore(state)
    assert other.position == before
    assert other.next_batch(after) == expected
    assert other.snapshot() == first.snapshot()


def test_a_position_of_billions_is_reached_at_once(prepared):
    spout = opened(prepared(40), 2, 7)
    there = opened(prepared(40), 2, 7)
    there.position = 10**12
    spout.restore(there.snapshot())
    assert spout.next_batch(1) == [(f"record {(2 + 10**12 * 7) % 40}",)]


def test_a_changed_file_is_read_again(tmp_path):
    path = tmp_path / "records.txt"
    path.write_text("old\n")
    assert opened(str(path), 0, 1).next_batch(2) == [("old",), ("old",)]
    path.write_text("longer\n")
    assert opened(str(path), 0, 1).next_batch(2) == [("longer",), ("longer",)]


@given(SIZE, st.lists(st.integers(0, 200), min_size=1, max_size=12))
def test_times_emitted_is_a_count_of_the_emitted_records(size, positions):
    n = len(positions)
    expected = Counter((i + k * n) % size for i, position in enumerate(positions) for k in range(position))
    assert times_emitted(size, positions) == [expected[record] for record in range(size)]


@given(SIZE, st.lists(st.integers(10**8, 10**12), min_size=1, max_size=12))
def test_times_emitted_adds_up_for_long_runs(size, positions):
    times = times_emitted(size, positions)
    assert sum(times) == sum(positions)
    one_loop_more = times_emitted(size, [position + size for position in positions])
    assert [b - a for a, b in zip(times, one_loop_more, strict=True)] == times_emitted(size, [size] * len(positions))
