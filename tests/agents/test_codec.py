"""The codec gives back what it was given, and nothing that the stream's schema does not allow."""

import math
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.worker.codec import TYPES, Codec, CodecError

VALUES = {
    "int": st.integers(-(2**63), 2**64 - 1),
    "float": st.floats(allow_nan=False),
    "str": st.text(),
    "bytes": st.binary(max_size=300),
    "bool": st.booleans(),
}


@st.composite
def batches(draw: st.DrawFn) -> tuple[dict[str, str], list[tuple]]:
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=5))
    rows = draw(st.lists(st.tuples(*(VALUES[kind] for kind in kinds)), max_size=20))
    return {f"f{at}": kind for at, kind in enumerate(kinds)}, rows


def exactly(rows: list[tuple]) -> list[list[tuple[type, object]]]:
    """Rows with the types of their fields, for 1 == 1.0 == True."""
    return [[(type(value), value) for value in row] for row in rows]


def test_there_is_a_strategy_for_every_type() -> None:
    assert VALUES.keys() == TYPES.keys()


@settings(deadline=None)
@given(batches())
def test_rows_come_back_as_they_were(batch: tuple[dict[str, str], list[tuple]]) -> None:
    schema, rows = batch
    codec = Codec(schema)
    decoded = codec.decode(codec.encode(rows), len(rows))
    assert exactly(decoded) == exactly(rows)
    assert all(type(row) is tuple for row in decoded)


@pytest.mark.parametrize("value", [math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308])
def test_special_floats_keep_their_bits(value: float) -> None:
    codec = Codec({"x": "float"})
    ((decoded,),) = codec.decode(codec.encode([(value,)]), 1)
    assert struct.pack("<d", decoded) == struct.pack("<d", value)


def test_not_a_number_stays_so() -> None:
    codec = Codec({"x": "float"})
    ((decoded,),) = codec.decode(codec.encode([(math.nan,)]), 1)
    assert math.isnan(decoded)


def test_what_was_decoded_does_not_look_into_the_received_bytes() -> None:
    codec = Codec({"x": "bytes", "y": "str"})
    received = bytearray(codec.encode([(b"kept", "kept")]))
    rows = codec.decode(memoryview(received), 1)
    received[:] = bytes(len(received))
    assert rows == [(b"kept", "kept")]


@pytest.mark.parametrize(
    "value", [2**64, -(2**63) - 1, "\ud800", object(), 1j, {1, 2j}], ids=lambda value: repr(value)[:12]
)
def test_what_no_stream_may_carry_is_refused_by_the_sender(value: object) -> None:
    with pytest.raises(CodecError, match="cannot be encoded"):
        Codec({"x": "int"}).encode([(value,)])


@pytest.mark.parametrize("kind", sorted(TYPES))
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_a_value_of_another_type_is_refused(kind: str, data: st.DataObject) -> None:
    other = data.draw(st.sampled_from(sorted(TYPES.keys() - {kind})))
    value = data.draw(VALUES[other])
    encoded = Codec({"x": other}).encode([(value,)])
    if (kind, other) == ("float", "int"):
        # The one widening: an int where a float is declared becomes one.
        assert exactly(Codec({"x": kind}).decode(encoded, 1)) == [[(float, float(value))]]
        return
    with pytest.raises(CodecError, match="no rows of the stream"):
        Codec({"x": kind}).decode(encoded, 1)


@pytest.mark.parametrize("row", [(), (1,), (1, 2, 3), None, "ab", {1: 2}])
def test_a_row_of_another_shape_is_refused(row: object) -> None:
    codec = Codec({"x": "int", "y": "int"})
    with pytest.raises(CodecError):
        codec.decode(codec.encode([row]), 1)


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=60), st.integers(0, 40))
def test_rubbish_gives_rows_of_the_schema_or_an_error(rubbish: bytes, count: int) -> None:
    try:
        rows = Codec({"n": "int", "s": "str"}).decode(rubbish, count)
    except CodecError:
        return
    assert len(rows) == count
    assert all(type(n) is int and type(s) is str for n, s in rows)


@settings(deadline=None, max_examples=200)
@given(batches(), st.data())
def test_a_torn_batch_is_refused(batch: tuple[dict[str, str], list[tuple]], data: st.DataObject) -> None:
    schema, rows = batch
    codec = Codec(schema)
    whole = codec.encode(rows)
    torn = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(CodecError):
        codec.decode(torn, len(rows))
    with pytest.raises(CodecError):
        codec.decode(whole + b"\x00", len(rows))


@pytest.mark.parametrize("claimed", [0, 2, 15, 16, 65_535, 65_536, 2**32 - 1])
def test_another_number_of_rows_than_the_frame_says_is_refused_unread(claimed: int) -> None:
    # Two million empty rows would be decoded before anyone could count them.
    codec = Codec({"x": "int"})
    with pytest.raises(CodecError, match="rows"):
        codec.decode(codec.encode([(7,)]), claimed)
    with pytest.raises(CodecError, match="rows"):
        codec.decode(b"\xdd" + claimed.to_bytes(4, "big") + b"\x91\x07" * min(claimed, 100_000), 1)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 65_535, 65_536])
def test_every_size_of_batch_is_counted(count: int) -> None:
    codec = Codec({})
    assert codec.decode(codec.encode([()] * count), count) == [()] * count
