"""Upper bounds on the rate that nodes keep, and the resulting lower bounds on W.

A node with load s keeps at most f(s), the rate inside the densest set of executors of load s. Over all nodes the kept
rates form a knapsack problem. f is exact if a bounded search completes, otherwise an upper bound. Where a few executors
have most of the rate, they dominate every node's f and the knapsack bound is weak. Then a better bound is the rate that
each executor must lose because its partners do not all fit on its node.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from scheduler.partitioning.instance import Instance

FINEST = 256
"""Maximum number of load steps in the largest capacity; coarser steps only weaken the bound."""

MOST_SETS = 4_000
"""Maximum number of connected sets examined in the search for the densest ones."""


class Density:
    """Upper bounds on the rate that executors of a given load keep among themselves.

    Attributes:
        grain: load per step; loads are rounded down to steps and capacities up, which keeps bounds valid.
        steps: class -> load of one member in steps.
        capacity: node -> capacity in steps.
        most: steps s -> upper bound on the rate inside a set of at most s steps; non-decreasing.
        exact: whether `most` is attained by a set (then loads are not rounded either).
        lost: class -> minimum rate of each member with executors on other nodes.
    """

    def __init__(self, instance: Instance, sets: int = MOST_SETS) -> None:
        largest = max(instance.capacity, default=0)
        self.grain = max(1, -(-largest // FINEST))
        self.steps = [load // self.grain for load in instance.load]
        self.capacity = [-(-capacity // self.grain) for capacity in instance.capacity]
        top = max(self.capacity, default=0)
        rows = [_best_partners(instance, self.steps, kind, top) for kind in range(len(instance.members))]
        self.lost = _lost(instance, self.steps, rows, top)
        bounds = [_by_degree(instance, self.steps, rows, top), _by_colours(instance, self.steps, top)]
        searched = _by_search(instance, self.steps, top, sets)
        self.exact = searched is not None and self.grain == 1
        self.most = searched if searched is not None else [min(values) for values in zip(*bounds, strict=True)]

    def least_cut(self, instance: Instance) -> int:
        """Return a lower bound on W over all placements."""
        need = sum(steps * len(members) for steps, members in zip(self.steps, instance.members, strict=True))
        return max(instance.total_rate - most_kept(self.most, self.capacity, need), lost_together(instance, self.lost))


def lost_together(instance: Instance, lost: Sequence[int]) -> int:
    """Return a lower bound on W from the losses of single executors: half of all, or all of some non-partners.

    Executors with the largest loss are taken first.
    """
    half = sum(loss * len(members) for loss, members in zip(lost, instance.members, strict=True))
    apart = 0
    passed = [False] * len(lost)
    for kind in sorted(range(len(lost)), key=lambda kind: -lost[kind] * len(instance.members[kind])):
        if not passed[kind]:
            apart += lost[kind] * (1 if kind in instance.near[kind] else len(instance.members[kind]))
            for other in instance.near[kind]:
                passed[other] = True
    return max(-(-half // 2), apart)


def most_kept(most: Sequence[int], capacities: Sequence[int], need: int) -> int:
    """Return the maximum sum of most[s_u] with s_u <= capacity of u and all s_u adding up to `need`; at least 0.

    The time grows with the number of nodes and `need`; above a limit the concave hull of `most`, an upper bound, is
    summed instead.
    """
    if len(capacities) * need * max(capacities, default=0) > 300_000:
        return _hull_kept(most, capacities, need)
    kept = [0]
    for capacity, times in sorted(Counter(capacities).items(), reverse=True):
        for _ in range(times):
            size = min(need, len(kept) - 1 + capacity)
            kept = [
                max(
                    kept[before] + most[total - before]
                    for before in range(max(0, total - capacity), min(len(kept), total + 1))
                )
                for total in range(size + 1)
            ]
    return max(kept[-1], 0)


def _hull_kept(most: Sequence[int], capacities: Sequence[int], need: int) -> int:
    """Return the same bound with each node's curve replaced by its concave hull: steepest pieces first."""
    pieces: list[tuple[float, int, int]] = []
    for capacity, times in Counter(capacities).items():
        hull = [0]
        for s in range(1, capacity + 1):
            while len(hull) > 1 and (most[hull[-1]] - most[hull[-2]]) * (s - hull[-1]) <= (most[s] - most[hull[-1]]) * (
                hull[-1] - hull[-2]
            ):
                hull.pop()
            hull.append(s)
        for a, b in pairwise(hull):
            pieces.append(((most[b] - most[a]) / (b - a), (b - a) * times, (most[b] - most[a]) * times))
    total = 0
    for _, width, gain in sorted(pieces, reverse=True):
        used = min(width, need)
        total += -(-gain * used // width)
        need -= used
    return total


def _lost(instance: Instance, steps: Sequence[int], rows: Sequence[Sequence[int]], top: int) -> list[int]:
    """Return class -> rate of one member with all partners, less the best ones that fit on the largest node with it."""
    return [
        sum(rate * (len(instance.members[other]) - (other == kind)) for other, rate in near.items())
        - rows[kind][max(0, top - steps[kind])]
        for kind, near in enumerate(instance.near)
    ]


def _by_degree(instance: Instance, steps: Sequence[int], rows: Sequence[Sequence[int]], top: int) -> list[int]:
    """Return half the sum, over the members of a set, of the maximum rate of each with others of the set's load."""
    bound: list[int] = []
    for s in range(top + 1):
        offers = [
            (rows[kind][s - steps[kind]], steps[kind], len(members))
            for kind, members in enumerate(instance.members)
            if steps[kind] <= s
        ]
        bound.append(_fractional(offers, s) // 2)
    return list(accumulate(bound, max))


def _best_partners(instance: Instance, steps: Sequence[int], kind: int, top: int) -> list[int]:
    """Return load s -> maximum rate between one member of `kind` and others of total load s."""
    offers = [
        (rate, steps[other], len(instance.members[other]) - (other == kind))
        for other, rate in instance.near[kind].items()
    ]
    return best_of(offers, top)


def best_of(offers: Sequence[tuple[int, int, int]], top: int) -> list[int]:
    """Return load s -> maximum value of load s, from offers of (value, load, times); fractions are rounded up."""
    row = [0] * (top + 1)
    at = total = base = 0
    for value, size, times in sorted(offers, key=_worth_per_load):
        if not size:
            base += value * times
            continue
        width = min(size * times, top - at)
        for s in range(1, width + 1):
            row[at + s] = total + -(-value * s // size)
        total += -(-value * width // size)
        at += width
    for s in range(at + 1, top + 1):
        row[s] = total
    return [base + value for value in row] if base else row


def _worth_per_load(offer: tuple[int, int, int]) -> float:
    value, size, _ = offer
    return -value / size if size else float("-inf")


def _fractional(offers: list[tuple[int, int, int]], room: int) -> int:
    """Return fractional knapsack of (value, size, times), rounded up."""
    total = 0
    for value, size, times in sorted(offers, key=_worth_per_load):
        if not size:
            total += value * times
            continue
        used = min(size * times, room)
        total += -(-value * used // size)
        room -= used
        if not room:
            break
    return total


def _by_colours(instance: Instance, steps: Sequence[int], top: int) -> list[int]:
    """Return the maximum pairs of m executors (Turan: m^2/4 without triangles) at the largest rate."""
    largest = max((rate for near in instance.near for rate in near.values()), default=0)
    two = _two_colours(instance)
    sizes = sorted((size, len(members)) for size, members in zip(steps, instance.members, strict=True))
    bound: list[int] = []
    for s in range(top + 1):
        room, count = s, 0
        for size, times in sizes:
            fitting = times if not size else min(times, room // size)
            count += fitting
            room -= fitting * size
            if fitting < times:
                break
        bound.append(largest * (count * count // 4 if two else count * (count - 1) // 2))
    return bound


def _two_colours(instance: Instance) -> bool:
    """Return whether the graph has no cycle of odd length."""
    colour: dict[int, bool] = {}
    for start in range(len(instance.members)):
        if start in colour:
            continue
        colour[start] = False
        stack = [start]
        while stack:
            one = stack.pop()
            for other in instance.near[one]:
                if other not in colour:
                    colour[other] = not colour[one]
                    stack.append(other)
                elif colour[other] == colour[one]:
                    return False
    return True


def _by_search(instance: Instance, steps: Sequence[int], top: int, sets: int) -> list[int] | None:
    """Return the densest sets by examining all connected sets, or None when there are more than `sets`.

    A set is a count per class. The densest set of a load is a union of connected ones.
    """
    if any(not size for size in steps):
        return None
    connected = [0] * (top + 1)
    sizes = [len(members) for members in instance.members]
    layer: dict[tuple[tuple[int, int], ...], tuple[int, int]] = {
        ((kind, 1),): (size, 0) for kind, size in enumerate(steps) if size <= top
    }
    seen = len(layer)
    while layer:
        following: dict[tuple[tuple[int, int], ...], tuple[int, int]] = {}
        for chosen, (size, kept) in layer.items():
            connected[size] = max(connected[size], kept)
            mine = dict(chosen)
            gains: dict[int, int] = {}
            for kind, count in chosen:
                for other, rate in instance.near[kind].items():
                    gains[other] = gains.get(other, 0) + rate * count
            for kind, gain in gains.items():
                if size + steps[kind] > top or mine.get(kind, 0) == sizes[kind]:
                    continue
                mine[kind] = mine.get(kind, 0) + 1
                key = tuple(sorted(mine.items()))
                mine[kind] -= 1
                if not mine[kind]:
                    del mine[kind]
                if key not in following:
                    following[key] = (size + steps[kind], kept + gain)
                    seen += 1
                    if seen > sets:
                        return None
        layer = following
    best = list(accumulate(connected, max))
    for s in range(1, top + 1):
        best[s] = max(best[s], max((best[a] + best[s - a] for a in range(1, s // 2 + 1)), default=0))
    return best


@dataclass(frozen=True)
class Proof:
    """Result of an exact search.

    Attributes:
        node_of: executor -> node of a placement better than the known one, or None.
        most: upper bound on the rate kept by any placement; -1 if no placement fits.
        complete: whether the search was exhaustive.
        limit_hit: whether the time limit ended the search.
    """

    node_of: list[int] | None
    most: int
    complete: bool
    limit_hit: bool
