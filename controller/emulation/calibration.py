"""Calibration of an emulated cluster before a run: CPU time and memory of nodes, rates and round trips of links.

A quota is an upper limit: on a busy host a node gets less without being throttled. Therefore a busy loop runs in every
node's control group at the same time, and the CPU time that the kernel accounts is compared with the nodes' settings.

Rates of links are measured by TCP, round trips by datagrams. The sockets are created inside the nodes' namespaces and
used from outside. Therefore only the link is measured, without the nodes' CPU quotas, and no process is started that
could be left behind.
"""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from math import ceil
from pathlib import Path
from select import select
from statistics import median
from time import monotonic, sleep

import psutil
from msgspec.structs import replace

from analysis.records.conditions import Calibrated
from controller.emulation.cluster import ask
from controller.emulation.description import Description
from controller.emulation.network import Endpoint, NetworkPlan
from controller.host.cgroups import ControlGroup, find_hierarchy
from controller.host.namespaces import inside
from inventory.emulation import FRAME, LinkSettings
from inventory.errors import RunError

LEAST = 0.95
"""Smallest acceptable share of a requested value; below it, results describe this host rather than the cluster."""

FORWARDING_MS = 0.3
"""Round-trip time allowed in addition to the requested delays, because nodes share this host's processors."""

_ATTEMPTS = 3
_SETTLING_S = 0.2
_WINDOW_S = 1.0
_SMALL_SHARE, _SMALL_WINDOW_S = 0.1, 4.0
"""Below this share the CFS period is longer, and the window must contain enough periods."""

_BUSY_LOOP = """
import os, sys
for path in sys.argv[1:]:
    with open(path, "w") as entrance:
        entrance.write(str(os.getpid()))
print("in", flush=True)
while True:
    pass
"""

_TOLERANCE = 0.05
_LINK_ATTEMPTS = 3
_ROUND_TRIPS = 21
_WARM_UP_S = 0.1
_WARM_UP_TRIPS = 12
_LINK_WINDOW_S = 0.2
TOGETHER_MBIT = 500.0
"""Most that links which are measured at the same time may carry together, far below what the host can."""

_WINDOW_FRAMES = 40
_PATIENCE_S = 5.0

_HEADERS = 14 + 20 + 20 + 12
"""Header bytes of a frame: Ethernet, IP, TCP and TCP time stamps."""

# asm-generic/socket.h; root may ask for more than the system's limit.
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33

_CHUNK = memoryview(bytes(1 << 20))


def calibrate_cluster(description: Description) -> list[Calibrated]:
    """Apply the nodes' limits and measure all nodes, then the links.

    Raises:
        RunError: the cluster does not reply, or a node has ended.
    """
    calibrated = [*calibrate_cpu(description), *calibrate_memory(description)]
    return [*calibrated, *calibrate_links(description.network)]


def shortfall_of(calibrated: Iterable[Calibrated], least: float = LEAST) -> str:
    """Return a message that names all insufficient values, round trips that take too long included; empty if none."""
    parts = []
    for one in calibrated:
        least_got, most_got = one.asked * least, one.asked / least + FORWARDING_MS
        if one.got > most_got if one.what == "rtt" else one.got < least_got:
            to = f" to {one.to}" if one.to else ""
            parts.append(f"{one.node}{to}: {one.what} {one.got:.3g} of {one.asked:.3g} {one.unit}")
    return "; ".join(parts)


def calibrate_cpu(description: Description) -> list[Calibrated]:
    """Measure the cores of this host that every node gets while all are busy; return the best of up to three attempts.

    Raises:
        RunError: the cluster does not reply, or a node has ended.
    """
    reply = ask(Path(description.request.folder), "limit")
    if reply.faults:
        raise RunError("; ".join(reply.faults))
    groups = node_groups(description)
    best: list[Calibrated] = []
    for _ in range(_ATTEMPTS):
        got = measure_busy_cores(groups, reply.shares)
        calibrated = [Calibrated(name, None, "cpu", share, got[name], "cores") for name, share in reply.shares.items()]
        best = max(best, calibrated, key=lambda these: min((one.error for one in these), default=-1.0))
        if not shortfall_of(best):
            break
    return best


def calibrate_memory(description: Description) -> list[Calibrated]:
    """Return the MiB that every node may use: its limit, or less if this host has less memory than the limits' sum."""
    groups = node_groups(description)
    limits = {name: group.memory_limit() or 0 for name, group in groups.items()}
    open_bytes = {name: max(0, limits[name] - group.memory_used()) for name, group in groups.items()}
    part = min(1.0, psutil.virtual_memory().available / max(1, sum(open_bytes.values())))
    return [
        Calibrated(
            name,
            None,
            "memory",
            member.machine.memory_mb,
            (limits[name] - open_bytes[name] * (1 - part)) / (1 << 20),
            "MB",
        )
        for name, member in description.members.items()
    ]


def node_groups(description: Description) -> dict[str, ControlGroup]:
    """Return the control groups of all nodes."""
    hierarchy = find_hierarchy()
    return {name: ControlGroup(hierarchy, member.group) for name, member in description.members.items()}


