"""Limits of emulated nodes' interfaces, which all links of a node share: commands, the relay, and measured rates."""

import socket
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from select import select
from time import monotonic

import pytest

from controller.emulation.calibration import calibrate_links
from controller.emulation.description import nics_of
from controller.emulation.network import EmulatedNetwork, NetworkPlan, kernel_commands, new_prefix
from controller.emulation.relay import HEADER, LinkModel, LinkShape, NicShape
from controller.emulation.unprivileged import NoLedger
from controller.host.namespaces import inside
from inventory.documents import parse_document
from inventory.emulation import FRAME, EmulatedMachine, LinkSettings
from inventory.errors import InputError

NODES = ("n1", "n2", "n3")
ADDRESSES = {"n2": "10.77.0.2", "n3": "10.77.0.3"}


def test_a_limited_interface_shapes_all_links_of_its_node_and_none_is_faster() -> None:
    plan = NetworkPlan("mr", NODES, (LinkSettings("n1", "n2", 500, 1), LinkSettings("n2", "n1", 500)), {"n1": 80.0})
    assert plan.shaped_from("n1") == [LinkSettings("n1", "n2", 80, 1), LinkSettings("n1", "n3", 80)]
    assert plan.shaped_from("n2") == [LinkSettings("n2", "n1", 500)]
    assert plan.shaped_from("n3") == []


def test_the_classes_of_links_share_the_class_of_the_interface() -> None:
    commands = kernel_commands("eth0", [LinkSettings("n1", "n2", 100), LinkSettings("n1", "n3", 10)], ADDRESSES, 100)
    classes = [command for command in commands if command.startswith("class")]
    large, small = (f"burst {size} cburst {size} quantum {FRAME}" for size in (12500, 2 * FRAME))
    assert classes == [
        "class add dev eth0 parent 1: classid 1:ffff htb rate 100000000bit burst 12500 cburst 12500 quantum 1514",
        "class add dev eth0 parent 1:ffff classid 1:1 htb rate 50000000bit ceil 100000000bit " + large,
        "class add dev eth0 parent 1:ffff classid 1:2 htb rate 10000000bit ceil 10000000bit " + small,
    ]


def frame(sender: int, receiver: int, size: int) -> bytes:
    target, source = (bytes([2, 0, 0, 0, 1, number]) for number in (receiver, sender))
    return bytes(HEADER) + target + source + b"\x08\x00" + bytes(size - 14)


def delivered(model: LinkModel) -> list[tuple[float, int]]:
    found = []
    while (at := model.next_s()) is not None:
        found += [(round(at, 6), receiver) for receiver, _ in model.due(at)]
    return found


def test_frames_to_all_nodes_wait_for_the_interface_and_then_for_their_link() -> None:
    nic = NicShape(1, (1, 2, 3), 1e-3, 10.0)
    model = LinkModel((1, 2, 3, 254), [LinkShape(1, 3, 2e-3, 10.0, 0.5)], [nic])
    for receiver in (2, 3, 3, 254):
        model.offer(1, frame(1, receiver, 100), 1.0)
    model.offer(2, frame(2, 1, 100), 1.0)
    # 0.1 s of the interface each, one after the other; then 0.2 s of the link to 3 and its delay.
    assert delivered(model) == [(1.0, 254), (1.0, 1), (1.1, 2), (1.9, 3), (2.1, 3)]


def test_frames_that_wait_too_long_for_the_interface_are_dropped() -> None:
    model = LinkModel((1, 2, 3), [], [NicShape(1, (1, 2, 3), 1e-3, 0.15)])
    for receiver in (2, 3, 2, 3):
        model.offer(1, frame(1, receiver, 100), 0.0)
    assert delivered(model) == [(0.1, 2), (0.2, 3)]
    assert model.dropped == 2


def test_limits_of_interfaces_come_from_the_machines_of_the_inventory() -> None:
    def machine(more: str) -> EmulatedMachine:
        return parse_document(f"{{cores: 1, ghz: 1, share_per_core: 0.1, memory_mb: 64{more}}}").convert(
            EmulatedMachine
        )

    assert nics_of({"n1": machine(", nic_mbit: 25"), "n2": machine("")}) == {"n1": 25}
    with pytest.raises(InputError, match="nic_mbit: got 0"):
        machine(", nic_mbit: 0")


NIC_MBIT, SECONDS, SETTLING_S = 40.0, 1.0, 0.3
MBIT = 1e6 / 8
WIRE = FRAME / 1448
CHUNK = bytes(1 << 16)


def flood(network: EmulatedNetwork, sender: str, receivers: Sequence[str]) -> list[float]:
    """Send from a node at the highest rate; return the Mbit/s of wire bytes that arrive at each receiver."""
    with ExitStack() as stack:
        sources, sinks = [], []
        for name in receivers:
            end = network.nodes[name]
            with inside(end.path), socket.create_server((end.address, 0)) as server:
                server.settimeout(30)
                with inside(network.nodes[sender].path):
                    sources.append(stack.enter_context(socket.create_connection(server.getsockname(), timeout=30)))
                sinks.append(stack.enter_context(server.accept()[0]))
        for each in (*sources, *sinks):
            each.setblocking(False)
        begin, counts = monotonic(), dict.fromkeys(sinks, 0)
        while (now := monotonic()) - begin < SETTLING_S + SECONDS:
            readable, writable, _ = select(sinks, sources, [], 1.0)
            for source in writable:
                with suppress(BlockingIOError):
                    source.send(CHUNK)
            for sink in readable:
                size = len(sink.recv(1 << 16))
                counts[sink] += size if now - begin >= SETTLING_S else 0
        return [count * WIRE / MBIT / (monotonic() - begin - SETTLING_S) for count in counts.values()]


@pytest.mark.root
@pytest.mark.timeout(120)
@pytest.mark.parametrize("delay_ms", [0.0, 0.5], ids=["kernel", "delayed"])
def test_all_links_of_a_node_together_have_the_rate_of_its_interface(tmp_path: Path, delay_ms: float) -> None:
    links = (LinkSettings("n1", "n2", 1000, delay_ms), LinkSettings("n2", "n1", 1000, delay_ms))
    plan = NetworkPlan(new_prefix(), NODES, links, {"n1": NIC_MBIT})
    with EmulatedNetwork(plan, NoLedger(), tmp_path / "relay.log") as network:
        rows = {(row.node, row.to, row.what): row for row in calibrate_links(plan)}
        both = flood(network, "n1", ["n2", "n3"])
        (back,) = flood(network, "n2", ["n1"])
    # A busy host may be slower than the limit, never faster.
    assert sum(both) < 1.15 * NIC_MBIT, both
    assert min(both) > 0.1 * NIC_MBIT, both
    assert back > 2 * NIC_MBIT
    assert rows["n1", "n2", "link"].asked == rows["n1", None, "nic"].asked == NIC_MBIT
    assert rows["n1", None, "nic"].got < 1.15 * NIC_MBIT
    assert rows["n2", "n1", "link"].asked == 1000
