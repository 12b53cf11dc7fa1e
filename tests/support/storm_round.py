"""Scheduling rounds in Storm's form: executors as tasks, slots as ports."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from inventory.cluster import Node
from scheduler.problem import Problem
from workloads.topology import Component, Executor, Topology

PORTS = range(6704, 6720)


@dataclass(frozen=True)
class StormRound:
    """A round, the parameters of Millrace's scheduler, and the equivalent settings of Storm."""

    scheduler: str
    problem: Problem
    params: Mapping[str, Any] = field(default_factory=dict)
    conf: Mapping[str, Any] = field(default_factory=dict)
    topology_conf: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the round in the oracle's input format, without dead nodes and their workers."""
        problem = self.problem
        return {
            "scheduler": self.scheduler,
            "conf": dict(self.conf),
            "nodes": [
                {
                    "id": node.id,
                    "host": node.machine,
                    "rack": node.rack,
                    "cpu": node.demand_points,
                    "memory": node.memory_mb,
                    "ports": [port_of(node, index) for index in range(node.slots)],
                }
                for node in problem.cluster.available
            ],
            "topologies": [
                {
                    "id": topology.id,
                    "user": topology.user,
                    "workers": topology.workers,
                    "uptime": int(topology.uptime_s),
                    "conf": {
                        "topology.priority": topology.priority,
                        "topology.worker.max.heap.size.mb": topology.worker_max_heap_mb,
                        **self.topology_conf.get(topology.id, {}),
                    },
                    "components": [_component(component) for component in _by_id(topology)],
                }
                for topology in problem.topologies
            ],
            "existing": [
                {
                    "topology": worker.topology,
                    "node": worker.node,
                    "port": port_of(problem.cluster.by_id[worker.node], worker.slot),
                    "tasks": [
                        tasks(topology)[Executor.named(name)]
                        for topology in problem.topologies
                        if topology.id == worker.topology
                        for name in worker.executors
                    ],
                }
                for worker in problem.existing
                if problem.cluster.by_id[worker.node].available
            ],
        }


def _by_id(topology: Topology) -> list[Component]:
    return sorted(topology.components, key=lambda component: component.id)


def _component(component: Component) -> dict[str, Any]:
    return {
        "id": component.id,
        "kind": component.kind,
        "parallelism": component.parallelism,
        "cpu": component.cpu_points,
        "onheap": component.onheap,
        "offheap": component.offheap,
        "inputs": [{"from": i.source, "stream": i.stream, "grouping": i.grouping} for i in component.inputs],
    }


def port_of(node: Node, slot: int) -> int:
    """Return the port of a slot; slots without a named port are numbered from the first of `PORTS`."""
    return PORTS[slot] if node.ports is None else node.ports[slot]


def tasks(topology: Topology) -> dict[Executor, int]:
    """Return executor -> Storm's task: from 1, by component id and index."""
    return {executor: task for task, executor in enumerate(sorted(topology.executors), 1)}
