"""Configuration of Flink's processes: a TaskManager for each worker, and the slots that only its executors fit in.

Flink chooses the slot of a subtask by the resources that it asks for. So each component has a slot-sharing group of
its own, whose subtasks ask for one piece of an external resource that is named after the component, and a TaskManager
offers as many pieces of each as the placement has executors of the component in that worker. The number of executors
per component and worker is therefore exact; which of them is where, Flink decides.

All TaskManagers have the same heap and the same memory for network buffers, whatever their number of executors.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from agents.protocol import Slot
from inventory.errors import InputError, RunError
from workloads.topology import ACKER, Executor, Topology

CONFIGURATION = "config.yaml"
"""Name of Flink's configuration, in a folder of its own for each process."""

RPC, REST, MASTER_PORTS = 0, 1, 2
"""The JobManager's ports after its first one, and their number; TaskManagers take any free ones."""

GROUPINGS = ("shuffle", "fields", "global", "all")

FRAMEWORK_HEAP_MB, OFF_HEAP_MB, METASPACE_MB, OVERHEAD_MB = 64, 64, 192, 128
"""Memory of a TaskManager: heap of Flink itself, direct memory beside network buffers, classes, rest."""

_LEAST_HEAP_MB, _LEAST_NETWORK_MB = 128, 32

_BUFFER_KB = 32
_FLOATING = 8
"""Flink's size of a network buffer, and buffers that the channels of an input or an output share."""

Values = Mapping[str, Any]
"""Configuration: key -> text, number or list of texts."""


@dataclass(frozen=True)
class TaskManager:
    """A TaskManager and what it offers.

    Attributes:
        worker: the worker of the placement that it is.
        address: address of its node.
        executors: component -> its number of executors in this worker, without components that have none.
    """

    worker: Slot
    address: str
    executors: Mapping[str, int]

    @property
    def id(self) -> str:
        """Name in Flink (`taskmanager.resource-id`), and of its folder."""
        return f"{self.worker.node}-{self.worker.index}"


def task_managers(topology: Topology, places: Mapping[str, Slot], addresses: Mapping[str, str]) -> list[TaskManager]:
    """Return the TaskManagers of a placement, in the order of its workers; acking executors have no place in Flink.

    Raises:
        RunError: an executor has no place, or a node no address.
    """
    counts: dict[Slot, Counter[str]] = {}
    for executor in topology.executors:
        if executor.component == ACKER:
            continue
        if executor.name not in places:
            raise RunError(f"{executor.name} has no place")
        counts.setdefault(places[executor.name], Counter())[executor.component] += 1
    lacking = sorted({worker.node for worker in counts} - set(addresses))
    if lacking:
        raise RunError(f"node {lacking[0]} has no address")
    return [TaskManager(worker, addresses[worker.node], dict(counts[worker])) for worker in sorted(counts)]


OPTIONS: Mapping[str, Any] = {
    "execution.buffer-timeout.enabled": bool,
    "execution.buffer-timeout.interval": Annotated[str, Meta(pattern=r"\A[0-9]+ (ms|s|min)\Z")],
}
"""Settings of a job that an agenda may change -> type; as with Storm, none that is a command, a class or a path."""


def flink_wait(wait_ms: float) -> dict[str, int | str]:
    """Return the settings with which rows wait `wait_ms` for others before a buffer is sent; 0: they do not wait.

    Raises:
        ValueError: it is no whole number of milliseconds.
    """
    if wait_ms != int(wait_ms):
        raise ValueError("expected whole milliseconds")
    return {"execution.buffer-timeout.interval": f"{int(wait_ms)} ms"}


def check_flink_topology(topology: Topology) -> None:
    """Check that Flink can run a topology by our adapter.

    Raises:
        InputError: a grouping is not supported, or a spout has several streams.
    """
    for component in topology.components:
        if component.kind == "spout" and len(component.outputs or {}) > 1:
            raise InputError(f"component {component.id!r}: with engine: flink, a spout can have one stream only")
        for entry in component.inputs:
            if entry.grouping not in GROUPINGS:
                raise InputError(
                    f"component {component.id!r}: the grouping {entry.grouping!r} is not supported with engine: flink; "
                    f"supported: {', '.join(GROUPINGS)}"
                )


def resources(topology: Topology) -> dict[str, str]:
    """Return component -> its external resource; ids of components may have characters that Flink's keys may not.

    The numbers are those of `job.properties`.
    """
    placed = [component.id for component in topology.components if component.id != ACKER]
    return {component: f"component{number}" for number, component in enumerate(placed)}


