"""Flink's processes for one run: a JobManager, and a TaskManager for each worker of the placement."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from agents.protocol import Program, Slot
from engines.flink.configuration import (
    CONFIGURATION,
    MASTER_PORTS,
    REST,
    TaskManager,
    Values,
    job_manager_values,
    memory_of,
    placement_difference,
    resources,
    task_manager_values,
    task_managers,
    yaml_of,
)
from engines.installation import Engine
from engines.job import LIBRARIES, LOGS, MASTER, PROGRAMS, EngineJob
from engines.placed_processes import PlacedProcesses
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
        super().__init__(job, engine, programs)
        self._managers = task_managers(job.topology, job.places, job.addresses)

    @staticmethod
    def _ports_for(job: EngineJob) -> Mapping[str, int]:
        return {MASTER: MASTER_PORTS}

    def _processes(self, java: str, ports: Mapping[str, int]) -> list[tuple[str, Program]]:
        port, options = ports[MASTER], self._job.options
        # Where nodes are addresses of this host, the JobManager has that of the first one.
        address = self._job.master or self._managers[0].address
        memory, names = memory_of(self._job.topology), resources(self._job.topology)
        mine = self._own_folder(MASTER, "jobmanager")
        arguments = ("--job-classname", JOB, f"http://{address}:{port + REST}")
        values = {**job_manager_values(address, port, mine), **options}
        java_options: Sequence[str] = JOB_MANAGER_JAVA
        main = self._process(java, MASTER, JOB_MANAGER_TITLE, mine, values, java_options, JOB_MANAGER, arguments)
        programs = [(MASTER, main)]
        for manager in self._managers:
            node = manager.worker.node
            mine = self._own_folder(node, manager.id)
            values = {**task_manager_values(manager, names, memory, address, port, mine), **options}
            worker = (f"-Dmillrace.node={node}", f"-Dmillrace.slot={manager.worker.index}")
            java_options = (*memory.java_options, *self._job.java_options(node), *worker)
            program = self._process(java, node, _title(manager), mine, values, java_options, TASK_MANAGER, ())
            programs.append((node, program))
        return programs

    def _own_folder(self, node: str, name: str) -> Path:
        """Return the folder of a process, as it is on its node."""
        return self._job.folder_on(node) / "flink" / name

    def _process(
        self,
        java: str,
        node: str,
        title: str,
        folder: Path,
        values: Values,
        options: Sequence[str],
        main: str,
        arguments: Sequence[str],
    ) -> Program:
        """Write the configuration of a process with this folder; return the process."""
        here, there = self._job.folder / "flink" / folder.name, self._job.folder_on(node)
        here.mkdir(parents=True)
        (here / CONFIGURATION).write_text(yaml_of(values), encoding="utf-8")
        command = (
            java,
            *options,
            f"-Djava.io.tmpdir={folder}",
            "-XX:-UsePerfData",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
            f"-Dmillrace.folder={there}",
            *("-cp", f"{there / PROGRAMS}:{there / LIBRARIES}/*", main, "--configDir", str(folder), *arguments),
        )
        log = there / LOGS / self._log(folder.name).name
        return Program(title, self._job.command(node, command), str(log))

    def _log(self, name: str) -> Path:
        """Return the log of a process on this host; that of a process elsewhere comes when it has ended."""
        return self._job.folder / LOGS / f"flink-{name}.log"

    def _daemons(self) -> Mapping[str, str]:
        return {} if self._job.master else {self._managers[0].worker.node: JOB_MANAGER_TITLE}

    def _places(self, rows: Sequence[Sequence[str]]) -> Mapping[str, Slot]:
        """Return executor -> worker, as Flink's REST interface has it."""
        workers = {manager.id: manager.worker for manager in self._managers}
        places = {f"{component}[{index}]": workers[manager] for component, index, manager in rows}
        different = placement_difference(self._job.topology, self._job.places, places)
        if different:
            raise RunError(f"Flink did not follow the placement: {different}")
        return places

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
    cause = (causes or [line for line in lines if line.strip()] or ["it has written nothing"])[-1]
    return printable(cause.removeprefix("Caused by: ").strip())[:MOST_SHOWN]
