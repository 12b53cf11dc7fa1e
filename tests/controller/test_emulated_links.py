"""Links between emulated nodes: `millrace_links` per ordered pair and as commands; the relay's model."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.emulation import relay
from controller.emulation.network import Kernel, choose_shaping, kernel_commands, short_sends
from controller.emulation.relay import HEADER, LinkModel, LinkShape, wire_bytes
from inventory.documents import Document
from inventory.emulation import FRAME, LinkSettings, requested_links
from inventory.errors import InputError

NO_NETEM = Kernel(htb=True, netem=False)

NODES = (1, 2, 3, 254)
BROADCAST = b"\xff" * 6


def links_of(links: dict[str, Any]) -> tuple[LinkSettings, ...]:
    """Return the links of an inventory whose hosts have these `millrace_links`."""
    document = Document("lab.yml", {host: {"millrace_links": entries} for host, entries in links.items()}, {})
    return requested_links(document.origin, list(links))


def test_an_entry_for_one_host_goes_before_the_entry_for_all() -> None:
    entries: dict[str, Any] = {
        "n1": [{"to": "*", "rate_mbit": 100}, {"to": "n3", "delay_ms": 2}],
        "n2": None,
        "n3": [{"to": "n1", "rate_mbit": 10, "delay_ms": 0.5}],
    }
    assert links_of(entries) == (
        LinkSettings("n1", "n2", 100, 0),
        LinkSettings("n1", "n3", None, 2),
        LinkSettings("n3", "n1", 10, 0.5),
    )


def test_delays_follow_a_formula_of_positions() -> None:
    every: list[dict[str, Any]] = [{"to": "*", "delay_ms": "0.2 * abs(i - j)"}]
    near = [{"to": "n1", "delay_ms": 7}, {"to": "*", "delay_ms": "max(0, j - i - 1) / 2"}]
    assert [
        (link.sender, link.receiver, link.delay_ms) for link in links_of({"n1": every, "n2": every, "n3": near})
    ] == [
        ("n1", "n2", pytest.approx(0.2)),
        ("n1", "n3", pytest.approx(0.4)),
        ("n2", "n1", pytest.approx(0.2)),
        ("n2", "n3", pytest.approx(0.2)),
        ("n3", "n1", 7),
    ]


def test_delays_differ_within_a_rack_and_between_racks() -> None:
    links = [{"to": "*", "delay_ms": {"same_rack": 0.2, "other_rack": 1}}]
    racks: dict[str, Any] = {"n1": {"millrace_rack": "a"}, "n2": {"millrace_rack": "a"}, "n3": {}, "n4": {}}
    hosts = {host: {**rack, "millrace_links": links if host in ("n1", "n4") else []} for host, rack in racks.items()}
    found = requested_links(Document("lab.yml", hosts, {}).origin, list(hosts))
    assert {(link.sender, link.receiver): link.delay_ms for link in found} == {
        ("n1", "n2"): 0.2,
        ("n1", "n3"): 1,
        ("n1", "n4"): 1,
        ("n4", "n1"): 1,
        ("n4", "n2"): 1,
        ("n4", "n3"): 0.2,
    }


def test_a_pair_that_is_neither_limited_nor_delayed_is_no_link() -> None:
    assert links_of({"n1": [{"to": "*", "rate_mbit": 100}, {"to": "n2"}], "n2": []}) == ()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"to": "n22"}, "lab.yml: n1.millrace_links[0].to: 'n22' is no host of this inventory; did you mean 'n2'?"),
        ({"to": "n1"}, "lab.yml: n1.millrace_links[0].to: 'n1' is the host itself; a link leads to another"),
        ({"rate_mbit": 5}, "lab.yml: n1.millrace_links[0]: the key 'to' is missing"),
        ({"to": "n2", "rate": 5}, "n1.millrace_links[0].rate: unknown key 'rate'; did you mean 'rate_mbit'?"),
        ({"to": "n2", "rate_mbit": 0}, "n1.millrace_links[0].rate_mbit: got 0"),
        ({"to": "n2", "delay_ms": -1}, "n1.millrace_links[0].delay_ms: got -1"),
        (
            {"to": "n2", "delay_ms": "0.2 * k"},
            "n1.millrace_links[0].delay_ms: got '0.2 * k', expected a number, or arith",
        ),
        ({"to": "n2", "delay_ms": "0.2 *"}, "n1.millrace_links[0].delay_ms: got '0.2 *', expected a number, or arith"),
        ({"to": "n2", "delay_ms": "i / i"}, "n1.millrace_links[0].delay_ms: got 'i / i'"),
        ({"to": "n2", "delay_ms": "9 ** 9 ** 9"}, "powers are not allowed"),
        ({"to": "n2", "delay_ms": "().__class__"}, "n1.millrace_links[0].delay_ms: got '().__class__'"),
        ({"to": "n2", "delay_ms": "i - j"}, "'i - j' is -1 for i = 0 and j = 1, expected 0 to 10000"),
        ({"to": "n2", "delay_ms": {"other": 1}}, "unknown key 'other'; did you mean 'other_rack'?"),
    ],
)
def test_a_wrong_entry_is_refused_with_its_host_and_the_valid_choice(entry: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        links_of({"n1": [entry], "n2": []})
    assert message in str(caught.value)


def test_a_pair_given_twice_is_refused() -> None:
    with pytest.raises(InputError, match=r"n1\.millrace_links\[1\]\.to: the link to 'n2' is given twice"):
        links_of({"n1": [{"to": "n2", "rate_mbit": 1}, {"to": "n2", "rate_mbit": 2}], "n2": []})


def test_the_kernel_shapes_what_it_can_and_the_relay_the_rest() -> None:
    rate, delay = [LinkSettings("n1", "n2", 100)], [LinkSettings("n1", "n2", 100, 1)]
    assert choose_shaping(rate, lambda: NO_NETEM) == "htb"
    assert choose_shaping(delay, lambda: NO_NETEM) == "relay"
    assert choose_shaping(delay, lambda: Kernel(htb=True, netem=True)) == "netem"
    assert choose_shaping(delay, lambda: Kernel(htb=False, netem=True)) == "relay"


def test_the_kernel_is_not_probed_when_there_is_nothing_to_shape() -> None:
    def probe() -> Kernel:
        raise AssertionError("probed")

    assert choose_shaping([], probe) == "none"


def test_the_kernel_gets_a_class_a_queue_and_a_filter_for_every_link() -> None:
    links = [LinkSettings("n1", "n2", 100), LinkSettings("n1", "n3", 10, 5), LinkSettings("n1", "n4", None, 1)]
    addresses = {"n2": "10.77.0.2", "n3": "10.77.0.3", "n4": "10.77.0.4"}
    assert kernel_commands("eth0", links, addresses) == [
        "qdisc add dev eth0 root handle 1: htb default 0",
        "class add dev eth0 parent 1: classid 1:1 htb rate 100000000bit burst 12500 cburst 12500 quantum 1514",
        "qdisc add dev eth0 parent 1:1 handle 2: bfifo limit 125000",
        "filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dst 10.77.0.2/32 flowid 1:1",
        "class add dev eth0 parent 1: classid 1:2 htb rate 10000000bit burst 3028 cburst 3028 quantum 1514",
        "qdisc add dev eth0 parent 1:2 handle 3: netem delay 5ms limit 56",
        "filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dst 10.77.0.3/32 flowid 1:2",
        "class add dev eth0 parent 1: classid 1:3 htb rate 100000000000bit burst 12500000 cburst 12500000 quantum 1514",
        "qdisc add dev eth0 parent 1:3 handle 4: netem delay 1ms limit 8256",
        "filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dst 10.77.0.4/32 flowid 1:3",
    ]


@pytest.mark.parametrize(
    ("rates", "frames"), [([10, 1000], 1), ([100], 4), ([1000], 41), ([100_000], 43), ([None], 43), ([None, 10], 1)]
)
def test_a_piece_occupies_the_slowest_link_for_half_a_millisecond_at_most(rates: list[float], frames: int) -> None:
    links = [LinkSettings("n1", f"n{number}", rate, 1) for number, rate in enumerate(rates, 2)]
    assert short_sends("eth0", links).endswith(f"gso_max_segs {frames} gso_max_size {frames * FRAME}")


def test_a_queue_holds_ten_milliseconds_or_64_kib_and_a_round_trip() -> None:
    assert LinkSettings("a", "b", 1000).queue_bytes == 1_250_000
    assert LinkSettings("a", "b", 10).queue_bytes == 65_536
    assert LinkSettings("a", "b", 1000, 2).queue_bytes == 1_250_000 + 500_000
    assert LinkSettings("a", "b", None, 2).queue_bytes == 0


def mac(number: int) -> bytes:
    return bytes([2, 0, 0, 0, 1, number])


def plain(sender: int, receiver: int | None, data: int, tag: int = 0) -> bytes:
    """Return a frame with `data` bytes after its Ethernet header; the first four hold `tag`."""
    to = BROADCAST if receiver is None else mac(receiver)
    return bytes(HEADER) + to + mac(sender) + b"\x08\x00" + tag.to_bytes(4, "big") + bytes(data - 4)


def large(data: int, segment: int, options: int) -> tuple[bytes, int]:
    """Return a TCP packet for segmentation by the card, and the total size of its segments."""
    headers = 14 + 20 + 20 + options
    tcp = bytearray(20 + options)
    tcp[12] = (len(tcp) // 4) << 4
    frame = mac(2) + mac(1) + b"\x08\x00" + bytes(20) + bytes(tcp) + bytes(data)
    # The length of the headers is a hint; here it is a wrong one.
    virtio_header = struct.pack("<BBHHHH", 1, 1, len(frame), segment, 14 + 20, 16)
    sizes = [headers + min(segment, data - begin) for begin in range(0, data, segment)]
    return virtio_header + frame, sum(sizes)


@given(
    st.integers(1, 60_000),
    st.integers(500, 1460),
    st.sampled_from([0, 12, 40]),
)
def test_a_packet_for_segmentation_by_the_card_counts_as_its_segments(data: int, segment: int, options: int) -> None:
    frame, expected = large(data, segment, options)
    assert wire_bytes(frame) == expected


def test_a_plain_frame_counts_as_it_is() -> None:
    assert wire_bytes(plain(1, 2, 1500)) == 1514


def test_a_free_link_delivers_after_the_frame_s_own_time_and_the_delay() -> None:
    model = LinkModel(NODES, [LinkShape(1, 2, 1e-6, 1.0, 0.5)])
    model.offer(1, plain(1, 2, 986), 10.0)
    at = model.next_s()
    assert at == pytest.approx(10.0 + 0.001 + 0.5)
    assert list(model.due(at - 1e-9)) == []
    assert [receiver for receiver, _ in model.due(at)] == [2]
    assert model.next_s() is None


def test_pairs_without_a_link_and_other_directions_deliver_at_once() -> None:
    model = LinkModel(NODES, [LinkShape(1, 2, 1e-3, 1.0, 5.0)])
    for sender, receiver in ((2, 1), (1, 254), (254, 2), (3, 1)):
        model.offer(sender, plain(sender, receiver, 100), 1.0)
    assert [receiver for receiver, _ in model.due(1.0)] == [1, 254, 2, 1]


def test_a_broadcast_frame_takes_every_link_of_its_sender() -> None:
    model = LinkModel(NODES, [LinkShape(1, 2, 0.0, 0.0, 2.0), LinkShape(1, 3, 0.0, 0.0, 1.0)])
    model.offer(1, plain(1, None, 46), 0.0)
    assert {receiver for receiver, _ in model.due(0.0)} == {254}
    assert [receiver for receiver, _ in model.due(9.0)] == [3, 2]


def test_frames_to_unknown_addresses_and_truncated_frames_are_not_delivered() -> None:
    model = LinkModel(NODES, [])
    model.offer(1, plain(1, 77, 46), 0.0)
    model.offer(1, bytes(HEADER + 5), 0.0)
    assert model.next_s() is None


def test_frames_are_dropped_only_while_the_memory_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = plain(1, 2, 1000)
    monkeypatch.setattr(relay, "MOST_HELD", 2 * len(frame))
    model = LinkModel(NODES, [LinkShape(1, 2, 0.0, 0.0, 1.0)])
    for _ in range(3):
        model.offer(1, frame, 0.0)
    assert model.dropped == 1
    assert len(list(model.due(1.0))) == 2
    model.offer(1, frame, 1.0)
    assert model.dropped == 1


def test_the_lag_of_late_deliveries_is_recorded() -> None:
    model = LinkModel(NODES, [LinkShape(1, 2, 0.0, 0.0, 1.0)])
    model.offer(1, plain(1, 2, 100), 0.0)
    list(model.due(1.25))
    assert model.latest_s == pytest.approx(0.25)


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
    model = LinkModel(NODES, [shape])
    now = 100.0
    offered = []
    for tag, (gap, data) in enumerate(arrivals):
        now += gap
        offered.append((now, 14 + data))
        model.offer(1, plain(1, 2, data, tag), now)
    delivered: list[tuple[int, float]] = []
    while (at := model.next_s()) is not None:
        delivered += [(int.from_bytes(frame[HEADER + 14 : HEADER + 18], "big"), at) for _, frame in model.due(at)]

    tags = [tag for tag, _ in delivered]
    assert tags == sorted(tags), "frames overtook each other"
    assert len(delivered) + model.dropped == len(arrivals)
    assert model.carried == len(delivered)
    tolerance = 1e-9
    free_at = 0.0
    for tag, at in delivered:
        arrived, size = offered[tag]
        begin = max(arrived, free_at)
        # Neither earlier than its rate allows, nor later than an idle link would be.
        assert at == pytest.approx(begin + size * shape.s_per_byte + shape.delay_s, abs=tolerance)
        assert begin - arrived <= shape.queue_s + tolerance
        free_at = at - shape.delay_s
    for tag in set(range(len(arrivals))) - set(tags):
        arrived = offered[tag][0]
        busy = max(at for other, at in delivered if other < tag) - shape.delay_s
        assert busy - arrived > shape.queue_s - tolerance, "dropped although it would not have waited too long"
