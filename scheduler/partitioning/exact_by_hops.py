"""Exact minimum of the cost of hops by dynamic programming over an elimination order, with branch and bound.

As `scheduler.partitioning.exact`, with a state for every node: those of a group are interchangeable, those of different
groups are not, and a full node counts as long as its executors have partners to come. Bound: on every level of hop
costs (`scheduler.partitioning.hops`) waiting pairs are cut unless the nodes of a set can keep them, with the
bound on what sets keep of `exact`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scheduler.partitioning.bounds import Density, best_of
from scheduler.partitioning.elimination import Content, NodeStates, Placing, elimination_order, waiting_pairs
from scheduler.partitioning.exact import load_prices
from scheduler.partitioning.hops import HopTable, Level
from scheduler.partitioning.instance import Instance

MOST_STATES = 300_000
"""Maximum number of states, to limit memory; beyond it the search ends without a proof."""

State = tuple[tuple[int, ...], ...]
"""Group -> the key numbers of its nodes that still matter, ascending."""

Layer = dict[State, tuple[int, State, int, int]]
"""State -> cost, the state before, and group and key of the node that the last executor went to."""


@dataclass(frozen=True)
class HopProof:
    """Result of the search.

    Attributes:
        node_of: executor -> node of a placement better than the known one, or None.
        least: lower bound on the cost of any placement; of placements below the known cost, if it is complete.
        complete: whether the search was exhaustive.
        limit_hit: whether the time limit ended the search.
    """

    node_of: list[int] | None
    least: int
    complete: bool
    limit_hit: bool


def search_by_hops(
    instance: Instance, table: HopTable, levels: Sequence[Level], known: int, over: Callable[[], bool]
) -> HopProof:
    """Search for the placement of the lowest cost, if it is below `known`.

    Args:
        instance: the problem.
        table: the costs of hops.
        levels: its levels among usable nodes.
        known: cost of the best known placement, or one more than any cost.
        over: returns True when the time is up.
    """
    return _Search(instance, table, levels, known, over).run()


class _Search:
    def __init__(
        self, instance: Instance, table: HopTable, levels: Sequence[Level], known: int, over: Callable[[], bool]
    ) -> None:
        self.instance = instance
        self.between = table.between
        self.levels = [_Sets(instance, level, len(table.between)) for level in levels]
        self.states = NodeStates(instance)
        self.waiting = [len(members) for members in instance.members]
        self._table = table
        self._known = known
        self._over = over

    def run(self) -> HopProof:
        instance = self.instance
        order = elimination_order(instance)
        nodes = self.states.empty()
        start = tuple(tuple(sorted(nodes[node] for node in mine if node in nodes)) for mine in self._table.groups)
        layer: Layer = {start: (0, (), 0, -1)}
        history: list[tuple[Layer, _Stage]] = []
        states = 0
        for at, kind in enumerate(order):
            stage = _Stage(self, kind, order[at:])
            for _ in instance.members[kind]:
                self.waiting[kind] -= 1
                stage.count()
                following = self._extended(layer, stage)
                states += len(following or ())
                if following is None or states > MOST_STATES:
                    return HopProof(None, 0, False, following is None)
                layer = following
                history.append((layer, stage))
            layer = self._closed(layer, stage)
            history[-1] = (layer, stage)
        if not layer:
            return HopProof(None, self._known, True, False)
        final = min(layer, key=lambda state: layer[state][0])
        return HopProof(self._traced(history, final, nodes), layer[final][0], True, False)

    def _extended(self, layer: Layer, stage: "_Stage") -> Layer | None:
        """Return the states with one more member of the stage's class on any node, or None when the time is up."""
        following: Layer = {}
        for looked, (state, (spent, _, _, _)) in enumerate(layer.items()):
            if not looked % 64 and self._over():
                return None
            rates = [sum(map(stage.rate, mine)) for mine in state]
            for group, mine in enumerate(state):
                costs = self.between[group]
                away = sum(cost * rate for cost, rate in zip(costs, rates, strict=True) if rate)
                before = -1
                for at, number in enumerate(mine):
                    if number == before:
                        continue
                    before = number
                    to = stage.step(number)
                    if to < 0:
                        continue
                    cost = spent + away - costs[group] * stage.rate(number)
                    if cost >= self._known:
                        continue
                    fresh = (*state[:group], tuple(sorted((*mine[:at], to, *mine[at + 1 :]))), *state[group + 1 :])
                    known = following.get(fresh)
                    if known is not None:
                        if cost >= known[0]:
                            continue
                    elif cost + stage.least(fresh) >= self._known:
                        continue
                    following[fresh] = (cost, state, group, number)
        return following

    def _closed(self, layer: Layer, stage: "_Stage") -> Layer:
        """Return the states reduced to what still matters once the class is placed."""
        merged: Layer = {}
        for state, value in layer.items():
            fresh = tuple(tuple(sorted(n for old in mine if (n := stage.closed(old)) >= 0)) for mine in state)
            known = merged.get(fresh)
            if known is None or value[0] < known[0]:
                merged[fresh] = value
        return merged

    def _traced(self, history: list[tuple[Layer, "_Stage"]], final: State, nodes: dict[int, int]) -> list[int]:
        """Return executor -> node, by following the states back to the start."""
        path: list[tuple[int, int]] = []
        state = final
        for layer, _ in reversed(history):
            _, state, group, number = layer[state]
            path.append((group, number))
        path.reverse()
        node_of = [-1] * self.instance.executors
        members = [iter(members) for members in self.instance.members]
        for at, ((group, number), (_, stage)) in enumerate(zip(path, history, strict=True)):
            node = next(n for n, key in nodes.items() if key == number and self._table.group[n] == group)
            node_of[next(members[stage.kind])] = node
            nodes[node] = stage.step(number)
            if at + 1 == len(history) or history[at + 1][1] is not stage:
                nodes = {node: stage.closed(key) for node, key in nodes.items() if key >= 0}
        return node_of


