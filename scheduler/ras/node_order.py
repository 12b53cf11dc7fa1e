"""In which order nodes are tried: racks, in them hosts, in them nodes, each level by what is left there.

After Apache Storm, `storm-server/.../scheduling/sorter/NodeSorterHostProximity.java` (2.3 and later) and, without the
level of hosts, the strategy class of 1.1. Shares of a group's totals are compared crosswise as whole numbers.

The order is that of the moment when `sort` was called, whatever has been placed since. It is never
written down: what is asked for is the first node that may still take a kind of executor, and nodes are closed for
that kind one by one. Only a node's changes since the last question are looked at.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from operator import itemgetter
from typing import NamedTuple

from scheduler.ras.attempt import Attempt
from scheduler.ras.ledger import Amount, Ledger

Key = tuple[int, int]
Left = tuple[int, int]
"""CPU and memory."""


@dataclass(frozen=True)
class Ranking:
    """How the members of a group are compared once they hold equally many executors of the topology.

    Attributes:
        smaller_share_first: the smaller one of the shares of CPU and memory counts before their mean
            (`DEFAULT_RAS`), not after it (`COMMON`).
        missing_is_zero: the smaller share is 0 where a total is 0 (1.1), instead of the other one.
        hosts: hosts are a level between racks and nodes.
    """

    smaller_share_first: bool = False
    missing_is_zero: bool = False
    hosts: bool = True

    def key(self, left: Left, total: Amount) -> Key:
        """What a member with `left` is sorted by, ascending, in a group with `total` left."""
        return self.keys([left], total)[0]

    def keys(self, members: Iterable[Left], total: Amount) -> list[Key]:
        """The same for many members of one group."""
        by_cpu, by_memory = total.memory or 1, total.cpu or 1
        shares = [(cpu * by_cpu, memory * by_memory) for cpu, memory in members]
        if not (total.cpu and total.memory):
            if self.missing_is_zero:
                return [(-cpu - memory, 0) for cpu, memory in shares]
            return [(-cpu - memory, -cpu - memory) for cpu, memory in shares]
        if self.smaller_share_first:
            return [(-(min(memory, cpu)), -cpu - memory) for cpu, memory in shares]
        return [(-cpu - memory, -(min(memory, cpu))) for cpu, memory in shares]


class _Level:
    """Racks, hosts or nodes by number, as they were when the order was made."""

    def __init__(self, parent: Sequence[int], parents: int) -> None:
        self.parent = parent
        self.count = [0] * len(parent)
        self.left: list[Left] = [(0, 0)] * len(parent)
        self.members: list[list[int]] = [[] for _ in range(parents)]
        for member, group in enumerate(parent):
            self.members[group].append(member)
        # Group -> what changed in it, in order: the member and whether something was taken back there.
        self.changes: list[list[tuple[int, bool]]] = [[] for _ in range(parents)]

    def add(self, member: int, count: int, cpu: int, memory: int) -> None:
        self.count[member] += count
        left = self.left[member]
        self.left[member] = (left[0] + cpu, left[1] + memory)


class _Change(NamedTuple):
    node: int
    executors: int
    cpu: int
    memory: int
    reopened: bool


class NodeOrder:
    """The nodes of one attempt, sorted anew whenever `sort` is called."""

    def __init__(
        self,
        attempt: Attempt,
        ranking: Ranking,
        favored: Sequence[int] = (),
        unfavored: Sequence[int] = (),
    ) -> None:
        """Sort for the first time.

        Args:
            attempt: whose nodes.
            ranking: how they are compared.
            favored: these come before all others, in this order.
            unfavored: these come after all others, in this order.
        """
        self._attempt = attempt
        self._ranking = ranking
        self._favored = list(dict.fromkeys(favored))
        self._unfavored = [node for node in dict.fromkeys(unfavored) if node not in set(favored)]
        self._apart = frozenset([*self._favored, *self._unfavored])
        self._make_levels(attempt.ledger)
        for node, count in enumerate(attempt.count):
            self._add(node, count, attempt.cpu[node], attempt.memory[node])
        self._log: list[_Change] = []
        self._applied = self._sorted_at = 0
        self._views: dict[tuple[int, int, int], _View] = {}
        self._closed_apart: set[tuple[int, int]] = set()
        self._answers: dict[int, tuple[int, int | None]] = {}  # kind -> when it was sorted, what was first then

    def _make_levels(self, ledger: Ledger) -> None:
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
        self._total = Amount(0, 0)

    def _add(self, node: int, count: int, cpu: int, memory: int) -> None:
        racks, hosts, nodes = self._levels
        host = nodes.parent[node]
        nodes.add(node, count, cpu, memory)
        hosts.add(host, count, cpu, memory)
        racks.add(hosts.parent[host], count, cpu, memory)
        self._total = Amount(self._total.cpu + cpu, self._total.memory + memory)

    def changed(self, node: int, taken_back: bool = False) -> None:
        """Something was placed on `node`, or taken back from it."""
        attempt = self._attempt
        self._log.append(_Change(node, attempt.count[node], attempt.cpu[node], attempt.memory[node], taken_back))

    def sort(self) -> None:
        """From now on the order is that of this moment."""
        self._sorted_at = len(self._log)

    def first(self, kind: int) -> int | None:
        """The first node that has not been closed for `kind`."""
        sorted_at, node = self._answers.get(kind, (-1, None))
        if sorted_at != self._sorted_at:
            self._apply()
            node = self._first(kind)
            self._answers[kind] = (self._sorted_at, node)
        return node

    def _first(self, kind: int) -> int | None:
        for node in self._favored:
            if (kind, node) not in self._closed_apart:
                return node
        inner = self._descend(kind)
        if inner is not None:
            return inner
        return next((node for node in self._unfavored if (kind, node) not in self._closed_apart), None)

    def close(self, kind: int, node: int) -> None:
        """`node` takes no executor of `kind`, until something is taken back from it."""
        self._answers.pop(kind, None)
        if node in self._apart:
            self._closed_apart.add((kind, node))
            return
        _, hosts, nodes = self._levels
        host = nodes.parent[node]
        if len(nodes.members[host]) > 1:
            self._view(kind, 2, host).close(node)
        else:
            self._view(kind, 1, hosts.parent[host]).close(host)

    def ranked(self, nodes: Iterable[int]) -> list[int]:
        """`nodes` in the order."""
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
            *sorted(chosen - self._apart, key=path),
            *(node for node in self._unfavored if node in chosen),
        ]

    def racks(self) -> list[str]:
        """Racks in the order."""
        self._apply()
        level = self._levels[0]
        ranked = sorted(
            range(len(self._racks)),
            key=lambda rack: (-level.count[rack], self._ranking.key(level.left[rack], self._total), rack),
        )
        return [self._racks[rack] for rack in ranked]

    def _total_of(self, level: int, group: int) -> Amount:
        return self._total if level == 0 else Amount(*self._levels[level - 1].left[group])

    def _apply(self) -> None:
        """Bring counts and sums to the moment of the last `sort`."""
        if self._applied == self._sorted_at:
            return
        news: dict[int, _Change] = {}
        for change in self._log[self._applied : self._sorted_at]:
            earlier = news.get(change.node)
            news[change.node] = change._replace(reopened=True) if earlier is not None and earlier.reopened else change
        self._applied = self._sorted_at
        racks, hosts, nodes = self._levels
        for node, executors, cpu, memory, reopened in news.values():
            before = nodes.left[node]
            self._add(node, executors - nodes.count[node], cpu - before[0], memory - before[1])
            host = nodes.parent[node]
            rack = hosts.parent[host]
            nodes.changes[host].append((node, reopened))
            hosts.changes[rack].append((host, reopened))
            racks.changes[0].append((rack, reopened))
            if reopened and node in self._apart:
                self._closed_apart -= {(kind, node) for kind, _ in self._closed_apart}

    def _descend(self, kind: int) -> int | None:
        top = self._view(kind, 0, 0)
        while (rack := top.first(self._applied, self._total)) is not None:
            in_rack = self._view(kind, 1, rack)
            while (host := in_rack.first(self._applied, self._total_of(1, rack))) is not None:
                members = self._levels[2].members[host]
                if len(members) == 1:
                    if members[0] not in self._apart:
                        return members[0]
                else:
                    in_host = self._view(kind, 2, host)
                    node = in_host.first(self._applied, self._total_of(2, host))
                    if node is not None:
                        return node
                in_rack.close(host)
            top.close(rack)
        return None

    def _view(self, kind: int, level: int, group: int) -> "_View":
        key = (kind, level, group)
        if key not in self._views:
            closed = self._apart if level == 2 else ()
            self._views[key] = _View(self._levels[level], group, self._ranking, closed)
        return self._views[key]


class _View:
    """The members of one group that are not closed for one kind of executor.

    Members with equally many executors, and equally much left, are alike: they go by number. Entries that no
    longer hold are dropped when they come up.
    """

    def __init__(self, level: _Level, group: int, ranking: Ranking, closed: Iterable[int]) -> None:
        self._level = level
        self._group = group
        self._ranking = ranking
        self._closed = set(closed)
        self._never = frozenset(self._closed)
        self._seen = len(level.changes[group])
        self._alike: dict[int, dict[Left, list[int]]] = {}
        self._counts: list[int] = []
        for member in level.members[group]:
            self._enter(member)
        self._ranked: list[tuple[Key, int, Left]] | None = None
        self._at = -1

    def close(self, member: int) -> None:
        """Leave `member` out."""
        self._closed.add(member)

    def first(self, moment: int, total: Amount) -> int | None:
        """The first member that is not closed, in the order of `moment`."""
        if moment != self._at:
            self._catch_up()
            self._at = moment
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
        changes = self._level.changes[self._group]
        for member, reopened in changes[self._seen :]:
            if reopened and member not in self._never:
                self._closed.discard(member)
            if member not in self._closed:
                self._enter(member)
        self._seen = len(changes)

    def _enter(self, member: int) -> None:
        if member in self._closed:
            return
        count, left = self._level.count[member], self._level.left[member]
        if count not in self._alike:
            self._alike[count] = {}
            heappush(self._counts, -count)
        heappush(self._alike[count].setdefault(left, []), member)
