"""What operators that got the same rows have emitted: is it the same?

Some columns may differ: a query may ask how long an answer took, and then its operators read a clock. A column in
which two instances differ, which nobody has restored, is free: nothing is compared in it, here or between processes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from zlib import crc32

from workloads.key_groups import codec_bytes
from workloads.operators import Row

Rows = Mapping[str, Sequence[Row]]
"""Stream, or table of the answer -> rows."""


class Emissions:
    """All that was emitted so far, by component and stream."""

    def __init__(self) -> None:
        self._free: dict[tuple[str, str], set[int]] = {}
        self._sums: Counter[tuple[str, str, int]] = Counter()

    def add(self, component: str, rows: Rows) -> None:
        """Count what an operator has emitted."""
        for stream, each in rows.items():
            for row in each:
                for column, value in enumerate(row):
                    self._sums[component, stream, column] += crc32(codec_bytes((value,)))

    def apart(self, component: str, one: Rows, other: Rows) -> str:
        """What two instances without any restore differ in beyond free columns, which this finds; empty: nothing."""
        for stream in sorted({*one, *other}):
            mine, theirs = one.get(stream, ()), other.get(stream, ())
            if len(mine) != len(theirs):
                return f"{len(mine)} and {len(theirs)} rows of {stream!r}"
            if self._lack(component, stream, mine, theirs) == (0, 0):
                continue
            free = self._free.setdefault((component, stream), set())
            for row, again in zip(mine, theirs, strict=True):
                if len(row) != len(again):
                    return f"rows of {stream!r} with {len(row)} and {len(again)} fields"
                free.update(at for at, (a, b) in enumerate(zip(row, again, strict=True)) if a != b)
        return ""

    def lost(self, component: str, one: Rows, restored: Rows) -> str:
        """What the restored one of two instances emits otherwise, rows in any order; empty when nothing is."""
        for stream in sorted({*one, *restored}):
            lacks, has = self._lack(component, stream, one.get(stream, ()), restored.get(stream, ()))
            if lacks or has:
                return f"{stream!r} lacks {lacks} rows that come without a restore, and has {has} that do not"
        return ""

    def columns(self) -> dict[tuple[str, str, int], int]:
        """(component, stream, column) -> a checksum of all values in any order; without free columns."""
        return {key: total for key, total in sorted(self._sums.items()) if key[2] not in self._free_of(*key[:2])}

    @property
    def free(self) -> Sequence[tuple[str, str, int]]:
        """Free columns."""
        return sorted((*key, column) for key, columns in self._free.items() for column in columns)

    def _free_of(self, component: str, stream: str) -> set[int]:
        return self._free.get((component, stream), set())

    def _lack(self, component: str, stream: str, one: Sequence[Row], other: Sequence[Row]) -> tuple[int, int]:
        """How many rows of each the other one does not have."""
        free = self._free_of(component, stream)
        first, second = (
            Counter(codec_bytes(tuple(v for at, v in enumerate(row) if at not in free)) for row in rows)
            for rows in (one, other)
        )
        return (first - second).total(), (second - first).total()
