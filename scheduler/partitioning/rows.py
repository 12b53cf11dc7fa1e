"""Graphs in compressed rows, on arrays that the kernels accept."""

from array import array
from collections.abc import Iterable, MutableSequence, Sequence
from dataclasses import dataclass

from scheduler.partitioning.instance import Instance
from scheduler.partitioning.rate_rows import RateRows

Ints = MutableSequence[int]
"""List or array of integers; a pointer in compiled code."""

Floats = Sequence[float]
"""List or array of floats; a pointer in compiled code."""


def ints(values: Iterable[int]) -> Ints:
    """Return an array of integers."""
    return array("q", values)


def floats(values: Iterable[float]) -> Floats:
    """Return an array of floats."""
    return array("d", values)


def blank(size: int) -> Ints:
    """Return an array of `size` zeros."""
    return array("q", bytes(8 * size))


def ones(size: int) -> Ints:
    """Return an array of `size` ones."""
    return array("q", [1]) * size


@dataclass
class Graph:
    """Graph in compressed rows.

    The neighbours of v are adj[xadj[v]:xadj[v+1]], with rates at the same positions of `wgt`; load `vw`, memory `vm`.
    """

    xadj: Ints
    adj: Ints
    wgt: Ints
    vw: Ints
    vm: Ints

    def __len__(self) -> int:
        return len(self.vw)

    @property
    def fields(self) -> tuple[Ints, ...]:
        """All arrays, in the order of the kernels' parameters."""
        return self.xadj, self.adj, self.wgt, self.vw, self.vm


def listed_pairs(instance: Instance) -> Graph:
    """Return all pairs of `instance`, in both directions."""
    rates = instance.near
    if isinstance(rates, RateRows):
        return Graph(rates.xadj, rates.adj, rates.wgt, ints(instance.load), ints(instance.memory))
    xadj, adj, wgt = ints([0]), ints([]), ints([])
    rows: dict[int, list[tuple[int, int]]] = {}  # of classes with several members
    if instance.distinct:
        for executor, near in enumerate(rates):
            others = sorted(near)
            if executor in near:
                others.remove(executor)
            adj.extend(others)
            wgt.extend(map(near.__getitem__, others))
            xadj.append(len(adj))
        return Graph(xadj, adj, wgt, ints(instance.load), ints(instance.memory))
    for executor, kind in enumerate(instance.class_of):
        row = rows.get(kind)
        if row is None:
            row = sorted(rates[kind].items())
            if len(instance.members[kind]) > 1:
                rows[kind] = row
        for other, rate in row:
            members = instance.members[other]
            if len(members) == 1:
                if other != kind:
                    adj.append(members[0])
                    wgt.append(rate)
                continue
            if other == kind:
                members = [member for member in members if member != executor]
            adj.extend(members)
            wgt.extend([rate] * len(members))
        xadj.append(len(adj))
    loads = ints(instance.load[kind] for kind in instance.class_of)
    memory = ints(instance.memory[kind] for kind in instance.class_of)
    return Graph(xadj, adj, wgt, loads, memory)
