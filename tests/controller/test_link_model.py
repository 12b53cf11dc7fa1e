"""The relay's link model, in virtual time."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.emulation import link_model
from controller.emulation.link_model import HEADER, LinkModel, LinkShape, wire_bytes

NODES = (1, 2, 3, 254)
BROADCAST = b"\xff" * 6


def mac(number: int) -> bytes:
    return bytes([2, 0, 0, 0, 1, number])


def plain(sender: int, receiver: int | None, data: int, tag: int = 0) -> bytes:
    """A frame with `data` bytes behind its Ethernet header, of which the first four hold `tag`."""
    to = BROADCAST if receiver is None else mac(receiver)
    return bytes(HEADER) + to + mac(sender) + b"\x08\x00" + tag.to_bytes(4, "big") + bytes(data - 4)


def large(data: int, segment: int, options: int) -> tuple[bytes, int]:
    """A TCP packet left to the card, and the bytes of the frames that the card would make of it."""
    headers = 14 + 20 + 20 + options
    tcp = bytearray(20 + options)
    tcp[12] = (len(tcp) // 4) << 4
    frame = mac(2) + mac(1) + b"\x08\x00" + bytes(20) + bytes(tcp) + bytes(data)
    # The length of the headers is a hint; here it is a wrong one.
    before = struct.pack("<BBHHHH", 1, 1, len(frame), segment, 14 + 20, 16)
    cut = [headers + min(segment, data - begin) for begin in range(0, data, segment)]
    return before + frame, sum(cut)


@given(
    st.integers(1, 60_000),
    st.integers(500, 1460),
    st.sampled_from([0, 12, 40]),
)
def test_a_packet_left_to_the_card_counts_as_the_frames_made_of_it(data: int, segment: int, options: int) -> None:
    frame, expected = large(data, segment, options)
    assert wire_bytes(frame) == expected


def test_a_plain_frame_counts_as_it_is() -> None:
    assert wire_bytes(plain(1, 2, 1500)) == 1514


def test_a_free_link_delivers_after_the_frame_s_own_time_and_the_delay() -> None:
    carrier = LinkModel(NODES, [LinkShape(1, 2, 1e-6, 1.0, 0.5)])
    carrier.offer(1, plain(1, 2, 986), 10.0)
    at = carrier.next_s()
    assert at == pytest.approx(10.0 + 0.001 + 0.5)
    assert list(carrier.due(at - 1e-9)) == []
    assert [receiver for receiver, _ in carrier.due(at)] == [2]
    assert carrier.next_s() is None


def test_pairs_without_a_link_and_other_directions_deliver_at_once() -> None:
    carrier = LinkModel(NODES, [LinkShape(1, 2, 1e-3, 1.0, 5.0)])
    for sender, receiver in ((2, 1), (1, 254), (254, 2), (3, 1)):
        carrier.offer(sender, plain(sender, receiver, 100), 1.0)
    assert [receiver for receiver, _ in carrier.due(1.0)] == [1, 254, 2, 1]


def test_a_frame_to_everybody_takes_every_link_of_its_sender() -> None:
    carrier = LinkModel(NODES, [LinkShape(1, 2, 0.0, 0.0, 2.0), LinkShape(1, 3, 0.0, 0.0, 1.0)])
    carrier.offer(1, plain(1, None, 46), 0.0)
    assert {receiver for receiver, _ in carrier.due(0.0)} == {254}
    assert [receiver for receiver, _ in carrier.due(9.0)] == [3, 2]


def test_a_frame_to_nobody_and_a_torn_one_go_nowhere() -> None:
    carrier = LinkModel(NODES, [])
    carrier.offer(1, plain(1, 77, 46), 0.0)
    carrier.offer(1, bytes(HEADER + 5), 0.0)
    assert carrier.next_s() is None


def test_a_full_memory_drops_and_takes_again_when_frames_have_left(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = plain(1, 2, 1000)
    monkeypatch.setattr(link_model, "MOST_HELD", 2 * len(frame))
    carrier = LinkModel(NODES, [LinkShape(1, 2, 0.0, 0.0, 1.0)])
    for _ in range(3):
        carrier.offer(1, frame, 0.0)
    assert carrier.dropped == 1
    assert len(list(carrier.due(1.0))) == 2
    carrier.offer(1, frame, 1.0)
    assert carrier.dropped == 1


def test_the_lag_of_late_deliveries_is_kept() -> None:
    carrier = LinkModel(NODES, [LinkShape(1, 2, 0.0, 0.0, 1.0)])
    carrier.offer(1, plain(1, 2, 100), 0.0)
    list(carrier.due(1.25))
    assert carrier.latest_s == pytest.approx(0.25)


shapes = st.builds(
    LinkShape,
    sender=st.just(1),
    receiver=st.just(2),
    s_per_byte=st.floats(1e-9, 1e-4),
    queue_s=st.floats(0, 0.1),
    delay_s=st.floats(0, 0.1),
)
arrivals = st.lists(st.tuples(st.floats(0, 0.05), st.integers(46, 1500)), min_size=1, max_size=60)


@given(shapes, arrivals)
def test_a_link_keeps_its_order_rate_delay_and_queue(shape: LinkShape, arrivals: list[tuple[float, int]]) -> None:
    carrier = LinkModel(NODES, [shape])
    now = 100.0
    came = []
    for tag, (gap, data) in enumerate(arrivals):
        now += gap
        came.append((now, 14 + data))
        carrier.offer(1, plain(1, 2, data, tag), now)
    left: list[tuple[int, float]] = []
    while (at := carrier.next_s()) is not None:
        left += [(int.from_bytes(frame[HEADER + 14 : HEADER + 18], "big"), at) for _, frame in carrier.due(at)]

    tags = [tag for tag, _ in left]
    assert tags == sorted(tags), "frames overtook each other"
    assert len(left) + carrier.dropped == len(arrivals)
    assert carrier.carried == len(left)
    small = 1e-9
    free = 0.0
    for tag, at in left:
        arrived, size = came[tag]
        begin = max(arrived, free)
        # Neither earlier than its rate allows, nor later than an idle link would be.
        assert at == pytest.approx(begin + size * shape.s_per_byte + shape.delay_s, abs=small)
        assert begin - arrived <= shape.queue_s + small
        free = at - shape.delay_s
    for tag in set(range(len(arrivals))) - set(tags):
        arrived = came[tag][0]
        busy = max(at for other, at in left if other < tag) - shape.delay_s
        assert busy - arrived > shape.queue_s - small, "dropped although it would not have waited too long"
