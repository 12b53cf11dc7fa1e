"""Clock synchronization: clock offsets are measured throughout a run and sent to the nodes, with bounds on the error.

Workers stamp rows in the controller's time, using the last offset sent to their node. The error of a stamp is bounded
by the difference between that offset and the next measurement, plus the bound of the measurement. The error of a
latency between two nodes is bounded by the sum of both nodes' bounds.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from agents.trace import AGENT, TraceWriter
from controller.coordinator.clock_offset import Offset
from inventory.errors import RunError

EVERY_S = 2.0
"""Interval between two updates of the nodes' offsets."""


class ClockDifference(NamedTuple):
    """Error bound of a time difference between two nodes, in nanoseconds."""

    node: str
    to: str
    bound_ns: int


class ClockSync:
    """Offsets of all nodes whose clock is not the controller's.

    Attributes:
        used: node -> the offset that it uses.
        bounds: node -> largest error bound of its offsets so far.
    """

    def __init__(self, measure: Callable[[str], Offset], folder: Path, run: str) -> None:
        """Start without measurements.

        Args:
            measure: returns a node's current offset; raises RunError when it is unknown.
            folder: folder for trace files; measurements are written to the table `clock`.
            run: the run's id.
        """
        self._measure, self._folder, self._run = measure, folder, run
        self._writers: dict[str, TraceWriter] = {}
        self.used: dict[str, int] = {}
        self.bounds: dict[str, int] = {}

    def current(self, node: str) -> Offset:
        """Return the offset that a node uses, and its largest error bound so far.

        Raises:
            RunError: it is unknown.
        """
        if node not in self.used:
            self._note(node, self._measure(node))
        return Offset(self.used[node], self.bounds[node])

    async def run(self, nodes: Collection[str], send: Callable[[str, int], Awaitable[None]]) -> None:
        """Measure offsets and send them to the nodes every `EVERY_S`; never return. Unreachable nodes are skipped.

        Args:
            nodes: all nodes of the run.
            send: sends a node its offset in ns; raises RunError when it cannot be reached.
        """
        while True:
            await asyncio.sleep(EVERY_S)
            for node in nodes:
                with suppress(RunError):
                    found = self._measure(node)
                    if found.bound_ns:
                        await send(node, found.offset_ns)
                        self._note(node, found)

    def differences(self) -> list[ClockDifference]:
        """Return all pairs of nodes whose clocks may differ, in order."""
        pairs = (
            ClockDifference(a, b, self.bounds[a] + self.bounds[b]) for a, b in combinations(sorted(self.bounds), 2)
        )
        return [pair for pair in pairs if pair.bound_ns]

    def close(self) -> None:
        """Write the measurements."""
        for writer in self._writers.values():
            writer.close()

    def _note(self, node: str, found: Offset) -> None:
        was_off_ns = abs(found.offset_ns - self.used.get(node, found.offset_ns)) + found.bound_ns
        self.used[node], self.bounds[node] = found.offset_ns, max(self.bounds.get(node, 0), was_off_ns)
        if found.bound_ns:
            self._write(node, found)

    def _write(self, node: str, found: Offset) -> None:
        if node not in self._writers:
            self._writers[node] = TraceWriter(self._folder, self._run, node, AGENT)
        before_ns = time.monotonic_ns()
        utc_ns = time.time_ns()
        now_ns = (before_ns + time.monotonic_ns()) // 2 + found.offset_ns
        self._writers[node].add("clock", now_ns, utc_ns, found.offset_ns, found.bound_ns)


def largest_ns(apart: Iterable[ClockDifference], sources: Collection[str], sinks: Collection[str]) -> int:
    """Return the largest error bound of latencies from `sources` to `sinks`; 0 if all share a clock."""
    ways = {(source, sink) for source in sources for sink in sinks}
    return max((p.bound_ns for p in apart if (p.node, p.to) in ways or (p.to, p.node) in ways), default=0)
