"""The load document: what a topology costs, without saying on which engine, and its replay there.

    {"source": "001-wordcount-even-r1", "operation_ns": 1.9, "topology": {...},
     "components": {"split": {"operations": 5200.0, "outputs": {"default": {"selectivity": 7.4, "bytes": 11.2,
                                                                             "keys": [0.31, 0.69]}}}, ...}}

CPU per row is a number of operations (`millrace.Work`), not a time: a node with less CPU takes longer for them, as it
would for real work. `operation_ns` is how long one took on the machine where the document was made.
"""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from engines.job import component_key
from inventory.documents import Document, Located, Origin, read, to_plain
from inventory.errors import InputError, nearest
from inventory.values import Positive
from workloads.topology import ACKER, Component, FieldType, Input, Topology, topology_of

Operations = Annotated[float, Meta(ge=0, le=1e12)]
Selectivity = Annotated[float, Meta(ge=0, le=1e6)]
Bytes = Annotated[float, Meta(ge=0, le=1 << 20)]
Share = Annotated[float, Meta(ge=0, le=1e15)]

KEY, PAYLOAD = "key", "payload"
ROW: Mapping[str, FieldType] = {KEY: "int", PAYLOAD: "bytes"}
"""Fields of a replayed row."""

KEY_BYTES = 8

REPLAYED = ("shuffle", "fields", "global", "all", "local-or-shuffle")
"""Groupings that replayed rows can have; a direct one would need an executor's number in every row."""


