"""FLOPs per cycle of a core: four sources, one choice for all nodes of a cluster.

Sources, best first (TOP-Storm leaves the question open; its own table holds BogoMIPS):

- `config`: `flops_per_cycle` of the node, given by hand;
- `measured`: `facts.measured_flops_per_cycle`, a fused multiply-add loop timed when the node was provisioned;
- `isa`: double-precision peak per core and cycle, from the processor flags in `facts.isa`;
- `bogomips`: `facts.bogomips`, about twice the clock in MHz. Not a FLOP count: with it the index ranks like
  cores * clock squared, but the paper's hardware table needs it.

Nothing is measured here.
"""

from collections.abc import Callable, Sequence
from typing import Literal, get_args

from inventory.cluster import Node
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
