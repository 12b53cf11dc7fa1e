"""Exact minimum of W for few classes of executors: dynamic programming over nodes.

A node's filling is a count per class; the remaining problem is a count per class too. So only the best partial
placement per remaining counts is kept (dynamic programming over nodes). A Lagrangian bound prices every class: with
prices p, a node keeps at most max over fillings of (rate kept - p * counts), and all executors together pay p back. A
filling's slack is its distance from that maximum. Slacks add up, and fillings that cannot beat the known placement are
never tried.
"""

from collections.abc import Callable, Sequence
from math import prod
from operator import mul, sub
from typing import TypeVar

from scheduler.partitioning.bounds import Proof
from scheduler.partitioning.instance import Instance

MOST_FILLINGS = 6_000
"""Maximum number of fillings of the largest node for this method."""

MOST_REMAINING = 60_000
"""Maximum number of possible remaining counts for this method."""

MOST_CLASSES = 7
"""Maximum number of classes for this method."""

ROUNDS = 80
"""Steps of the search for good prices."""

REFRESH, SHORT = 16, 80
"""Steps between two examinations of all fillings, and the number of fillings examined in between."""

HALF = 0.5
"""A better placement keeps 1 more, in whole units; the rest is more than sums of floats are off."""

PARTS = 64
"""Prices are multiples of 1/64 of a rate unit, so that bounds are exact."""

N = TypeVar("N", int, float)

Filling = tuple[tuple[int, ...], int]
"""Members per class, and the rate that they keep among themselves."""

Offer = tuple[int, tuple[int, ...], int, int]
"""Slack, in parts of a rate unit, filling, and its load."""

Remaining = tuple[int, ...]

Layer = dict[Remaining, tuple[int, Remaining, int]]
"""Counts left to place -> rate kept, the counts before, and the number of the offer taken."""


def few_fillings(instance: Instance) -> list[list[Filling]] | None:
    """Return the fillings of each kind of node, or None if this method does not apply: there are too many classes."""
    if len(instance.members) > MOST_CLASSES:
        return None
    if prod(len(members) + 1 for members in instance.members) > MOST_REMAINING:
        return None
    fillings: list[list[Filling]] = []
    for nodes in _alike(instance):
        mine = fillings_of(instance, nodes[0])
        if mine is None:
            return None
        fillings.append(mine)
    return fillings


