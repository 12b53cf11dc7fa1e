"""`Traffic`: what was observed of running topologies; online schedulers need it."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from inventory.documents import Document, read
from inventory.errors import nearest
from workloads.topology import Topology

NonNegative = Annotated[float, Meta(ge=0)]


class Edge(
    Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename={"source": "from", "destination": "to"},
):
    """Tuples/s and bytes/s from one executor to another."""

    source: str
    destination: str
    tuples_per_s: NonNegative
    bytes_per_s: NonNegative = 0.0


class Traffic(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True):
    """Rates per executor pair, CPU points per executor, CPU share (0..1) per node."""

    edges: tuple[Edge, ...] = ()
    load: Mapping[str, NonNegative] = {}
    node_load: Mapping[str, NonNegative] = {}

    @cached_property
    def rate(self) -> dict[tuple[str, str], float]:
        """(source, destination) by executor name -> tuples/s; edges given twice are added."""
        rates: dict[tuple[str, str], float] = {}
        for edge in self.edges:
            key = (edge.source, edge.destination)
            rates[key] = rates.get(key, 0.0) + edge.tuples_per_s
        return rates


def load_traffic(path: str | Path, topologies: Sequence[Topology] = ()) -> Traffic:
    """Read a traffic file; with `topologies`, every executor in it must be one of theirs.

    Raises:
        InputError: the file is wrong; the message names file, line, key and value.
    """
    return traffic_of(read(path), topologies)


def traffic_of(document: Document, topologies: Sequence[Topology] = ()) -> Traffic:
    """Turn a document into `Traffic`, checking executor names against `topologies`."""
    traffic = document.convert(Traffic)
    known = {name for topology in topologies for name in topology.executor_named}
    if topologies:
        for at, edge in enumerate(traffic.edges):
            for key, name in (("from", edge.source), ("to", edge.destination)):
                if name not in known:
                    raise document.error(("edges", at, key), f"unknown executor {name!r}{nearest(name, known)}")
        for name in traffic.load:
            if name not in known:
                raise document.error(("load", name), f"unknown executor {name!r}{nearest(name, known)}")
    return traffic
