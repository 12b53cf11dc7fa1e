"""Cluster of scripted nodes under a real coordinator; a test chooses what happens, and when.

Agents here only start and end workers of `scripted_run`; the coordinator and the workers' tasks are real. Time is that
of the event loop, which is virtual.
"""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Set
from functools import partial
from random import Random
from typing import Any

import msgspec
from bare_environment import bare_environment
from problems import nodes_of
from scripted_disk import Disk
from scripted_run import CHUNKS, Limits, ScriptedRun

from agents.protocol import (
    Drained,
    Failed,
    Finish,
    Finished,
    Gates,
    Grow,
    Kill,
    Listening,
    Lost,
    Message,
    Passed,
    Progress,
    Report,
    RunSpec,
    Slot,
    Start,
    Stopped,
    Vitals,
)
from agents.worker.process.metrics_reporter import MetricsReporter
from agents.worker.task_graph.interfaces import AnswerRows
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.coordinator import Coordinator
from controller.coordinator.interfaces import Assignment, Offset, SlotRecord
from controller.coordinator.online_loop import OnlineSettings
from inventory.errors import RunError
from inventory.times import NS
from scheduler.online.replanner import slots_of_added
from scheduler.problem import Problem
from workloads.operators import Operator
from workloads.topology import Topology

_STEADY = ("while steady", "in a checkpoint", "in a copy", "in a move")
PHASES = ("while starting", *_STEADY, "in a recovery", "while draining")
"""Phases in which something can be killed."""


DAY_NS = 86_400 * NS
DRIFTS = (20e-6, -35e-6, 50e-6)  # of clocks of nodes, in seconds per second


class ScriptedNode:
    """A node: its agent, its disk, and the queues between agent and controller."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.disk = Disk()
        self.up = True
        self.reachable = True
        self.epoch = 0
        self.vitals_s = 0.0
        self.dead: set[Slot] = set()
        """Workers that died in this epoch; the agent does not replace them until the next start."""
        self.commands: deque[Message] = deque()
        self.reports: deque[Report] = deque()


class Replicas:
    """Replicas in memory; see `controller.coordinator.interfaces.ReplicaStore`."""

    def __init__(self, nodes: Mapping[str, ScriptedNode]) -> None:
        self._nodes = nodes
        self.files: dict[str, object] = {}

    async def replicate(self, node: str, file: str, name: str) -> None:
        await asyncio.sleep(0)
        if not self._nodes[node].up or file not in self._nodes[node].disk.files:
            raise RunError(f"{file} of {node} cannot be read")
        self.files[name] = self._nodes[node].disk.files[file]

    async def restore(self, name: str, node: str, file: str) -> None:
        await asyncio.sleep(0)
        if not self._nodes[node].reachable:
            raise RunError(f"{node} cannot be reached")
        self._nodes[node].disk.files[file] = self.files[name]

    async def drop(self, folder: str) -> None:
        for name in [name for name in self.files if name.startswith(f"{folder}/")]:
            del self.files[name]


class _Throughput:
    """Trace rows of one slot: time, executor, rows emitted and processed."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, str, int, int]] = []

    def add(self, table: str, t_ns: int, *values: Any) -> None:
        if table == "throughput":
            executor, _, _, emitted, processed, *_ = values
            self.rows.append((t_ns, executor, emitted, processed))


