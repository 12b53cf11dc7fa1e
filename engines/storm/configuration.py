"""Configuration files of Storm for one run: its daemons, the topology, and logs.

Everything that would make placements unlike is fixed: the heap of workers (Storm's own follows the executors), and how
rows are shared out (Storm's own prefers receivers of the same worker, `topology.disable.loadaware.messaging`).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engines.job import LOGS, EngineJob
from inventory.errors import InputError
from workloads.topology import ACKER, Topology

MASTER = "master"
"""Folder of the configuration and the logs of ZooKeeper and Nimbus."""

ZOOKEEPER_PORT = 2000
NIMBUS_PORT = 6627
SUPERVISOR_PORT = 6628
"""Port of the first node's Supervisor; the others follow."""

WORKER_PORT = 7000
PORTS_PER_NODE = 100
"""Ports of the workers of a node, which are in an own network namespace."""

WORKER_HEAP_MB = 256

SCHEDULER = "millrace.storm.PinnedScheduler"

COMMON_JAVA = ("-XX:+UseSerialGC", "-XX:-UsePerfData")
"""Options of all processes; files of performance data would stay in the temporary folder when they are killed."""

DAEMON_JAVA = (*COMMON_JAVA, "-Xmx192m", "-XX:TieredStopAtLevel=1")
"""Options of daemons, which live for a minute: they are not worth the second compiler."""

GROUPINGS = ("shuffle", "fields", "global", "all", "local-or-shuffle")

_LOG = """<?xml version="1.0" encoding="UTF-8"?>
<configuration shutdownHook="disable"><Appenders><Console name="out">
<PatternLayout pattern="%d{{HH:mm:ss.SSS}} %c{{1}} %t [%p] %msg%n"/></Console></Appenders>
<Loggers><Root level="{level}"><AppenderRef ref="out"/></Root></Loggers></configuration>
"""

_WORKER_LOG = """<?xml version="1.0" encoding="UTF-8"?>
<configuration shutdownHook="disable"><Appenders>
<File name="out" fileName="${sys:workers.artifacts}/${sys:storm.id}/${sys:worker.port}/${sys:logfile.name}">
<PatternLayout pattern="%d{HH:mm:ss.SSS} %c{1} %t [%p] %msg%n"/></File></Appenders>
<Loggers><Root level="info"><AppenderRef ref="out"/></Root></Loggers></configuration>
"""


def check_topology(topology: Topology) -> None:
    """Check that Storm can run a topology by our adapter.

    Raises:
        InputError: a grouping is not supported, or a component has a name that Storm keeps for itself.
    """
    for component in topology.components:
        if component.id.startswith("__") and component.id != ACKER:
            raise InputError(f"component {component.id!r}: names that begin with __ are Storm's own")
        for entry in component.inputs:
            if entry.grouping not in GROUPINGS:
                raise InputError(
                    f"component {component.id!r}: the grouping {entry.grouping!r} is not supported with engine: storm; "
                    f"supported: {', '.join(GROUPINGS)}"
                )


