"""Markers, which are sent between the rows of a channel, in order and without credit.

    Barrier   the point at which state is stored or an executor moves
    Tick      all rows before a moment of stream time have been sent
    End       nothing more follows

Barriers and ticks have the same order on every channel of a topology, so that a bolt can wait for each of them on all
its channels. A channel that has ended counts as having delivered all later ones.
"""

from typing import NamedTuple


class Barrier(NamedTuple):
    """Barrier `number`."""

    number: int


class Tick(NamedTuple):
    """Tick `number`: stream time `time_ns`, due at `due_ns` of the controller's monotonic clock."""

    number: int
    time_ns: int
    due_ns: int


class End(NamedTuple):
    """The end of a channel."""


Mark = Barrier | Tick | End
