"""Random scheduling rounds that the schedulers of Storm 2.8 and Millrace can both answer.

Names have one letter and ports are chosen so that Storm's hash maps iterate in ascending order (see
`storm_oracle/Rounds.java`): sets of ports, and the workers of a topology. Demands are integers, so that sums are exact
in both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from msgspec.structs import replace

from inventory.cluster import Cluster, ExistingWorker, Node
from scheduler.problem import Problem
from workloads.topology import ACKER, Component, Constraints, Executor, GroupingKind, Input, Topology

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


GROUPINGS: tuple[GroupingKind, ...] = ("shuffle", "fields", "all", "local-or-shuffle")

Workers = list[ExistingWorker]


def _bucket(node: str, port: int) -> int:
    """Return the bucket of a worker slot in Java's smallest hash map; the node's name has one letter."""
    code = ord(node) + 13 * port
    return (code ^ code >> 16) % 16


def with_ports_in_order(nodes: Sequence[Node], existing: Workers) -> tuple[Node, ...]:
    """Return nodes with ports in the same order for which Storm's maps of a topology's workers are sorted.

    Maps of at most twelve workers have sixteen buckets; the ports of workers lead to ascending ones.
    """
    ranks = {node.id: {slot: rank for rank, slot in enumerate(node.slot_order)} for node in nodes}
    wanted: dict[tuple[str, int], int] = {}
    for topology in {worker.topology for worker in existing}:
        mine = [(w.node, ranks[w.node][w.slot]) for w in existing if w.topology == topology]
        wanted.update({place: bucket for bucket, place in enumerate(sorted(mine))})
    found = []
    for node in nodes:
        ports = [0] * node.slots
        port = PORTS[0]
        for slot in node.slot_order:
            place = (node.id, ranks[node.id][slot])
            while place in wanted and _bucket(node.id, port) != wanted[place]:
                port += 1
            ports[slot] = port
            port += 1
        found.append(replace(node, ports=tuple(ports)))
    return tuple(found)


def cluster(
    draw: Random, resources: bool = False, shared_hosts: bool = False, least_slots: int = 0
) -> tuple[Node, ...]:
    """Return one to seven nodes in random order; one in eight is dead."""
    names = draw.sample("abcdefgh", draw.randint(1, 7))
    nodes = []
    for name in names:
        slots = draw.randint(least_slots, 5)
        ports = tuple(draw.sample(PORTS, slots)) if draw.random() < 0.3 else None
        nodes.append(
            Node(
                id=name,
                slots=slots,
                ports=ports,
                available=draw.random() > 0.12,
                rack=draw.choice("rs"),
                host=draw.choice("xyz") if shared_hosts and draw.random() < 0.4 else None,
                cpu=float(draw.choice([100, 200, 400])) if resources else None,
                memory_mb=float(draw.choice([1024, 2048, 4096])) if resources else 4096.0,
            )
        )
    if shared_hosts:  # a host is in one rack
        rack = {node.machine: node.rack for node in nodes}
        nodes = [replace(node, rack=rack[node.machine]) for node in nodes]
    return tuple(nodes)


def topology(draw: Random, name: str, resources: bool = False, most: int = 4) -> Topology:
    """Return a topology of one to five components without cycles; the first id may belong to a bolt."""
    ids = draw.sample("abcdefghij", draw.randint(1, 5))
    components: list[Component] = []
    for at, own in enumerate(ids):
        sources = draw.sample(ids[:at], draw.randint(0, min(at, 2))) if at else []
        inputs = []
        for source in sources:
            for stream in ("default", "other")[: 1 + (draw.random() < 0.15)]:
                grouping = draw.choice(GROUPINGS)
                inputs.append(Input(source, grouping, ("key",) if grouping == "fields" else (), stream))
        demands: dict[str, float] = {}
        if resources:
            demands = {
                "cpu": float(draw.choice([0, 10, 25, 50, 100])),
                "onheap_mb": float(draw.choice([64, 128, 256])),
                "offheap_mb": float(draw.choice([0, 0, 64])),
            }
        components.append(
            Component(
                id=own,
                kind="bolt" if inputs else "spout",
                parallelism=draw.randint(1, most),
                inputs=tuple(inputs),
                **demands,
            )
        )
    if draw.random() < 0.3:
        components.append(Component(ACKER, "bolt", draw.randint(1, 3)))
    draw.shuffle(components)
    return Topology(id=name, components=tuple(components), workers=draw.randint(1, 6))


def without_ackers(graph: Topology) -> Topology:
    """Return a topology without ackers, whose name does not have the smallest hash code."""
    return replace(graph, components=tuple(component for component in graph.components if component.id != ACKER))


def running(
    draw: Random, nodes: Sequence[Node], topologies: Sequence[Topology], alone: bool = False, share: float = 0.5
) -> Workers:
    """Return workers of some topologies on any nodes; some executors are in no worker.

    Args:
        draw: random generator.
        nodes: nodes of the cluster.
        topologies: topologies of the round.
        alone: topologies do not share nodes.
        share: probability that a topology runs.
    """
    free = {node.id: list(range(node.slots)) for node in nodes if node.slots}
    found: Workers = []
    for graph in topologies:
        if draw.random() > share or not any(free.values()):
            continue
        executors = list(graph.executors)
        draw.shuffle(executors)
        if draw.random() < 0.5:
            executors = executors[: draw.randint(1, len(executors))]
        workers = draw.randint(1, min(graph.workers, len(executors)))  # with more, Storm's schedulers fail
        mine: set[str] = set()
        for first in range(workers):
            places = [name for name, slots in free.items() if slots]
            if not places:
                break
            node = draw.choice(places)
            mine.add(node)
            slot = free[node].pop(draw.randrange(len(free[node])))
            found.append(ExistingWorker(graph.id, node, slot, tuple(e.name for e in executors[first::workers])))
        if alone:
            for node in mine:
                free.pop(node)
    return found


def problem_of(nodes: Sequence[Node], topologies: Sequence[Topology], existing: Workers) -> Problem:
    return Problem(Cluster(tuple(nodes), existing=tuple(existing)), tuple(topologies))


def even(draw: Random) -> StormRound:
    nodes = cluster(draw)
    graphs = [topology(draw, name) for name in "abc"[: draw.randint(1, 3)]]
    existing = running(draw, nodes, graphs)
    return StormRound("even", problem_of(with_ports_in_order(nodes, existing), graphs, existing))


def default(draw: Random) -> StormRound:
    return StormRound("default", even(draw).problem)


def isolation(draw: Random) -> StormRound:
    """Return a round with isolated topologies, some of which run already as they would be placed."""
    nodes = cluster(draw, shared_hosts=True)
    graphs = []
    for name in "abc"[: draw.randint(1, 3)]:
        graph = without_ackers(topology(draw, name))
        graphs.append(replace(graph, workers=min(graph.workers, len(graph.executors))))
    chosen = draw.sample(graphs, draw.randint(1, len(graphs)))
    machines = {graph.id: draw.randint(1, 3) for graph in chosen}
    existing = running(draw, nodes, graphs)
    params = {"machines": machines}
    return StormRound(
        "isolation", problem_of(nodes, graphs, existing), params, {"isolation.scheduler.machines": machines}
    )


def multitenant(draw: Random) -> StormRound:
    nodes = cluster(draw, least_slots=1)  # Storm lends nodes without slots, Millrace leaves them out
    graphs = []
    for name in "abc"[: draw.randint(1, 3)]:
        graph = without_ackers(topology(draw, name))
        isolated = draw.choice([None, None, 1, 2, 3])
        graphs.append(replace(graph, user=draw.choice("uvw"), isolated_nodes=isolated))
    pools = {user: draw.randint(0, 4) for user in "uv" if draw.random() < 0.6}
    spread = {
        graph.id: tuple(draw.sample([c.id for c in graph.components], 1)) for graph in graphs if draw.random() < 0.3
    }
    conf: dict[str, dict[str, Any]] = {graph.id: {} for graph in graphs}
    for graph in graphs:
        if graph.isolated_nodes is not None:
            conf[graph.id]["topology.isolate.machines"] = graph.isolated_nodes
        if graph.id in spread:
            conf[graph.id]["topology.spread.components"] = list(spread[graph.id])
    existing = running(draw, nodes, graphs, alone=draw.random() < 0.7)
    return StormRound(
        "multitenant",
        problem_of(nodes, graphs, existing),
        {"user_pools": pools, "spread": spread},
        {"multitenant.scheduler.user.pools": pools},
        conf,
    )


STRATEGIES = {
    "default": "DefaultResourceAwareStrategy",
    "default-old": "DefaultResourceAwareStrategyOld",
    "generic": "GenericResourceAwareStrategy",
    "round-robin": "RoundRobinResourceAwareStrategy",
    "constraint": "ConstraintSolverStrategy",
}
_PACKAGE = "org.apache.storm.scheduler.resource.strategies."


def resource_aware(draw: Random, strategy: str) -> StormRound:
    nodes = cluster(draw, resources=True, shared_hosts=True)
    graphs = []
    ages = draw.sample(range(10, 100), 3)
    for name, age in zip("abc"[: draw.randint(1, 3)], ages, strict=False):
        graph = topology(draw, name, resources=True, most=5)
        graphs.append(
            replace(
                graph,
                user=draw.choice("uv"),
                priority=draw.randint(0, 2),
                uptime_s=float(age),
                worker_max_heap_mb=float(draw.choice([256, 512, 768])),
                constraints=_constraints(draw, graph) if strategy == "constraint" else None,
                isolated_nodes=draw.choice([None, 1, 2, 3]) if strategy == "round-robin" else None,
            )
        )
    states = draw.choice([100, 500])
    params: dict[str, Any] = {"strategy": strategy, "search_states": states}
    conf: dict[str, Any] = {}
    each: dict[str, Any] = {
        "topology.scheduler.strategy": f"{_PACKAGE}scheduling.{STRATEGIES[strategy]}",
        "topology.ras.constraint.max.state.search": states,
    }
    for name, setting in (
        ("order_by_proximity", "topology.ras.order.executors.by.proximity.needs"),
        ("one_executor_per_worker", "topology.ras.one.executor.per.worker"),
        ("one_component_per_worker", "topology.ras.one.component.per.worker"),
    ):
        if draw.random() < 0.2:
            params[name] = each[setting] = True
    if draw.random() < 0.3:
        params["worker_min_cpu"] = conf["storm.worker.min.cpu.pcore.percent"] = float(draw.choice([10, 50]))
    if draw.random() < 0.3:
        pools = {user: {"cpu": float(draw.randint(0, 400)), "memory_mb": float(draw.randint(0, 4096))} for user in "uv"}
        params["user_pools"] = pools
        conf["resource.aware.scheduler.user.pools"] = {
            user: {"cpu": pool["cpu"], "memory": pool["memory_mb"]} for user, pool in pools.items()
        }
    if draw.random() < 0.2:
        params["priority"] = "fifo"
        conf["resource.aware.scheduler.priority.strategy"] = f"{_PACKAGE}priority.FIFOSchedulingPriorityStrategy"
    for name, setting in (
        ("favored_nodes", "topology.scheduler.favored.nodes"),
        ("unfavored_nodes", "topology.scheduler.unfavored.nodes"),
    ):
        alone = [node.id for node in nodes if node.machine == node.id]  # Storm favours hosts
        if alone and draw.random() < 0.15:
            params[name] = tuple(draw.sample(alone, 1))
            each[setting] = list(params[name])
    per_topology = {graph.id: {**each, **_of_one(graph)} for graph in graphs}
    existing = fitting(running(draw, nodes, graphs, share=0.5), nodes, graphs, params.get("worker_min_cpu", 0.0))
    return StormRound("resource-aware", problem_of(nodes, graphs, existing), params, conf, per_topology)


def fitting(existing: Workers, nodes: Sequence[Node], graphs: Sequence[Topology], least_cpu: float = 0.0) -> Workers:
    """Leave out executors that do not fit on their node or in the heap of their worker: Storm never placed those."""
    by_id = {graph.id: graph for graph in graphs}
    cpu = {node.id: node.demand_points for node in nodes}
    memory = {node.id: node.memory_mb for node in nodes}
    found: Workers = []
    for worker in existing:
        graph = by_id[worker.topology]
        names: list[str] = []
        had = heap = 0.0
        for name in worker.executors:
            component = graph.component[Executor.named(name).component]
            points = max(
                sum((graph.component[Executor.named(n).component].cpu_points for n in [*names, name]), 0.0), least_cpu
            )
            if points - had > cpu[worker.node] or component.memory > memory[worker.node]:
                continue
            if heap + component.onheap > graph.worker_max_heap_mb:
                continue
            cpu[worker.node] -= points - had
            memory[worker.node] -= component.memory
            had, heap = points, heap + component.onheap
            names.append(name)
        if names:
            found.append(replace(worker, executors=tuple(names)))
    return found


def _constraints(draw: Random, graph: Topology) -> Constraints:
    ids = sorted(component.id for component in graph.components)
    pairs = tuple(tuple(draw.sample(ids, 2)) for _ in range(draw.randint(0, 2))) if len(ids) > 1 else ()
    return Constraints(pairs, {draw.choice(ids): draw.randint(1, 3)} if draw.random() < 0.5 else {})  # type: ignore[arg-type]


def _of_one(graph: Topology) -> dict[str, Any]:
    """Return Storm's settings that differ between topologies; Nimbus computes ackers per worker at submission."""
    heap = sum(c.onheap * c.parallelism for c in graph.components if not c.id.startswith("__"))
    workers = -(-heap // graph.worker_max_heap_mb)
    found: dict[str, Any] = {}
    if ACKER in graph.component:
        found["topology.acker.executors"] = graph.component[ACKER].parallelism
        found["topology.ras.acker.executors.per.worker"] = int(
            -(-graph.component[ACKER].parallelism // max(workers, 1))
        )
    if graph.isolated_nodes is not None:
        found["topology.isolate.machines"] = graph.isolated_nodes
    if graph.constraints is not None:
        rules: dict[str, dict[str, Any]] = {}
        for one, other in graph.constraints.incompatible:
            rules.setdefault(one, {}).setdefault("incompatibleComponents", []).append(other)
        for component, most in graph.constraints.max_per_node.items():
            rules.setdefault(component, {})["maxNodeCoLocationCnt"] = most
        found["topology.ras.constraints"] = rules
    return found


STRATEGY = "org.apache.storm.scheduler.resource.strategies.scheduling.DefaultResourceAwareStrategy"


def _text_bucket(text: str) -> int:
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
            while _text_bucket(f"{node.id}:{port}") != bucket:
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
