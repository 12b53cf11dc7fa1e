"""Real node agents that outlive runs, and runs on them: the campaign's own control, with all it says and hears watched.

What a campaign takes from an agenda and a scheduler the test gives: who runs where, at which rate, what happens when.
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
from problems import nodes_of

from agents.collected_traces import collect
from agents.protocol import ExecutorSpec, InputFile, Listening, Message, Report, RunSpec, Slot, workers_of
from agents.trace import AGENT, TraceWriter
from campaign.agenda.application import Application
from campaign.results.run_metrics import verified
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.coordinator import Coordinator
from controller.coordinator.event_log import CONTROLLER
from controller.coordinator.interfaces import Assignment, Environment
from controller.coordinator.online_loop import OnlineSettings
from controller.host.process_identity import ProcessIdentity, identify
from controller.nodes.agents import Agents, Member
from controller.nodes.transport import HERE, FolderReplicas, LoopbackTransport, collect_answer
from inventory.documents import parse, to_plain
from inventory.errors import RunError
from scheduler.online.replanner import slots_of_added
from scheduler.problem import Problem
from workloads.key_groups import first_ownership
from workloads.rates import Max
from workloads.workload import Answer, Verdict, Workload, uses_columns

EPOCHS = 100
"""Epochs that one run may use up; those of the next run on the same agents are higher."""

LONG_S = 100.0
"""How long a test waits for what must come; never what it measures."""

SLOTS = 4
"""Slots of every node."""

POLL_NS = 10_000_000

Watch = Callable[[str, str, Message], None]
"""Is told (`told` or `heard`, node, message) of all that goes between controller and agents, before it takes effect."""


def unwatched(_way: str, _node: str, _message: Message) -> None:
    """Watch nothing."""


def place_of(text: str) -> Slot:
    """`n1/0` as a place."""
    node, _, slot = text.partition("/")
    return Slot(node, int(slot))


class Play:
    """One run.

    Attributes:
        coordinator: its coordinator.
        workers: processes of the workers that listened last, by place.
        noted: number of the controller's events, by kind.
        answer: tables of the answer, after `end`.
    """

    def __init__(
        self,
        ground: "Ground",
        spec: RunSpec,
        workload: Workload,
        course: ControlSettings,
        watch: Watch,
        online: OnlineSettings | None,
    ) -> None:
        self._ground, self._workload, self._watch = ground, workload, watch
        self.spec = spec
        self.workers: dict[Slot, ProcessIdentity | None] = {}
        self.noted: Counter[str] = Counter()
        self.answer: Answer = {}
        self.folder = ground.folder / "runs" / spec.run
        self._copies = FolderReplicas(self.folder / "copies", {n: m.transport for n, m in ground.members.items()})
        self.notes = TraceWriter(self.folder / "traces", spec.run, CONTROLLER, AGENT)
        self._supplied: set[str] = set()
        self._tables = Application("", "", workload, {}, workload.topology(), Max(), parse("{}").origin).tables
        cluster = nodes_of(**dict.fromkeys(ground.members, SLOTS))
        environment = Environment(
            nodes=tuple(ground.members),
            send=self._tell,
            restart=ground.agents.restart,
            supply=self._supply,
            place=self._place,
            offset=ground.agents.offset,
            replicas=self._copies,
            note=self.note,
            enlarge=partial(slots_of_added, Problem(cluster, (workload.topology(),))),
            tables=self._tables.keys(),
        )
        self.coordinator = Coordinator(spec, environment, course, online)

    def note(self, kind: str, subject: str, detail: str, value: float | None) -> None:
        """Write an event of the controller."""
        self.noted[kind] += 1
        self.notes.add("event", time.monotonic_ns(), kind, subject, detail, value)

    def handle_report(self, node: str, report: Report) -> None:
        """See `controller.nodes.agents.AgentListener`."""
        if isinstance(report, Listening) and report.epoch >= self.spec.epoch:
            self.workers[Slot(node, report.slot)] = identify(report.pid)
        self._watch("heard", node, report)
        self.coordinator.handle_report(node, report)

    def handle_agent_gone(self, node: str, reason: str) -> None:
        """See `controller.nodes.agents.AgentListener`."""
        self.coordinator.handle_agent_gone(node, reason)

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for what must come; a run that fails meanwhile raises why."""
        deadline = time.monotonic() + LONG_S
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not come within {LONG_S:g} s"
            await self.coordinator.wait_until(time.monotonic_ns() + POLL_NS)

    async def _tell(self, node: str, message: Message) -> None:
        self._watch("told", node, message)
        await self._ground.agents.send(node, message)

    async def _supply(self, node: str) -> None:
        for entry in self._ground.inputs:
            await self._ground.members[node].transport.put(entry.path, str(HERE.input(entry.path.name)))

    async def _place(self, lost: Set[str], _places: Mapping[str, Slot], _traffic: object) -> Assignment:
        raise RunError(f"no node was to be lost here, but {lost} is")

    async def end(self) -> Verdict:
        """Stop, drain, finish; return whether the answer is the right one."""
        await self.coordinator.stop()
        await self.coordinator.finish()
        parts = [(part.table, self._copies.path(part.name)) for part in self.coordinator.answer]
        self.answer = collect_answer(parts, self.folder / "answer", self._tables)
        spouts = {c.id for c in self._workload.topology().components if c.kind == "spout"}
        names = [e.name for e in self._workload.topology().executors if e.component in spouts]
        positions = [self.coordinator.positions[name] for name in names]
        return verified(self._workload, self.answer, positions, self._ground.inputs)

    def traces(self) -> dict[str, pa.Table]:
        """All traces of the run, by table."""
        self.notes.close()
        below = [self._ground.folder / "nodes" / node / self.spec.run / "traces" for node in self._ground.members]
        collect([*below, self.folder / "traces"], self.folder / "parquet", self.coordinator.unreported)
        return {path.stem: pyarrow.parquet.read_table(path) for path in (self.folder / "parquet").glob("*.parquet")}


class Ground:
    """Agents that are up, and what runs on them, one run after the other."""

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
        course: ControlSettings,
        watch: Watch = unwatched,
        online: OnlineSettings | None = None,
        buffer_bytes: int = 0,
    ) -> AsyncIterator[Play]:
        """Begin a run; `places` has a `node/slot` for every executor, `online` its online scheduler."""
        self._runs += 1
        self.inputs = workload.prepare(self.folder / "prepared")
        topology = workload.topology()
        executors = tuple(ExecutorSpec(e.component, e.index, place_of(places[e.name])) for e in topology.executors)
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
        play = Play(self, spec, workload, course, watch, online)
        self.agents.listen(play)
        async with play.coordinator:
            yield play

    def kill_agent(self, node: str) -> None:
        """Kill -9."""
        kill(self.agent_processes[node])


def kill(process: ProcessIdentity | None) -> None:
    """Kill -9; who is gone already is not missed, and nobody else is hit."""
    if process is not None and process.is_alive():
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


@asynccontextmanager
async def ground(folder: Path, nodes: Sequence[str] = ("n1", "n2")) -> AsyncIterator[Ground]:
    """Agents on these nodes; whatever happens, none is left."""
    members = {
        node: Member(f"127.0.0.{at + 2}", LoopbackTransport(folder / "nodes" / node)) for at, node in enumerate(nodes)
    }
    processes: dict[str, ProcessIdentity | None] = {}

    def started(node: str, pid: int) -> None:
        processes[node] = identify(pid)

    async with Agents(members, "proofs", started) as agents:
        yield Ground(folder, agents, processes)
