"""`millrace_links` as links per ordered pair, and as commands for the kernel."""

from typing import Any

import pytest

from controller.emulation.shaping import Kernel, choose, kernel_commands, short_sends
from inventory.documents import Document
from inventory.errors import InputError
from inventory.links import FRAME, Link, requested_links

NO_NETEM = Kernel(htb=True, netem=False)


def wished(links: dict[str, Any]) -> tuple[Link, ...]:
    """What a lab asks for whose hosts have these `millrace_links`."""
    document = Document("lab.yml", {host: {"millrace_links": entries} for host, entries in links.items()}, {})
    return requested_links(document, list(links))


def test_an_entry_for_one_host_goes_before_the_entry_for_all() -> None:
    wishes: dict[str, Any] = {
        "n1": [{"to": "*", "rate_mbit": 100}, {"to": "n3", "delay_ms": 2}],
        "n2": None,
        "n3": [{"to": "n1", "rate_mbit": 10, "delay_ms": 0.5}],
    }
    assert wished(wishes) == (
        Link("n1", "n2", 100, 0),
        Link("n1", "n3", None, 2),
        Link("n3", "n1", 10, 0.5),
    )


def test_a_pair_that_is_neither_limited_nor_delayed_is_no_link() -> None:
    assert wished({"n1": [{"to": "*", "rate_mbit": 100}, {"to": "n2"}], "n2": []}) == ()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"to": "n22"}, "lab.yml: n1.millrace_links[0].to: 'n22' is no host of this inventory; did you mean 'n2'?"),
        ({"to": "n1"}, "lab.yml: n1.millrace_links[0].to: 'n1' is the host itself; a link leads to another"),
        ({"rate_mbit": 5}, "lab.yml: n1.millrace_links[0]: the key 'to' is missing"),
        ({"to": "n2", "rate": 5}, "n1.millrace_links[0].rate: unknown key 'rate'; did you mean 'rate_mbit'?"),
        ({"to": "n2", "rate_mbit": 0}, "n1.millrace_links[0].rate_mbit: got 0"),
        ({"to": "n2", "delay_ms": -1}, "n1.millrace_links[0].delay_ms: got -1"),
    ],
)
def test_a_wrong_entry_is_refused_with_its_host_and_what_would_be_right(entry: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        wished({"n1": [entry], "n2": []})
    assert message in str(caught.value)


def test_a_pair_given_twice_is_refused() -> None:
    with pytest.raises(InputError, match=r"n1\.millrace_links\[1\]\.to: the link to 'n2' is given twice"):
        wished({"n1": [{"to": "n2", "rate_mbit": 1}, {"to": "n2", "rate_mbit": 2}], "n2": []})


def test_the_kernel_shapes_what_it_can_and_the_relay_the_rest() -> None:
    rate, delay = [Link("n1", "n2", 100)], [Link("n1", "n2", 100, 1)]
    assert choose(rate, lambda: NO_NETEM) == "htb"
    assert choose(delay, lambda: NO_NETEM) == "relay"
    assert choose(delay, lambda: Kernel(htb=True, netem=True)) == "netem"
    assert choose(delay, lambda: Kernel(htb=False, netem=True)) == "relay"


def test_the_kernel_is_not_probed_when_there_is_nothing_to_shape() -> None:
    def ask() -> Kernel:
        raise AssertionError("asked")

    assert choose([], ask) == "none"


def test_the_kernel_gets_a_class_a_queue_and_a_filter_for_every_link() -> None:
    links = [Link("n1", "n2", 100), Link("n1", "n3", 10, 5), Link("n1", "n4", None, 1)]
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
    links = [Link("n1", f"n{number}", rate, 1) for number, rate in enumerate(rates, 2)]
    assert short_sends("eth0", links).endswith(f"gso_max_segs {frames} gso_max_size {frames * FRAME}")


def test_a_queue_holds_ten_milliseconds_or_64_kib_and_a_round_trip() -> None:
    assert Link("a", "b", 1000).queue_bytes == 1_250_000
    assert Link("a", "b", 10).queue_bytes == 65_536
    assert Link("a", "b", 1000, 2).queue_bytes == 1_250_000 + 500_000
    assert Link("a", "b", None, 2).queue_bytes == 0
