"""Traffic between nodes: by pairs of components, by pairs of executors, by pairs of nodes.

Rates of both directions are added. Without observed traffic every communicating pair counts 1, and pairs are counted by
class (`scheduler.toolkit.equivalence_classes`), never listed.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from itertools import combinations
from math import fsum

from msgspec import Struct

from scheduler.problem import Placement, Problem
from scheduler.toolkit.equivalence_classes import Classes, classes_of
from workloads.topology import Executor, Topology
from workloads.traffic import Traffic

MOST_SHOWN = 10
"""Maximum number of links and pairs listed in an explanation."""


class CutLink(Struct, frozen=True, forbid_unknown_fields=True):
    """Two components of a topology: the rate between them that crosses nodes, and their total rate."""

    topology: str
    source: str
    destination: str
    cut: int | float
    total: int | float


class CutPair(Struct, frozen=True, forbid_unknown_fields=True):
    """Two communicating executors on different nodes."""

    source: str
    source_node: str
    destination: str
    destination_node: str
    tuples_per_s: float


def cut_links(problem: Problem, placements: Mapping[str, Placement], most: int = MOST_SHOWN) -> tuple[CutLink, ...]:
    """Return the links with the highest rate between nodes, at most `most`; ties as listed in the topologies.

    Executors without a slot are ignored.
    """
    found: list[CutLink] = []
    for topology in problem.topologies:
        assignments = placements[topology.id].assignments
        if problem.traffic is None:
            found.extend(_declared_links(topology, {e: slot.node for e, slot in assignments.items()}))
        else:
            nodes = {e.name: slot.node for e, slot in assignments.items()}
            found.extend(_observed_links(topology, nodes, problem.traffic))
    found.sort(key=lambda link: -link.cut)
    return tuple(link for link in found[:most] if link.cut > 0)


def _counted(topology: Topology, node_of: Mapping[Executor, str]) -> tuple[Classes, list[Counter[str]]]:
    """Return the topology's classes, and for each the number of its executors per node."""
    classes = classes_of(topology)
    where = [
        Counter(node for e in members if (node := node_of.get(topology.executors[e])) is not None)
        for members in classes.members
    ]
    return classes, where


def _declared_links(topology: Topology, node_of: Mapping[Executor, str]) -> list[CutLink]:
    classes, where = _counted(topology, node_of)
    component = [topology.executors[members[0]].component for members in classes.members]
    cut: Counter[tuple[str, str]] = Counter()
    total: Counter[tuple[str, str]] = Counter()
    for one, others in enumerate(classes.linked):
        for other in others:
            if other < one:
                continue
            key = (component[one], component[other])
            if other == one:
                count = where[one].total()
                pairs = count * (count - 1) // 2
                kept = sum(times * (times - 1) // 2 for times in where[one].values())
            else:
                pairs = where[one].total() * where[other].total()
                fewer, more = sorted((where[one], where[other]), key=len)
                kept = sum(times * more[node] for node, times in fewer.items() if node in more)
            total[key] += pairs
            cut[key] += pairs - kept
    return [CutLink(topology.id, *_directed(topology, key), cut[key], total[key]) for key in total]


def _directed(topology: Topology, key: tuple[str, str]) -> tuple[str, str]:
    """Return `key` with the source first where tuples flow only in the other direction."""
    one, other = key
    forth = any(entry.source == one for entry in topology.component[other].inputs)
    return (one, other) if forth else (other, one)


def _observed_links(topology: Topology, node_of: Mapping[str, str], traffic: Traffic) -> list[CutLink]:
    order = {component.id: at for at, component in enumerate(topology.components)}
    cut: dict[tuple[str, str], list[float]] = {}
    total: dict[tuple[str, str], list[float]] = {}
    for edge in traffic.edges:
        source, destination = node_of.get(edge.source), node_of.get(edge.destination)
        if source is None or destination is None:
            continue
        ends = (Executor.named(edge.source).component, Executor.named(edge.destination).component)
        one, other = sorted(ends, key=order.__getitem__)
        total.setdefault((one, other), []).append(edge.tuples_per_s)
        if source != destination:
            cut.setdefault((one, other), []).append(edge.tuples_per_s)
    return [
        CutLink(topology.id, *_directed(topology, key), fsum(cut.get(key, ())), fsum(total[key]))
        for key in sorted(total, key=lambda pair: (order[pair[0]], order[pair[1]]))
    ]


def heaviest_pairs(
    traffic: Traffic, placements: Mapping[str, Placement], most: int = MOST_SHOWN
) -> tuple[CutPair, ...]:
    """Return the executor pairs with the highest observed rate between nodes, at most `most`.

    Ties keep the order of the traffic.
    """
    node_of = {e.name: slot.node for placement in placements.values() for e, slot in placement.assignments.items()}
    rates: dict[tuple[str, str], list[float]] = {}
    for edge in traffic.edges:
        if edge.source in node_of and edge.destination in node_of:
            key = (edge.source, edge.destination)
            rates.setdefault(key[::-1] if key[::-1] in rates else key, []).append(edge.tuples_per_s)
    cut = [
        CutPair(one, node_of[one], other, node_of[other], fsum(found))
        for (one, other), found in rates.items()
        if node_of[one] != node_of[other]
    ]
    cut.sort(key=lambda pair: -pair.tuples_per_s)
    return tuple(pair for pair in cut[:most] if pair.tuples_per_s > 0)


def between_nodes(
    problem: Problem, placements: Mapping[str, Placement], nodes: Collection[str]
) -> dict[tuple[str, str], float]:
    """Return pairs of `nodes`, in cluster order -> rate between them; pairs without traffic are left out."""
    place = {node.id: at for at, node in enumerate(problem.cluster.nodes)}
    found: dict[tuple[str, str], list[float]] = {}
    for topology in problem.topologies:
        assignments = placements[topology.id].assignments
        if problem.traffic is None:
            _declared_between(topology, {e: slot.node for e, slot in assignments.items() if slot.node in nodes}, found)
    if problem.traffic is not None:
        node_of = {e.name: slot.node for placement in placements.values() for e, slot in placement.assignments.items()}
        for edge in problem.traffic.edges:
            source, destination = node_of.get(edge.source), node_of.get(edge.destination)
            if source in nodes and destination in nodes and source is not None and destination is not None:
                found.setdefault((source, destination), []).append(edge.tuples_per_s)
    summed: dict[tuple[str, str], list[float]] = {}
    for (one, other), rates in found.items():
        if one != other:
            key = (one, other) if place[one] < place[other] else (other, one)
            summed.setdefault(key, []).extend(rates)
    ordered = sorted(summed, key=lambda pair: (place[pair[0]], place[pair[1]]))
    return {pair: rate for pair in ordered if (rate := fsum(summed[pair])) > 0}


def _declared_between(
    topology: Topology, node_of: Mapping[Executor, str], found: dict[tuple[str, str], list[float]]
) -> None:
    classes, where = _counted(topology, node_of)
    for one, others in enumerate(classes.linked):
        for other in others:
            if other == one:
                for a, b in combinations(where[one], 2):
                    found.setdefault((a, b), []).append(where[one][a] * where[one][b])
            elif other > one:
                for a, times in where[one].items():
                    for b, more in where[other].items():
                        found.setdefault((a, b), []).append(times * more)
