"""Exact minimum of W by dynamic programming over an elimination order, with branch and bound.

Executors are placed one after the other. The remaining problem depends only on each node's free load and on its
executors with unplaced partners; nodes with equal values of both are interchangeable. So only the best partial
placement per state is kept (dynamic programming over an elimination order), and only states that can still beat the
best known placement (branch and bound). Two upper bounds on the rate that a state can still keep are used: the rate of
the unplaced pairs, and a Lagrangian bound with a price p of load: a node keeps at most max over s of (rate that load s
could keep there - p s), and all unplaced load together pays p back. Where these leave too many states, prices of
classes (`scheduler.partitioning.lagrange`) give a third bound, which takes longer and is much lower.
"""

from collections.abc import Callable
from fractions import Fraction

from scheduler.partitioning.bounds import Density, Proof, best_of
from scheduler.partitioning.elimination import Content, NodeStates, Placing, elimination_order, waiting_pairs
from scheduler.partitioning.instance import Instance
from scheduler.partitioning.lagrange import PARTS, Prices

MOST_STATES = 1_000_000
"""Maximum number of states, to limit memory; beyond it the search ends without a proof."""

MOST_PRICES = 4
"""Number of prices of load tried on every state."""

PRICED_SETS = 1_000
"""Sets that are examined for a node's part in the bound by prices of classes."""


def search(
    instance: Instance,
    density: Density,
    kept: int,
    over: Callable[[], bool],
    prices: Prices | None = None,
    states: int = MOST_STATES,
) -> Proof:
    """Search for the placement that keeps the most rate, and more than `kept`.

    Args:
        instance: the problem.
        density: its bounds.
        kept: rate that the best known placement keeps; -1 when none is known.
        over: returns True when the time is up.
        prices: prices of the classes, for a lower bound per state.
        states: maximum number of states.
    """
    return _Search(instance, density, kept, over, prices).run(states)


State = tuple[int, ...]
"""The key numbers of all nodes with remaining room, ascending."""

Layer = dict[State, tuple[int, State, int]]
"""State -> rate kept, the state before, and the key of the node that the last executor went to."""


class _Search:
    def __init__(
        self, instance: Instance, density: Density, kept: int, over: Callable[[], bool], class_prices: Prices | None
    ) -> None:
        self._instance = instance
        self._density = density
        self._kept = kept
        self._over = over
        self._order = elimination_order(instance)
        self._prices = load_prices(instance, density)
        self._class_prices = class_prices
        self._states = NodeStates(instance)
        self._waiting = [len(members) for members in instance.members]
        self._top = 0  # upper bound over all states of the latest layer

    def run(self, most_states: int) -> Proof:
        instance = self._instance
        nodes = self._states.empty()
        layer: Layer = {tuple(sorted(nodes.values())): (0, (), -1)}
        history: list[tuple[Layer, _Stage]] = []
        states, top = 0, instance.total_rate
        for at, kind in enumerate(self._order):
            stage = _Stage(self, kind, self._order[at:])
            for _ in instance.members[kind]:
                self._waiting[kind] -= 1
                following = self._extended(layer, stage)
                if following is None or states + len(following) > most_states:
                    return Proof(None, max(top, self._kept), False, following is None)
                layer, top = following, self._top
                states += len(layer)
                history.append((layer, stage))
            layer = self._closed(layer, stage)
            history[-1] = (layer, stage)
        if not layer:
            return Proof(None, self._kept, True, False)
        final = max(layer, key=lambda state: layer[state][0])
        if layer[final][0] <= self._kept:
            return Proof(None, self._kept, True, False)
        return Proof(self._traced(history, final, nodes), layer[final][0], True, False)

    def _extended(self, layer: Layer, stage: "_Stage") -> Layer | None:
        """Return the states with one more member of the stage's class on any node, or None when the time is up."""
        following: Layer = {}
        self._top = 0
        stage.count()
        for looked, (state, (kept, _, _)) in enumerate(layer.items()):
            if not looked % 64 and self._over():
                return None
            before = -1
            for at, number in enumerate(state):
                if number == before:
                    continue
                before = number
                to, gain = stage.step(number)
                if to < 0:
                    continue
                fresh = tuple(sorted((*state[:at], to, *state[at + 1 :])))
                worth = kept + gain
                known = following.get(fresh)
                if known is None or worth > known[0]:
                    promise = worth + stage.most(fresh)
                    if promise > self._kept and self._class_prices is not None:
                        promise = min(promise, worth + stage.priced(fresh, self._class_prices))
                    if promise <= self._kept:
                        continue
                    self._top = max(self._top, promise)
                else:
                    continue
                following[fresh] = (worth, state, number)
        return following

    def _closed(self, layer: Layer, stage: "_Stage") -> Layer:
        """Return the states reduced to what still matters once the class is placed."""
        merged: Layer = {}
        for state, value in layer.items():
            fresh = tuple(sorted(number for old in state if (number := stage.closed(old)) >= 0))
            known = merged.get(fresh)
            if known is None or value[0] > known[0]:
                merged[fresh] = value
        return merged

    def _traced(self, history: list[tuple[Layer, "_Stage"]], final: State, nodes: dict[int, int]) -> list[int]:
        """Return executor -> node, by following the states back to the start."""
        path: list[int] = []
        state = final
        for layer, _ in reversed(history):
            _, state, number = layer[state]
            path.append(number)
        path.reverse()
        node_of = [-1] * self._instance.executors
        members = [iter(members) for members in self._instance.members]
        for at, (number, (_, stage)) in enumerate(zip(path, history, strict=True)):
            node = next(node for node, key in nodes.items() if key == number)
            node_of[next(members[stage.kind])] = node
            nodes[node] = stage.step(number)[0]
            if at + 1 == len(history) or history[at + 1][1] is not stage:
                nodes = {node: stage.closed(key) for node, key in nodes.items() if key >= 0}
        return node_of


