"""The offset of a node's monotonic clock against the controller's, from four timestamps per heartbeat.

The controller sends at t1, the node receives at t2 and answers at t3, the answer arrives at t4 (t1 and t4 in the
controller's clock). Whatever the two ways took, the true offset lies within `bound` of `offset`:

    offset = ((t2 - t1) + (t3 - t4)) / 2        bound = ((t4 - t1) - (t3 - t2)) / 2

Clocks drift apart, so that the bound of an exchange grows with its age.
"""

from collections import deque
from typing import NamedTuple

WINDOW = 60
"""Heartbeats that are remembered."""

DRIFT = 100e-6
"""Two clocks go apart by no more than this: the crystals of computers are within 50 millionths of their frequency."""


class Offset(NamedTuple):
    """What the node's clock shows more than the controller's, and how far off that may be; both in nanoseconds."""

    offset_ns: int
    bound_ns: int


class OffsetEstimate:
    """What the last `WINDOW` exchanges say."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, Offset]] = deque(maxlen=WINDOW)

    def add(self, sent_ns: int, received_ns: int, answered_ns: int, arrived_ns: int) -> None:
        """Take in one exchange: t1, t2, t3, t4 of the module's description."""
        there, back = received_ns - sent_ns, answered_ns - arrived_ns
        # Between sending and arrival the clocks drift, too.
        drifted = round((arrived_ns - sent_ns) * DRIFT)
        self._seen.append((arrived_ns, Offset((there + back) // 2, (there - back + 1) // 2 + drifted)))

    def at(self, now_ns: int) -> Offset | None:
        """The offset at `now_ns` of the controller's clock, by the exchange that says most; None before the first."""
        aged = (
            Offset(seen.offset_ns, seen.bound_ns + round((now_ns - arrived_ns) * DRIFT))
            for arrived_ns, seen in self._seen
        )
        return min(aged, key=lambda offset: offset.bound_ns, default=None)
