"""Pools of whole nodes that are lent and emptied, and distribution of executors over workers on them.

After Apache Storm, `storm-server/.../scheduler/multitenant/{NodePool,FreePool,Node}.java`.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence

from scheduler.problem import Slot
from scheduler.toolkit.running_workers import RunningWorkers
from scheduler.toolkit.slots import waiting
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
