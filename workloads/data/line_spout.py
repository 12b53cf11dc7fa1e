"""Spout that reads prepared records in a loop, and the number of times it has emitted each of them.

Record g of the endless input is record `g mod R` of the R prepared ones. Executor i of n emits the records i, i + n,
i + 2n, ...; its position is the number of records emitted.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import gcd
from pathlib import Path

import msgspec

from workloads.data.text import read_records
from workloads.operators import Context, Row, Spout


class LineSpout(Spout):
    """Emits the records of the prepared input `text` as rows of one field, in a loop.

    Attributes:
        position: records emitted since the beginning, before a restore included.
    """

    position: int
    _at: int

    def open(self, context: Context) -> None:
        path = Path(context.inputs["text"])
        status = path.stat()
        self._rows = _rows(path, status.st_size, status.st_mtime_ns)
        self._index, self._step = context.index, context.parallelism
        self._go_to(0)

    def next_batch(self, limit: int) -> Sequence[Row]:
        rows, step, at = self._rows, self._step, self._at
        batch = rows[at : at + limit * step : step]
        at += len(batch) * step
        while len(batch) < limit:
            at %= len(rows)
            more = rows[at : at + (limit - len(batch)) * step : step]
            batch += more
            at += len(more) * step
        self._at = at
        self.position += limit
        return batch

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.position)

    def restore(self, state: bytes) -> None:
        self._go_to(msgspec.msgpack.decode(state, type=int))

    def _go_to(self, position: int) -> None:
        self.position = position
        self._at = (self._index + position * self._step) % len(self._rows)


@lru_cache(maxsize=1)
def _rows(path: Path, size: int, mtime_ns: int) -> list[Row]:
    """Return the records as rows, shared by the spouts of one worker; a changed file is read again."""
    return list(zip(read_records(path)))


def times_emitted(records: int, positions: Sequence[int]) -> list[int]:
    """Return how often each of `records` prepared records was emitted when executor i is at `positions[i]`.

    After R / gcd(R, n) records an executor is back at its first one and has emitted each record whose number is its own
    modulo gcd(R, n) exactly once; so only the unfinished cycle is walked.
    """
    n = len(positions)
    stride = gcd(records, n)
    cycle = records // stride
    times = [0] * records
    for index, position in enumerate(positions):
        cycles, rest = divmod(position, cycle)
        if cycles:
            for record in range(index % stride, records, stride):
                times[record] += cycles
        for record in range(index, index + rest * n, n):
            times[record % records] += 1
    return times
