"""Order in which nodes are tried: racks, hosts in them, nodes in these, each level by its remaining resources.

After Apache Storm, `storm-server/.../scheduling/sorter/NodeSorterHostProximity.java` (2.3 and later) and, without the
level of hosts, the strategy class of 1.1. Shares of a group's totals are compared as integers by cross-multiplication.

The order is that of the last call of `sort`, whatever has been placed since. It is never built as a list: callers need
the first place with room for a kind of executor, and nodes without one are closed for that kind, one by one. Only the
last of a node's changes since the last query is processed.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush, heapreplace
from itertools import takewhile
from operator import itemgetter
from typing import NamedTuple

from scheduler.ras.attempt import Attempt, ExecutorKind
from scheduler.ras.ledger import ResourceAmount, ResourceLedger

Key = tuple[int, int]
Left = tuple[int, int]
"""CPU and memory."""
ChangeTimes = OrderedDict[int, int]
"""Members of a group that changed, or from which something was taken back -> time of the last change, ascending."""
Full = Callable[[Sequence[int]], set[int]]
"""Returns the members of a group that clearly have no room for an executor of some kind."""


@dataclass(frozen=True)
class NodeRanking:
    """Comparison of members of a group with equally many executors of the topology.

    Attributes:
        smaller_share_first: the smaller of the shares of CPU and memory counts before their mean (`DEFAULT_RAS`), not
            after it (`COMMON`).
        equal_at_zero: members are equal where a total is 0 (1.1), instead of being compared by the other share. In
            Storm their mean is not a number then.
        hosts: whether hosts are a level between racks and nodes. Otherwise (1.1) only the first node of each host is
            used: Storm finds nodes by the names of their hosts.
    """

    smaller_share_first: bool = False
    equal_at_zero: bool = False
    hosts: bool = True

    def key(self, left: Left, total: ResourceAmount) -> Key:
        """Return the ascending sort key of a member with `left`, in a group with `total` left."""
        return self.keys([left], total)[0]

    def keys(self, members: Iterable[Left], total: ResourceAmount) -> list[Key]:
        """Return the sort keys of several members of one group."""
        by_cpu, by_memory = total.memory or 1, total.cpu or 1
        shares = [(cpu * by_cpu, memory * by_memory) for cpu, memory in members]
        if not (total.cpu and total.memory):
            if self.equal_at_zero:
                return [(0, 0)] * len(shares)
            return [(-cpu - memory, -cpu - memory) for cpu, memory in shares]
        if self.smaller_share_first:
            return [(-(min(memory, cpu)), -cpu - memory) for cpu, memory in shares]
        return [(-cpu - memory, -(min(memory, cpu))) for cpu, memory in shares]


class _Level:
    """Racks, hosts or nodes by number, with their state at the last `sort`."""

    def __init__(self, parent: Sequence[int], parents: int) -> None:
        self.parent = parent
        self.count = [0] * len(parent)
        self.left: list[Left] = [(0, 0)] * len(parent)
        self.members: list[list[int]] = [[] for _ in range(parents)]
        for member, group in enumerate(parent):
            self.members[group].append(member)
        self.changed = [ChangeTimes() for _ in range(parents)]
        self.reopened = [ChangeTimes() for _ in range(parents)]

    def add(self, member: int, count: int, cpu: int, memory: int) -> None:
        self.count[member] += count
        left = self.left[member]
        self.left[member] = (left[0] + cpu, left[1] + memory)

    def note(self, member: int, moment: int, reopened: bool) -> None:
        group = self.parent[member]
        for change_times in (self.changed[group], self.reopened[group])[: 1 + reopened]:
            change_times[member] = moment
            change_times.move_to_end(member)


class _Change(NamedTuple):
    node: int
    executors: int
    cpu: int
    memory: int
    reopened: bool


class NodeOrder:
    """Nodes of one attempt, sorted again on every call of `sort`."""

    def __init__(
        self,
        attempt: Attempt,
        ranking: NodeRanking,
        favored: Sequence[int] = (),
        unfavored: Sequence[int] = (),
    ) -> None:
        """Sort for the first time.

        Args:
            attempt: the attempt.
            ranking: comparison of nodes.
            favored: nodes before all others, in this order.
            unfavored: nodes after all others, in this order.
        """
        self._attempt = attempt
        self._ranking = ranking
        self._favored = list(dict.fromkeys(favored))
        self._unfavored = [node for node in dict.fromkeys(unfavored) if node not in set(favored)]
        self._apart = frozenset([*self._favored, *self._unfavored])
        self._hidden = frozenset() if ranking.hosts else _not_first_of_host(attempt.ledger)
        self._make_levels(attempt.ledger)
        for node, count in enumerate(attempt.count):
            left = (0, 0) if node in self._hidden else (attempt.cpu[node], attempt.memory[node])
            self._add(node, count, *left)
        self._log: list[_Change] = []
        self._applied = self._sorted_at = 0
        self._views: dict[tuple[int, int, int], _View] = {}
        self._closed_apart: set[tuple[int, int]] = set()
        self._answers: dict[int, tuple[int, int | None]] = {}  # kind -> time of sorting, first node then

    def _make_levels(self, ledger: ResourceLedger) -> None:
        own_host = ledger.host if self._ranking.hosts else ledger.ids
        hosts = sorted(set(zip(ledger.rack, own_host, strict=True)))
        self._racks = sorted(set(ledger.rack))
        number_of_rack = {rack: at for at, rack in enumerate(self._racks)}
        number_of_host = {host: at for at, host in enumerate(hosts)}
        self._levels = (
            _Level([0] * len(self._racks), 1),
            _Level([number_of_rack[rack] for rack, _ in hosts], len(self._racks)),
            _Level([number_of_host[host] for host in zip(ledger.rack, own_host, strict=True)], len(hosts)),
        )
        self._total = ResourceAmount(0, 0)

    def _add(self, node: int, count: int, cpu: int, memory: int) -> None:
        racks, hosts, nodes = self._levels
        host = nodes.parent[node]
        nodes.add(node, count, cpu, memory)
        hosts.add(host, count, cpu, memory)
        racks.add(hosts.parent[host], count, cpu, memory)
        self._total = ResourceAmount(self._total.cpu + cpu, self._total.memory + memory)

    def changed(self, node: int, taken_back: bool = False) -> None:
        """Record that an executor was placed on `node`, or taken back from it."""
        attempt = self._attempt
        self._log.append(_Change(node, attempt.count[node], attempt.cpu[node], attempt.memory[node], taken_back))

    def sort(self) -> None:
        """Set the order to the current state."""
        self._sorted_at = len(self._log)

    def first_fit(self, kind: ExecutorKind) -> tuple[int, int] | None:
        """Return the first node with room for an executor of `kind`, and the place there, or None."""
        sorted_at, node = self._answers.get(kind.number, (-1, None))
        if sorted_at == self._sorted_at:
            if node is None:
                return None
            place = self._attempt.first_fit(node, kind)
            if place is not None:
                return node, place
        self._apply()
        fitting = self._among(kind, self._favored) or self._descend(kind) or self._among(kind, self._unfavored)
        self._answers[kind.number] = (self._sorted_at, None if fitting is None else fitting[0])
        return fitting

    def _among(self, kind: ExecutorKind, nodes: Sequence[int]) -> tuple[int, int] | None:
        for node in nodes:
            if (kind.number, node) not in self._closed_apart:
                place = self._attempt.first_fit(node, kind)
                if place is not None:
                    return node, place
                self._closed_apart.add((kind.number, node))
        return None

    def ranked(self, nodes: Iterable[int]) -> list[int]:
        """Return those of `nodes` that may be used, in order."""
        self._apply()
        chosen = set(nodes)
        keys: tuple[dict[int, tuple[int, Key, int]], ...] = ({}, {}, {})

        def key(level: int, member: int) -> tuple[int, Key, int]:
            if member not in keys[level]:
                of = self._levels[level]
                share = self._ranking.key(of.left[member], self._total_of(level, of.parent[member]))
                keys[level][member] = (-of.count[member], share, member)
            return keys[level][member]

        def path(node: int) -> tuple[tuple[int, Key, int], ...]:
            host = self._levels[2].parent[node]
            return key(0, self._levels[1].parent[host]), key(1, host), key(2, node)

        return [
            *(node for node in self._favored if node in chosen),
            *sorted(chosen - self._apart - self._hidden, key=path),
            *(node for node in self._unfavored if node in chosen),
        ]

    def racks(self) -> list[str]:
        """Return racks in order."""
        self._apply()
        level = self._levels[0]
        ranked = sorted(
            range(len(self._racks)),
            key=lambda rack: (-level.count[rack], self._ranking.key(level.left[rack], self._total), rack),
        )
        return [self._racks[rack] for rack in ranked]

    def _total_of(self, level: int, group: int) -> ResourceAmount:
        return self._total if level == 0 else ResourceAmount(*self._levels[level - 1].left[group])

    def _apply(self) -> None:
        """Update counts and sums to the time of the last `sort`."""
        if self._applied == self._sorted_at:
            return
        change_times: dict[int, _Change] = {}
        for change in self._log[self._applied : self._sorted_at]:
            earlier = change_times.get(change.node)
            change_times[change.node] = (
                change._replace(reopened=True) if earlier is not None and earlier.reopened else change
            )
        self._applied = self._sorted_at
        racks, hosts, nodes = self._levels
        for node, executors, cpu, memory, reopened in change_times.values():
            before = nodes.left[node]
            self._add(node, executors - nodes.count[node], cpu - before[0], memory - before[1])
            host = nodes.parent[node]
            nodes.note(node, self._applied, reopened)
            hosts.note(host, self._applied, reopened)
            racks.note(hosts.parent[host], self._applied, reopened)
            if reopened and node in self._apart:
                self._closed_apart -= {(kind, node) for kind, _ in self._closed_apart}

    def _descend(self, kind: ExecutorKind) -> tuple[int, int] | None:
        top = self._view(kind, 0, 0)
        while (rack := top.first(self._applied, self._total)) is not None:
            in_rack = self._view(kind, 1, rack)
            total = self._total_of(1, rack)
            while (host := in_rack.first(self._applied, total)) is not None:
                fitting = self._in_host(kind, host)
                if fitting is not None:
                    return fitting
                in_rack.close(host)
            top.close(rack)
        return None

    def _in_host(self, kind: ExecutorKind, host: int) -> tuple[int, int] | None:
        members = self._levels[2].members[host]
        if len(members) == 1:
            place = None if members[0] in self._apart else self._attempt.first_fit(members[0], kind)
            return None if place is None else (members[0], place)
        view = self._view(kind, 2, host)
        total = self._total_of(2, host)
        while (node := view.first(self._applied, total)) is not None:
            place = self._attempt.first_fit(node, kind)
            if place is not None:
                return node, place
            view.close(node)
        return None

    def _view(self, kind: ExecutorKind, level: int, group: int) -> "_View":
        key = (kind.number, level, group)
        if key not in self._views:
            full: Full = (_none, partial(self._full_hosts, kind), partial(self._full_nodes, kind))[level]
            self._views[key] = _View(self._levels[level], group, self._ranking, full, self._applied)
        return self._views[key]

    def _full_hosts(self, kind: ExecutorKind, hosts: Sequence[int]) -> set[int]:
        _, _, nodes = self._levels
        of_hosts = [node for host in hosts for node in nodes.members[host]]
        return {*hosts}.difference([nodes.parent[node] for node in self._attempt.may_take(kind, of_hosts)])

    def _full_nodes(self, kind: ExecutorKind, nodes: Sequence[int]) -> set[int]:
        return {*nodes}.difference(self._attempt.may_take(kind, nodes)) | self._apart.intersection(nodes)


def _not_first_of_host(ledger: ResourceLedger) -> frozenset[int]:
    first: dict[str, int] = {}
    return frozenset(node for node, host in enumerate(ledger.host) if first.setdefault(host, node) != node)


class _View:
    """Members of one group that are not closed for one kind of executor.

    Members with equal numbers of executors and equal remaining resources are ordered by number. Outdated entries are
    dropped when they come up.
    """

    def __init__(self, level: _Level, group: int, ranking: NodeRanking, full: Full, moment: int) -> None:
        self._level = level
        self._group = group
        self._ranking = ranking
        self._full = full
        self._moment = moment
        self._closed: set[int] = set()
        self._alike: dict[int, dict[Left, list[int]]] = {}
        self._counts: list[int] = []
        self._ranked: list[tuple[Key, int, Left]] | None = None
        self._enter(level.members[group])

    def close(self, member: int) -> None:
        """Exclude `member`."""
        self._closed.add(member)

    def first(self, moment: int, total: ResourceAmount) -> int | None:
        """Return the first member that is not closed, in the order of `moment`."""
        if moment != self._moment:
            self._catch_up()
            self._moment = moment
            self._ranked = None
        while self._counts:
            count = -self._counts[0]
            groups = self._alike[count]
            if self._ranked is None:
                keys = self._ranking.keys(groups, total)
                heads = map(itemgetter(0), groups.values())
                self._ranked = list(zip(keys, heads, groups, strict=True))
                heapify(self._ranked)
            first = self._first_of(count, groups, self._ranked)
            if first is not None:
                return first
            heappop(self._counts)
            del self._alike[count]
            self._ranked = None
        return None

    def _first_of(self, count: int, groups: dict[Left, list[int]], ranked: list[tuple[Key, int, Left]]) -> int | None:
        level = self._level
        while ranked:
            key, head, left = ranked[0]
            heap = groups[left]
            while heap and (heap[0] in self._closed or level.count[heap[0]] != count or level.left[heap[0]] != left):
                heappop(heap)
            if not heap:
                heappop(ranked)
                del groups[left]
            elif heap[0] != head:
                heapreplace(ranked, (key, heap[0], left))
            else:
                return head
        return None

    def _catch_up(self) -> None:
        self._closed.difference_update(_since(self._moment, self._level.reopened[self._group]))
        self._enter([m for m in _since(self._moment, self._level.changed[self._group]) if m not in self._closed])

    def _enter(self, members: Sequence[int]) -> None:
        level = self._level
        full = self._full(members)
        self._closed |= full
        for member in members:
            if member not in full:
                count, left = level.count[member], level.left[member]
                if count not in self._alike:
                    self._alike[count] = {}
                    heappush(self._counts, -count)
                heappush(self._alike[count].setdefault(left, []), member)


def _none(members: Sequence[int]) -> set[int]:
    return set()


def _since(moment: int, change_times: ChangeTimes) -> Iterator[int]:
    """Yield the members in `change_times` changed after `moment`."""
    return takewhile(lambda member: change_times[member] > moment, reversed(change_times))
