"""A workload for measurements: a topology whose keyed state is as large as one likes, from the start.

    spout (keys) -- fields (key) --> keep

Every key has a value of `value_bytes`, whose first 8 bytes count how often the key came. A keeper that has been
restored says so with its first batch: when it last worked before, and now. That is what a user waits, whoever else
keeps time.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from workloads.key_groups import KeyRouter, first_owners, key_group
from workloads.operators import NOTHING, Batch, Bolt, Context, Emitted, Operator, Row, Spout
from workloads.topology import DEFAULT_STREAM, Component, Input, Topology
from workloads.workload import Answer, PreparedInput, Verdict, filled, rows_differ

TABLE = "kept"
SHARDS = 64
STEP = 2_654_435_761
"""Odd, and no multiple of 5: from one record's key to the next, so that keys come in no order of their own."""


@dataclass(frozen=True)
class KeyedStateParams:
    """Parameters.

    Attributes:
        keys: how many different ones there are.
        value_bytes: kept for each.
        parallelism: executors per component.
        diary: file to which a restored keeper adds a line: its index, when it last worked before its state was taken,
            and when it works again, both in ns of the host's monotonic clock; empty: none.
        ahead: whether the state of keepers is copied ahead of their moves.
    """

    keys: Annotated[int, Meta(ge=1)] = 1000
    value_bytes: Annotated[int, Meta(ge=8)] = 100
    parallelism: Mapping[str, int] = field(default_factory=dict)
    diary: str = ""
    ahead: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "parallelism", filled(self.parallelism, {"spout": 2, "keep": 2}))


class Keys(Spout):
    """Emits keys, for ever."""

    def __init__(self, keys: int) -> None:
        self._keys = keys
        self._position = 0

    def open(self, context: Context) -> None:
        self._index, self._of = context.index, context.parallelism

    def next_batch(self, limit: int) -> Sequence[Row]:
        first = self._position * self._of + self._index
        self._position += limit
        keys, step = self._keys, STEP * self._of
        return [(at % keys,) for at in range(first * STEP, first * STEP + limit * step, step)]

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self._position)

    def restore(self, state: bytes) -> None:
        self._position = msgspec.msgpack.decode(state, type=int)


class Keep(Bolt):
    """Keeps a value for every key that is its own, and answers with how often each came.

    One dict of a million keys would stand still for 90 ms whenever it grows.
    """

    answer_table = TABLE
    answer_schema: ClassVar = {"key": "int", "count": "int"}

    def __init__(self, params: KeyedStateParams) -> None:
        self._keys, self._rest, self._diary = params.keys, params.value_bytes - 8, params.diary
        self._values: list[dict[int, bytes]] = [{} for _ in range(SHARDS)]
        self._worked_ns = 0
        self._restored = False
        self._changed: set[int] | None = None

    def open(self, context: Context) -> None:
        self._index, self._of = context.index, context.parallelism

    def _fill(self) -> None:
        """Create the values, before anything needs them; an operator that is restored has them all."""
        if any(self._values):
            return
        route = KeyRouter(first_owners(self._of)).route_value
        for key in range(self._keys):
            if route(key) == self._index:
                self._values[key % SHARDS][key] = (
                    bytes(8) + key.to_bytes(4, "big").ljust(self._rest, b"\xaa")[: self._rest]
                )

    def process(self, batch: Batch) -> Emitted:
        self._fill()
        now_ns = time.monotonic_ns()
        if self._restored and self._diary:
            with Path(self._diary).open("a") as diary:
                diary.write(f"{self._index} {self._worked_ns} {now_ns}\n")
        self._restored, self._worked_ns = False, now_ns
        values = self._values
        for (key,) in batch.rows:
            shard = values[key % SHARDS]
            value = shard[key]
            shard[key] = (int.from_bytes(value[:8], "little") + 1).to_bytes(8, "little") + value[8:]
        if self._changed is not None:
            self._changed.update([key for (key,) in batch.rows])
        return NOTHING

    def snapshot(self) -> bytes:
        self._fill()
        return msgspec.msgpack.encode((self._worked_ns, self._values))

    def restore(self, state: bytes) -> None:
        self._worked_ns, self._values = msgspec.msgpack.decode(state, type=tuple[int, list[dict[int, bytes]]])
        self._restored = True

    def answer(self) -> Iterable[Row]:
        self._fill()
        return [
            (key, int.from_bytes(value[:8], "little"))
            for key, value in chain.from_iterable(map(dict.items, self._values))
        ]


