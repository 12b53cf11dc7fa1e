"""Lagrangian bound on the rate that nodes keep: a price for every class of executors.

With prices p, a node keeps at most the largest value of a set that fits (rate inside it, less the prices of its
members), and all executors together pay the prices back. Prices with a low bound are found by subgradient steps of
Polyak's length (Held, Wolfe and Crowder, 1974). The set of the largest value is found by branch and bound
(`scheduler.partitioning.kernels_pricing`). Memory and slots are left out, which only weakens the bound.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from scheduler.partitioning.instance import Instance
from scheduler.partitioning.jit_cache import compiled_kernels
from scheduler.partitioning.rows import Ints, blank, ints

PARTS = 64
"""Prices are multiples of 1/64 of a rate unit, so that bounds are exact."""

ROUNDS = 300
"""Maximum number of steps of the search for prices."""

PATIENCE = 8
"""Steps without a better bound until steps become shorter."""

LARGEST = 2**60
"""Limit of whole numbers in the kernel."""


class Pricing:
    """Values of sets of executors of an instance, in parts of a rate unit."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self._do = compiled_kernels()
        self._n = len(instance.members)
        xadj, adj, wgt = ints([0]), ints([]), ints([])
        for near in instance.near:
            for other in sorted(near, key=lambda other: (-_per_load(instance, other, near[other]), other)):
                adj.append(other)
                wgt.append(PARTS * near[other])
            xadj.append(len(adj))
        self._rows = xadj, adj, wgt, ints(instance.load)
        depth = instance.executors + self._n + 1
        self.chosen = blank(self._n)
        self._scratch = *(blank(self._n) for _ in range(4)), blank(depth), blank(depth), self.chosen

    def most(self, have: Ints, profit: Ints, room: int, limit: int) -> int:
        """Return an upper bound on the value of a set of load `room`; `chosen` receives a set.

        Args:
            have: class -> members that may be in the set.
            profit: class -> value of one member beside the rates inside the set, in parts.
            room: the largest load.
            limit: sets that are examined.
        """
        bound: int = self._do.price(self._n, *self._rows, have, profit, room, limit, *self._scratch)
        return bound


def _per_load(instance: Instance, kind: int, rate: int) -> Fraction:
    load = instance.load[kind]
    return Fraction(rate, load) if load else Fraction(LARGEST)


def can_price(instance: Instance) -> bool:
    """Return whether all numbers are small enough for the kernel."""
    largest = 8 * PARTS * (instance.total_rate + 1) * (max(instance.capacity, default=0) + 1)
    return largest * (max(instance.load, default=0) + 1) < LARGEST


@dataclass(frozen=True)
class Prices:
    """Prices of classes and the bound that they give.

    Attributes:
        pricing: the sets' values.
        prices: class -> price of one member, in parts of a rate unit.
        most: upper bound on the rate kept by all nodes together, in rate units.
    """

    pricing: Pricing
    prices: tuple[int, ...]
    most: int

    def worth(self, free: int, gains: Mapping[int, int], left: Mapping[int, int], limit: int) -> int:
        """Return an upper bound, in parts, on what a node keeps in addition, less the prices of what it receives.

        Args:
            free: its free load.
            gains: class -> rate of one member to the executors on the node.
            left: class -> members that are not placed yet.
            limit: sets that are examined.
        """
        have = ints(left.get(kind, 0) for kind in range(len(self.prices)))
        profit = ints(PARTS * gains.get(kind, 0) - price for kind, price in enumerate(self.prices))
        return self.pricing.most(have, profit, free, limit)


def find_prices(
    instance: Instance,
    kept: int,
    over: Callable[[], bool],
    limit: int,
    rounds: int = ROUNDS,
    start: Prices | None = None,
) -> Prices:
    """Return prices with a low bound.

    Args:
        instance: the problem; `can_price` holds.
        kept: rate that the best known placement keeps; the search ends when no placement keeps more.
        over: returns True when the time is up.
        limit: sets that are examined for each bound.
        rounds: maximum number of steps.
        start: prices to begin with, whose bound was found with a lower limit.
    """
    pricing = Pricing(instance)
    sizes = [len(members) for members in instance.members]
    have = ints(sizes)
    times = Counter(capacity for capacity, slots in zip(instance.capacity, instance.slots, strict=True) if slots)
    share = kept / (2 * instance.total_rate) if kept > 0 else 0.5
    prices = [PARTS * share * _degree(instance, kind) for kind in range(len(sizes))]
    best, chosen, shrink, idle = PARTS * instance.total_rate, [0] * len(sizes), 1.0, 0
    if start is not None:
        prices, chosen = list(map(float, start.prices)), list(start.prices)
        best = PARTS * start.most + PARTS - 1
    for at in range(rounds):
        whole = [round(price) for price in prices]
        profit = ints(-price for price in whole)
        bound = sum(price * size for price, size in zip(whole, sizes, strict=True))
        excess = list(sizes)
        for capacity, nodes in times.items():
            if over():
                return Prices(pricing, tuple(chosen), best // PARTS)
            bound += nodes * pricing.most(have, profit, capacity, limit)
            for kind, count in enumerate(pricing.chosen):
                excess[kind] -= nodes * count
        if start is not None and not at and bound >= PARTS * start.most:
            break  # the lower limit was enough
        if bound < best:
            best, chosen, idle = bound, whole, 0
        else:
            idle += 1
            if idle % PATIENCE == 0:
                shrink /= 2
        length = sum(value * value for value in excess)
        if not length or best // PARTS <= kept:
            break
        step = shrink * (bound - PARTS * kept) / length
        prices = [price - step * value for price, value in zip(prices, excess, strict=True)]
    return Prices(pricing, tuple(chosen), best // PARTS)


def _degree(instance: Instance, kind: int) -> int:
    """Return the rate of one member with all its partners."""
    near = instance.near[kind]
    return sum(rate * (len(instance.members[other]) - (other == kind)) for other, rate in near.items())
