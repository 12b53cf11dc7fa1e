"""Flink's processes for one run on this host: a JobManager, and a TaskManager for each worker of the placement."""

from collections.abc import Mapping, Sequence
from pathlib import Path

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
from engines.placed_processes import PlacedProcesses
from engines.sandbox import SandboxProcess
from inventory.errors import RunError
from inventory.foreign import printable

JOB_MANAGER = "org.apache.flink.container.entrypoint.StandaloneApplicationClusterEntryPoint"
TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
JOB = "millrace.flink.FlinkJob"

JOB_MANAGER_TITLE = "the JobManager"

OPENED = ("java.lang", "java.net", "java.io", "java.nio", "java.text", "java.time", "java.util", "java.util.concurrent")
"""Packages of Java that Flink's own start script opens to it."""

JOB_MANAGER_JAVA = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""The JobManager has little to do: it is not worth the second compiler."""

MOST_SHOWN = 300
"""Characters of the cause of a failure in messages."""

_TAIL = 64 * 1024


class FlinkProcesses(PlacedProcesses):
    """See `engines.job.EngineProcesses`."""

    engine = "flink"
    place_s = 180.0

    def __init__(self, job: EngineJob, engine: Engine, programs: Path) -> None:
        """Prepare the processes.

        Args:
            job: the run.
            engine: Flink.
            programs: jar of our classes for Flink.
        """
        super().__init__(job)
        self._installed, self._programs = engine, programs
        self._managers = task_managers(job.topology, job.places, job.addresses)

    def _processes(self, java: str) -> list[SandboxProcess]:
        folder, options = self._job.folder, self._job.options
        address = self._job_manager_address
        memory, names = memory_of(self._job.topology), resources(self._job.topology)
        mine = folder / "flink" / "jobmanager"
        rest = f"http://{address}:{REST_PORT}"
        arguments = ("--job-classname", JOB, str(folder), rest)
        values = {**job_manager_values(address, mine), **options}
        found = [self._process(java, None, JOB_MANAGER_TITLE, mine, values, JOB_MANAGER_JAVA, JOB_MANAGER, arguments)]
        for manager in self._managers:
            mine = folder / "flink" / manager.id
            values = {**task_manager_values(manager, names, memory, address, mine), **options}
            worker = (f"-Dmillrace.node={manager.worker.node}", f"-Dmillrace.slot={manager.worker.index}")
            node = manager.worker.node
            own = (*memory.java_options, *self._job.java_options(node), *worker)
            found.append(self._process(java, node, _title(manager), mine, values, own, TASK_MANAGER, ()))
        return found

    @property
    def _job_manager_address(self) -> str:
        """The controller's address; where nodes are addresses of this host, that of the first node."""
        return self._managers[0].address if self._job.controller is None else self._job.controller.address

    def _process(
        self,
        java: str,
        node: str | None,
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
            *("-cp", f"{self._programs}:{self._installed.class_path}", main, "--configDir", str(folder), *arguments),
        )
        return SandboxProcess(title, self._job.command(node, command), str(self._log(folder.name)))

    def _log(self, name: str) -> Path:
        return self._job.folder / LOGS / f"flink-{name}.log"

    def _daemons(self) -> Mapping[str, str]:
        return {self._managers[0].worker.node: JOB_MANAGER_TITLE} if self._job.controller is None else {}

    def _places(self, rows: Sequence[Sequence[str]]) -> Mapping[str, Slot]:
        """Return executor -> worker, as Flink's REST interface has it."""
        workers = {manager.id: manager.worker for manager in self._managers}
        found = {f"{component}[{index}]": workers[manager] for component, index, manager in rows}
        different = difference(self._job.topology, self._job.places, found)
        if different:
            raise RunError(f"Flink did not follow the placement: {different}")
        return found

    def _last_error(self) -> str:
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
