"""Observed rates of very many pairs of executors as compressed rows: a tenth of the memory of a dict per executor.

A million executors with nine million pairs take half a minute and four gigabytes as dicts.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, SupportsIndex, overload

from scheduler.toolkit.exact import scaled
from workloads.traffic import Traffic

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Whole = NDArray[np.int64]

MANY = 200_000
"""Number of edges from which on rates are kept in rows; before, dicts take less time than loading NumPy."""

NEARLY_ALL = 0.9
"""Share of executors with neighbourhoods of their own from which on all count as different."""


class RateRows(Sequence[Mapping[int, int]]):
    """Rates by executor, {executor: rate} of each, in both directions; a row becomes a dict when it is read.

    Attributes:
        xadj, adj, wgt: the others of executor v are adj[xadj[v]:xadj[v+1]], ascending, rates at the same positions.
    """

    def __init__(self, xadj: "array[int]", adj: "array[int]", wgt: "array[int]") -> None:
        self.xadj, self.adj, self.wgt = xadj, adj, wgt

    def __len__(self) -> int:
        return len(self.xadj) - 1

    @overload
    def __getitem__(self, at: SupportsIndex) -> Mapping[int, int]: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Mapping[int, int]]: ...
    def __getitem__(self, at: SupportsIndex | slice) -> Mapping[int, int] | Sequence[Mapping[int, int]]:
        chosen = range(len(self))[at]
        if isinstance(chosen, range):
            return [self._row(v) for v in chosen]
        return self._row(chosen)

    def __iter__(self) -> Iterator[Mapping[int, int]]:
        return map(self._row, range(len(self)))

    def _row(self, v: int) -> Mapping[int, int]:
        begin, end = self.xadj[v], self.xadj[v + 1]
        return dict(zip(self.adj[begin:end], self.wgt[begin:end], strict=True))

    @cached_property
    def pairs(self) -> int:
        """Number of communicating pairs."""
        return len(self.adj) // 2

    @cached_property
    def total(self) -> int:
        """Rate of all pairs together."""
        return sum(self.wgt) // 2

    def cut(self, node_of: Sequence[int]) -> int:
        """Return the rate between nodes of a placement (executor -> node)."""
        import numpy as np

        node, ends = np.array(node_of, np.int64), np.frombuffer(self.xadj, np.int64)
        here = np.repeat(node, ends[1:] - ends[:-1])
        apart = here != node[np.frombuffer(self.adj, np.int64)]
        return int(np.frombuffer(self.wgt, np.int64)[apart].sum()) // 2

    @cached_property
    def distinct(self) -> bool:
        """Return whether nearly all executors have a neighbourhood of their own."""
        import numpy as np

        of = np.frombuffer(self.adj, np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        of ^= np.frombuffer(self.wgt, np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
        of = (of ^ (of >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        # Sums modulo 2^64 of mixed entries, which are equal for equal rows and hardly ever for others.
        sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(of)))
        ends = np.frombuffer(self.xadj, np.int64)
        return bool(len(np.unique(sums[ends[1:]] - sums[ends[:-1]])) >= NEARLY_ALL * len(self))


def rate_rows(traffic: Traffic, number_of: Mapping[str, int], executors: int) -> tuple[int, RateRows]:
    """Return the number of units per tuple/s and the rates in units, both directions added, zero rates left out.

    Args:
        traffic: the observed rates.
        number_of: name of an executor -> its number; others are left out.
        executors: number of executors.
    """
    import numpy as np

    edges, count = traffic.edges, len(traffic.edges)
    one = np.fromiter((number_of.get(edge.source, -1) for edge in edges), np.int64, count)
    other = np.fromiter((number_of.get(edge.destination, -1) for edge in edges), np.int64, count)
    rate = np.fromiter((edge.tuples_per_s for edge in edges), np.float64, count)
    counts = (one >= 0) & (other >= 0) & (one != other) & (rate != 0)
    one, other, rate = one[counts], other[counts], rate[counts]
    pair = np.minimum(one, other) * executors + np.maximum(one, other)
    order = np.argsort(pair, kind="stable")
    pair = pair[order]
    first = np.flatnonzero(np.diff(pair, prepend=-1))
    pair, rate = pair[first], np.add.reduceat(rate[order], first) if len(first) else rate
    values, place = np.unique(rate, return_inverse=True)
    rate_scale, (units,) = scaled(values.tolist())
    wgt = np.array(units, np.int64)[place]
    pair, wgt = pair[wgt != 0], wgt[wgt != 0]
    entry = np.concatenate((pair, pair % executors * executors + pair // executors))
    order = np.argsort(entry)
    entry = entry[order]
    xadj = np.searchsorted(entry, np.arange(executors + 1) * executors)
    return rate_scale, RateRows(_array(xadj), _array(entry % executors), _array(np.concatenate((wgt, wgt))[order]))


def _array(values: "Whole") -> "array[int]":
    made = array("q")
    made.frombytes(values.tobytes())
    return made
