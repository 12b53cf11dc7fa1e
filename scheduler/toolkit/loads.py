"""Loads of executors and capacities of nodes, in one unit for the whole cluster.

With `capacity` on every node, capacities count executors and each executor has load 1. Otherwise both are CPU points: a
node's capacity is its `cpu`, an executor's load is its observed load, else the `cpu` of its component.
"""

from functools import cached_property
from typing import Literal

from scheduler.problem import Problem
from workloads.topology import DEFAULT_CPU_POINTS, Executor, Topology


class Loads:
    """Loads and capacities of one problem."""

    def __init__(self, problem: Problem) -> None:
        self._nodes = problem.cluster.nodes
        self._observed = problem.traffic.load if problem.traffic is not None else {}

    @cached_property
    def unit(self) -> Literal["executors", "points"]:
        """Unit of loads and capacities."""
        return "executors" if all(node.capacity is not None for node in self._nodes) else "points"

    @cached_property
    def capacity(self) -> dict[str, float]:
        """Capacity by node id."""
        if self.unit == "executors":
            return {node.id: node.capacity or 0.0 for node in self._nodes}
        return {node.id: node.cpu_points for node in self._nodes}

    def of(self, topology: Topology, executor: Executor) -> float:
        """Return the load of `executor`."""
        if self.unit == "executors":
            return 1.0
        if self._observed and (load := self._observed.get(executor.name)) is not None:
            return load
        return topology.component[executor.component].cpu_points

    def of_outside_executor(self, executor: str) -> float:
        """Return the load of a running executor of a topology outside the round, by its name."""
        if self.unit == "executors":
            return 1.0
        return self._observed.get(executor, DEFAULT_CPU_POINTS)
