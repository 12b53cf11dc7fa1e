"""Placement of one topology by one strategy, all or nothing.

Strategy round-robin of Storm 2.5 and later is here: each executor goes to the next node with room, without
backtracking, on nodes without workers of other topologies
(`storm-server/.../scheduling/RoundRobinResourceAwareStrategy.java`). The others are in `search`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from scheduler.ras.attempt import Ackers, Attempt, ExecutorKind, Rules, never_fits
from scheduler.ras.executor_order import ackers_last, by_connections, by_proximity, by_severity
from scheduler.ras.ledger import ResourceAmount, ResourceLedger
from scheduler.ras.node_order import NodeOrder, NodeRanking
from scheduler.ras.search import Limits, Search, SortAgain
from workloads.topology import Executor, Topology


class RoundRobin:
    """Cursor that moves over nodes, once for every executor.

    Attributes:
        states: executors placed.
    """

    def __init__(self, attempt: Attempt, nodes: Sequence[int], order: Sequence[Executor], when_different: bool) -> None:
        """Start before the first node.

        Args:
            attempt: the topology.
            nodes: usable nodes, in order.
            order: the executors.
            when_different: return to the first node when the component changes, not when it stays the same.
        """
        self._attempt = attempt
        self._nodes = nodes
        self._order = order
        self._when_different = when_different
        self._ackers = Ackers(attempt, order)
        # Kind -> position in `nodes` -> a later position before which no node is open.
        self._open: dict[int, list[int]] = {}
        self.states = 0

    def run(self) -> bool:
        """Place the executors. Return whether all found a place."""
        cursor = 0
        for position, executor in enumerate(self._order):
            if self._ackers.is_bound(position):
                continue
            kind = self._attempt.kinds[executor.component]
            same = position > 0 and executor.component == self._order[position - 1].component
            if cursor == len(self._nodes) or same is not self._when_different:
                cursor = 0
            at, place = self._next_open(cursor, kind)
            if place is None:
                return False
            node = self._nodes[at]
            if self._attempt.put(node, place, kind, executor):
                self._ackers.bind(node, place, kind, executor.component)
            self.states += 1
            cursor = at + 1
        return True

    def _next_open(self, start: int, kind: ExecutorKind) -> tuple[int, int | None]:
        """Return the first position from `start` on whose node has room for `kind`, and the place, or None."""
        if kind.number not in self._open:
            self._open[kind.number] = list(range(len(self._nodes) + 1))
        leads = self._open[kind.number]
        at, place = start, None
        passed: list[int] = []
        while at < len(self._nodes):
            if leads[at] != at:
                passed.append(at)
                at = leads[at]
                continue
            place = self._attempt.first_fit(self._nodes[at], kind)
            if place is not None:
                break
            leads[at] = at + 1
        for position in passed:
            leads[position] = at
        return at, place


StrategyName = Literal["default", "default-old", "generic", "round-robin", "constraint"]
Engine = Literal["2.3", "1.1"]

STORMS_NAME: Mapping[StrategyName, str] = {
    "default": "DefaultResourceAwareStrategy",
    "default-old": "DefaultResourceAwareStrategyOld",
    "generic": "GenericResourceAwareStrategy",
    "round-robin": "RoundRobinResourceAwareStrategy",
    "constraint": "ConstraintSolverStrategy",
}

STATES = 10_000
"""Storm's limit on places tried per topology."""


NOTHING = ResourceAmount(0, 0)


@dataclass(frozen=True)
class AttemptOutcome:
    """Result of an attempt.

    Attributes:
        result: `placed`, `short` (evicting others may help), `never` (an executor is too large) or `impossible`.
        message: reason, or the strategy's own text.
        limit_hit: whether the time limit ended the search.
        unplaced: demand of the executors that the attempt had not placed when it gave up.
    """

    result: Literal["placed", "short", "never", "impossible"]
    message: str
    limit_hit: bool = False
    unplaced: ResourceAmount = NOTHING


