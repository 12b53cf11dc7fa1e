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
from scheduler.partitioning.instance import Instance
from scheduler.partitioning.lagrange import PARTS, Prices

MOST_STATES = 1_000_000
"""Maximum number of states, to limit memory; beyond it the search ends without a proof."""

MOST_PRICES = 4
"""Number of prices of load tried on every state."""

PRICED_SETS = 1_000
"""Sets that are examined for a node's part in the bound by prices of classes."""

Content = tuple[tuple[int, int], ...]
"""(class, members) of a node's executors with unplaced partners."""

Key = tuple[int, int, Content, tuple[int, ...]]
"""State of a node: free load, free memory, content, topologies hosted (where slots are scarce)."""


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


def elimination_order(instance: Instance) -> list[int]:
    """Return an order of the classes in which few executors at a time have partners on both sides.

    Classes without partners come last.
    """
    loners = [kind for kind, near in enumerate(instance.near) if not near]
    best: list[int] = []
    best_cost: tuple[int, int] | None = None
    starts = [kind for kind, near in enumerate(instance.near) if near]
    starts.sort(key=lambda kind: (len(instance.near[kind]), kind))
    for start in starts[:16]:
        order, cost = _order_from(instance, start, len(starts))
        if best_cost is None or cost < best_cost:
            best, best_cost = order, cost
    return best + loners


def _order_from(instance: Instance, start: int, count: int) -> tuple[list[int], tuple[int, int]]:
    sizes = [len(members) for members in instance.members]
    waiting = [len(near) for near in instance.near]  # class -> partners without a place in the order
    rates = [0] * len(sizes)  # class -> rate to those that have one, and partners without
    order: list[int] = []
    placed: set[int] = set()
    live: set[int] = set()
    widest = total = 0

    def place(kind: int) -> None:
        order.append(kind)
        placed.add(kind)
        live.add(kind)
        for other, rate in instance.near[kind].items():
            waiting[other] -= 1
            rates[other] += rate

    place(start)
    while len(order) < count:
        for kind in [kind for kind in live if not waiting[kind]]:
            live.remove(kind)
            for other, rate in instance.near[kind].items():
                rates[other] -= rate
        width = sum(sizes[kind] for kind in live)
        widest, total = max(widest, width), total + width
        offers = {other for kind in live for other in instance.near[kind] if other not in placed}
        if not offers:
            offers = {kind for kind, near in enumerate(instance.near) if near and kind not in placed}

        def growth(kind: int) -> tuple[int, int, int]:
            """Return the increase in executors with partners on both sides, and minus the rate to those of now."""
            near = instance.near[kind]
            closing = sum(sizes[other] for other in near if waiting[other] == 1 and other in live)
            return sizes[kind] * (waiting[kind] > 0) - closing, -rates[kind], kind

        place(min(offers, key=growth))
    return order, (widest, total)


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
        self._keys: list[Key] = []
        self._number: dict[Key, int] = {}
        self._waiting = [len(members) for members in instance.members]
        self._top = 0  # upper bound over all states of the latest layer

    def run(self, most_states: int) -> Proof:
        instance = self._instance
        nodes: dict[int, int] = {}
        for node, slots in enumerate(instance.slots):
            if slots:
                hosted = (slots,) if instance.scarce else ()
                nodes[node] = self._numbered((instance.capacity[node], instance.room[node], (), hosted))
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

    def _numbered(self, key: Key) -> int:
        number = self._number.get(key)
        if number is None:
            number = self._number[key] = len(self._keys)
            self._keys.append(key)
        return number

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


