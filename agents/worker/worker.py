"""The worker's life: what the node agent tells it, step by step, and what it answers.

    Welcome, Start -> build the plan, listen           -> Listening
    Connect        -> link to all peers                -> Connected
    Go             -> sources start at a given time    -> Progress every second, Exhausted
    Stop           -> sources end, the topology drains -> Drained, with positions and answers
    Finish         -> close and exit

The folder in `Welcome` is the node's: prepared inputs lie in `inputs/`, traces and answers go to `<run>/`.
"""

import os
import selectors
import socket
from collections.abc import Callable
from pathlib import Path

from agents import protocol
from agents.protocol import (
    Connect,
    Drained,
    Exhausted,
    Failed,
    Finish,
    Go,
    Listening,
    Mark,
    Message,
    Start,
    Stop,
    Welcome,
)
from agents.trace import TraceWriter
from agents.worker.answers import write_answer
from agents.worker.assembly import assemble
from agents.worker.channel import Ager
from agents.worker.link import Link, LinkError
from agents.worker.loop import Loop
from agents.worker.mesh import Mesh
from agents.worker.plan import RunPlan
from agents.worker.report import Reporter
from inventory.errors import RunError
from workloads.rates import rate_of
from workloads.registry import load_workload


class Worker:
    """One slot's worker, from `Start` to `Finish`."""

    def __init__(
        self, welcome: Welcome, start: Start, selector: selectors.BaseSelector, send: Callable[[Message], None]
    ) -> None:
        self._send = send
        self._slot = welcome.slot
        spec = start.spec
        self._epoch = spec.epoch
        self._plan = RunPlan(spec)
        self._place = protocol.Place(welcome.node, welcome.slot)
        self._folder = Path(welcome.folder)
        self._run_folder = self._folder / spec.run
        self._ager = Ager()
        self.loop = Loop(selector, self._ager, self._report, self._on_lost)
        places = self._plan.places
        if self._place not in places:
            raise RunError(f"no executor of run {spec.run} is placed on slot {welcome.slot} of {welcome.node}")
        self._me = places.index(self._place)
        peers = self._plan.peers(self._me)
        self._links = {peer: Link(peer, spec.epoch) for peer in peers}
        key = bytes.fromhex(spec.key)
        self._mesh = Mesh(
            selector, welcome.address, key, spec.run, spec.epoch, self._me, peers, len(places), self._on_link
        )
        workload = load_workload(spec.workload, spec.params)
        schedule = rate_of(spec.rate).schedule()
        self._assembly = assemble(
            self._plan,
            self._place,
            lambda place: self._links[places.index(place)],
            self._ager,
            workload.operator,
            schedule,
            {entry.name: str(self._folder / "inputs" / entry.file) for entry in spec.inputs},
        )
        self._traces = TraceWriter(self._run_folder / "traces", spec.run, welcome.node, welcome.slot)
        self._reporter = Reporter(self._plan, self._assembly, self._traces, welcome.slot)
        self._connected = self._exhausted = self._drained = False
        self.loop.use(self._assembly)
        send(Listening(epoch=self._epoch, slot=self._slot, pid=os.getpid(), port=self._mesh.port))

    def obey(self, command: protocol.Command) -> None:
        """Act on one command of the agent; what belongs to another epoch is ignored."""
        if getattr(command, "epoch", self._epoch) != self._epoch:
            return
        match command:
            case Connect(ports=ports):
                places = self._plan.places
                self._mesh.connect(
                    {
                        peer: (
                            self._plan.spec.addresses[places[peer].node],
                            ports[f"{places[peer].node}/{places[peer].slot}"],
                        )
                        for peer in self._links
                    }
                )
                self._check_connected()
            case Go(at_ns=at_ns):
                for spout in self._assembly.spouts:
                    spout.start(at_ns)
            case Mark(kind=kind):
                self._traces.add("event", self._ager.now_ns, kind, "", None, None)
                self._report(self._ager.now_ns)
            case Stop():
                for spout in self._assembly.spouts:
                    spout.stop()
            case Finish():
                self.loop.stopped = True
            case _:
                raise RunError(f"a worker cannot act on {type(command).__name__} now")

    def after_pass(self) -> None:
        """Tell the agent what the last pass brought about."""
        assembly = self._assembly
        if not self._exhausted and assembly.spouts and all(spout.exhausted for spout in assembly.spouts):
            self._exhausted = True
            self._send(Exhausted(epoch=self._epoch, slot=self._slot))
        if self._drained or not self._connected or not all(running.drained for running in assembly.executors):
            return
        if any(link.backlog for link in self._links.values()):
            return
        self._drained = True
        self._report(self._ager.now_ns)
        self._send(self._final())

    def close(self) -> None:
        """Close operators, links and traces."""
        self._reporter.refused(self._ager.now_ns, self._mesh.refused)
        self._mesh.close()
        for link in self._links.values():
            link.close()
        for running in self._assembly.executors:
            running.operator.close()
        self._traces.close()

    def _final(self) -> Drained:
        answers: dict[str, tuple[str, ...]] = {}
        for bolt in self._assembly.bolts:
            written = write_answer(bolt, self._run_folder / "answer")
            if written is not None:
                table, path = written
                answers[table] = (*answers.get(table, ()), str(path.relative_to(self._folder)))
        positions = {spout.executor.name: spout.position for spout in self._assembly.spouts}
        return Drained(epoch=self._epoch, slot=self._slot, positions=positions, answers=answers)

    def _on_link(self, peer: int, sock: socket.socket, first_bytes: bytes) -> None:
        link = self._links[peer]
        link.attach(sock, first_bytes)
        self.loop.add_link(link)
        self._check_connected()

    def _on_lost(self, link: Link, fault: LinkError) -> None:
        # Peers close when all is drained; the first to finish is no loss to the others.
        if not self._drained:
            place = self._plan.places[link.peer]
            raise RunError(f"the link to slot {place.slot} of {place.node} broke: {fault}")

    def _check_connected(self) -> None:
        if self._mesh.complete and not self._connected:
            self._connected = True
            self._send(protocol.Connected(epoch=self._epoch, slot=self._slot))

    def _report(self, now_ns: int) -> None:
        self._mesh.expire(now_ns / 1e9)
        self._send(self._reporter.report(now_ns))
        self._traces.flush()


def failed(epoch: int, slot: int, fault: Exception) -> Failed:
    """What a worker says before it gives up."""
    return Failed(epoch=epoch, slot=slot, reason=str(fault) or type(fault).__name__)
