"""`Traffic`: observed rates and loads of running topologies, used by online schedulers."""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from inventory.documents import Document, Located, Origin, read
from inventory.errors import nearest
from inventory.values import NonNegative
from workloads.topology import Topology

NodeLoad = Annotated[float, Meta(ge=0, le=2)]
"""A measured load overshoots 1 when a window and the clock of the node do not end together."""


class Edge(
    Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename={"source": "from", "destination": "to"},
    gc=False,
):
    """Tuples/s and bytes/s from one executor to another."""

    source: str
    destination: str
    tuples_per_s: NonNegative
    bytes_per_s: NonNegative = 0.0


class Traffic(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True):
    """Rates per executor pair, CPU points per executor, CPU share per node."""

    edges: tuple[Edge, ...] = ()
    load: Mapping[str, NonNegative] = {}
    node_load: Mapping[str, NodeLoad] = {}

    @cached_property
    def rate(self) -> dict[tuple[str, str], float]:
        """(source, destination) by executor name -> tuples/s; edges given twice are added."""
        rates: dict[tuple[str, str], float] = {}
        for edge in self.edges:
            key = (edge.source, edge.destination)
            rates[key] = rates.get(key, 0.0) + edge.tuples_per_s
        return rates


def load_traffic(path: str | Path, topologies: Sequence[Topology] = ()) -> Traffic:
    """Read a traffic file; with `topologies`, every executor in it must belong to one of them.

    Raises:
        InputError: the file is invalid; the message names file, line, key and value.
    """
    traffic = traffic_from_document(read(path))
    check_executors(traffic, topologies)
    return traffic.value


def traffic_from_document(document: Document) -> Located[Traffic]:
    """Convert a document to `Traffic`."""
    return Located(document.convert(Traffic), document.origin)


def check_executors(traffic: Located[Traffic], topologies: Sequence[Topology], others: Collection[str] = ()) -> None:
    """Check the executor names of `traffic` against `topologies`, unless there are none.

    Args:
        traffic: a traffic file.
        topologies: topologies whose executors it may name.
        others: names of other running executors.

    Raises:
        InputError: also for a name that occurs in two topologies, since its rate is ambiguous.
    """
    if not topologies:
        return
    owners: dict[str, list[str]] = {name: [] for name in others}
    for topology in topologies:
        for name in topology.executor_named:
            owners.setdefault(name, []).append(topology.id)
    for at, edge in enumerate(traffic.value.edges):
        here = traffic.origin / "edges" / at
        source = _owner(here / "from", edge.source, owners)
        destination = _owner(here / "to", edge.destination, owners)
        if source is not None and destination is not None and source != destination:
            raise (here / "to").error(
                f"{edge.source!r} is of topology {source!r} and {edge.destination!r} of {destination!r}"
            )
    for name in traffic.value.load:
        _owner(traffic.origin / "load" / name, name, owners)


def _owner(origin: Origin, name: str, owners: Mapping[str, Sequence[str]]) -> str | None:
    """Return the topology of executor `name`, or None for a topology outside the round."""
    if name not in owners:
        raise origin.error(f"unknown executor {name!r}{nearest(name, owners)}")
    if len(owners[name]) > 1:
        both = " and ".join(map(repr, owners[name][:2]))
        raise origin.error(f"the topologies {both} both have an executor {name!r}")
    return owners[name][0] if owners[name] else None
