"""What a link does to frames: it takes them one after the other at its rate, and delivers them after its delay.

This is arithmetic in the time that the caller gives; the relay gives it the monotonic clock.
"""

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from msgspec import Struct

HEADER = 10
"""Bytes of a `virtio_net_hdr`, which stands before every frame (linux/virtio_net.h)."""

MOST_HELD = 256 * 1024 * 1024
"""Bytes under way in all links together; more is dropped, so that a flood cannot take the host's memory."""

_ETHERNET = 14
_GROUP = 0x01


class LinkShape(Struct, frozen=True):
    """A link in numbers.

    Attributes:
        sender: number of the sending node, the last byte of its MAC address.
        receiver: number of the receiving node.
        s_per_byte: seconds that one wire byte occupies the link; 0 when the rate is not limited.
        queue_s: seconds that a frame may wait for the link to be free; one that would wait longer is dropped.
        delay_s: seconds from the frame's last bit leaving the sender to its delivery.
    """

    sender: int
    receiver: int
    s_per_byte: float
    queue_s: float
    delay_s: float


class LinkModel:
    """All links of a network, and the frames that are under way in them.

    Pairs without a link of their own deliver at once. A frame's receiver is the last byte of its destination
    address; a frame to a group goes to everybody else.

    Attributes:
        carried: frames delivered.
        dropped: frames that found their link's queue, or the memory for all, full.
        latest_s: the longest that a frame was delivered after its time: how far the relay lagged behind its links.
    """

    def __init__(self, numbers: Iterable[int], shapes: Iterable[LinkShape]) -> None:
        self._numbers = frozenset(numbers)
        self._lines = {(shape.sender, shape.receiver): _Line(shape) for shape in shapes}
        self._heap: list[tuple[float, int, int, bytes]] = []
        self._sequence = 0
        self._held = 0
        self.carried = 0
        self.dropped = 0
        self.latest_s = 0.0

    def offer(self, sender: int, frame: bytes, now: float) -> None:
        """Take a frame with its `virtio_net_hdr` from `sender` at the time `now`, in seconds."""
        if len(frame) < HEADER + _ETHERNET:
            return
        if frame[HEADER] & _GROUP:
            for receiver in self._numbers:
                if receiver != sender:
                    self._take(sender, receiver, frame, now)
        elif frame[HEADER + 5] in self._numbers:
            self._take(sender, frame[HEADER + 5], frame, now)

    def next_s(self) -> float | None:
        """When the next frame is to be delivered; None when nothing is under way."""
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> Iterator[tuple[int, bytes]]:
        """The frames to be delivered by `now`, each with its receiver, in the order of their times."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            time, _, receiver, frame = heappop(heap)
            self._held -= len(frame)
            self.carried += 1
            if now - time > self.latest_s:
                self.latest_s = now - time
            yield receiver, frame

    def _take(self, sender: int, receiver: int, frame: bytes, now: float) -> None:
        line = self._lines.get((sender, receiver))
        time: float | None = now
        if line is not None:
            time = line.delivery(frame, now)
        if time is None or self._held + len(frame) > MOST_HELD:
            self.dropped += 1
            return
        self._held += len(frame)
        self._sequence += 1
        heappush(self._heap, (time, self._sequence, receiver, frame))


class _Line:
    """One link: how long it is still busy."""

    __slots__ = ("_delay_s", "_free", "_queue_s", "_s_per_byte")

    def __init__(self, shape: LinkShape) -> None:
        self._s_per_byte = shape.s_per_byte
        self._queue_s = shape.queue_s
        self._delay_s = shape.delay_s
        self._free = 0.0

    def delivery(self, frame: bytes, now: float) -> float | None:
        """When a frame that comes now arrives; None when it does not."""
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
    """Bytes that a frame with its `virtio_net_hdr` takes on a wire.

    A frame left to be segmented by the network card (TCP, up to 64 KiB) counts as the segments that it stands for,
    each with a copy of the headers. The header's `hdr_len` is only a hint, so that the headers are measured in the
    frame: they end where the TCP header does.
    """
    length = len(frame) - HEADER
    if not frame[1]:
        return length
    segment = int.from_bytes(frame[4:6], "little")
    transport = int.from_bytes(frame[6:8], "little")
    headers = transport + (frame[HEADER + transport + 12] >> 4) * 4
    segments = -(-(length - headers) // segment)
    return length + (segments - 1) * headers
