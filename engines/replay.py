"""The workload `replay`: a load document, on any engine.

On other engines our Java does what the document says (`millrace.Replay`). On Millrace's agents it is the synthetic
application of the same graph: bytes, selectivities and CPU time are those of the document, keys and sources are not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from engines.load import ComponentLoad, LoadDocument, StreamLoad, checked_load, load_document, read_load
from inventory.documents import Located, read
from inventory.errors import InputError
from workloads.derived_traffic import TupleCost, derived_traffic
from workloads.operators import Operator
from workloads.synthetic.from_topology import DeclaredLoad as SyntheticLoad
from workloads.synthetic.from_topology import FromTopology, FromTopologyParams
from workloads.topology import ACKER, DEFAULT_STREAM, Component, Input, Topology
from workloads.traffic import Traffic
from workloads.workload import Answer, PreparedInput, Verdict

EXAMPLE = LoadDocument(
    "declared",
    2.0,
    Topology(
        "replay",
        (
            Component("spout", "spout", 2),
            Component("split", "bolt", 4, inputs=(Input("spout"),)),
            Component("count", "bolt", 4, inputs=(Input("split", "fields", ("key",)),)),
        ),
        workers=2,
    ),
    {
        "spout": ComponentLoad(0.0, {DEFAULT_STREAM: StreamLoad(1.0, 60.0)}),
        "split": ComponentLoad(5_000.0, {DEFAULT_STREAM: StreamLoad(7.0, 16.0, (4.0, 3.0, 2.0, 1.0))}),
        "count": ComponentLoad(1_000.0),
    },
)
"""Load without a document: the graph of word count, with figures of its order."""


@dataclass(frozen=True)
class ReplayParams:
    """A load document.

    Attributes:
        load: a file with it, as `millrace load` writes it, or its content.
    """

    load: Annotated[str, Meta(min_length=1)] | LoadDocument = EXAMPLE

    def __post_init__(self) -> None:
        """Read the file, because nodes get the content only.

        Raises:
            InputError: the document is invalid, or has what the application cannot have.
        """
        given = self.load
        object.__setattr__(self, "load", read_load(given) if isinstance(given, str) else checked_load(given, "load"))
        try:
            synthetic(self.document)
        except ValueError as fault:
            raise InputError(f"{given}: {fault}" if isinstance(given, str) else str(fault)) from None

    @property
    def document(self) -> LoadDocument:
        """The document of the file."""
        if isinstance(self.load, str):
            raise TypeError("the file has not been read")
        return self.load


class ReplayWorkload:
    """See the module."""

    name = "replay"
    summary = "a load document: the CPU, selectivities and bytes of another topology, on any engine"
    paper = ""
    Params = ReplayParams

    def __init__(self, params: ReplayParams) -> None:
        self.params = params
        self._synthetic = FromTopology(synthetic(params.document))

    def topology(self) -> Topology:
        """Return the topology of the document, with the rows of synthetic applications."""
        return self._synthetic.topology()

    def operator(self, component: str) -> Operator:
        """Return a new operator of a component, for Millrace's agents."""
        return self._synthetic.operator(component)

    def costs(self) -> Mapping[str, TupleCost]:
        """Return component -> its cost; the document has that of spouts, too."""
        document = self.params.document
        return {
            name: cost._replace(cost_us=document.components[name].operations * document.operation_ns / 1e3)
            for name, cost in self._synthetic.costs().items()
            if name in document.components
        }

    def key_shares(self) -> Mapping[int, float]:
        """Return key -> its share of the records, as Millrace's agents generate them."""
        return self._synthetic.key_shares()

    def prepare(self, folder: Path) -> Sequence[PreparedInput]:
        """Measure this CPU."""
        return self._synthetic.prepare(folder)

    def reference(self, positions: Sequence[int], inputs: Sequence[PreparedInput]) -> Answer:
        """Return the digest of every sink."""
        return self._synthetic.reference(positions, inputs)

    def compare(self, answer: Answer, reference: Answer) -> Verdict:
        """Compare sink by sink."""
        return self._synthetic.compare(answer, reference)


def derived_load(path: str, records_per_s: float | None) -> tuple[Located[Topology], Located[Traffic]]:
    """Return the topology of a load document, and its traffic and loads as a replay on Millrace's agents has them.

    Args:
        path: the file.
        records_per_s: rate of all sources together; None: that of the document.

    Raises:
        InputError: the document is invalid, has what agents cannot replay, or has no rate of a source.
    """
    located = load_document(read(path))
    load, components = located.value, located.origin / "components"
    if records_per_s is None:
        records_per_s = 0.0
        for source in (component.id for component in load.topology.components if component.kind == "spout"):
            rate = load.components[source].rows_per_s
            if rate is None:
                raise (components / source).error("rows_per_s is missing; give the rate of all sources: --rate N")
            records_per_s += rate
    workload = ReplayWorkload(ReplayParams(path))
    traffic = derived_traffic(workload.topology(), records_per_s, workload.costs(), workload.key_shares())
    return Located(load.topology, located.origin / "topology"), Located(traffic, components)


def synthetic(load: LoadDocument) -> FromTopologyParams:
    """Return the parameters of the synthetic application of a load document.

    Raises:
        InputError, ValueError: a component has a load that a synthetic application cannot have.
    """
    loads = {}
    for component in load.topology.components:
        if component.id == ACKER:
            continue
        own = load.components[component.id]
        for stream in own.outputs:
            if stream != DEFAULT_STREAM:
                raise ValueError(f"load: {component.id!r} has the stream {stream!r}, expected {DEFAULT_STREAM!r} only")
        out = own.outputs.get(DEFAULT_STREAM)
        is_spout = component.kind == "spout"
        loads[component.id] = SyntheticLoad(
            cost_us=None if is_spout else own.operations * load.operation_ns / 1e3,
            tuple_bytes=None if out is None or out.bytes is None else round(out.bytes),
            selectivity=None if is_spout or out is None else out.selectivity,
        )
    return FromTopologyParams(topology_file=_without_fields(load.topology), components=loads)


def _without_fields(topology: Topology) -> Topology:
    """Return the topology as a synthetic application takes it, whose rows have their own fields."""
    plain = tuple(replace(component, outputs=None) for component in topology.components)
    return replace(topology, components=plain)
