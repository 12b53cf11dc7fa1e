"""A source that reads its share of a recording."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import msgspec

from workloads.operators import Context, Row, Spout
from workloads.recordings.recording import Recording


class RecordedSpout(Spout):
    """Emits the rows of its share in the file's order; stream time is the recorded time.

    A workload's own spout names the columns it wants, and overrides `rows` when its rows are not just these.
    """

    recorded = True

    columns: ClassVar[tuple[str, ...]]
    """Columns of the prepared file that make its rows."""

    input: ClassVar[str] = "recording"
    """Name of the prepared input."""

    recording: Recording

    def __init__(self, tick_ns: int = 0) -> None:
        self.tick_ns = tick_ns

    def open(self, context: Context) -> None:
        path = Path(context.inputs[self.input])
        self.recording = Recording(path, context.index, context.parallelism, self.columns)
        self.times = self.recording.times
        self.origin_ns = self.recording.origin_ns

    def rows(self, columns: Sequence[list[object]]) -> Sequence[Row]:
        """Return rows to emit, one per record in the same order, from one list per column."""
        return list(zip(*columns, strict=True))

    def next_batch(self, limit: int) -> Sequence[Row]:
        return self.rows(self.recording.take(limit))

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.recording.position)

    def restore(self, state: bytes) -> None:
        self.recording.skip(msgspec.msgpack.decode(state, type=int))
