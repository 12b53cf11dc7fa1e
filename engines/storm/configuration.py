"""Configuration files of Storm for one run: its daemons, the topology, and logs.

Everything that would make placements unlike is fixed: the heap of workers (Storm's own follows the executors), and how
rows are shared out (Storm's own prefers receivers of the same worker, `topology.disable.loadaware.messaging`).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from engines.job import LIBRARIES, LOGS, MASTER, PROGRAMS, EngineJob
from inventory.errors import InputError
from workloads.topology import ACKER, Topology

ZOOKEEPER, NIMBUS, MASTER_PORTS = 0, 1, 2
"""The master's ports after its first one, and their number."""

WORKER_HEAP_MB = 256

SCHEDULER = "millrace.storm.PinnedScheduler"

COMMON_JAVA = ("-XX:+UseSerialGC", "-XX:-UsePerfData")
"""Options of all processes; files of performance data would stay in the temporary folder when they are killed."""

DAEMON_JAVA = (*COMMON_JAVA, "-Xmx192m", "-XX:TieredStopAtLevel=1")
"""Options of daemons, which live for a minute: they are not worth the second compiler."""

GROUPINGS = ("shuffle", "fields", "global", "all", "local-or-shuffle")

_Number = Annotated[int, Meta(ge=1)]

OPTIONS: Mapping[str, Any] = {
    "topology.backpressure.check.millis": _Number,
    "topology.batch.flush.interval.millis": _Number,
    "topology.debug": bool,
    "topology.disable.loadaware.messaging": bool,
    "topology.executor.receive.buffer.size": _Number,
    "topology.max.spout.pending": _Number,
    "topology.message.timeout.secs": _Number,
    "topology.producer.batch.size": _Number,
    "topology.stats.sample.rate": Annotated[float, Meta(gt=0, le=1)],
    "topology.transfer.batch.size": _Number,
    "topology.transfer.buffer.size": _Number,
}
"""Settings of a topology that an agenda may change -> type. Others have commands, classes and paths as values, which
Storm would run, load and write: agendas are data, which may come from others."""

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


_BATCH_ROWS = 500
"""Rows of a full batch of Storm when rows wait for others; its limit is half of its buffer for transfers."""


def storm_wait(wait_ms: float) -> dict[str, int | str]:
    """Return the settings with which rows wait up to `wait_ms` for others; 0: every row is sent on its own.

    Storm fills batches of its queues between executors, and of those to other workers.

    Raises:
        ValueError: it is no whole number of milliseconds.
    """
    if wait_ms != int(wait_ms):
        raise ValueError("expected whole milliseconds")
    rows = _BATCH_ROWS if wait_ms else 1
    return {
        "topology.batch.flush.interval.millis": max(1, int(wait_ms)),
        "topology.producer.batch.size": rows,
        "topology.transfer.batch.size": rows,
    }


def check_storm_topology(topology: Topology) -> None:
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


def nodes_of(job: EngineJob) -> list[str]:
    """Return the nodes that a placement uses, each of which has a Supervisor."""
    return sorted({slot.node for slot in job.workers})


def slots_of(job: EngineJob, node: str) -> int:
    """Return the number of slots that a node has to offer."""
    return max(slot.index for slot in job.workers if slot.node == node) + 1


