"""Nodes that are machines of their own: what an engine needs is copied there, started, watched, and brought back.

On each node that a placement uses, and on this host for the engine's main process, runs `engines.node`. What executors
report there is written into the job's folder here, so that `engines.reports` reads it as it does elsewhere. Times of a
run are converted to each node's clock, by offsets that are measured once a second; reports and traces keep the times of
their node, whose offsets the run's record has.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agents.protocol import Slot
from controller.coordinator.interfaces import Offset
from controller.host.condition import run_to_end, run_together
from controller.nodes.agents import ClockSync
from controller.nodes.transport import STDERR_LOG, LoopbackTransport
from engines.child_processes import EngineProcess
from engines.installation import Engine
from engines.job import LIBRARIES, MASTER, TRACES, EngineJob
from engines.node_program import NodeProgram
from engines.node_protocol import Finish, Go, Going
from inventory.errors import RunError
from inventory.foreign import printable
from workloads.topology import ACKER, Executor

GO_S = 10.0
"""Timeout for nodes to get the times of the run."""


class Machines:
    """The programs on all nodes of a run, and on this host; a context manager that ends all that they have started.

    Attributes:
        failed: completes with one line, when something has ended by itself.
        clocks: the nodes' offsets, from `go` on.
        traces: folders with the traces of nodes and of their clocks; complete after the end.
    """

    failed: "asyncio.Future[str]"
    clocks: ClockSync | None = None

    def __init__(self, job: EngineJob, engine: Engine, ports: Mapping[str, int]) -> None:
        """Prepare them; `ports` is node, or `MASTER`, -> number of ports that its processes need."""
        self._job, self._engine, self._ports = job, engine, ports
        self._programs: dict[str, NodeProgram] = {}
        self._drifting: asyncio.Task[None] | None = None
        self.traces: list[Path] = []

    async def __aenter__(self) -> Self:
        """Start the programs on all nodes.

        Raises:
            MillraceError: a node cannot be reached or used.
        """
        self.failed = asyncio.get_running_loop().create_future()
        for node in (MASTER, *sorted({slot.node for slot in self._job.workers})):
            transport = self._job.machines[node] if node else LoopbackTransport(self._job.folder)
            self._programs[node] = NodeProgram(node, transport, self._job, self._fail)
        try:
            await run_together(
                program.open(self._ports.get(node, 0), self._engine.folder.name)
                for node, program in self._programs.items()
            )
        except BaseException:
            await run_to_end(self._close())
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all processes, and bring back logs and traces."""
        await run_to_end(self._close())

    @property
    def first_ports(self) -> Mapping[str, int]:
        """Node, or `MASTER`, -> the first of its free ports."""
        return {node: program.ready.first_port for node, program in self._programs.items()}

    @property
    def facts(self) -> Mapping[str, Mapping[str, Any]]:
        """Node -> facts about it."""
        return {node: program.ready.facts for node, program in self._nodes.items()}

    async def start(self, processes: Sequence[EngineProcess], daemons: Mapping[str, str]) -> None:
        """Copy the job's folder to all nodes, and start processes.

        Args:
            processes: all processes.
            daemons: node -> name of the process that its sensors take for the agent.

        Raises:
            MillraceError: a node cannot be reached, has no room, or cannot start one of them.
        """
        jars = sorted(self._engine.folder.glob("*.jar"))
        own = {LIBRARIES, STDERR_LOG}
        found = sorted(path for path in self._job.folder.rglob("*") if path.is_file())
        files = [path for path in found if own.isdisjoint(path.relative_to(self._job.folder).parts)]
        await run_together(program.copy(jars, files) for program in self._nodes.values())
        await run_together(
            program.start([each for each in processes if each.node == node], daemons.get(node, ""))
            for node, program in self._programs.items()
        )

    async def go(self, times: Sequence[int]) -> None:
        """See `engines.job.EngineProcesses.go`; offsets are sent again as clocks drift."""
        clocks = self.clocks = ClockSync(self.offset, self._job.folder / TRACES, self._job.run)

        async def give(node: str, program: NodeProgram) -> None:
            offset_ns = clocks.current(node).offset_ns
            await program.request(Go([at + offset_ns for at in times]), Going, GO_S)

        await run_together(give(node, program) for node, program in self._nodes.items())
        if time.monotonic_ns() > times[0]:
            raise RunError("a node got the times of the run after the start of its sources: a slow connection")

        async def send(node: str, offset_ns: int) -> None:
            await self._programs[node].send(Go([at + offset_ns for at in times]))

        self._drifting = asyncio.create_task(clocks.run(list(self._nodes), send))

    async def finish(self) -> None:
        await run_together(program.send(Finish()) for program in self._nodes.values())

    async def collect_answers(self, places: Mapping[str, Slot]) -> None:
        numbers = [each.id for each in self._job.topology.components if each.id != ACKER]
        wanted: defaultdict[str, list[str]] = defaultdict(list)
        for name, slot in places.items():
            executor = Executor.named(name)
            wanted[slot.node].append(f"{numbers.index(executor.component)}-{executor.index}.tsv")
        await run_together(self._programs[node].collect_answers(names) for node, names in wanted.items())

    def has_ended(self, worker: Slot, pid: int) -> bool:
        """Return whether a process of executors has ended."""
        return pid in self._programs[worker.node].gone

    def offset(self, node: str) -> Offset:
        """Return the last known offset of a node's clock.

        Raises:
            RunError: the node has not answered yet.
        """
        return self._programs[node].offset

    @property
    def _nodes(self) -> Mapping[str, NodeProgram]:
        return {node: program for node, program in self._programs.items() if node}

    def _fail(self, reason: str) -> None:
        if not self.failed.done():
            self.failed.set_result(printable(reason))

    async def _close(self) -> None:
        if self._drifting is not None:
            self._drifting.cancel()
            await asyncio.gather(self._drifting, return_exceptions=True)
        if self.clocks is not None:
            await asyncio.to_thread(self.clocks.close)
        await run_together(program.close() for program in self._programs.values())
        folders = [program.traces for program in self._programs.values()]
        self.traces = [self._job.folder / TRACES, *(folder for folder in folders if folder is not None)]
