"""Relay: one process that forwards the frames of an emulated network, with the rate and delay of each link.

    python -P -m controller.emulation.relay

It replaces netem on kernels without it. It reads a `RelayPlan` as JSON from standard input, creates the nodes'
interfaces, writes `ready` and a newline to standard output, and forwards frames until SIGTERM. Then it writes its
`RelayCounters` as one line of JSON to standard error; the interfaces disappear with it. It runs in the switch's network
namespace, so that taking the network down also ends it.

A link accepts frames one after the other at its rate, and delivers them after its delay. The model of this only
computes with times passed by the caller; the relay passes the monotonic clock.
"""

import fcntl
import gc
import os
import resource
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from heapq import heappop, heappush
from pathlib import Path
from select import select
from time import monotonic
from typing import IO, cast

import msgspec
from msgspec import Struct

from controller.host.namespaces import enter, inside
from inventory.errors import MillraceError, UnfitError
from inventory.libc import TIMER_SLACK_NS, set_property
from inventory.parent_death import end_with, leave_on_sigterm

HEADER = 10
"""Bytes of the `virtio_net_hdr` before every frame (linux/virtio_net.h)."""

MOST_HELD = 256 * 1024 * 1024
"""Largest number of bytes in flight in all links; frames beyond it are dropped, to bound the memory used."""

_ETHERNET = 14
_GROUP = 0x01

_DEVICE = Path("/dev/net/tun")
# linux/if_tun.h
_TUNSETIFF = 0x400454CA
_TUNSETOFFLOAD = 0x400454D0
_TUNSETVNETHDRSZ = 0x400454D8
_TUNSETVNETLE = 0x400454DC
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
_TUN_F_CSUM, _TUN_F_TSO4, _TUN_F_TSO6 = 0x01, 0x02, 0x04

LARGEST = HEADER + 14 + 65535
"""Bytes of the largest frame, with its `virtio_net_hdr`."""

_MOST_AT_ONCE = 16
"""Number of frames read from one node before other nodes and due frames are handled."""

_MARGIN_S = 10e-6
_MOST_EARLY_S = 100e-6
"""Longest time that the relay polls the clock instead of sleeping."""


class LinkShape(Struct, frozen=True):
    """Parameters of a link.

    Attributes:
        sender: number of the sending node, the last byte of its MAC address.
        receiver: number of the receiving node.
        s_per_byte: seconds that one wire byte occupies the link; 0 if the rate is not limited.
        queue_s: longest time in seconds that a frame may wait for the link; others are dropped.
        delay_s: seconds from the frame's last bit leaving the sender to its delivery.
    """

    sender: int
    receiver: int
    s_per_byte: float
    queue_s: float
    delay_s: float


class NicShape(Struct, frozen=True):
    """Limit of an interface, before all links of its node.

    Attributes:
        sender: number of the node.
        receivers: numbers of the nodes to which it sends at this rate together; to others the rate is not limited.
        s_per_byte: seconds that one wire byte occupies the interface.
        queue_s: longest time in seconds that a frame may wait for the interface; others are dropped.
    """

    sender: int
    receivers: tuple[int, ...]
    s_per_byte: float
    queue_s: float


