"""Processes of an engine, whose main process writes `placed.tsv` once the topology is placed.

What engines have in common; `engines.storm` and `engines.flink` add their processes, and how they report places.
Where all nodes are on this host the processes are in a sandbox, else on the nodes (`engines.machines`).
"""

import asyncio
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from agents.protocol import Slot
from controller.coordinator.interfaces import Offset
from controller.nodes.agents import ClockSync
from engines.child_processes import EngineProcess
from engines.installation import Engine
from engines.job import CONTROL, FINISH, LIBRARIES, PROGRAMS, EngineJob, write_go
from engines.machines import Machines
from engines.sandbox import Sandbox
from inventory.errors import RunError, UnfitError

PLACED = "placed.tsv"
"""File in the folder of a job: a line of tab-separated columns for every executor; component and index come first."""

FIRST_PORT = 7000
"""First port in a sandbox, where all are free."""

_POLL_S = 0.2


class PlacedProcesses(ABC):
    """See `engines.job.EngineProcesses`.

    Attributes:
        engine: the engine's name in agendas.
        place_s: timeout from the start of the processes until all executors are placed.
    """

    engine: ClassVar[str]
    place_s: ClassVar[float]
    failed: "asyncio.Future[str]"

    def __init__(self, job: EngineJob, engine: Engine, programs: Path) -> None:
        """Prepare the processes.

        Args:
            job: the run.
            engine: the installed engine.
            programs: jar of our classes for it.
        """
        self._job, self._installed, self._programs = job, engine, programs
        self._sandbox: Sandbox | None = None
        self._machines: Machines | None = None
        self._stack = AsyncExitStack()
        self.places: Mapping[str, Slot] = {}
        self.daemons: Mapping[str, int] = {}

    @abstractmethod
    def _ports(self) -> Mapping[str, int]:
        """Return node, or `MASTER`, -> number of ports in a row that its processes need."""

    @abstractmethod
    def _processes(self, java: str, ports: Mapping[str, int]) -> Sequence[EngineProcess]:
        """Write the engine's configuration; return its processes.

        Args:
            java: the program.
            ports: node, or `MASTER`, -> the first of its ports.
        """

    @abstractmethod
    def _daemons(self) -> Mapping[str, str]:
        """Return node -> name of the engine's process there beside workers."""

    @abstractmethod
    def _places(self, rows: Sequence[Sequence[str]]) -> Mapping[str, Slot]:
        """Return executor -> worker from the rows of `placed.tsv`.

        Raises:
            RunError: this is not the placement.
        """

    @abstractmethod
    def _last_error(self) -> str:
        """Return a line of the engine's logs that says why it fails."""

    async def __aenter__(self) -> Self:
        """See `EngineProcesses`.

        Raises:
            UnfitError: this machine cannot run the engine.
            RunError: a process ended, or the engine did not follow the placement in time.
        """
        java = shutil.which("java")
        if java is None:
            raise UnfitError(f"engine: {self.engine}: the program java is missing")
        async with AsyncExitStack() as stack:
            if self._job.machines:
                machines = self._machines = await stack.enter_async_context(
                    Machines(self._job, self._installed, self._ports())
                )
                self.failed = machines.failed
                # Nodes find their own Java by its name.
                processes = self._written("java", machines.first_ports)
                await machines.start(processes, self._daemons())
            else:
                processes = self._written(java, self._sandbox_ports())
                sandbox = self._sandbox = await stack.enter_async_context(Sandbox(processes))
                self.failed = sandbox.failed
                self.daemons = {node: sandbox.pid(name) for node, name in self._daemons().items()}
            self.places = self._places(await self._placed())
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @property
    def clocks(self) -> ClockSync | None:
        return None if self._machines is None else self._machines.clocks

    @property
    def facts(self) -> Mapping[str, Mapping[str, Any]]:
        return {} if self._machines is None else self._machines.facts

    @property
    def traces(self) -> Sequence[Path]:
        return () if self._machines is None else self._machines.traces

    def host_pid(self, pid: int) -> int | None:
        return None if self._sandbox is None else self._sandbox.host_pid(pid)

    def has_ended(self, worker: Slot, pid: int) -> bool:
        return self.host_pid(pid) is None if self._machines is None else self._machines.has_ended(worker, pid)

    def offset(self, node: str) -> Offset:
        return Offset(0, 0) if self._machines is None else self._machines.offset(node)

    async def go(self, times: Sequence[int]) -> None:
        if self._machines is None:
            write_go(self._job.folder, times)
        else:
            await self._machines.go(times)

    async def finish(self) -> None:
        if self._machines is None:
            (self._job.folder / CONTROL / FINISH).touch()
        else:
            await self._machines.finish()

    async def collect_answers(self, places: Mapping[str, Slot]) -> None:
        if self._machines is not None:
            await self._machines.collect_answers(places)

    def _written(self, java: str, ports: Mapping[str, int]) -> Sequence[EngineProcess]:
        """Write everything that processes read; return them."""
        (self._job.folder / LIBRARIES).symlink_to(self._installed.folder)
        (self._job.folder / PROGRAMS).symlink_to(self._programs)
        return self._processes(java, ports)

    def _sandbox_ports(self) -> Mapping[str, int]:
        ports: dict[str, int] = {}
        free = FIRST_PORT
        for node, count in self._ports().items():
            ports[node] = free
            free += count
        return ports

    async def _placed(self) -> list[list[str]]:
        """Wait until the engine has placed all executors; return the rows of `placed.tsv`."""
        file = self._job.folder / PLACED
        ends_s = time.monotonic() + self.place_s
        while not file.is_file():
            if self.failed.done():
                raise RunError(f"{self.failed.result()}: {self._last_error()}")
            if time.monotonic() > ends_s:
                late = f"{self.engine.capitalize()} has not placed all executors after {self.place_s:g} s"
                raise RunError(f"{late}: {self._last_error()}")
            await asyncio.sleep(_POLL_S)
        return [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()]
