"""`Topology`: components, their parallelism and how streams are grouped between them.

A topology expands deterministically to executors (`component[index]`, components as listed, then index) and
to channels, the pairs of executors that a grouping connects.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct

from inventory.documents import Document, Located, Origin, read, to_plain
from inventory.errors import InputError, nearest
from inventory.values import NonNegative

DEFAULT_STREAM = "default"

ACKER = "__acker"
"""Storm's acking component: placed and counted like any bolt, without inputs."""

FieldType = Literal["int", "float", "str", "bytes", "bool"]
GroupingKind = Literal["shuffle", "fields", "global", "all", "direct", "local-or-shuffle"]

MOST_EXECUTORS = 1_000_000
"""Maximum number of executors per topology; more is taken for a typing error, and would exhaust memory."""

AtLeastOne = Annotated[int, Meta(ge=1)]
Parallelism = Annotated[int, Meta(ge=1, le=MOST_EXECUTORS)]
Count = Annotated[int, Meta(ge=0)]
ComponentId = Annotated[str, Meta(pattern=r"^[^\[\]\s]+\Z", description="text without white space and brackets")]

DEFAULT_CPU_POINTS = 10.0
DEFAULT_ONHEAP_MB = 128.0


class Executor(NamedTuple):
    """One running instance of a component."""

    component: str
    index: int  # type: ignore[assignment]  # shadows tuple.index, which is not needed here

    @property
    def name(self) -> str:
        """`component[index]`, as in files and traces."""
        return f"{self.component}[{self.index}]"

    @classmethod
    def named(cls, name: str) -> "Executor":
        """Return the executor written as `component[index]`.

        Raises:
            ValueError: `name` does not have that form.
        """
        component, bracket, index = name.removesuffix("]").partition("[")
        if not component or not bracket or not index.isdecimal() or not name.endswith("]"):
            raise ValueError(f"{name!r} is not of the form component[index]")
        return cls(component, int(index))


class Input(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename={"source": "from"}):
    """Subscription of a bolt to a stream, with the grouping that distributes its tuples."""

    source: ComponentId
    grouping: GroupingKind = "shuffle"
    fields: tuple[str, ...] = ()
    stream: str = DEFAULT_STREAM


