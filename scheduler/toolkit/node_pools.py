"""Pools of whole nodes that are lent and emptied, and how executors are dealt to workers on them.

After Apache Storm, `storm-server/.../scheduler/multitenant/{NodePool,FreePool,Node}.java`.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence

from scheduler.problem import Slot
from scheduler.toolkit.running_workers import RunningWorkers
from scheduler.toolkit.slots import waiting
from workloads.topology import Executor, Topology


class NodeSlots:
    """What the pools know of nodes; those that are not available or have no slots are not listed."""

    def __init__(self, state: RunningWorkers, slots: Mapping[str, Sequence[Slot]]) -> None:
        self.state = state
        self.slots = slots

    def free(self, node: str) -> int:
        """Free slots."""
        return self.state.free.count(node)

    def used(self, node: str) -> int:
        """Slots with a worker."""
        return len(self.slots[node]) - self.free(node)

    def owners(self, node: str) -> set[str]:
        """Topologies that run there."""
        return {self.state.owner[slot] for slot in self.slots[node] if slot in self.state.owner}

    def empty(self, node: str) -> None:
        """Stop everything on it."""
        self.state.release([slot for slot in self.slots[node] if slot in self.state.owner])


class NodePool:
    """Nodes that may be lent, those with fewest workers first; a node that leaves is emptied."""

    def __init__(self, known: NodeSlots, nodes: Iterable[str]) -> None:
        self._known = known
        self.nodes = set(nodes)

    @property
    def slots(self) -> int:
        """All slots of the pool, used or not."""
        return sum(len(self._known.slots[node]) for node in self.nodes)

    def covering(self, slots: int) -> list[str]:
        """The nodes that would leave to give away `slots` slots, or all if there are fewer."""
        chosen: list[str] = []
        for node in self._order() if slots > 0 else []:
            if slots <= 0:
                break
            chosen.append(node)
            slots -= len(self._known.slots[node])
        return chosen

    def take(self, nodes: Sequence[str]) -> Sequence[str]:
        """Let `nodes` leave."""
        for node in nodes:
            self.nodes.remove(node)
            self._known.empty(node)
        return nodes

    def first(self, count: int) -> list[str]:
        """The next `count` nodes to leave, or all if there are fewer."""
        return self._order()[: max(count, 0)]

    def _order(self) -> list[str]:
        return sorted(self.nodes, key=lambda node: (self._known.used(node), node))


class Lenders:
    """Pools in the order in which they are asked."""

    def __init__(self, known: NodeSlots, *pools: NodePool) -> None:
        self._known = known
        self._pools = pools

    @property
    def nodes(self) -> int:
        """Nodes of all pools."""
        return sum(len(pool.nodes) for pool in self._pools)

    @property
    def slots(self) -> int:
        """Slots of all pools."""
        return sum(pool.slots for pool in self._pools)

    def covering(self, slots: int) -> int:
        """How many nodes it takes to lend `slots` slots."""
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
    """The waiting executors of a topology, dealt to so many workers, which are then put on nodes one by one."""

    def __init__(self, topology: Topology, state: RunningWorkers, workers: int, spread: Collection[str]) -> None:
        """Executors of the components in `spread` go one to a node, as long as there are workers to come."""
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
        """Whether there is a worker left to be put somewhere."""
        return bool(self._workers)

    def put_on(self, node: str) -> None:
        """Start the next worker in the lowest free slot of `node`; one without executors is left out."""
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