class CopiedKeep(Keep):
    """`Keep` whose state can be copied ahead of a move, and deleted little by little behind it: `Divisible`."""

    def state_keys(self) -> Iterable[int]:
        self._fill()
        return chain.from_iterable(map(list, self._values))

    def key_of(self, key: int) -> tuple[int]:
        return (key,)

    def track_changes(self, changed: set[int] | None) -> None:
        self._changed = changed

    def snapshot_keys(self, keys: Collection[int]) -> bytes:
        shards = self._values
        return msgspec.msgpack.encode((self._worked_ns, {key: shards[key % SHARDS][key] for key in keys}))

    def restore_keys(self, state: bytes) -> None:
        self._worked_ns, values = msgspec.msgpack.decode(state, type=tuple[int, dict[int, bytes]])
        for key, value in values.items():
            self._values[key % SHARDS][key] = value
        self._restored = True

    def release_keys(self, keys: Collection[int]) -> None:
        for key in keys:
            self._values[key % SHARDS].pop(key, None)

    def absorb(self, other: "CopiedKeep") -> None:
        for mine, more in zip(self._values, other._values, strict=True):
            mine.update(more)

    def snapshot_groups(self, groups: Collection[int] | None = None) -> tuple[bytes, Mapping[int, bytes]]:
        found: dict[int, list[int]] = {}
        for key in self.state_keys():
            group = key_group(self.key_of(key))
            if groups is None or group in groups:
                found.setdefault(group, []).append(key)
        return b"", {group: self.snapshot_keys(keys) for group, keys in found.items()}

    def restore_groups(self, common: bytes, groups: Mapping[int, bytes]) -> None:
        for state in groups.values():
            self.restore_keys(state)


class KeyedState:
    """See the module."""

    name = "keyed-state"
    summary = "keys, each with a value that is kept"
    paper = "none"
    Params = KeyedStateParams

    def __init__(self, params: KeyedStateParams) -> None:
        self.params = params

    def topology(self) -> Topology:
        """Spouts and keepers."""
        of = self.params.parallelism
        return Topology(
            self.name,
            (
                Component("spout", "spout", of["spout"], outputs={DEFAULT_STREAM: {"key": "int"}}),
                Component("keep", "bolt", of["keep"], inputs=(Input("spout", grouping="fields", fields=("key",)),)),
            ),
        )

    def operator(self, component: str) -> Operator:
        """A spout or a keeper."""
        if component == "spout":
            return Keys(self.params.keys)
        return (CopiedKeep if self.params.ahead else Keep)(self.params)

    def prepare(self, folder: Path) -> Sequence[PreparedInput]:
        """Nothing."""
        return ()

    def reference(self, positions: Sequence[int], inputs: Sequence[PreparedInput]) -> Answer:
        """Keys of records 0, n, 2n, ... of every spout, counted."""
        keys, of = self.params.keys, len(positions)
        counts = [0] * keys
        for index, position in enumerate(positions):
            for record in range(index, index + position * of, of):
                counts[record * STEP % keys] += 1
        return {TABLE: list(enumerate(counts))}

    def compare(self, answer: Answer, reference: Answer) -> Verdict:
        """In full."""
        expected = reference[TABLE]
        differences = rows_differ(answer.get(TABLE, ()), expected, key_fields=1)
        return Verdict(not differences, len(expected), "; ".join(differences))
