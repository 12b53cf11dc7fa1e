"""Order in which the executors of a topology are placed.

After Apache Storm, `storm-server/.../resource/strategies/scheduling/sorter/ExecSorterBy*.java` (inside the strategy
class before 2.3). Executors of one component are ordered by index. Component ids that start with `__` are Storm's own.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from workloads.topology import ACKER, Executor, Topology

Order = list[Executor]
Sorter = Callable[[Topology, Sequence[Executor]], Order]


def is_system(component: str) -> bool:
    """Return whether `component` is one of Storm's own."""
    return component.startswith("__")


def ackers_last(order: Order) -> Order:
    """Return the same order with ackers at the end (2.3 and later)."""
    return sorted(order, key=lambda executor: executor.component == ACKER)


def by_connections(topology: Topology, executors: Sequence[Executor], largest_first: bool = False) -> Order:
    """Return components with most executor pairs first, each alternating with its neighbours.

    A component that feeds itself is one of its neighbours.

    Args:
        topology: the topology.
        executors: executors to place.
        largest_first: neighbours with most pairs come first (1.x) instead of last (2.x). Then pairs count once per
            stream, and those of a component with itself twice.
    """
    size = {c.id: c.parallelism for c in topology.components if not is_system(c.id)}
    neighbours: dict[str, Counter[str]] = {name: Counter() for name in size}
    for source, destination, _ in topology.links():
        if source.id in size and destination.id in size:
            neighbours[source.id][destination.id] += 1
            neighbours[destination.id][source.id] += 1
    pairs = {
        name: size[name] * sum(size[other] * (links if largest_first else 1) for other, links in others.items())
        for name, others in neighbours.items()
    }
    left = _Left(executors)
    order: Order = []
    sign = -1 if largest_first else 1
    for name in sorted(size, key=lambda name: (-pairs[name], name)):
        # All neighbours are multiplied by the same number, so comparing their sizes is enough.
        turn = [name, *sorted(neighbours[name], key=lambda other: (sign * size[other], other))]
        while turn := [component for component in turn if left.of(component)]:
            order.extend(left.take(component) for component in turn if left.of(component))
    order.extend(left.rest())
    return order


def by_proximity(topology: Topology, executors: Sequence[Executor]) -> Order:
    """Return each executor followed by its share of its receivers, recursively."""
    left = _Left(executors)
    children = _children(topology)
    order: Order = []
    for name in _downstream(topology):
        while left.of(name):
            open_ends = [_followers(name, children, left, order)]
            while open_ends:
                following = next(open_ends[-1], None)
                if following is None:
                    open_ends.pop()
                else:
                    open_ends.append(_followers(following, children, left, order))
    order.extend(left.rest())
    return order


def _followers(name: str, children: dict[str, list[tuple[str, bool]]], left: "_Left", order: Order) -> Iterator[str]:
    """Take one executor of `name`, then yield the components to take from next, with repetition."""
    before = left.of(name)
    order.append(left.take(name))
    for child, in_shares in children[name]:
        for _ in range(max(1, left.of(child) // before) if in_shares else 1):
            if left.of(child):
                yield child


def _children(topology: Topology) -> dict[str, list[tuple[str, bool]]]:
    """Return component -> (destination, whether it is taken in shares), those without shares first, last id first.

    Those in shares have the smallest id first. Storm's comparator has each one without shares precede all before it.
    One shuffle grouping among several inputs from the same component is enough for shares.
    """
    shuffled: dict[str, dict[str, bool]] = {component.id: {} for component in topology.components}
    for source, destination, entry in topology.links():
        shares = entry.grouping in ("shuffle", "local-or-shuffle")
        shares_of = shuffled[source.id]
        shares_of[destination.id] = shares_of.get(destination.id, False) or shares
    return {
        name: [(child, False) for child in sorted(shares_of, reverse=True) if not shares_of[child]]
        + [(child, True) for child in sorted(shares_of) if shares_of[child]]
        for name, shares_of in shuffled.items()
    }


def _downstream(topology: Topology) -> list[str]:
    """Return components in topological order, smallest ready id first; the rest by id."""
    sources = {c.id: {entry.source for entry in c.inputs} for c in topology.components if not is_system(c.id)}
    waits = {name: len(inputs) for name, inputs in sources.items()}
    targets: dict[str, list[str]] = {name: [] for name in sources}
    for name, inputs in sources.items():
        for source in inputs:
            targets.setdefault(source, []).append(name)
    ready = [name for name, count in waits.items() if not count]
    heapify(ready)
    order: list[str] = []
    while ready:
        name = heappop(ready)
        order.append(name)
        for target in targets[name]:
            waits[target] -= 1
            if not waits[target]:
                heappush(ready, target)
    return order + sorted(sources.keys() - set(order))


def by_severity(topology: Topology, executors: Sequence[Executor]) -> Order:
    """Return components with most constraints first, equal ones by id, last id first."""
    constraints = topology.constraints
    severity = dict.fromkeys(topology.component, 0)
    if constraints is not None:
        pairs = {(one, other) for pair in constraints.incompatible for one, other in (pair, pair[::-1])}
        for one, _ in pairs:
            severity[one] += 1
        for name, most in constraints.max_per_node.items():
            severity[name] += len(topology.components) // most
    left = _Left(executors)
    order: Order = []
    for name in sorted(sorted(severity, reverse=True), key=lambda name: -severity[name]):
        while left.of(name):
            order.append(left.take(name))
    return order


class _Left:
    """Executors not taken yet."""

    def __init__(self, executors: Sequence[Executor]) -> None:
        self._by_component: dict[str, deque[Executor]] = {}
        for executor in sorted(executors):
            self._by_component.setdefault(executor.component, deque()).append(executor)

    def of(self, component: str) -> int:
        return len(self._by_component.get(component, ()))

    def take(self, component: str) -> Executor:
        return self._by_component[component].popleft()

    def rest(self) -> Iterator[Executor]:
        for component in self._by_component.values():
            yield from component
