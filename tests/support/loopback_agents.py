"""Node agents as processes on loopback addresses, and runs on them, one after the other, under a real coordinator.

A test provides what a campaign takes from an agenda and a scheduler: placement, rate and control settings. It can
observe every message between controller and agents.
"""

import os
import secrets
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Set
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
from bare_environment import bare_environment

from agents.collected_traces import collect
from agents.protocol import ExecutorSpec, InputFile, Listening, Message, Report, RunSpec, Slot, workers_of
from agents.trace import AGENT, CONTROLLER, TraceWriter
from campaign.agenda.application import Application
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.coordinator import Coordinator
from controller.coordinator.interfaces import Assignment
from controller.coordinator.online_loop import OnlineSettings
from controller.host.process_identity import ProcessIdentity, identify
from controller.nodes.agents import Agents, RunNode
from controller.nodes.transport import HERE, FolderReplicas, LoopbackTransport, collect_answer
from inventory.cluster import Cluster, Node
from inventory.documents import parse_document, to_plain
from inventory.errors import RunError
from scheduler.online.replanner import slots_of_added
from scheduler.problem import Problem
from workloads.key_groups import first_ownership
from workloads.rates import Max
from workloads.workload import Answer, Verdict, Workload, uses_columns, verified

EPOCHS = 100
"""Upper bound of the epochs of one run; the next run on the same agents starts after them."""

TIMEOUT_S = 100.0
"""Timeout of waits; never a measured quantity."""

SLOTS = 4
"""Slots per node."""

POLL_NS = 10_000_000

MessageCallback = Callable[[str, str, Message], None]
"""Called with (`sent` or `received`, node, message) for every message of the controller, before it takes effect."""


def ignore_message(_direction: str, _node: str, _message: Message) -> None:
    """Ignore the message."""


def slot_of(text: str) -> Slot:
    """Parse a slot such as `n1/0`."""
    node, _, slot = text.partition("/")
    return Slot(node, int(slot))


