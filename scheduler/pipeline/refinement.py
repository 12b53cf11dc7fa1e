"""Task distribution and communication refinement of pipeline-based linear scheduling (Algorithms 1 and 2).

"Pipeline-Based Linear Scheduling of Big Data Streams in the Cloud" (Tantalaki, Souravlas, Roumeliotis, Katsavounis,
2020). For the distribution, the paper moves rows, then blocks, then the diagonals of blocks. The final position of a
label follows from one multiplication by an inverse, so that the matrix need not be built.

The refinement puts communicating components on the same nodes: labels are exchanged between families, whole diagonals
at a time. The published loops over every pair of labels are limited to edges here; iterations without effect are
skipped.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from math import gcd
from typing import NamedTuple


@dataclass(frozen=True)
class Distribution:
    """Matrix of labels: `tasks` rows (tasks of a component) by `nodes` columns, each label once per row.

    Attributes:
        nodes: N, at least 1.
        tasks: t, tasks per component after padding, at least 1.
    """

    nodes: int
    tasks: int

    @classmethod
    def padded(cls, nodes: int, largest: int) -> "Distribution":
        """Return the matrix with the fewest tasks, `largest` or more, that share a divisor with the number of nodes."""
        tasks = largest
        while nodes > 1 and gcd(tasks, nodes) == 1:
            tasks += 1
        return cls(nodes, tasks)

    @cached_property
    def block(self) -> int:
        """G, rows and columns of a block."""
        return gcd(self.tasks, self.nodes)

    @property
    def families(self) -> int:
        """N', number of families of labels that share blocks; block columns of the matrix."""
        return self.nodes // self.block

    @cached_property
    def _step(self) -> int:
        """t', number of rows after which the matrix before the block move repeats."""
        return self.tasks // self.block

    def column(self, row: int, label: int) -> int:
        """Return the column of `label` in row `row`."""
        block_row, a = divmod(row, self.block)
        shift, q = divmod(label, self.families)
        return (block_row + q * self._step) % self.families * self.block + (a - shift) % self.block

    def rows(self, count: int) -> list[list[int]]:
        """Return the first `count` rows of labels; they repeat with period N, also beyond row t."""
        block, families = self.block, self.families
        inverse = pow(self._step, -1, families)
        shifts = [families * (-b % block) for b in range(block)]
        distinct: list[list[int]] = []
        for row in range(min(count, self.nodes)):
            block_row, a = divmod(row, block)
            rotated = shifts[block - a :] + shifts[: block - a]
            firsts = [(column - block_row) * inverse % families for column in range(families)]
            distinct.append([q + shift for q in firsts for shift in rotated])
        return [distinct[row % self.nodes] for row in range(count)]


def relabelled(rows: Sequence[Sequence[int]], labels: Sequence[int]) -> list[list[int]]:
    """Return `rows` with every label `l` replaced by `labels[l]`; rows that are the same object stay so."""
    new: dict[int, list[int]] = {}
    for row in rows:
        if id(row) not in new:
            new[id(row)] = list(map(labels.__getitem__, row))
    return [new[id(row)] for row in rows]


class Swap(NamedTuple):
    """Two labels that were exchanged everywhere: `target` joined the family that `victim` left."""

    victim: int
    target: int


def refine_layer(distribution: Distribution, edges: Iterable[tuple[int, int]]) -> tuple[list[int], list[Swap]]:
    """Exchange labels of one layer.

    Args:
        distribution: the layer's matrix.
        edges: (source, destination) of the directed edges between labels of the layer.

    Returns:
        The new label for every label of the matrix, and the exchanges in order.
    """
    families = _Families(distribution, edges)
    swaps: list[Swap] = []
    for i in range(distribution.families - 1):
        left = distribution.block // 2
        ahead = families.reached_from(i)
        heapify(ahead)
        last = i
        while left and ahead:
            j = heappop(ahead)
            if j == last:
                continue
            last = j
            for swap in families.exchanges(i, j, left):
                swaps.append(swap)
                left -= 1
                for further in families.reached_by(swap.target):
                    if further > j:
                        heappush(ahead, further)
    labels = list(range(distribution.nodes))
    for row, family in zip(families.at_start, families.lists, strict=True):
        for before, now in zip(row, family, strict=True):
            labels[before] = now
    return labels, swaps


class _Families:
    """The lists M' and the family of every label."""

    def __init__(self, distribution: Distribution, edges: Iterable[tuple[int, int]]) -> None:
        size, count = distribution.block, distribution.families
        firsts = distribution.rows(1)[0][::size]
        self.at_start = [[first + count * at for at in range(size)] for first in firsts]
        self.lists = [list(labels) for labels in self.at_start]
        self._home = [0] * distribution.nodes
        self._position = [0] * distribution.nodes
        for number, labels in enumerate(self.lists):
            for at, label in enumerate(labels):
                self._home[label], self._position[label] = number, at
        self._out: list[set[int]] = [set() for _ in range(distribution.nodes)]
        self._near: list[set[int]] = [set() for _ in range(distribution.nodes)]
        for source, target in edges:
            if source != target:
                self._out[source].add(target)
                self._near[source].add(target)
                self._near[target].add(source)

    def reached_from(self, i: int) -> list[int]:
        """Return the families after `i` that an edge from family `i` leads to."""
        return [family for family in {f for label in self.lists[i] for f in self.reached_by(label)} if family > i]

    def reached_by(self, label: int) -> set[int]:
        """Return families that an edge from `label` leads to."""
        return {self._home[target] for target in self._out[label]}

    def exchanges(self, i: int, j: int, most: int) -> list[Swap]:
        """Make the exchanges between families `i` and `j`, at most `most`."""
        swaps: list[Swap] = []
        profit = {label: self._profit(label, i, j) for label in self.lists[i]}
        best = max(profit.values())
        for x in range(len(self.lists[i])):
            source = self.lists[i][x]
            for y in self._targets(source, j):
                if len(swaps) == most:
                    return swaps
                target = self.lists[j][y]
                gain = self._profit(target, j, i)
                if best + gain <= 0:
                    continue
                victim = self._victim(source, target, profit, gain)
                if victim is not None:
                    swaps.append(Swap(victim, target))
                    self._exchange(victim, target)
                    profit = {label: self._profit(label, i, j) for label in self.lists[i]}
                    best = max(profit.values())
        return swaps

    def _profit(self, label: int, here: int, there: int) -> int:
        """Return the gain in adjacent pairs inside the two families when `label` alone moves from `here` to `there`."""
        profit = 0
        for other in self._near[label]:
            profit += (self._home[other] == there) - (self._home[other] == here)
        return profit

    def _targets(self, source: int, j: int) -> list[int]:
        """Return positions in family `j` that an edge from `source` leads to, ascending."""
        if len(self._out[source]) < len(self.lists[j]):
            return sorted(self._position[label] for label in self._out[source] if self._home[label] == j)
        return [at for at, label in enumerate(self.lists[j]) if label in self._out[source]]

    def _victim(self, source: int, target: int, profit: dict[int, int], gain: int) -> int | None:
        """Return the largest label of the source's family that is not adjacent to it and gains by an exchange."""
        near = self._near[source]
        winners = [
            label
            for label, own in profit.items()
            if own + gain > 2 * (label in self._near[target]) and label != source and label not in near
        ]
        return max(winners, default=None)

    def _exchange(self, victim: int, target: int) -> None:
        for one, other in ((victim, target), (target, victim)):
            self.lists[self._home[one]][self._position[one]] = other
        self._home[victim], self._home[target] = self._home[target], self._home[victim]
        self._position[victim], self._position[target] = self._position[target], self._position[victim]
