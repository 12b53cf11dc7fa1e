"""Schedules: record numbers to intended times and back, independent of what has been emitted.

A schedule is a total over all executors of a spout: record g of the whole input is due `due_ns(g)` after source
start, by any executor. Lateness counts as latency; the schedule is never shifted.
"""

from typing import Protocol

NS = 1_000_000_000


class Schedule(Protocol):
    """Maps record numbers to intended times and back, each an exact inverse of the other."""

    def due_ns(self, record: int) -> int:
        """Return the time in nanoseconds after source start at which `record` (0-based) is due."""
        ...

    def due_count(self, elapsed_ns: int) -> int:
        """Return the number of records due by `elapsed_ns`: the smallest n with due_ns(n) > elapsed_ns."""
        ...