class LinkModel:
    """All links of a network, and the frames in flight.

    Between nodes without a link, frames are delivered immediately. The receiver of a frame is the last byte of its
    destination address; multicast frames go to all other nodes.

    Attributes:
        carried: frames delivered.
        dropped: frames dropped because the queue of their link, or the memory for all links, was full.
        latest_s: longest delay of a delivery beyond its due time, caused by the relay.
    """

    def __init__(self, numbers: Iterable[int], shapes: Iterable[LinkShape], nics: Iterable[NicShape] = ()) -> None:
        self._numbers = frozenset(numbers)
        self._nics: dict[tuple[int, int], _LinkState] = {}
        for nic in nics:
            # An interface is a link without a delay that several receivers share.
            shared = _LinkState(LinkShape(nic.sender, nic.sender, nic.s_per_byte, nic.queue_s, 0.0))
            self._nics |= {(nic.sender, receiver): shared for receiver in nic.receivers}
        self._links = {(shape.sender, shape.receiver): _LinkState(shape) for shape in shapes}
        self._heap: list[tuple[float, int, int, bytes]] = []
        self._sequence = 0
        self._held = 0
        self.carried = 0
        self.dropped = 0
        self.latest_s = 0.0

    def offer(self, sender: int, frame: bytes, now: float) -> None:
        """Accept a frame with its `virtio_net_hdr` from `sender` at time `now`, in seconds."""
        if len(frame) < HEADER + _ETHERNET:
            return
        if frame[HEADER] & _GROUP:
            for receiver in self._numbers:
                if receiver != sender:
                    self._enqueue(sender, receiver, frame, now)
        elif frame[HEADER + 5] in self._numbers:
            self._enqueue(sender, frame[HEADER + 5], frame, now)

    def next_s(self) -> float | None:
        """Return the time at which the next frame is due; None if no frame is in flight."""
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> Iterator[tuple[int, bytes]]:
        """Yield (receiver, frame) for all frames due by `now`, in order of their due times."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            time, _, receiver, frame = heappop(heap)
            self._held -= len(frame)
            self.carried += 1
            if now - time > self.latest_s:
                self.latest_s = now - time
            yield receiver, frame

    def _enqueue(self, sender: int, receiver: int, frame: bytes, now: float) -> None:
        nic = self._nics.get((sender, receiver))
        link = self._links.get((sender, receiver))
        time: float | None = now
        if nic is not None:
            time = nic.delivery(frame, now)
        if link is not None and time is not None:
            time = link.delivery(frame, time)
        if time is None or self._held + len(frame) > MOST_HELD:
            self.dropped += 1
            return
        self._held += len(frame)
        self._sequence += 1
        heappush(self._heap, (time, self._sequence, receiver, frame))


class _LinkState:
    """State of one link: the time until which it is busy."""

    __slots__ = ("_delay_s", "_free", "_queue_s", "_s_per_byte")

    def __init__(self, shape: LinkShape) -> None:
        self._s_per_byte = shape.s_per_byte
        self._queue_s = shape.queue_s
        self._delay_s = shape.delay_s
        self._free = 0.0

    def delivery(self, frame: bytes, now: float) -> float | None:
        """Return the time at which a frame sent now arrives; None if it is dropped."""
        if not self._s_per_byte:
            return now + self._delay_s
        start = self._free
        if start < now:
            start = now
        elif start - now > self._queue_s:
            return None
        self._free = start + wire_bytes(frame) * self._s_per_byte
        return self._free + self._delay_s


def wire_bytes(frame: bytes) -> int:
    """Return the wire bytes of a frame with its `virtio_net_hdr`.

    A frame with offloaded segmentation (TCP, up to 64 KiB) counts as its segments, each with a copy of the headers.
    `hdr_len` is only a hint; therefore the headers' length is computed from the frame, up to the end of the TCP header.
    """
    length = len(frame) - HEADER
    if not frame[1]:
        return length
    segment = int.from_bytes(frame[4:6], "little")
    transport = int.from_bytes(frame[6:8], "little")
    headers = transport + (frame[HEADER + transport + 12] >> 4) * 4
    segments = -(-(length - headers) // segment)
    return length + (segments - 1) * headers


class Tap(Struct, frozen=True):
    """An interface to create: its name, the file of its namespace, and the node's number (`LinkShape.sender`)."""

    number: int
    namespace: str
    interface: str


class RelayPlan(Struct, frozen=True):
    """Plan of a relay.

    Attributes:
        home: file of the network namespace in which it runs.
        taps: the nodes' interfaces.
        shapes: the links.
        nics: the limited interfaces.
    """

    home: str
    taps: tuple[Tap, ...]
    shapes: tuple[LinkShape, ...]
    nics: tuple[NicShape, ...] = ()


class RelayCounters(Struct, frozen=True):
    """Frames delivered and dropped, the longest lateness of a frame (s), and the relay's CPU time (s)."""

    carried: int
    dropped: int
    latest_s: float
    cpu_s: float