class StormFiles:
    """Files and folders of Storm within the folder of a job."""

    def __init__(self, job: EngineJob, libraries: Path, programs: Path) -> None:
        """Prepare them.

        Args:
            job: the run.
            libraries: folder of Storm's jars.
            programs: jar of our classes.
        """
        self._job, self._libraries, self.programs = job, libraries, programs
        self.home = job.folder / "home"
        self.nodes = sorted({slot.node for slot in job.workers})
        self._master = "localhost" if job.controller is None else job.controller.address

    def write(self) -> None:
        """Write all files."""
        job = self._job
        (self.home / "log4j2").mkdir(parents=True)
        (self.home / "lib-worker").symlink_to(self._libraries)
        (self.home / "log4j2" / "worker.xml").write_text(_WORKER_LOG, encoding="utf-8")
        (self.home / "log4j2" / "cluster.xml").write_text(_LOG.format(level="info"), encoding="utf-8")
        (job.folder / "topology.json").write_text(json.dumps(self._topology()), encoding="utf-8")
        self._write_conf(MASTER, {"storm.local.hostname": self._master})
        for number, node in enumerate(self.nodes):
            self._write_conf(node, self._supervisor(number, node))

    def conf(self, name: str) -> Path:
        """Return the folder with `storm.yaml` of the master or of a node."""
        return self._job.folder / "conf" / name

    def log(self, name: str) -> Path:
        """Return the folder of the logs of the master or of a node."""
        return self._job.folder / LOGS / name

    def port(self, node: str, slot: int) -> int:
        """Return the port of a worker."""
        return self._first_port(self.nodes.index(node)) + slot

    def address(self, node: str) -> str:
        """Return the address of a node, of which each of this host has its own."""
        return self._job.addresses[node]

    def class_path(self, name: str) -> str:
        """Return the class path of a daemon."""
        return f"{self.conf(name)}:{self.programs}:{self._libraries}/*"

    def daemon_options(self, name: str) -> tuple[str, ...]:
        """Return the options of Java for a daemon."""
        return (
            *DAEMON_JAVA,
            f"-Dstorm.home={self.home}",
            f"-Dstorm.log.dir={self.log(name)}",
            f"-Dlog4j.configurationFile={self.home}/log4j2/cluster.xml",
            f"-Dstorm.jar={self.programs}",
            f"-Djava.io.tmpdir={self._job.folder}",
            f"-Ddaemon.name={name}",
        )

    def _first_port(self, number: int) -> int:
        return WORKER_PORT + number * PORTS_PER_NODE

    def _write_conf(self, name: str, own: Mapping[str, Any]) -> None:
        folder = self.conf(name)
        folder.mkdir(parents=True)
        self.log(name).mkdir(parents=True, exist_ok=True)
        local = self._job.folder / "local" / name
        common = {
            "storm.zookeeper.servers": [self._master],
            "storm.zookeeper.port": ZOOKEEPER_PORT,
            "nimbus.seeds": [self._master],
            "nimbus.thrift.port": NIMBUS_PORT,
            "nimbus.thrift.threads": 8,
            "nimbus.monitor.freq.secs": 1,
            "nimbus.inbox.jar.expiration.secs": 86400,
            "storm.scheduler": SCHEDULER,
            "storm.local.dir": str(local),
            "storm.metricstore.rocksdb.location": str(local / "metrics"),
            "storm.log4j2.conf.dir": str(self.home / "log4j2"),
            "storm.workers.artifacts.dir": str(self.log(name) / "workers"),
        }
        # JSON is YAML.
        (folder / "storm.yaml").write_text(json.dumps({**common, **own}, indent=1), encoding="utf-8")

    def _supervisor(self, number: int, node: str) -> dict[str, Any]:
        first = self._first_port(number)
        slots = max(slot.index for slot in self._job.workers if slot.node == node) + 1
        return {
            "storm.local.hostname": self.address(node),
            "supervisor.thrift.port": SUPERVISOR_PORT + number,
            "supervisor.slots.ports": [first + slot for slot in range(slots)],
            "supervisor.scheduler.meta": {"node": node},
            "supervisor.monitor.frequency.secs": 1,
            "supervisor.heartbeat.frequency.secs": 1,
            "supervisor.worker.start.timeout.secs": 120,
            "worker.childopts": f"-Xms{WORKER_HEAP_MB}m -Xmx{WORKER_HEAP_MB}m "
            f"{' '.join((*COMMON_JAVA, *self._job.java_options(node)))} "
            f"-Dmillrace.node={node} -Dmillrace.port={first}",
        }

    def _topology(self) -> dict[str, Any]:
        job = self._job
        ackers = job.topology.component[ACKER].parallelism if ACKER in job.topology.component else 0
        return {
            "topology.workers": len(job.workers),
            "topology.acker.executors": ackers,
            "topology.eventlogger.executors": 0,
            "topology.disable.loadaware.messaging": True,
            "topology.stats.sample.rate": 1.0,
            "topology.worker.logwriter.childopts": f"-Xmx32m {' '.join(COMMON_JAVA)} -XX:TieredStopAtLevel=1",
            "topology.fall.back.on.java.serialization": False,
            "millrace.places": {
                name: f"{slot.node}:{self.port(slot.node, slot.index)}" for name, slot in job.places.items()
            },
            **job.options,
        }
