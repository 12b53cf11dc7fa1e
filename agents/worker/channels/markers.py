"""Marks: what travels between the rows of a channel, in order, without credit.

    Barrier   the cut behind which state is stored or an executor moves
    Tick      all rows before a moment of stream time have been sent
    End       nothing more comes

Barriers and ticks come in one and the same order on every channel of a topology, so that a bolt can wait for each of
them on all its channels. A channel that has ended counts as having brought all that were to come.
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
