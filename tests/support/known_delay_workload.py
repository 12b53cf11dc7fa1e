"""Workload with known latencies: its sink sleeps as scripted, and logs when it processed each record.

    source -- shuffle --> relay -- global --> sink

`install_workload` installs it as a third-party package, where workers find it.
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
    """Parameters of the workload.

    Attributes:
        payload: bytes per tuple.
        sources: executors of the spout.
        sleeps_ms: sleeps of the sink per record, cyclically.
        stall_at, stall_s: additional sleep at one record; -1: none.
        notes: folder of the sink's log of processing times; empty: no log.
        gate: while this file exists, the sink sleeps a second per batch.
    """

    payload: int = 0
    sources: int = 1
    sleeps_ms: tuple[float, ...] = (0.0,)
    stall_at: int = -1
    stall_s: float = 0.0
    notes: str = ""
    gate: str = ""


class Source(Spout):
    """Spout of record numbers, each with a payload."""

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
    """Bolt that forwards its input."""

    def process(self, batch: Batch) -> Emitted:
        return {"default": batch.rows}


class Sink(Bolt):
    """Bolt that sleeps, logs the time, and sums up."""

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


class KnownDelays:
    """The workload; see the module."""

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


def install_workload(site: Path) -> Path:
    """Install this workload in `site`, a folder for PYTHONPATH; return `site`."""
    metadata = site / "known_delays-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: known-delays\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[millrace.workloads]\nknown = known_delays:KnownDelays\n")
    (site / "known_delays.py").write_text(Path(__file__).read_text())
    return site
