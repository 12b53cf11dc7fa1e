"""Computing power of a node (TOP-Storm) and the resulting rank.

"TOP-Storm: A topology-based resource-aware scheduler for Stream Processing Engine" (Muhammad, Aleem, Islam,
2020):

    speed(u) = sockets * cores * GHz * FLOPs per cycle            (Eq. 1, GFLOPs)
    power(u) = alpha * speed(u) + (1 - alpha) * RAM in GB         (Eq. 2)

Speed and RAM are added without scaling, as in the paper; `normalise` divides each by its largest value in the cluster
first. Nothing is rounded.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from inventory.cluster import Node
from inventory.flops import LackingNodeError, Source, choose_source, flops_per_cycle

ALPHA = 0.8
"""The paper's weight of speed against RAM."""


@dataclass(frozen=True)
class NodePower:
    """Computing power of a node, and its rank.

    Attributes:
        node: the node's id.
        power: Eq. 2.
        index: dense rank, 1 = most powerful; equal power, equal index.
    """

    node: str
    power: float
    index: int


@dataclass(frozen=True)
class PowerIndex:
    """The nodes of a cluster by computing power.

    Attributes:
        ranked: largest power first, equal power by name.
        source: source of FLOPs per cycle.
    """

    ranked: tuple[NodePower, ...]
    source: Source


def power_index(
    nodes: Sequence[Node], alpha: float = ALPHA, normalise: bool = False, flops: Source | None = None
) -> PowerIndex:
    """Rank the available nodes of `nodes` by computing power.

    Unavailable nodes are left out, since they may lack facts.

    Raises:
        LackingNodeError: an available node lacks its clock or a source of FLOPs per cycle.
    """
    usable = [node for node in nodes if node.available]
    source = choose_source(usable, flops)
    speeds = [_speed(node, source) for node in usable]
    rams = [node.ram for node in usable]
    if normalise:
        speeds, rams = _shares(speeds), _shares(rams)
    powers = [alpha * speed + (1 - alpha) * ram for speed, ram in zip(speeds, rams, strict=True)]
    order = sorted(range(len(usable)), key=lambda at: (-powers[at], usable[at].id))
    ranked: list[NodePower] = []
    for at in order:
        rank = 1 if not ranked else ranked[-1].index + (powers[at] != ranked[-1].power)
        ranked.append(NodePower(usable[at].id, powers[at], rank))
    return PowerIndex(tuple(ranked), source)


def _speed(node: Node, source: Source) -> float:
    if node.ghz is None:
        raise LackingNodeError(node.id, f"node {node.id!r} has no computing power: the key 'ghz' is missing")
    flops = flops_per_cycle(node, source)
    if flops is None:
        raise ValueError(f"node {node.id!r} lacks the source {source!r} that was chosen for all")
    return node.sockets * node.cores * node.ghz * flops


def _shares(values: Sequence[float]) -> list[float]:
    largest = max(values, default=0.0)
    return [value / largest if largest else 0.0 for value in values]
