"""The offset of a node's monotonic clock against the controller's, from four timestamps per heartbeat.

The controller sends at t1, the node receives at t2 and answers at t3, the answer arrives at t4 (t1 and t4 in the
controller's clock). Whatever the two ways took, the true offset lies within `bound` of `offset`:

    offset = ((t2 - t1) + (t3 - t4)) / 2        bound = ((t4 - t1) - (t3 - t2)) / 2
"""

from collections import deque
from typing import NamedTuple

WINDOW = 60
"""Heartbeats that are remembered. Clocks drift apart, so that an old narrow bound is worth less than a fresh one."""


class Offset(NamedTuple):
    """What the node's clock shows more than the controller's, and how far off that may be; both in nanoseconds."""

    offset_ns: int
    bound_ns: int


class OffsetEstimate:
    """The best of the last `WINDOW` exchanges."""

    def __init__(self) -> None:
        self._seen: deque[Offset] = deque(maxlen=WINDOW)

    def add(self, sent_ns: int, received_ns: int, answered_ns: int, arrived_ns: int) -> None:
        """Take in one exchange: t1, t2, t3, t4 of the module's description."""
        there, back = received_ns - sent_ns, answered_ns - arrived_ns
        self._seen.append(Offset((there + back) // 2, (there - back + 1) // 2))

    @property
    def best(self) -> Offset | None:
        """The exchange with the narrowest bound; None before the first one."""
        return min(self._seen, key=lambda seen: seen.bound_ns, default=None)
