"""Task distribution of pipeline-based linear scheduling (Algorithm 1), in closed form.

"Pipeline-Based Linear Scheduling of Big Data Streams in the Cloud" (Tantalaki, Souravlas, Roumeliotis, Katsavounis,
2020). The paper moves rows, then blocks, then the diagonals of blocks. The final position of a label follows from one
multiplication by an inverse, so that the matrix need not be built.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd


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
