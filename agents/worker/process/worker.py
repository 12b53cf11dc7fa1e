"""A worker in one epoch: its tasks, with sockets, disk and clock.

    Start, or Grow -> create tasks, restore them, listen    -> Listening
    Connect        -> link to all peers                     -> Connected
    Go             -> sources start at a given time         -> Progress every second, Exhausted
    Precopy        -> state is copied ahead of a barrier    -> Precopied
    Prepare, Cut   -> a barrier passes                      -> Ready, Stored, Moved, Passed
    Stop           -> sources end, the topology drains      -> Stopped, Drained, with positions and answers
    Finish         -> close and exit

When a link breaks, the worker reports it (Lost) and halts until the next epoch starts or the worker is ended. The
folder in `Welcome` is the node's: prepared inputs are in `inputs/`; traces, snapshots and answers go to `<run>/`.
"""

import gc
import os
import selectors
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from agents import protocol
from agents.protocol import (
    Connect,
    Failed,
    Finish,
    Grow,
    Listening,
    Lost,
    Mark,
    Message,
    Passed,
    Slot,
    Start,
    Stopped,
    Welcome,
)
from agents.trace import TraceWriter
from agents.worker.channels.linger import FlushTimer
from agents.worker.process.event_loop import EventLoop
from agents.worker.process.metrics_reporter import MetricsReporter
from agents.worker.process.state_store import StateStore
from agents.worker.task_graph.epoch import EpochTasks
from agents.worker.wire.handshake import WorkerIdentity
from agents.worker.wire.mesh import LinkError, Mesh, PeerLink
from inventory.libc import DEBUGGER, LIBC, TIMER_SLACK_NS, set_property
from inventory.times import NS
from workloads.workload import load_workload

QUIET_REPORTS = 8
"""Most reports in a row, none of which is about any work, whose trace rows are written together."""

_TIMER_SLACK_NS = 1_000
_GC_THRESHOLDS = (100_000, 20, 100)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 16 * 1024 * 1024


class Links:
    """The links of one worker, by peer; see `interfaces.Network`."""

    def __init__(self, mesh: Mesh, epoch: int, addresses: Mapping[str, str]) -> None:
        self._mesh, self._epoch, self._addresses = mesh, epoch, addresses
        self.by_peer: dict[int, PeerLink] = {}

    def wire(self, peer: int) -> PeerLink:
        if peer not in self.by_peer:
            self.by_peer[peer] = PeerLink(peer, self._epoch)
        return self.by_peer[peer]

    def connect(self, peers: set[int], places: Sequence[Slot], ports: Mapping[str, int]) -> None:
        self._mesh.connect(
            {
                peer: (self._addresses[places[peer].node], ports[f"{places[peer].node}/{places[peer].index}"])
                for peer in peers
            }
        )

    @property
    def complete(self) -> bool:
        return self._mesh.complete

    @property
    def backlog(self) -> bool:
        """True if some link has unwritten bytes."""
        return any(link.backlog for link in self.by_peer.values())


class MonotonicClocks:
    """See `interfaces.Clocks`."""

    now_ns = staticmethod(time.monotonic_ns)
    cpu_ns = staticmethod(time.thread_time_ns)


