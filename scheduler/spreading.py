"""A node for each executor that has none: where its component is rarest, then the fewest executors, then the lowest."""

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace


class Spread:
    """Nodes by how many executors they hold."""

    def __init__(self, loads: Sequence[int], nodes: Iterable[int]) -> None:
        """`loads` (node -> executors on it) is read once; only `nodes` are chosen from."""
        self._order = [(loads[node], node) for node in nodes]
        heapify(self._order)

    def __bool__(self) -> bool:
        return bool(self._order)

    def choose(self, counts: Mapping[int, int], executors: int) -> list[int]:
        """Nodes for `executors` executors of one component, one after the other; there must be a node.

        Args:
            counts: node -> executors of the component on it before, nodes without any left out.
            executors: how many wait.
        """
        if executors + len(counts) < len(self._order):
            return self._on_nodes_without(counts, executors)
        keys = [(counts.get(node, 0), load, node) for load, node in self._order]
        heapify(keys)
        chosen: list[int] = []
        for _ in range(executors):
            own, load, node = keys[0]
            heapreplace(keys, (own + 1, load + 1, node))
            chosen.append(node)
        self._order = [(load, node) for _, load, node in keys]
        heapify(self._order)
        return chosen

    def _on_nodes_without(self, counts: Mapping[int, int], executors: int) -> list[int]:
        """There are more nodes without the component than executors of it: not all nodes need be looked at."""
        chosen: list[int] = []
        aside: list[tuple[int, int]] = []
        while len(chosen) < executors:
            load, node = heappop(self._order)
            if node not in counts:
                chosen.append(node)
                load += 1
            aside.append((load, node))
        for entry in aside:
            heappush(self._order, entry)
        return chosen
