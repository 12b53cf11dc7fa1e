"""Result of an exact search."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Proof:
    """Result of an exact search.

    Attributes:
        node_of: executor -> node of a placement better than the known one, or None.
        most: upper bound on the rate kept by any placement; -1 if no placement fits.
        complete: whether the search was exhaustive.
        limit_hit: whether the time limit ended the search.
    """

    node_of: list[int] | None
    most: int
    complete: bool
    limit_hit: bool
