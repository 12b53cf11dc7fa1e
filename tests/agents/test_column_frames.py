"""Column frames: columns are decoded as they were sent; anything else is refused or safe to read."""

import struct
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from column_rows import CUTS, ENCODED, Encoders, Stream, exact_values, in_chunks, streams
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis_examples import times

from agents.worker.channels.channel import DECODED_BYTES, Barrier, ChannelId, CreditWindow
from agents.worker.channels.ends import RemoteIncoming, RemoteOutgoing, local_channel, mark_of
from agents.worker.channels.linger import FlushTimer
from agents.worker.wire import frame
from agents.worker.wire.columns import ALIGNMENT, ColumnCodec
from agents.worker.wire.frame import Codec, CodecError, FrameReader
from inventory.errors import RunError
from workloads.columns import Columns
from workloads.dictionaries import Dictionary, DictionaryEncoder, dictionary_of

KEY = ChannelId(4, 9, 1)


def body(codec: ColumnCodec, columns: Columns, at: int = 0) -> bytes:
    return b"".join(codec.encode(columns).pieces(at))


@settings(deadline=None)
@given(streams(), CUTS, ENCODED, st.integers(0, 200))
def test_columns_come_back_as_they_were(stream: Stream, cuts: list[int], encoded: list[bool], at: int) -> None:
    schema, rows = stream
    codec = ColumnCodec(schema)
    sent = body(codec, in_chunks(schema, rows, cuts, encoded), at)
    assert (at + len(sent)) % ALIGNMENT == 0
    received = codec.decode(memoryview(sent), len(rows), at)
    assert exact_values(received.to_rows()) == exact_values(rows)
    assert received.plain().schema.types == ColumnCodec(schema)._arrow.types


def test_received_columns_do_not_reference_the_received_bytes() -> None:
    codec = ColumnCodec({"x": "bytes", "y": "str", "n": "int"})
    sent = bytearray(body(codec, Columns.of_rows(codec.schema, [(b"kept", "kept", 7)])))
    received = codec.decode(memoryview(sent), 1)
    sent[:] = bytes(len(sent))
    assert received.to_rows() == [(b"kept", "kept", 7)]


def test_repeated_strings_are_sent_once() -> None:
    codec = ColumnCodec({"word": "str"})
    columns = in_chunks(codec.schema, [("often",), ("seldom",)] * 500, [], [True])
    assert b"".join(map(bytes, codec.encode(columns).body)).count(b"often") == 1
    # The whole dictionary would be larger than a few of its rows.
    few = body(codec, columns[:1])
    assert b"seldom" not in few
    assert codec.decode(memoryview(few), 1).to_rows() == [("often",)]


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, "x", None, 1.5])
def test_a_value_that_fits_no_int_column_is_named_with_stream_and_column(value: object) -> None:
    with pytest.raises(RunError, match=r"stream 's' of a, column 'n': .* int64") as fault:
        Columns.of_rows({"k": "str", "n": "int"}, [("a", 1), ("b", value), ("c", 2)], "stream 's' of a")
    assert repr(value) in str(fault.value)


@pytest.mark.parametrize("row", [(), (1,), (1, 2, 3)])
def test_a_row_of_another_width_cannot_become_columns(row: tuple) -> None:
    with pytest.raises(RunError, match="2 fields x, y"):
        Columns.of_rows({"x": "int", "y": "int"}, [(1, 2), row])


def test_a_stream_without_fields_has_no_columns() -> None:
    with pytest.raises(RunError, match="without fields"):
        Columns.of_rows({}, [()])


SCHEMA = {"i": "int", "f": "float", "s": "str", "b": "bytes", "t": "bool"}
ROWS = [(at % 3, at / 2, f"väl{at % 4}", bytes([at % 2]) * (at % 3), at % 5 == 0) for at in range(24)]
CODEC = ColumnCodec(SCHEMA)
SENT = {encoded: body(CODEC, in_chunks(SCHEMA, ROWS, [], [encoded])) for encoded in (False, True)}

mutations = st.lists(st.tuples(st.integers(0, 1 << 12), st.integers(0, 255)), min_size=1, max_size=4)


def read_everything(columns: Columns, count: int) -> None:
    """Touch every byte that a column refers to, in all the ways in which the data plane does."""
    assert len(columns) == count
    rows = columns.to_rows()
    assert len(rows) == count
    batch = columns.batch()
    batch.validate(full=True)
    assert columns.plain().take(pa.array(np.arange(count)[::-1])).num_rows == count
    again = ColumnCodec(columns.schema)
    assert exact_values(again.decode(memoryview(body(again, columns)), count).to_rows()) == exact_values(rows)


