"""Acknowledgements: a topology whose tuples are tracked as Storm's acker tracks them, by tuples over real channels.

Every row gets two more fields, the id of the record that caused it (its root) and an id of its own (its edge). A source
tells an acker about each record (`__ack_init`), and a bolt about each row that it has processed (`__ack_ack`), with the
XOR of the ids that it received and emitted. When all ids of a record have cancelled out, the acker tells the source. A
source has no inputs here; so an executor of `__acked` in the source's worker gets that tuple.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from msgspec import structs

from workloads.topology import ACKER, Component, Executor, FieldType, Input, Topology

ACKED = "__acked"
"""Component with one executor per source executor, in its worker, which gets the acker's tuples to that source."""

INIT, ACK = "__ack_init", "__ack_ack"
"""Streams: from sources to ackers; from bolts to ackers, and from ackers to `__acked`. Storm's names."""

IDS: Mapping[str, FieldType] = {"__root": "int", "__edge": "int"}
"""Fields at the end of every row; both are 0 in a row that no record caused, such as at a tick."""

INIT_SCHEMA: Mapping[str, FieldType] = {"root": "int", "value": "int", "source": "int"}
ACK_SCHEMA: Mapping[str, FieldType] = {"root": "int", "value": "int"}
DONE_SCHEMA: Mapping[str, FieldType] = {"source": "int", "root": "int"}

Place = TypeVar("Place")


def is_tracked(topology: Topology) -> bool:
    """Return whether a topology is one of `tracked`."""
    return ACKED in topology.component


def tracked(topology: Topology) -> Topology:
    """Return the topology with acknowledgements; it must have ackers, and outputs must be declared.

    Executors keep their numbers, and those of `__acked` are added at the end.
    """
    working = [component for component in topology.components if component.id != ACKER]
    inputs = [Input(c.id, "fields", ("root",), INIT if c.kind == "spout" else ACK) for c in working]
    components = [
        structs.replace(component, outputs={ACK: DONE_SCHEMA}, inputs=tuple(inputs))
        if component.id == ACKER
        else _with_ids(component)
        for component in topology.components
    ]
    back = Component(ACKED, "bolt", len(source_executors(topology)), inputs=(Input(ACKER, "direct", ("source",), ACK),))
    return structs.replace(topology, components=(*components, back))


def _with_ids(component: Component) -> Component:
    outputs = {stream: {**schema, **IDS} for stream, schema in (component.outputs or {}).items()}
    own = {INIT: INIT_SCHEMA} if component.kind == "spout" else {ACK: ACK_SCHEMA}
    return structs.replace(component, outputs={**outputs, **own})


def source_executors(topology: Topology) -> Sequence[Executor]:
    """Return the source executors; the position of one is the index of its executor of `__acked`."""
    return [executor for executor in topology.executors if topology.component[executor.component].kind == "spout"]


def tracked_places(topology: Topology, places: Mapping[str, Place]) -> dict[str, Place]:
    """Return the places of a tracked topology, given those of the topology without acknowledgements."""
    beside = {Executor(ACKED, at).name: places[source.name] for at, source in enumerate(source_executors(topology))}
    return {**places, **beside}


def untracked_places(places: Mapping[str, Place]) -> dict[str, Place]:
    """Return the places without those of `__acked`."""
    return {name: place for name, place in places.items() if Executor.named(name).component != ACKED}


def receivers(topology: Topology, component: str, stream: str) -> list[tuple[int, int]]:
    """Return who gets a row of a stream, as (number of the component, index of the executor).

    The index is 0 if one executor of the component gets the row, whichever it is.
    """
    return [
        (at, index)
        for at, destination in enumerate(topology.components)
        for entry in destination.inputs
        if destination.id != ACKER and (entry.source, entry.stream) == (component, stream)
        for index in range(destination.parallelism if entry.grouping == "all" else 1)
    ]
