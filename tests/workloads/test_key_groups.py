import os
import subprocess
import sys
from collections import Counter
from pydoc_data.topics import topics
from zlib import crc32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from workloads import key_groups
from workloads.key_groups import KEY_GROUPS, KeyRouter, codec_bytes, executor_of, key_group

FIELD = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary()
WORDS = sorted({word for text in topics.values() for word in text.split()})


def test_a_key_s_group_is_the_crc_of_its_messagepack_bytes():
    assert key_group(("whale",)) == crc32(b"\x91\xa5whale") % 1024
    assert key_group(("a", 7, True)) == crc32(b"\x93\xa1a\x07\x01") % 1024


def test_routes_are_the_same_in_every_process_whatever_the_hash_seed():
    script = (
        "import sys; from workloads.key_groups import KeyRouter; route = KeyRouter(12)\n"
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
    here = KeyRouter(12)
    assert printed == {f"{[here((word,)) for word in words]}\n"}


@pytest.mark.parametrize("parallelism", [1, 2, 3, 12, 40])
def test_real_words_are_dealt_evenly(parallelism):
    route = KeyRouter(parallelism)
    dealt = Counter(route((word,)) for word in WORDS)
    mean = len(WORDS) / parallelism
    assert set(dealt) == set(range(parallelism))
    assert all(abs(count - mean) < 5 * mean**0.5 for count in dealt.values())


@given(st.integers(1, KEY_GROUPS))
def test_groups_are_dealt_to_executors_in_equal_runs(parallelism):
    owners = [executor_of(group, parallelism) for group in range(KEY_GROUPS)]
    assert owners == sorted(owners)
    sizes = Counter(owners)
    assert set(sizes) == set(range(parallelism))
    assert max(sizes.values()) - min(sizes.values()) <= 1


@given(st.lists(FIELD, min_size=1, max_size=3).map(tuple), st.integers(1, 64))
def test_a_remembered_route_is_the_computed_one(key, parallelism):
    router = KeyRouter(parallelism)
    expected = executor_of(key_group(key), parallelism)
    assert [router(key), router.route(key), router(key)] == [expected] * 3


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


def test_a_key_that_no_stream_may_carry_is_refused():
    with pytest.raises(TypeError, match="not list"):
        key_group(([1],))
    with pytest.raises(OverflowError):
        key_group((2**64,))
    with pytest.raises(ValueError, match="at least 1"):
        KeyRouter(0)


def test_a_router_stays_bounded_and_right_when_keys_never_repeat(monkeypatch):
    monkeypatch.setattr(key_groups, "MOST_CACHED", 100)
    router = KeyRouter(7)
    cache = router.route.__self__
    for number in range(1000):
        assert router((f"key {number}",)) == executor_of(key_group((f"key {number}",)), 7)
        assert len(cache) <= 100


def test_a_router_keeps_no_view_into_a_received_frame():
    router = KeyRouter(5)
    view = memoryview(b"key and more")[:3]
    assert router((view,)) == router((b"key",))
    assert [type(field) for key in router.route.__self__ for field in key] == [bytes]
