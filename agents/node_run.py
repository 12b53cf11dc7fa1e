"""One start of a topology on one node: inputs checked, workers spawned, sensors running; and its end."""

import asyncio
import ipaddress
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from msgspec import structs

from agents.children import WORKER, Child
from agents.folders import NodeFolder
from agents.inputs import check_inputs
from agents.protocol import Failed, Mark, Message, Start, Vitals, Welcome
from agents.sensors.base import Host, Row
from agents.sensors.sampler import Sampler
from agents.trace import AGENT, TraceWriter
from inventory.errors import RunError

_SAMPLER_S = 3.0
"""How long the last sample may take before the agent goes on without it."""

_log = logging.getLogger(__name__)


class NodeRun:
    """Begun once, ended once; a node without executors of the run has no workers, but its sensors run."""

    def __init__(
        self, welcome: Welcome, start: Start, send: Callable[[Message], None], command: Sequence[str] = WORKER
    ) -> None:
        """Start the sensors; `begin` starts the workers.

        Args:
            welcome: who this node is.
            start: what to start.
            send: takes reports; called from the event loop's thread only.
            command: starts a worker.
        """
        self._welcome, self._start, self._send, self._command = welcome, start, send, command
        self.epoch = start.spec.epoch
        self._slots = sorted({e.place.slot for e in start.spec.executors if e.place.node == welcome.node})
        self._children: list[Child] = []
        self._sampler: Sampler | None = None
        self._beginning: asyncio.Future[None] | None = None
        self._ending: asyncio.Future[None] | None = None
        try:
            folder = self._node_folder.run(start.spec.run)
            folder.make()
            self._sampler = self._start_sampler(folder.traces)
        except (RunError, OSError) as fault:
            self._failed(f"the run cannot be started on {welcome.node}: {fault}")

    async def begin(self) -> None:
        """Check inputs and start workers; what goes wrong is reported as `Failed`, nothing is raised."""
        if self._ending is None and self._sampler is not None and self._slots:
            self._beginning = asyncio.ensure_future(self._begin())
            await self._beginning

    def pass_on(self, message: Message) -> None:
        """Give a command to every worker."""
        for child in self._children:
            child.tell(message)

    def mark(self, message: Mark) -> None:
        """Write the event, take a sample, tell the workers."""
        if self._sampler is not None:
            self._sampler.mark(message.kind)
        self.pass_on(message)

    async def end(self) -> None:
        """End workers and sensors, close the trace files; may be asked for several times and at any moment."""
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
        await asyncio.shield(self._ending)

    async def _begin(self) -> None:
        spec = self._start.spec
        try:
            await asyncio.to_thread(check_inputs, spec.inputs, self._node_folder, lambda: self._ending is None)
            for slot in self._slots:
                if self._ending is None:
                    await self._spawn(slot)
        except (RunError, OSError) as fault:
            self._failed(f"the run cannot be started on {self._welcome.node}: {fault}")

    async def _spawn(self, slot: int) -> None:
        folder = self._node_folder.run(self._start.spec.run)
        child = Child(slot, self.epoch, folder.log(slot), self._report)
        await child.spawn(folder.path, self._command)
        self._children.append(child)
        self._event("worker_started", f"worker {slot}", "", float(child.pid))
        child.tell(structs.replace(self._welcome, slot=slot))
        child.tell(self._start)

    def _start_sampler(self, traces: Path) -> Sampler:
        welcome = self._welcome
        host = Host(
            node=welcome.node,
            address=welcome.address,
            shared=ipaddress.ip_address(welcome.address).is_loopback,
            agent=os.getpid(),
            workers=lambda: {child.slot: child.pid for child in self._children if child.alive},
        )
        loop = asyncio.get_running_loop()
        writer = TraceWriter(traces, self._start.spec.run, welcome.node, AGENT)

        def on_fault(reason: str) -> None:
            loop.call_soon_threadsafe(self._failed, reason)

        def on_rows(rows: Sequence[Row]) -> None:
            vitals = vitals_of(self.epoch, rows)
            if vitals is not None:
                loop.call_soon_threadsafe(self._send, vitals)

        sampler = Sampler(self._start.sensors, host, writer, on_fault, on_rows)
        sampler.start()
        return sampler

    async def _end(self) -> None:
        if self._beginning is not None:
            await self._beginning
        # The last sample is taken while the workers still live, so that their CPU time is in it.
        *_, sampled = await asyncio.gather(*(child.end() for child in self._children), self._stop_sampler())
        if not sampled:
            self._failed(f"a sensor does not return: the last samples of {self._welcome.node} are missing")

    async def _stop_sampler(self) -> bool:
        return self._sampler is None or await asyncio.to_thread(self._sampler.stop, _SAMPLER_S)

    def _report(self, message: Message) -> None:
        if isinstance(message, Failed):
            self._event("worker_failed", f"worker {message.slot}", message.reason)
        self._send(message)

    def _event(self, kind: str, subject: str, detail: str, value: float | None = None) -> None:
        if self._sampler is not None:
            self._sampler.event(kind, subject, detail, value)

    def _failed(self, reason: str) -> None:
        _log.error("epoch %s: %s", self.epoch, reason)
        self._send(Failed(epoch=self.epoch, slot=AGENT, reason=reason, log=str(self._node_folder.log)))

    @property
    def _node_folder(self) -> NodeFolder:
        return NodeFolder(Path(self._welcome.folder))


def vitals_of(epoch: int, rows: Iterable[Row]) -> Vitals | None:
    """What one sample says of the CPU time of the node and its workers; None when it says nothing of it."""
    cores: dict[tuple[str, str], float] = {}
    for row in rows:
        if row.table == "cpu":
            scope, name, used, _shared = row.values
            cores[scope, name] = used
    of_node = [used for (scope, _), used in cores.items() if scope == "node"]
    of_workers = {int(name): used for (scope, name), used in cores.items() if scope == "worker" and name.isdigit()}
    return Vitals(epoch=epoch, cores=of_node[0] if of_node else None, workers=of_workers) if cores else None
