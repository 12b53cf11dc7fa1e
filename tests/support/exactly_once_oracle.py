"""Operators with checkpointed state, and a test oracle that computes the only correct answer.

In addition to the route of every row, they check that ticks arrive in order and between the right rows. Sinks answer
with the rows that they received; each checkpoint settles a part of them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pyarrow as pa
from delivery_oracle import DeliveryOracle, ForwardingBolt, Multiset, RecordSpout

from agents.worker.task_graph.interfaces import AnswerRows
from workloads.arrays import batch_of, batch_rows
from workloads.columns import ColumnBatch, ColumnBolt, ColumnsEmitted, ColumnSpout, Derived
from workloads.keyed_state import KeyedState
from workloads.operators import STEP_NS, Batch, Bolt, Context, Emitted, Operator, Row, Spout
from workloads.topology import Component, Input

Outputs = Mapping[str, Mapping[str, str]]

COLUMN_MODES = ("columns", "derived", "either")
"""Columns only; columns with the parents of all rows; columns, with small batches as rows."""


def as_columns(operator: Operator, outputs: Outputs, mode: str) -> Operator:
    """Return the operator as a column operator."""
    kind = type(operator)
    base = ColumnBolt if isinstance(operator, Bolt) else ColumnSpout
    method = "process" if base is ColumnBolt else "next_batch"
    inner = getattr(kind, method)
    made = {"dictionaries": mode == "columns", "derives": mode == "derived"}

    def columns_of(stream: str, rows: list[Row]) -> pa.RecordBatch:
        return batch_of(outputs[stream], rows, f"{kind.__name__}, {stream}")

    def process_columns(self: Bolt, batch: ColumnBatch) -> ColumnsEmitted:
        rows = batch_rows(batch.columns)
        if mode != "derived":
            emitted = inner(self, Batch(batch.source, batch.stream, rows))
            return {stream: columns_of(stream, list(found)) for stream, found in emitted.items()}
        derived: dict[str, list[Row]] = {}
        parents: dict[str, list[int]] = {}
        for at, row in enumerate(rows):
            for stream, found in inner(self, Batch(batch.source, batch.stream, [row])).items():
                derived.setdefault(stream, []).extend(found)
                parents.setdefault(stream, []).extend([at] * len(found))
        return {
            stream: Derived(columns_of(stream, found), lambda stream=stream: np.array(parents[stream]))
            for stream, found in derived.items()
        }

    def next_columns(self: Spout, limit: int) -> pa.RecordBatch:
        return columns_of("default", list(inner(self, limit)))

    made |= {"process_columns": process_columns} if base is ColumnBolt else {"next_columns": next_columns}
    if mode != "either":
        made[method] = getattr(base, method)
    operator.__class__ = type(f"{mode.title()}{kind.__name__}", (kind, base), made)
    return operator


SUNK = "sunk"
TICK_PATH = "(tick)"
ANSWER = {"component": "str", "record": "int", "path": "str", "count": "int"}


class _State(msgspec.Struct):
    last: dict[str, int] = msgspec.field(default_factory=dict)
    emitted: dict[str, int] = msgspec.field(default_factory=dict)
    sunk: list[tuple[int, str, int]] = msgspec.field(default_factory=list)
    tick_ns: int = 0
    newest_ns: int = -1


@dataclass
class ExactlyOnceOracle(DeliveryOracle):
    """Expected answer of the sinks despite kills and moves: every row once, and every tick once per sink executor."""

    tick_every: int = 0
    """Records of the whole input between two ticks; 0: no ticks."""

    positions: Mapping[str, int] | None = None
    """Final positions of the sources, by executor; None: end of the input."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """Component -> mode of `as_columns`, for components whose operators process columns."""

    def operator(self, component: str) -> Operator:
        """Return a new operator for an executor of `component`."""
        operator = self._of_rows(component)
        if component in self.columns:
            outputs = self.topology.component[component].outputs or {}
            return as_columns(operator, outputs, self.columns[component])
        return operator

    def _of_rows(self, component: str) -> Operator:
        if self.topology.component[component].kind == "bolt":
            # Every other bolt has state that moves only as a whole.
            return (CheckpointedBolt, IncrementalBolt)[list(self.topology.component).index(component) % 2](self)
        spout = CheckpointedSpout(self)
        spout.tick_ns = self.tick_every * STEP_NS
        return spout

    def emitted(self, component: str) -> Mapping[str, Multiset]:
        if self.topology.component[component].kind == "spout":
            return {"default": Multiset({(record, component): 1 for record in self._records_of(component)})}
        return super().emitted(component)

    def _records_of(self, spout: str) -> Sequence[int]:
        of = self.topology.component[spout].parallelism
        ends = [self.positions[f"{spout}[{at}]"] if self.positions else self.records for at in range(of)]
        return [record for record in range(self.records) if record // of < ends[record % of]]

    def time_ns(self, record: int, path: str) -> int:
        """Return the stream time of a record; its path starts with its source, and all sources share a schedule."""
        source = path.partition(">")[0]
        sources = [e for e in self.topology.executors if self.topology.component[e.component].kind == "spout"]
        of = self.topology.component[source].parallelism
        index = sources.index((source, record % of))
        return (record // of * len(sources) + index) * STEP_NS

    def last_tick(self, component: str, every: bool = False) -> int:
        """Return the last tick that a component gets from all its sources; `every`: that all its executors get."""
        spouts = [c for c in self.topology.components if c.kind == "spout"]
        sources = [c.id for c in spouts if c.id == component or self._reaches(c, component, every)]
        times = [self.time_ns(record, source) for source in sources for record in self._records_of(source)]
        return max(times) // (self.tick_every * STEP_NS) + 1 if self.tick_every and times else 0

    def _reaches(self, source: Component, component: str, every: bool = False) -> bool:
        entries = [e for e in self.topology.component[component].inputs if not every or e.grouping != "global"]
        return any(entry.source == source.id or self._reaches(source, entry.source) for entry in entries)

    def check_answer(self, parts: Iterable[AnswerRows]) -> None:
        """Check that the parts together are the correct answer."""
        got: dict[str, Multiset] = {}
        for part in parts:
            for component, record, path, count in part.rows:
                got.setdefault(component, Multiset())[record, path] += count
        for sink in self.sinks:
            expected = got.pop(sink, Multiset())
            ticks = {number: expected.pop((number, path)) for number, path in list(expected) if path == TICK_PATH}
            self._check_ticks(sink, ticks)
            assert expected == self.received(sink), sink
        assert not got

    def _check_ticks(self, sink: str, got: Mapping[int, int]) -> None:
        """Check that a sink's executors have every tick of their own sources once.

        After the last record of its own sources an executor may have ticks that others had before a barrier, and index
        0 of a global grouping has more sources than the others.
        """
        executors = self._ticking(sink)
        numbers = range(1, self.last_tick(sink, executors > 1) + 1)
        most = max(self.last_tick(component.id) for component in self.topology.components)
        assert {number: got.get(number) for number in numbers} == dict.fromkeys(numbers, executors), sink
        assert all(0 < number <= most and count <= executors for number, count in got.items()), sink

    def _ticking(self, sink: str) -> int:
        """Return the number of executors of a sink that have an input: with only global groupings, index 0 alone."""
        there = self.topology.component[sink]
        return there.parallelism if any(entry.grouping != "global" for entry in there.inputs) else 1


class CheckpointedSpout(RecordSpout):
    """`RecordSpout` with a checkpointed position."""

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self._position)

    def restore(self, state: bytes) -> None:
        self._position = msgspec.msgpack.decode(state, type=int)


class CheckpointedBolt(ForwardingBolt):
    """`ForwardingBolt` with checkpointed state; a sink counts the rows that it received, and answers with them."""

    answer_table = SUNK
    answer_schema: Mapping[str, str] = ANSWER

    def open(self, context: Context) -> None:
        super().open(context)
        self._is_sink = context.component in self._oracle.sinks
        self._sunk = Multiset()
        self._tick_ns, self._newest_ns = 0, -1

    def process(self, batch: Batch) -> Emitted:
        times = [self._oracle.time_ns(row[0], row[1]) for row in batch.rows]  # type: ignore[attr-defined]
        assert min(times) >= self._tick_ns, "a row behind the tick that it belongs before"
        self._newest_ns = max(self._newest_ns, *times)
        if self._is_sink:
            self._count_sunk(batch.rows)
        return super().process(batch)

    def _count_sunk(self, rows: Iterable[Row]) -> None:
        self._sunk.update((row[0], row[1]) for row in rows)

    def on_tick(self, time_ns: int) -> Emitted:
        every = self._oracle.tick_every * STEP_NS  # type: ignore[attr-defined]  # always an ExactLedger
        assert time_ns == self._tick_ns + every, "ticks out of order"
        assert self._newest_ns < time_ns, "a tick behind rows that it belongs before"
        self._tick_ns = time_ns
        if self._is_sink:
            self._sunk[time_ns // every, TICK_PATH] += 1
        return {}

    def settled(self) -> Sequence[Row]:
        half = [key for at, key in enumerate(sorted(self._sunk)) if at % 2 == 0]
        return [self._row(*key, self._sunk.pop(key)) for key in half]

    def answer(self) -> Sequence[Row]:
        return [self._row(*key, count) for key, count in self._sunk.items()]

    def snapshot(self) -> bytes:
        last = {"\0".join((source, stream, str(by))): seq for (source, stream, by), seq in self._last.items()}
        sunk = [(*key, count) for key, count in self._sunk.items()]
        return msgspec.msgpack.encode(_State(last, dict(self._emitted), sunk, self._tick_ns, self._newest_ns))

    def restore(self, state: bytes) -> None:
        kept = msgspec.msgpack.decode(state, type=_State)
        for key, seq in kept.last.items():
            source, stream, by = key.split("\0")
            self._last[source, stream, int(by)] = seq
        self._emitted = Counter(kept.emitted)
        self._sunk = Multiset({(record, path): count for record, path, count in kept.sunk})
        self._tick_ns, self._newest_ns = kept.tick_ns, kept.newest_ns

    def _row(self, record: int, path: str, count: int) -> Row:
        return self._context.component, record, path, count

    def _check_routing(self, entry: Input, row: Row) -> None:
        # The neighbour's slot may have changed since the row was routed.
        if entry.grouping != "local-or-shuffle":
            super()._check_routing(entry, row)


class IncrementalBolt(CheckpointedBolt):
    """`CheckpointedBolt` whose dicts are `KeyedState`; its times are state of no key."""

    last_numbers = KeyedState(int)
    numbers = KeyedState(int)
    received = KeyedState(int)

    def open(self, context: Context) -> None:
        super().open(context)
        self._last, self._emitted, self._sunk = self.last_numbers, self.numbers, self.received  # type: ignore[assignment]

    def _count_sunk(self, rows: Iterable[Row]) -> None:
        self.received.add([(row[0], row[1]) for row in rows])

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self._tick_ns, self._newest_ns))

    def restore(self, state: bytes) -> None:
        self._tick_ns, self._newest_ns = msgspec.msgpack.decode(state, type=tuple[int, int])