class Worker:
    """One slot's worker in one epoch."""

    def __init__(
        self,
        welcome: Welcome,
        command: Start | Grow,
        selector: selectors.BaseSelector,
        send: Callable[[Message], None],
    ) -> None:
        """Create everything, and report that the worker listens.

        Raises:
            RunError: an operator, snapshot or data port cannot be opened.
        """
        spec = command.spec
        self.epoch, self.slot = spec.epoch, welcome.slot
        self._send, self._selector = send, selector
        folder = Path(welcome.folder)
        place = Slot(welcome.node, welcome.slot)
        flush_timer = self._flush_timer = FlushTimer(None if spec.linger_us is None else spec.linger_us * 1_000)
        me = spec.workers.index(place) if place in spec.workers else -1
        self._mesh = Mesh(
            selector,
            welcome.address,
            WorkerIdentity(bytes.fromhex(spec.key), spec.run, spec.epoch, me),
            self._on_link,
            self._lost,
        )
        self._links = Links(self._mesh, spec.epoch, spec.addresses)
        self._store = StateStore(folder, spec.run)
        selector.register(self._store.waker, selectors.EVENT_READ, self._on_stored)
        self._tasks = EpochTasks(
            spec,
            place,
            load_workload(spec.workload, spec.params).operator,
            {entry.name: str(folder / "inputs" / entry.file) for entry in spec.inputs},
            flush_timer,
            self._links,
            self._store,
            MonotonicClocks(),
            self._send_after_flush,
        )
        self._traces = TraceWriter(folder / spec.run / "traces", spec.run, welcome.node, welcome.slot)
        self._reporter = MetricsReporter(self._tasks, self._traces, welcome.slot)
        self._unwritten = 0
        self.loop = EventLoop(selector, self._tasks, flush_timer, self._report, self._on_lost, self._after_turns)
        self._connected_sent = False
        send(Listening(epoch=self.epoch, slot=self.slot, pid=os.getpid(), port=self._mesh.port))
        if isinstance(command, Grow):
            # No channel leads here yet; links are made at the barrier that moves executors here.
            self._connect({})
            self._tasks.start(command.at_ns, command.offset_ns, command.seen)
            if spec.gates is not None:
                self._tasks.follow(spec.gates, command.first_slot)

    def handle_command(self, command: protocol.Command) -> None:
        """Handle one command of the agent; commands of other epochs are ignored."""
        if getattr(command, "epoch", self.epoch) != self.epoch:
            return
        match command:
            case Connect(ports=ports):
                self._connect(ports)
            case Mark(kind=kind):
                self._traces.add("event", self._flush_timer.now_ns, kind, "", None, None)
                self._unwritten = QUIET_REPORTS
                self._report(self._flush_timer.now_ns)
            case Finish():
                self.loop.stopped = True
            case _:
                self._tasks.handle_command(command)

    def close(self) -> None:
        """Close operators, links, traces and the disk."""
        self.loop.close()
        self._mesh.close()
        self._reporter.report_rejected(self._flush_timer.now_ns, self._mesh.rejected)
        for link in self._links.by_peer.values():
            link.close()
        self._selector.unregister(self._store.waker)
        self._store.close()
        self._tasks.close()
        self._traces.close()

    def _connect(self, ports: Mapping[str, int]) -> None:
        self._tasks.connect(ports)
        self._linked()

    def _on_link(self, peer: int, sock: socket.socket, first_bytes: bytes) -> None:
        link = self._links.wire(peer)
        link.attach(sock, first_bytes)
        self.loop.add_link(link)
        self._linked()

    def _linked(self) -> None:
        self._tasks.linked()
        if self._tasks.connected and not self._connected_sent:
            self._connected_sent = True
            self._send(protocol.Connected(epoch=self.epoch, slot=self.slot))

    def _after_turns(self) -> None:
        """Finish once everything has drained."""
        if self._tasks.is_over and not self._links.backlog:
            self._report(self._flush_timer.now_ns)
            self._tasks.finish()

    def _on_lost(self, link: PeerLink, fault: LinkError) -> None:
        # Peers close their links after draining, which is no failure.
        if not self._tasks.drained:
            self._lost(link.peer, str(fault))

    def _lost(self, peer: int, reason: str) -> None:
        self.loop.halted = True
        place = self._tasks.place_of(peer)
        self._send(Lost(epoch=self.epoch, slot=self.slot, peer=place, reason=reason))

    def _on_stored(self, _mask: int) -> None:
        for kept in self._store.done():
            self._tasks.stored(*kept)

    def _send_after_flush(self, message: Message) -> None:
        if isinstance(message, Passed | Stopped):
            # The report frees executors that have moved away, which takes long for a large state. The state on its way
            # must not wait for that.
            self.loop.flush_links()
            # Rows before a checkpoint are never emitted again, and rows before a stop count as replays if they are. So
            # they must be in the traces, even if a worker dies afterwards.
            self._report(time.monotonic_ns())
        self._send(message)

    def _report(self, now_ns: int) -> None:
        self._mesh.expire(now_ns / NS)
        progress = self._reporter.report(now_ns)
        self._reporter.report_rejected(now_ns, self._mesh.rejected)
        # Rows without a report are left out when their work is done again; a report without rows would lose its work.
        # So only rows about no work may wait, and writing those is most of what an idle worker does.
        self._unwritten += 1
        if not self._reporter.is_quiet or self._unwritten >= QUIET_REPORTS:
            self._traces.flush()
            self._unwritten = 0
        self._send(progress)


def failure_report(epoch: int, slot: int, fault: Exception) -> Failed:
    """Return the report of an error that ends the worker."""
    return Failed(epoch=epoch, slot=slot, reason=str(fault) or type(fault).__name__)


def tune_process() -> None:
    """Set this process's timers, memory allocator and garbage collector for moving batches of rows."""
    set_property(TIMER_SLACK_NS, _TIMER_SLACK_NS)
    # Where the kernel lets only ancestors trace a process (Yama), the agent's other children (py-spy) may do so too.
    set_property(DEBUGGER, os.getppid())
    if hasattr(LIBC, "mallopt"):
        # Keep the memory of a batch of large fields for the next batch. By default glibc returns it to the kernel each
        # time, and half of the receiver's CPU time is page faults.
        LIBC.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        LIBC.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES // 4)
    # Rows are tuples of plain values, which never form cycles. With default thresholds the collector traverses every
    # batch in flight, which takes a seventh of the CPU time of word count.
    gc.set_threshold(*_GC_THRESHOLDS)
