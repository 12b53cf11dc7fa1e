"""Processes of an engine, whose main process writes `placed.tsv` once the topology is placed.

What engines have in common; `engines.storm` and `engines.flink` add their processes, and how they report places.
"""

import asyncio
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

from agents.protocol import Program, Slot
from engines.engine_agents import EngineAgents
from engines.installation import Engine
from engines.job import LIBRARIES, PROGRAMS, EngineJob
from engines.sandbox import check_sandbox
from inventory.errors import RunError, UnfitError

PLACED = "placed.tsv"
"""File in the folder of a job: a line of tab-separated columns for every executor; component and index come first."""

_POLL_S = 0.2


class PlacedProcesses(EngineAgents, ABC):
    """The processes of an engine that run one job, as an asynchronous context manager.

    Entering starts the node agents, and `place` the engine. Leaving ends all of them, also after a failure.

    Attributes:
        engine: the engine's name in agendas.
        place_s: timeout from the start of the processes until all executors are placed.
        places: see `engines.job.EngineProcesses`.
        daemons: node -> id, on this host, of the engine's process there beside workers, for sensors; not all have one.
    """

    engine: ClassVar[str]
    place_s: ClassVar[float]

    def __init__(self, job: EngineJob, engine: Engine, programs: Path) -> None:
        """Prepare the processes.

        Args:
            job: the run.
            engine: the installed engine.
            programs: jar of our classes for it.
        """
        super().__init__(job, engine, self._ports_for(job))
        self._programs = programs
        self.places: Mapping[str, Slot] = {}
        self.daemons: Mapping[str, int] = {}

    @staticmethod
    @abstractmethod
    def _ports_for(job: EngineJob) -> Mapping[str, int]:
        """Return node, or `MASTER`, -> number of ports in a row that its processes need."""

    @abstractmethod
    def _processes(self, java: str, ports: Mapping[str, int]) -> Sequence[tuple[str, Program]]:
        """Write the engine's configuration; return its processes, each with its node, or `MASTER`.

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
        """Start the agents.

        Raises:
            UnfitError: this machine cannot run the engine.
            MillraceError: a node cannot be reached or used.
        """
        if shutil.which("java") is None:
            raise UnfitError(f"engine: {self.engine}: the program java is missing")
        if not self._job.machines:
            await asyncio.to_thread(check_sandbox)
        (self._job.folder / LIBRARIES).symlink_to(self._engine.folder)
        (self._job.folder / PROGRAMS).symlink_to(self._programs)
        return await super().__aenter__()

    async def place(self) -> None:
        """Start the engine and the job; return when the engine reports every executor where the placement says.

        Raises:
            RunError: a process ended, or the engine did not follow the placement in time.
        """
        # Machines find their own Java by its name.
        java = "java" if self._job.machines else shutil.which("java") or "java"
        await self.start(self._processes(java, self.first_ports), self._daemons())
        if not self._job.machines:
            self.daemons = {node: self.pid(name) for node, name in self._daemons().items()}
        self.places = self._places(await self._placed())

    async def _placed(self) -> list[list[str]]:
        """Wait until the engine has placed all executors; return the rows of `placed.tsv`."""
        file = self._job.folder / PLACED
        ends_s = time.monotonic() + self.place_s
        late = f"{self.engine.capitalize()} has not placed all executors after {self.place_s:g} s"
        while not file.is_file():
            if self.failed.done() or time.monotonic() > ends_s:
                reason = self.failed.result() if self.failed.done() else late
                # Brings back the logs.
                await self.end()
                raise RunError(f"{reason}: {self._last_error()}")
            await asyncio.sleep(_POLL_S)
        return [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()]
