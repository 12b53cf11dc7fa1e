"""Flink's processes for one run on this host: a JobManager, and a TaskManager for each worker of the placement."""

import asyncio
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from agents.protocol import Slot
from engines.flink.configuration import (
    CONFIGURATION,
    REST_PORT,
    TaskManager,
    Values,
    difference,
    job_manager_values,
    memory_of,
    resources,
    task_manager_values,
    task_managers,
    yaml_of,
)
from engines.installation import Engine
from engines.job import LOGS, EngineJob
from engines.sandbox import Sandbox, SandboxProcess
from inventory.errors import RunError, UnfitError
from inventory.foreign import printable

JOB_MANAGER = "org.apache.flink.container.entrypoint.StandaloneApplicationClusterEntryPoint"
TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
JOB = "millrace.flink.FlinkJob"

JOB_MANAGER_TITLE = "the JobManager"

OPENED = ("java.lang", "java.net", "java.io", "java.nio", "java.text", "java.time", "java.util", "java.util.concurrent")
"""Packages of Java that Flink's own start script opens to it."""

JOB_MANAGER_JAVA = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""The JobManager has little to do: it is not worth the second compiler."""

PLACE_S = 180.0
"""Timeout from the start of the processes until all executors run."""

MOST_SHOWN = 300
"""Characters of the cause of a failure in messages."""

_POLL_S = 0.2
_TAIL = 64 * 1024


class FlinkProcesses:
    """See `engines.job.EngineProcesses`."""

    failed: "asyncio.Future[str]"

    def __init__(self, job: EngineJob, engine: Engine, programs: Path) -> None:
        """Prepare the processes.

        Args:
            job: the run.
            engine: Flink.
            programs: jar of our classes for Flink.
        """
        self._job, self._engine, self._programs = job, engine, programs
        self._managers = task_managers(job.topology, job.places, job.addresses)
        self._stack = AsyncExitStack()
        self.places: Mapping[str, Slot] = {}
        self.daemons: Mapping[str, int] = {}

    async def __aenter__(self) -> Self:
        """See `EngineProcesses`.

        Raises:
            UnfitError: this machine cannot run Flink.
            RunError: a process ended, or Flink has not placed as many executors as the placement in a worker.
        """
        java = shutil.which("java")
        if java is None:
            raise UnfitError("engine: flink: the program java is missing")
        async with AsyncExitStack() as stack:
            self._sandbox = sandbox = await stack.enter_async_context(Sandbox(self._processes(java)))
            self.failed = sandbox.failed
            self.daemons = {self._managers[0].worker.node: sandbox.pid(JOB_MANAGER_TITLE)}
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

    def _processes(self, java: str) -> list[SandboxProcess]:
        first, folder, options = self._managers[0], self._job.folder, self._job.options
        memory, names = memory_of(self._job.topology), resources(self._job.topology)
        mine = folder / "flink" / "jobmanager"
        rest = f"http://{first.address}:{REST_PORT}"
        arguments = ("--job-classname", JOB, str(folder), rest)
        values = {**job_manager_values(first.address, mine), **options}
        found = [self._process(java, JOB_MANAGER_TITLE, mine, values, JOB_MANAGER_JAVA, JOB_MANAGER, arguments)]
        for manager in self._managers:
            mine = folder / "flink" / manager.id
            values = {**task_manager_values(manager, names, memory, first.address, mine), **options}
            worker = (f"-Dmillrace.node={manager.worker.node}", f"-Dmillrace.slot={manager.worker.index}")
            own = (*memory.java_options, *worker)
            found.append(self._process(java, _title(manager), mine, values, own, TASK_MANAGER, ()))
        return found

    def _process(
        self,
        java: str,
        title: str,
        folder: Path,
        values: Values,
        options: Sequence[str],
        main: str,
        arguments: Sequence[str],
    ) -> SandboxProcess:
        """Write the configuration of a process; return the process."""
        folder.mkdir(parents=True)
        (folder / CONFIGURATION).write_text(yaml_of(values), encoding="utf-8")
        command = (
            java,
            *options,
            f"-Djava.io.tmpdir={folder}",
            "-XX:-UsePerfData",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
            *("-cp", f"{self._programs}:{self._engine.class_path}", main, "--configDir", str(folder), *arguments),
        )
        return SandboxProcess(title, command, str(self._log(folder.name)))

    def _log(self, name: str) -> Path:
        return self._job.folder / LOGS / f"flink-{name}.log"

    async def _placed(self) -> Mapping[str, Slot]:
        """Wait until all executors run; return executor -> worker, as Flink's REST interface has it."""
        file = self._job.folder / "placed.tsv"
        ends_s = time.monotonic() + PLACE_S
        while not file.is_file():
            if self.failed.done():
                raise RunError(f"{self.failed.result()}: {self._cause()}")
            if time.monotonic() > ends_s:
                raise RunError(f"Flink does not run all executors after {PLACE_S:g} s: {self._cause()}")
            await asyncio.sleep(_POLL_S)
        workers = {manager.id: manager.worker for manager in self._managers}
        found = {}
        for line in file.read_text(encoding="utf-8").splitlines():
            component, index, manager = line.split("\t")
            found[f"{component}[{index}]"] = workers[manager]
        different = difference(self._job.topology, self._job.places, found)
        if different:
            raise RunError(f"Flink did not follow the placement: {different}")
        return found

    def _cause(self) -> str:
        """Return the last cause in the log of the process that ended, else in that of the JobManager."""
        ended = self.failed.result() if self.failed.done() else ""
        logs = [self._log(each.id) for each in self._managers if ended.startswith(_title(each))]
        return last_cause((logs or [self._log("jobmanager")])[0])


def _title(manager: TaskManager) -> str:
    return f"the TaskManager of {manager.worker.node}, slot {manager.worker.index},"


def last_cause(log: Path) -> str:
    """Return the last cause of an exception at the end of a log, or its last line."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        lines = []
    causes = [line for line in lines if line.startswith("Caused by: ")]
    found = (causes or [line for line in lines if line.strip()] or ["it has written nothing"])[-1]
    return printable(found.removeprefix("Caused by: ").strip())[:MOST_SHOWN]
