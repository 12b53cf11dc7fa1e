"""Link model: a link accepts frames one after the other at its rate, and delivers them after its delay.

The model only computes with times passed by the caller; the relay passes the monotonic clock.
"""

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from msgspec import Struct

HEADER = 10
"""Bytes of the `virtio_net_hdr` before every frame (linux/virtio_net.h)."""

MOST_HELD = 256 * 1024 * 1024
"""Largest number of bytes in flight in all links; frames beyond it are dropped, to bound the memory used."""

_ETHERNET = 14
_GROUP = 0x01


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


class LinkModel:
    """All links of a network, and the frames in flight.

    Between nodes without a link, frames are delivered immediately. The receiver of a frame is the last byte of its
    destination address; multicast frames go to all other nodes.

    Attributes:
        carried: frames delivered.
        dropped: frames dropped because the queue of their link, or the memory for all links, was full.
        latest_s: longest delay of a delivery beyond its due time, caused by the relay.
    """

    def __init__(self, numbers: Iterable[int], shapes: Iterable[LinkShape]) -> None:
        self._numbers = frozenset(numbers)
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
        link = self._links.get((sender, receiver))
        time: float | None = now
        if link is not None:
            time = link.delivery(frame, now)
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
