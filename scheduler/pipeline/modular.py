"""Arithmetic of pipelined dynamic scheduling: classes of node pairs, and steps in which no node receives twice.

"Pipelined Dynamic Scheduling of Big Data Streams" (Souravlas, Anastasiadou, 2020). In the old layout N nodes hold t
tasks each, in the new one Q nodes hold s; both number tasks block-cyclically over the nodes. The grouping of classes
that works for every N, t, Q, s is ours; for the paper's input it gives the paper's matrix.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from operator import sub
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

Step = list[int | None]
"""Sender -> receiver, or None for an idle sender."""


@dataclass(frozen=True)
class LayoutChange:
    """Change from an old layout to a new one; all four numbers are at least 1.

    Attributes:
        old_nodes: N, senders.
        old_tasks: t, tasks per node before.
        nodes: Q, receivers.
        tasks: s, tasks per node afterwards.
    """

    old_nodes: int
    old_tasks: int
    nodes: int
    tasks: int

    @cached_property
    def classes(self) -> int:
        """g, the number of classes, empty ones included."""
        return gcd(self.old_nodes * self.old_tasks, self.nodes * self.tasks)

    @cached_property
    def spacing(self) -> int:
        """e, the distance between classes that are not empty."""
        return gcd(self.old_tasks, self.tasks)

    def class_of(self, sender: int, receiver: int) -> int:
        """Return the class of a pair of nodes."""
        return (sender * self.old_tasks - receiver * self.tasks) % self.classes

    def common(self, spacing: int = 1) -> "Integers":
        """Return c of the classes 0, `spacing`, 2 * `spacing`, ...

        c is the number of tasks that a pair shares per period of both layouts.

        Args:
        """
        import numpy as np

        t, s, g = self.old_tasks, self.tasks, self.classes
        apart = np.arange(-((t - 1) // spacing) * spacing, s, spacing, dtype=np.int64)
        tasks = np.minimum(t, s - apart) - np.maximum(0, -apart)
        # Sums are below t * s, hence exact as floats.
        return np.bincount(apart % g // spacing, weights=tasks, minlength=g // spacing).astype(np.int64)

    def pairs(self) -> list[list[tuple[int, int]]]:
        """Return class -> its (sender, receiver) pairs, sorted by receiver, then sender."""
        table: list[list[tuple[int, int]]] = [[] for _ in range(self.classes)]
        for receiver in range(self.nodes):
            for sender in range(self.old_nodes):
                table[self.class_of(sender, receiver)].append((sender, receiver))
        return table

    def receivers(self, pairs: Sequence[tuple[int, int]]) -> list[list[int]]:
        """Return a row of the single-index matrix: sender -> its receivers in one class, ascending."""
        cells: list[list[int]] = [[] for _ in range(self.old_nodes)]
        for sender, receiver in pairs:
            cells[sender].append(receiver)
        return cells

    def groups(self) -> "Integers":
        """Return rows of classes, divided by e, that share steps.

        A row has one class of every residue modulo a * b, with equal c if possible.
        """
        import numpy as np

        residues = self._a * self._b
        classes = np.arange(self._g1, dtype=np.int64).reshape(-1, residues)
        most_first = np.argsort(-self.common(self.spacing).reshape(-1, residues), axis=0, kind="stable")
        return np.take_along_axis(classes, most_first, axis=0)

    def steps(self) -> list[Step]:
        """Return the scheduling matrix: max(N, Q) rows; every pair once, no receiver twice in a row."""
        import numpy as np

        t1, s1, g1, a, b = self._t1, self._s1, self._g1, self._a, self._b
        height, width = g1 // a, g1 // b
        senders_each, receivers_each = self.old_nodes // height, self.nodes // width
        rows = max(a * receivers_each, b * senders_each)
        sender = np.arange(self.old_nodes, dtype=np.int64)
        u = sender * t1 % g1
        sigma = u % b
        offset = sigma * senders_each + sender // height
        # Residue modulo a * b by its residues rho (modulo a) and sigma (modulo b).
        residue = np.zeros((a, b), dtype=np.int64)
        residue[np.arange(a * b) % a, np.arange(a * b) % b] = np.arange(a * b)
        inverse = pow(s1 // b, -1, width)
        matrix: list[Step] = []
        for group in self.groups():
            for m in range(rows):
                f = (m + offset) % rows
                busy = f < a * receivers_each
                rho = np.minimum(f // receivers_each, a - 1)
                q0 = (u - group[residue[rho, sigma]]) % g1 // b * inverse % width
                receiver = (q0 + width * (f % receivers_each)).tolist()
                if busy.all():
                    matrix.append(receiver)
                else:
                    matrix.append([r if works else None for r, works in zip(receiver, busy.tolist(), strict=True)])
        return matrix

    @cached_property
    def _t1(self) -> int:
        return self.old_tasks // self.spacing

    @cached_property
    def _s1(self) -> int:
        return self.tasks // self.spacing

    @cached_property
    def _g1(self) -> int:
        return self.classes // self.spacing

    @cached_property
    def _a(self) -> int:
        return gcd(self._t1, self._g1)

    @cached_property
    def _b(self) -> int:
        return gcd(self._s1, self._g1)


def step_cost(step: Step) -> int:
    """Return the largest distance between a sender and its receiver, with nodes numbered along a line."""
    if None in step:
        return max(abs(sender - receiver) for sender, receiver in enumerate(step) if receiver is not None)
    largest: int = max(map(abs, map(sub, step, range(len(step)))))
    return largest


def estimated_cost(nodes: int) -> int:
    """Return the estimated total cost for as many receivers as senders, at least four (Proposition 2)."""
    total = 2 * (nodes - 1) + 2 * (nodes - 2)
    left = nodes - 4
    distance = 3
    while left:
        rows = distance if left >= distance else -(-left // 2)
        total += rows * (nodes - distance)
        left -= rows
        distance += 1
    return total


def finish_times(costs: Sequence[float], processing: float, packing: float) -> list[float]:
    """Return when each step has passed transfer (its cost), processing and packing, with buffers in between."""
    transferred = processed = packed = 0.0
    finished: list[float] = []
    for cost in costs:
        transferred += cost
        processed = max(transferred, processed) + processing
        packed = max(processed, packed) + packing
        finished.append(packed)
    return finished
