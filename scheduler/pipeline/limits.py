"""Size limit of communication schedules."""

from inventory.errors import InputError

MOST_NODES = 4096
"""A communication schedule has a cell per pair of nodes."""


def check_nodes(nodes: int) -> None:
    """Raise an error for more nodes than a communication schedule can have.

    Raises:
        InputError: there are more than `MOST_NODES`.
    """
    if nodes > MOST_NODES:
        raise InputError(
            f"a communication schedule has a cell per pair of nodes: there are {nodes} nodes, at most "
            f"{MOST_NODES} are possible"
        )
