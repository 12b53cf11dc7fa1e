"""A cluster of scripted nodes under the real control: what happens, and when, the test chooses.

Agents here do no more than start and end workers of `scripted`; everything that decides is real: the session of
`controller.coordinator`, and the shares of the workers. Time is that of the event loop, which is virtual.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Set
from functools import partial
from random import Random
from typing import Any

from scripted import CHUNKS, Limits, ScriptedRun
from scripted_disk import Disk

from agents.protocol import (
    Drained,
    Failed,
    Finish,
    Finished,
    Gates,
    Grow,
    Listening,
    Lost,
    Message,
    Place,
    Progress,
    Report,
    RunSpec,
    Start,
    Stopped,
    Vitals,
)
from agents.worker.process.metrics_reporter import MetricsReporter
from agents.worker.task_graph.interfaces import AnswerRows
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.clock_offset import Offset
from controller.coordinator.coordinator import Coordinator
from controller.coordinator.interfaces import Assignment, Environment, SlotRecord
from inventory.errors import RunError
from workloads.operators import Operator
from workloads.rates import NS

PHASES = ("while starting", "while steady", "in a checkpoint", "in a move", "in a recovery", "while draining")
"""When something can be killed."""


class ScriptedNode:
    """A node: its agent, its disk, and the pipes between agent and controller."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.disk = Disk()
        self.up = True
        self.reachable = True
        self.epoch = 0
        self.vitals_s = 0.0
        self.dead: set[Place] = set()
        """Workers that have died in this epoch: their agent leaves their places empty until the next start."""
        self.commands: deque[Message] = deque()
        self.reports: deque[Report] = deque()


class Copies:
    """Second copies in memory; see `controller.coordinator.interfaces.ReplicaStore`."""

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


class _Nowhere:
    """Takes rows of traces, and keeps none."""

    def add(self, *_row: Any) -> None:
        pass