@pytest.mark.parametrize("encoded", [False, True])
@settings(max_examples=times(4))
@given(changes=mutations)
def test_an_altered_frame_is_refused_or_safe_to_read(encoded: bool, changes: list[tuple[int, int]]) -> None:
    changed = bytearray(SENT[encoded])
    for at, byte in changes:
        changed[at % len(changed)] = byte
    try:
        received = CODEC.decode(memoryview(changed), len(ROWS))
    except CodecError:
        return
    read_everything(received, len(ROWS))


@settings(max_examples=times(4))
@given(st.booleans(), st.integers(0, 1 << 12), st.integers(0, 64))
def test_a_torn_or_prolonged_frame_is_refused(encoded: bool, cut: int, more: int) -> None:
    sent = SENT[encoded]
    torn = sent[: cut % len(sent)]
    for wrong in (torn, torn + bytes(more), sent + bytes(more + 1)):
        if wrong != sent:
            with pytest.raises(CodecError):
                CODEC.decode(memoryview(wrong), len(ROWS))


@pytest.mark.parametrize("count", [1, 23, 25, frame.MAX_ROWS])
@pytest.mark.parametrize("encoded", [False, True])
def test_another_number_of_rows_is_refused_without_taking_memory(encoded: bool, count: int) -> None:
    tracemalloc.start()
    with pytest.raises(CodecError):
        CODEC.decode(memoryview(SENT[encoded]), count)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def _frame_of(column: pa.Array, kind: str = "str") -> tuple[ColumnCodec, bytearray]:
    codec = ColumnCodec({"x": kind})
    batch = pa.RecordBatch.from_arrays([column], names=["x"])
    return codec, bytearray(body(codec, Columns(codec.schema, batch)))


def _buffer_at(sent: bytearray, value: bytes) -> int:
    at = sent.index(value, ALIGNMENT)
    assert sent.count(value, ALIGNMENT) == 1
    return at


@pytest.mark.parametrize(
    ("offsets", "why"),
    [((0, 9, 2), "offset"), ((1, 2, 4), "offset"), ((0, 2, 3), "offset"), ((0, -1, 4), "offset"), ((0, 2, 2**30), "")],
)
def test_offsets_out_of_order_or_bounds_are_refused(offsets: tuple[int, ...], why: str) -> None:
    codec, sent = _frame_of(pa.array(["ab", "cd"]))
    at = _buffer_at(sent, struct.pack("<3i", 0, 2, 4))
    sent[at : at + 12] = struct.pack("<3i", *offsets)
    with pytest.raises(CodecError, match=f"(?i){why}"):
        codec.decode(memoryview(sent), 2)


@pytest.mark.parametrize("index", [2, -1, 2**31 - 1, -(2**31)])
def test_dictionary_indices_out_of_range_are_refused(index: int) -> None:
    column = pa.array(["a", "b", "a", "b"]).dictionary_encode()
    codec, sent = _frame_of(column)
    at = _buffer_at(sent, struct.pack("<4i", 0, 1, 0, 1))
    sent[at : at + 4] = struct.pack("<i", index)
    with pytest.raises(CodecError, match="dictionary of 2 entries"):
        codec.decode(memoryview(sent), 4)


def test_bytes_that_are_no_utf_8_are_refused_in_a_str_column_only() -> None:
    for kind, column in (("str", pa.array(["aé"])), ("bytes", pa.array(["aé".encode()]))):
        codec, sent = _frame_of(column, kind)
        at = _buffer_at(sent, "é".encode())
        sent[at] = 0xFF
        if kind == "bytes":
            assert codec.decode(memoryview(sent), 1).to_rows() == [(b"a\xff\xa9",)]
        else:
            with pytest.raises(CodecError, match=r"(?i)utf-?8"):
                codec.decode(memoryview(sent), 1)


def test_a_dictionary_is_for_str_and_bytes_only() -> None:
    codec, sent = _frame_of(pa.array([1, 2]), "int")
    sent[0] = 1
    with pytest.raises(CodecError, match="encoding 1 of a column of int64"):
        codec.decode(memoryview(sent), 2)


class RecordedLink:
    """A link that records the bytes written to it."""

    def __init__(self) -> None:
        self.bytes = bytearray()

    def write(self, pieces: list[bytes]) -> None:
        self.bytes += b"".join(pieces)