@dataclass(frozen=True)
class Recipe:
    """Strategy and options; the fields are parameters of the scheduler with the same names."""

    strategy: StrategyName
    engine: Engine
    order_by_proximity: bool
    one_executor_per_worker: bool
    one_component_per_worker: bool
    intended_sorting: bool
    search_states: int | None
    time_limit_s: float
    favored: Sequence[str]
    unfavored: Sequence[str]

    @property
    def words(self) -> str:
        """Name of the strategy's class in Storm."""
        return STORMS_NAME[self.strategy]

    def place(
        self,
        ledger: ResourceLedger,
        topology: Topology,
        waiting: Sequence[Executor],
        ranked: Sequence[int] | None = None,
    ) -> AttemptOutcome:
        """Place the waiting executors of `topology`; `ledger` changes only if all of them are placed.

        Args:
            ledger: state of the round.
            topology: the topology.
            waiting: its executors without a slot.
            ranked: nodes in the order in which engine 1.1 and round-robin try them; None = the order of now.
        """
        refusal = self._refusal(ledger, topology, waiting)
        if refusal is not None:
            return refusal
        attempt = Attempt(ledger, topology, self._rules(ledger, topology))
        order = self._executors(topology, waiting)
        nodes = self.nodes(attempt)
        everywhere = nodes.ranked(range(len(ledger.ids))) if ranked is None else ranked
        limit_hit, account = False, ""
        if self.engine == "1.1":
            placed = place_in_order(attempt, [node for node in everywhere if attempt.has_places(node)], order)
        elif self.strategy == "round-robin":
            mine = [node for node in everywhere if _only(ledger, node, topology.id)][: topology.isolated_nodes]
            placed = RoundRobin(attempt, mine, order, self.intended_sorting).run()
        else:
            hopeless = shortage(attempt, order)
            if hopeless is not None:
                everything = ledger.demanded(topology.id, waiting)
                return AttemptOutcome("short", f"Cannot schedule by {self.words}: {hopeless}", unplaced=everything)
            limits = Limits(self._states(topology), self.time_limit_s, self._sort_again())
            search = Search(attempt, nodes, order, limits)
            placed, limit_hit = search.run(), search.limit_hit
            account = f" ({search.states} states traversed, backtracked {search.backtracks} times)"
        if not placed:
            left = ledger.demanded(topology.id, attempt.unplaced(waiting))
            return AttemptOutcome("short", f"Cannot schedule by {self.words}{account}", limit_hit, left)
        attempt.commit()
        return AttemptOutcome("placed", f"Fully Scheduled by {self.words}{account}", limit_hit)

    def ranked_nodes(self, ledger: ResourceLedger, topology: Topology) -> list[int]:
        """Return nodes in the order in which `topology` would try them now."""
        return self.nodes(Attempt(ledger, topology, self._rules(ledger, topology))).ranked(range(len(ledger.ids)))

    def nodes(self, attempt: Attempt) -> NodeOrder:
        """Return the order of nodes for an attempt."""
        old = self.engine == "1.1"
        ranking = NodeRanking(
            smaller_share_first=old or self.strategy == "default-old", equal_at_zero=old, hosts=not old
        )
        number = attempt.ledger.number
        return NodeOrder(
            attempt,
            ranking,
            [number[node] for node in self.favored if node in number],
            [number[node] for node in self.unfavored if node in number],
        )

    def _sort_again(self) -> SortAgain:
        if self.strategy == "default-old":
            return "never"
        return "other" if self.intended_sorting else "same"

    def first_racks(self, ledger: ResourceLedger, topology: Topology) -> list[str]:
        """Return racks in the order in which `topology` would try them now."""
        return self.nodes(Attempt(ledger, topology, self._rules(ledger, topology))).racks()

    def never_fits(self, ledger: ResourceLedger, topology: Topology, waiting: Sequence[Executor]) -> str:
        """Return why one of the waiting executors fits into no worker or on no node, however empty; else nothing."""
        return never_fits(ledger, topology, self._rules(ledger, topology), waiting) if ledger.ids else ""

    def _refusal(
        self, ledger: ResourceLedger, topology: Topology, waiting: Sequence[Executor]
    ) -> AttemptOutcome | None:
        if not ledger.ids:
            return AttemptOutcome("short", "No available nodes")
        if not any(component.kind == "spout" for component in topology.components):
            return AttemptOutcome("impossible", "Cannot find a spout")
        if self.engine == "1.1":
            return None
        if len(waiting) >= self._states(topology):
            return AttemptOutcome(
                "impossible", f"{len(waiting)} executors cannot be placed within {self._states(topology)} states"
            )
        constraints = topology.constraints
        if self.strategy == "constraint" and constraints is not None:
            for name, most in sorted(constraints.max_per_node.items()):
                wanted = topology.component[name].parallelism
                if wanted > most * len(ledger.ids):
                    return AttemptOutcome(
                        "impossible",
                        f"{wanted} executors of {name!r} cannot lie on {len(ledger.ids)} nodes, at most {most} on each",
                    )
        return None

    def _states(self, topology: Topology) -> int:
        if self.search_states is not None:
            return self.search_states
        return STATES if len(topology.executors) < STATES else len(topology.executors) + STATES

    def _rules(self, ledger: ResourceLedger, topology: Topology) -> Rules:
        limit = ledger.mb_unit.count(topology.worker_max_heap_mb)
        if self.engine == "1.1":
            return Rules(limit, offheap_counts=True)
        incompatible: dict[str, frozenset[str]] = {}
        most: Mapping[str, int] = {}
        if self.strategy == "constraint" and topology.constraints is not None:
            for one, other in topology.constraints.incompatible:
                incompatible[one] = incompatible.get(one, frozenset()) | {other}
                incompatible[other] = incompatible.get(other, frozenset()) | {one}
            most = topology.constraints.max_per_node
        return Rules(
            limit,
            one_executor=self.one_executor_per_worker,
            one_component=self.one_component_per_worker,
            incompatible=incompatible,
            most_per_node=most,
        )

    def _executors(self, topology: Topology, waiting: Sequence[Executor]) -> list[Executor]:
        if self.engine == "1.1":
            return by_connections(topology, waiting, largest_first=True)
        if self.strategy == "constraint":
            return ackers_last(by_severity(topology, waiting))
        if self.order_by_proximity:
            return ackers_last(by_proximity(topology, waiting))
        return ackers_last(by_connections(topology, waiting))


