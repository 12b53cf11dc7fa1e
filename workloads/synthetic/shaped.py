"""The synthetic applications: linear, diamond, star and random-dag.

The first three are the micro-benchmarks of I-Scheduler (Eskandari, Mair, Huang, Eyers, 2020); the fourth is ours, for
schedulers that use rates: its components have very different selectivities, and its links are keyed or shuffled, so
that the rates of executor pairs are skewed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from workloads.columns import Api
from workloads.data.row_digest import EMPTY, digest_of, merged_digest
from workloads.derived_traffic import TupleCost
from workloads.example_topologies import layered
from workloads.operators import Operator
from workloads.synthetic.operators import (
    CALIBRATION,
    KEYS,
    ROW,
    TABLE,
    Dealing,
    DigestSink,
    Generator,
    Stage,
    dealing,
    key_share,
    measure_loop_speed,
)
from workloads.topology import DEFAULT_STREAM, Component, Input, Topology
from workloads.workload import Answer, PreparedInput, Verdict, rows_differ

Tasks = Annotated[int, Meta(ge=1, le=1_000)]
Operators = Annotated[int, Meta(ge=1, le=1_000)]

LOADS = {"balanced": (100, 10.0), "cpu": (100, 100.0), "io": (8_192, 0.0)}
"""Load -> bytes of a tuple's payload, microseconds of CPU per tuple and stage."""


TupleBytes = Annotated[int, Meta(ge=0, le=1 << 20)]
Cost = Annotated[float, Meta(ge=0, le=1e6)]
Selectivity = Annotated[float, Meta(gt=0, le=100)]


@dataclass(frozen=True)
class LoadParams:
    """Load of all components.

    Attributes:
        load: `balanced`, `cpu` (100 us per tuple) or `io` (8 KiB per tuple); the next two override it.
        tuple_bytes: bytes of a tuple's payload.
        cost_us: CPU per tuple in every bolt, in microseconds of the controller's CPU.
        selectivity: tuples that every bolt but sinks makes of one, on average.
        api: interface of the operators; answers are the same.
    """

    load: Literal["balanced", "cpu", "io"] = "balanced"
    tuple_bytes: TupleBytes | None = None
    cost_us: Cost | None = None
    selectivity: Selectivity = 1.0
    api: Api = "rows"

    @property
    def payload(self) -> int:
        """Bytes of a tuple's payload."""
        return LOADS[self.load][0] if self.tuple_bytes is None else self.tuple_bytes

    @property
    def cost(self) -> float:
        """Microseconds of CPU per tuple."""
        return LOADS[self.load][1] if self.cost_us is None else self.cost_us


@dataclass(frozen=True)
class SyntheticParams(LoadParams):
    """Common parameters.

    Attributes:
        workers: requested slots.
    """

    workers: Annotated[int, Meta(ge=1)] = 5


@dataclass(frozen=True)
class LinearParams(SyntheticParams):
    """A chain.

    Attributes:
        operators: length of the chain, source and sink included.
        tasks: executors of each.
    """

    operators: Annotated[int, Meta(ge=2, le=1_000)] = 4
    tasks: Tasks = 8


@dataclass(frozen=True)
class DiamondParams(SyntheticParams):
    """A source, operators side by side, a sink.

    Attributes:
        operators: operators side by side.
        tasks: executors of each component.
    """

    operators: Operators = 3
    tasks: Tasks = 8


@dataclass(frozen=True)
class StarParams(SyntheticParams):
    """Sources, one operator in the middle, sinks.

    Attributes:
        sources, sinks: number of each.
        source_tasks: executors of each source.
        tasks: executors of each other component.
    """

    sources: Operators = 2
    sinks: Operators = 2
    source_tasks: Tasks = 4
    tasks: Tasks = 8


@dataclass(frozen=True)
class RandomDagParams(SyntheticParams):
    """A random layered graph with skewed rates.

    Attributes:
        executors: total number of executors.
        layers: layers of components; 0: about the cube root of `executors`.
        widest: maximum number of executors of a component.
        shape_seed: seed of the graph's shape.
    """

    executors: Annotated[int, Meta(ge=2, le=10_000)] = 40
    layers: Annotated[int, Meta(ge=0, le=100)] = 4
    widest: Annotated[int, Meta(ge=1, le=100)] = 6
    shape_seed: Annotated[int, Meta(ge=0)] = 1

    def __post_init__(self) -> None:
        """Check values together.

        Raises:
            ValueError: there are more layers than executors.
        """
        if self.layers > self.executors:
            raise ValueError(f"layers: got {self.layers}, expected at most the {self.executors} executors")
        if self.layers == 1:
            raise ValueError("layers: got 1, expected 0 or at least 2: sources and sinks")


_PAPER = "Iterative scheduling for distributed stream processing systems (I-Scheduler, 2020), micro-benchmarks"
_AT_ONCE = 1 << 20
_KEYED = Input("", "fields", ("key",))