@given(streams(), CUTS, ENCODED, st.sets(st.integers(0, 29)))
def test_columns_with_stamps_cross_a_channel_between_workers(
    stream: Stream, cuts: list[int], encoded: list[bool], sampled: set[int]
) -> None:
    schema, rows = stream
    forward, backward, queue = RecordedLink(), RecordedLink(), []
    size = CreditWindow(100, 1 << 20)
    outgoing = RemoteOutgoing(KEY, 1, size, FlushTimer(), Codec(schema), 2, forward)
    incoming = RemoteIncoming(KEY, ("a", "s"), queue, size, Codec(schema), 2, backward)
    stamps = [(at, 100 + at) for at in sorted(sampled) if at < len(rows)]
    outgoing.add(in_chunks(schema, rows, cuts, encoded), stamps)
    outgoing.flush()
    (received,) = FrameReader(2).feed(forward.bytes)
    incoming.receive(received)
    (delivery,) = queue
    assert isinstance(delivery.rows, Columns)
    assert exact_values(list(delivery.rows)) == exact_values(rows)
    assert list(delivery.stamps) == stamps
    # Both ends count the same bytes of the window.
    assert delivery.nbytes == outgoing.nbytes == len(forward.bytes)


def test_rows_and_columns_on_one_channel_keep_their_order() -> None:
    schema, queue, forward = {"n": "int"}, [], RecordedLink()
    size = CreditWindow(100, 1 << 20)
    outgoing = RemoteOutgoing(KEY, 1, size, FlushTimer(), Codec(schema), 2, forward)
    incoming = RemoteIncoming(KEY, ("a", "s"), queue, size, Codec(schema), 2, RecordedLink())
    outgoing.add([(0,)], [(0, 5)])
    outgoing.add(Columns.of_rows(schema, [(1,), (2,)]), [(1, 6)])
    outgoing.add([(3,)], [(0, 7)])
    outgoing.flush()
    for received in FrameReader(2).feed(forward.bytes):
        incoming.receive(received)
    assert [row for delivery in queue for row in delivery.rows] == [(0,), (1,), (2,), (3,)]
    assert [stamp for delivery in queue for stamp in delivery.stamps] == [(0, 5), (2, 6), (3, 7)]


WORDS = {"word": "str", "n": "int"}


class Channel:
    """Both ends of a channel between workers, and what arrives."""

    def __init__(self, schema: dict[str, str], window_bytes: int = 1 << 20, batches: int = 8) -> None:
        self.forward, self.queue = RecordedLink(), []
        size = CreditWindow(1 << 20, window_bytes)
        self.outgoing = RemoteOutgoing(KEY, 1, size, FlushTimer(), Codec(schema), 2, self.forward, batches)
        self.incoming = RemoteIncoming(KEY, ("a", "s"), self.queue, size, Codec(schema), 2, RecordedLink())
        self._reader = FrameReader(2)

    def transfer(self) -> int:
        """Transfer all rows; return the number of bytes sent."""
        self.outgoing.flush()
        sent = bytes(self.forward.bytes)
        self.forward.bytes.clear()
        for received in self._reader.feed(sent):
            if received.kind == frame.DATA:
                self.incoming.receive(received)
            else:
                self.incoming.deliver_mark(mark_of(received))
        return len(sent)

    @property
    def arrived(self) -> list:
        return [row for delivery in self.queue for row in delivery.rows]


@given(st.lists(st.tuples(streams(), st.booleans(), st.booleans()), min_size=1, max_size=5), CUTS)
def test_dictionaries_grow_on_both_ends_and_are_forgotten_at_barriers(batches: list, cuts: list[int]) -> None:
    schema = {"s": "str", "b": "bytes"}
    channel, encoders, expected = Channel(schema), [Encoders(), Encoders()], []
    for number, ((_, drawn), other, barrier) in enumerate(batches, start=1):
        rows = [(repr(row[0]), repr(row[-1]).encode()) for row in drawn] * 3
        channel.outgoing.add(in_chunks(schema, rows, cuts, [True, True, False], encoders[other]))
        expected += rows
        if barrier:
            channel.outgoing.mark(Barrier(number))
        channel.transfer()
    assert channel.arrived == expected


def test_the_entries_of_a_dictionary_are_sent_once_until_the_next_barrier() -> None:
    channel, encoder = Channel({"word": "str"}), DictionaryEncoder(pa.string())
    words = [f"word number {at}" for at in range(50)] * 4

    def send_words() -> int:
        column = encoder.encode(pa.array(words))
        assert column is not None
        channel.outgoing.add(Columns({"word": "str"}, pa.RecordBatch.from_arrays([column], names=["word"])))
        return channel.transfer()

    first, again, more = send_words(), send_words(), send_words()
    assert again == more < first - 50 * len("word number")
    received = [dictionary_of(delivery.rows.batch().column(0)) for delivery in channel.queue]
    assert received[0] is received[1] is received[2] is not None
    channel.outgoing.mark(Barrier(1))
    channel.transfer()
    assert send_words() == first
    assert channel.arrived == [(word,) for word in words * 4]
    assert dictionary_of(channel.queue[-1].rows.batch().column(0)) is not received[0]


