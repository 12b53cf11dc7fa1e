"""Graphs in compressed rows, on arrays that the kernels take."""

from array import array
from collections.abc import Iterable, MutableSequence, Sequence
from dataclasses import dataclass

from scheduler.partitioning.instance import Instance

Ints = MutableSequence[int]
"""A list or an array of integers; a pointer to them where code is compiled."""

Floats = Sequence[float]
"""The same of floats."""


def ints(values: Iterable[int]) -> Ints:
    """An array of the values."""
    return array("q", values)


def floats(values: Iterable[float]) -> Floats:
    """The same of floats."""
    return array("d", values)


def blank(size: int) -> Ints:
    """An array of `size` zeros."""
    return array("q", bytes(8 * size))


@dataclass
class Graph:
    """The neighbours of v are adj[xadj[v]:xadj[v+1]], the rates to them stand in `wgt`; load `vw`, memory `vm`."""

    xadj: Ints
    adj: Ints
    wgt: Ints
    vw: Ints
    vm: Ints

    def __len__(self) -> int:
        return len(self.vw)

    @property
    def fields(self) -> tuple[Ints, ...]:
        """All of it, the way kernels take it."""
        return self.xadj, self.adj, self.wgt, self.vw, self.vm


def listed(instance: Instance) -> Graph:
    """All pairs of `instance`, both ways."""
    xadj, adj, wgt = ints([0]), ints([]), ints([])
    rows = [sorted(near.items()) for near in instance.near]
    for executor, kind in enumerate(instance.class_of):
        for other, rate in rows[kind]:
            members = instance.members[other]
            if other == kind:
                members = [member for member in members if member != executor]
            adj.extend(members)
            wgt.extend([rate] * len(members))
        xadj.append(len(adj))
    loads = ints(instance.load[kind] for kind in instance.class_of)
    memory = ints(instance.memory[kind] for kind in instance.class_of)
    return Graph(xadj, adj, wgt, loads, memory)
