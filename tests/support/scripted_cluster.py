"""Cluster of scripted nodes under a real coordinator; a test chooses what happens, and when.

Agents here only start and end workers of `scripted_run`; the coordinator and the workers' tasks are real. Time is that
of the event loop, which is virtual.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
from functools import partial
from random import Random
from typing import Any

import msgspec
from bare_environment import WITHOUT_CONTROL
from problems import nodes_of
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
from controller.coordinator.interfaces import Assignment, SlotRecord
from controller.coordinator.online_loop import OnlineSettings
from controller.simulation.cluster import SimulatedCluster, differing_clocks
from scheduler.online.replanner import slots_of_added
from scheduler.problem import Problem
from workloads.operators import Operator
from workloads.topology import Topology

_STEADY = ("while steady", "in a checkpoint", "in a copy", "in a move")
PHASES = ("while starting", *_STEADY, "in a recovery", "while draining")
"""Phases in which something can be killed."""


class _Throughput:
    """Trace rows of one slot: time, executor, rows emitted and processed."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, str, int, int]] = []

    def add(self, table: str, t_ns: int, *values: Any) -> None:
        if table == "throughput":
            executor, _, _, emitted, processed, *_ = values
            self.rows.append((t_ns, executor, emitted, processed))


class ScriptedCluster(SimulatedCluster):
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
        self.run = ScriptedRun(operator, limits)
        self.run.clock_ns = lambda place: self.nodes[place.node].clock.read(self.run.now_ns)
        self.slots: list[SlotRecord] = []
        self.reached: Counter[str] = Counter()
        self._reporters: dict[Slot, MetricsReporter] = {}
        self._traces: defaultdict[Slot, _Throughput] = defaultdict(_Throughput)
        self._halted: set[Slot] = set()
        self._dead: set[Slot] = set()  # their agents do not replace them until the next start
        self._vitals_s: Counter[str] = Counter()
        bolts = [operator(c["id"]) for c in spec.topology["components"] if c["kind"] == "bolt"]

        async def place_lost(lost: Set[str], places: Mapping[str, Slot], _traffic: object) -> Assignment:
            return Assignment(place(lost, places), gates(lost))

        topology = msgspec.convert(spec.topology, Topology)
        clocks = differing_clocks(nodes)
        environment = {
            **WITHOUT_CONTROL,
            "place": place_lost,
            "note_slot": self.slots.append,
            "enlarge": partial(slots_of_added, Problem(nodes_of(**dict.fromkeys(clocks, 2)), (topology,))),
            "tables": {table.answer_table for bolt in bolts for table in bolt.tables()},
        }
        super().__init__(spec, settings, clocks, None, environment, online)

    def end_agent(self, node: str) -> None:
        self._end_workers(node)
        super().end_agent(node)

    # --- agents --------------------------------------------------------------------------------------------

    def handle(self, node: str, message: Message) -> None:
        epoch = self.nodes[node].epoch
        match message:
            case Start(spec=spec):
                self._end_workers(node)
                self.nodes[node].epoch = spec.epoch
                self._dead -= {slot for slot in self._dead if slot.node == node}
                self._start_workers(node, spec, [slot for slot in spec.workers if slot.node == node])
            case Grow(spec=spec, at_ns=at_ns, seen=seen, first_slot=first) if spec.epoch == epoch:
                there = self.run.workers.keys() | self._dead
                new = [slot for slot in spec.workers if slot.node == node and slot not in there]
                self._start_workers(node, spec, new)
                for slot in new:
                    self.run.workers[slot].tasks.connect({})
                    self.run.workers[slot].tasks.linked()
                    self.run.workers[slot].tasks.start(at_ns, seen=seen)
                    if spec.gates is not None:
                        self.run.workers[slot].tasks.follow(spec.gates, first)
            case Finish(epoch=of) if of == epoch:
                self._end_workers(node)
                self.nodes[node].reports.put(Finished(epoch=epoch))
            case Kill(epoch=of, slot=index) if of == epoch:
                self.kill_worker(Slot(node, index))
            case _ if getattr(message, "epoch", None) == epoch:
                for slot in self._places(node):
                    self.run.command(slot, message)

    def report(self, name: str) -> bool:
        """Deliver one report of a node to the controller."""
        node = self.nodes[name]
        for place in self._places(name):
            worker = self.run.workers[place]
            for report in worker.reports:
                node.reports.put(report)
            worker.reports.clear()
        now_s = asyncio.get_running_loop().time()
        if node.epoch and now_s >= self._vitals_s[name]:
            self._vitals_s[name] = now_s + 1
            workers = {place.index: 0.1 for place in self._places(name)}
            at_ns = node.clock.read(self.now_ns)
            node.reports.put(Vitals(epoch=node.epoch, cores=0.5, workers=workers, at_ns=at_ns))
        return node.reports.deliver()

    def _receive(self, node: str, report: Report) -> None:
        self._note_positions(report)
        super()._receive(node, report)

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
            worker.reports.append(self._reporters[place].report(self.nodes[place.node].clock.read(self.now_ns)))
        return worker is not None

    def _report_progress_before(self, place: Slot, message: Message) -> None:
        """Let a worker report its last rows before it reports completion, as real workers do."""
        if isinstance(message, Passed | Stopped | Drained):
            self.progress(place)

    def _start_workers(self, node: str, spec: RunSpec, places: Iterable[Slot]) -> None:
        for place in places:
            tasks = self.run.add(spec, place, self.nodes[node].files, self._report_progress_before).tasks
            traces: Any = self._traces[place]
            self._reporters[place] = MetricsReporter(tasks, traces, place.index)
            self._halted.discard(place)
            self.nodes[node].reports.put(Listening(epoch=spec.epoch, slot=place.index, pid=1, port=1))

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
        epoch = self.run.workers[place].tasks.epoch
        self._break_links(place)
        self.run.remove(place)
        self._dead.add(place)
        failed = Failed(epoch=epoch, slot=place.index, reason="was killed by SIGKILL", died=True)
        self.nodes[place.node].reports.put(failed)

    def kill_agent(self, node: str) -> None:
        for place in self._places(node):
            self._break_links(place)
        super().kill_agent(node)

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
        run.now_ns = max(run.now_ns, self.now_ns)
        actions: list[Callable[[], bool]] = []
        for place in list(run.workers):
            for action, given in ((run.turn_all, (random,)), (run.age, (by_ns,)), (run.store, ())):
                actions.append(partial(self._guarded, place, action, *given))
        actions += [partial(run.transfer, *ends, chunk) for ends in list(run.pipes)]
        if random.random() < reports:
            actions += [partial(self.progress, place) for place in run.workers]
        for name in self.nodes:
            actions += [self.nodes[name].commands.deliver, partial(self.report, name)]
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
