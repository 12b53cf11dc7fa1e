"""Frames: decoded from any split of the byte stream; invalid headers are refused before their payload is buffered."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis_examples import times

from agents.worker.wire import frame
from agents.worker.wire.frame import FrameError, FrameReader

EPOCH = 7
U16 = st.integers(0, 2**16 - 1)
U32 = st.integers(0, 2**32 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)

Plain = tuple[int, ...]


@st.composite
def stamps(draw: st.DrawFn, count: int) -> list[tuple[int, int]]:
    rows = sorted(draw(st.sets(st.integers(0, count - 1), max_size=6)))
    return [(row, draw(I64)) for row in rows]


@st.composite
def frames(draw: st.DrawFn) -> tuple[bytes, tuple]:
    """Bytes of a frame, and its expected decoded form."""
    stream, sender, receiver = draw(U16), draw(U32), draw(U32)
    kind = draw(st.integers(frame.DATA, frame.LINGER))
    if kind == frame.DATA:
        count = draw(st.integers(1, frame.MAX_ROWS))
        given_stamps = draw(stamps(count))
        rows = draw(st.binary(max_size=200))
        columns = draw(st.sampled_from([0, frame.COLUMNS]))
        written = b"".join(frame.data(stream, EPOCH, sender, receiver, count, [rows], given_stamps, columns))
        assert written[frame.rows_at(len(given_stamps)) :] == rows
        return written, (kind, stream, sender, receiver, count, columns, given_stamps, rows)
    if kind == frame.CREDIT:
        count, nbytes = draw(U32), draw(U32)
        written = frame.credit(stream, EPOCH, sender, receiver, count, nbytes)
        return written, (kind, stream, sender, receiver, count, nbytes)
    if kind == frame.BARRIER:
        number = draw(U32)
        return frame.barrier(stream, EPOCH, sender, receiver, number), (kind, stream, sender, receiver, number)
    if kind == frame.TICK:
        number, times = draw(U32), (draw(I64), draw(I64))
        return frame.tick(stream, EPOCH, sender, receiver, number, *times), (
            kind,
            stream,
            sender,
            receiver,
            number,
            times,
        )
    if kind == frame.STATE:
        state = draw(st.binary(max_size=200))
        return b"".join(frame.state(EPOCH, sender, state)), (kind, 0, sender, sender, frame.LAST, 0, state)
    if kind == frame.COPY:
        state, number, ends_round = draw(st.binary(max_size=200)), draw(U32), draw(st.booleans())
        flags = frame.LAST | frame.ROUND if ends_round else frame.LAST
        to = draw(st.sampled_from([None, receiver]))
        written = b"".join(frame.copy(EPOCH, sender, number, state, ends_round, to))
        return written, (kind, 0, sender, sender if to is None else to, flags, number, state)
    if kind == frame.PULL:
        number = draw(U32)
        return frame.pull(EPOCH, sender, number, receiver), (kind, 0, sender, receiver, number)
    if kind == frame.LINGER:
        wait_us = draw(st.integers(0, frame.MAX_LINGER_US))
        return frame.linger(EPOCH, wait_us), (kind, 0, 0, 0, wait_us)
    return frame.end_frame(stream, EPOCH, sender, receiver), (kind, stream, sender, receiver)


def decoded(received: frame.Frame) -> tuple:
    """Return a frame in the form of `frames`; copy its payload, because the buffer is reused."""
    kind, stream, sender, receiver = received.kind, received.stream, received.sender, received.receiver
    assert received.epoch == EPOCH
    if kind == frame.DATA:
        split, rows = frame.split_payload(received)
        columns = received.flags & frame.COLUMNS
        return (kind, stream, sender, receiver, received.count, columns, list(split), bytes(rows))
    if kind == frame.TICK:
        return (kind, stream, sender, receiver, received.count, frame.tick_times(received))
    if kind in (frame.STATE, frame.COPY):
        return (kind, stream, sender, receiver, received.flags, received.count, bytes(received.payload))
    assert not received.payload
    if kind in (frame.BARRIER, frame.PULL, frame.LINGER):
        return (kind, stream, sender, receiver, received.count)
    if kind == frame.CREDIT:
        return (kind, stream, sender, receiver, received.count, received.length)
    return (kind, stream, sender, receiver)


def pieces(data: bytes, borders: list[int]) -> list[bytes]:
    cuts = sorted({0, len(data), *(border % (len(data) + 1) for border in borders)})
    return [data[a:b] for a, b in pairwise(cuts)]


@given(st.lists(frames(), max_size=8), st.lists(U16, max_size=30))
def test_frames_come_back_in_order_however_the_bytes_are_split(sent: list[tuple[bytes, tuple]], borders: list) -> None:
    reader = FrameReader(EPOCH)
    stream = b"".join(written for written, _ in sent)
    got = [decoded(received) for piece in pieces(stream, borders) for received in reader.feed(piece)]
    assert got == [expected for _, expected in sent]


@given(frames(), frames())
def test_byte_by_byte_a_frame_appears_with_its_last_byte(first: tuple[bytes, tuple], second: tuple) -> None:
    reader = FrameReader(EPOCH)
    appeared = []
    stream = first[0] + second[0]
    for at in range(len(stream)):
        appeared += [(at + 1, decoded(received)) for received in reader.feed(stream[at : at + 1])]
    assert appeared == [(len(first[0]), first[1]), (len(stream), second[1])]


@given(frames(), st.data())
def test_an_incomplete_frame_is_not_returned(written: tuple[bytes, tuple], data: st.DataObject) -> None:
    whole, _ = written
    torn = whole[: data.draw(st.integers(0, len(whole) - 1))]
    assert list(FrameReader(EPOCH).feed(torn)) == []


def header(
    kind: int = frame.DATA,
    flags: int = 0,
    stream: int = 0,
    epoch: int = EPOCH,
    sender: int = 1,
    receiver: int = 2,
    count: int = 1,
    length: int = 10,
) -> bytes:
    return frame.HEADER.pack(kind, flags, stream, epoch, sender, receiver, count, length)


@pytest.mark.parametrize(
    "wrong",
    [
        header(kind=0),
        header(kind=10),
        header(kind=255),
        header(flags=4),
        header(flags=frame.COLUMNS | 8),
        header(kind=frame.TICK, flags=frame.COLUMNS, length=16),
        header(flags=frame.STAMPED | 128),
        header(kind=frame.CREDIT, flags=frame.STAMPED),
        header(kind=frame.END, flags=frame.STAMPED, count=0, length=0),
        header(kind=frame.END, count=1, length=0),
        header(kind=frame.END, count=0, length=1),
        header(count=0),
        header(count=frame.MAX_ROWS + 1),
        header(count=2**32 - 1),
        header(length=frame.MAX_PAYLOAD + 1),
        header(length=2**32 - 1),
        header(epoch=EPOCH - 1),
        header(epoch=EPOCH + 1),
        header(kind=frame.CREDIT, epoch=0),
        header(kind=frame.BARRIER, length=1),
        header(kind=frame.BARRIER, flags=1, length=0),
        header(kind=frame.BARRIER, epoch=EPOCH - 1, length=0),
        header(kind=frame.TICK, length=0),
        header(kind=frame.TICK, length=15),
        header(kind=frame.TICK, length=17),
        header(kind=frame.TICK, flags=1, length=16),
        header(kind=frame.TICK, epoch=EPOCH + 1, length=16),
        header(kind=frame.STATE, count=0, length=frame.STATE_BYTES + 1),
        header(kind=frame.STATE, count=1),
        header(kind=frame.STATE, count=0, flags=2),
        header(kind=frame.STATE, count=0, epoch=0),
        header(kind=frame.COPY, length=frame.STATE_BYTES + 1),
        header(kind=frame.COPY, flags=frame.ROUND),
        header(kind=frame.COPY, flags=4),
        header(kind=frame.COPY, epoch=0),
        header(kind=frame.PULL, length=1),
        header(kind=frame.LINGER, count=1, length=1),
        header(kind=frame.LINGER, count=frame.MAX_LINGER_US + 1, length=0),
        header(kind=frame.PULL, flags=1, length=0),
        header(kind=frame.PULL, epoch=0, length=0),
    ],
)
def test_a_header_outside_its_limits_is_refused_before_its_payload_arrives(wrong: bytes) -> None:
    with pytest.raises(FrameError):
        list(FrameReader(EPOCH).feed(wrong))
    reader = FrameReader(EPOCH)
    assert list(reader.feed(wrong[:-1])) == []
    with pytest.raises(FrameError):
        list(reader.feed(wrong[-1:]))


HEADERS = st.builds(
    header,
    kind=st.integers(0, 9),
    flags=st.integers(0, 4),
    epoch=st.integers(EPOCH - 1, EPOCH + 1),
    count=st.integers(0, 3) | U32,
    length=st.integers(0, 60) | U32,
)


@settings(max_examples=times(4))
@given(st.lists(st.binary(max_size=80) | HEADERS, max_size=10))
def test_rubbish_is_refused_or_buffered_as_an_incomplete_frame(rubbish: list[bytes]) -> None:
    reader, fed, read = FrameReader(EPOCH), 0, 0
    try:
        for piece in rubbish:
            fed += len(piece)
            for received in reader.feed(piece):
                read += frame.HEADER_BYTES + len(received.payload)
                if received.kind == frame.DATA:
                    frame.split_payload(received)
                if received.kind == frame.TICK:
                    frame.tick_times(received)
    except FrameError:
        return
    assert read <= fed < read + frame.HEADER_BYTES + frame.MAX_PAYLOAD


@settings(max_examples=times(4))
@given(frames(), st.integers(0, frame.HEADER_BYTES - 1), st.integers(0, 7))
def test_a_flipped_bit_in_a_header_never_gives_the_same_frame(written: tuple, at: int, bit: int) -> None:
    whole, expected = written
    flipped = bytearray(whole)
    flipped[at] ^= 1 << bit
    try:
        got = [decoded(received) for received in FrameReader(EPOCH).feed(flipped)]
    except FrameError:
        return
    assert expected not in got


@settings(max_examples=times(4))
@given(st.binary(max_size=120), st.integers(1, 2**20))
def test_a_stamp_table_of_rubbish_gives_stamps_of_its_rows_or_an_error(payload: bytes, count: int) -> None:
    received = frame.Frame(frame.DATA, frame.STAMPED, 0, EPOCH, 1, 2, count, len(payload), memoryview(payload))
    try:
        table, rows = frame.split_payload(received)
    except FrameError:
        return
    stamped = [row for row, _ in table]
    assert stamped == sorted(set(stamped))
    assert all(0 <= row < count for row in stamped)
    assert 4 + 12 * len(table) + len(rows) == len(payload)


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (b"", "without stamps"),
        (b"\1\0\0", "without stamps"),
        ((2**32 - 1).to_bytes(4, "little"), "stamps for"),
        (b"\2\0\0\0" + bytes(23), "stamps for"),
        (b"\2\0\0\0" + bytes(24), "not in the frame"),
        (b"\1\0\0\0" + b"\3\0\0\0" + bytes(8), "not in the frame"),
    ],
)
def test_a_wrong_stamp_table_is_refused(table: bytes, why: str) -> None:
    received = frame.Frame(frame.DATA, frame.STAMPED, 0, EPOCH, 1, 2, 3, len(table), memoryview(table))
    with pytest.raises(FrameError, match=why):
        frame.split_payload(received)


def test_a_payload_of_the_largest_size_arrives_in_pieces() -> None:
    rows = bytes(range(256)) * (frame.MAX_PAYLOAD // 256)
    stream = b"".join(frame.data(1, EPOCH, 2, 3, 9, [rows])) + frame.end_frame(1, EPOCH, 2, 3)
    reader = FrameReader(EPOCH)
    got = [
        decoded(received) for piece in pieces(stream, [10, 24, 1_000_003, 9_999_999]) for received in reader.feed(piece)
    ]
    assert got == [(frame.DATA, 1, 2, 3, 9, 0, [], rows), (frame.END, 1, 2, 3)]


@pytest.mark.parametrize("size", [0, 1, frame.STATE_BYTES - 1, frame.STATE_BYTES, frame.STATE_BYTES + 1, 5_000_000])
def test_a_state_of_any_size_is_split_into_frames_within_the_limit_and_the_last_is_flagged(size: int) -> None:
    state = bytes(at * 7 % 251 for at in range(1_000)) * (size // 1_000 + 1)
    written = list(frame.state(EPOCH, 9, state[:size]))
    reader = FrameReader(EPOCH)
    got = [decoded(received) for piece in written for received in reader.feed(piece)]
    assert b"".join(payload for *_, payload in got) == state[:size]
    assert [flags for *_, flags, _, _ in got] == [0] * (len(got) - 1) + [frame.LAST]
    assert all((kind, sender, receiver) == (frame.STATE, 9, 9) for kind, _, sender, receiver, *_ in got)
    assert all(len(payload) == frame.STATE_BYTES for *_, payload in got[:-1])
    assert len(got) == max(1, -(-size // frame.STATE_BYTES))
