"""Greedy packing into bins of items that exchange tuples, pair by pair, busiest pair first.

Used twice: to pack executors into workers, and workers onto nodes. A bin has limits on the items of a group, on all
items and on load. The least loaded bin is preferred; ties go to the lower number. The parameters of the limits on
executors per worker, workers per node and nodes per topology have the names of the authors' published code.
"""

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import ceil

from scheduler.toolkit.exact import decimal


def most_executors(executors: int, workers: int, alfa: float) -> int:
    """Return M, the maximum number of executors in a worker.

    It lies between an even split (`alfa` 0) and one executor in each other worker (`alfa` 1).
    """
    low = -(-executors // workers)
    high = executors - workers + 1
    return low + ceil(decimal(alfa) * (high - low))


def interpolate(fewest: int, most: int, share: float) -> int:
    """Return `fewest` at share 0, `most` at share 1, and the interpolated value, rounded up, in between."""
    return fewest + ceil(decimal(share) * (most - fewest))


def nodes_wanted(workers: int, nodes: int, beta: float) -> int:
    """Return u, the number of nodes that the online scheduler uses for a topology's workers.

    The published "fewest nodes" is in fact workers per node. With many workers and few nodes it exceeds the maximum,
    hence the clamp.
    """
    usable = min(nodes, workers)
    return min(max(interpolate(-(-workers // usable), usable, beta), 1), usable)


def most_workers(workers: int, wanted: int, delta: float) -> int:
    """Return k, the maximum number of workers of a topology on a node when it uses `wanted` nodes."""
    return interpolate(-(-workers // wanted), workers - wanted + 1, delta)


Pair = tuple[int, int, int]
"""Two items and their rate."""


class NoRoomError(Exception):
    """No bin accepts an item; the published code gives up in this case."""


class Bins:
    """Bins and their contents.

    Attributes:
        items: bin -> its items, in the order of arrival.
        load: bin -> load.
        home: item -> its bin, or None.
    """

    def __init__(
        self,
        load: Sequence[int],
        group: Sequence[int],
        most: Sequence[int],
        limits: Sequence[int | None],
        places: Sequence[int] | None = None,
        *,
        weightless: bool = False,
    ) -> None:
        """Begin with empty bins.

        Args:
            load: item -> load.
            group: item -> its group.
            most: group -> maximum number of its items in a bin.
            limits: bin -> maximum load; None = no limit.
            places: bin -> maximum number of items; None = no limit.
            weightless: treat items in bins as having no load (a defect of the published code).
        """
        self._load_of = load
        self._group = group
        self._most = most
        self._limits = limits
        self._places = places
        self._weightless = weightless
        self._of_group: list[dict[int, int]] = [{} for _ in limits]
        # Keys of dictionaries, so that an item can be taken out of a large bin at once.
        self.items: list[dict[int, None]] = [{} for _ in limits]
        self.load = [0 for _ in limits]
        self.home: list[int | None] = [None for _ in load]
        # Heaps of (load, bin) by group and number of items, and the bins that have changed since they were used last.
        self._heaps: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._seen: dict[tuple[int, int], int] = {}
        self._changed: list[int] = []
        self._forgotten = 0

    def accepts(self, at: int, group: int, count: int, load: int, *, any_load: bool = False) -> bool:
        """Return whether `count` more items of `group` with `load` together fit into bin `at`."""
        limit, places = self._limits[at], self._places
        return (
            self._of_group[at].get(group, 0) + count <= self._most[group]
            and (places is None or len(self.items[at]) + count <= places[at])
            and (any_load or limit is None or self.load[at] + load <= limit)
        )

    def accepts_instead(self, at: int, without: Sequence[int], items: Sequence[int]) -> bool:
        """Return whether `items`, of one group, would fit into bin `at` together if it did not have `without`."""
        count, load, weigh = len(items), 0, not self._weightless
        for item in without:
            if self.home[item] == at:
                count -= 1
                load -= self._load_of[item] if weigh else 0
        # Items that are in already weigh nothing, but each one is asked for with its load.
        for number, item in enumerate(items):
            load += self._load_of[item] if weigh or number == len(items) - 1 else 0
        return self.accepts(at, self._group[items[0]], count, load)

    def least(self, group: int, count: int, load: int, *, any_load: bool = False) -> int | None:
        """Return the least loaded bin that accepts the items, or None."""
        heap = self._by_load(group, count)
        aside: list[tuple[int, int]] = []
        least_loaded: int | None = None
        while heap and least_loaded is None:
            entry = heap[0]
            at = entry[1]
            if entry[0] != self.load[at] or not self.accepts(at, group, count, 0, any_load=True):
                heappop(heap)  # outdated, or full: it comes back when something is taken out
            elif self.accepts(at, group, count, load, any_load=any_load):
                least_loaded = at
            else:
                aside.append(heappop(heap))
                while heap and heap[0] == entry:
                    heappop(heap)
        for entry in aside:
            heappush(heap, entry)
        return least_loaded

    def _by_load(self, group: int, count: int) -> list[tuple[int, int]]:
        """Return a heap of (load, bin) that has every bin with room for `count` items of `group`."""
        key = group, count
        heap = self._heaps.get(key, [])
        seen = self._seen.get(key, -1) - self._forgotten
        if seen < 0 or len(heap) > 4 * len(self.load) + 64:
            heap = self._heaps[key] = [(load, at) for at, load in enumerate(self.load)]
            heapify(heap)
        else:
            for at in set(self._changed[seen:]):
                heappush(heap, (self.load[at], at))
        if len(self._changed) > 4 * len(self.load) + 64:
            self._forgotten += len(self._changed)
            self._changed.clear()
        self._seen[key] = self._forgotten + len(self._changed)
        return heap

    def roomy(self) -> int | None:
        """Return the least loaded bin with room for an item, ignoring the other limits, or None."""
        places = self._places
        able = (at for at, items in enumerate(self.items) if places is None or len(items) < places[at])
        return min(able, key=lambda at: (self.load[at], at), default=None)

    def put(self, item: int, at: int) -> None:
        """Put `item` into bin `at`."""
        group = self._group[item]
        self._of_group[at][group] = self._of_group[at].get(group, 0) + 1
        self.items[at][item] = None
        self.load[at] += 0 if self._weightless else self._load_of[item]
        self.home[item] = at
        self._changed.append(at)

    def take(self, item: int) -> None:
        """Take `item` out of its bin."""
        at = self.home[item]
        if at is not None:
            self._of_group[at][self._group[item]] -= 1
            del self.items[at][item]
            self.load[at] -= 0 if self._weightless else self._load_of[item]
            self.home[item] = None
            self._changed.append(at)


class Packing:
    """Greedy packing of pairs into `bins`."""

    def __init__(
        self,
        bins: Bins,
        load: Sequence[int],
        group: Sequence[int],
        near: Sequence[Mapping[int, int]],
        *,
        strict: bool,
    ) -> None:
        """Begin with nothing packed.

        Args:
            bins: the bins.
            load: item -> load.
            group: item -> its group.
            near: item -> {item: rate, both directions added}.
            strict: raise `NoRoomError` when no bin accepts an item; otherwise the item stays unpacked for now.
        """
        self._bins = bins
        self._load = load
        self._group = group
        self._near = near
        self._strict = strict

    def place_pair(self, one: int, other: int) -> None:
        """Choose bins for both items of a pair, which may already have bins.

        Raises:
        """
        homes = self._bins.home[one], self._bins.home[other]
        if homes == (None, None):
            self._open(one, other)
        else:
            self._improve(one, other, [home for home in homes if home is not None])

    def _open(self, one: int, other: int) -> None:
        bins, group, load = self._bins, self._group[one], self._load
        both = bins.least(group, 2, load[one] + load[other])
        if both is not None:
            bins.put(one, both)
            bins.put(other, both)
            return
        first = bins.least(group, 1, load[one])
        if first is not None:
            bins.put(one, first)
        elif self._strict:
            raise NoRoomError
        beside = first is not None and bins.accepts(first, group, 1, load[other])
        second = first if beside else bins.least(group, 1, load[other])
        if second is not None:
            bins.put(other, second)
        elif self._strict:
            raise NoRoomError

    def _improve(self, one: int, other: int, homes: Sequence[int]) -> None:
        bins, group, load = self._bins, self._group[one], self._load
        least = bins.least(group, 1, max(load[one], load[other]))
        candidates = list(dict.fromkeys([*homes, *([least] if least is not None else [])]))
        best = self._best_bins(one, other, candidates)
        if best is not None:
            if best != (bins.home[one], bins.home[other]):
                bins.take(one)
                bins.take(other)
                bins.put(one, best[0])
                bins.put(other, best[1])
        elif self._strict:
            raise NoRoomError

    def _best_bins(self, one: int, other: int, candidates: Sequence[int]) -> tuple[int, int] | None:
        """Return the accepted bins of both, of `candidates`, that keep most rate inside bins; the first of equal ones.

        Nothing is moved meanwhile: most pairs stay where they are.
        """
        bins = self._bins
        pair = (one, other)
        rates = self._rates_in(one, other, candidates), self._rates_in(other, one, candidates)
        shared = self._near[one].get(other, 0)
        best: tuple[int, int] | None = None
        most = 0
        for first in candidates:
            if not bins.accepts_instead(first, pair, (one,)):
                continue
            for second in candidates:
                together = (one, other) if first == second else (other,)
                kept = rates[0][first] + rates[1][second] + (shared if first == second else 0)
                if (best is None or kept > most) and bins.accepts_instead(second, pair, together):
                    best, most = (first, second), kept
        return best

    def _rates_in(self, item: int, besides: int, candidates: Sequence[int]) -> dict[int, int]:
        """Return candidate -> rate between `item` and the items in it, `besides` left out."""
        home = self._bins.home
        rates = dict.fromkeys(candidates, 0)
        for other, rate in self._near[item].items():
            at = home[other]
            if at is not None and at in rates and other != besides:
                rates[at] += rate
        return rates

    def rate_by_node(self, item: int) -> dict[int, int]:
        """Return bin -> rate between `item` and the items there, excluding `item` itself."""
        rates: dict[int, int] = {}
        for other, rate in self._near[item].items():
            at = self._bins.home[other]
            if at is not None:
                rates[at] = rates.get(at, 0) + rate
        return rates

    def rate_at_home(self, item: int) -> int:
        """Return the rate between `item` and the other items of its bin; 0 without a bin."""
        home, of = self._bins.home[item], self._bins.home
        if home is None:
            return 0
        return sum(rate for other, rate in self._near[item].items() if of[other] == home)

    def partners_in(self, item: int, at: int) -> list[int]:
        """Return the items in bin `at` that exchange tuples with `item`."""
        return [other for other in self._near[item] if self._bins.home[other] == at]

    def cut_rate(self) -> int:
        """Return the rate between items in different bins."""
        home = self._bins.home
        return sum(
            rate
            for item, others in enumerate(self._near)
            for other, rate in others.items()
            if other < item and home[item] is not None and home[other] is not None and home[item] != home[other]
        )