class Component(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A spout or a bolt. Resources are per executor: CPU in points (100 = one core), memory in MB."""

    id: ComponentId
    kind: Literal["spout", "bolt"]
    parallelism: Parallelism = 1
    cpu: NonNegative | None = None
    onheap_mb: NonNegative | None = None
    offheap_mb: NonNegative | None = None
    memory_mb: NonNegative | None = None
    outputs: Mapping[str, Mapping[str, FieldType]] | None = None
    inputs: tuple[Input, ...] = ()

    @property
    def cpu_points(self) -> float:
        """CPU points per executor (default 10)."""
        return DEFAULT_CPU_POINTS if self.cpu is None else self.cpu

    @property
    def onheap(self) -> float:
        """On-heap MB per executor; `memory_mb`, where given instead, counts as on-heap."""
        if self.memory_mb is not None:
            return self.memory_mb
        return DEFAULT_ONHEAP_MB if self.onheap_mb is None else self.onheap_mb

    @property
    def offheap(self) -> float:
        """Off-heap MB per executor (default 0)."""
        return self.offheap_mb or 0.0

    @property
    def memory(self) -> float:
        """On-heap and off-heap MB per executor together."""
        return self.onheap + self.offheap


def ackers(count: int) -> tuple[Component, ...]:
    """Return `count` executors of Storm's acking component as the end of a topology's components; none for 0."""
    return (Component(ACKER, "bolt", count),) if count else ()


class Constraints(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Pairs of components that must not share a worker, and maximum executors of a component per node."""

    incompatible: tuple[tuple[str, str], ...] = ()
    max_per_node: Mapping[str, AtLeastOne] = {}


class Topology(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True):
    """An application as a directed graph of components."""

    id: Annotated[str, Meta(min_length=1)]
    components: Annotated[tuple[Component, ...], Meta(min_length=1)]
    user: str = "user"
    priority: Count = 29
    uptime_s: NonNegative = 0.0
    workers: AtLeastOne = 1
    worker_max_heap_mb: NonNegative = 768.0
    constraints: Constraints | None = None
    isolated_nodes: AtLeastOne | None = None

    @cached_property
    def component(self) -> dict[str, Component]:
        """Components by id."""
        return {component.id: component for component in self.components}

    @cached_property
    def executors(self) -> tuple[Executor, ...]:
        """All executors; the position in this tuple is the executor's number."""
        # From a list: workers make a topology per move, and tuples made from generators leave memory behind.
        return tuple([Executor(c.id, index) for c in self.components for index in range(c.parallelism)])

    @cached_property
    def number_of(self) -> dict[Executor, int]:
        """Executor -> its number."""
        return {executor: number for number, executor in enumerate(self.executors)}

    @cached_property
    def executor_named(self) -> dict[str, Executor]:
        """`component[index]` -> executor."""
        return {executor.name: executor for executor in self.executors}

    def executors_of(self, component: str) -> Sequence[Executor]:
        """Return the executors of one component, by index."""
        return [Executor(component, index) for index in range(self.component[component].parallelism)]

    @cached_property
    def keyed(self) -> dict[str, int]:
        """Components with a fields grouping -> their parallelism."""
        return {c.id: c.parallelism for c in self.components if any(entry.grouping == "fields" for entry in c.inputs)}

    def links(self) -> Iterator[tuple[Component, Component, Input]]:
        """Yield (source, destination, input) for every subscription, in declaration order of the destination."""
        for destination in self.components:
            for entry in destination.inputs:
                yield self.component[entry.source], destination, entry

    def pairs(self) -> Iterator[tuple[Executor, Executor]]:
        """Yield executor pairs that communicate: links in declaration order, then source, then destination.

        Shuffle, fields, all, direct and local-or-shuffle may send from every executor of the source to every executor
        of the destination; a global grouping only reaches index 0. A pair that two links share is listed once, at its
        first position.
        """
        seen: set[tuple[str, str, bool]] = set()
        for source, destination, entry in self.links():
            only_first = entry.grouping == "global"
            whole = (source.id, destination.id, False)
            if whole in seen or (source.id, destination.id, only_first) in seen:
                continue
            skip_first = (source.id, destination.id, True) in seen
            seen.add((source.id, destination.id, only_first))
            for i in range(source.parallelism):
                for j in range(1 if only_first else destination.parallelism):
                    if not (skip_first and j == 0):
                        yield Executor(source.id, i), Executor(destination.id, j)

    def _sorter(self) -> TopologicalSorter[str]:
        return TopologicalSorter({c.id: [entry.source for entry in c.inputs] for c in self.components})

    @cached_property
    def cycle(self) -> tuple[str, ...]:
        """Component ids along a cycle, the first one again at the end; empty when there is none."""
        try:
            self._sorter().prepare()
        except CycleError as fault:
            return tuple(fault.args[1])
        return ()

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Component ids from upstream to downstream; ready ones in the order listed.

        Raises:
            InputError: the components form a cycle.
        """
        if self.cycle:
            raise InputError(f"topology {self.id!r} has a cycle: {' -> '.join(self.cycle)}")
        sorter = self._sorter()
        sorter.prepare()
        place = {c.id: at for at, c in enumerate(self.components)}
        order: list[str] = []
        while sorter.is_active():
            ready = sorted(sorter.get_ready(), key=place.__getitem__)
            order.extend(ready)
            sorter.done(*ready)
        return tuple(order)

    @cached_property
    def level(self) -> dict[str, int]:
        """Component id -> links on the longest path to it; requires a topology without cycles, as `order` does.

        The links that leave a component belong to the stage of the same number.
        """
        level: dict[str, int] = {}
        for name in self.order:
            level[name] = max((level[entry.source] + 1 for entry in self.component[name].inputs), default=0)
        return level

    @property
    def stages(self) -> int:
        """Number of stages of the pipeline formed by its links; 0 without links."""
        return max(self.level.values(), default=0)


def load_topology(path: str | Path) -> Topology:
    """Read a topology file.

    Raises:
        InputError: the file is invalid; the message names file, line, key and value.
    """
    return topology_of(read(path)).value


def checked_topology(topology: Topology, source: str) -> Topology:
    """Check a topology that was built in Python like one from a file; messages name `source`.

    Raises:
        InputError: the topology is invalid.
    """
    return topology_of(Document(source, to_plain(topology))).value


def topology_of(document: Document) -> Located[Topology]:
    """Convert a document to a `Topology`, with the checks that involve several keys."""
    topology, origin = document.convert(Topology), document.origin
    seen: set[str] = set()
    for at, component in enumerate(topology.components):
        if component.id in seen:
            raise (origin / "components" / at / "id").error(f"two components are called {component.id!r}")
        seen.add(component.id)
    for at, component in enumerate(topology.components):
        _check_component(origin / "components" / at, topology, component)
    total = sum(component.parallelism for component in topology.components)
    if total > MOST_EXECUTORS:
        raise (origin / "components").error(f"{total} executors in all, at most {MOST_EXECUTORS} are possible")
    if topology.constraints is not None:
        _check_constraints(origin / "constraints", topology, topology.constraints)
    return Located(topology, origin)


def _check_component(here: Origin, topology: Topology, component: Component) -> None:
    if component.kind == "spout" and component.inputs:
        raise (here / "inputs").error(f"the spout {component.id!r} cannot have inputs")
    if component.id == ACKER and (component.kind != "bolt" or component.inputs):
        raise here.error(f"{ACKER} is a bolt without inputs")
    if component.memory_mb is not None and (component.onheap_mb is not None or component.offheap_mb is not None):
        raise (here / "memory_mb").error("give memory_mb, or onheap_mb and offheap_mb, not both")
    for place, entry in enumerate(component.inputs):
        spot = here / "inputs" / place
        source = topology.component.get(entry.source)
        if source is None:
            raise (spot / "from").error(
                f"unknown component {entry.source!r}{nearest(entry.source, topology.component)}",
            )
        if entry.grouping == "fields" and not entry.fields:
            raise (spot / "fields").error("a fields grouping names at least one field")
        if entry.grouping not in ("fields", "direct") and entry.fields:
            raise (spot / "fields").error(f"a {entry.grouping} grouping takes no fields")
        if source.outputs is None:
            continue
        if entry.stream not in source.outputs:
            raise (spot / "stream").error(
                f"{source.id!r} has no stream {entry.stream!r}{nearest(entry.stream, source.outputs)}",
            )
        for number, name in enumerate(entry.fields):
            if name not in source.outputs[entry.stream]:
                hint = nearest(name, source.outputs[entry.stream])
                raise (spot / "fields" / number).error(
                    f"stream {entry.stream!r} of {source.id!r} has no field {name!r}{hint}",
                )


def _check_constraints(origin: Origin, topology: Topology, constraints: Constraints) -> None:
    for at, pair in enumerate(constraints.incompatible):
        for side, name in enumerate(pair):
            if name not in topology.component:
                raise (origin / "incompatible" / at / side).error(
                    f"unknown component {name!r}{nearest(name, topology.component)}",
                )
    for name in constraints.max_per_node:
        if name not in topology.component:
            raise (origin / "max_per_node" / name).error(
                f"unknown component {name!r}{nearest(name, topology.component)}",
            )
