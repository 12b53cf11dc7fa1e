"""Snapshots are bytes that give the same state back, and other bytes are refused by what they begin with."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol import Worked
from agents.worker.executors.snapshot import Snapshot
from inventory.errors import RunError

I64 = st.integers(0, 2**63 - 1)
SNAPSHOTS = st.builds(Snapshot, st.binary(max_size=300), I64, I64, st.builds(Worked, I64, I64))


def stored(snapshot: Snapshot) -> bytes:
    return b"".join(snapshot.pieces())


@given(SNAPSHOTS)
def test_a_snapshot_comes_back_as_it_was(snapshot: Snapshot) -> None:
    assert Snapshot.read(stored(snapshot)) == snapshot


def test_the_operators_state_is_not_copied() -> None:
    state = bytes(1_000_000)
    assert Snapshot(state, 5, 2).pieces()[-1] is state


@given(SNAPSHOTS, st.data())
def test_a_snapshot_that_is_not_whole_is_refused(snapshot: Snapshot, data: st.DataObject) -> None:
    whole = stored(snapshot)
    torn = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(RunError, match=r"snapshot"):
        Snapshot.read(torn)
    with pytest.raises(RunError, match=r"snapshot"):
        Snapshot.read(whole + b"x")


@pytest.mark.parametrize("wrong", [b"", b"MLRS", b"MLRX" + bytes(60), b"ARROW1" + bytes(60), b"MLRS\x01" + bytes(60)])
def test_other_bytes_are_refused_by_what_they_begin_with(wrong: bytes) -> None:
    with pytest.raises(RunError, match=rf"{len(wrong)} bytes"):
        Snapshot.read(wrong)


@given(st.binary(max_size=200))
def test_rubbish_is_refused(rubbish: bytes) -> None:
    with pytest.raises(RunError):
        Snapshot.read(rubbish)
