"""Classes of executors with the same communication partners, so that pairs need not be listed.

A shuffle between two components of 10,000 executors makes 10^8 communicating pairs. All executors of a component have
the same partners, except that a global grouping only reaches index 0. So a component is one class, or two where a
global grouping ends in it, and two classes are linked completely or not at all.
"""

from dataclasses import dataclass

from workloads.topology import Topology


@dataclass(frozen=True)
class Classes:
    """Classes of a topology and the links between them.

    Attributes:
        members: class -> its executors' numbers, ascending.
        of: executor number -> its class.
        linked: class -> classes it communicates with in either direction, ascending; itself included if its executors
            communicate with each other.
    """

    members: tuple[range, ...]
    of: tuple[int, ...]
    linked: tuple[tuple[int, ...], ...]


def classes_of(topology: Topology) -> Classes:
    """Group the executors of `topology` into classes."""
    reached_globally = {to.id for _, to, entry in topology.links() if entry.grouping == "global"}
    members: list[range] = []
    of: list[int] = []
    mine: dict[str, list[int]] = {}
    first = 0
    for component in topology.components:
        cuts = [1] if component.id in reached_globally and component.parallelism > 1 else []
        for start, end in zip([0, *cuts], [*cuts, component.parallelism], strict=True):
            mine.setdefault(component.id, []).append(len(members))
            of.extend([len(members)] * (end - start))
            members.append(range(first + start, first + end))
        first += component.parallelism
    linked: list[set[int]] = [set() for _ in members]
    for source, destination, entry in topology.links():
        targets = mine[destination.id][:1] if entry.grouping == "global" else mine[destination.id]
        for one in mine[source.id]:
            for other in targets:
                linked[one].add(other)
                linked[other].add(one)
    return Classes(tuple(members), tuple(of), tuple(tuple(sorted(others)) for others in linked))
