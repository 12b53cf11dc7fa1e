"""Random scheduling rounds for the resource-aware schedulers of Storm 1.1 and Millrace.

As in `storm_rounds`, names and ports are chosen so that Storm's hash maps iterate in ascending order: here the map of a
node's slots, with keys such as `a:6704`. Storm's answer is then determined slot for slot.
"""

from collections.abc import Sequence
from random import Random
from typing import Any

from msgspec.structs import replace
from storm_round import PORTS, StormRound
from storm_rounds import cluster, fitting, problem_of, running, topology

from inventory.cluster import ExistingWorker, Node
from workloads.topology import Topology

STRATEGY = "org.apache.storm.scheduler.resource.strategies.scheduling.DefaultResourceAwareStrategy"


def _bucket(text: str) -> int:
    """Return the bucket of `text` in Java's smallest hash map."""
    code = 0
    for letter in text:
        code = (31 * code + ord(letter)) % 2**32
    return (code ^ code >> 16) % 16


def _with_ports_in_order(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return nodes with ports in the same order for which Storm's maps are sorted."""
    found = []
    for node in nodes:
        ports = [0] * node.slots
        port = PORTS[0]
        for bucket, slot in enumerate(node.slot_order):
            while _bucket(f"{node.id}:{port}") != bucket:
                port += 1
            ports[slot] = port
            port += 1
        found.append(replace(node, ports=tuple(ports)))
    return tuple(found)


def _graphs(draw: Random) -> list[Topology]:
    ages = draw.sample(range(10, 100), 4)
    return [
        replace(
            topology(draw, name, resources=True, most=3),
            user=draw.choice("uvw"),
            priority=draw.randint(0, 3),
            uptime_s=float(age),
            worker_max_heap_mb=float(draw.choice([256, 512, 768])),
        )
        for name, age in zip("abcd"[: draw.randint(1, 4)], ages, strict=False)
    ]


def _complete(draw: Random, nodes: Sequence[Node], graphs: Sequence[Topology]) -> list[ExistingWorker]:
    """Return workers with all executors of some topologies, as far as there is room; only those can be evicted."""
    live = [node for node in nodes if node.available]
    cpu = {node.id: node.demand_points for node in live}
    memory = {node.id: node.memory_mb for node in live}
    free = [(node.id, slot) for node in live for slot in range(node.slots)]
    draw.shuffle(free)
    found: list[ExistingWorker] = []
    for graph in graphs:
        if draw.random() < 0.3:
            continue
        heap: dict[tuple[str, int], float] = {}
        held: dict[tuple[str, int], list[str]] = {}
        for executor in graph.executors:
            part = graph.component[executor.component]
            for place in [*heap, *(slot for slot in free if slot not in heap)]:
                room = graph.worker_max_heap_mb - heap.get(place, 0.0)
                if part.memory <= min(room, memory[place[0]]) and part.cpu_points <= cpu[place[0]]:
                    heap[place] = heap.get(place, 0.0) + part.memory
                    cpu[place[0]] -= part.cpu_points
                    memory[place[0]] -= part.memory
                    held.setdefault(place, []).append(executor.name)
                    break
        free = [slot for slot in free if slot not in heap]
        found.extend(ExistingWorker(graph.id, *place, tuple(names)) for place, names in held.items())
    return found


def resource_aware_1_1(draw: Random) -> StormRound:
    """Return a round; full clusters and guarantees are frequent, so that topologies are evicted."""
    nodes = _with_ports_in_order(cluster(draw, resources=True, shared_hosts=draw.random() < 0.3))
    graphs = _graphs(draw)
    pools: dict[str, dict[str, float]] = {}
    if draw.random() < 0.8:
        pools = {
            user: {"cpu": float(draw.choice([0, 100, 200, 400])), "memory_mb": float(draw.choice([512, 1024, 4096]))}
            for user in "uvw"
            if draw.random() < 0.8
        }
    complete = draw.random() < 0.7
    existing = _complete(draw, nodes, graphs) if complete else fitting(running(draw, nodes, graphs), nodes, graphs)
    per_topology: dict[str, dict[str, Any]] = {graph.id: {"topology.scheduler.strategy": STRATEGY} for graph in graphs}
    return StormRound(
        "resource-aware",
        problem_of(nodes, graphs, existing),
        {"engine": "1.1", "user_pools": pools},
        {
            "resource.aware.scheduler.user.pools": {
                user: {"cpu": pool["cpu"], "memory": pool["memory_mb"]} for user, pool in pools.items()
            }
        },
        per_topology,
    )
