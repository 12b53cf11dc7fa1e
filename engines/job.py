"""One run of a placement on another stream engine: what is given to the engine, and what it has to do.

A run has four parts, whatever the engine:

1. The engine is started on the nodes, and the topology on the engine (`engines.placed_processes`). Every executor
   opens, writes a line `open` into the reports, and waits.
2. `EngineProcesses.go` writes `control/go`, with the times of the run. Sources emit each record when it is due, sinks
   measure latency from that time, and every process appends its totals to its report once a second.
3. After the last record the topology drains; `control/finish` makes executors write their answers.
4. All processes are ended.

All of these are files in the folder of the job. Nodes that are machines of their own have a folder each. Their agents
write commands there and pass on reports, so that the controller finds everything in its own folder
(`engines.engine_agents`).

Our Java (`engines/java/millrace`) does the parts of executors; an engine's adapter only converts between its own
interfaces and those of `millrace.Source` and `millrace.Operator`. What executors read is a file of Java properties.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agents.protocol import Slot
from agents.protocol.node_folders import RunFolder
from controller.nodes.local_nodes import LocalNode
from inventory.atomic_files import replace_file
from workloads.topology import ACKER, Topology

if TYPE_CHECKING:
    from controller.coordinator.interfaces import Offset
    from controller.nodes.agents import RunNode

MASTER = ""
"""Key of what belongs to no node: the engine's main process, which runs where the controller does."""

PROPERTIES = "job.properties"
"""File in the folder of a job: everything that executors need to know (`millrace.Job`)."""

CONTROL = "control"
"""Folder of the files `go` and `finish`."""

REPORTS = "reports"
"""Folder of the reports, one file per process of executors, `<node>-<slot>-<process id>.tsv`."""

ANSWERS = "answers"
"""Folder of the answers: `<number of the component>-<index>.tsv` for every executor that has one."""

LOGS = "logs"
"""Folder of the engine's own logs, one folder per node."""

TRACES = "traces"
"""Folder of the traces of sensors and clocks, where nodes are machines of their own."""

INPUTS = "inputs"
"""Folder of links to the prepared inputs."""

LIBRARIES, PROGRAMS = RunFolder(Path()).libraries.name, "programs.jar"
"""Links to the folder of the engine's jars, and to the jar of our classes."""

EPOCH = 1
"""The only epoch of a run, which is never restarted."""

FOLDERS = (CONTROL, REPORTS, ANSWERS, LOGS)
"""Folders that executors expect in that of the job, wherever they run."""

GO, FINISH = "go", "finish"
"""Files in the folder of commands."""


