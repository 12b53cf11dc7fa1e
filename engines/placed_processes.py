"""Processes of an engine in a sandbox, whose main process writes `placed.tsv` once the topology is placed.

What engines have in common; `engines.storm` and `engines.flink` add their processes, and how they report places.
"""

import asyncio
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import ClassVar, Self

from agents.protocol import Slot
from engines.job import EngineJob
from engines.sandbox import Sandbox, SandboxProcess
from inventory.errors import RunError, UnfitError

PLACED = "placed.tsv"
"""File in the folder of a job: a line of tab-separated columns for every executor; component and index come first."""

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

    def __init__(self, job: EngineJob) -> None:
        """Prepare the processes of this run."""
        self._job = job
        self._stack = AsyncExitStack()
        self.places: Mapping[str, Slot] = {}
        self.daemons: Mapping[str, int] = {}

    @abstractmethod
    def _processes(self, java: str) -> Sequence[SandboxProcess]:
        """Write the engine's configuration; return its processes."""

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
            self._sandbox = sandbox = await stack.enter_async_context(Sandbox(self._processes(java)))
            self.failed = sandbox.failed
            self.daemons = {node: sandbox.pid(name) for node, name in self._daemons().items()}
            self.places = self._places(await self._placed())
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """See `EngineProcesses`."""
        await self._stack.aclose()

    def host_pid(self, pid: int) -> int | None:
        """See `EngineProcesses`."""
        return self._sandbox.host_pid(pid)

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
