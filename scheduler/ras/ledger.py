"""Resources of every node and costs of its workers, over all topologies of a round.

After Apache Storm 2.x, `storm-server/.../scheduler/Cluster.java` and `.../scheduler/resource/RasNode.java`. An
executor demands CPU points, on-heap and off-heap MB; a worker demands the sum of its executors, with a minimum of CPU.
Workers of topologies outside the round count with Storm's defaults per executor.

CPU points and MB are integers, so that sums and comparisons are exact: three executors of 33.3 points need 99.9, in any
order of addition. Every value is read as a decimal and counted in the largest unit that divides all of them.
"""

import math
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

from scheduler.problem import Problem, Slot
from scheduler.toolkit.slots import RunningWorkers
from workloads.topology import DEFAULT_CPU_POINTS, DEFAULT_ONHEAP_MB, Component, Executor, Topology


class Unit:
    """The largest decimal fraction of 1 of which all given values are multiples."""

    def __init__(self, values: Iterable[float]) -> None:
        """Determine the unit of `values`, which are finite."""
        self._per_one = math.lcm(*(Fraction(repr(value)).denominator for value in set(values)))

    def count(self, value: float) -> int:
        """Return `value`, one of the given values or an integer, in this unit."""
        scaled = Fraction(repr(value)) * self._per_one
        return int(scaled)

    def written(self, count: int) -> str:
        """Return a count as a decimal text in the original unit."""
        try:
            return f"{count / self._per_one:g}"
        except OverflowError:
            return str(count // self._per_one)


def ratio(count: int, of: int) -> float:
    """Return `count / of` for a positive `of`, limited to the range of floats."""
    try:
        return count / of
    except OverflowError:
        return sys.float_info.max if count > 0 else -sys.float_info.max


class ResourceDemand(NamedTuple):
    """Demand of an executor, in the ledger's units."""

    cpu: int
    onheap: int
    memory: int


class ResourceAmount(NamedTuple):
    """CPU and memory, in the ledger's units."""

    cpu: int
    memory: int

    def covers(self, other: "ResourceAmount") -> bool:
        """Return whether both amounts are at least those of `other`."""
        return self.cpu >= other.cpu and self.memory >= other.memory

    def plus(self, other: "ResourceAmount") -> "ResourceAmount":
        """Return both together."""
        return ResourceAmount(self.cpu + other.cpu, self.memory + other.memory)


class ResourceLedger:
    """Available nodes by number, in the order of their ids, with their resources and workers.

    Attributes:
        ids: node number -> id.
        rack: node number -> name of its rack.
        host: node number -> name of its host.
        state: running workers and free slots.
        available: sum over nodes of the remaining resources.
    """

    def __init__(self, problem: Problem, min_cpu: float = 0.0, points: Iterable[float] = (), mb: Iterable[float] = ()):
        """Record the running workers.

        Args:
            problem: the round.
            min_cpu: minimum CPU points of a worker.
            points: further values in CPU points to be converted.
            mb: further values in MB to be converted.
        """
        nodes = sorted(problem.cluster.available, key=lambda node: node.id)
        components = [component for topology in problem.topologies for component in topology.components]
        self.cpu_unit = Unit([min_cpu, *points, *(n.demand_points for n in nodes), *(c.cpu_points for c in components)])
        self.mb_unit = Unit(
            [
                *mb,
                *(node.memory_mb for node in nodes),
                *(topology.worker_max_heap_mb for topology in problem.topologies),
                *(value for c in components for value in (c.onheap, c.offheap)),
            ]
        )
        self.ids = [node.id for node in nodes]
        self.rack = [node.rack for node in nodes]
        self.host = [node.machine for node in nodes]
        self.number = {node: at for at, node in enumerate(self.ids)}
        self.min_cpu = self.cpu_unit.count(min_cpu)
        self._capacity = [
            ResourceAmount(self.cpu_unit.count(n.demand_points), self.mb_unit.count(n.memory_mb)) for n in nodes
        ]
        self._used = [ResourceAmount(0, 0)] * len(nodes)
        self._demands = {topology.id: self._demands_of(topology) for topology in problem.topologies}
        default = Component("any", "bolt", cpu=DEFAULT_CPU_POINTS, onheap_mb=DEFAULT_ONHEAP_MB)
        self._default = self._demand_of(default)
        self.state = RunningWorkers(problem)
        self.available = self.total
        self._running_on: list[Counter[str]] = [Counter() for _ in nodes]
        for topology, workers in self.state.workers.items():
            for slot, executors in workers.items():
                self._book(topology, slot, executors, 1)

    @property
    def largest_memory(self) -> int:
        """Memory of the node that has most of it."""
        return max((amount.memory for amount in self._capacity), default=0)

    @property
    def total(self) -> ResourceAmount:
        """Capacity of all nodes together."""
        return ResourceAmount(
            sum(amount.cpu for amount in self._capacity), sum(amount.memory for amount in self._capacity)
        )

    def left(self, node: int) -> ResourceAmount:
        """Return the remaining resources of node number `node`; never below 0."""
        capacity, used = self._capacity[node], self._used[node]
        return ResourceAmount(max(capacity.cpu - used.cpu, 0), max(capacity.memory - used.memory, 0))

    def running_on(self, node: int) -> set[str]:
        """Return the topologies with a worker on node number `node`."""
        return {topology for topology, workers in self._running_on[node].items() if workers}

    def demand(self, topology: str, component: str) -> ResourceDemand:
        """Return the demand of one executor of `component`."""
        return self._demands[topology][component] if topology in self._demands else self._default

    def demanded(self, topology: str, executors: Iterable[Executor]) -> ResourceAmount:
        """Return the total demand of `executors`, without the minimum per worker."""
        cpu = memory = 0
        for executor in executors:
            demand = self.demand(topology, executor.component)
            cpu += demand.cpu
            memory += demand.memory
        return ResourceAmount(cpu, memory)

    def requested(self, topology: Topology) -> ResourceAmount:
        """Return the total demand of all executors of `topology`."""
        demands = self._demands[topology.id]
        return ResourceAmount(
            sum(demands[c.id].cpu * c.parallelism for c in topology.components),
            sum(demands[c.id].memory * c.parallelism for c in topology.components),
        )

    def worker_cost(self, topology: str, executors: Sequence[Executor]) -> ResourceAmount:
        """Return the cost of a worker with `executors`."""
        amount = self.demanded(topology, executors)
        return ResourceAmount(max(amount.cpu, self.min_cpu), amount.memory) if executors else amount

    def start(self, topology: str, slot: Slot, executors: Sequence[Executor]) -> None:
        """Start a worker in a free slot."""
        self.state.start(topology, slot, executors)
        self._book(topology, slot, executors, 1)

    def evict(self, topology: str) -> list[tuple[Slot, tuple[Executor, ...]]]:
        """Stop all workers of `topology` and return them."""
        stopped = list(self.state.workers[topology].items())
        for slot, executors in stopped:
            self._book(topology, slot, executors, -1)
        self.state.release([slot for slot, _ in stopped])
        return stopped

    def _book(self, topology: str, slot: Slot, executors: Sequence[Executor], sign: int) -> None:
        node = self.number[slot.node]
        self._running_on[node][topology] += sign
        cost = self.worker_cost(topology, executors)
        before = self.left(node)
        self._used[node] = self._used[node].plus(ResourceAmount(sign * cost.cpu, sign * cost.memory))
        after = self.left(node)
        self.available = self.available.plus(ResourceAmount(after.cpu - before.cpu, after.memory - before.memory))

    def _demands_of(self, topology: Topology) -> dict[str, ResourceDemand]:
        return {component.id: self._demand_of(component) for component in topology.components}

    def _demand_of(self, component: Component) -> ResourceDemand:
        onheap, offheap = self.mb_unit.count(component.onheap), self.mb_unit.count(component.offheap)
        return ResourceDemand(self.cpu_unit.count(component.cpu_points), onheap, onheap + offheap)
