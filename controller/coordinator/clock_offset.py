"""Offset between a node's monotonic clock and the controller's, estimated from four timestamps per heartbeat.

The controller sends at t1, the node receives at t2 and answers at t3, the answer arrives at t4 (t1 and t4 on the
controller's clock). Whatever the delay in each direction, the true offset lies within `bound` of `offset`:

    offset = ((t2 - t1) + (t3 - t4)) / 2        bound = ((t4 - t1) - (t3 - t2)) / 2

Because clocks drift, the bound of an exchange grows with its age.
"""

from collections import deque
from typing import NamedTuple

WINDOW = 60
"""Number of heartbeats kept."""

DRIFT = 100e-6
"""Largest relative drift between two clocks: computer crystals are within 50 ppm of their nominal frequency."""


class Offset(NamedTuple):
    """How far the node's clock is ahead of the controller's, and the error bound of that; both in nanoseconds."""

    offset_ns: int
    bound_ns: int


class OffsetEstimate:
    """Estimate from the last `WINDOW` exchanges."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, Offset]] = deque(maxlen=WINDOW)

    def add(self, sent_ns: int, received_ns: int, answered_ns: int, arrived_ns: int) -> None:
        """Add one exchange: t1, t2, t3, t4 of the module docstring."""
        there, back = received_ns - sent_ns, answered_ns - arrived_ns
        # The clocks also drift between sending and arrival.
        drifted = round((arrived_ns - sent_ns) * DRIFT)
        self._seen.append((arrived_ns, Offset((there + back) // 2, (there - back + 1) // 2 + drifted)))

    def at(self, now_ns: int) -> Offset | None:
        """Return the offset at `now_ns` on the controller's clock from the tightest exchange; None before the first."""
        aged = (
            Offset(seen.offset_ns, seen.bound_ns + round((now_ns - arrived_ns) * DRIFT))
            for arrived_ns, seen in self._seen
        )
        return min(aged, key=lambda offset: offset.bound_ns, default=None)