class _Stage(Placing):
    """Placement of one class: effect of a member on a node, bounds, and reduction of states at the end."""

    def __init__(self, search: _Search, kind: int, waiting: list[int]) -> None:
        super().__init__(search._instance, search._states, kind, waiting)
        self._search = search
        self._left: dict[int, int] = {other: search._waiting[other] for other in waiting}
        self._steps: dict[int, tuple[int, int]] = {}
        self._closings: dict[int, int] = {}
        self._worths: dict[int, tuple[int, ...]] = {}
        self._priced: dict[int, int] = {}
        self._owed = 0
        self._constants: tuple[int, ...] = ()
        self._divisors = (1, *(q for _, q in search._prices))
        self._pairs = waiting_pairs(search._instance, self._left)

    def count(self) -> None:
        """Record the number of waiting members."""
        steps = self._search._density.steps
        load = sum(steps[kind] * self._search._waiting[kind] for kind in self.coming)
        self._constants = (self._pairs, *(p * load for p, _ in self._search._prices))
        given = self._search._class_prices
        if given is not None:
            self._owed = sum(given.prices[kind] * self._search._waiting[kind] for kind in self.coming)

    def step(self, number: int) -> tuple[int, int]:
        """Return the key of a node after it receives a member, and the rate this keeps; -1 if it has no room."""
        known = self._steps.get(number)
        if known is None:
            to = self.after(number)
            known = self._steps[number] = to, self.rate_with(number) if to >= 0 else 0
        return known

    def closed(self, number: int) -> int:
        """Return the key without executors whose partners are all placed; -1 for a node without room."""
        known = self._closings.get(number)
        if known is None:
            free, room, content, hosted, works = self.states.keys[number]
            known = -1
            if self.lightest >= 0 and free >= self.lightest:
                known = self.states.numbered((free, room, self.still_open(content), hosted, works))
            self._closings[number] = known
        return known

    def most(self, state: State) -> int:
        """Return an upper bound on the rate kept beyond what the state keeps."""
        worths = self._worths
        sums = list(self._constants)
        for number in state:
            worth = worths.get(number)
            if worth is None:
                worth = worths[number] = self._worth(*self.states.keys[number][:3:2])
            for at, value in enumerate(worth):
                sums[at] += value
        return min(total // divisor for total, divisor in zip(sums, self._divisors, strict=True))

    def priced(self, state: State, prices: Prices) -> int:
        """Return the same bound by prices of classes."""
        known, total = self._priced, self._owed
        for number in state:
            worth = known.get(number)
            if worth is None:
                free, _, content, *_ = self.states.keys[number]
                worth = known[number] = prices.worth(free, self._gains(content), self._left, PRICED_SETS)
            total += worth
        return total // PARTS

    def _gains(self, content: Content) -> dict[int, int]:
        """Return waiting class -> rate of one member to a node's executors."""
        gains: dict[int, int] = {}
        for kind, count in content:
            for other, rate in self.instance.near[kind].items():
                if other in self._left:
                    gains[other] = gains.get(other, 0) + rate * count
        return gains

    def _worth(self, free: int, content: Content) -> tuple[int, ...]:
        """Return a node's contribution to each bound."""
        density = self._search._density
        gains = self._gains(content)
        top = min(-(-free // density.grain), len(density.most) - 1)
        offers = [(gain, density.steps[kind], self._left[kind]) for kind, gain in gains.items()]
        curve = [outer + inner for outer, inner in zip(best_of(offers, top), density.most, strict=False)]
        pairs = sum(gain * self._left[kind] for kind, gain in gains.items())
        return pairs, *(max(q * most - p * s for s, most in enumerate(curve)) for p, q in self._search._prices)


def load_prices(instance: Instance, density: Density) -> list[tuple[int, int]]:
    """Return the prices of load, as (p, q) for p/q, with the lowest bounds at the start."""
    most = density.most
    need = sum(size * len(members) for size, members in zip(density.steps, instance.members, strict=True))
    points = range(len(most)) if len(most) <= 24 else range(0, len(most), len(most) // 16)
    slopes = {Fraction(most[b] - most[a], b - a) for a in points for b in points if a < b} | {Fraction(0)}

    def bound(price: Fraction) -> Fraction:
        best = {
            capacity: max(value - price * s for s, value in enumerate(most[: capacity + 1]))
            for capacity in set(density.capacity)
        }
        return price * need + sum(best[capacity] for capacity in density.capacity)

    chosen = sorted(slopes, key=lambda price: (bound(price), price))[:MOST_PRICES]
    return [(price.numerator, price.denominator) for price in chosen]
