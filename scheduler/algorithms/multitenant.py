"""`multitenant`: Storm's MultitenantScheduler, users with nodes of their own beside a common pool.

After Apache Storm, `storm-server/.../scheduler/multitenant/{MultitenantScheduler,DefaultPool,IsolatedPool}.java`, whose
status texts are the messages. Our decisions: a complete topology in a user's pool that requests more workers is left
unchanged (Storm borrows nodes for it, which empties them, and then has no executors to place). A topology whose nodes
were taken by a later one gets a message.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from msgspec import Meta

from inventory.errors import ParameterError, nearest
from scheduler.problem import Needs, Plan, Problem, Slot, concluded
from scheduler.toolkit.slots import RunningWorkers, assigned, waiting
from workloads.topology import Executor, Topology


class NodeSlots:
    """Slots of the available nodes as used by the pools; nodes without slots are left out."""

    def __init__(self, state: RunningWorkers, slots: Mapping[str, Sequence[Slot]]) -> None:
        self.state = state
        self.slots = slots

    def free(self, node: str) -> int:
        """Return free slots."""
        return self.state.free.count(node)

    def used(self, node: str) -> int:
        """Return the number of slots with a worker."""
        return len(self.slots[node]) - self.free(node)

    def owners(self, node: str) -> set[str]:
        """Return the topologies with a worker on `node`."""
        return {self.state.owner[slot] for slot in self.slots[node] if slot in self.state.owner}

    def empty(self, node: str) -> None:
        """Stop all workers on `node`."""
        self.state.release([slot for slot in self.slots[node] if slot in self.state.owner])


class NodePool:
    """Nodes that may be lent, those with fewest workers first. A node that leaves is emptied."""

    def __init__(self, known: NodeSlots, nodes: Iterable[str]) -> None:
        self._known = known
        self.nodes = set(nodes)

    @property
    def slots(self) -> int:
        """Return the number of all slots of the pool, used or not."""
        return sum(len(self._known.slots[node]) for node in self.nodes)

    def covering(self, slots: int) -> list[str]:
        """Return the nodes that would leave to provide `slots` slots, or all if they have fewer."""
        chosen: list[str] = []
        for node in self._order() if slots > 0 else []:
            if slots <= 0:
                break
            chosen.append(node)
            slots -= len(self._known.slots[node])
        return chosen

    def take(self, nodes: Sequence[str]) -> Sequence[str]:
        """Empty `nodes` and remove them from the pool."""
        for node in nodes:
            self.nodes.remove(node)
            self._known.empty(node)
        return nodes

    def first(self, count: int) -> list[str]:
        """Return the next `count` nodes to leave, or all if there are fewer."""
        return self._order()[: max(count, 0)]

    def _order(self) -> list[str]:
        return sorted(self.nodes, key=lambda node: (self._known.used(node), node))


class Lenders:
    """Pools in the order of borrowing."""

    def __init__(self, known: NodeSlots, *pools: NodePool) -> None:
        self._known = known
        self._pools = pools

    @property
    def nodes(self) -> int:
        """Return the number of nodes of all pools."""
        return sum(len(pool.nodes) for pool in self._pools)

    @property
    def slots(self) -> int:
        """Return the number of slots of all pools."""
        return sum(pool.slots for pool in self._pools)

    def covering(self, slots: int) -> int:
        """Return the number of nodes needed to provide `slots` slots."""
        return sum(len(nodes) for _, nodes in self._covering(slots))

    def take_slots(self, slots: int) -> list[str]:
        """Borrow whole nodes until `slots` slots are covered."""
        return [node for pool, nodes in self._covering(slots) for node in pool.take(nodes)]

    def take_nodes(self, count: int) -> list[str]:
        """Borrow `count` nodes, or all if there are fewer."""
        taken: list[str] = []
        for pool in self._pools:
            taken.extend(pool.take(pool.first(count - len(taken))))
        return taken

    def _covering(self, slots: int) -> list[tuple[NodePool, list[str]]]:
        chosen: list[tuple[NodePool, list[str]]] = []
        for pool in self._pools:
            nodes = pool.covering(slots)
            slots -= sum(len(self._known.slots[node]) for node in nodes)
            chosen.append((pool, nodes))
        return chosen


class Deal:
    """Waiting executors of a topology, split over workers that are put on nodes one by one."""

    def __init__(self, topology: Topology, state: RunningWorkers, workers: int, spread: Collection[str]) -> None:
        """Executors of the components in `spread` go to one node each, while there are workers left."""
        self._topology = topology
        self._state = state
        self._held: dict[str, deque[Executor]] = {}
        plain: list[Executor] = []
        for executor in sorted(waiting(topology, state.workers[topology.id])):
            if executor.component in spread:
                self._held.setdefault(executor.component, deque()).append(executor)
            else:
                plain.append(executor)
        self._workers = deque(plain[first::workers] for first in range(workers))
        self._seen = {
            (slot.node, executor.component) for slot, mine in state.workers[topology.id].items() for executor in mine
        }

    def __bool__(self) -> bool:
        """Return whether a worker is left to be put on a node."""
        return bool(self._workers)

    def put_on(self, node: str) -> None:
        """Start the next worker in the lowest free slot of `node`. A worker without executors is skipped."""
        executors = self._workers.popleft()
        for component, held in sorted(self._held.items()):
            if not self._workers:
                executors.extend(held)
            elif held and (node, component) not in self._seen:
                self._seen.add((node, component))
                executors.append(held.popleft())
        slot = self._state.free.lowest(node)
        if executors and slot is not None:
            self._state.start(self._topology.id, slot, executors)


@dataclass(frozen=True)
class MultitenantParams:
    """Parameters of `multitenant`.

    Attributes:
        user_pools: user -> maximum number of nodes in the user's own pool.
        spread: topology -> components whose executors go to different nodes.
    """

    user_pools: Mapping[str, Annotated[int, Meta(ge=0)]] = field(default_factory=dict)
    spread: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Multitenant:
    """Pools of nodes: free ones, one per configured user, and the default pool of all others."""

    name: ClassVar[str] = "multitenant"
    paper: ClassVar[str] = "Apache Storm 2.x, MultitenantScheduler"
    needs: ClassVar[Needs] = Needs(cycles=True, ignores="load, traffic, CPU, memory, hardware")
    Params: ClassVar[type] = MultitenantParams

    def __init__(self, params: MultitenantParams) -> None:
        self._params = params

    def place(self, problem: Problem) -> Plan:
        """Run one round: user pools first, by user, then the default pool.

        Raises:
            InputError: `spread` names an unknown component of a topology of this round.
        """
        state = RunningWorkers(problem)
        known = NodeSlots(
            state, {n.id: [Slot(n.id, index) for index in n.slot_order] for n in problem.cluster.available if n.slots}
        )
        common: list[Topology] = []
        tenants: dict[str, list[Topology]] = {user: [] for user in sorted(self._params.user_pools)}
        for topology in problem.topologies:
            _check_spread(topology, self._params.spread.get(topology.id, ()))
            alone = all(known.owners(slot.node) == {topology.id} for slot in state.workers[topology.id])
            (tenants[topology.user] if topology.user in tenants and alone else common).append(topology)
        free = NodePool(known, (node for node in known.slots if not known.used(node)))
        default = NodePool(known, {slot.node for topology in common for slot in state.workers[topology.id]})
        messages: dict[str, str] = {}
        for user, topologies in tenants.items():
            pool = _UserPool(known, self._params, user, topologies)
            messages |= pool.schedule(Lenders(known, free, default))
        for topology in common:
            spread = self._params.spread.get(topology.id, ())
            messages[topology.id] = _schedule_in_default(known, topology, default, Lenders(known, free), spread)
        return state.plan(
            {t.id: concluded(t, assigned(state.workers[t.id]), messages[t.id]) for t in problem.topologies}
        )


def _check_spread(topology: Topology, spread: Sequence[str]) -> None:
    for at, component in enumerate(spread):
        if component not in topology.component:
            hint = nearest(component, topology.component)
            raise ParameterError(
                ("spread", topology.id, at), f"topology {topology.id!r} has no component {component!r}{hint}"
            )


def _needs_scheduling(topology: Topology, state: RunningWorkers) -> bool:
    workers = state.workers[topology.id]
    return topology.workers > len(workers) or bool(waiting(topology, workers))


def _requested(topology: Topology) -> int:
    return min(len(topology.executors), topology.workers)


def _schedule_in_default(
    known: NodeSlots, topology: Topology, pool: NodePool, lenders: Lenders, spread: Sequence[str]
) -> str:
    """Place one topology of the default pool, filling one node after the other. Return Storm's status text."""
    state = known.state
    if not _needs_scheduling(topology, state):
        return "Fully Scheduled"
    requested = _requested(topology)
    used = len(state.workers[topology.id])
    free = sum(map(known.free, pool.nodes))
    use = min(requested - used, free + (lenders.slots if requested > free else 0))
    waits = len(waiting(topology, state.workers[topology.id]))
    if use <= 0:
        if waits:
            return f"Not fully scheduled (No free slots in default pool) {waits} executors not scheduled"
        return _fullness(topology, used)
    pool.nodes.update(lenders.take_slots(use - free))
    if not waits:
        state.release(list(state.workers[topology.id]))
        use = min(requested, sum(map(known.free, pool.nodes)))
    deal = Deal(topology, state, use, spread)
    for node in sorted(pool.nodes):
        while deal and known.free(node):
            deal.put_on(node)
    used = len(state.workers[topology.id])
    return "Fully Scheduled" if used >= topology.workers else _fullness(topology, used)