def search_by_node(instance: Instance, fillings: Sequence[list[Filling]], kept: int, over: Callable[[], bool]) -> Proof:
    """Search for the placement that keeps the most rate, and more than `kept`.

    Args:
        instance: the problem.
        fillings: its `few_fillings`.
        kept: rate that the best known placement keeps; -1 when none is known.
        over: returns True when the time is up.
    """
    alike = _alike(instance)
    sizes = [len(members) for members in instance.members]
    prices, fillings = _prices(fillings, [len(nodes) for nodes in alike], sizes, kept, over)
    worths = [_worths([PARTS * keeps for _, keeps in mine], _columns(mine), prices) for mine in fillings]
    tops = [max(worth) for worth, nodes in zip(worths, alike, strict=True) for _ in nodes]
    promised = sum(tops)
    most = promised + sum(p * size for p, size in zip(prices, sizes, strict=True)) - PARTS * (kept + 1)
    offers: list[list[Offer]] = []
    for nodes, mine, worth in zip(alike, fillings, worths, strict=True):
        top = max(worth)
        slacks = zip(worth, mine, strict=True)
        # With more slack no placement keeps more than the known one.
        ordered = sorted((top - w, counts, keeps) for w, (counts, keeps) in slacks if kept < 0 or top - w <= most)
        loaded = [(slack, counts, keeps, sum(map(mul, counts, instance.load))) for slack, counts, keeps in ordered]
        offers.extend([loaded] * len(nodes))
    order = [node for nodes in alike for node in nodes]
    room = sum(instance.capacity[node] for node in order)
    layer: Layer = {tuple(sizes): (0, (), -1)}
    history: list[Layer] = []
    for node, choices, top in zip(order, offers, tops, strict=True):
        room -= instance.capacity[node]
        following: Layer = {}
        for looked, (remaining, (so_far, _, _)) in enumerate(layer.items()):
            if not looked % 64 and over():
                return Proof(None, max(kept, _promise(layer, prices, promised)), False, True)
            promise = PARTS * so_far + sum(p * left for p, left in zip(prices, remaining, strict=True)) + promised
            least = sum(map(mul, remaining, instance.load)) - room  # load that must go to this node
            for number, (slack, counts, keeps, load) in enumerate(choices):
                if kept >= 0 and (promise - slack) // PARTS <= kept:
                    break
                if load < least:
                    continue
                fresh = tuple(map(sub, remaining, counts))
                if min(fresh) < 0:
                    continue
                known = following.get(fresh)
                if known is None or known[0] < so_far + keeps:
                    following[fresh] = (so_far + keeps, remaining, number)
        promised -= top
        layer = following
        history.append(layer)
    nothing = tuple(0 for _ in sizes)
    if nothing not in layer or layer[nothing][0] <= kept:
        return Proof(None, kept, True, False)
    node_of = [-1] * instance.executors
    members = [iter(members) for members in instance.members]
    state = nothing
    for node, choices, done in zip(reversed(order), reversed(offers), reversed(history), strict=True):
        _, state, number = done[state]
        for kind, count in enumerate(choices[number][1]):
            for _ in range(count):
                node_of[next(members[kind])] = node
    return Proof(node_of, layer[nothing][0], True, False)


def _promise(layer: Layer, prices: Sequence[int], promised: int) -> int:
    """Return an upper bound on the rate kept by completions of the placements of `layer`."""
    best = max(
        PARTS * so_far + sum(p * left for p, left in zip(prices, remaining, strict=True))
        for remaining, (so_far, _, _) in layer.items()
    )
    return (best + promised) // PARTS


def _alike(instance: Instance) -> list[list[int]]:
    """Return usable nodes, grouped by equal limits, largest first."""
    kinds: dict[tuple[int, int, int], list[int]] = {}
    topologies = len(set(instance.topology))
    for node, slots in enumerate(instance.slots):
        if slots:
            workers = slots if instance.worker is not None else min(slots, topologies)
            limits = instance.capacity[node], instance.room[node], workers
            kinds.setdefault(limits, []).append(node)
    return [kinds[limits] for limits in sorted(kinds, reverse=True)]


