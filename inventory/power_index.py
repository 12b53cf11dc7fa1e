"""Computing power of a node (TOP-Storm), the resulting rank, and its four sources of FLOPs per cycle.

"TOP-Storm: A topology-based resource-aware scheduler for Stream Processing Engine" (Muhammad, Aleem, Islam,
2020):

    speed(u) = sockets * cores * GHz * FLOPs per cycle            (Eq. 1, GFLOPs)
    power(u) = alpha * speed(u) + (1 - alpha) * RAM in GB         (Eq. 2)

Speed and RAM are added without scaling, as in the paper; `normalise` divides each by its largest value in the cluster
first. Nothing is rounded.

Sources of FLOPs per core and cycle, best first (TOP-Storm leaves the question open; its own table holds BogoMIPS); one
is used for all nodes of a cluster, and nothing is measured here:

- `config`: `flops_per_cycle` of the node, given by hand;
- `measured`: `facts.measured_flops_per_cycle`, a fused multiply-add loop timed when the node was provisioned, with the
  error `facts.measured_flops_error`;
- `isa`: double-precision peak per core and cycle, from the processor flags in `facts.isa`;
- `bogomips`: `facts.bogomips`, about twice the clock in MHz. Not a FLOP count: with it the index ranks like
  cores * clock squared, but the paper's hardware table needs it.

Measured FLOPs, and measured clocks, of equal hosts differ by noise, which must not order them: measurements that are
equal within their errors are replaced by their mean.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from inventory.cluster import Facts, Node
from inventory.errors import InputError

Source = Literal["config", "measured", "isa", "bogomips"]
SOURCES: tuple[Source, ...] = get_args(Source)

ONE_UNIT = "avx512-one-unit"
"""Added to `facts.isa` for processors with a single AVX-512 unit; not a flag of the kernel."""

ISA_FLOPS: tuple[tuple[frozenset[str], float], ...] = (
    (frozenset({"avx512f", ONE_UNIT}), 16.0),
    (frozenset({"avx512f"}), 32.0),
    (frozenset({"avx2", "fma"}), 16.0),
    (frozenset({"avx"}), 8.0),
    (frozenset({"asimd"}), 8.0),
    (frozenset({"neon"}), 8.0),
    (frozenset({"sse2"}), 4.0),
)
"""Flags -> double-precision FLOPs per core and cycle (lanes * 2 with FMA * pipes); the first that fits counts."""


class LackingNodeError(InputError):
    """A node lacks data needed for its computing power."""

    def __init__(self, node: str, message: str) -> None:
        super().__init__(message)
        self.node = node
        """Id of the node, so that a caller who has its file can name the line."""


def isa_flops(flags: Sequence[str]) -> float | None:
    """Return FLOPs per cycle of a core with these flags, or None without a known flag."""
    have = frozenset(flag.lower() for flag in flags)
    for needed, flops in ISA_FLOPS:
        if needed <= have:
            return flops
    return None


def _isa(node: Node) -> float | None:
    return isa_flops(node.facts.isa) if node.facts and node.facts.isa else None


_READ: dict[Source, tuple[str, Callable[[Node], float | None]]] = {
    "config": ("flops_per_cycle", lambda node: node.flops_per_cycle),
    "measured": (
        "facts.measured_flops_per_cycle",
        lambda node: node.facts.measured_flops_per_cycle if node.facts else None,
    ),
    "isa": ("facts.isa", _isa),
    "bogomips": ("facts.bogomips", lambda node: node.facts.bogomips if node.facts else None),
}


def flops_per_cycle(node: Node, source: Source) -> float | None:
    """Return FLOPs per core and cycle of `node` by `source`, or None when the node lacks it."""
    return _READ[source][1](node)


def choose_source(nodes: Sequence[Node], wanted: Source | None = None) -> Source:
    """Return the source available for all `nodes`: `wanted`, else the best one.

    Raises:
        LackingNodeError: a node lacks the wanted source, or no source is common to all.
    """
    if wanted is not None:
        for node in nodes:
            if flops_per_cycle(node, wanted) is None:
                key = _READ[wanted][0]
                known = ", ".join(sorted({flag for flags, _ in ISA_FLOPS for flag in flags}))
                hint = f"; known flags: {known}" if wanted == "isa" and node.facts and node.facts.isa else ""
                raise LackingNodeError(
                    node.id, f"node {node.id!r} gives no FLOPs per cycle: flops = {wanted} needs {key}{hint}"
                )
        return wanted
    for source in SOURCES:
        if all(flops_per_cycle(node, source) is not None for node in nodes):
            return source
    for node in nodes:
        if all(flops_per_cycle(node, source) is None for source in SOURCES):
            keys = ", ".join(key for key, _ in _READ.values())
            raise LackingNodeError(node.id, f"node {node.id!r} gives no FLOPs per cycle; it needs one of {keys}")
    lacking = next(node for node in nodes if node.flops_per_cycle is None)
    raise LackingNodeError(
        lacking.id,
        f"no source of FLOPs per cycle is common to all nodes, and they are not comparable: "
        f"give node {lacking.id!r} its flops_per_cycle too, or all nodes one kind of facts",
    )


FLOPS_ERROR, CLOCK_ERROR = 0.05, 0.02
"""Least relative errors of measured FLOPs per cycle and clocks: hosts have other work at times, and clocks vary."""


def agreed(measured: Sequence[tuple[float, float]]) -> list[float]:
    """Return values in which measurements that are equal within their errors are replaced by their weighted mean.

    The largest value and all that are equal to it form the first group, the largest of the others the next: a chain of
    near values does not make its ends equal. Weights are those of independent errors, 1 / error^2. The result does not
    depend on the order of the measurements.

    Args:
        measured: each value with its absolute error; a value with the error 0 is exact, and never replaced.
    """
    values = [value for value, _ in measured]
    left = sorted((at for at, (_, error) in enumerate(measured) if error), key=lambda at: measured[at], reverse=True)
    while left:
        most, error = measured[left[0]]
        group = [at for at in left if measured[at][0] + measured[at][1] >= most - error]
        least = min(measured[at][1] for at in group)
        weights = [(least / measured[at][1]) ** 2 for at in group]
        total = math.fsum(weight * measured[at][0] for weight, at in zip(weights, group, strict=True))
        for at in group:
            values[at] = total / math.fsum(weights)
        left = [at for at in left if at not in group]
    return values


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
    speeds = _speeds(usable, source)
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


def _speeds(nodes: Sequence[Node], source: Source) -> list[float]:
    clocks, flops = [], []
    for node in nodes:
        if node.ghz is None:
            raise LackingNodeError(node.id, f"node {node.id!r} has no computing power: the key 'ghz' is missing")
        per_cycle = flops_per_cycle(node, source)
        if per_cycle is None:
            raise ValueError(f"node {node.id!r} lacks the source {source!r} that was chosen for all")
        facts = node.facts or Facts()
        error = facts.measured_flops_error
        flops.append((per_cycle, per_cycle * (FLOPS_ERROR if error is None else error) if source == "measured" else 0))
        clocks.append((node.ghz, node.ghz * (facts.ghz_error or 0)))
    rates = zip(nodes, agreed(clocks), agreed(flops), strict=True)
    return [node.sockets * node.cores * ghz * per_cycle for node, ghz, per_cycle in rates]


def _shares(values: Sequence[float]) -> list[float]:
    largest = max(values, default=0.0)
    return [value / largest if largest else 0.0 for value in values]