def open_tap(namespace: Path, interface: str) -> int:
    """Create `interface` in the network namespace; return its non-blocking descriptor.

    A read returns one frame sent by the node, a write delivers one to it; each starts with a little-endian
    `virtio_net_hdr`. Checksums and TCP segmentation are offloaded, so that one frame holds up to 64 KiB. The interface
    exists until the descriptor is closed, which can be used from any namespace.

    Raises:
        UnfitError: the host has no TAP devices, or they are not permitted.
    """
    with inside(namespace):
        try:
            handle = os.open(_DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as fault:
            raise UnfitError(f"{_DEVICE}: cannot be opened: {fault.strerror}; delays need it on this kernel") from None
        try:
            flags = _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR
            fcntl.ioctl(handle, _TUNSETIFF, struct.pack("16sH22x", interface.encode(), flags))
            fcntl.ioctl(handle, _TUNSETVNETHDRSZ, struct.pack("i", HEADER))
            fcntl.ioctl(handle, _TUNSETVNETLE, struct.pack("i", 1))
            fcntl.ioctl(handle, _TUNSETOFFLOAD, _TUN_F_CSUM | _TUN_F_TSO4 | _TUN_F_TSO6)
        except OSError as fault:
            os.close(handle)
            raise UnfitError(f"{_DEVICE}: {interface} cannot be made: {fault.strerror}") from None
    return handle


def forward(taps: dict[int, int], links: LinkModel) -> None:
    """Forward frames until a signal; `taps` maps descriptors to node numbers.

    An idle CPU takes some 50 us to wake up, a busy one much less: the relay estimates its wake-up latency, sleeps that
    much shorter, and polls the clock for the rest.
    """
    ends = {number: descriptor for descriptor, number in taps.items()}
    early = 0.0
    while True:
        now = monotonic()
        for receiver, frame in links.due(now):
            # An interface that is down refuses frames, like a card without a cable.
            with suppress(OSError):
                os.write(ends[receiver], frame)
        due = links.next_s()
        wait = None if due is None else max(0.0, due - early - monotonic())
        # Not epoll: Python rounds its timeouts to milliseconds.
        ready, _, _ = select(taps, (), (), wait)
        now = monotonic()
        if wait and due is not None and not ready:
            early = min(max(0.0, early + (now + _MARGIN_S - due) / 8), _MOST_EARLY_S)
        for descriptor in ready:
            for _ in range(_MOST_AT_ONCE):
                try:
                    frame = os.read(descriptor, LARGEST)
                except OSError:
                    break
                links.offer(taps[descriptor], frame, now)


def main() -> int:
    """Run a relay; return its exit status."""
    leave_on_sigterm()
    plan = msgspec.json.decode(sys.stdin.buffer.read(), type=RelayPlan)
    try:
        enter(Path(plan.home))
        taps = {open_tap(Path(tap.namespace), tap.interface): tap.number for tap in plan.taps}
    except MillraceError as fault:
        print(fault, file=sys.stderr)  # noqa: T201 - its log
        return fault.exit_status
    set_property(TIMER_SLACK_NS, 1)
    with suppress(OSError):
        # Real-time priority: waiting for the CPU would make every link slower.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    # The relay creates no reference cycles, and a collection would delay every link.
    gc.disable()
    links = LinkModel(taps.values(), plan.shapes, plan.nics)
    os.write(sys.stdout.fileno(), b"ready\n")
    try:
        forward(taps, links)
    finally:
        used = resource.getrusage(resource.RUSAGE_SELF)
        account = RelayCounters(links.carried, links.dropped, links.latest_s, used.ru_utime + used.ru_stime)
        os.write(sys.stderr.fileno(), msgspec.json.encode(account) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())


def start_relay(plan: RelayPlan, log: Path) -> subprocess.Popen[bytes]:
    """Start a relay, which ends with this process; return it once all interfaces exist.

    Args:
        plan: its plan.
        log: file to which it appends errors and, at its end, its `RelayCounters` as one line of JSON.

    Raises:
        UnfitError: it could not create an interface; the message is the relay's own.
    """
    with log.open("ab") as errors:
        begin = errors.tell()
        relay = subprocess.Popen(
            [sys.executable, "-P", "-m", "controller.emulation.relay"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            preexec_fn=end_with(os.getpid()),
        )
    plans, answers = cast("IO[bytes]", relay.stdin), cast("IO[bytes]", relay.stdout)
    # If it has ended already, its log has the reason.
    with suppress(BrokenPipeError), plans:
        plans.write(msgspec.json.encode(plan))
    with answers:
        ready = answers.readline() == b"ready\n"
    if not ready:
        relay.wait()
        text = log.read_bytes()[begin:].decode(errors="replace").strip() or f"the relay ended with {relay.returncode}"
        raise UnfitError(text.splitlines()[-1])
    return relay