class ScriptedCluster:
    """Nodes, their workers, and the session that controls them.

    Attributes:
        reached: spout executor -> highest position that the session has heard of, in whichever epoch.
    """

    def __init__(
        self,
        spec: RunSpec,
        operator: Callable[[str], Operator],
        limits: Limits,
        course: ControlSettings,
        nodes: Iterable[str],
        place: Callable[[Set[str]], Mapping[str, Place]],
        gates: Callable[[Set[str]], Gates | None] = lambda _lost: None,
    ) -> None:
        self.nodes = {name: ScriptedNode(name) for name in nodes}
        self.run = ScriptedRun(operator, limits)
        self.copies = Copies(self.nodes)
        self.events: list[tuple[str, str, str, float | None]] = []
        self.slots: list[SlotRecord] = []
        self.reached: Counter[str] = Counter()
        self._reporters: dict[Place, MetricsReporter] = {}
        self._halted: set[Place] = set()
        self._place = place
        bolts = [operator(c["id"]) for c in spec.topology["components"] if c["kind"] == "bolt"]

        async def placing(lost: Set[str]) -> Assignment:
            return Assignment(self._place(lost), gates(lost))

        environment = Environment(
            nodes=frozenset(self.nodes),
            send=self._tell,
            restart=self._restart,
            supply=self._supply,
            place=placing,
            offset=lambda node: Offset(0, 0),
            replicas=self.copies,
            note=lambda *event: self.events.append(event),
            note_slot=self.slots.append,
            tables={table.answer_table for bolt in bolts for table in bolt.tables()},
        )
        self.coordinator = Coordinator(spec, environment, course)

    # --- what the control can do ---------------------------------------------------------------------------

    async def _tell(self, node: str, message: Message) -> None:
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

    # --- what agents do ------------------------------------------------------------------------------------

    def command(self, name: str) -> bool:
        """Let an agent act on the next command of the controller."""
        node = self.nodes[name]
        if not node.up or not node.commands:
            return False
        command = node.commands.popleft()
        match command:
            case Start(spec=spec):
                self._end_workers(name)
                node.epoch = spec.epoch
                node.dead.clear()
                self._begin(node, spec, [place for place in spec.workers if place.node == name])
            case Grow(spec=spec, at_ns=at_ns, seen=seen) if spec.epoch == node.epoch:
                there = self.run.workers.keys() | node.dead
                new = [place for place in spec.workers if place.node == name and place not in there]
                self._begin(node, spec, new)
                for place in new:
                    self.run.workers[place].share.connect({})
                    self.run.workers[place].share.linked()
                    self.run.workers[place].share.start(at_ns, seen=seen)
            case Finish(epoch=epoch) if epoch == node.epoch:
                self._end_workers(name)
                node.reports.append(Finished(epoch=epoch))
            case _ if getattr(command, "epoch", None) == node.epoch:
                for place in self._places(name):
                    self.run.command(place, command)
        return True

    def report(self, name: str) -> bool:
        """Let the controller hear one thing from a node."""
        node = self.nodes[name]
        for place in self._places(name):
            worker = self.run.workers[place]
            node.reports.extend(worker.reports)
            worker.reports.clear()
        now = asyncio.get_running_loop().time()
        if node.epoch and now >= node.vitals_s:
            node.vitals_s = now + 1
            node.reports.append(Vitals(epoch=node.epoch))
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

    def progress(self, place: Place) -> bool:
        """Let a worker report how far it is."""
        worker = self.run.workers.get(place)
        if worker is not None:
            worker.reports.append(self._reporters[place].report(self.run.now_ns))
        return worker is not None

    def _begin(self, node: ScriptedNode, spec: RunSpec, places: Iterable[Place]) -> None:
        for place in places:
            share = self.run.add(spec, place, node.disk).share
            self._reporters[place] = MetricsReporter(share, _Nowhere(), place.slot)  # type: ignore[arg-type]
            self._halted.discard(place)
            node.reports.append(Listening(epoch=spec.epoch, slot=place.slot, pid=1, port=1))

    def _places(self, name: str) -> list[Place]:
        return [place for place in self.run.workers if place.node == name]

    def _end_workers(self, name: str) -> None:
        for place in self._places(name):
            self.run.remove(place)

    # --- what goes wrong -----------------------------------------------------------------------------------

    def kill_worker(self, place: Place) -> None:
        """kill -9 of a worker: its agent and its peers will notice."""
        if place not in self.run.workers:
            return
        node = self.nodes[place.node]
        epoch = self.run.workers[place].share.epoch
        self._break_links(place)
        self.run.remove(place)
        node.dead.add(place)
        node.reports.append(Failed(epoch=epoch, slot=place.slot, reason="was killed by SIGKILL", died=True))

    def kill_agent(self, name: str) -> None:
        """kill -9 of an agent, which its workers do not survive."""
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
        """A node and everything stored on it is gone."""
        self.nodes[name].reachable = False
        self.kill_agent(name)
        self.nodes[name].disk.files.clear()

    def return_node(self, name: str) -> None:
        """A node is there again, with an empty disk."""
        self.nodes[name].reachable = True

    def cut_link(self, place: Place, other: Place) -> None:
        """The connection between two workers breaks, and both live on."""
        for here, there in ((place, other), (other, place)):
            self._lose(here, there)

    def _break_links(self, dead: Place) -> None:
        for place in list(self.run.workers):
            if place != dead and self.run.are_linked(place, dead):
                self._lose(place, dead)

    def _lose(self, here: Place, there: Place) -> None:
        worker = self.run.workers.get(here)
        if worker is None or worker.share.drained:
            return
        self._halted.add(here)
        worker.reports.append(Lost(epoch=worker.share.epoch, slot=here.slot, peer=there, reason="closed"))

    @property
    def phase(self) -> str:
        """What the run is doing; one of `PHASES`."""
        shares = [worker.share for worker in self.run.workers.values()]
        pending = [share._pending for share in shares if share._pending is not None]
        if self.coordinator._broken is not None:
            return "in a recovery"
        if self.coordinator._start_ns is None:
            return "while starting"
        if pending:
            return "in a checkpoint" if pending[0].store else "in a move"
        return "while draining" if self.coordinator._stop_requested else "while steady"

    # --- what happens --------------------------------------------------------------------------------------

    def step(self, random: Random, by_ns: int) -> bool:
        """Everything that can happen does so once, in random order; return whether anything came of it."""
        run = self.run
        chunk = random.choice(CHUNKS)
        run.now_ns = max(run.now_ns, round(asyncio.get_running_loop().time() * NS))
        actions: list[Callable[[], bool]] = []
        for place in list(run.workers):
            for action, given in ((run.turn_all, (random,)), (run.age, (by_ns,)), (run.store, ())):
                actions.append(partial(self._guarded, place, action, *given))
        actions += [partial(run.carry, *ends, chunk) for ends in list(run.pipes)]
        if random.random() < 0.1:
            actions += [partial(self.progress, place) for place in run.workers]
        for name in self.nodes:
            actions += [partial(self.command, name), partial(self.report, name)]
        random.shuffle(actions)
        return sum(action() for action in actions) > 0

    def _guarded(self, place: Place, action: Callable[..., bool], *given: object) -> bool:
        """Do it unless the worker has ended meanwhile."""
        return place in self.run.workers and place not in self._halted and action(place, *given)

    def answer(self) -> list[AnswerRows]:
        """The parts of the answer that the session has found in the end."""
        return [part for part in (self.copies.files[part.name] for part in self.coordinator.answer) if part is not None]
