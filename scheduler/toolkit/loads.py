"""How much an executor weighs and how much a node holds, in one unit for the whole cluster.

With `capacity` on every node, capacities count executors and each executor weighs 1. Otherwise both are CPU
points: a node holds its `cpu`, an executor weighs its observed load, else what its component asks for.
"""

from functools import cached_property
from typing import Literal

from scheduler.problem import Problem
from workloads.topology import DEFAULT_CPU_POINTS, Executor, Topology


class Loads:
    """Weights and capacities of one problem."""

    def __init__(self, problem: Problem) -> None:
        self._nodes = problem.cluster.nodes
        self._observed = problem.traffic.load if problem.traffic is not None else {}

    @cached_property
    def unit(self) -> Literal["executors", "points"]:
        """What loads and capacities are counted in."""
        return "executors" if all(node.capacity is not None for node in self._nodes) else "points"

    @cached_property
    def capacity(self) -> dict[str, float]:
        """Node id -> what it holds."""
        if self.unit == "executors":
            return {node.id: node.capacity or 0.0 for node in self._nodes}
        return {node.id: node.cpu_points for node in self._nodes}

    def of(self, topology: Topology, executor: Executor) -> float:
        """What `executor` weighs."""
        if self.unit == "executors":
            return 1.0
        if self._observed and (load := self._observed.get(executor.name)) is not None:
            return load
        return topology.component[executor.component].cpu_points

    def of_stranger(self, executor: str) -> float:
        """What a running executor of a topology outside the round weighs, by its name."""
        if self.unit == "executors":
            return 1.0
        return self._observed.get(executor, DEFAULT_CPU_POINTS)
