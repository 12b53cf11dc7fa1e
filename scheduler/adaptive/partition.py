"""Balanced graph partitioning with a small cut: greedy growth, then refinement after Kernighan and Lin.

Deterministic: ties go to the lower vertex, then the lower part. A part weighs at most 5 % more than the mean. Where
vertices are too heavy for that, the limit is the largest part after assigning vertices by weight, heaviest first.
Refinement makes passes of tentative moves, each vertex once, and keeps the best prefix (Fiduccia and Mattheyses' form).
It then exchanges pairs where no single vertex has room.
"""

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

from scheduler.toolkit.affinity import RateAffinity

MOST_PASSES = 10

MOST_IDLE = 100
"""A pass ends after this many consecutive moves without a smaller cut."""


def partition(weight: Sequence[int], near: Sequence[Mapping[int, int]], parts: int) -> list[int]:
    """Return vertex -> part. No part is empty.

    Args:
        weight: weight of each vertex; when all are 0, vertices are counted.
        near: vertex -> {vertex: rate}, symmetric.
        parts: number of parts, at most the number of vertices.
    """
    if parts == 1:
        return [0] * len(weight)
    weight = weight if any(weight) else [1] * len(weight)
    level = _dealt(weight, parts)
    heaviest = max(_loads(weight, level, parts))
    limit = max(sum(weight) * 21 // (20 * parts), heaviest)
    starts = [level]
    grown = _grown(weight, near, parts, limit)
    if max(_loads(weight, grown, parts)) <= limit:
        starts.insert(0, grown)
    return min((_Refinement(weight, near, parts, limit, start).run() for start in starts), key=lambda p: cut(near, p))


def cut(near: Sequence[Mapping[int, int]], part: Sequence[int]) -> int:
    """Return the rate between different parts."""
    return sum(rate for v, others in enumerate(near) for u, rate in others.items() if u < v and part[u] != part[v])


def _loads(weight: Sequence[int], part: Sequence[int], parts: int) -> list[int]:
    loads = [0] * parts
    for v, p in enumerate(part):
        loads[p] += weight[v]
    return loads


def _dealt(weight: Sequence[int], parts: int) -> list[int]:
    """Return vertex -> part: heaviest vertex first, each to the lightest part.

    Ties go to the part with fewer vertices, then to the lower part.
    """
    part = [0] * len(weight)
    heap = [(0, 0, p) for p in range(parts)]
    for v in sorted(range(len(weight)), key=lambda v: -weight[v]):
        load, count, p = heappop(heap)
        part[v] = p
        heappush(heap, (load + weight[v], count + 1, p))
    return part


def _grown(weight: Sequence[int], near: Sequence[Mapping[int, int]], parts: int, limit: int) -> list[int]:
    """Grow parts one after the other around the busiest remaining vertex. The last part takes the rest."""
    part = [parts - 1] * len(weight)
    affinity = RateAffinity(near, range(len(weight)))
    busiest = sorted(range(len(weight)), key=lambda v: (-sum(near[v].values()), v))
    waiting = dict.fromkeys(busiest)
    rest = sum(weight)
    for p in range(parts - 1):
        affinity.start()
        load = 0
        while len(waiting) > parts - 1 - p:
            v = affinity.strongest()
            if v is None:
                v = next(iter(waiting))
            if load and (load + weight[v] > limit or (2 * load + weight[v]) * (parts - p) > 2 * rest):
                break
            part[v] = p
            load += weight[v]
            del waiting[v]
            affinity.remove(v)
            affinity.attract(v)
        rest -= load
    return part


class _Refinement:
    """Refinement of one partition."""

    def __init__(
        self, weight: Sequence[int], near: Sequence[Mapping[int, int]], parts: int, limit: int, part: Sequence[int]
    ) -> None:
        self._weight = weight
        self._near = near
        self._parts = parts
        self._limit = limit
        self._part = list(part)
        self._load = _loads(weight, part, parts)
        self._members = [set[int]() for _ in range(parts)]
        for v, p in enumerate(part):
            self._members[p].add(v)
        self._rate: list[dict[int, int]] = [{} for _ in weight]  # vertex -> part -> rate
        for v, others in enumerate(near):
            for u, rate in others.items():
                self._rate[v][self._part[u]] = self._rate[v].get(self._part[u], 0) + rate

    def run(self) -> list[int]:
        """Return the refined partition."""
        for _ in range(MOST_PASSES):
            moved = self._pass()
            if not self._exchange() and not moved:
                break
        return self._part

    def _gain(self, v: int, p: int) -> int:
        return self._rate[v].get(p, 0) - self._rate[v].get(self._part[v], 0)

    def _put(self, v: int, p: int) -> None:
        source = self._part[v]
        self._part[v] = p
        self._load[source] -= self._weight[v]
        self._load[p] += self._weight[v]
        self._members[source].remove(v)
        self._members[p].add(v)
        for u, rate in self._near[v].items():
            self._rate[u][source] -= rate
            self._rate[u][p] = self._rate[u].get(p, 0) + rate

    def _possible(self, v: int, p: int) -> bool:
        return self._load[p] + self._weight[v] <= self._limit and len(self._members[self._part[v]]) > 1

    def _pass(self) -> bool:
        """Make tentative moves, best first, each vertex once; keep the best prefix. Return whether the cut fell."""
        heap = [(-self._gain(v, p), v, p) for v in range(len(self._part)) for p in self._targets(v)]
        heapify(heap)
        blocked: list[list[tuple[int, int, int]]] = [[] for _ in range(self._parts)]
        locked: set[int] = set()
        log: list[tuple[int, int]] = []
        total = best = kept = 0
        while heap and len(log) - kept < MOST_IDLE:
            entry = heappop(heap)
            gain, v, p = -entry[0], entry[1], entry[2]
            if v in locked or self._part[v] == p or gain != self._gain(v, p):
                continue
            if not self._possible(v, p):
                blocked[p].append(entry)
                continue
            source = self._part[v]
            self._put(v, p)
            locked.add(v)
            log.append((v, source))
            total += gain
            if total > best:
                best, kept = total, len(log)
            for entry in blocked[source]:
                heappush(heap, entry)
            blocked[source] = []
            for u in self._near[v]:
                if u not in locked:
                    for q in self._targets(u):
                        heappush(heap, (-self._gain(u, q), u, q))
        for v, source in reversed(log[kept:]):
            self._put(v, source)
        return best > 0

    def _targets(self, v: int) -> list[int]:
        return [p for p, rate in self._rate[v].items() if rate and p != self._part[v]]

    def _exchange(self) -> bool:
        """Swap pairs that reduce the cut, in one pass over all vertices. Return whether a pair was found."""
        found = False
        for v in range(len(self._part)):
            for p in sorted(self._targets(v)):
                gain = self._gain(v, p)
                if gain <= 0:
                    continue
                u = self._partner(v, p, gain)
                if u is not None:
                    source = self._part[v]
                    self._put(v, p)
                    self._put(u, source)
                    found = True
                    break
        return found

    def _partner(self, v: int, p: int, gain: int) -> int | None:
        """Return the member of `p` whose exchange with `v` reduces the cut most, or None."""
        source = self._part[v]
        best: tuple[int, int] | None = None
        for u in self._members[p]:
            change = self._weight[v] - self._weight[u]
            if self._load[p] + change > self._limit or self._load[source] - change > self._limit:
                continue
            together = gain + self._gain(u, source) - 2 * self._near[v].get(u, 0)
            if together > 0 and (best is None or (-together, u) < best):
                best = (-together, u)
        return None if best is None else best[1]
