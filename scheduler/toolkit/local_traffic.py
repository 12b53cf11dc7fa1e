"""Traffic inside nodes, fast enough to evaluate thousands of partitions.

In integers: observed rates in a unit of their own, or one per communicating pair. Two implementations: `PairTraffic`
adds up pairs, `ClassTraffic` multiplies the numbers of executors of linked classes on each node.
"""

from collections.abc import Mapping, Sequence
from math import frexp, ldexp
from typing import TYPE_CHECKING, Protocol

from scheduler.toolkit.communication import classes_of
from scheduler.toolkit.exact import scaled
from workloads.topology import Topology
from workloads.traffic import Traffic

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]


MOST_PAIRS = 1_000_000
"""Maximum number of pairs listed; more are counted by class."""


class LocalTraffic(Protocol):
    """Traffic of one topology.

    Attributes:
        total: total traffic.
        work: numbers handled by one call of `of`.
    """

    total: int
    work: int

    def of(self, nodes: "Integers") -> int:
        """Return the traffic between executors on the same node; `nodes` is executor -> node."""
        ...


Rates = Mapping[tuple[int, int], float]
"""(executor, executor of a higher number) -> tuples/s, both directions added."""


def observed_rates(topology: Topology, traffic: Traffic | None) -> Rates | None:
    """Return the observed rates between executors of `topology`, or None without observations."""
    if traffic is None:
        return None
    number = {executor.name: at for at, executor in enumerate(topology.executors)}
    rates: dict[tuple[int, int], float] = {}
    for edge in traffic.edges:
        one, other = number.get(edge.source), number.get(edge.destination)
        if one is not None and other is not None and one != other:
            pair = (min(one, other), max(one, other))
            rates[pair] = rates.get(pair, 0.0) + edge.tuples_per_s
    return rates or None


def inside_of(topology: Topology, rates: Rates | None, nodes: int) -> LocalTraffic:
    """Return the faster implementation for partitions onto `nodes` nodes; without rates every pair counts 1."""
    if rates is not None:
        _, (weights,) = scaled(_of_common_size(list(rates.values())))
        return PairTraffic(dict(zip(rates, weights, strict=True)))
    by_class = ClassTraffic(topology, nodes)
    if by_class.total >= min(by_class.work // 3, MOST_PAIRS):
        return by_class
    number = topology.number_of
    pairs = ((number[one], number[other]) for one, other in topology.pairs() if one != other)
    return PairTraffic({(min(pair), max(pair)): 1 for pair in pairs})


def _of_common_size(rates: Sequence[float]) -> Sequence[float]:
    """Return the rates, scaled if they are too small or too large for exact integers."""
    largest = max(rates)
    if largest >= 2**-20 and sum(rates) < 2**52:
        return rates
    exponent = frexp(largest)[1]
    return [ldexp(rate, -exponent) for rate in rates]


class PairTraffic:
    """Traffic as weights of pairs of executors, by number."""

    def __init__(self, weights: Mapping[tuple[int, int], int]) -> None:
        import numpy as np

        self._one = np.array([one for one, _ in weights], dtype=np.int64)
        self._other = np.array([other for _, other in weights], dtype=np.int64)
        self._weight = np.array(list(weights.values()), dtype=np.int64)
        self.total = sum(weights.values())
        self.work = 3 * len(weights)

    def of(self, nodes: "Integers") -> int:
        return int(self._weight[nodes[self._one] == nodes[self._other]].sum())


class ClassTraffic:
    """Traffic of one per communicating pair of a topology."""

    def __init__(self, topology: Topology, nodes: int) -> None:
        import numpy as np

        classes = classes_of(topology)
        links = [(one, other) for one, others in enumerate(classes.linked) for other in others if one < other]
        self._nodes = nodes
        self._classes = len(classes.members)
        self._first = np.array(classes.of, dtype=np.int64) * nodes
        self._one = np.array([one for one, _ in links], dtype=np.int64)
        self._other = np.array([other for _, other in links], dtype=np.int64)
        self._own = np.array([one for one, others in enumerate(classes.linked) if one in others], dtype=np.int64)
        size = [len(members) for members in classes.members]
        self.total = sum(size[one] * size[other] for one, other in links)
        self.total += sum(size[one] * (size[one] - 1) // 2 for one in self._own.tolist())
        self.work = len(classes.of) + (self._classes + 3 * len(links) + 2 * len(self._own)) * nodes

    def of(self, nodes: "Integers") -> int:
        import numpy as np

        counts = np.bincount(self._first + nodes, minlength=self._classes * self._nodes)
        counts = counts.reshape(self._classes, self._nodes)
        own = counts[self._own]
        return int((counts[self._one] * counts[self._other]).sum() + (own * (own - 1) // 2).sum())
