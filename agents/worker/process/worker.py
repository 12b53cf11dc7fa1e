"""A worker in one start of the topology: its share, with sockets, disk and clock around it.

    Start, or Grow -> build the share, restore it, listen   -> Listening
    Connect        -> link to all peers                     -> Connected
    Go             -> sources start at a given time         -> Progress every second, Exhausted
    Prepare, Cut   -> a barrier goes through                -> Ready, Stored, Moved, Passed
    Stop           -> sources end, the topology drains      -> Stopped, Drained, with positions and answers
    Finish         -> close and exit

When a link breaks the worker says so (Lost) and stands still, until it is started again with the next epoch or ended.
The folder in `Welcome` is the node's: prepared inputs lie in `inputs/`, traces, snapshots and answers go to `<run>/`.
"""

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
    Place,
    Start,
    Stopped,
    Welcome,
)
from agents.trace import TraceWriter
from agents.worker.channels.channel import Ager
from agents.worker.process.event_loop import EventLoop
from agents.worker.process.metrics_reporter import MetricsReporter
from agents.worker.process.state_store import StateStore
from agents.worker.task_graph.epoch import EpochTasks
from agents.worker.wire.link import Link, LinkError
from agents.worker.wire.mesh import Mesh
from workloads.registry import load_workload


class Links:
    """The links of one worker, as its share sees them."""

    def __init__(self, mesh: Mesh, epoch: int, addresses: Mapping[str, str]) -> None:
        self._mesh, self._epoch, self._addresses = mesh, epoch, addresses
        self.by_peer: dict[int, Link] = {}

    def wire(self, peer: int) -> Link:
        """See `interfaces.Network.wire`."""
        if peer not in self.by_peer:
            self.by_peer[peer] = Link(peer, self._epoch)
        return self.by_peer[peer]

    def connect(self, peers: set[int], places: Sequence[Place], ports: Mapping[str, int]) -> None:
        """See `interfaces.Network.connect`."""
        self._mesh.connect(
            {
                peer: (self._addresses[places[peer].node], ports[f"{places[peer].node}/{places[peer].slot}"])
                for peer in peers
            }
        )

    @property
    def complete(self) -> bool:
        """See `interfaces.Network.complete`."""
        return self._mesh.complete

    @property
    def backlog(self) -> bool:
        """Whether some link has not written everything."""
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
        """Build everything, and say that it listens.

        Raises:
            RunError: something cannot be opened, restored or bound.
        """
        spec = command.spec
        self.epoch, self.slot = spec.epoch, welcome.slot
        self._send, self._selector = send, selector
        folder = Path(welcome.folder)
        place = Place(welcome.node, welcome.slot)
        ager = self._ager = Ager()
        me = spec.workers.index(place) if place in spec.workers else -1
        self._mesh = Mesh(
            selector,
            welcome.address,
            bytes.fromhex(spec.key),
            spec.run,
            spec.epoch,
            me,
            self._on_link,
            lambda peer, reason: self._lost(peer, reason),
        )
        self._links = Links(self._mesh, spec.epoch, spec.addresses)
        self._store = StateStore(folder, spec.run)
        selector.register(self._store.waker, selectors.EVENT_READ, self._on_stored)
        self._share = EpochTasks(
            spec,
            place,
            load_workload(spec.workload, spec.params).operator,
            {entry.name: str(folder / "inputs" / entry.file) for entry in spec.inputs},
            ager,
            self._links,
            self._store,
            MonotonicClocks(),
            self._say,
        )
        self._traces = TraceWriter(folder / spec.run / "traces", spec.run, welcome.node, welcome.slot)
        self._reporter = MetricsReporter(self._share, self._traces, welcome.slot)
        self.loop = EventLoop(selector, self._share, ager, self._report, self._on_lost, self._after_turns)
        self._said_connected = False
        send(Listening(epoch=self.epoch, slot=self.slot, pid=os.getpid(), port=self._mesh.port))
        if isinstance(command, Grow):
            # Nobody has channels to here yet; links come with the barrier that moves executors here.
            self._connect({})
            self._share.start(command.at_ns, command.offset_ns, command.seen)

    def obey(self, command: protocol.Command) -> None:
        """Act on one command of the agent; what belongs to another epoch is ignored."""
        if getattr(command, "epoch", self.epoch) != self.epoch:
            return
        match command:
            case Connect(ports=ports):
                self._connect(ports)
            case Mark(kind=kind):
                self._traces.add("event", self._ager.now_ns, kind, "", None, None)
                self._report(self._ager.now_ns)
            case Finish():
                self.loop.stopped = True
            case _:
                self._share.obey(command)

    def close(self) -> None:
        """Close operators, links, traces and the disk."""
        self.loop.close()
        self._mesh.close()
        self._reporter.refused(self._ager.now_ns, self._mesh.refused)
        for link in self._links.by_peer.values():
            link.close()
        self._selector.unregister(self._store.waker)
        self._store.close()
        self._share.close()
        self._traces.close()

    def _connect(self, ports: Mapping[str, int]) -> None:
        self._share.connect(ports)
        self._linked()

    def _on_link(self, peer: int, sock: socket.socket, first_bytes: bytes) -> None:
        link = self._links.wire(peer)
        link.attach(sock, first_bytes)
        self.loop.add_link(link)
        self._linked()

    def _linked(self) -> None:
        self._share.linked()
        if self._share.connected and not self._said_connected:
            self._said_connected = True
            self._send(protocol.Connected(epoch=self.epoch, slot=self.slot))

    def _after_turns(self) -> None:
        """Finish when all is over."""
        if self._share.is_over and not self._links.backlog:
            self._report(self._ager.now_ns)
            self._share.finish()

    def _on_lost(self, link: Link, fault: LinkError) -> None:
        # Peers close when all is drained; the first to finish is no loss to the others.
        if not self._share.drained:
            self._lost(link.peer, str(fault))

    def _lost(self, peer: int, reason: str) -> None:
        self.loop.halted = True
        place = self._share.place_of(peer)
        self._send(Lost(epoch=self.epoch, slot=self.slot, peer=place, reason=reason))

    def _on_stored(self, _mask: int) -> None:
        for kept in self._store.done():
            self._share.stored(*kept)

    def _say(self, message: Message) -> None:
        if isinstance(message, Passed | Stopped):
            # What came before a checkpoint is never emitted again, and what came before a stop is counted as replayed
            # if it is: it must stand in the traces, whoever dies after it.
            self._report(time.monotonic_ns())
        self._send(message)

    def _report(self, now_ns: int) -> None:
        self._mesh.expire(now_ns / 1e9)
        self._send(self._reporter.report(now_ns))
        self._reporter.refused(now_ns, self._mesh.refused)
        self._traces.flush()


def failed(epoch: int, slot: int, fault: Exception) -> Failed:
    """What a worker says before it gives up."""
    return Failed(epoch=epoch, slot=slot, reason=str(fault) or type(fault).__name__)
