"""The worker's one thread: sockets, executors, timers, in turn.

A pass gives every executor that can run one batch, writes what the links hold, and looks at the sockets once. When
nobody could run again, the loop sleeps until a socket or a timer wakes it; there is no system call, lock or clock read
per tuple.
"""

import selectors
import time
from collections.abc import Callable

from agents.worker.channels.channel import Ager
from agents.worker.task_graph.epoch import EpochTasks
from agents.worker.wire.link import Link, LinkError

REPORT_NS = 1_000_000_000
"""Interval of the periodic report."""

_SOURCE_QUANTUM_NS = 500_000
"""Sources are not woken more often, so that records due close together leave together; nor when one is less behind."""


class EventLoop:
    """Runs a worker's share of the topology."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        share: EpochTasks,
        ager: Ager,
        report: Callable[[int], None],
        on_lost: Callable[[Link, LinkError], None],
        after_turns: Callable[[], None],
    ) -> None:
        """`report` is called every second; `on_lost` when a link breaks, and decides what that means.

        `after_turns` sees to what the turns of a pass have brought, before the loop sleeps.

        While `halted`, executors get no turns and nothing more is sent; links are read, or the loop could not sleep.
        """
        self._selector = selector
        self._ager = ager
        self._report = report
        self._on_lost = on_lost
        self._after_turns = after_turns
        self._links: list[Link] = []
        self._share = share
        self._next_report_ns = time.monotonic_ns() + REPORT_NS
        self.stopped = self.halted = False

    def add_link(self, link: Link) -> None:
        """Service a link that has its connection."""
        self._links.append(link)
        self._selector.register(link.sock, selectors.EVENT_READ, lambda mask: self._serve(link, mask))
        # Frames may have come together with the last bytes of the handshake.
        self._take(link)

    def run_pass(self) -> None:
        """One pass."""
        now = self._ager.now_ns = time.monotonic_ns()
        if not self.halted:
            # Before the turns: what leaves for an executor of this worker must not lie in its queue while we sleep.
            self._ager.flush_old()
            for executor in self._share.registry.executors:
                executor.turn(now)
            self._share.after_turns()
            for link in list(self._links):
                if link.backlog:
                    self._flush(link)
        self._after_turns()
        if now >= self._next_report_ns:
            # After a turn of several seconds there is one report over all of them.
            self._next_report_ns += REPORT_NS * (1 + (now - self._next_report_ns) // REPORT_NS)
            self._report(now)
        for key, mask in self._selector.select(self._sleep_s()):
            key.data(mask)

    def _sleep_s(self) -> float:
        """How long there is nothing to do that no socket tells of."""
        wake = self._next_report_ns
        now = time.monotonic_ns()
        if not self.halted:
            registry = self._share.registry
            if any(bolt.ready for bolt in registry.bolts):
                return 0.0
            if self._ager.next_ns is not None:
                wake = min(wake, self._ager.next_ns)
            for spout in registry.spouts:
                due = spout.next_ns
                if due is not None:
                    wake = min(wake, due if due <= now - _SOURCE_QUANTUM_NS else max(due, now + _SOURCE_QUANTUM_NS))
        return max(0, wake - now) / 1e9

    def _flush(self, link: Link) -> None:
        try:
            link.flush()
        except LinkError as fault:
            self._lose(link, fault)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.backlog else 0)
        key = self._selector.get_key(link.sock)
        if key.events != wanted:
            self._selector.modify(link.sock, wanted, key.data)

    def close(self) -> None:
        """Let go of all links."""
        for link in self._links:
            self._selector.unregister(link.sock)
        self._links.clear()

    def _serve(self, link: Link, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._flush(link)
        if mask & selectors.EVENT_READ and link in self._links:
            self._take(link)

    def _take(self, link: Link) -> None:
        try:
            for received in link.receive():
                self._share.take(received, link.peer)
        except LinkError as fault:
            self._lose(link, fault)

    def _lose(self, link: Link, fault: LinkError) -> None:
        self._links.remove(link)
        self._selector.unregister(link.sock)
        self._on_lost(link, fault)