class _Sets:
    """A level with the bound on what its sets keep."""

    def __init__(self, instance: Instance, level: Level, groups: int) -> None:
        coarse = level.instance(instance)
        self.density = Density(coarse)
        self.prices = load_prices(coarse, self.density)
        self.step = level.step
        self.merged = level.merged
        self.alone = [group for group in range(groups) if all(group not in mine for mine in level.merged)]
        self.divisors = (1, *(q for _, q in self.prices))


class _Stage(Placing):
    """Placement of one class: effect of a member on a node, bounds, and reduction of states at the end."""

    def __init__(self, search: _Search, kind: int, waiting: list[int]) -> None:
        super().__init__(search.instance, search.states, kind, waiting)
        self._search = search
        self._left = {other: search.waiting[other] for other in waiting}
        self._steps: dict[int, int] = {}
        self._rates: dict[int, int] = {}
        self._closings: dict[int, int] = {}
        self._pairs = 0
        self._worths: list[dict[tuple[int, Content], tuple[int, ...]]] = [{} for _ in search.levels]
        self._whole: list[dict[tuple[tuple[int, ...], ...], tuple[int, ...]]] = [{} for _ in search.levels]
        self._owed: list[tuple[int, ...]] = []

    def count(self) -> None:
        """Record the number of waiting members, and forget the bounds for one more."""
        self._left[self.kind] = self._search.waiting[self.kind]
        self._pairs = waiting_pairs(self.instance, self._left)
        self._owed = []
        for level in self._search.levels:
            load = sum(level.density.steps[kind] * left for kind, left in self._left.items())
            self._owed.append((self._pairs, *(p * load for p, _ in level.prices)))
        for known in self._worths:
            known.clear()
        for known_sets in self._whole:
            known_sets.clear()

    def rate(self, number: int) -> int:
        """Return the rate between one member of the class and a node's executors."""
        known = self._rates.get(number)
        if known is None:
            known = self._rates[number] = self.rate_with(number)
        return known

    def step(self, number: int) -> int:
        """Return the key of a node after it receives a member; -1 if it has no room."""
        known = self._steps.get(number)
        if known is None:
            known = self._steps[number] = self.after(number)
        return known

    def closed(self, number: int) -> int:
        """Return the key without executors whose partners are all placed; -1 for a node that no longer matters."""
        known = self._closings.get(number)
        if known is None:
            free, room, content, hosted, works = self.states.keys[number]
            content = self.still_open(content)
            if self.lightest < 0 or free < self.lightest:
                free, room, hosted, works = -1, 0, (), ()
            key = (free, room, content, hosted, works)
            known = self.states.numbered(key) if content or free >= 0 else -1
            self._closings[number] = known
        return known

    def least(self, state: State) -> int:
        """Return a lower bound on the cost of all that is still to be placed."""
        total = 0
        for at, level in enumerate(self._search.levels):
            sums, cut = list(self._owed[at]), self._pairs
            for groups in level.merged:
                cut += self._add(sums, self._set_worth(at, tuple(state[group] for group in groups)))
            for group in level.alone:
                for number in state[group]:
                    free, _, content, *_ = self.states.keys[number]
                    cut += self._add(sums, self._worth(at, free, content))
            kept = min(value // divisor for value, divisor in zip(sums, level.divisors, strict=True))
            total += level.step * max(0, cut - kept)
        return total

    @staticmethod
    def _add(sums: list[int], worth: tuple[int, ...]) -> int:
        """Add a set's worth to the bounds. Return its rate to waiting executors."""
        for at in range(len(sums)):
            sums[at] += worth[at + 1]
        return worth[0]

    def _set_worth(self, at: int, parts: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
        """Return `_worth` of nodes that are one set."""
        known = self._whole[at].get(parts)
        if known is None:
            room, counts = -1, dict[int, int]()
            for mine in parts:
                for number in mine:
                    free, _, content, *_ = self.states.keys[number]
                    room = max(0, room) + free if free >= 0 else room
                    for kind, count in content:
                        counts[kind] = counts.get(kind, 0) + count
            known = self._whole[at][parts] = self._worth(at, room, tuple(sorted(counts.items())))
        return known

    def _worth(self, at: int, free: int, content: Content) -> tuple[int, ...]:
        """Return a set's rate to waiting executors, and its contribution to each bound."""
        known = self._worths[at].get((free, content))
        if known is not None:
            return known
        level = self._search.levels[at]
        gains: dict[int, int] = {}
        for kind, count in content:
            for other, rate in self.instance.near[kind].items():
                if other in self._left:
                    gains[other] = gains.get(other, 0) + rate * count
        pairs = sum(gain * self._left[kind] for kind, gain in gains.items())
        if free < 0:
            return pairs, *(0 for _ in level.divisors)
        density = level.density
        top = min(-(-free // density.grain), len(density.most) - 1)
        offers = [(gain, density.steps[kind], self._left[kind]) for kind, gain in gains.items()]
        curve = [outer + inner for outer, inner in zip(best_of(offers, top), density.most, strict=False)]
        worth = (pairs, pairs, *(max(q * most - p * s for s, most in enumerate(curve)) for p, q in level.prices))
        self._worths[at][free, content] = worth
        return worth
