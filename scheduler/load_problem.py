"""Construction of a `Problem` from documents, with the checks that need cluster, topologies and traffic together."""

from collections.abc import Sequence

from inventory.cluster import Cluster, cluster_of
from inventory.documents import Document
from inventory.errors import nearest
from scheduler.problem import Needs, Problem
from workloads.topology import Executor, Topology, topology_of
from workloads.traffic import Traffic, traffic_of


def load_problem(
    needs: Needs, cluster: Document, topologies: Sequence[Document], traffic: Document | None = None
) -> Problem:
    """Return the scheduling round described by the documents, for a scheduler with these needs.

    Raises:
        InputError: a document is invalid, or the documents are inconsistent: two topologies with one name, a cycle that
            the scheduler's definition does not allow, a running worker with unknown executors, traffic of unknown
            executors or nodes.
    """
    nodes = cluster_of(cluster)
    graphs = [topology_of(document) for document in topologies]
    _check_names(topologies, graphs)
    if not needs.cycles:
        for document, topology in zip(topologies, graphs, strict=True):
            _check_cycle(document, topology)
    _check_existing(needs, cluster, nodes, graphs)
    return Problem(nodes, tuple(graphs), None if traffic is None else _traffic(traffic, nodes, graphs))


def _check_names(documents: Sequence[Document], topologies: Sequence[Topology]) -> None:
    first: dict[str, Document] = {}
    for document, topology in zip(documents, topologies, strict=True):
        if topology.id in first:
            other = first[topology.id].where(("id",))
            raise document.error(("id",), f"two topologies are called {topology.id!r}; the other one is at {other}")
        first[topology.id] = document


def _check_cycle(document: Document, topology: Topology) -> None:
    if not topology.cycle:
        return
    places = {component.id: at for at, component in enumerate(topology.components)}
    raise document.error(
        ("components", places[topology.cycle[0]], "inputs"),
        f"topology {topology.id!r} has a cycle, which this scheduler does not define: {' -> '.join(topology.cycle)}",
    )


def _check_existing(needs: Needs, document: Document, cluster: Cluster, topologies: Sequence[Topology]) -> None:
    by_id = {topology.id: topology for topology in topologies}
    seen: set[tuple[str, str]] = set()
    for at, worker in enumerate(cluster.existing):
        topology = by_id.get(worker.topology)
        for number, name in enumerate(worker.executors):
            here = ("existing", at, "executors", number)
            if (worker.topology, name) in seen:
                raise document.error(here, f"the executor {name!r} of {worker.topology!r} runs twice")
            seen.add((worker.topology, name))
            try:
                executor = Executor.named(name)
            except ValueError as fault:
                raise document.error(here, str(fault)) from None
            if topology is None or (needs.shrinks and executor.component in topology.component):
                continue
            if name not in topology.executor_named:
                hint = nearest(name, topology.executor_named)
                raise document.error(here, f"topology {topology.id!r} has no executor {name!r}{hint}")


def _traffic(document: Document, cluster: Cluster, topologies: Sequence[Topology]) -> Traffic:
    ids = {topology.id for topology in topologies}
    others = {name for worker in cluster.existing if worker.topology not in ids for name in worker.executors}
    traffic = traffic_of(document, topologies, others)
    for node in traffic.node_load:
        if node not in cluster.by_id:
            raise document.error(("node_load", node), f"unknown node {node!r}{nearest(node, cluster.by_id)}")
    return traffic
