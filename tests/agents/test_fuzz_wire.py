"""Input from the network: takes no more memory than its size, gives plain values only, and is never executed."""

import ast
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis_examples import times

import agents
from agents.protocol import Progress, decode_command, decode_report, encode
from agents.worker.executors.executor import Snapshot
from agents.worker.wire import frame
from agents.worker.wire.frame import TYPES, Codec, CodecError, FrameError, FrameReader
from agents.worker.wire.handshake import Acceptor, Connector, HandshakeError
from inventory.errors import RunError

EPOCH = 3
ROW = (7, 2.5, "väl", b"\0\xff", True)
SCHEMA = {kind: kind for kind in TYPES}
CODEC = Codec(SCHEMA)
HUGE = 2**32 - 1


@contextmanager
def at_most(nbytes: int) -> Iterator[None]:
    """Assert that peak memory stays below `nbytes`."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < nbytes


mutations = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4)


def mutated(data: bytes, changes: list[tuple[int, int]]) -> bytes:
    """`data` with other bytes in some places, and maybe without its end."""
    changed = bytearray(data)
    for at, byte in changes:
        if at < len(changed):
            changed[at] = byte
        else:
            del changed[at % len(data) :]
    return bytes(changed)


@pytest.mark.parametrize("kind", [frame.DATA, frame.STATE])
def test_a_header_with_a_large_size_takes_no_memory_for_it(kind: int) -> None:
    length = frame.MAX_PAYLOAD if kind == frame.DATA else frame.STATE_BYTES
    count = frame.MAX_ROWS if kind == frame.DATA else 0
    header = frame.HEADER.pack(kind, 0, 0, EPOCH, 1, 2, count, length)
    reader = FrameReader(EPOCH)
    with at_most(100_000):
        assert list(reader.feed(header)) == []
        for _ in range(20):
            assert list(reader.feed(bytes(1000))) == []


def test_a_batch_with_a_large_size_takes_no_memory_for_it() -> None:
    for head, count in (
        (b"\xdd\xff\xff\xff\xff", HUGE),
        (b"\xdd\x00\x10\x00\x00", frame.MAX_ROWS),
        (b"\xdc\xff\xff", 65535),
    ):
        # Of every type, a length of 4 GB inside a row.
        for inside in (b"", b"\xdd\xff\xff\xff\xff", b"\x95\x01\x00\xdb\xff\xff\xff\xff", b"\x95\xc6\xff\xff\xff\xff"):
            with at_most(100_000), pytest.raises(CodecError):
                CODEC.decode(head + inside, count)


@pytest.mark.parametrize("byte", [b"\x91", b"\x81", b"\x95", b"\xc7", b"\xdd\0\0\0\1"])
def test_unbounded_nesting_is_refused_at_its_first_level(byte: bytes) -> None:
    data = b"\x91" + byte * 200_000
    with at_most(100_000), pytest.raises(CodecError):
        CODEC.decode(data, 1)


def test_stamps_with_a_large_count_take_no_memory_for_it() -> None:
    payload = HUGE.to_bytes(4, "little") + bytes(40)
    received = frame.Frame(frame.DATA, frame.STAMPED, 0, EPOCH, 1, 2, 1, len(payload), memoryview(payload))
    with at_most(20_000), pytest.raises(FrameError):
        frame.split_payload(received)


@settings(max_examples=times(4))
@given(st.integers(1, 20), mutations)
def test_a_batch_with_other_bytes_gives_plain_values_of_its_types_or_an_error(count: int, changes: list) -> None:
    data = mutated(b"".join(CODEC.encode([ROW] * count)), changes)
    try:
        rows = CODEC.decode(data, count)
    except CodecError:
        return
    assert len(rows) == count
    assert all([type(value) for value in row] == list(TYPES.values()) for row in rows)


@settings(max_examples=times(4))
@given(mutations, st.lists(st.integers(1, 200), max_size=5))
def test_a_stream_of_frames_with_other_bytes_gives_frames_within_limits_or_an_error(changes: list, cuts: list) -> None:
    pieces = frame.data(1, EPOCH, 2, 3, 2, CODEC.encode([ROW] * 2), ((0, 5), (1, 6)))
    sent = b"".join(
        [
            *pieces,
            frame.tick(1, EPOCH, 2, 3, 1, 5, 6),
            frame.barrier(1, EPOCH, 2, 3, 4),
            *frame.state(EPOCH, 2, b"s" * 90),
            frame.credit(1, EPOCH, 3, 2, 9, 99),
            frame.end_frame(1, EPOCH, 2, 3),
        ]
    )
    data, reader = mutated(sent, changes), FrameReader(EPOCH)
    try:
        for size in [*cuts, len(data)]:
            piece, data = data[:size], data[size:]
            for received in reader.feed(piece):
                assert received.epoch == EPOCH
                assert len(received.payload) <= frame.MAX_PAYLOAD
                if received.kind == frame.DATA:
                    frame.split_payload(received)
                if received.kind == frame.TICK:
                    frame.tick_times(received)
    except FrameError as fault:
        assert len(str(fault)) < 200  # noqa: PT017 - most examples raise, and some need not


@settings(max_examples=times(4))
@given(mutations, st.booleans())
def test_a_handshake_with_other_bytes_fails(changes: list, in_answer: bool) -> None:
    connector, acceptor = Connector(b"k" * 32, "r", EPOCH, 0, 1), Acceptor(b"k" * 32, "r", EPOCH, 1)
    hello = connector.hello()
    try:
        changed = hello if in_answer else mutated(hello, changes)
        answer = acceptor.receive(changed)
        received = mutated(answer, changes) if in_answer else answer
        proof = connector.receive(received)
        acceptor.receive(proof)
    except HandshakeError:
        assert not (connector.done and acceptor.done)
        return
    assert acceptor.done == (changed == hello and received == answer)


@settings(max_examples=times(4))
@given(mutations, st.binary(max_size=50))
def test_a_snapshot_with_other_bytes_is_whole_or_an_error(changes: list, state: bytes) -> None:
    stored = mutated(b"".join(Snapshot(state, 5, 6).pieces()), changes)
    try:
        read = Snapshot.read(stored)
    except RunError:
        return
    assert b"".join(read.pieces()) == stored


@settings(max_examples=times(4))
@given(st.binary(max_size=60) | mutations.map(lambda changes: mutated(encode(PROGRESS), changes)))
def test_a_line_of_the_control_channel_with_other_bytes_is_a_message_or_an_error(line: bytes) -> None:
    for decode in (decode_command, decode_report):
        try:
            assert isinstance(decode(line), msgspec.Struct)
        except RunError as fault:
            assert len(str(fault)) < 1000  # noqa: PT017 - as above


PROGRESS = Progress(epoch=1, slot=0, at_ns=5, emitted=9, sunk=3)

RUN_CODE = {
    "pickle",
    "_pickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "importlib",
    "imp",
    "runpy",
    "code",
    "codeop",
}
CALLS = {"eval", "exec", "compile", "__import__"}


@pytest.mark.parametrize("path", sorted(Path(agents.__file__).parent.rglob("*.py")), ids=lambda path: path.stem)
def test_no_code_on_a_node_could_run_what_it_received(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=names):
                assert not {name.name.partition(".")[0] for name in names} & RUN_CODE
            case ast.ImportFrom(module="importlib.abc" | "importlib.machinery", names=names):
                assert {name.name for name in names} <= {"MetaPathFinder", "ModuleSpec"}
            case ast.ImportFrom(module=module):
                assert str(module).partition(".")[0] not in RUN_CODE
            case ast.Call(func=ast.Name(id=name)):
                assert name not in CALLS
