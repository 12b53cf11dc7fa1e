"""A workload that knows what it does to its tuples: its sink has scripted delays, and notes when it was done.

    source -- shuffle --> relay -- global --> sink

`installed` puts it where workers find it, as a package of somebody else's.
"""

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import msgspec

from workloads.operators import NOTHING, Batch, Bolt, Context, Emitted, Operator, Row, Spout
from workloads.topology import Component, Input, Topology
from workloads.workload import Answer, PreparedInput, Verdict, rows_differ

SCHEMA = {"default": {"record": "int", "payload": "bytes"}}
TABLE = "sums"


@dataclass(frozen=True)
class Params:
    """What happens to tuples.

    Attributes:
        payload: bytes of each.
        sources: executors of the spout.
        sleeps_ms: the sink sleeps so long for record k, taken in turn.
        stall_at, stall_s: and so long, once, at this record; -1: at none.
        notes: folder where the sink writes when it was done with which record; empty: nowhere.
        gate: while this file is there, the sink takes a second for every batch.
    """

    payload: int = 0
    sources: int = 1
    sleeps_ms: tuple[float, ...] = (0.0,)
    stall_at: int = -1
    stall_s: float = 0.0
    notes: str = ""
    gate: str = ""


class Source(Spout):
    """Record numbers, each with a payload of its own."""

    def __init__(self, payload: int) -> None:
        self._payload, self._position = payload, 0

    def open(self, context: Context) -> None:
        self._index, self._step = context.index, context.parallelism

    def next_batch(self, limit: int) -> Sequence[Row]:
        first, self._position = self._position, self._position + limit
        numbers = range(self._index + first * self._step, self._index + self._position * self._step, self._step)
        return [(number, number.to_bytes(8, "little") + bytes(self._payload)) for number in numbers]

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self._position)

    def restore(self, state: bytes) -> None:
        self._position = msgspec.msgpack.decode(state, type=int)


class Relay(Bolt):
    """Passes on."""

    def process(self, batch: Batch) -> Emitted:
        return {"default": batch.rows}


class Sink(Bolt):
    """Sleeps, notes the time, and adds up."""

    answer_table = TABLE
    answer_schema: ClassVar = {"what": "str", "value": "int"}

    def __init__(self, params: Params) -> None:
        self._params = params
        self._count = self._sum = 0
        self._done: list[tuple[int, int]] = []

    def process(self, batch: Batch) -> Emitted:
        params = self._params
        if params.gate and Path(params.gate).exists():
            time.sleep(1)
        numbers = [record for record, _ in batch.rows]
        if params.notes:
            for number in numbers:
                sleep_s = params.sleeps_ms[number % len(params.sleeps_ms)] / 1e3
                if number == params.stall_at:
                    sleep_s += params.stall_s
                if sleep_s:
                    time.sleep(sleep_s)
            now_ns = time.monotonic_ns()
            self._done += [(number, now_ns) for number in numbers]
        self._count += len(numbers)
        self._sum += sum(numbers)
        return NOTHING

    def answer(self) -> Iterable[Row]:
        return [("count", self._count), ("sum", self._sum)]

    def close(self) -> None:
        if self._params.notes:
            (Path(self._params.notes) / "done.json").write_text(json.dumps(self._done))

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self._count, self._sum))

    def restore(self, state: bytes) -> None:
        self._count, self._sum = msgspec.msgpack.decode(state, type=tuple[int, int])


class Known:
    """See the module."""

    name = "known"
    summary = "record numbers to a sink with scripted delays"
    paper = ""
    Params = Params

    def __init__(self, params: Params) -> None:
        self.params = params

    def topology(self) -> Topology:
        return Topology(
            "known",
            (
                Component("source", "spout", self.params.sources, outputs=SCHEMA),
                Component("relay", "bolt", outputs=SCHEMA, inputs=(Input("source"),)),
                Component("sink", "bolt", inputs=(Input("relay", "global"),)),
            ),
        )

    def operator(self, component: str) -> Operator:
        made = {"source": lambda: Source(self.params.payload), "relay": Relay, "sink": lambda: Sink(self.params)}
        return made[component]()

    def prepare(self, folder: Path) -> Sequence[PreparedInput]:
        return []

    def reference(self, positions: Sequence[int], inputs: Sequence[PreparedInput]) -> Answer:
        n = len(positions)
        total = sum(index * count + n * (count * (count - 1) // 2) for index, count in enumerate(positions))
        return {TABLE: [("count", sum(positions)), ("sum", total)]}

    def compare(self, answer: Answer, reference: Answer) -> Verdict:
        differences = rows_differ(answer.get(TABLE, ()), reference[TABLE], key_fields=1)
        return Verdict(not differences, len(reference[TABLE]), "; ".join(differences))


def installed(site: Path) -> Path:
    """Make `site`, a folder for PYTHONPATH, hold this workload as an installed package."""
    information = site / "known-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: known\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[millrace.workloads]\nknown = known:Known\n")
    (site / "known.py").write_text(Path(__file__).read_text())
    return site
