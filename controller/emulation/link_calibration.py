"""Calibration of the links of an emulated network: rates by TCP, round trips by datagrams.

The sockets are created inside the nodes' namespaces and used from outside. Therefore only the link is measured, without
the nodes' CPU quotas, and no process is started that could be left behind.
"""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from select import select
from statistics import median
from time import monotonic

from controller.emulation.network import Endpoint, NetworkPlan
from controller.host.namespaces import inside
from controller.nodes.backend import Calibrated
from inventory.errors import RunError
from inventory.links import FRAME, Link

_TOLERANCE = 0.05
_ATTEMPTS = 3
_ROUND_TRIPS = 21
_WARM_UP_S = 0.1
_WARM_UP_TRIPS = 12
_WINDOW_S = 0.2
_WINDOW_FRAMES = 40
_PATIENCE_S = 5.0

_HEADERS = 14 + 20 + 20 + 12
"""Header bytes of a frame: Ethernet, IP, TCP and TCP time stamps."""

# asm-generic/socket.h; root may ask for more than the system's limit.
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33

_CHUNK = memoryview(bytes(1 << 20))


def calibrate_links(plan: NetworkPlan) -> Iterator[Calibrated]:
    """Measure every limited link and every delayed round trip of a running network, one after the other.

    Values that are off by more than 5 % are measured up to three times, because the host may be busy for a moment; the
    measurement nearest to the requested value counts.

    Raises:
        RunError: no data arrive at the other end.
    """
    pairs = {(link.sender, link.receiver) for link in plan.links}
    for link in plan.links:
        if link.rate_mbit is not None:
            yield _nearest(partial(measure_rate, plan, link))
        back = (link.receiver, link.sender)
        if trip_s(plan, link) and (link.sender < link.receiver or back not in pairs):
            yield _nearest(partial(measure_round_trip, plan, link))


def trip_s(plan: NetworkPlan, link: Link) -> float:
    """Return the sum of the requested delays of a link and its reverse link, in seconds."""
    back = (other.delay_ms for other in plan.links if (other.receiver, other.sender) == (link.sender, link.receiver))
    return (link.delay_ms + next(back, 0.0)) / 1000


def _nearest(measure: Callable[[], Calibrated]) -> Calibrated:
    found: list[Calibrated] = []
    while len(found) < _ATTEMPTS and (not found or abs(found[-1].error) > _TOLERANCE):
        found.append(measure())
    return min(found, key=lambda calibrated: abs(calibrated.error))


def measure_rate(plan: NetworkPlan, link: Link, seconds: float = _WINDOW_S) -> Calibrated:
    """Measure the rate of one saturating TCP connection over a limited link, in wire bytes.

    It is measured over `seconds`, or longer if that is too short for the link's rate or delay.
    """
    sender, receiver = plan.endpoint(link.sender), plan.endpoint(link.receiver)
    rate, trip = link.bytes_per_s or 0.0, trip_s(plan, link)
    # Large enough to keep the link busy, small enough not to overflow its queue: data behind a lost frame would be
    # held back at the receiver and then arrive all at once.
    window = int(rate * trip) + link.queue_bytes // 2
    with _arriving(sender, receiver), ExitStack() as stack:
        with inside(receiver.path):
            server = stack.enter_context(socket.create_server((receiver.address, 0)))
        with inside(sender.path):
            source = stack.enter_context(socket.socket())
        for end, option in ((server, _SO_RCVBUFFORCE), (source, _SO_SNDBUFFORCE)):
            end.settimeout(_PATIENCE_S)
            # Without permission to exceed the system's limit, the kernel chooses the size.
            with suppress(PermissionError):
                end.setsockopt(socket.SOL_SOCKET, option, 4 * window)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, window)
        source.connect(server.getsockname())
        sink = stack.enter_context(server.accept()[0])
        source.setblocking(False)
        _received(source, sink, max(_WARM_UP_S, _WARM_UP_TRIPS * trip))
        count, took = _received(source, sink, max(seconds, _WINDOW_FRAMES * FRAME / rate, 4 * trip))
        data = sink.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
    wire = count * (data + _HEADERS) / data
    return Calibrated(sender.name, receiver.name, "link", link.rate_mbit or 0.0, wire * 8e-6 / took, "Mbit/s")


def _received(source: socket.socket, sink: socket.socket, seconds: float) -> tuple[int, float]:
    """Send to `source` and receive from `sink` for at least `seconds`.

    Returns the bytes received after the first receipt, and the seconds from the first to the last receipt.
    """
    target = bytearray(len(_CHUNK))
    count, first, last = 0, None, monotonic()
    while first is None or last - first < seconds:
        readable, writable, _ = select([sink], [source], [], _PATIENCE_S)
        if writable:
            with suppress(BlockingIOError):
                source.send(_CHUNK)
        if readable:
            taken = sink.recv_into(target)
            last = monotonic()
            if first is None:
                first = last
            else:
                count += taken
        elif monotonic() - last > _PATIENCE_S:
            raise TimeoutError
    return count, last - first


@contextmanager
def _arriving(sender: Endpoint, receiver: Endpoint) -> Iterator[None]:
    """Convert socket errors into a RunError that names both ends."""
    try:
        yield
    except OSError as fault:
        why = fault.strerror or f"nothing arrives within {_PATIENCE_S:g} s"
        raise RunError(f"the link between {sender.name} and {receiver.name}: {why}") from None


def measure_round_trip(plan: NetworkPlan, link: Link, count: int = _ROUND_TRIPS) -> Calibrated:
    """Measure the median of `count` round trips of a small datagram over a link and back."""
    one, other = plan.endpoint(link.sender), plan.endpoint(link.receiver)
    with _arriving(one, other), ExitStack() as stack:
        ends = []
        for end in (one, other):
            with inside(end.path):
                ends.append(stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)))
            ends[-1].bind((end.address, 0))
            ends[-1].settimeout(_PATIENCE_S)
        here, there = ends
        here.connect(there.getsockname())
        there.connect(here.getsockname())
        trips = []
        # The first one includes address resolution (ARP).
        for _ in range(1 + count):
            begin = monotonic()
            here.send(b"there")
            there.recv(64)
            there.send(b"back")
            here.recv(64)
            trips.append(monotonic() - begin)
    return Calibrated(one.name, other.name, "rtt", trip_s(plan, link) * 1000, median(trips[1:]) * 1000, "ms")
