"""Graphs in compressed rows, on lists where the kernels are interpreted, on arrays where they are compiled."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from types import FunctionType, SimpleNamespace
from typing import Any

from scheduler.graph import kernels
from scheduler.graph.instance import Instance

Ints = Any
"""A list of integers or an array of them."""


@cache
def compiled() -> SimpleNamespace:
    """The kernels as machine code; compiled once per installation, then loaded from a cache beside them."""
    from numba import njit

    space: dict[str, Any] = dict(vars(kernels))
    for name in kernels.KERNELS:
        plain = getattr(kernels, name)
        space[name] = njit(cache=True)(FunctionType(plain.__code__, space, name, plain.__defaults__))
    return SimpleNamespace(**{name: space[name] for name in kernels.KERNELS})


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


class Rows:
    """Makes graphs, on arrays when `fast`."""

    def __init__(self, fast: bool) -> None:
        self.fast = fast
        self.do: Any = compiled() if fast else kernels

    def new(self, size: int, value: int = 0) -> Ints:
        """`size` times `value`."""
        if not self.fast:
            return [value] * size
        import numpy as np

        return np.full(size, value, dtype=np.int64)

    def of(self, values: Sequence[int]) -> Ints:
        """The values, to be changed freely."""
        if not self.fast:
            return list(values)
        import numpy as np

        return np.array(values, dtype=np.int64)

    def at(self, values: Ints, places: Ints) -> Ints:
        """The values at `places`."""
        return values[places] if self.fast else [values[place] for place in places]

    def where(self, values: Ints, value: int) -> Ints:
        """The places of `value`, ascending."""
        if self.fast:
            return (values == value).nonzero()[0]
        return [place for place, found in enumerate(values) if found == value]

    def sums(self, size: int, places: Ints, values: Ints) -> Ints:
        """place -> sum of the values that belong there."""
        total = self.new(size)
        if self.fast:
            import numpy as np

            np.add.at(total, places, values)
        else:
            for place, value in zip(places, values, strict=True):
                total[place] += value
        return total

    def listed(self, instance: Instance) -> Graph:
        """All pairs of `instance`, both ways."""
        xadj: list[int] = [0]
        adj: list[int] = []
        wgt: list[int] = []
        rows = [sorted(near.items()) for near in instance.near]
        for executor, kind in enumerate(instance.class_of):
            for other, rate in rows[kind]:
                members = instance.members[other]
                if other == kind:
                    members = [member for member in members if member != executor]
                adj.extend(members)
                wgt.extend([rate] * len(members))
            xadj.append(len(adj))
        loads = [instance.load[kind] for kind in instance.class_of]
        memory = [instance.memory[kind] for kind in instance.class_of]
        return Graph(*(self.of(values) for values in (xadj, adj, wgt, loads, memory)))

    def inside(self, graph: Graph, vertices: Ints) -> Graph:
        """The graph on some vertices, in their order."""
        entries = sum(int(graph.xadj[v + 1] - graph.xadj[v]) for v in vertices)
        xadj, adj, wgt = self.new(len(vertices) + 1), self.new(entries), self.new(entries)
        local = self._unmarked(len(graph))
        end = self.do.pick(graph.xadj, graph.adj, graph.wgt, vertices, local, xadj, adj, wgt)
        return Graph(xadj, adj[:end], wgt[:end], self.at(graph.vw, vertices), self.at(graph.vm, vertices))

    def _unmarked(self, size: int) -> Ints:
        """At least `size` times -1; kernels leave it as they find it."""
        if len(self._marks) < size:
            self._marks = self.new(size, -1)
        return self._marks

    _marks: Ints = ()

    def coarsened(self, graph: Graph, part: Ints, limit: int, random: Random) -> tuple[Graph, Ints] | None:
        """The graph with pairs of one part contracted, and vertex -> coarse vertex; None when it hardly shrinks.

        Args:
            graph: the finer graph.
            part: vertex -> part.
            limit: load of a pair at most.
            random: the order in which vertices choose.
        """
        n = len(graph)
        order = list(range(n))
        random.shuffle(order)
        coarse = self.new(n, -1)
        count = self.do.match(graph.xadj, graph.adj, graph.wgt, graph.vw, part, self.of(order), limit, coarse)
        if count > 0.93 * n:
            return None
        first, second = self.new(count, -1), self.new(count, -1)
        for v, c in enumerate(coarse.tolist() if self.fast else coarse):
            if first[c] < 0:
                first[c] = v
            else:
                second[c] = v
        xadj, adj, wgt = self.new(count + 1), self.new(len(graph.adj)), self.new(len(graph.adj))
        end = self.do.contract(graph.xadj, graph.adj, graph.wgt, coarse, first, second, count, xadj, adj, wgt)
        vw, vm = self.sums(count, coarse, graph.vw), self.sums(count, coarse, graph.vm)
        return Graph(xadj, adj[:end].copy(), wgt[:end].copy(), vw, vm), coarse
