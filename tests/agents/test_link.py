"""Links: deliver frames in order however little a socket takes at once, count bytes, and report a closed peer."""

import socket
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.worker.wire import frame
from agents.worker.wire.frame import STATE_BYTES, FrameError
from agents.worker.wire.mesh import _MAX_RECEIVED_AT_ONCE, LinkError, PeerLink

EPOCH = 3


@pytest.fixture
def pair() -> Iterator[tuple[PeerLink, PeerLink]]:
    ends = socket.socketpair()
    links = PeerLink(1, EPOCH), PeerLink(0, EPOCH)
    for link, sock in zip(links, ends, strict=True):
        sock.setblocking(False)
        # Small, so that few frames fill it.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        link.attach(sock, b"")
    yield links
    for link in links:
        link.close()


def frames_from(link: PeerLink) -> list[tuple[int, bytes]]:
    return [(received.receiver, bytes(received.payload)) for received in link.receive()]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.sampled_from([0, 1, 100, 5_000, 70_000]), max_size=12), many=st.sampled_from([0, 600, 1_500]))
def test_frames_arrive_in_order_through_a_narrow_socket(pair: tuple, sizes: list[int], many: int) -> None:
    writer, reader = pair
    before = writer.sent_bytes, reader.received_bytes
    sent = [(at, bytes([at % 251]) * size) for at, size in enumerate([*sizes, *[3] * many])]
    total = 0
    for number, payload in sent:
        pieces = frame.data(0, EPOCH, 7, number, 1, [payload])
        total += sum(map(len, pieces))
        writer.write(pieces)
    got = []
    while writer.backlog or len(got) < len(sent):
        if writer.backlog:
            writer.flush()
        got += frames_from(reader)
    assert got == sent
    assert (writer.sent_bytes - before[0], reader.received_bytes - before[1]) == (total, total)
    assert frames_from(reader) == []


def test_frames_that_are_written_before_the_connection_wait_for_it() -> None:
    link = PeerLink(1, EPOCH)
    link.write([frame.end_frame(0, EPOCH, 1, 2)])
    assert link.backlog
    with pytest.raises(LinkError, match="worker 1: not connected"):
        link.flush()
    ours, theirs = socket.socketpair()
    with theirs:
        link.attach(ours, b"")
        link.flush()
        assert theirs.recv(99) == frame.end_frame(0, EPOCH, 1, 2)
        link.close()


def test_bytes_that_came_with_the_handshake_are_the_first_of_the_stream(pair: tuple) -> None:
    writer, reader = pair
    whole = b"".join(frame.data(0, EPOCH, 7, 5, 1, [b"payload"]))
    writer.write([whole[30:] + whole])
    writer.flush()
    reader.attach(reader.sock, whole[:30])
    assert frames_from(reader) == [(5, b"payload"), (5, b"payload")]
    assert reader.received_bytes == len(whole) - 30 + len(whole)


def test_frames_that_arrived_before_the_peer_closed_are_still_delivered(pair: tuple) -> None:
    writer, reader = pair
    writer.write([frame.end_frame(0, EPOCH, 1, 9)])
    writer.flush()
    writer.close()
    assert frames_from(reader) == [(9, b"")]
    with pytest.raises(LinkError, match="link to worker 0: closed by the other side"):
        frames_from(reader)


def test_writing_to_a_closed_peer_is_an_error_that_names_it(pair: tuple) -> None:
    writer, reader = pair
    reader.close()
    writer.write([bytes(100_000)])
    with pytest.raises(LinkError, match="link to worker 1: Broken pipe"):
        writer.flush()


def test_a_peer_of_another_epoch_is_refused(pair: tuple) -> None:
    writer, reader = pair
    writer.write([frame.end_frame(0, EPOCH - 1, 1, 9)])
    writer.flush()
    with pytest.raises(FrameError, match="epoch"):
        frames_from(reader)


def test_one_call_reads_a_bounded_amount(pair: tuple) -> None:
    writer, reader = pair
    for end in (writer, reader):
        end.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
    writer.write([frame.end_frame(0, EPOCH, 1, 9)] * 50_000)
    writer.flush()
    before = reader.received_bytes
    frames_from(reader)
    assert 0 < reader.received_bytes - before <= _MAX_RECEIVED_AT_ONCE + 64 * 1024


class Trickle:
    """A socket from which little can be read at once."""

    def __init__(self, stream: bytes, most: int) -> None:
        self.left, self.most = memoryview(stream), most

    def recv_into(self, space: memoryview) -> int:
        if not self.left:
            raise BlockingIOError
        count = min(self.most, len(space), len(self.left))
        space[:count], self.left = self.left[:count], self.left[count:]
        return count


def test_a_frame_of_state_that_trickles_in_is_received_by_one_call() -> None:
    state = bytes(range(256)) * (STATE_BYTES // 256)
    after = frame.end_frame(0, EPOCH, 1, 9)
    link = PeerLink(1, EPOCH)
    link.attach(Trickle(b"".join(frame.state(EPOCH, 5, state)) + after, 50_000), b"")  # type: ignore[arg-type]
    assert frames_from(link) == [(5, state), (9, b"")]


def test_a_short_read_of_small_frames_ends_a_call() -> None:
    small = frame.end_frame(0, EPOCH, 1, 9)
    trickle = Trickle(small * 3, len(small))
    link = PeerLink(1, EPOCH)
    link.attach(trickle, b"")  # type: ignore[arg-type]
    assert frames_from(link) == [(9, b"")]
    assert len(trickle.left) == 2 * len(small)