class _Stage:
    """Placement of one class: effect of a member on a node, bounds, and reduction of states at the end."""

    def __init__(self, search: _Search, kind: int, waiting: list[int]) -> None:
        self.kind = kind
        self._search = search
        self._instance = search._instance
        self._coming = set(waiting)
        self._later = self._coming - {kind}
        self._lightest = min((self._instance.load[other] for other in self._later), default=-1)
        self._left: dict[int, int] = {other: search._waiting[other] for other in waiting}
        self._steps: dict[int, tuple[int, int]] = {}
        self._closings: dict[int, int] = {}
        self._worths: dict[int, tuple[int, ...]] = {}
        self._priced: dict[int, int] = {}
        self._owed = 0
        self._constants: tuple[int, ...] = ()
        self._divisors = (1, *(q for _, q in search._prices))
        near = self._instance.near
        twice = 0
        for one, left in self._left.items():
            for other, rate in near[one].items():
                if other == one:
                    twice += rate * left * (left - 1)
                elif other in self._left:
                    twice += rate * left * self._left[other]
        self._pairs = twice // 2

    def count(self) -> None:
        """Record the number of waiting members."""
        steps = self._search._density.steps
        load = sum(steps[kind] * self._search._waiting[kind] for kind in self._coming)
        self._constants = (self._pairs, *(p * load for p, _ in self._search._prices))
        given = self._search._class_prices
        if given is not None:
            self._owed = sum(given.prices[kind] * self._search._waiting[kind] for kind in self._coming)

    def step(self, number: int) -> tuple[int, int]:
        """Return the key of a node after it receives a member, and the rate this keeps; -1 if it has no room."""
        known = self._steps.get(number)
        if known is None:
            known = self._steps[number] = self._step(*self._search._keys[number])
        return known

    def _step(self, free: int, room: int, content: Content, hosted: tuple[int, ...]) -> tuple[int, int]:
        instance, kind = self._instance, self.kind
        free -= instance.load[kind]
        room -= instance.memory[kind]
        if free < 0 or room < 0:
            return -1, 0
        if hosted and instance.topology[kind] not in hosted[1:]:
            if len(hosted) > hosted[0]:
                return -1, 0
            hosted = (hosted[0], *sorted((*hosted[1:], instance.topology[kind])))
        near = instance.near[kind]
        gain = sum(near.get(other, 0) * count for other, count in content)
        if any(other in self._coming for other in near):
            counts = dict(content)
            counts[kind] = counts.get(kind, 0) + 1
            content = tuple(sorted(counts.items()))
        return self._search._numbered((free, room, content, hosted)), gain

    def closed(self, number: int) -> int:
        """Return the key without executors whose partners are all placed; -1 for a node without room."""
        known = self._closings.get(number)
        if known is None:
            free, room, content, hosted = self._search._keys[number]
            known = -1
            if self._lightest >= 0 and free >= self._lightest:
                near = self._instance.near
                content = tuple(
                    (kind, count) for kind, count in content if any(other in self._later for other in near[kind])
                )
                known = self._search._numbered((free, room, content, hosted))
            self._closings[number] = known
        return known

    def most(self, state: State) -> int:
        """Return an upper bound on the rate kept beyond what the state keeps."""
        worths = self._worths
        sums = list(self._constants)
        for number in state:
            worth = worths.get(number)
            if worth is None:
                worth = worths[number] = self._worth(*self._search._keys[number][::2][:2])
            for at, value in enumerate(worth):
                sums[at] += value
        return min(total // divisor for total, divisor in zip(sums, self._divisors, strict=True))

    def priced(self, state: State, prices: Prices) -> int:
        """Return the same bound by prices of classes."""
        known, total = self._priced, self._owed
        for number in state:
            worth = known.get(number)
            if worth is None:
                free, _, content, _ = self._search._keys[number]
                worth = known[number] = prices.worth(free, self._gains(content), self._left, PRICED_SETS)
            total += worth
        return total // PARTS

    def _gains(self, content: Content) -> dict[int, int]:
        """Return waiting class -> rate of one member to a node's executors."""
        gains: dict[int, int] = {}
        for kind, count in content:
            for other, rate in self._instance.near[kind].items():
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
