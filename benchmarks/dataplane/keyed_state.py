"""Workload `keyed-state`: keyed state whose size is a parameter, and which is complete from the start.

    spout (keys) -- fields (key) --> count

Every key has a value of `value_bytes`, whose first 8 bytes count the records of that key. With its first batch, a
restored bolt logs the times of its last batch before the snapshot and of this batch, so that pauses are measured
independently of the controller.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from workloads.key_groups import KeyRouter, first_owners
from workloads.keyed_state import KeyedState
from workloads.operators import NOTHING, Batch, Bolt, Context, Emitted, Operator, Row, Spout
from workloads.topology import DEFAULT_STREAM, Component, Input, Topology
from workloads.workload import Answer, PreparedInput, Verdict, filled, rows_differ

TABLE = "counts"
STEP = 2_654_435_761
"""Distance between the keys of consecutive records. Odd and no multiple of 5, so that keys come in scattered order."""


@dataclass(frozen=True)
class KeyedStateParams:
    """Parameters.

    Attributes:
        keys: number of different keys.
        value_bytes: size of the value of each key.
        parallelism: executors per component.
        batch_log: file to which a restored bolt appends a line: its index, the time of its last batch before the
            snapshot, and the time of its first batch after it, in ns of the host's monotonic clock. Empty: no log.
        precopy: whether the state of bolts is copied ahead of their moves.
    """

    keys: Annotated[int, Meta(ge=1)] = 1000
    value_bytes: Annotated[int, Meta(ge=8)] = 100
    parallelism: Mapping[str, int] = field(default_factory=dict)
    batch_log: str = ""
    precopy: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "parallelism", filled(self.parallelism, {"spout": 2, "count": 2}))


class KeySpout(Spout):
    """Emits keys without end."""

    def __init__(self, keys: int) -> None:
        self._keys = keys
        self._position = 0

    def open(self, context: Context) -> None:
        self._index, self._parallelism = context.index, context.parallelism

    def next_batch(self, limit: int) -> Sequence[Row]:
        first = self._position * self._parallelism + self._index
        self._position += limit
        keys, step = self._keys, STEP * self._parallelism
        return [(at % keys,) for at in range(first * STEP, first * STEP + limit * step, step)]

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self._position)

    def restore(self, state: bytes) -> None:
        self._position = msgspec.msgpack.decode(state, type=int)


class KeyCount(Bolt):
    """Stores a value for each of its keys, and answers with the number of records per key."""

    answer_table = TABLE
    answer_schema: ClassVar = {"key": "int", "count": "int"}

    values = KeyedState(bytes)
    last_batch = KeyedState(int)
    """Time of the last batch, by its last key: state of no key could not be divided."""

    def __init__(self, params: KeyedStateParams) -> None:
        self._keys, self._padding, self._batch_log = params.keys, params.value_bytes - 8, params.batch_log
        self._restored = False

    def open(self, context: Context) -> None:
        self._index, self._parallelism = context.index, context.parallelism

    def load_state(self) -> None:
        self._restored = True

    def _fill(self) -> None:
        """Create the values before their first use; a restored operator has them already."""
        if self.values:
            return
        route = KeyRouter(first_owners(self._parallelism)).route_value
        for key in range(self._keys):
            if route(key) == self._index:
                self.values[key] = bytes(8) + key.to_bytes(4, "big").ljust(self._padding, b"\xaa")[: self._padding]

    def process(self, batch: Batch) -> Emitted:
        self._fill()
        now_ns = time.monotonic_ns()
        if self._restored and self._batch_log:
            with Path(self._batch_log).open("a") as log:
                log.write(f"{self._index} {max(self.last_batch.values(), default=0)} {now_ns}\n")
        self._restored = False
        values = self.values
        for (key,) in batch.rows:
            value = values[key]
            values[key] = (int.from_bytes(value[:8], "little") + 1).to_bytes(8, "little") + value[8:]
        self.last_batch.clear()
        self.last_batch[key] = now_ns
        return NOTHING

    def answer(self) -> Iterable[Row]:
        self._fill()
        return [(key, int.from_bytes(value[:8], "little")) for key, value in self.values.items()]


class WholeKeyCount(KeyCount):
    """`KeyCount` whose state is one whole: it moves at the barrier only."""

    values: Any = None
    last_batch: Any = None

    def __init__(self, params: KeyedStateParams) -> None:
        super().__init__(params)
        self.values, self.last_batch = {}, {}

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self.values, self.last_batch))

    def restore(self, state: bytes) -> None:
        self.values, self.last_batch = msgspec.msgpack.decode(state, type=tuple[dict[int, bytes], dict[int, int]])
        self._restored = True


class KeyedStateWorkload:
    """Workload with keyed state of a given size."""

    name = "keyed-state"
    summary = "keys, each with a value in the state of a bolt"
    paper = "none"
    Params = KeyedStateParams

    def __init__(self, params: KeyedStateParams) -> None:
        self.params = params

    def topology(self) -> Topology:
        """Return the topology: spouts, and bolts that count by key."""
        parallelism = self.params.parallelism
        inputs = (Input("spout", grouping="fields", fields=("key",)),)
        return Topology(
            self.name,
            (
                Component("spout", "spout", parallelism["spout"], outputs={DEFAULT_STREAM: {"key": "int"}}),
                Component("count", "bolt", parallelism["count"], inputs=inputs),
            ),
        )

    def operator(self, component: str) -> Operator:
        """Return the operator of a component."""
        if component == "spout":
            return KeySpout(self.params.keys)
        return (KeyCount if self.params.precopy else WholeKeyCount)(self.params)

    def prepare(self, folder: Path) -> Sequence[PreparedInput]:
        """Return no inputs: spouts generate their keys."""
        return ()

    def reference(self, positions: Sequence[int], inputs: Sequence[PreparedInput]) -> Answer:
        """Count the keys of the records that each spout has emitted: spout i of n has records i, i + n, i + 2n, ..."""
        keys, spouts = self.params.keys, len(positions)
        counts = [0] * keys
        for index, position in enumerate(positions):
            for record in range(index, index + position * spouts, spouts):
                counts[record * STEP % keys] += 1
        return {TABLE: list(enumerate(counts))}

    def compare(self, answer: Answer, reference: Answer) -> Verdict:
        """Compare all rows."""
        expected = reference[TABLE]
        differences = rows_differ(answer.get(TABLE, ()), expected, key_fields=1)
        return Verdict(not differences, len(expected), "; ".join(differences))