class ControlledRun:
    """One run under a real coordinator.

    Attributes:
        coordinator: the coordinator.
        workers: slot -> process of the worker that reported `Listening` last.
        event_counts: number of the controller's events, by kind.
        event_writer: writer of the controller's traces.
        answer: tables of the answer, set by `end`.
    """

    def __init__(
        self,
        agents: "LoopbackAgents",
        spec: RunSpec,
        workload: Workload,
        settings: ControlSettings,
        on_message: MessageCallback,
        online: OnlineSettings | None,
    ) -> None:
        self._agents, self._workload, self._on_message = agents, workload, on_message
        self.spec = spec
        self.workers: dict[Slot, ProcessIdentity | None] = {}
        self.event_counts: Counter[str] = Counter()
        self.answer: Answer = {}
        self.folder = agents.folder / "runs" / spec.run
        self._replicas = FolderReplicas(self.folder / "copies", {n: m.transport for n, m in agents.members.items()})
        self.event_writer = TraceWriter(self.folder / "traces", spec.run, CONTROLLER, AGENT)
        self._tables = Application("", "", workload, {}, workload.topology(), Max(), parse_document("{}").origin).tables
        cluster = Cluster(tuple(Node(id=name, slots=SLOTS, ghz=1.0, flops_per_cycle=4) for name in agents.members))
        environment = bare_environment(
            nodes=tuple(agents.members),
            send=self._send,
            restart=agents.agents.restart,
            supply=self._supply,
            place=self._place,
            offset=agents.agents.offset,
            replicas=self._replicas,
            note=self.note,
            enlarge=partial(slots_of_added, Problem(cluster, (workload.topology(),))),
            tables=self._tables.keys(),
        )
        self.coordinator = Coordinator(spec, environment, settings, online)

    def note(self, kind: str, subject: str, detail: str, value: float | None) -> None:
        """Record an event of the controller."""
        self.event_counts[kind] += 1
        self.event_writer.add("event", time.monotonic_ns(), kind, subject, detail, value)

    def handle_report(self, node: str, report: Report) -> None:
        """See `controller.nodes.agents.AgentListener`."""
        if isinstance(report, Listening) and report.epoch >= self.spec.epoch:
            self.workers[Slot(node, report.slot)] = identify(report.pid)
        self._on_message("received", node, report)
        self.coordinator.handle_report(node, report)

    def handle_agent_gone(self, node: str, reason: str) -> None:
        """See `controller.nodes.agents.AgentListener`."""
        self.coordinator.handle_agent_gone(node, reason)

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition.

        Raises:
            RunError: the run failed meanwhile.
        """
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not come within {TIMEOUT_S:g} s"
            await self.coordinator.wait_until(time.monotonic_ns() + POLL_NS)

    async def _send(self, node: str, message: Message) -> None:
        self._on_message("sent", node, message)
        await self._agents.agents.send(node, message)

    async def _supply(self, node: str) -> None:
        for entry in self._agents.inputs:
            await self._agents.members[node].transport.put(entry.path, str(HERE.input(entry.path.name)))

    async def _place(self, lost: Set[str], _places: Mapping[str, Slot], _traffic: object) -> Assignment:
        raise RunError(f"no node was to be lost here, but {lost} is")

    async def end(self) -> Verdict:
        """Stop, drain and finish the run; return the verdict on its answer."""
        await self.coordinator.stop()
        await self.coordinator.finish()
        parts = [(part.table, self._replicas.path(part.name)) for part in self.coordinator.answer]
        self.answer = collect_answer(parts, self.folder / "answer", self._tables)
        spouts = {c.id for c in self._workload.topology().components if c.kind == "spout"}
        names = [e.name for e in self._workload.topology().executors if e.component in spouts]
        positions = [self.coordinator.positions[name] for name in names]
        return verified(self._workload, self.answer, positions, self._agents.inputs)

    def traces(self) -> dict[str, pa.Table]:
        """Return all traces of the run, by table."""
        self.event_writer.close()
        below = [self._agents.folder / "nodes" / node / self.spec.run / "traces" for node in self._agents.members]
        collect([*below, self.folder / "traces"], self.folder / "parquet", self.coordinator.unreported)
        return {path.stem: pyarrow.parquet.read_table(path) for path in (self.folder / "parquet").glob("*.parquet")}


class LoopbackAgents:
    """Running agents, and runs on them, one after the other.

    Attributes:
        folder: folder of nodes, runs and prepared inputs.
        agent_processes: node -> agent process.
        members: node -> address and transport.
        inputs: prepared inputs of the current run.
    """

    def __init__(self, folder: Path, agents: Agents, processes: Mapping[str, ProcessIdentity | None]) -> None:
        self.folder, self.agents, self.agent_processes = folder, agents, processes
        self.members = agents.members
        self.inputs: Sequence[Any] = ()
        self._runs = 0

    @asynccontextmanager
    async def run(
        self,
        workload: Workload,
        places: Mapping[str, str],
        rate: Mapping[str, Any],
        settings: ControlSettings,
        on_message: MessageCallback = ignore_message,
        online: OnlineSettings | None = None,
        buffer_bytes: int = 0,
    ) -> AsyncIterator[ControlledRun]:
        """Create a run.

        Args:
            workload: the workload.
            places: executor -> `node/slot`.
            rate: rate document of the sources.
            settings: checkpoints, moves and timeline.
            on_message: called for every message.
            online: online scheduler, if any.
            buffer_bytes: size of an executor's input queue; 0 selects the runtime's default.
        """
        self._runs += 1
        self.inputs = workload.prepare(self.folder / "prepared")
        topology = workload.topology()
        executors = tuple(ExecutorSpec(e.component, e.index, slot_of(places[e.name])) for e in topology.executors)
        spec = RunSpec(
            run=f"run-{self._runs}",
            epoch=self._runs * EPOCHS,
            workload=workload.name,
            params=to_plain(workload.params),
            topology=to_plain(topology),
            executors=executors,
            workers=workers_of(executors),
            owners=first_ownership(topology.keyed),
            addresses={node: member.address for node, member in self.members.items()},
            key=secrets.token_hex(32),
            rate=rate,
            seed=self._runs,
            inputs=tuple(InputFile(entry.name, entry.path.name, entry.sha256) for entry in self.inputs),
            shared_clock=True,
            observed=online is not None,
            buffer_bytes=buffer_bytes,
            columns=uses_columns(workload, topology),
        )
        run = ControlledRun(self, spec, workload, settings, on_message, online)
        self.agents.listen(run)
        async with run.coordinator:
            yield run

    def kill_agent(self, node: str) -> None:
        """Send SIGKILL to the agent of a node."""
        kill(self.agent_processes[node])


def kill(process: ProcessIdentity | None) -> None:
    """Send SIGKILL to a process, if it is still the same process."""
    if process is not None and process.is_alive():
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


@asynccontextmanager
async def loopback_agents(folder: Path, nodes: Sequence[str] = ("n1", "n2")) -> AsyncIterator[LoopbackAgents]:
    """Start an agent per node; all end with the block."""
    members = {
        node: RunNode(f"127.0.0.{at + 2}", LoopbackTransport(folder / "nodes" / node)) for at, node in enumerate(nodes)
    }
    processes: dict[str, ProcessIdentity | None] = {}

    def started(node: str, pid: int) -> None:
        processes[node] = identify(pid)

    async with Agents(members, "proofs", started) as agents:
        yield LoopbackAgents(folder, agents, processes)
