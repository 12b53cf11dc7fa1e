"""Operators whose rows carry their route, and a test oracle that computes which rows every component must receive.

A row is (record, path, by, seq, to): the source record, the components that it passed, the index of the executor that
emitted it, its number among the rows of that executor on the stream, and an index for direct groupings. A
`ForwardingBolt` checks the route of each row as it arrives and forwards it; a `DeliveryOracle` derives the rows that
must have arrived at the end from the topology alone.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from agents.protocol import Slot
from workloads.key_groups import first_owners, key_group
from workloads.operators import Batch, Bolt, Context, Emitted, Operator, Row, Spout
from workloads.topology import Component, Input, Topology

SCHEMA = {"record": "int", "path": "str", "by": "int", "seq": "int", "to": "int"}
FIELDS = tuple(SCHEMA)
SIDE = "side"
"""Second output stream of bolts, with the rows of every third record."""

Multiset = Counter[tuple[int, str]]
"""(record, path) -> count."""


@dataclass
class DeliveryOracle:
    """Expected and received rows of a topology of forwarding bolts with `records` records per spout.

    Attributes:
        topology: the topology.
        records: records of each spout component.
        places: slots of the executors, in their order.
        sunk: rows that sinks received, by component.
    """

    topology: Topology
    records: int
    places: Sequence[Slot]
    sunk: dict[str, Multiset] = field(default_factory=dict)
    routed: dict[tuple[str, str, str, int], Counter[int]] = field(default_factory=dict)
    """(source, stream, destination, sender's index) -> receiver's index -> rows."""

    def operator(self, component: str) -> Operator:
        """Return a new operator for an executor of `component`."""
        return RecordSpout(self) if self.topology.component[component].kind == "spout" else ForwardingBolt(self)

    def subscribers(self, component: str, stream: str) -> list[tuple[Component, Input]]:
        """Return (destination, input) of the subscribers of a stream."""
        links = self.topology.links()
        return [(there, entry) for here, there, entry in links if (here.id, entry.stream) == (component, stream)]

    def entry(self, source: str, stream: str, destination: str) -> Input:
        """Return the subscription of `destination` to a stream."""
        (entry,) = (entry for there, entry in self.subscribers(source, stream) if there.id == destination)
        return entry

    def targets(self, component: str, stream: str) -> int:
        """Return the number of indices that exist in every component that subscribes to a stream by direct grouping."""
        subscribers = self.subscribers(component, stream)
        return min((there.parallelism for there, entry in subscribers if entry.grouping == "direct"), default=1)

    def place(self, component: str, index: int) -> Slot:
        """Return the slot of an executor."""
        return self.places[self.topology.executors.index((component, index))]

    def emitted(self, component: str) -> Mapping[str, Multiset]:
        """Return what all executors of a component together must emit, by stream."""
        if self.topology.component[component].kind == "spout":
            return {"default": Counter({(record, component): 1 for record in range(self.records)})}
        passed = Multiset()
        for (record, path), count in self.received(component).items():
            passed[record, f"{path}>{component}"] += count
        side = Multiset({(record, path): count for (record, path), count in passed.items() if record % 3 == 0})
        return {"default": passed, SIDE: side}

    def received(self, component: str) -> Multiset:
        """Return what all executors of a component together must receive."""
        there = self.topology.component[component]
        expected = Multiset()
        for entry in there.inputs:
            copies = there.parallelism if entry.grouping == "all" else 1
            for key, count in self.emitted(entry.source)[entry.stream].items():
                expected[key] += count * copies
        return expected

    @property
    def sinks(self) -> list[str]:
        """Components with inputs and without subscribers."""
        sources = {entry.source for component in self.topology.components for entry in component.inputs}
        return [
            component.id for component in self.topology.components if component.inputs and component.id not in sources
        ]

    def check(self) -> None:
        """Check that every sink received exactly the expected rows, and that every shuffle was even."""
        assert self.sunk == {sink: expected for sink in self.sinks if (expected := self.received(sink))}
        for (source, stream, destination, by), counts in self.routed.items():
            there, entry = self.topology.component[destination], self.entry(source, stream, destination)
            if entry.grouping == "shuffle":
                shares = [counts[index] for index in range(there.parallelism)]
                assert max(shares) - min(shares) <= 1, (source, by, destination, shares)


class OpenOperators:
    """Mixin of an oracle that counts open operators; those of chosen executors cannot be opened."""

    open = 0

    def cannot_open(self, executor: str) -> bool:
        """Return whether the operator of this executor fails when it is opened now."""
        return False

    def operator(self, component: str) -> Operator:
        """Return a new operator for an executor of `component`."""
        operator: Operator = super().operator(component)  # type: ignore[misc]
        opened, closed = operator.open, operator.close

        def open_counted(context: Context) -> None:
            if self.cannot_open(f"{component}[{context.index}]"):
                raise FileNotFoundError(2, "No such file", "books.txt")
            opened(context)
            self.open += 1

        def close_counted() -> None:
            closed()
            self.open -= 1

        operator.open, operator.close = open_counted, close_counted  # type: ignore[method-assign]
        return operator


class RecordSpout(Spout):
    """Spout that emits records i, i + n, i + 2n, ... below `records`."""

    def __init__(self, oracle: DeliveryOracle) -> None:
        self._oracle = oracle
        self._position = 0

    def open(self, context: Context) -> None:
        self._context = context

    def next_batch(self, limit: int) -> Sequence[Row]:
        context = self._context
        targets = self._oracle.targets(context.component, "default")
        rows = []
        while len(rows) < limit:
            record = self._position * context.parallelism + context.index
            if record >= self._oracle.records:
                break
            rows.append((record, context.component, context.index, self._position, record % targets))
            self._position += 1
        return rows


class ForwardingBolt(Bolt):
    """Bolt that checks the route and order of rows, and forwards them."""

    def __init__(self, oracle: DeliveryOracle) -> None:
        self._oracle = oracle
        self._last: dict[tuple[str, str, int], int] = {}
        self._emitted: Counter[str] = Counter()

    def open(self, context: Context) -> None:
        self._context = context

    def process(self, batch: Batch) -> Emitted:
        oracle, me = self._oracle, self._context
        entry = oracle.entry(batch.source, batch.stream, me.component)
        assert len(batch.rows) > 0
        for row in batch.rows:
            _record, _path, by, seq, _to = row
            assert self._last.get((batch.source, batch.stream, by), -1) < seq, "rows of a channel out of order"
            self._last[batch.source, batch.stream, by] = seq
            self._check_routing(entry, row)
            routed = oracle.routed.setdefault((batch.source, batch.stream, me.component, by), Counter())
            routed[me.index] += 1
        if me.component in oracle.sinks:
            oracle.sunk.setdefault(me.component, Multiset()).update((row[0], row[1]) for row in batch.rows)
        passed = [(record, f"{path}>{me.component}") for record, path, *_ in batch.rows]
        side = [row for row in passed if row[0] % 3 == 0]
        return {"default": self._numbered("default", passed), SIDE: self._numbered(SIDE, side)}

    def _numbered(self, stream: str, rows: list[tuple[int, str]]) -> list[Row]:
        first, targets = self._emitted[stream], self._oracle.targets(self._context.component, stream)
        self._emitted[stream] += len(rows)
        return [
            (record, path, self._context.index, first + at, record % targets) for at, (record, path) in enumerate(rows)
        ]

    def _check_routing(self, entry: Input, row: Row) -> None:
        me = self._context
        match entry.grouping:
            case "global":
                assert me.index == 0
            case "direct":
                assert me.index == row[FIELDS.index(entry.fields[0])]
            case "fields":
                key = tuple(row[FIELDS.index(name)] for name in entry.fields)
                assert me.index == first_owners(me.parallelism)[key_group(key)]
            case "local-or-shuffle":
                here = self._oracle.place(entry.source, row[2])
                others = [self._oracle.place(me.component, index) for index in range(me.parallelism)]
                assert others[me.index] == here or here not in others


GROUPINGS = ("shuffle", "fields", "global", "all", "direct", "local-or-shuffle")


def random_topology(random: Random) -> Topology:
    """Return one or two spouts and up to four bolts, each of up to three executors, with any groupings."""
    components = [
        Component(f"s{at}", "spout", random.randint(1, 3), outputs={"default": SCHEMA})
        for at in range(random.randint(1, 2))
    ]
    sources = [(spout.id, "default") for spout in components]
    for at in range(random.randint(1, 4)):
        chosen = random.sample(sources, random.randint(1, min(3, len(sources))))
        entries = tuple(_input(random, component, stream) for component, stream in chosen)
        outputs = {"default": SCHEMA, SIDE: SCHEMA}
        components.append(Component(f"b{at}", "bolt", random.randint(1, 3), outputs=outputs, inputs=entries))
        sources += [(f"b{at}", "default"), (f"b{at}", SIDE)]
    return Topology("drawn", tuple(components))


def _input(random: Random, component: str, stream: str) -> Input:
    grouping = random.choice(GROUPINGS)
    fields: tuple[str, ...] = ()
    if grouping == "fields":
        fields = tuple(random.sample(sorted(SCHEMA), random.randint(1, 5)))
    if grouping == "direct":
        fields = ("to",)
    return Input(component, grouping, fields, stream)


def describe_run(run: Any, *names: str) -> str:
    """Describe a run for a failure message: its `oracle`, `places` and `seed`, and the named attributes."""
    topology = run.oracle.topology
    parts = [f"seed={run.seed}", f"records={run.oracle.records}", f"tick_every={run.oracle.tick_every}"]
    parts += [f"{name}={getattr(run, name)}" for name in names]
    for component in topology.components:
        inputs = [(entry.source, entry.stream, entry.grouping, entry.fields) for entry in component.inputs]
        parts.append(f"{component.id}*{component.parallelism}{inputs}")
    where = zip(topology.executors, run.places, strict=True)
    parts.append(", ".join(f"{executor.name}@{place.node}/{place.index}" for executor, place in where))
    return f"{type(run).__name__}(" + "; ".join(parts) + ")"
