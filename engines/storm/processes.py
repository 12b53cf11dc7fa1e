"""Storm's processes for one run on this host: ZooKeeper and Nimbus, a Supervisor per node, and their workers."""

import asyncio
import shutil
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from agents.protocol import Slot
from engines.installation import Engine
from engines.job import EngineJob
from engines.sandbox import Sandbox, SandboxProcess
from engines.storm.configuration import ZOOKEEPER_PORT, StormFiles
from inventory.errors import RunError, UnfitError

PLACE_S = 120.0
"""Timeout from the start of the daemons to an assignment of every executor."""

MOST_SHOWN = 200
"""Characters of the last line of a log in messages."""

_POLL_S = 0.2


class StormProcesses:
    """See `engines.job.EngineProcesses`."""

    failed: "asyncio.Future[str]"

    def __init__(self, job: EngineJob, engine: Engine, programs: Path) -> None:
        """Prepare the processes.

        Args:
            job: the run.
            engine: Storm.
            programs: jar of our classes for Storm.
        """
        self._job = job
        self._files = StormFiles(job, engine.folder, programs)
        self._stack = AsyncExitStack()
        self.places: Mapping[str, Slot] = {}
        self.daemons: Mapping[str, int] = {}

    async def __aenter__(self) -> Self:
        """See `EngineProcesses`.

        Raises:
            UnfitError: this machine cannot run Storm.
            RunError: a process ended, or Storm has placed an executor elsewhere, or not at all.
        """
        java = shutil.which("java")
        if java is None:
            raise UnfitError("engine: storm: the program java is missing")
        self._files.write()
        daemons = [self._master(java), *(self._supervisor(java, node) for node in self._files.nodes)]
        async with AsyncExitStack() as stack:
            self._sandbox = sandbox = await stack.enter_async_context(Sandbox(daemons))
            self.failed = sandbox.failed
            self.daemons = {node: sandbox.pid(supervisor_of(node)) for node in self._files.nodes}
            self.places = await self._placed()
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

    def _master(self, java: str) -> SandboxProcess:
        folder = self._job.folder
        counts = (len(self._files.nodes), len(self._job.places))
        arguments = (folder, folder / "local" / "zookeeper", ZOOKEEPER_PORT, *counts)
        return self._daemon(java, "Nimbus", "master", "millrace.storm.Master", *map(str, arguments))

    def _supervisor(self, java: str, node: str) -> SandboxProcess:
        main = "org.apache.storm.daemon.supervisor.Supervisor"
        return self._daemon(java, supervisor_of(node), node, main)

    def _daemon(self, java: str, title: str, name: str, main: str, *arguments: str) -> SandboxProcess:
        options = self._files.daemon_options(name)
        return SandboxProcess(
            title,
            (java, *options, "-cp", self._files.class_path(name), main, *arguments),
            str(self._files.log(name) / "daemon.log"),
            {"STORM_CONF_DIR": str(self._files.conf(name))},
        )

    async def _placed(self) -> Mapping[str, Slot]:
        """Wait until Nimbus has assigned every executor; return executor -> worker, compared with the placement."""
        file = self._job.folder / "placed.tsv"
        ends_s = time.monotonic() + PLACE_S
        while not file.is_file():
            if self.failed.done():
                raise RunError(f"{self.failed.result()}: {self._last_line()}")
            if time.monotonic() > ends_s:
                raise RunError(f"Storm has not placed the topology within {PLACE_S:g} s: {self._last_line()}")
            await asyncio.sleep(_POLL_S)
        workers = {(self._files.address(slot.node), self._files.port(*slot)): slot for slot in self._job.workers}
        found: dict[str, Slot] = {}
        for line in file.read_text(encoding="utf-8").splitlines():
            component, index, host, port = line.split("\t")
            name, worker = f"{component}[{index}]", workers.get((host, int(port)))
            if worker is None or worker != self._job.places.get(name):
                raise RunError(
                    f"Storm has placed {name} on {host}:{port}, the placement has {self._job.places.get(name)}"
                )
            found[name] = worker
        missing = self._job.places.keys() - found.keys()
        if missing:
            raise RunError(f"Storm has not placed {min(missing)}")
        return found

    def _last_line(self) -> str:
        """Return the last line of Nimbus's log that is an error, or just the last one."""
        log = self._files.log("master") / "daemon.log"
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
        errors = [line for line in lines if "ERROR" in line or "Exception" in line]
        return (errors or lines or ["it has written nothing"])[-1][:MOST_SHOWN]


def supervisor_of(node: str) -> str:
    """Return what the Supervisor of a node is called in messages."""
    return f"the Supervisor of {node}"
