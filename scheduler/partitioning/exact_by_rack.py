"""Exact minimum of the cost by rack for few classes of executors: tables over counts per class.

What a node or a rack saves depends only on the number of members of each class that it has. So the most that the nodes
of a rack save together is a table over these counts, and so is the most that all racks save; each table is the (max, +)
convolution of smaller ones. No bound is needed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from scheduler.partitioning.exact_by_node import MOST_CLASSES, Filling, fillings_of
from scheduler.partitioning.hops import HopTable
from scheduler.partitioning.instance import Instance

MOST_ENTRIES = 20_000
"""Maximum number of counts of a table."""

MOST_WORK = 400_000_000
"""Maximum number of sums over all convolutions: a second."""

LARGEST = 2**60
"""Limit of costs, so that sums are exact."""

NONE = -(2**62)
"""Entry of counts that cannot be placed; sums with it stay below half of it."""


@dataclass(frozen=True)
class _Racks:
    """Usable nodes by rack, and what two executors save in one rack, and on one node beyond that."""

    racks: list[list[int]]
    far: int
    in_rack: int
    on_node: int


def rack_cost(instance: Instance, table: HopTable, over: Callable[[], bool]) -> tuple[list[int], int] | None:
    """Return a placement (executor -> node) of the lowest cost, and its cost; None if the method does not apply.

    It applies if hops between different racks all cost the same, those within racks too, and classes are few. It also
    returns None if nothing fits, or the time is up.
    """
    racks = _racks(instance, table)
    sizes = [len(members) for members in instance.members]
    entries = prod(size + 1 for size in sizes)
    if racks is None or len(sizes) > MOST_CLASSES or entries > MOST_ENTRIES:
        return None
    if (racks.far + abs(racks.in_rack)) * instance.total_rate > LARGEST:
        return None
    fillings = {node: fillings_of(instance, node) for rack in racks.racks for node in rack}
    work = entries * entries * len(racks.racks) + entries * sum(len(mine or ()) for mine in fillings.values())
    if work > MOST_WORK or any(mine is None for mine in fillings.values()):
        return None
    chain: list[tuple[int, Any, list[Filling]]] = []
    inner: list[Any] = []
    whole = _start(sizes)
    for rack in racks.racks:
        mine = _start(sizes)
        steps = []
        for node in rack:
            if over():
                return None
            offers = [(counts, racks.on_node * keeps) for counts, keeps in fillings[node] or ()]
            steps.append((node, mine, offers))
            mine = _folded(mine, offers)
        inner.append(steps)
        offers = list(_rack_offers(instance, mine, racks.in_rack))
        chain.append((len(inner) - 1, whole, offers))
        whole = _folded(whole, offers)
    full = tuple(sizes)
    if whole[full] < NONE // 2:
        return None
    node_of = [-1] * instance.executors
    members = [iter(each) for each in instance.members]
    left, value = full, int(whole[full])
    for rack, before, offers in reversed(chain):
        counts, worth = _taken(before, offers, left, value)
        left, value = _minus(left, counts), value - worth
        rest, saved = counts, worth - racks.in_rack * _inside(instance, counts)
        for node, table_before, choices in reversed(inner[rack]):
            filling, keeps = _taken(table_before, choices, rest, saved)
            rest, saved = _minus(rest, filling), saved - keeps
            for kind, count in enumerate(filling):
                for _ in range(count):
                    node_of[next(members[kind])] = node
    return node_of, racks.far * instance.total_rate - int(whole[full])


def _racks(instance: Instance, table: HopTable) -> _Racks | None:
    live = [[node for node in nodes if instance.slots[node]] for nodes in table.groups]
    used = [group for group, nodes in enumerate(live) if nodes]
    near = {table.between[group][group] for group in used if len(live[group]) > 1}
    far = {table.between[a][b] for a in used for b in used if a != b}
    if len(near) > 1 or len(far) > 1:
        return None
    inside = near.pop() if near else 0
    outside = far.pop() if far else inside
    if not near and all(len(live[group]) == 1 for group in used):
        inside = outside
    return _Racks([live[group] for group in used], outside, outside - inside, inside)


def _start(sizes: Sequence[int]) -> Any:
    from numpy import full, int64

    table = full([size + 1 for size in sizes], NONE, dtype=int64)
    table[(0,) * len(sizes)] = 0
    return table


def _folded(table: Any, offers: Sequence[Filling]) -> Any:
    """Return counts -> the most saved when one of the offers is added."""
    from numpy import full_like, maximum

    folded = full_like(table, NONE)
    for counts, worth in offers:
        target = tuple(slice(count, None) for count in counts)
        source = tuple(slice(None, size - count) for size, count in zip(table.shape, counts, strict=True))
        maximum(folded[target], table[source] + worth, out=folded[target])
    return maximum(folded, NONE)


def _rack_offers(instance: Instance, table: Any, saves: int) -> Iterator[Filling]:
    for counts in product(*(range(size) for size in table.shape)):
        if table[counts] > NONE // 2:
            yield counts, int(table[counts]) + saves * _inside(instance, counts)


def _inside(instance: Instance, counts: Sequence[int]) -> int:
    """Return the rate among executors of these counts per class."""
    twice = 0
    for kind, count in enumerate(counts):
        for other, rate in instance.near[kind].items():
            twice += rate * count * (counts[other] - (other == kind))
    return twice // 2


def _minus(left: tuple[int, ...], counts: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(have - count for have, count in zip(left, counts, strict=True))


def _taken(table: Any, offers: Sequence[Filling], left: tuple[int, ...], value: int) -> Filling:
    """Return the offer with which `value` was reached."""
    for counts, worth in offers:
        rest = _minus(left, counts)
        if min(rest) >= 0 and table[rest] == value - worth and table[rest] > NONE // 2:
            return counts, worth
    raise ArithmeticError("a table has a value that no offer leads to")