class StormFiles:
    """Files and folders of Storm within the folder of a job."""

    def __init__(self, job: EngineJob, ports: Mapping[str, int]) -> None:
        """Prepare them; `ports` is node, or `MASTER`, -> the first of its ports."""
        self._job, self._ports = job, ports
        self.nodes = nodes_of(job)
        self._master = job.master or "localhost"

    def write(self) -> None:
        """Write all files."""
        job = self._job
        settings = job.folder / "log4j2"
        settings.mkdir()
        (settings / "worker.xml").write_text(_WORKER_LOG, encoding="utf-8")
        (settings / "cluster.xml").write_text(_LOG.format(level="info"), encoding="utf-8")
        (job.folder / "topology.json").write_text(json.dumps(self._topology()), encoding="utf-8")
        self._write_conf(MASTER, {"storm.local.hostname": self._master})
        for node in self.nodes:
            self._write_conf(node, self._supervisor(node))

    def conf(self, node: str) -> Path:
        """Return the folder with `storm.yaml` of a node or of the master, as it is there."""
        return self._job.folder_on(node) / "conf" / (node or "master")

    def log(self, node: str) -> Path:
        """Return the folder of the logs of a node or of the master, as it is there."""
        return self._job.folder_on(node) / LOGS / (node or "master")

    def local(self, node: str) -> Path:
        """Return Storm's own folder on a node or of the master, as it is there."""
        return self._job.folder_on(node) / "local" / (node or "master")

    @property
    def zookeeper_port(self) -> int:
        """Port of ZooKeeper."""
        return self._ports[MASTER] + ZOOKEEPER

    def port(self, node: str, slot: int) -> int:
        """Return the port of a worker; that of the node's Supervisor comes first."""
        return self._ports[node] + 1 + slot

    def address(self, node: str) -> str:
        """Return the address of a node, of which each of this host has its own."""
        return self._job.addresses[node]

    def class_path(self, node: str) -> str:
        """Return the class path of a daemon."""
        there = self._job.folder_on(node)
        return f"{self.conf(node)}:{there / PROGRAMS}:{there / LIBRARIES}/*"

    def daemon_options(self, node: str) -> tuple[str, ...]:
        """Return the options of Java for a daemon."""
        there = self._job.folder_on(node)
        return (
            *DAEMON_JAVA,
            f"-Dstorm.home={there}",
            f"-Dstorm.log.dir={self.log(node)}",
            f"-Dlog4j.configurationFile={there}/log4j2/cluster.xml",
            f"-Dstorm.jar={there / PROGRAMS}",
            f"-Djava.io.tmpdir={there}",
            f"-Ddaemon.name={node or 'master'}",
            f"-Dmillrace.folder={there}",
        )

    def _write_conf(self, node: str, own: Mapping[str, Any]) -> None:
        folder = self._job.folder / "conf" / (node or "master")
        folder.mkdir(parents=True)
        local = self.local(node)
        common = {
            "storm.zookeeper.servers": [self._master],
            "storm.zookeeper.port": self.zookeeper_port,
            "nimbus.seeds": [self._master],
            "nimbus.thrift.port": self._ports[MASTER] + NIMBUS,
            "nimbus.thrift.threads": 8,
            "nimbus.monitor.freq.secs": 1,
            "nimbus.inbox.jar.expiration.secs": 86400,
            "storm.scheduler": SCHEDULER,
            "storm.local.dir": str(local),
            "storm.metricstore.rocksdb.location": str(local / "metrics"),
            "storm.log4j2.conf.dir": str(self._job.folder_on(node) / "log4j2"),
            "storm.workers.artifacts.dir": str(self.log(node) / "workers"),
        }
        # JSON is YAML.
        (folder / "storm.yaml").write_text(json.dumps({**common, **own}, indent=1), encoding="utf-8")

    def _supervisor(self, node: str) -> dict[str, Any]:
        first = self.port(node, 0)
        return {
            "storm.local.hostname": self.address(node),
            "supervisor.thrift.port": self._ports[node],
            "supervisor.slots.ports": [first + slot for slot in range(slots_of(self._job, node))],
            "supervisor.scheduler.meta": {"node": node},
            "supervisor.monitor.frequency.secs": 1,
            "supervisor.heartbeat.frequency.secs": 1,
            "supervisor.worker.start.timeout.secs": 120,
            "worker.childopts": f"-Xms{WORKER_HEAP_MB}m -Xmx{WORKER_HEAP_MB}m "
            f"{' '.join((*COMMON_JAVA, *self._job.java_options(node)))} "
            f"-Dmillrace.folder={self._job.folder_on(node)} -Dmillrace.node={node} -Dmillrace.port={first}",
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