class Synthetic:
    """Common base; each defines its `components`, or its whole `graph`."""

    name: ClassVar[str]
    summary: ClassVar[str]
    paper: ClassVar[str] = _PAPER
    Params: ClassVar[type[LoadParams]]

    def __init__(self, params: Any) -> None:
        self.params = params

    def components(self) -> Sequence[Component]:
        """Return spouts and bolts without outputs."""
        raise NotImplementedError(f"{type(self).__name__} defines neither components() nor graph()")

    def graph(self) -> Topology:
        """Return the topology without outputs."""
        return Topology(self.name, tuple(self.components()), workers=self.params.workers)

    def selectivity(self, component: str) -> float:
        """Return the tuples that a bolt emits per tuple, on average."""
        return float(self.params.selectivity)

    def topology(self) -> Topology:
        """Return the graph; components without readers have no outputs."""
        return self._topology

    def operator(self, component: str) -> Operator:
        """Return a new operator of a component."""
        return self._operator(component, self.params.cost, self.params.payload, None)

    def _operator(self, component: str, cost_us: float, payload: int, replaced: int | None) -> Operator:
        """Return a new operator of these costs; a source has `payload` bytes, a bolt `replaced` ones if not None."""
        generator: type[Generator]
        generator, stage, sink = Generator, Stage, DigestSink
        if self.params.api == "columns":
            from workloads.synthetic import columns

            generator, sink = columns.ColumnGenerator, columns.ColumnDigestSink
            if replaced is None or replaced <= columns.MOST_REPLACED:
                stage = columns.ColumnStage
        if component in self._sources:
            return generator(self._sources.index(component), len(self._sources), payload)
        if component in self._dealings:
            return stage(cost_us, self._dealings[component], replaced)
        return sink(cost_us)

    def cost_us(self, component: str) -> float:
        """Return the CPU per tuple in a bolt, in microseconds."""
        return float(self.params.cost)

    def payload(self, component: str) -> int:
        """Return the bytes of payload in the tuples that a component emits."""
        return int(self.params.payload)

    def costs(self) -> Mapping[str, TupleCost]:
        """Return component -> its cost; that of generating records is not known."""
        return {
            component.id: TupleCost(None, 1.0, self.payload(component.id))
            if component.kind == "spout"
            else TupleCost(self.cost_us(component.id), self.selectivity(component.id), self.payload(component.id))
            for component in self._topology.components
        }

    def key_shares(self) -> Mapping[int, float]:
        """Return key -> its share of the records."""
        return {key: key_share(key) for key in range(KEYS)}

    def prepare(self, folder: Path) -> Sequence[PreparedInput]:
        """Measure this CPU, once for all runs with this folder."""
        path = folder / "calibration.json"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(msgspec.json.encode(measure_loop_speed()))
        digest = sha256(path.read_bytes()).hexdigest()
        return [PreparedInput(CALIBRATION, path, digest, 1, "generated", is_measured=True)]

    def reference(self, positions: Sequence[int], inputs: Sequence[PreparedInput]) -> Answer:
        """Return every sink's digest, computed from how often each record reaches it along all paths."""
        digests = {component.id: EMPTY for component in self._topology.components if self._is_sink(component)}
        first = 0
        for at, source in enumerate(self._sources):
            of = self._topology.component[source].parallelism
            for index, position in enumerate(positions[first : first + of]):
                for begin in range(0, position, _AT_ONCE):
                    own = range(begin, min(position, begin + _AT_ONCE))
                    records = [(j * of + index) * len(self._sources) + at for j in own]
                    for sink, times in self._times(source, records).items():
                        counted = {(record,): int(n) for record, n in zip(records, times, strict=True) if n}
                        digests[sink] += digest_of(counted)
            first += of
        return {TABLE: [(sink, *digest.row) for sink, digest in digests.items()]}

    def compare(self, answer: Answer, reference: Answer) -> Verdict:
        """Compare sink by sink, with the parts of each added up."""
        parts: dict[str, list[tuple[Any, ...]]] = {}
        for sink, *digest in answer.get(TABLE, ()):
            parts.setdefault(sink, []).append(tuple(digest))
        got = [(sink, *merged_digest(rows).row) for sink, rows in parts.items()]
        differences = rows_differ(got, reference[TABLE], key_fields=1)
        return Verdict(not differences, len(reference[TABLE]), "; ".join(differences))

    def _times(self, source: str, records: Sequence[int]) -> Mapping[str, Any]:
        """Return how often each record of `source` reaches each sink."""
        import numpy as np

        numbers = np.array(records, np.uint64)
        emitted: dict[str, Any] = {source: np.ones(len(records), np.int64)}
        reached: dict[str, Any] = {}
        for component in self._ordered:
            arriving = [
                emitted[entry.source] * (component.parallelism if entry.grouping == "all" else 1)
                for entry in component.inputs
                if entry.source in emitted
            ]
            if not arriving:
                continue
            if component.id in self._dealings:
                emitted[component.id] = sum(arriving) * self._dealings[component.id].of_all(numbers)
            else:
                reached[component.id] = sum(arriving)
        return reached

    @cached_property
    def _topology(self) -> Topology:
        graph = self.graph()
        read = {entry.source for component in graph.components for entry in component.inputs}
        typed = [
            replace(component, outputs={DEFAULT_STREAM: ROW}) if component.id in read else component
            for component in graph.components
        ]
        return replace(graph, components=tuple(typed))

    @cached_property
    def _ordered(self) -> Sequence[Component]:
        """Return bolts in topological order."""
        done = set(self._sources)
        left = [component for component in self._topology.components if component.inputs]
        ordered: list[Component] = []
        while left:
            ready = [c for c in left if all(entry.source in done for entry in c.inputs)]
            ordered += ready
            done |= {component.id for component in ready}
            left = [component for component in left if component.id not in done]
        return ordered

    @cached_property
    def _sources(self) -> list[str]:
        return [component.id for component in self._topology.components if component.kind == "spout"]

    @cached_property
    def _dealings(self) -> Mapping[str, Dealing]:
        return {
            component.id: dealing(component.id, self.selectivity(component.id))
            for component in self._topology.components
            if component.inputs and not self._is_sink(component)
        }

    def _is_sink(self, component: Component) -> bool:
        return bool(component.inputs) and not component.outputs


