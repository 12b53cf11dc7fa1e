"""The event loop of a worker's single thread: sockets, executors, timers.

A pass gives every runnable executor one batch, writes the links' buffers, and polls the sockets once. When no executor
is runnable, the loop sleeps until a socket or a timer wakes it. There is no system call, lock or clock read per tuple.

While the worker is idle, an executor's rows are flushed right after its turn, so that a row passes through all
executors of the worker in one pass. The busier it is, the longer they wait (`channels.linger`).
"""

import select
import selectors
import time
from collections.abc import Callable

from agents.worker.channels.linger import FlushTimer
from agents.worker.task_graph.epoch import EpochTasks
from agents.worker.wire import frame
from agents.worker.wire.mesh import LinkError, PeerLink
from inventory.times import NS

REPORT_NS = NS
"""Interval of the periodic report."""

_QUANTA = 4
"""A source wakes up at most so many times per wait of its rows, so that records due close together are sent together.
"""

_ANNOUNCED_AT = 1.5
"""Peers learn of a wait when it has changed by this factor, or from or to none."""


class EventLoop:
    """Runs the tasks of one worker in one epoch."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        tasks: EpochTasks,
        flush_timer: FlushTimer,
        report: Callable[[int], None],
        on_lost: Callable[[PeerLink, LinkError], None],
        after_turns: Callable[[], None],
    ) -> None:
        """Create the loop; while `halted`, links are read, but executors get no turns and nothing is sent.

        Args:
            selector: of all sockets.
            tasks: executors and channels.
            flush_timer: of the channels.
            report: called every second.
            on_lost: called when a link breaks.
            after_turns: called after the turns of a pass, before the loop sleeps.
        """
        self._selector = selector
        self._flush_timer = flush_timer
        self._report = report
        self._on_lost = on_lost
        self._after_turns = after_turns
        self._links: list[PeerLink] = []
        self._tasks = tasks
        self._next_report_ns = time.monotonic_ns() + REPORT_NS
        self._slept_ns = 0
        self._announced_ns = 0
        self.stopped = self.halted = False

    def add_link(self, link: PeerLink) -> None:
        """Serve a link that is connected."""
        self._links.append(link)
        if self._announced_ns:
            self._announce_to(link)
        self._selector.register(link.sock, selectors.EVENT_READ, lambda mask: self._serve(link, mask))
        # Frames may have arrived together with the last bytes of the handshake.
        self._take(link)

    def run_pass(self) -> None:
        """Run one pass."""
        flush_timer = self._flush_timer
        now = flush_timer.now_ns = time.monotonic_ns()
        if flush_timer.linger.update(now, self._slept_ns):
            self._announce()
        if not self.halted:
            # Before the turns: rows flushed to an executor of this worker must not stay in its queue during a sleep.
            flush_timer.flush_old()
            for executor in self._tasks.registry.executors:
                executor.turn(now)
                if flush_timer.flushes_at_once:
                    flush_timer.flush_old()
            self._tasks.after_turns()
            self.flush_links()
        self._after_turns()
        if now >= self._next_report_ns:
            # After a turn of several seconds a single report covers all of them.
            self._next_report_ns += REPORT_NS * (1 + (now - self._next_report_ns) // REPORT_NS)
            self._report(now)
        sleep_s = self._sleep_s()
        before_ns = time.monotonic_ns() if sleep_s else 0
        ready = self._selector.select(sleep_s)
        # What follows is work again.
        self._slept_ns = time.monotonic_ns() - before_ns if sleep_s else 0
        for key, mask in ready:
            key.data(mask)

    def _sleep_s(self) -> float:
        """Return the time until the next timer; 0 while an executor is runnable, or state is copied or deleted."""
        wake = self._next_report_ns
        now = time.monotonic_ns()
        if not self.halted:
            registry = self._tasks.registry
            if self._tasks.has_more_steps or any(bolt.ready for bolt in registry.bolts):
                return 0.0
            quantum = self._flush_timer.linger.ns // _QUANTA
            if (flush_ns := self._flush_timer.next_ns) is not None:
                wake = min(wake, flush_ns)
            for spout in registry.spouts:
                due = spout.next_ns
                if due is not None:
                    wake = min(wake, due if due <= now - quantum else max(due, now + quantum))
        return max(0, wake - now) / NS

    def _announce(self) -> None:
        """Tell peers how long rows wait here, unless it is nearly what they know."""
        wait, known = self._flush_timer.linger.ns, self._announced_ns
        if wait != known and (not wait or not known or max(wait, known) >= _ANNOUNCED_AT * min(wait, known)):
            self._announced_ns = wait
            for link in self._links:
                self._announce_to(link)

    def _announce_to(self, link: PeerLink) -> None:
        link.write([frame.linger(self._tasks.epoch, self._announced_ns // 1_000)])

    def flush_links(self) -> None:
        """Write as much of the links' buffers as the sockets accept now."""
        for link in list(self._links):
            if link.backlog:
                self._flush(link)

    def _flush(self, link: PeerLink) -> None:
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
        """Unregister all links."""
        for link in self._links:
            self._selector.unregister(link.sock)
        self._links.clear()

    def _serve(self, link: PeerLink, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._flush(link)
        if mask & selectors.EVENT_READ and link in self._links:
            self._take(link)

    def _take(self, link: PeerLink) -> None:
        try:
            for received in link.receive():
                if received.kind == frame.LINGER:
                    self._flush_timer.peers_ns[link.peer] = received.count * 1_000
                else:
                    self._tasks.take(received, link.peer)
        except LinkError as fault:
            self._lose(link, fault)

    def _lose(self, link: PeerLink, fault: LinkError) -> None:
        self._links.remove(link)
        self._selector.unregister(link.sock)
        self._on_lost(link, fault)


class Selector(selectors.EpollSelector):
    """A selector whose cost does not grow with the number of links, and whose time-outs have microseconds.

    select() takes time-outs of microseconds, but all descriptors in every call. epoll takes them once, but Python's
    interface rounds time-outs up to milliseconds. So select() waits for a single descriptor, that of epoll.
    """

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout > 0:
            ready, _, _ = select.select((self,), (), (), timeout)
            if not ready:
                return []
            timeout = 0
        return super().select(timeout)
