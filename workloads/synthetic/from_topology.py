"""The synthetic application `from-topology`: any topology file as a workload, with generated rows.

Its components have the file's parallelism, groupings, demands and constraints, and costs, sizes and selectivities of
their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from inventory.errors import nearest
from workloads.operators import Operator
from workloads.synthetic.shaped import Cost, LoadParams, Selectivity, Synthetic, TupleBytes
from workloads.topology import ACKER, DEFAULT_STREAM, Component, Input, Topology, checked_topology, load_topology

EXAMPLE = Topology(
    "from-topology",
    (
        Component("spout", "spout", 6),
        Component("split", "bolt", 18, inputs=(Input("spout"),)),
        Component("count", "bolt", 8, inputs=(Input("split", "fields", ("key",)),)),
    ),
    workers=5,
)
"""Topology without a file: the graph of word count in the evaluation of Er-Stream (2022)."""


class DeclaredLoad(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Load of one component; what is not given is that of the workload.

    Attributes:
        cost_us: CPU per tuple in a bolt, in microseconds of the controller's CPU.
        tuple_bytes: bytes of payload in the tuples that it emits.
        selectivity: tuples that a bolt makes of one, on average.
    """

    cost_us: Cost | None = None
    tuple_bytes: TupleBytes | None = None
    selectivity: Selectivity | None = None


@dataclass(frozen=True)
class FromTopologyParams(LoadParams):
    """A topology file, and the loads of its components.

    Attributes:
        topology_file: a topology file, or the content of one.
        components: component -> its load.
    """

    topology_file: Annotated[str, Meta(min_length=1)] | Topology = EXAMPLE
    components: Mapping[str, DeclaredLoad] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the file, because nodes get the content only; check that it fits generated rows.

        Raises:
            InputError: the file is not a valid topology.
            ValueError: the topology or a load does not fit.
        """
        given = self.topology_file
        topology = load_topology(given) if isinstance(given, str) else checked_topology(given, "topology_file")
        object.__setattr__(self, "topology_file", topology)
        _check_graph(topology)
        for name, load in self.components.items():
            if name not in topology.component:
                raise ValueError(f"components: unknown component {name!r}{nearest(name, topology.component)}")
            _check_load(topology, topology.component[name], load)

    @property
    def graph(self) -> Topology:
        """The topology of the file."""
        if isinstance(self.topology_file, str):
            raise TypeError("the file has not been read")
        return self.topology_file


class FromTopology(Synthetic):
    """A topology file with generated rows."""

    name = "from-topology"
    summary = "any topology file, with a set cost, size and selectivity per component"
    paper = ""
    Params = FromTopologyParams

    def graph(self) -> Topology:
        """Return the file's topology; a fields grouping uses the generated key."""
        graph: Topology = self.params.graph
        return msgspec.structs.replace(
            graph,
            components=tuple(
                msgspec.structs.replace(component, outputs=None, inputs=tuple(map(_by_key, component.inputs)))
                for component in graph.components
            ),
        )

    def selectivity(self, component: str) -> float:
        """Return the component's own selectivity, else that of the workload."""
        own = self._load(component).selectivity
        return float(self.params.selectivity if own is None else own)

    def cost_us(self, component: str) -> float:
        """Return the component's own cost, else that of the workload."""
        own = self._load(component).cost_us
        return float(self.params.cost if own is None else own)

    def payload(self, component: str) -> int:
        """Return the component's own payload, else that of the workload."""
        own = self._load(component).tuple_bytes
        return int(self.params.payload if own is None else own)

    def operator(self, component: str) -> Operator:
        """Return a new operator of a component."""
        own = self._load(component).tuple_bytes
        return self._operator(component, self.cost_us(component), self.payload(component), own)

    def _load(self, component: str) -> DeclaredLoad:
        loads: Mapping[str, DeclaredLoad] = self.params.components
        return loads.get(component, DeclaredLoad())


def _by_key(entry: Input) -> Input:
    return msgspec.structs.replace(entry, fields=("key",)) if entry.grouping == "fields" else entry


def _check_graph(topology: Topology) -> None:
    read = {entry.source for component in topology.components for entry in component.inputs}
    for component in topology.components:
        who = f"topology_file: {component.kind} {component.id!r}"
        if component.kind == "spout" and component.id not in read:
            raise ValueError(f"{who}: no bolt receives its tuples")
        for entry in component.inputs:
            if entry.grouping == "direct":
                raise ValueError(f"{who}: generated rows name no executor, so the grouping 'direct' cannot be used")
            if entry.stream != DEFAULT_STREAM:
                raise ValueError(f"{who}: its input has the stream {entry.stream!r}, expected {DEFAULT_STREAM!r}")


def _check_load(topology: Topology, component: Component, load: DeclaredLoad) -> None:
    who = f"components.{component.id}"
    is_read = any(entry.source == component.id for other in topology.components for entry in other.inputs)
    if component.id == ACKER:
        raise ValueError(f"{who}: {ACKER} does no work")
    if component.kind == "spout" and (load.cost_us is not None or load.selectivity is not None):
        raise ValueError(f"{who}: a spout has 'tuple_bytes' only")
    if not is_read and (load.tuple_bytes is not None or load.selectivity is not None):
        raise ValueError(f"{who}: a sink has 'cost_us' only")