class ScriptedCluster:
    """Nodes, their workers, and the coordinator that controls them.

    Attributes:
        reached: spout executor -> highest position reported to the coordinator, in any epoch.
    """

    def __init__(
        self,
        spec: RunSpec,
        operator: Callable[[str], Operator],
        limits: Limits,
        settings: ControlSettings,
        nodes: Iterable[str],
        place: Callable[[Set[str], Mapping[str, Slot]], Mapping[str, Slot]],
        gates: Callable[[Set[str]], Gates | None] = lambda _lost: None,
        online: OnlineSettings | None = None,
    ) -> None:
        self.nodes = {name: ScriptedNode(name) for name in nodes}
        self.run = ScriptedRun(operator, limits)
        self.run.clock_ns = lambda place: self.run.now_ns + self._ahead_ns(place.node)
        self.replicas = Replicas(self.nodes)
        self.events: list[tuple[str, str, str, float | None]] = []
        self.slots: list[SlotRecord] = []
        self.reached: Counter[str] = Counter()
        self._reporters: dict[Slot, MetricsReporter] = {}
        self._traces: defaultdict[Slot, _Throughput] = defaultdict(_Throughput)
        self._halted: set[Slot] = set()
        self._place = place
        bolts = [operator(c["id"]) for c in spec.topology["components"] if c["kind"] == "bolt"]

        async def place_lost(lost: Set[str], places: Mapping[str, Slot], _traffic: object) -> Assignment:
            return Assignment(self._place(lost, places), gates(lost))

        topology = msgspec.convert(spec.topology, Topology)
        environment = bare_environment(
            nodes=frozenset(self.nodes),
            send=self._send,
            restart=self._restart,
            supply=self._supply,
            place=place_lost,
            offset=lambda node: Offset(self._ahead_ns(node), 0),
            replicas=self.replicas,
            note=lambda *event: self.events.append(event),
            note_slot=self.slots.append,
            enlarge=partial(slots_of_added, Problem(nodes_of(**dict.fromkeys(self.nodes, 2)), (topology,))),
            tables={table.answer_table for bolt in bolts for table in bolt.tables()},
        )
        self.coordinator = Coordinator(spec, environment, settings, online)

    # --- environment of the coordinator --------------------------------------------------------------------

    def _ahead_ns(self, node: str) -> int:
        """Return the lead of a node's clock over the controller's: days, which differ, and a drift."""
        at = [*self.nodes].index(node)
        return (1 + 3 * at) * DAY_NS + round(DRIFTS[at % len(DRIFTS)] * self.run.now_ns)

    async def _send(self, node: str, message: Message) -> None:
        if not self.nodes[node].up:
            raise RunError(f"the agent of {node} is gone")
        self.nodes[node].commands.append(message)

    async def _restart(self, name: str) -> None:
        node = self.nodes[name]
        await asyncio.sleep(0.1)
        if not node.reachable:
            raise RunError(f"{name} cannot be reached")
        self._end_workers(name)
        node.commands.clear()
        node.reports.clear()
        node.up, node.epoch = True, 0

    async def _supply(self, name: str) -> None:
        if not self.nodes[name].reachable:
            raise RunError(f"{name} cannot be reached")

    # --- agents --------------------------------------------------------------------------------------------

    def command(self, name: str) -> bool:
        """Let an agent handle the next command of the controller."""
        node = self.nodes[name]
        if not node.up or not node.commands:
            return False
        command = node.commands.popleft()
        match command:
            case Start(spec=spec):
                self._end_workers(name)
                node.epoch = spec.epoch
                node.dead.clear()
                self._start_workers(node, spec, [place for place in spec.workers if place.node == name])
            case Grow(spec=spec, at_ns=at_ns, seen=seen, first_slot=first) if spec.epoch == node.epoch:
                there = self.run.workers.keys() | node.dead
                new = [place for place in spec.workers if place.node == name and place not in there]
                self._start_workers(node, spec, new)
                for place in new:
                    self.run.workers[place].tasks.connect({})
                    self.run.workers[place].tasks.linked()
                    self.run.workers[place].tasks.start(at_ns, seen=seen)
                    if spec.gates is not None:
                        self.run.workers[place].tasks.follow(spec.gates, first)
            case Finish(epoch=epoch) if epoch == node.epoch:
                self._end_workers(name)
                node.reports.append(Finished(epoch=epoch))
            case Kill(epoch=epoch, slot=slot) if epoch == node.epoch:
                self.kill_worker(Slot(name, slot))
            case _ if getattr(command, "epoch", None) == node.epoch:
                for place in self._places(name):
                    self.run.command(place, command)
        return True

    def report(self, name: str) -> bool:
        """Deliver one report of a node to the controller."""
        node = self.nodes[name]
        for place in self._places(name):
            worker = self.run.workers[place]
            node.reports.extend(worker.reports)
            worker.reports.clear()
        now = asyncio.get_running_loop().time()
        if node.epoch and now >= node.vitals_s:
            node.vitals_s = now + 1
            workers = {place.index: 0.1 for place in self._places(name)}
            node.reports.append(
                Vitals(epoch=node.epoch, cores=0.5, workers=workers, at_ns=round(now * NS) + self._ahead_ns(name))
            )
        if not node.up or not node.reports:
            return False
        report = node.reports.popleft()
        self._note_positions(report)
        self.coordinator.handle_report(name, report)
        return True

    def _note_positions(self, report: Report) -> None:
        match report:
            case Progress(executors=executors):
                found = {name: work.position for name, work in executors.items() if work.position is not None}
            case Stopped(positions=positions) | Drained(positions=positions):
                found = dict(positions)
            case _:
                found = {}
        self.reached |= Counter(found)

    def progress(self, place: Slot) -> bool:
        """Let a worker report its progress."""
        worker = self.run.workers.get(place)
        if worker is not None:
            now_ns = round(asyncio.get_running_loop().time() * NS)
            worker.reports.append(self._reporters[place].report(now_ns + self._ahead_ns(place.node)))
        return worker is not None

    def _report_progress_before(self, place: Slot, message: Message) -> None:
        """Let a worker report its last rows before it reports completion, as real workers do."""
        if isinstance(message, Passed | Stopped | Drained):
            self.progress(place)

    def _start_workers(self, node: ScriptedNode, spec: RunSpec, places: Iterable[Slot]) -> None:
        for place in places:
            tasks = self.run.add(spec, place, node.disk, self._report_progress_before).tasks
            traces: Any = self._traces[place]
            self._reporters[place] = MetricsReporter(tasks, traces, place.index)
            self._halted.discard(place)
            node.reports.append(Listening(epoch=spec.epoch, slot=place.index, pid=1, port=1))

    def _places(self, name: str) -> list[Slot]:
        return [place for place in self.run.workers if place.node == name]

    def _end_workers(self, name: str) -> None:
        for place in self._places(name):
            self.run.remove(place)

    # --- faults --------------------------------------------------------------------------------------------

    def kill_worker(self, place: Slot) -> None:
        """Kill a worker; its agent and its peers report it."""
        if place not in self.run.workers:
            return
        node = self.nodes[place.node]
        epoch = self.run.workers[place].tasks.epoch
        self._break_links(place)
        self.run.remove(place)
        node.dead.add(place)
        node.reports.append(Failed(epoch=epoch, slot=place.index, reason="was killed by SIGKILL", died=True))

    def kill_agent(self, name: str) -> None:
        """Kill an agent, and with it its workers."""
        node = self.nodes[name]
        if not node.up:
            return
        for place in self._places(name):
            self._break_links(place)
        self._end_workers(name)
        node.up = False
        node.commands.clear()
        node.reports.clear()
        self.coordinator.handle_agent_gone(name, "its agent was killed by SIGKILL")

    def lose_node(self, name: str) -> None:
        """Lose a node and everything stored on it."""
        self.nodes[name].reachable = False
        self.kill_agent(name)
        self.nodes[name].disk.files.clear()

    def return_node(self, name: str) -> None:
        """Bring a node back, with an empty disk."""
        self.nodes[name].reachable = True

    def cut_link(self, place: Slot, other: Slot) -> None:
        """Break the connection between two workers, which keep running."""
        for here, there in ((place, other), (other, place)):
            self._report_lost_link(here, there)

    def _break_links(self, dead: Slot) -> None:
        for place in list(self.run.workers):
            if place != dead and self.run.are_linked(place, dead):
                self._report_lost_link(place, dead)

    def _report_lost_link(self, here: Slot, there: Slot) -> None:
        worker = self.run.workers.get(here)
        if worker is None or worker.tasks.drained:
            return
        self._halted.add(here)
        worker.reports.append(Lost(epoch=worker.tasks.epoch, slot=here.index, peer=there, reason="closed"))

    @property
    def restarts(self) -> bool:
        """Whether sources halt for a restart, or the topology restarts."""
        return self.coordinator._restart is not None or any(spout._halted for spout in self.run.spouts)

    @property
    def phase(self) -> str:
        """Current phase of the run; one of `PHASES`."""
        shares = [worker.tasks for worker in self.run.workers.values()]
        pending = [tasks._pending for tasks in shares if tasks._pending is not None]
        if self.coordinator._broken is not None:
            return "in a recovery"
        if self.coordinator._start_ns is None:
            return "while starting"
        if pending:
            if any(
                len(tasks._pending.plan.executors) != len(tasks.plan.executors) for tasks in shares if tasks._pending
            ):
                return "in a scaling"
            return "in a checkpoint" if pending[0].store else "in a move"
        if any(tasks._transfer.is_arriving for tasks in shares):
            return "in a copy"
        return "while draining" if self.coordinator._stop_ns is not None else "while steady"

    # --- steps ---------------------------------------------------------------------------------------------

    def step(self, random: Random, by_ns: int, reports: float = 0.1) -> bool:
        """Perform every possible action once, in random order; return whether one had an effect.

        All workers report their progress with the probability `reports`.
        """
        run = self.run
        chunk = random.choice(CHUNKS)
        run.now_ns = max(run.now_ns, round(asyncio.get_running_loop().time() * NS))
        actions: list[Callable[[], bool]] = []
        for place in list(run.workers):
            for action, given in ((run.turn_all, (random,)), (run.age, (by_ns,)), (run.store, ())):
                actions.append(partial(self._guarded, place, action, *given))
        actions += [partial(run.transfer, *ends, chunk) for ends in list(run.pipes)]
        if random.random() < reports:
            actions += [partial(self.progress, place) for place in run.workers]
        for name in self.nodes:
            actions += [partial(self.command, name), partial(self.report, name)]
        random.shuffle(actions)
        return sum(action() for action in actions) > 0

    def _guarded(self, place: Slot, action: Callable[..., bool], *given: object) -> bool:
        """Perform an action unless the worker has ended meanwhile."""
        return place in self.run.workers and place not in self._halted and action(place, *given)

    def answer(self) -> list[AnswerRows]:
        """Return the parts of the answer that the coordinator has at the end."""
        return [
            part for part in (self.replicas.files[part.name] for part in self.coordinator.answer) if part is not None
        ]

    def traced(self) -> tuple[Counter[str], Counter[str]]:
        """Return rows that executors emitted and processed according to their traces, by name, without replays."""
        emitted, processed = Counter[str](), Counter[str]()
        lost = self.coordinator.unreported
        for place, traces in self._traces.items():
            for t_ns, executor, rows_out, rows_in in traces.rows:
                if not any(
                    (node, at) == (place.node, place.index) and since < t_ns <= until for node, at, since, until in lost
                ):
                    emitted[executor] += rows_out
                    processed[executor] += rows_in
        return emitted, processed
