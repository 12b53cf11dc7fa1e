"""What an exact search answers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Proof:
    """What the search found out.

    Attributes:
        node_of: executor -> node of a placement better than the one to beat, None when there is none.
        most: no placement keeps more rate than this; -1 when nothing fits at all.
        complete: the search ended by itself.
        limit_hit: it was the clock that ended it.
    """

    node_of: list[int] | None
    most: int
    complete: bool
    limit_hit: bool