@dataclass(frozen=True)
class Memory:
    """Memory of every TaskManager of a job, in MB: heap of tasks, and network buffers."""

    heap: int
    network: int

    @property
    def java_options(self) -> list[str]:
        """Java's options for memory as Flink's own start script derives them, and the collector of Storm's workers."""
        whole = self.heap + FRAMEWORK_HEAP_MB
        return [
            f"-Xms{whole}m",
            f"-Xmx{whole}m",
            f"-XX:MaxDirectMemorySize={OFF_HEAP_MB + self.network}m",
            f"-XX:MaxMetaspaceSize={METASPACE_MB}m",
            "-XX:+UseSerialGC",
        ]


def memory_of(topology: Topology) -> Memory:
    """Return the memory of every TaskManager: enough for all executors in one, whatever the placement is.

    A subtask asks for 1 MB of heap, and for two network buffers per channel and some that channels share, for each
    input and each output.
    """
    buffers = 0
    for source, destination, _ in topology.links():
        buffers += source.parallelism * (2 * destination.parallelism + _FLOATING)
        buffers += destination.parallelism * (2 * source.parallelism + _FLOATING)
    executors = sum(component.parallelism for component in topology.components)
    return Memory(max(_LEAST_HEAP_MB, executors), max(_LEAST_NETWORK_MB, -(-buffers * _BUFFER_KB // 1024)))


def job_manager_values(address: str, port: int, folder: Path) -> Values:
    """Return the configuration of the JobManager, which listens on `address` only.

    Args:
        address: its address.
        port: the first of its ports.
        folder: folder for its temporary files.
    """
    return {
        **_common(address, port, folder),
        "jobmanager.bind-host": address,
        "rest.address": address,
        "rest.bind-address": address,
        "rest.port": port + REST,
        "rest.bind-port": str(port + REST),
        # Flink's copy of the states of subtasks would be up to 3 s old.
        "web.refresh-interval": "500 ms",
        # A run ends with its first failure; what a restart does belongs to Flink and not to the placement.
        "restart-strategy.type": "none",
        "slot.request.timeout": "10 min",
    }


def task_manager_values(
    manager: TaskManager, names: Mapping[str, str], memory: Memory, job_manager: str, port: int, folder: Path
) -> Values:
    """Return the configuration of a TaskManager, which listens on its node's address only.

    Args:
        manager: the TaskManager.
        names: component -> external resource.
        memory: its memory.
        job_manager: address of the JobManager.
        port: the first of the JobManager's ports.
        folder: folder for its temporary files.
    """
    slots = sum(manager.executors.values())
    return {
        **_common(job_manager, port, folder),
        "taskmanager.resource-id": manager.id,
        "taskmanager.host": manager.address,
        "taskmanager.bind-host": manager.address,
        "taskmanager.numberOfTaskSlots": slots,
        # What Flink counts, not what it enforces: one core per executor, so that cores never decide.
        "taskmanager.cpu.cores": float(slots),
        "taskmanager.memory.framework.heap.size": f"{FRAMEWORK_HEAP_MB}m",
        "taskmanager.memory.framework.off-heap.size": f"{OFF_HEAP_MB}m",
        "taskmanager.memory.task.heap.size": f"{memory.heap}m",
        "taskmanager.memory.task.off-heap.size": "0m",
        "taskmanager.memory.managed.size": "0m",
        "taskmanager.memory.network.min": f"{memory.network}m",
        "taskmanager.memory.network.max": f"{memory.network}m",
        "taskmanager.memory.jvm-metaspace.size": f"{METASPACE_MB}m",
        "taskmanager.memory.jvm-overhead.min": f"{OVERHEAD_MB}m",
        "taskmanager.memory.jvm-overhead.max": f"{OVERHEAD_MB}m",
        "external-resources": [names[component] for component in manager.executors],
        **{f"external-resource.{names[c]}.amount": count for c, count in manager.executors.items()},
    }


def _common(job_manager: str, port: int, folder: Path) -> dict[str, Any]:
    return {
        "jobmanager.rpc.address": job_manager,
        "jobmanager.rpc.port": port + RPC,
        "io.tmp.dirs": str(folder),
        "process.working-dir": str(folder),
        "state.backend.type": "hashmap",
        # Processes start slowly on a busy machine.
        "pekko.ask.timeout": "60 s",
    }


def yaml_of(values: Values) -> str:
    """Return a configuration as text; JSON's strings, numbers and lists are YAML, too."""
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in values.items())


def placement_difference(topology: Topology, asked: Mapping[str, Slot], reported: Mapping[str, Slot]) -> str:
    """Return how the numbers of executors per component and worker differ from the placement; empty if they do not."""
    for worker in sorted(set(asked.values()) | set(reported.values())):
        for component in topology.component:
            wanted, there = (
                sum(w == worker and Executor.named(name).component == component for name, w in each.items())
                for each in (asked, reported)
            )
            if wanted != there and component != ACKER:
                where = f"{worker.node}, slot {worker.index}"
                return f"{where} has {there} executors of {component}, the placement {wanted}"
    return ""
