"""The node agents of a run on an engine: they start, watch and end its programs, and files are brought back from them.

An agent runs on each node that is a machine of its own, also on those that the placement leaves idle, and one beside
the controller, for the engine's main process and all nodes of this host; in a sandbox, unless nodes are machines. What
executors report on machines is written into the job's folder here, so that `engines.reports` reads it as it does
elsewhere. Times of a run are converted to each node's clock, by offsets that are measured once a second; reports and
traces keep the times of their node, whose offsets the run's record has.
"""

import asyncio
import shutil
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from agents.protocol import (
    AGENT,
    REPORT_FILE,
    Equip,
    Equipped,
    Failed,
    Finish,
    Finished,
    IdleBaseline,
    Launch,
    Launched,
    Lines,
    Mark,
    Program,
    Report,
    Slot,
    Write,
    Written,
)
from agents.protocol.node_folders import RunFolder, component
from agents.trace import FILES
from controller.coordinator.interfaces import Offset
from controller.host.condition import run_to_end, run_together
from controller.nodes.agents import Agents, ClockSync, RunNode
from controller.nodes.transport import LoopbackTransport
from engines.installation import Engine
from engines.job import ANSWERS, CONTROL, EPOCH, FINISH, FOLDERS, GO, LOGS, MASTER, REPORTS, TRACES, EngineJob
from engines.sandbox import SANDBOX
from inventory.errors import MillraceError, RunError
from inventory.foreign import printable
from workloads.topology import ACKER, Executor

ANSWER_S = 30.0
"""Timeout of other requests, in addition to that of the agents; libraries are synced to disk in one of them."""

HERE = "controller"
"""Name of the agent beside the controller."""

MODELLED = "an emulated node's energy follows a model, and nothing is measured"