def _fullness(topology: Topology, used: int) -> str:
    if used < _requested(topology):
        return f"Running with fewer slots than requested ({used}/{topology.workers})"
    return f"Fully Scheduled (requested {topology.workers} slots, but could only use {used})"


class _UserPool:
    """Nodes of one user; each of the user's topologies has its own nodes among them."""

    def __init__(self, known: NodeSlots, params: MultitenantParams, user: str, topologies: Sequence[Topology]) -> None:
        self._known = known
        self._spread = params.spread
        self._most = params.user_pools[user]
        self._topologies = topologies
        self._nodes = {t.id: {slot.node for slot in known.state.workers[t.id]} for t in topologies}

    @property
    def _held(self) -> int:
        return sum(map(len, self._nodes.values()))

    def schedule(self, lenders: Lenders) -> dict[str, str]:
        """Place the topologies that need it. Return Storm's status texts by topology."""
        messages: dict[str, str] = {}
        for topology in self._topologies:
            before = dict(self._nodes)
            wanted = topology.isolated_nodes
            if wanted is not None:
                wanted = min(len(topology.executors), wanted)
                touched = _needs_scheduling(topology, self._known.state) or len(self._nodes[topology.id]) != wanted
            else:
                touched = bool(waiting(topology, self._known.state.workers[topology.id]))
            trouble = ""
            if touched and wanted is None:
                trouble = self._place_shared(topology, lenders)
            elif touched and wanted is not None:
                trouble = self._place_isolated(topology, wanted, lenders)
                for robbed in before:
                    if robbed != topology.id and self._nodes[robbed] != before[robbed]:
                        messages[robbed] = f"Not fully scheduled: nodes were given to the isolated {topology.id!r}"
            messages[topology.id] = trouble or f"Scheduled Isolated on {len(self._nodes[topology.id])} Nodes"
        return messages

    def _place_shared(self, topology: Topology, lenders: Lenders) -> str:
        """Place a topology that requests no number of nodes. Return why it failed, or an empty text."""
        mine = self._nodes[topology.id]
        requested = _requested(topology)
        free = sum(map(self._known.free, mine))
        lend = lenders.slots if requested > free else 0
        use = min(requested - len(self._known.state.workers[topology.id]), free + lend)
        if use <= 0:
            return "Not Enough Slots Available to Schedule Topology"
        lacking = lenders.covering(use - free) + self._held - self._most
        if lacking > 0:
            return self._exceeded(lacking)
        mine.update(lenders.take_slots(use - free))
        self._deal(topology, use)
        return ""

    def _place_isolated(self, topology: Topology, wanted: int, lenders: Lenders) -> str:
        """Place a topology that requests a number of nodes. Return why it failed, or an empty text."""
        mine = self._nodes[topology.id]
        needed = wanted - len(mine)
        ours = sum(len(self._nodes[t.id]) for t in self._topologies if t.isolated_nodes is None)
        room = self._most - self._held
        if needed - ours > room:
            return self._exceeded(needed - ours - room)
        if needed > 0:
            from_others = max(min(room, lenders.nodes, needed), 0)
            if needed - from_others > ours:
                return "Not Enough Nodes Available to Schedule Topology"
            mine.update(lenders.take_nodes(from_others))
            mine.update(self._take_from_ours(needed - from_others))
        used = sum(map(self._known.used, mine))
        use = min(_requested(topology) - used, sum(map(self._known.free, mine)))
        if use > 0:
            self._deal(topology, use)
        elif waiting(topology, self._known.state.workers[topology.id]):
            return "Node has partially crashed, if this situation persists rebalance the topology."
        return ""

    def _exceeded(self, lacking: int) -> str:
        return f"Max Nodes({self._most}) for this user would be exceeded. {lacking} more nodes needed to run topology."

    def _take_from_ours(self, count: int) -> list[str]:
        """Empty and return nodes of the pool's topologies that request no number of nodes."""
        taken: list[str] = []
        for topology in self._topologies:
            if topology.isolated_nodes is not None:
                continue
            nodes = sorted(self._nodes[topology.id])[: count - len(taken)]
            self._nodes[topology.id] = self._nodes[topology.id].difference(nodes)
            for node in nodes:
                self._known.empty(node)
            taken.extend(nodes)
        return taken

    def _deal(self, topology: Topology, use: int) -> None:
        """Place each worker on the node with fewest workers; ties: most free slots, then id."""
        known = self._known
        deal = Deal(topology, known.state, use, self._spread.get(topology.id, ()))
        while deal:
            nodes = [node for node in self._nodes[topology.id] if known.free(node)]
            if not nodes:
                break
            deal.put_on(min(nodes, key=lambda node: (known.used(node), -known.free(node), node)))
