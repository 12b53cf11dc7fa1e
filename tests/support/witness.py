"""Operators for tests of the runtime: rows that carry where they came from, and a ledger that knows where they must go.

A row is (record, path, by, seq, to): the record that it stems from, the components it went through, the index of the
executor that emitted it, its number among all that this executor emitted on the stream, and an index for direct
groupings. A `Relay` checks every row's way as it arrives and passes it on; a `Ledger` says what must have
arrived at the end, from the topology alone.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agents.protocol import Slot
from workloads.key_groups import first_owners, key_group
from workloads.operators import Batch, Bolt, Context, Emitted, Operator, Row, Spout
from workloads.topology import Component, Input, Topology

SCHEMA = {"record": "int", "path": "str", "by": "int", "seq": "int", "to": "int"}
FIELDS = tuple(SCHEMA)
SIDE = "side"
"""A second stream of bolts, with the rows of every third record."""

Bag = Counter[tuple[int, str]]
"""(record, path) -> how often."""


@dataclass
class Ledger:
    """What a topology of relays must do with `records` records of each spout, and what was seen."""

    topology: Topology
    records: int
    places: Sequence[Slot]
    sunk: dict[str, Bag] = field(default_factory=dict)
    dealt: dict[tuple[str, str, str, int], Counter[int]] = field(default_factory=dict)
    """(source, stream, destination, sender's index) -> receiver's index -> rows."""

    def operator(self, component: str) -> Operator:
        """A new operator for an executor of `component`."""
        return Numbers(self) if self.topology.component[component].kind == "spout" else Relay(self)

    def subscribers(self, component: str, stream: str) -> list[tuple[Component, Input]]:
        """(destination, input) of a stream."""
        links = self.topology.links()
        return [(there, entry) for here, there, entry in links if (here.id, entry.stream) == (component, stream)]

    def entry(self, source: str, stream: str, destination: str) -> Input:
        """The subscription of `destination` to a stream."""
        (entry,) = (entry for there, entry in self.subscribers(source, stream) if there.id == destination)
        return entry

    def targets(self, component: str, stream: str) -> int:
        """How many indices exist in every component that subscribes to a stream with a direct grouping."""
        subscribers = self.subscribers(component, stream)
        return min((there.parallelism for there, entry in subscribers if entry.grouping == "direct"), default=1)

    def place(self, component: str, index: int) -> Slot:
        """Where an executor runs."""
        return self.places[self.topology.executors.index((component, index))]

    def emitted(self, component: str) -> Mapping[str, Bag]:
        """What all executors of a component together must emit, by stream."""
        if self.topology.component[component].kind == "spout":
            return {"default": Counter({(record, component): 1 for record in range(self.records)})}
        passed = Bag()
        for (record, path), count in self.received(component).items():
            passed[record, f"{path}>{component}"] += count
        side = Bag({(record, path): count for (record, path), count in passed.items() if record % 3 == 0})
        return {"default": passed, SIDE: side}

    def received(self, component: str) -> Bag:
        """What all executors of a component together must receive."""
        there = self.topology.component[component]
        bag = Bag()
        for entry in there.inputs:
            copies = there.parallelism if entry.grouping == "all" else 1
            for key, count in self.emitted(entry.source)[entry.stream].items():
                bag[key] += count * copies
        return bag

    @property
    def sinks(self) -> list[str]:
        """Components with inputs that nobody subscribes to."""
        sources = {entry.source for component in self.topology.components for entry in component.inputs}
        return [
            component.id for component in self.topology.components if component.inputs and component.id not in sources
        ]

    def check(self) -> None:
        """Every sink must have exactly what it must have, and every shuffle must have been even."""
        assert self.sunk == {sink: bag for sink in self.sinks if (bag := self.received(sink))}
        for (source, stream, destination, by), counts in self.dealt.items():
            there, entry = self.topology.component[destination], self.entry(source, stream, destination)
            if entry.grouping == "shuffle":
                shares = [counts[index] for index in range(there.parallelism)]
                assert max(shares) - min(shares) <= 1, (source, by, destination, shares)


class Numbers(Spout):
    """Emits records i, i + n, i + 2n, ... below the ledger's number of them."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._position = 0

    def open(self, context: Context) -> None:
        self._context = context

    def next_batch(self, limit: int) -> Sequence[Row]:
        context = self._context
        targets = self._ledger.targets(context.component, "default")
        rows = []
        while len(rows) < limit:
            record = self._position * context.parallelism + context.index
            if record >= self._ledger.records:
                break
            rows.append((record, context.component, context.index, self._position, record % targets))
            self._position += 1
        return rows


class Relay(Bolt):
    """Checks where rows came from and in what order, and passes them on."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._last: dict[tuple[str, str, int], int] = {}
        self._emitted: Counter[str] = Counter()

    def open(self, context: Context) -> None:
        self._context = context

    def process(self, batch: Batch) -> Emitted:
        ledger, me = self._ledger, self._context
        entry = ledger.entry(batch.source, batch.stream, me.component)
        assert len(batch.rows) > 0
        for row in batch.rows:
            _record, _path, by, seq, _to = row
            assert self._last.get((batch.source, batch.stream, by), -1) < seq, "rows of a channel out of order"
            self._last[batch.source, batch.stream, by] = seq
            self._check_way(entry, row)
            dealt = ledger.dealt.setdefault((batch.source, batch.stream, me.component, by), Counter())
            dealt[me.index] += 1
        if me.component in ledger.sinks:
            ledger.sunk.setdefault(me.component, Bag()).update((row[0], row[1]) for row in batch.rows)
        passed = [(record, f"{path}>{me.component}") for record, path, *_ in batch.rows]
        side = [row for row in passed if row[0] % 3 == 0]
        return {"default": self._numbered("default", passed), SIDE: self._numbered(SIDE, side)}

    def _numbered(self, stream: str, rows: list[tuple[int, str]]) -> list[Row]:
        first, targets = self._emitted[stream], self._ledger.targets(self._context.component, stream)
        self._emitted[stream] += len(rows)
        return [
            (record, path, self._context.index, first + at, record % targets) for at, (record, path) in enumerate(rows)
        ]

    def _check_way(self, entry: Input, row: Row) -> None:
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
                here = self._ledger.place(entry.source, row[2])
                others = [self._ledger.place(me.component, index) for index in range(me.parallelism)]
                assert others[me.index] == here or here not in others
