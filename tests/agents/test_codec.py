"""Codec: rows are decoded as they were encoded, and only values of the stream's schema are accepted."""

import math
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis_examples import times

from agents.worker.wire.frame import LARGE_BYTES, TYPES, Codec, CodecError

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


def encoded(codec: Codec, rows: list[tuple]) -> bytes:
    return b"".join(codec.encode(rows))


def exactly(rows: list[tuple]) -> list[list[tuple[type, object]]]:
    """Return rows with the types of their fields, because 1 == 1.0 == True."""
    return [[(type(value), value) for value in row] for row in rows]


def test_there_is_a_strategy_for_every_type() -> None:
    assert VALUES.keys() == TYPES.keys()


@settings(deadline=None)
@given(batches())
def test_rows_come_back_as_they_were(batch: tuple[dict[str, str], list[tuple]]) -> None:
    schema, rows = batch
    codec = Codec(schema)
    decoded = codec.decode(encoded(codec, rows), len(rows))
    assert exactly(decoded) == exactly(rows)
    assert all(type(row) is tuple for row in decoded)


@pytest.mark.parametrize("value", [math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308])
def test_special_floats_keep_their_bits(value: float) -> None:
    codec = Codec({"x": "float"})
    ((decoded,),) = codec.decode(encoded(codec, [(value,)]), 1)
    assert struct.pack("<d", decoded) == struct.pack("<d", value)


def test_nan_stays_nan() -> None:
    codec = Codec({"x": "float"})
    ((decoded,),) = codec.decode(encoded(codec, [(math.nan,)]), 1)
    assert math.isnan(decoded)


def test_decoded_rows_do_not_reference_the_received_bytes() -> None:
    codec = Codec({"x": "bytes", "y": "str"})
    received = bytearray(encoded(codec, [(b"kept", "kept")]))
    rows = codec.decode(memoryview(received), 1)
    received[:] = bytes(len(received))
    assert rows == [(b"kept", "kept")]


@pytest.mark.parametrize(
    "value", [2**64, -(2**63) - 1, "\ud800", object(), 1j, {1, 2j}], ids=lambda value: repr(value)[:12]
)
def test_unsupported_values_are_refused_by_the_sender(value: object) -> None:
    with pytest.raises(CodecError, match="cannot be encoded"):
        Codec({"x": "int"}).encode([(value,)])


@pytest.mark.parametrize("kind", sorted(TYPES))
@given(data=st.data())
def test_a_value_of_another_type_is_refused(kind: str, data: st.DataObject) -> None:
    other = data.draw(st.sampled_from(sorted(TYPES.keys() - {kind})))
    value = data.draw(VALUES[other])
    sent = encoded(Codec({"x": other}), [(value,)])
    if (kind, other) == ("float", "int"):
        # The one widening: an int where a float is declared becomes one.
        assert exactly(Codec({"x": kind}).decode(sent, 1)) == [[(float, float(value))]]
        return
    with pytest.raises(CodecError, match="no rows of the stream"):
        Codec({"x": kind}).decode(sent, 1)


@pytest.mark.parametrize("row", [(), (1,), (1, 2, 3), None, "ab", {1: 2}])
def test_a_row_of_another_shape_is_refused(row: object) -> None:
    codec = Codec({"x": "int", "y": "int"})
    with pytest.raises(CodecError):
        codec.decode(encoded(codec, [row]), 1)


@settings(max_examples=times(4))
@given(st.binary(max_size=60), st.integers(0, 40))
def test_rubbish_gives_rows_of_the_schema_or_an_error(rubbish: bytes, count: int) -> None:
    try:
        rows = Codec({"n": "int", "s": "str"}).decode(rubbish, count)
    except CodecError:
        return
    assert len(rows) == count
    assert all(type(n) is int and type(s) is str for n, s in rows)


@settings(max_examples=times(4))
@given(batches(), st.data())
def test_a_torn_batch_is_refused(batch: tuple[dict[str, str], list[tuple]], data: st.DataObject) -> None:
    schema, rows = batch
    codec = Codec(schema)
    whole = encoded(codec, rows)
    torn = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(CodecError):
        codec.decode(torn, len(rows))
    with pytest.raises(CodecError):
        codec.decode(whole + b"\x00", len(rows))