class StreamLoad(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Rows on one stream of a component.

    Attributes:
        selectivity: rows per row that the component processes, or per record of a spout.
        bytes: bytes of a row as it is sent to another worker; None: not known.
        keys: share of every key, in any unit; key k has the k-th share.
    """

    selectivity: Selectivity
    bytes: Bytes | None = None
    keys: Annotated[tuple[Share, ...], Meta(min_length=1, max_length=100_000)] = (1.0,)


class ComponentLoad(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Load of a component.

    Attributes:
        operations: CPU per row that it processes, or per record of a spout.
        outputs: stream -> rows on it.
        rows_per_s: rows, or records, per second where the document comes from; a replay has the rate of its agenda.
    """

    operations: Operations
    outputs: Mapping[str, StreamLoad] = {}
    rows_per_s: Share | None = None


class LoadDocument(Struct, frozen=True, forbid_unknown_fields=True):
    """See the module.

    Attributes:
        source: where the figures come from: a run, or `declared`.
        operation_ns: CPU time of an operation where the document was made.
        topology: components with their parallelism and groupings.
        components: load of every component, except ackers.
    """

    source: str
    operation_ns: Positive
    topology: Topology
    components: Mapping[str, ComponentLoad]


def load_document(document: Document) -> Located[LoadDocument]:
    """Convert a document, with the checks that involve several keys.

    Raises:
        InputError: it is invalid; the message names file, line, key, value and the nearest valid choice.
    """
    load, origin = document.convert(LoadDocument), document.origin
    lines = {steps[1:]: line for steps, line in document.lines.items() if steps[:1] == ("topology",)}
    topology = topology_of(Document(document.source, document.data["topology"], lines)).value
    working = {component.id: component for component in topology.components if component.id != ACKER}
    for name, each in load.components.items():
        here = origin / "components" / name
        if name not in working:
            raise here.error(f"the topology has no component {name!r}{nearest(name, working)}")
        _check_streams(here, topology, working[name], each)
    for name in working:
        if name not in load.components:
            raise (origin / "components").error(f"the load of the component {name!r} is missing")
    for at, component in enumerate(topology.components):
        for place, entry in enumerate(component.inputs):
            if entry.grouping not in REPLAYED:
                here = origin / "topology" / "components" / at / "inputs" / place / "grouping"
                raise here.error(f"{entry.grouping!r} cannot be replayed{nearest(entry.grouping, REPLAYED)}")
    return Located(load, origin)


def _check_streams(here: Origin, topology: Topology, component: Component, load: ComponentLoad) -> None:
    read = streams_read(topology, component.id)
    for stream, each in load.outputs.items():
        if stream not in read:
            raise (here / "outputs" / stream).error(
                f"nobody reads the stream {stream!r} of {component.id!r}{nearest(stream, read)}"
            )
        if not sum(each.keys):
            raise (here / "outputs" / stream / "keys").error("all shares are 0")
    for stream in read:
        if stream not in load.outputs:
            raise here.error(f"the stream {stream!r} is read, and 'outputs' lacks it")


def streams_read(topology: Topology, component: str) -> list[str]:
    """Return the streams of a component that have subscribers, each once."""
    return list(dict.fromkeys(entry.stream for source, _, entry in topology.links() if source.id == component))


def replayed(load: LoadDocument) -> Topology:
    """Return the topology of the replay: the same components and groupings, with rows of a key and a payload."""
    components = []
    for component in load.topology.components:
        if component.id != ACKER:
            outputs = dict.fromkeys(streams_read(load.topology, component.id), ROW)
            component = replace(component, outputs=outputs or None, inputs=tuple(map(_by_key, component.inputs)))
        components.append(component)
    return replace(load.topology, components=tuple(components))


def _by_key(entry: Input) -> Input:
    return replace(entry, fields=(KEY,)) if entry.grouping == "fields" else entry


def replay_settings(load: LoadDocument) -> dict[str, str | int | float]:
    """Return the lines of `job.properties` that `millrace.Replay` needs.

    Raises:
        InputError: the bytes of a stream are not known.
    """
    lines: dict[str, str | int | float] = {}
    working = [component for component in replayed(load).components if component.id != ACKER]
    for number, component in enumerate(working):
        own = load.components[component.id]
        lines[f"{component_key(number)}.operations"] = own.operations
        for at, stream in enumerate(component.outputs or ()):
            flow, key = own.outputs[stream], f"{component_key(number)}.replay.{at}"
            if flow.bytes is None:
                raise InputError(
                    f"components.{component.id}.outputs.{stream}.bytes: not known, because no row left its worker in "
                    f"{load.source}; give a number, or take the document from a run that spreads executors"
                )
            lines[f"{key}.selectivity"] = flow.selectivity
            lines[f"{key}.payload"] = max(0, round(flow.bytes) - KEY_BYTES)
            lines[f"{key}.keys"] = " ".join(map(repr, flow.keys))
    return lines


class ComponentTotals(Struct, frozen=True):
    """Work of a component in a part of a run.

    Attributes:
        rows: rows processed; of a spout, records emitted.
        cpu_ns: CPU time.
        sent: stream -> rows sent, each counted once however many subscribers it had.
        remote_rows, remote_bytes: the same -> rows that were sent to other workers, and their bytes.
        received: stream -> rows received by each executor of the subscriber with the most executors.
    """

    rows: float
    cpu_ns: float
    sent: Mapping[str, float] = {}
    remote_rows: Mapping[str, float] = {}
    remote_bytes: Mapping[str, float] = {}
    received: Mapping[str, tuple[float, ...]] = {}


def run_load_document(
    source: str, topology: Topology, totals: Mapping[str, ComponentTotals], seconds: float, operation_ns: float
) -> LoadDocument:
    """Return the load document of a run.

    Args:
        source: name of the run.
        topology: its topology, without acknowledgements.
        totals: component -> what it did.
        seconds: in this time.
        operation_ns: CPU time of an operation on this machine.

    Raises:
        InputError: a component has done nothing.
    """
    components = {}
    for component in topology.components:
        if component.id == ACKER:
            continue
        each = totals.get(component.id)
        if each is None or each.rows <= 0:
            raise InputError(f"{source}: {component.id!r} has processed nothing, so that its load is not known")
        outputs = {
            stream: StreamLoad(
                selectivity=_rounded(each.sent.get(stream, 0.0) / each.rows),
                bytes=_rounded(each.remote_bytes[stream] / each.remote_rows[stream])
                if each.remote_rows.get(stream)
                else None,
                keys=_shares(each.received.get(stream, ())),
            )
            for stream in streams_read(topology, component.id)
        }
        operations = round(each.cpu_ns / each.rows / operation_ns, 1)
        components[component.id] = ComponentLoad(operations, outputs, round(each.rows / seconds, 3))
    plain = tuple(replace(component, outputs=None) for component in topology.components)
    return LoadDocument(source, round(operation_ns, 4), replace(topology, components=plain), components)


def _shares(received: tuple[float, ...]) -> tuple[float, ...]:
    total = sum(received)
    return tuple(round(rows / total, 6) for rows in received) if total else (1.0,)


def _rounded(value: float) -> float:
    return round(value, 4)


def read_load(path: str) -> LoadDocument:
    """Read a load document.

    Raises:
        InputError: see `load_document`.
    """
    return load_document(read(path)).value


def checked_load(load: LoadDocument, source: str) -> LoadDocument:
    """Check a load document that was made in Python like one from a file; messages name `source`."""
    return load_document(Document(source, to_plain(load))).value
