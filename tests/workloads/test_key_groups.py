"""Key groups: hashes of keys, owners of groups, and their changes when a component is scaled."""

import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pydoc_data.topics import topics
from zlib import crc32

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from workloads import key_groups
from workloads.key_groups import (
    KEY_GROUPS,
    KeyRouter,
    codec_bytes,
    first_owners,
    groups_of,
    key_group,
    owned_groups,
    owner_runs,
    owners_from_runs,
    rebalanced,
)

FIELD = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary()
WORDS = sorted({word for text in topics.values() for word in text.split()})


def test_a_key_s_group_is_the_crc_of_its_messagepack_bytes():
    assert key_group(("whale",)) == crc32(b"\x91\xa5whale") % 1024
    assert key_group(("a", 7, True)) == crc32(b"\x93\xa1a\x07\x01") % 1024


def test_routes_are_the_same_in_every_process_whatever_the_hash_seed():
    script = (
        "import sys; from workloads.key_groups import KeyRouter, first_owners; route = KeyRouter(first_owners(12))\n"
        "print([route((word,)) for word in sys.stdin.read().split()])"
    )
    words = WORDS[::50]
    printed = {
        subprocess.run(
            [sys.executable, "-c", script],
            input=" ".join(words),
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    here = KeyRouter(first_owners(12))
    assert printed == {f"{[here((word,)) for word in words]}\n"}


@pytest.mark.parametrize("parallelism", [1, 2, 3, 12, 40])
def test_real_words_are_distributed_evenly(parallelism):
    route = KeyRouter(first_owners(parallelism))
    dealt = Counter(route((word,)) for word in WORDS)
    mean = len(WORDS) / parallelism
    assert set(dealt) == set(range(parallelism))
    assert all(abs(count - mean) < 5 * mean**0.5 for count in dealt.values())


@given(st.integers(1, KEY_GROUPS))
def test_executors_own_equal_runs_of_groups(parallelism):
    owners = first_owners(parallelism)
    assert len(owners) == KEY_GROUPS
    assert list(owners) == sorted(owners)
    sizes = Counter(owners)
    assert set(sizes) == set(range(parallelism))
    assert max(sizes.values()) - min(sizes.values()) <= 1
    assert [sizes[executor] for executor in range(parallelism)] == sorted(sizes.values(), reverse=True)


@settings(max_examples=10)
@given(st.lists(st.integers(0, 40), min_size=KEY_GROUPS, max_size=KEY_GROUPS).map(tuple))
def test_owners_survive_run_length_encoding(owners):
    runs = owner_runs(owners)
    assert owners_from_runs(runs) == owners
    assert all(first != second for (first, _), (second, _) in pairwise(runs))


def test_five_executors_own_groups_in_a_row():
    assert owner_runs(first_owners(5)) == ((0, 205), (1, 205), (2, 205), (3, 205), (4, 204))
    assert owner_runs(first_owners(1024)) == tuple((executor, 1) for executor in range(1024))


def test_a_fifth_executor_gets_the_highest_groups_of_the_others_and_gives_them_back():
    five = rebalanced(first_owners(4), 5)
    runs = [(0, 205), (4, 51), (1, 205), (4, 51), (2, 205), (4, 51), (3, 205), (4, 51)]
    assert owner_runs(five) == tuple(runs)
    assert [group for group in range(KEY_GROUPS) if five[group] == 4] == [
        *range(205, 256),
        *range(461, 512),
        *range(717, 768),
        *range(973, 1024),
    ]
    assert rebalanced(five, 4) == first_owners(4)


def test_only_the_groups_of_new_executors_change_owners():
    assert _moved(first_owners(4), rebalanced(first_owners(4), 5)) == 204
    assert _moved(first_owners(8), rebalanced(first_owners(8), 12)) == 340
    assert _moved(first_owners(8), first_owners(12)) == 892


def _moved(before, after):
    return sum(old != new for old, new in zip(before, after, strict=True))


@given(st.lists(st.integers(1, 1100), min_size=2, max_size=6))
def test_after_any_changes_every_group_has_one_owner_and_as_few_as_possible_move(numbers):
    owners = first_owners(numbers[0])
    for number in numbers[1:]:
        before, owners = owners, rebalanced(owners, number)
        assert len(owners) == KEY_GROUPS
        sizes, old_sizes = Counter(owners), Counter(before)
        assert [sizes[executor] for executor in range(number)] == [
            owned_groups(executor, number) for executor in range(number)
        ]
        # Only executors with too many groups, or that are removed, lose groups.
        assert _moved(before, owners) == sum(
            count - min(count, owned_groups(executor, number) if executor < number else 0)
            for executor, count in old_sizes.items()
        )
        assert rebalanced(owners, number) == owners


@given(st.integers(1, 1024), st.integers(1, 1024))
def test_a_change_is_undone_by_its_inverse(before, after):
    first = first_owners(before)
    assert rebalanced(rebalanced(first, after), before) == first


@given(st.lists(FIELD, min_size=1, max_size=3).map(tuple), st.integers(1, 64))
def test_a_cached_route_is_the_computed_one(key, parallelism):
    owners = first_owners(parallelism)
    router = KeyRouter(owners)
    expected = owners[key_group(key)]
    assert [router(key), router.route(key), router(key)] == [expected] * 3


@given(st.lists(FIELD | st.tuples(FIELD, FIELD, FIELD), max_size=20), st.integers(1, 3))
def test_keys_of_a_state_have_the_groups_of_the_key_that_they_begin_with(keys, fields):
    expected = [key_group(key[:fields] if isinstance(key, tuple) else (key,)) for key in keys]
    assert groups_of(keys, fields) == expected


@given(st.integers(-(2**53), 2**53))
@example(0)
@example(1)
def test_equal_keys_have_equal_bytes(number):
    same = [number, float(number), *([bool(number)] if number in (0, 1) else [])]
    assert len({codec_bytes((value,)) for value in same}) == 1


def test_equal_keys_have_equal_bytes_at_the_edges_of_the_integers():
    assert codec_bytes((-0.0,)) == codec_bytes((0,))
    assert codec_bytes((2.0**63,)) == codec_bytes((2**63,))
    assert codec_bytes((-(2.0**63),)) == codec_bytes((-(2**63),))
    assert codec_bytes((memoryview(b"ab"),)) == codec_bytes((b"ab",))
    codec_bytes((2.0**64,))


@given(st.lists(st.tuples(st.text() | st.integers(0, 50) | st.binary()), min_size=2, max_size=2, unique=True))
def test_different_keys_have_different_bytes(pair):
    assert codec_bytes(pair[0]) != codec_bytes(pair[1])


def test_an_unsupported_key_is_refused():
    with pytest.raises(TypeError, match="not list"):
        key_group(([1],))
    with pytest.raises(OverflowError):
        key_group((2**64,))
    with pytest.raises(ValueError, match="at least 1"):
        first_owners(0)


def test_a_router_stays_bounded_and_right_when_keys_never_repeat(monkeypatch):
    monkeypatch.setattr(key_groups, "MOST_CACHED", 100)
    owners = first_owners(7)
    router = KeyRouter(owners)
    cache = router.route.__self__
    for number in range(1000):
        assert router((f"key {number}",)) == owners[key_group((f"key {number}",))]
        assert len(cache) <= 100


def test_a_router_keeps_no_view_into_a_received_frame():
    router = KeyRouter(first_owners(5))
    view = memoryview(b"key and more")[:3]
    assert router((view,)) == router((b"key",))
    assert [type(field) for key in router.route.__self__ for field in key] == [bytes]