@pytest.mark.parametrize("claimed", [0, 2, 15, 16, 65_535, 65_536, 2**32 - 1])
def test_a_wrong_number_of_rows_is_refused_before_decoding(claimed: int) -> None:
    # Two million empty rows would be decoded before anyone could count them.
    codec = Codec({"x": "int"})
    with pytest.raises(CodecError, match="rows"):
        codec.decode(encoded(codec, [(7,)]), claimed)
    with pytest.raises(CodecError, match="rows"):
        codec.decode(b"\xdd" + claimed.to_bytes(4, "big") + b"\x91\x07" * min(claimed, 100_000), 1)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 65_535, 65_536])
def test_every_size_of_batch_is_counted(count: int) -> None:
    codec = Codec({})
    assert codec.decode(encoded(codec, [()] * count), count) == [()] * count


BLOBS = {"n": "int", "first": "bytes", "s": "str", "second": "bytes"}


@st.composite
def large(draw: st.DrawFn) -> list[tuple]:
    """Rows whose `bytes` fields are large on average, some of them empty."""
    sizes = st.sampled_from([0, 1, LARGE_BYTES, 3 * LARGE_BYTES])
    blobs = st.builds(lambda size, fill: bytes([fill]) * size, sizes, st.integers(0, 255))
    rows = draw(st.lists(st.tuples(VALUES["int"], blobs, st.text(max_size=5), blobs), min_size=1, max_size=8))
    return [*rows, (0, bytes(LARGE_BYTES * (len(rows) + 1)), "", b"")]


@given(large())
def test_large_fields_follow_the_rest_without_a_copy_and_are_decoded_as_they_were(rows: list[tuple]) -> None:
    codec = Codec(BLOBS)
    head, *fields = codec.encode(rows)
    expected = [field for _, first, _, second in rows for field in (first, second)]
    assert all(a is b for a, b in zip(fields, expected, strict=True))
    assert head[0] == 0xC1
    received = bytearray(encoded(codec, rows))
    decoded = codec.decode(memoryview(received), len(rows))
    # Decoded rows own their bytes: the receive buffer is reused.
    received[:] = bytes(len(received))
    assert exactly(decoded) == exactly(rows)


def test_only_large_fields_of_type_bytes_are_sent_separately() -> None:
    codec, size = Codec({"x": "bytes"}), LARGE_BYTES
    assert len(codec.encode([(bytes(size),)] * 2)) == 3
    assert len(codec.encode([(bytes(size - 1),)] * 2)) == 1
    # The owner of a view's buffer may go on writing to it.
    assert len(codec.encode([(memoryview(bytes(size)),), (bytes(size),)])) == 1
    assert len(Codec({"x": "str"}).encode([("x" * size,)])) == 1


@settings(max_examples=times(4))
@given(large(), st.data())
def test_a_torn_batch_of_large_fields_is_refused(rows: list[tuple], data: st.DataObject) -> None:
    codec = Codec(BLOBS)
    whole = encoded(codec, rows)
    near_the_head = st.integers(0, min(len(whole) - 1, 200))
    for cut in (*range(1, 6), data.draw(near_the_head), data.draw(st.integers(0, len(whole) - 1))):
        with pytest.raises(CodecError):
            codec.decode(whole[:cut], len(rows))
    for other in (len(rows) - 1, len(rows) + 1):
        with pytest.raises(CodecError):
            codec.decode(whole, other)
    with pytest.raises(CodecError):
        codec.decode(whole + b"\x00", len(rows))


@settings(max_examples=times(4))
@given(st.lists(st.tuples(st.integers(0, 120), st.integers(0, 255)), min_size=1, max_size=6), st.integers(1, 4))
def test_a_batch_of_large_fields_with_other_bytes_gives_rows_of_the_schema_or_an_error(
    changes: list[tuple[int, int]], count: int
) -> None:
    codec = Codec(BLOBS)
    data = bytearray(encoded(codec, [(7, bytes(LARGE_BYTES), "word", b"x")] * count))
    for at, value in changes:
        data[at % len(data)] = value
    try:
        rows = codec.decode(data, count)
    except CodecError:
        return
    assert [tuple(map(type, row)) for row in rows] == [(int, bytes, str, bytes)] * count


@pytest.mark.parametrize("length", [-1, 2**63, 2**64 - 1, LARGE_BYTES + 1, LARGE_BYTES - 1])
def test_a_large_field_of_the_wrong_length_is_refused(length: int) -> None:
    codec = Codec({"x": "bytes"})
    head = b"".join(Codec({"x": "int"}).encode([(length,)]))
    with pytest.raises(CodecError, match="bytes"):
        codec.decode(b"\xc1" + len(head).to_bytes(4, "little") + head + bytes(LARGE_BYTES), 1)
