"""Storm's processes for one run: ZooKeeper and Nimbus, a Supervisor per node, and their workers."""

from collections.abc import Mapping, Sequence

from agents.protocol import Program, Slot
from engines.job import MASTER, EngineJob
from engines.placed_processes import PlacedProcesses
from engines.storm.configuration import MASTER_PORTS, StormFiles, nodes_of, slots_of
from inventory.errors import RunError

MOST_SHOWN = 200
"""Characters of the last line of a log in messages."""


class StormProcesses(PlacedProcesses):
    """See `engines.job.EngineProcesses`."""

    engine = "storm"
    place_s = 120.0

    @staticmethod
    def _ports_for(job: EngineJob) -> Mapping[str, int]:
        return {MASTER: MASTER_PORTS, **{node: 1 + slots_of(job, node) for node in nodes_of(job)}}

    def _processes(self, java: str, ports: Mapping[str, int]) -> list[tuple[str, Program]]:
        self._files = StormFiles(self._job, ports)
        self._files.write()
        supervisors = [(node, self._supervisor(java, node)) for node in self._files.nodes]
        return [(MASTER, self._master(java)), *supervisors]

    def _master(self, java: str) -> Program:
        counts = (len(self._files.nodes), len(self._job.places))
        arguments = (self._files.local(MASTER) / "zookeeper", self._files.zookeeper_port, *counts)
        return self._daemon(java, "Nimbus", MASTER, "millrace.storm.Master", *map(str, arguments))

    def _supervisor(self, java: str, node: str) -> Program:
        main = "org.apache.storm.daemon.supervisor.Supervisor"
        return self._daemon(java, supervisor_of(node), node, main)

    def _daemon(self, java: str, title: str, node: str, main: str, *arguments: str) -> Program:
        options = (*self._files.daemon_options(node), *self._job.java_options(node))
        command = (java, *options, "-cp", self._files.class_path(node), main, *arguments)
        return Program(
            title,
            self._job.command(node, command),
            str(self._files.log(node) / "daemon.log"),
            {"STORM_CONF_DIR": str(self._files.conf(node))},
        )

    def _daemons(self) -> Mapping[str, str]:
        return {node: supervisor_of(node) for node in nodes_of(self._job)}

    def _places(self, rows: Sequence[Sequence[str]]) -> Mapping[str, Slot]:
        """Return executor -> worker as Nimbus has assigned them; none may differ from the placement."""
        workers = {(self._files.address(slot.node), self._files.port(*slot)): slot for slot in self._job.workers}
        places: dict[str, Slot] = {}
        for component, index, host, port in rows:
            name, worker = f"{component}[{index}]", workers.get((host, int(port)))
            if worker is None or worker != self._job.places.get(name):
                raise RunError(
                    f"Storm has placed {name} on {host}:{port}, the placement has {self._job.places.get(name)}"
                )
            places[name] = worker
        missing = self._job.places.keys() - places.keys()
        if missing:
            raise RunError(f"Storm has not placed {min(missing)}")
        return places

    def _last_error(self) -> str:
        """Return the last line of Nimbus's log that is an error, or just the last one."""
        log = self._files.log(MASTER) / "daemon.log"
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
        errors = [line for line in lines if "ERROR" in line or "Exception" in line]
        return (errors or lines or ["it has written nothing"])[-1][:MOST_SHOWN]


def supervisor_of(node: str) -> str:
    """Return what the Supervisor of a node is called in messages."""
    return f"the Supervisor of {node}"