@dataclass(frozen=True)
class EngineJob:
    """A topology, its placement, and the files that its executors use.

    Attributes:
        run: name of the run.
        program: what executors run: `wordcount`, `exclamation`, or `replay` of a load document.
        topology: the topology as it runs.
        places: executor's name -> worker.
        addresses: node -> its address in the testbed's network.
        folder: folder of everything that belongs to the run; it exists.
        settings: what else executors have to know, as lines of `job.properties`.
        options: the engine's own settings for the topology, by the engine's names.
        nodes: node -> its namespaces and control group; empty where nodes are addresses of this host.
        controller: those of the controller; None where nodes are addresses of this host, or machines.
        machines: nodes that are machines of their own.
        master: address on which nodes reach the engine's main process; empty where nodes are addresses of this host.
        sensors: sensors of nodes that are machines.
        campaign: name of the campaign, for logs of agents.
        on_start: called with node and process id of each agent that is started on this host.
    """

    run: str
    program: str
    topology: Topology
    places: Mapping[str, Slot]
    addresses: Mapping[str, str]
    folder: Path
    settings: Mapping[str, str | int | float] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    nodes: Mapping[str, LocalNode] = field(default_factory=dict)
    controller: LocalNode | None = None
    machines: Mapping[str, "RunNode"] = field(default_factory=dict)
    master: str = ""
    sensors: Sequence[str] = ()
    campaign: str = ""
    on_start: Callable[[str, int], None] = lambda node, pid: None

    def folder_on(self, node: str) -> Path:
        """Return the path of the job's folder on a node, or for `MASTER` on this host."""
        return Path(self.machines[node].transport.folder) / self.run if node in self.machines else self.folder

    def command(self, node: str, command: Sequence[str]) -> tuple[str, ...]:
        """Return the command that runs another one on a node, or for `MASTER` where the controller is."""
        where = self.controller if node == MASTER else self.nodes.get(node)
        return tuple(command) if where is None else where.command(command)

    def java_options(self, node: str) -> tuple[str, ...]:
        """Return options of Java for processes of a node: it must not take the host's cores or a quota for them."""
        where = self.nodes.get(node)
        return () if where is None or where.cores is None else (f"-XX:ActiveProcessorCount={where.cores}",)

    @property
    def executors(self) -> list[str]:
        """Executors that run our code, by name, in the topology's order."""
        return [each.name for each in self.topology.executors if each.component != ACKER]

    @property
    def workers(self) -> list[Slot]:
        """Workers that the placement uses, in order."""
        return sorted(set(self.places.values()))

    def write_properties(self) -> Path:
        """Write `job.properties` and make the folders of the run; return the file's path."""
        for name in FOLDERS:
            (self.folder / name).mkdir(exist_ok=True)
        lines: dict[str, str | int | float] = {"run": self.run, "program": self.program}
        shares = 0
        for number, component in enumerate(each for each in self.topology.components if each.id != ACKER):
            key = component_key(number)
            lines |= {f"{key}.id": component.id, f"{key}.kind": component.kind}
            lines[f"{key}.parallelism"] = component.parallelism
            for at, (stream, schema) in enumerate((component.outputs or {}).items()):
                lines[f"{key}.output.{at}"] = f"{stream}\t{' '.join(schema)}"
            for at, entry in enumerate(component.inputs):
                fields = " ".join(entry.fields)
                lines[f"{key}.input.{at}"] = f"{entry.source}\t{entry.stream}\t{entry.grouping}\t{fields}"
            if component.kind == "spout":
                lines[f"{key}.share"] = shares
                shares += component.parallelism
        lines["shares"] = shares
        path = self.folder / PROPERTIES
        replace_file(path, properties({**lines, **self.settings}).encode("latin-1"))
        return path


class EngineProcesses(Protocol):
    """The processes of an engine that run one job, with every executor where the placement says."""

    @property
    def places(self) -> Mapping[str, Slot]:
        """Executor's name -> worker, as the engine reports it.

        An engine that cannot place by index may exchange executors of one component; the cost of these places counts.
        """
        ...

    @property
    def failed(self) -> Awaitable[str]:
        """Completes, with one line about what ended, as soon as a process of the engine has ended by itself."""
        ...

    def has_ended(self, worker: Slot, pid: int) -> bool:
        """Return whether the process of a worker has ended; `pid` is its id where it runs."""
        ...

    def offset(self, node: str) -> "Offset":
        """Return the offset of a node's clock from that of this host."""
        ...

    async def go(self, times: Sequence[int]) -> None:
        """Give executors the times of the run, on this host's clock: start, begin and end of the measured interval.

        Raises:
            RunError: a node has not got them before the start.
        """
        ...

    async def mark(self, kind: str) -> None:
        """Have the sensors of nodes that are machines of their own write an event, and take a sample."""
        ...

    async def finish(self) -> None:
        """Have executors write their answers."""
        ...

    async def collect_answers(self, places: Mapping[str, Slot]) -> None:
        """Bring the answers of these executors to the folder of answers."""
        ...


def component_key(number: int) -> str:
    """Return the begin of the properties of a component, by its place in the topology."""
    return f"component.{number}"


def properties(values: Mapping[str, str | int | float]) -> str:
    """Return lines in the format of `java.util.Properties`; characters outside of ASCII are escaped."""
    return "".join(f"{_escaped(key, ' :=#!')}={_escaped(str(value), '')}\n" for key, value in values.items())


def _escaped(text: str, special: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    for character in special:
        escaped = escaped.replace(character, f"\\{character}")
    if escaped.startswith(" "):
        escaped = f"\\{escaped}"
    units = escaped.encode("utf-16-be")
    codes = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(chr(code) if code < 0x7F else f"\\u{code:04x}" for code in codes)