def _only(ledger: ResourceLedger, node: int, topology: str) -> bool:
    """Return whether nothing but `topology` runs on `node`."""
    return ledger.running_on(node) <= {topology}


def amount_text(ledger: ResourceLedger, amount: ResourceAmount) -> str:
    """Return CPU and memory as text for a message."""
    return f"{ledger.cpu_unit.written(amount.cpu)} CPU points and {ledger.mb_unit.written(amount.memory)} MB"


def place_in_order(attempt: Attempt, nodes: Sequence[int], order: Sequence[Executor]) -> bool:
    """Place the executors of `order` on `nodes` by the strategy of Storm 1.1. Return whether all found a place.

    Nodes are sorted once per topology, executors take the first place that fits. After Apache Storm v1.1.1,
    `storm-core/.../strategies/scheduling/DefaultResourceAwareStrategy.java`. There is no backtracking; Storm continues
    with the other executors before it gives up, which does not change the outcome.
    """
    # Kind -> first node that may have room for it.
    first = dict.fromkeys({kind.number for kind in attempt.kinds.values()}, 0)
    for executor in order:
        kind = attempt.kinds[executor.component]
        place = None
        while first[kind.number] < len(nodes) and place is None:
            place = attempt.first_fit(nodes[first[kind.number]], kind)
            if place is None:
                first[kind.number] += 1
        if place is None:
            return False
        attempt.put(nodes[first[kind.number]], place, kind, executor)
    return True


Node = tuple[int, int, int]
"""Free slots, CPU and memory."""


def shortage(attempt: Attempt, executors: Iterable[Executor]) -> str | None:
    """Return why `executors` cannot all be placed in `attempt`, which is still empty, or None if unclear.

    Not enough slots or heap even without waste: no search can succeed. Storm has no such test and searches until its
    limit of places tried. Every bound leaves out rules that could only make it tighter.
    """
    waiting = Counter(executor.component for executor in executors)
    nodes = attempt.alike()
    for component, count in waiting.items():
        room = sum(many * _room(attempt, node, attempt.kinds[component]) for node, many in nodes.items())
        if count > room:
            return f"of {count} executors of {component!r} at most {room} fit into free slots"
    limit = attempt.rules.heap_limit
    needed = sum(count * attempt.kinds[component].heap for component, count in waiting.items())
    offered = sum(many * min(places * limit, memory) for (places, _, memory), many in nodes.items())
    if needed > offered:
        unit = attempt.ledger.mb_unit
        return f"{unit.written(needed)} MB of heap are missing, free slots offer {unit.written(offered)} MB"
    return None


def _room(attempt: Attempt, node: Node, kind: ExecutorKind) -> int:
    """Return how many executors of `kind` an otherwise empty node has room for, at most those waiting."""
    places, cpu, memory = node
    rules, demand = attempt.rules, kind.demand
    room = len(attempt.topology.executors) if places else 0
    if rules.one_executor:
        room = min(room, places)
    if kind.heap:
        room = min(room, places * (rules.heap_limit // kind.heap))
    if demand.memory:
        room = min(room, memory // demand.memory)
    if demand.cpu and not rules.soft_cpu:
        room = min(room, cpu // demand.cpu)
    return room
