"""The clocks of a run's nodes: measured all the time, told to the nodes, and how far apart they may have been.

Workers stamp rows in the controller's time, by the offset that their node was told last. How far a stamp may be off is
what that offset turns out to have been off: it is compared with every new measurement, and its bound is added. The
latency of a row that went from one node to another may be off by the sum of both.
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
"""So often nodes are told their offsets anew."""


class ClockDifference(NamedTuple):
    """How far off the time from one node to another may be; in nanoseconds."""

    node: str
    to: str
    bound_ns: int


class ClockSync:
    """Offsets of all nodes whose clock is not the controller's.

    Attributes:
        used: node -> the offset that it goes by.
        bounds: node -> how far off that has been at most.
    """

    def __init__(self, measure: Callable[[str], Offset], folder: Path, run: str) -> None:
        """Know nothing yet.

        Args:
            measure: a node's offset as of now; RunError when it is not known.
            folder: for trace files: what was measured comes into the table `clock`.
            run: the run's id.
        """
        self._measure, self._folder, self._run = measure, folder, run
        self._writers: dict[str, TraceWriter] = {}
        self.used: dict[str, int] = {}
        self.bounds: dict[str, int] = {}

    def current(self, node: str) -> Offset:
        """The offset that a node goes by, and how far off it has been at most.

        Raises:
            RunError: it is not known.
        """
        if node not in self.used:
            self._note(node, self._measure(node))
        return Offset(self.used[node], self.bounds[node])

    async def keep(self, nodes: Collection[str], tell: Callable[[str, int], Awaitable[None]]) -> None:
        """Measure again and again, and tell nodes; those that cannot be reached are told when they are back.

        Args:
            nodes: all that take part.
            tell: tells a node its offset in ns; RunError when it cannot be reached.
        """
        while True:
            await asyncio.sleep(EVERY_S)
            for node in nodes:
                with suppress(RunError):
                    found = self._measure(node)
                    if found.bound_ns:
                        await tell(node, found.offset_ns)
                        self._note(node, found)

    def apart(self) -> list[ClockDifference]:
        """All pairs of nodes whose times may differ, the pairs in order."""
        pairs = (
            ClockDifference(a, b, self.bounds[a] + self.bounds[b]) for a, b in combinations(sorted(self.bounds), 2)
        )
        return [pair for pair in pairs if pair.bound_ns]

    def close(self) -> None:
        """Write what was measured."""
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
    """How far off the latency from any of some nodes to any of others may be; 0 where all share a clock."""
    ways = {(source, sink) for source in sources for sink in sinks}
    return max((p.bound_ns for p in apart if (p.node, p.to) in ways or (p.to, p.node) in ways), default=0)
