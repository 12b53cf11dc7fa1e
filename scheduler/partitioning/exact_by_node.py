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

PARTS = 64
"""Prices are multiples of 1/64 of a rate unit, so that bounds are exact."""

Filling = tuple[tuple[int, ...], int]
"""Members per class, and the rate that they keep among themselves."""

Offer = tuple[int, tuple[int, ...], int]
"""Slack, in parts of a rate unit, and filling."""

Remaining = tuple[int, ...]

Layer = dict[Remaining, tuple[int, Remaining, int]]
"""Counts left to place -> rate kept, the counts before, and the number of the offer taken."""


def few_fillings(instance: Instance) -> list[list[Filling]] | None:
    """Return the fillings of each kind of node, or None if this method does not apply: there are too many classes."""
    if len(instance.members) > MOST_CLASSES:
        return None
    if prod(len(members) + 1 for members in instance.members) > MOST_REMAINING:
        return None
    found: list[list[Filling]] = []
    for nodes in _alike(instance):
        mine = fillings_of(instance, nodes[0])
        if mine is None:
            return None
        found.append(mine)
    return found


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
    prices = _prices(fillings, [len(nodes) for nodes in alike], sizes, kept, over)
    offers: list[list[Offer]] = []
    tops: list[int] = []
    for nodes, mine in zip(alike, fillings, strict=True):
        worth = [PARTS * keeps - sum(p * n for p, n in zip(prices, counts, strict=True)) for counts, keeps in mine]
        top = max(worth)
        tops.extend([top] * len(nodes))
        ordered = sorted((top - value, counts, keeps) for value, (counts, keeps) in zip(worth, mine, strict=True))
        offers.extend([ordered] * len(nodes))
    order = [node for nodes in alike for node in nodes]
    room = sum(instance.capacity[node] for node in order)
    promised = sum(tops)
    layer: Layer = {tuple(sizes): (0, (), -1)}
    history: list[Layer] = []
    for node, choices, top in zip(order, offers, tops, strict=True):
        room -= instance.capacity[node]
        following: Layer = {}
        for looked, (remaining, (so_far, _, _)) in enumerate(layer.items()):
            if not looked % 64 and over():
                return Proof(None, max(kept, _promise(layer, prices, promised)), False, True)
            promise = PARTS * so_far + sum(p * left for p, left in zip(prices, remaining, strict=True)) + promised
            for number, (slack, counts, keeps) in enumerate(choices):
                if kept >= 0 and (promise - slack) // PARTS <= kept:
                    break
                fresh = tuple(map(sub, remaining, counts))
                if min(fresh) < 0 or sum(map(mul, fresh, instance.load)) > room:
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
            limits = instance.capacity[node], instance.room[node], min(slots, topologies)
            kinds.setdefault(limits, []).append(node)
    return [kinds[limits] for limits in sorted(kinds, reverse=True)]


def fillings_of(instance: Instance, node: int) -> list[Filling] | None:
    """Return the possible fillings of `node`, or None when they are too many to list."""
    found: list[Filling] = []
    counts = [0] * len(instance.members)

    def extend(kind: int, free: int, room: int, hosted: frozenset[int], keeps: int) -> bool:
        if kind == len(counts):
            found.append((tuple(counts), keeps))
            return len(found) <= MOST_FILLINGS
        near = instance.near[kind]
        gain = sum(near.get(other, 0) * counts[other] for other in range(kind))
        inner = near.get(kind, 0)
        load, memory = instance.load[kind], instance.memory[kind]
        for count in range(len(instance.members[kind]) + 1):
            if count * load > free or count * memory > room:
                break
            hosts = hosted | {instance.topology[kind]} if count else hosted
            if len(hosts) > instance.slots[node]:
                break
            counts[kind] = count
            worth = keeps + gain * count + inner * (count * (count - 1) // 2)
            if not extend(kind + 1, free - count * load, room - count * memory, hosts, worth):
                return False
        counts[kind] = 0
        return True

    return found if extend(0, instance.capacity[node], instance.room[node], frozenset(), 0) else None


def _most_valuable(fillings: list[Filling], prices: Sequence[float]) -> list[Filling]:
    """Return the fillings that are worth most at these prices."""
    if len(fillings) <= SHORT:
        return fillings
    worth = [keeps - sum(map(mul, prices, counts)) for counts, keeps in fillings]
    least = sorted(worth)[-SHORT]
    return [filling for filling, value in zip(fillings, worth, strict=True) if value >= least]


def _prices(
    fillings: Sequence[list[Filling]], times: Sequence[int], sizes: Sequence[int], kept: int, over: Callable[[], bool]
) -> list[int]:
    """Return prices per class, in parts of a rate unit, with a low bound (subgradient steps of Polyak's length).

    Most rounds look only at the fillings that were worth most some rounds ago; their bounds are estimates.
    """
    prices = [0.0] * len(sizes)
    best, chosen = float("inf"), prices
    shrink = 1.0
    short = list(fillings)
    for at in range(ROUNDS):
        if over():
            break
        whole = at % REFRESH == 0
        if whole:
            short = [_most_valuable(mine, prices) for mine in fillings]
        bound = sum(p * size for p, size in zip(prices, sizes, strict=True))
        excess = [float(size) for size in sizes]
        for mine, nodes in zip(short, times, strict=True):
            worth, counts = max((keeps - sum(map(mul, prices, counts)), counts) for counts, keeps in mine)
            bound += nodes * worth
            for kind, count in enumerate(counts):
                excess[kind] -= nodes * count
        if bound >= best:
            shrink *= 0.9
        elif whole:
            best, chosen = bound, prices
        length = sum(value * value for value in excess)
        if whole and (not length or bound <= kept):
            break
        step = shrink * max(0.0, bound - kept) / length if length else 0.0
        prices = [price - step * value for price, value in zip(prices, excess, strict=True)]
    return [round(PARTS * price) for price in chosen]