def fillings_of(instance: Instance, node: int) -> list[Filling] | None:
    """Return the possible fillings of `node` in ascending order, or None when they are too many to list."""
    partial: list[tuple[tuple[int, ...], int, int, frozenset[int], int]] = [
        ((), instance.capacity[node], instance.room[node], frozenset(), 0)
    ]
    for kind, members in enumerate(instance.members):
        near = [(other, rate) for other, rate in instance.near[kind].items() if other < kind]
        inner = instance.near[kind].get(kind, 0)
        load, memory, topology = instance.load[kind], instance.memory[kind], instance.topology[kind]
        extended: list[tuple[tuple[int, ...], int, int, frozenset[int], int]] = []
        for counts, free, room, hosted, keeps in partial:
            gain = 0
            for other, rate in near:
                gain += rate * counts[other]
            extended.append(((*counts, 0), free, room, hosted, keeps))
            hosts = hosted if topology in hosted else hosted | {topology}
            if len(hosts) > instance.slots[node]:
                continue
            for count in range(1, len(members) + 1):
                free -= load
                room -= memory
                if free < 0 or room < 0:
                    break
                if instance.worker is not None and not instance.hosts(node, dict(enumerate((*counts, count)))):
                    break
                worth = keeps + gain * count + inner * (count * (count - 1) // 2)
                extended.append(((*counts, count), free, room, hosts, worth))
        if len(extended) > MOST_FILLINGS:
            return None
        partial = extended
    return [(counts, keeps) for counts, _, _, _, keeps in partial]


def _columns(fillings: Sequence[Filling]) -> list[tuple[int, ...]]:
    """Return class -> its members in each filling."""
    return list(zip(*(counts for counts, _ in fillings), strict=True))


def _worths(keeps: Sequence[N], columns: Sequence[Sequence[int]], prices: Sequence[N]) -> list[N]:
    """Return what fillings keep, less the prices of their members."""
    worth = list(keeps)
    for price, column in zip(prices, columns, strict=True):
        if price:
            worth = [value - price * count for value, count in zip(worth, column, strict=True)]
    return worth


class _Shortlist:
    """The fillings of a kind of node that were worth most lately.

    Attributes:
        all: the fillings that an improved placement may have.
    """

    def __init__(self, fillings: list[Filling]) -> None:
        self.all = fillings
        self._columns = _columns(fillings)
        self._worth: list[float] = []
        self._short: Sequence[Filling] = fillings
        self._short_columns = self._columns

    def refresh(self, prices: Sequence[float]) -> None:
        """Choose anew among all fillings."""
        self._worth = _worths([float(keeps) for _, keeps in self.all], self._columns, prices)
        if len(self.all) > SHORT:
            least = sorted(self._worth)[-SHORT]
            self._short = [filling for filling, value in zip(self.all, self._worth, strict=True) if value >= least]
        else:
            self._short = self.all
        self._short_columns = _columns(self._short)

    def drop(self, slack: float) -> None:
        """Drop fillings that were worth less than the best one by more than `slack` when all were examined last."""
        least = max(self._worth) - slack
        if min(self._worth) < least:
            self.all = [filling for filling, value in zip(self.all, self._worth, strict=True) if value >= least]
            self._columns = _columns(self.all)

    def best(self, prices: Sequence[float]) -> tuple[float, tuple[int, ...]]:
        """Return the largest worth, and a filling that has it."""
        worth = _worths([float(keeps) for _, keeps in self._short], self._short_columns, prices)
        top = max(worth)
        return top, self._short[worth.index(top)][0]


def _prices(
    fillings: Sequence[list[Filling]], times: Sequence[int], sizes: Sequence[int], kept: int, over: Callable[[], bool]
) -> tuple[list[int], list[list[Filling]]]:
    """Return prices per class with a low bound, and the fillings that placements which keep more than `kept` may have.

    Prices are in parts of a rate unit, found by subgradient steps of Polyak's length. Most rounds look only at the
    fillings that were worth most some rounds ago; their bounds are estimates. With more slack than is between the bound
    of a round that looks at all and `kept`, a filling is in no better placement.
    """
    prices = [0.0] * len(sizes)
    best, chosen = float("inf"), prices
    shrink = 1.0
    shortlists = [_Shortlist(mine) for mine in fillings]
    for at in range(ROUNDS):
        if over():
            break
        whole = at % REFRESH == 0
        for shortlist in shortlists if whole else ():
            shortlist.refresh(prices)
        bound = sum(p * size for p, size in zip(prices, sizes, strict=True))
        excess = [float(size) for size in sizes]
        for shortlist, nodes in zip(shortlists, times, strict=True):
            worth, counts = shortlist.best(prices)
            bound += nodes * worth
            for kind, count in enumerate(counts):
                excess[kind] -= nodes * count
        if bound >= best:
            shrink *= 0.9
        elif whole:
            best, chosen = bound, prices
        if whole and kept >= 0:
            for shortlist in shortlists:
                shortlist.drop(max(0.0, bound - kept - HALF))
        length = sum(value * value for value in excess)
        if whole and (not length or bound <= kept):
            break
        step = shrink * max(0.0, bound - kept) / length if length else 0.0
        prices = [price - step * value for price, value in zip(prices, excess, strict=True)]
    return [round(PARTS * price) for price in chosen], [shortlist.all for shortlist in shortlists]