def measure_busy_cores(groups: Mapping[str, ControlGroup], shares: Mapping[str, float]) -> dict[str, float]:
    """Return the cores that each group gets while all are busy, from the CPU time accounted by the kernel.

    Args:
        groups: groups of the nodes that take part.
        shares: node -> its CPU quota in cores.
    """
    small = min(shares[name] for name in groups) < _SMALL_SHARE
    # One process can use no more than one core.
    loops = [group for name, group in groups.items() for _ in range(max(1, ceil(shares[name])))]
    with _busy(loops):
        sleep(_SETTLING_S)
        begin = {name: (group.cpu_seconds(), monotonic()) for name, group in groups.items()}
        sleep(_SMALL_WINDOW_S if small else _WINDOW_S)
        end = {name: (group.cpu_seconds(), monotonic()) for name, group in groups.items()}
    return {name: (end[name][0] - begin[name][0]) / (end[name][1] - begin[name][1]) for name in groups}


@contextmanager
def _busy(groups: Sequence[ControlGroup]) -> Iterator[None]:
    """Run a busy loop in each group during the block."""
    loops = [
        subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _BUSY_LOOP, *map(str, group.entrances)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        for group in groups
    ]
    try:
        for loop in loops:
            if loop.stdout is None or not loop.stdout.readline():
                raise RunError("a process cannot enter the control group of its node")
        yield
    finally:
        for loop in loops:
            loop.kill()
        for loop in loops:
            loop.communicate()


def calibrate_links(plan: NetworkPlan) -> Iterator[Calibrated]:
    """Measure every limited link, delayed round trip and limited interface of a running network.

    Rates of links between different nodes are measured at the same time, everything else one after the other. An
    interface is measured by its fastest link; without a link of its rate it is not measured.

    Values that are off by more than 5 % are measured up to three times, from the second time on alone, because the host
    may be busy for a moment; the measurement nearest to the requested value counts.

    Raises:
        RunError: no data arrive at the other end.
    """
    pairs = {(link.sender, link.receiver) for link in plan.links}
    rates = _calibrate_rates(plan)
    for link in plan.links:
        if link.rate_mbit is not None:
            yield rates[link.sender, link.receiver]
        back = (link.receiver, link.sender)
        if trip_s(plan, link) and (link.sender < link.receiver or back not in pairs):
            yield _nearest(partial(measure_round_trip, plan, link))
    for name, nic_mbit in plan.nics.items():
        fastest = next((link for link in plan.shaped_from(name) if link.rate_mbit == nic_mbit), None)
        if fastest is not None:
            nearest = _nearest(partial(measure_rate, plan, fastest))
            yield Calibrated(name, None, "nic", nic_mbit, nearest.got, nearest.unit)


def _calibrate_rates(plan: NetworkPlan) -> dict[tuple[str, str], Calibrated]:
    """Return sender and receiver -> measured rate of their link."""
    limited = [
        replace(link, rate_mbit=min(link.rate_mbit, plan.nics.get(link.sender, link.rate_mbit)))
        for link in plan.links
        if link.rate_mbit is not None
    ]
    calibrated = {}
    for links in measurable_together(limited):
        with ThreadPoolExecutor(len(links)) as pool:
            first = list(pool.map(partial(measure_rate, plan), links))
        for link, rate in zip(links, first, strict=True):
            calibrated[link.sender, link.receiver] = _nearest(partial(measure_rate, plan, link), rate)
    return calibrated


def measurable_together(links: Sequence[LinkSettings]) -> Iterator[Sequence[LinkSettings]]:
    """Divide links into sets without a node in common, each with at most `TOGETHER_MBIT` or of one link."""
    left = list(links)
    while left:
        taken, others, busy, mbit = list[LinkSettings](), list[LinkSettings](), set[str](), 0.0
        for link in left:
            ends, rate = {link.sender, link.receiver}, link.rate_mbit or 0.0
            if busy & ends or (taken and mbit + rate > TOGETHER_MBIT):
                others.append(link)
            else:
                taken.append(link)
                busy |= ends
                mbit += rate
        yield taken
        left = others


def trip_s(plan: NetworkPlan, link: LinkSettings) -> float:
    """Return the sum of the requested delays of a link and its reverse link, in seconds."""
    back = (other.delay_ms for other in plan.links if (other.receiver, other.sender) == (link.sender, link.receiver))
    return (link.delay_ms + next(back, 0.0)) / 1000


def _nearest(measure: Callable[[], Calibrated], *earlier: Calibrated) -> Calibrated:
    attempts = list(earlier)
    while len(attempts) < _LINK_ATTEMPTS and (not attempts or abs(attempts[-1].error) > _TOLERANCE):
        attempts.append(measure())
    return min(attempts, key=lambda calibrated: abs(calibrated.error))


def measure_rate(plan: NetworkPlan, link: LinkSettings, seconds: float = _LINK_WINDOW_S) -> Calibrated:
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
        segment_size = sink.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
    wire = count * (segment_size + _HEADERS) / segment_size
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


def measure_round_trip(plan: NetworkPlan, link: LinkSettings, count: int = _ROUND_TRIPS) -> Calibrated:
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