class Linear(Synthetic):
    """A chain of operators."""

    name = "linear"
    summary = "a chain of operators with a set cost per tuple"
    Params = LinearParams

    def components(self) -> Sequence[Component]:
        """Return source, op1, op2, ..., sink."""
        names = ["source", *(f"op{at}" for at in range(1, self.params.operators - 1)), "sink"]
        bolts = [_bolt(name, self.params.tasks, before) for before, name in pairwise(names)]
        return [Component("source", "spout", self.params.tasks), *bolts]


class Diamond(Synthetic):
    """Operators side by side between a source and a sink."""

    name = "diamond"
    summary = "a source, operators side by side, a sink, with a set cost per tuple"
    Params = DiamondParams

    def components(self) -> Sequence[Component]:
        """Return source, middle1, middle2, ..., sink."""
        tasks = self.params.tasks
        middle = [f"middle{at}" for at in range(1, self.params.operators + 1)]
        side_by_side = [_bolt(name, tasks, "source") for name in middle]
        return [Component("source", "spout", tasks), *side_by_side, _bolt("sink", tasks, *middle)]


class Star(Synthetic):
    """Sources and sinks around one operator."""

    name = "star"
    summary = "sources, one operator in the middle, sinks, with a set cost per tuple"
    Params = StarParams

    def components(self) -> Sequence[Component]:
        """Return source1, ..., middle, sink1, ..."""
        params = self.params
        sources = [Component(f"source{at}", "spout", params.source_tasks) for at in range(1, params.sources + 1)]
        middle = _bolt("middle", params.tasks, *(source.id for source in sources))
        sinks = [_bolt(f"sink{at}", params.tasks, "middle") for at in range(1, params.sinks + 1)]
        return [*sources, middle, *sinks]


class RandomDag(Synthetic):
    """A random layered graph."""

    name = "random-dag"
    summary = "a random layered graph with skewed rates, for scheduler studies"
    paper = ""
    Params = RandomDagParams

    def components(self) -> Sequence[Component]:
        """Return the components layer by layer; every other link is keyed, so that pairs have skewed rates."""
        params = self.params
        shape, _ = layered(params.executors, params.shape_seed, widest=params.widest, layers=params.layers)
        random = self._random("links")
        return [
            replace(
                component,
                inputs=tuple(
                    replace(_KEYED, source=entry.source) if random.random() < 0.5 else entry
                    for entry in component.inputs
                ),
            )
            for component in _with_readers(shape.components)
        ]

    def selectivity(self, component: str) -> float:
        """Return the parameter times a random share of the component, small for most components."""
        inputs = max(1, len(self._topology.component[component].inputs))
        return float(self.params.selectivity / inputs * min(1.0, 0.3 * self._random(component).paretovariate(1.2)))

    def _random(self, what: str) -> Random:
        return Random(f"{self.params.shape_seed} {what}")  # noqa: S311 - it must be repeatable


def _bolt(name: str, tasks: int, *sources: str) -> Component:
    return Component(name, "bolt", tasks, inputs=tuple(Input(source) for source in sources))


def _with_readers(components: Sequence[Component]) -> Sequence[Component]:
    """Return the graph with every spout read: unread spouts become inputs of bolts of the next layer."""
    read = {entry.source for component in components for entry in component.inputs}
    spouts = [component.id for component in components if component.kind == "spout"]
    behind = [component.id for component in components if any(entry.source in spouts for entry in component.inputs)]
    added: dict[str, list[Input]] = {}
    for at, spout in enumerate(spouts):
        if spout not in read:
            added.setdefault(behind[at * len(behind) // len(spouts)], []).append(Input(spout))
    return [replace(component, inputs=(*component.inputs, *added.get(component.id, ()))) for component in components]