class EngineAgents:
    """The agents of all nodes of a run, and that of this host; a context manager that ends all they have started.

    Attributes:
        failed: completes with one line, when something has ended by itself.
        clocks: the nodes' offsets, from `go` on; None if all nodes are this host.
        traces: folders with the traces of nodes and of their clocks; complete after the end.
    """

    failed: "asyncio.Future[str]"
    clocks: ClockSync | None = None

    def __init__(self, job: EngineJob, engine: Engine, ports: Mapping[str, int]) -> None:
        """Prepare them; `ports` is node, or `MASTER`, -> number of ports in a row that its processes need."""
        self._job, self._engine, self._ports = job, engine, ports
        self._here = Agents({HERE: self._this_host()}, job.campaign, self._on_start)
        self._used = {slot.node for slot in job.workers}
        self._machines = job.machines
        self._there = Agents(self._machines, job.campaign, self._on_start)
        self._run_folder = RunFolder(Path(job.run))
        self._equipped: dict[str, Equipped] = {}
        self._drifting: asyncio.Task[None] | None = None
        self._stack = AsyncExitStack()
        self._first_process = 0
        self._host_pids: dict[int, int] = {}
        self._pids: dict[str, int] = {}
        self._gone: set[Slot] = set()
        self._has_finished = False
        self.traces: list[Path] = []

    def _this_host(self) -> RunNode:
        folder = self._job.folder.parent
        return RunNode("127.0.0.1", LoopbackTransport(folder, () if self._job.machines else SANDBOX))

    async def __aenter__(self) -> Self:
        """Start the agents, and have them find ports.

        Raises:
            MillraceError: a node cannot be reached or used.
        """
        self.failed = asyncio.get_running_loop().create_future()
        async with AsyncExitStack() as stack:
            for agents in (self._here, self._there):
                await stack.enter_async_context(agents)
                agents.listen(self)
            await run_together(self._equip(node) for node in (MASTER, *self._machines))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all processes, and bring back logs and traces."""
        await run_to_end(self._close())

    @property
    def first_ports(self) -> Mapping[str, int]:
        """Node, or `MASTER`, -> the first of its ports."""
        firsts: dict[str, int] = {}
        free = {agent: equipped.first_port for agent, equipped in self._equipped.items()}
        for node, count in self._ports.items():
            agent = self._agent_of(node)
            firsts[node] = free[agent]
            free[agent] += count
        return firsts

    @property
    def facts(self) -> Mapping[str, Mapping[str, Any]]:
        """Node -> facts about it, of nodes that are machines."""
        return self._there.facts

    async def start(self, programs: Sequence[tuple[str, Program]], daemons: Mapping[str, str]) -> None:
        """Copy the job's folder to all machines, and start programs.

        Args:
            programs: node, or `MASTER`, and program.
            daemons: node -> name of the program that its sensors take for the agent.

        Raises:
            MillraceError: a node cannot be reached, has no room, or cannot start one of them.
        """
        await run_together(self._copy(node) for node in self._machines if node in self._used)

        async def launch(node: str) -> None:
            is_machine = node in self._machines
            command = Launch(
                epoch=EPOCH,
                programs=tuple(program for at, program in programs if self._agent_of(at) == node),
                sensors=tuple(self._job.sensors) if is_machine else (),
                daemon=daemons.get(node, "") if is_machine else "",
                reports=REPORTS if is_machine else "",
            )
            agents, name = self._reach(node)
            launched = await agents.request_reply(name, command, Launched, ANSWER_S)
            if not is_machine:
                self._pids.update(launched.pids)

        await run_together(map(launch, (MASTER, *self._machines)))

    async def go(self, times: Sequence[int]) -> None:
        """See `engines.job.EngineProcesses.go`; offsets are sent again as clocks drift."""
        if not self._machines:
            await self._write(MASTER, GO, _text(times, 0))
            return
        clocks = self.clocks = ClockSync(self.offset, self._job.folder / TRACES, self._job.run)
        await run_together(
            self._write(node, GO, _text(times, clocks.current(node).offset_ns)) for node in self._machines
        )
        if time.monotonic_ns() > times[0]:
            raise RunError("a node got the times of the run after the start of its sources: a slow connection")

        async def send(node: str, offset_ns: int) -> None:
            await self._there.send(node, Write(epoch=EPOCH, file=f"{CONTROL}/{GO}", text=_text(times, offset_ns)))

        self._drifting = asyncio.create_task(clocks.run(list(self._machines), send))

    async def mark(self, kind: str) -> None:
        """Have the sensors of machines write an event of this kind, and take a sample."""
        await run_together(self._there.send(node, Mark(epoch=EPOCH, kind=kind)) for node in self._machines)

    async def meter_idle(self, node: str, settle_s: float, measure_s: float) -> IdleBaseline:
        """Return the power of a node's machine before `start` or after `end`; see `Agents.meter_idle`."""
        if node in self._job.nodes:
            return IdleBaseline(reason=MODELLED)
        agents, name = self._reach(node)
        return await agents.meter_idle(name, settle_s, measure_s)

    async def finish(self) -> None:
        """See `engines.job.EngineProcesses.finish`."""
        await run_together(self._write(node, FINISH, "") for node in self._machines or (MASTER,))

    async def collect_answers(self, places: Mapping[str, Slot]) -> None:
        """See `engines.job.EngineProcesses.collect_answers`."""
        numbers = [each.id for each in self._job.topology.components if each.id != ACKER]
        wanted: defaultdict[str, list[str]] = defaultdict(list)
        for name, slot in places.items():
            executor = Executor.named(name)
            wanted[slot.node].append(f"{numbers.index(executor.component)}-{executor.index}.tsv")

        async def collect(node: str, names: Sequence[str]) -> None:
            folder = await self._machines[node].transport.fetch(f"{self._job.run}/{ANSWERS}", "*.tsv")
            for name in names:
                with suppress(FileNotFoundError):
                    await asyncio.to_thread(shutil.copyfile, folder / name, self._job.folder / ANSWERS / name)

        await run_together(collect(node, names) for node, names in wanted.items() if node in self._machines)

    def pid(self, name: str) -> int:
        """Return the id, on this host, of a program that runs here; 0 if it has ended."""
        return self.host_pid(self._pids[name]) or 0

    def host_pid(self, pid: int) -> int | None:
        """Return the id, on this host, of a process with an id in the sandbox; None if there is no such process."""
        known = self._host_pids.get(pid)
        if known is not None:
            return known if psutil.pid_exists(known) else None
        with suppress(psutil.Error):
            for process in psutil.Process(self._first_process).children(recursive=True):
                with suppress(OSError):
                    status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8", errors="replace")
                    ids = next(line for line in status.splitlines() if line.startswith("NSpid:"))
                    self._host_pids[int(ids.split()[-1])] = process.pid
        return self._host_pids.get(pid)

    def has_ended(self, worker: Slot, pid: int) -> bool:
        """Return whether the process of a worker has ended; `pid` is its id where it runs."""
        return worker in self._gone if worker.node in self._machines else self.host_pid(pid) is None

    def offset(self, node: str) -> Offset:
        """Return the last known offset of a node's clock.

        Raises:
            RunError: the node has not answered yet.
        """
        return self._there.offset(node) if node in self._machines else Offset(0, 0)

    async def end(self) -> None:
        """End all processes, and bring back logs and traces of machines; may be called several times."""
        if self._has_finished:
            return
        self._has_finished = True
        await run_together(self._end(node) for node in (MASTER, *self._machines))

    def handle_report(self, node: str, report: Report) -> None:
        """See `controller.nodes.agents.AgentListener`."""
        match report:
            case Lines(file=file, text=text):
                try:
                    self._append(node, file, text)
                except (RunError, OSError) as fault:
                    self._fail(f"node {node}: {fault}")
            case Failed(slot=slot, died=True) if slot != AGENT:
                # Why it has may be reported a little later.
                self._gone.add(Slot(node, slot))
            case Failed(reason=reason, died=died):
                self._fail(reason if died else f"node {node}: {reason}")

    def handle_agent_gone(self, node: str, reason: str) -> None:
        """See `controller.nodes.agents.AgentListener`."""
        self._fail(reason)

    def _agent_of(self, node: str) -> str:
        return node if node in self._machines else MASTER

    def _reach(self, node: str) -> tuple[Agents, str]:
        return (self._there, node) if node in self._machines else (self._here, HERE)

    def _on_start(self, node: str, pid: int) -> None:
        if node == HERE:
            self._first_process = pid
        self._job.on_start(node, pid)

    async def _equip(self, node: str) -> None:
        agents, name = self._reach(node)
        ports = sum(count for each, count in self._ports.items() if self._agent_of(each) == node)
        # The folder of the job is that of the run on this host.
        run = self._job.folder.name if node == MASTER else self._job.run
        libraries = self._engine.folder.name if node in self._used else ""
        command = Equip(epoch=EPOCH, run=run, folders=FOLDERS, ports=ports, libraries=libraries)
        self._equipped[node] = await agents.request_reply(name, command, Equipped, ANSWER_S)

    async def _copy(self, node: str) -> None:
        """Copy files of the job to a machine, and libraries if it does not have them yet."""
        folder, transport = self._run_folder, self._machines[node].transport
        if not self._equipped[node].has_libraries:
            for jar in sorted(self._engine.folder.glob("*.jar")):
                await transport.put(jar, str(folder.copied_libraries / jar.name))
        for file in sorted(path for path in self._job.folder.rglob("*") if path.is_file()):
            target = file.relative_to(self._job.folder)
            if target.parts[0] != folder.libraries.name:
                await transport.put(file, str(folder.path / target))

    async def _write(self, node: str, file: str, text: str) -> None:
        agents, name = self._reach(node)
        await agents.request_reply(name, Write(epoch=EPOCH, file=f"{CONTROL}/{file}", text=text), Written, ANSWER_S)

    async def _end(self, node: str) -> None:
        agents, name = self._reach(node)
        with suppress(MillraceError):
            await agents.request_reply(name, Finish(epoch=EPOCH), Finished, ANSWER_S)
            if node != MASTER:
                folder, transport = self._run_folder, self._machines[node].transport
                logs = await transport.fetch(str(folder.log_ends), "*")
                for log in logs.iterdir() if logs.is_dir() else ():
                    await asyncio.to_thread(shutil.copyfile, log, self._job.folder / LOGS / log.name)
                self.traces.append(await transport.fetch(str(folder.traces), FILES))

    async def _close(self) -> None:
        try:
            if self._drifting is not None:
                self._drifting.cancel()
                await asyncio.gather(self._drifting, return_exceptions=True)
            if self.clocks is not None:
                await asyncio.to_thread(self.clocks.close)
                self.traces.append(self._job.folder / TRACES)
            await self.end()
        finally:
            await self._stack.aclose()

    def _append(self, node: str, file: str, text: str) -> None:
        name = REPORT_FILE.fullmatch(component(file))
        if name is None or name["node"] != node:
            raise RunError(f"{file!r} is no name of a report")
        with (self._job.folder / REPORTS / file).open("a", encoding="utf-8") as report:
            report.write(text)

    def _fail(self, reason: str) -> None:
        if not self.failed.done():
            self.failed.set_result(printable(reason))


def _text(times: Sequence[int], offset_ns: int) -> str:
    """Return the content of `go`, on a clock that is so far ahead of this host's."""
    return " ".join(str(at + offset_ns) for at in times)
