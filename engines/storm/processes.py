"""Storm's processes for one run on this host: ZooKeeper and Nimbus, a Supervisor per node, and their workers."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from agents.protocol import Slot
from engines.installation import Engine
from engines.job import EngineJob
from engines.placed_processes import PlacedProcesses
from engines.sandbox import SandboxProcess
from engines.storm.configuration import MASTER, ZOOKEEPER_PORT, StormFiles
from inventory.errors import RunError

MOST_SHOWN = 200
"""Characters of the last line of a log in messages."""


class StormProcesses(PlacedProcesses):
    """See `engines.job.EngineProcesses`."""

    engine = "storm"
    place_s = 120.0

    def __init__(self, job: EngineJob, engine: Engine, programs: Path) -> None:
        """Prepare the processes.

        Args:
            job: the run.
            engine: Storm.
            programs: jar of our classes for Storm.
        """
        super().__init__(job)
        self._files = StormFiles(job, engine.folder, programs)

    def _processes(self, java: str) -> list[SandboxProcess]:
        self._files.write()
        return [self._master(java), *(self._supervisor(java, node) for node in self._files.nodes)]

    def _master(self, java: str) -> SandboxProcess:
        folder = self._job.folder
        counts = (len(self._files.nodes), len(self._job.places))
        arguments = (folder, folder / "local" / "zookeeper", ZOOKEEPER_PORT, *counts)
        return self._daemon(java, "Nimbus", None, "millrace.storm.Master", *map(str, arguments))

    def _supervisor(self, java: str, node: str) -> SandboxProcess:
        main = "org.apache.storm.daemon.supervisor.Supervisor"
        return self._daemon(java, supervisor_of(node), node, main)

    def _daemon(self, java: str, title: str, node: str | None, main: str, *arguments: str) -> SandboxProcess:
        name = node or MASTER
        options = (*self._files.daemon_options(name), *(self._job.java_options(node) if node else ()))
        command = (java, *options, "-cp", self._files.class_path(name), main, *arguments)
        return SandboxProcess(
            title,
            self._job.command(node, command),
            str(self._files.log(name) / "daemon.log"),
            {"STORM_CONF_DIR": str(self._files.conf(name))},
        )

    def _daemons(self) -> Mapping[str, str]:
        return {node: supervisor_of(node) for node in self._files.nodes}

    def _places(self, rows: Sequence[Sequence[str]]) -> Mapping[str, Slot]:
        """Return executor -> worker as Nimbus has assigned them; none may differ from the placement."""
        workers = {(self._files.address(slot.node), self._files.port(*slot)): slot for slot in self._job.workers}
        found: dict[str, Slot] = {}
        for component, index, host, port in rows:
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

    def _last_error(self) -> str:
        """Return the last line of Nimbus's log that is an error, or just the last one."""
        log = self._files.log(MASTER) / "daemon.log"
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
        errors = [line for line in lines if "ERROR" in line or "Exception" in line]
        return (errors or lines or ["it has written nothing"])[-1][:MOST_SHOWN]


def supervisor_of(node: str) -> str:
    """Return what the Supervisor of a node is called in messages."""
    return f"the Supervisor of {node}"