def test_a_few_rows_do_not_carry_a_large_dictionary_but_many_batches_of_them_do() -> None:
    channel, encoder = Channel({"word": "str"}), DictionaryEncoder(pa.string())
    encoder.codes_of(pa.array([f"word number {at}" for at in range(1000)]))
    column = encoder.encode(pa.array(["word number 7", "word number 8"] * 50))
    sizes = []
    for _ in range(30):
        channel.outgoing.add(Columns({"word": "str"}, pa.RecordBatch.from_arrays([column], names=["word"])))
        sizes.append(channel.transfer())
    assert sizes[0] < 1000
    assert sum(size > 10_000 for size in sizes) == 1
    assert channel.arrived == [("word number 7",), ("word number 8",)] * 1500


def repeated(text: str, rows: int) -> tuple[pa.DictionaryArray, Dictionary]:
    """Return rows that repeat one entry of a dictionary, and the dictionary, which must stay referenced."""
    dictionary = Dictionary(pa.string())
    dictionary.append(pa.array([text]))
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), dictionary.values), dictionary


def primed(codec: ColumnCodec) -> tuple[ColumnCodec, bytearray, list]:
    """Return a codec with a dictionary, the next frame, which refers to it, and the rows of that frame."""
    encoder, sender = DictionaryEncoder(pa.string()), ColumnCodec(codec.schema)
    for texts in (["a", "bc"] * 4, ["bc", "def", "a", "def"] * 4):
        column = encoder.encode(pa.array(texts))
        batch = pa.RecordBatch.from_arrays([column, pa.array(range(len(texts)))], names=list(codec.schema))
        columns = Columns(codec.schema, batch)
        encoded = sender.encode(columns)
        sender.note_sent(encoded)
        sent = bytearray(b"".join(encoded.pieces(0)))
        if texts[0] == "a":
            codec.decode(memoryview(sent), len(texts))
    return codec, sent, columns.to_rows()


@settings(max_examples=times(4))
@given(changes=mutations)
def test_an_altered_frame_with_new_entries_is_refused_or_safe_to_read(changes: list[tuple[int, int]]) -> None:
    codec, changed, rows = primed(ColumnCodec(WORDS))
    for at, byte in changes:
        changed[at % len(changed)] = byte
    try:
        received = codec.decode(memoryview(changed), len(rows))
    except CodecError:
        return
    read_everything(received, len(rows))


def test_a_dictionary_is_continued_where_it_ended_and_within_its_size() -> None:
    codec, sent, rows = primed(ColumnCodec(WORDS))
    assert codec.decode(memoryview(sent), len(rows)).to_rows() == rows
    with pytest.raises(CodecError, match="entries from 2 on of a dictionary that has 3"):
        codec.decode(memoryview(sent), len(rows))
    codec.forget()
    with pytest.raises(CodecError, match="entries from 2 on of a dictionary that has 0"):
        codec.decode(memoryview(sent), len(rows))
    codec, sent, rows = primed(ColumnCodec(WORDS, 5))
    with pytest.raises(CodecError, match="a dictionary of 3 entries and 6 bytes"):
        codec.decode(memoryview(sent), len(rows))


def test_a_frame_that_would_take_gigabytes_without_its_dictionary_is_refused() -> None:
    rows, long = 100_000, "x" * 100_000
    grown, _kept = repeated(long, rows)
    for column in (grown, pa.DictionaryArray.from_arrays(grown.indices, [long])):
        codec, sent = _frame_of(column)
        assert len(sent) < 1_000_000
        with pytest.raises(CodecError, match="without their dictionaries"):
            codec.decode(memoryview(sent), rows)


@pytest.mark.parametrize("local", [False, True])
def test_rows_that_repeat_a_long_text_are_sent_in_batches_that_fit_without_dictionaries(local: bool) -> None:
    rows, schema = 2000, {"word": "str"}
    column, _kept = repeated("x" * 50_000, rows)
    columns = Columns(schema, pa.RecordBatch.from_arrays([column], names=["word"]))
    if local:
        queue: list = []
        outgoing, _ = local_channel(KEY, 0, ("a", "s"), queue, CreditWindow(1 << 20, 8 << 20), FlushTimer(), batches=8)
        outgoing.add(columns)
        outgoing.flush()
    else:
        channel = Channel(schema, 8 << 20)
        channel.outgoing.add(columns)
        channel.transfer()
        queue = channel.queue
    assert sum(len(delivery.rows) for delivery in queue) == rows
    assert max(delivery.rows.plain().nbytes for delivery in queue) <= DECODED_BYTES + 8 * rows
