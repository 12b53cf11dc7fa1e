"""Nodes that keep the control protocol and do no work, and that a test breaks as it wants to.

Each message is written down and obeyed, one after the other, `LAG_S` after it was sent."""

import asyncio
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import Any

from msgspec.structs import replace

from agents.protocol import (
    Abandon,
    Connect,
    Connected,
    Cut,
    Drained,
    ExecutorSpec,
    Failed,
    Finish,
    Finished,
    Go,
    Grow,
    Listening,
    Lost,
    Message,
    Move,
    Moved,
    Passed,
    Precopied,
    Precopy,
    Prepare,
    Ready,
    RunSpec,
    Slot,
    Start,
    Stop,
    Stopped,
    Stored,
    Vitals,
    sources,
    workers_of,
)
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.coordinator import Coordinator
from controller.coordinator.epoch_workers import name_of
from controller.coordinator.interfaces import Assignment, Environment, Offset
from inventory.errors import RunError

LAG_S, NODES = 0.01, ("n1", "n2", "n3")
AHEAD_NS = {"n1": 0, "n2": 5_000_000_000, "n3": -3_000_000_000}
"""What nodes' clocks show more than the controller's."""

PAUSE_NS, PREDICTED_NS = 7_000_000, 5_000_000
PLACES = {"src[0]": Slot("n1", 0), "mid[0]": Slot("n1", 1), "sink[0]": Slot("n2", 0)}
MID = PLACES["mid[0]"]


def spec_of(places: Mapping[str, Slot]) -> RunSpec:
    """A run with these executors, in order; those called `src` are spouts."""
    executors = tuple(ExecutorSpec(name[:-3], int(name[-2]), place) for name, place in places.items())
    components = [{"id": e.component, "kind": "spout" if e.component == "src" else "bolt"} for e in executors]
    return RunSpec(
        run="r",
        epoch=1,
        workload="w",
        params={},
        topology={"components": components},
        executors=executors,
        workers=workers_of(executors),
        addresses={},
        key="",
        rate={},
        seed=0,
    )


class Memory:
    """Copies in memory, of disks in memory."""

    def __init__(self, disks: Mapping[str, dict[str, str]]) -> None:
        self._disks = disks
        self.files: dict[str, str] = {}

    async def replicate(self, node: str, file: str, name: str) -> None:
        await asyncio.sleep(LAG_S)
        if file not in self._disks[node]:
            raise RunError(f"{node} has no {file}")
        self.files[name] = self._disks[node][file]

    async def restore(self, name: str, node: str, file: str) -> None:
        await asyncio.sleep(LAG_S)
        self._disks[node][file] = self.files[name]

    async def drop(self, folder: str) -> None:
        self.files = {name: what for name, what in self.files.items() if not name.startswith(f"{folder}/")}


class Obedient:
    """All nodes of a run, and the coordinator that controls them.

    Attributes:
        said: (node, message) of everything that an agent got, in order.
        events: what the coordinator noted, by kind.
        mute: types of messages that are not answered.
        refuses: why workers refuse barriers; empty: they do not.
        cut: whether no worker can be linked to another one.
        dead: nodes that cannot be reached.
        hollow: nodes whose agents answer heartbeats and report nothing, until they are started again.
        wrong: ways in which the controller broke the protocol.
        position, records: of all sources, and what workers report of them when a barrier is prepared.
        deaf_to_positions: whether sources end at `position` even where a stop names a higher one.
    """

    def __init__(self, course: ControlSettings, places: Mapping[str, Slot] = PLACES) -> None:
        self.said: list[tuple[str, Any]] = []
        self.events: list[tuple[str, str, str, float | None]] = []
        self.mute: set[type] = set()
        self.refuses, self.restart_s = "", LAG_S
        self.cut = False
        self.dead: set[str] = set()
        self.hollow: set[str] = set()
        self.wrong: list[str] = []
        self.position = 100
        self.records: int | None = 0
        self.deaf_to_positions = False
        self.disks: dict[str, dict[str, str]] = {node: {} for node in NODES}
        self.copies = Memory(self.disks)
        self._epochs = dict.fromkeys(NODES, 0)
        self._specs: dict[str, RunSpec] = {}
        self._lives = dict.fromkeys(NODES, 0)
        self._barrier: Prepare | None = None
        self._asked: set[str] = set()
        environment = Environment(
            nodes=NODES,
            send=self._tell,
            restart=self._restart,
            supply=self._supply,
            place=self._place,
            offset=lambda node: Offset(AHEAD_NS[node], 0),
            replicas=self.copies,
            note=lambda *event: self.events.append(event),
            drain=self._moves_off,
            enlarge=self._slots_of_added,
            tables=("counts",),
        )
        self.coordinator = Coordinator(spec_of(places), environment, course)

    # --- for tests -----------------------------------------------------------------------------------------------

    def got(self, kind: type, node: str | None = None) -> list[Any]:
        """Messages of a type, to one node or to all, in order."""
        return [message for to, message in self.said if isinstance(message, kind) and node in (None, to)]

    def noted(self, kind: str) -> list[tuple[str, str, float | None]]:
        """Subject, detail and value of events of a kind."""
        return [tuple(rest) for found, *rest in self.events if found == kind]  # type: ignore[misc]

    @property
    def epoch(self) -> int:
        """The last that was started."""
        return max(self._epochs.values())

    def places(self, node: str) -> list[Slot]:
        """The workers of a node."""
        return [place for place in self._specs[node].workers if place.node == node]

    def kill_worker(self, place: Slot, epoch: int | None = None) -> None:
        """A worker dies, and its peers notice first."""
        epoch = self.epoch if epoch is None else epoch
        for peer in PLACES.values():
            if peer != place:
                self.coordinator.handle_report(
                    peer.node, Lost(epoch=epoch, slot=peer.index, peer=place, reason="reset")
                )
        self.coordinator.handle_report(
            place.node, Failed(epoch=epoch, slot=place.index, reason="was killed", died=True)
        )

    def kill_agent(self, node: str) -> None:
        """An agent dies, with its workers."""
        self._lives[node] += 1
        self.coordinator.handle_agent_gone(node, f"the agent of {node} was killed")

    def lose(self, node: str) -> None:
        """A node is switched off, and forgets everything."""
        self.dead.add(node)
        self.disks[node].clear()
        self.kill_agent(node)

    # --- what the coordinator can do ---------------------------------------------------------------------------------

    async def _tell(self, node: str, message: Message) -> None:
        if node in self.dead:
            raise RunError(f"the agent of {node} is gone")
        self.said.append((node, message))
        life = self._lives[node]
        await asyncio.sleep(0)
        self._later(lambda: self._obey(node, message) if life == self._lives[node] else None)

    async def _restart(self, node: str) -> None:
        await asyncio.sleep(self.restart_s)
        if node in self.dead:
            raise RunError(f"{node} does not answer")
        self._lives[node] += 1
        self._epochs[node] = 0
        self.hollow.discard(node)

    async def _supply(self, node: str) -> None:
        await asyncio.sleep(LAG_S)

    async def _place(self, lost: Set[str], places: Mapping[str, Slot], _traffic: object) -> Assignment:
        await asyncio.sleep(LAG_S)
        left = [node for node in NODES if node not in lost]
        if len(left) < 2:
            raise RunError("two nodes are needed")
        return Assignment({name: Slot(left[at % 2], 0) for at, name in enumerate(places)})

    @staticmethod
    def _moves_off(places: Mapping[str, Slot], away: Set[str]) -> list[Move]:
        left = [node for node in NODES if node not in away]
        return [Move(name, Slot(left[0], 2)) for name, at in places.items() if left and at.node in away]

    @staticmethod
    def _slots_of_added(places: Mapping[str, Slot], away: Set[str], sizes: Mapping[str, int]) -> Mapping[str, Slot]:
        left = [node for node in NODES if node not in away]
        names = [f"{component}[{index}]" for component, size in sizes.items() for index in range(size)]
        return {name: Slot(left[0], 3) for name in names if name not in places}

    # --- what nodes do -------------------------------------------------------------------------------------------

    def _obey(self, node: str, message: Any) -> None:
        epoch = message.epoch
        if isinstance(message, Start):
            if epoch <= self._epochs[node]:
                self.wrong.append(f"{node}: Start of epoch {epoch} after {self._epochs[node]}")
            self._begin(node, message)
        elif epoch > self._epochs[node]:
            self.wrong.append(f"{node}: {message} before Start")
        elif epoch == self._epochs[node] and type(message) not in self.mute:
            self._answer(node, message)

    def _begin(self, node: str, start: Start) -> None:
        self._epochs[node], self._specs[node] = start.epoch, start.spec
        self._barrier, self._asked = None, set()
        for executor in start.spec.executors if start.spec.restore else ():
            for source in sources(name_of(executor), start.spec.stored):
                file = f"r/checkpoints/{start.spec.restore}/{source}"
                if executor.place.node == node and self.disks[node].get(file) != f"{start.spec.restore}":
                    self.wrong.append(f"{node}: {file} is missing")
        if Start not in self.mute:
            self._listen(node, self.places(node))
        self._live(node, self._lives[node], start.epoch)

    def _live(self, node: str, life: int, epoch: int) -> None:
        """Say every second that the agent is there."""
        if (life, epoch) == (self._lives[node], self._epochs[node]):
            if Vitals not in self.mute:
                self._say(node, Vitals(epoch=epoch))
            asyncio.get_running_loop().call_later(1, self._live, node, life, epoch)

    def _listen(self, node: str, places: Sequence[Slot]) -> None:
        for place in places:
            self._say(node, Listening(epoch=self._epochs[node], slot=place.index, pid=1, port=1000 + place.index))

    def _answer(self, node: str, message: Any) -> None:
        if isinstance(message, Grow):
            new = [place for place in message.spec.workers if place.node == node and place not in self.places(node)]
            self._specs[node] = message.spec
            self._listen(node, new)
        elif isinstance(message, Finish):
            self._say(node, Finished(epoch=message.epoch))
        elif isinstance(message, Precopy):
            behind = [Move(name_of(e), e.place) for e in getattr(message.scaled, "executors", ())]
            copied = partial(Precopied, epoch=message.epoch, barrier=message.barrier, predicted_ns=PREDICTED_NS)
            for move in (*message.moves, *behind):
                if move.to.node == node:
                    self._say(node, copied(slot=move.to.index, executor=move.executor))
        elif isinstance(message, Prepare):
            self._check_turn(message)
            for place in self.places(node):
                ready = Ready(epoch=message.epoch, slot=place.index, barrier=message.barrier, refused=self.refuses)
                self._say(node, replace(ready, records=self.records))
        elif isinstance(message, Cut):
            self._pass(node, message)
        elif isinstance(message, Abandon):
            self._barrier = None
        else:
            for place in self.places(node):
                self._answer_for(place, message)

    def _check_turn(self, prepare: Prepare) -> None:
        """One barrier at a time, with rising numbers."""
        if self._barrier is None or self._barrier.barrier < prepare.barrier:
            if self._barrier is not None and not {p.node for p in self._barrier.workers} <= self._asked:
                self.wrong.append(f"{prepare} while {self._barrier} is under way")
            self._barrier, self._asked = prepare, set()
        elif self._barrier != prepare:
            self.wrong.append(f"{prepare} after {self._barrier}")

    def _pass(self, node: str, cut: Cut) -> None:
        prepare, epoch = self._barrier, cut.epoch
        if prepare is None or prepare.barrier != cut.barrier:
            self.wrong.append(f"{cut} without Prepare")
            return
        self._asked.add(node)
        spec = self._specs[node]
        moving = {move.executor: move.to for move in prepare.moves}
        before = {name_of(e): e.place for e in spec.executors}
        after = before | moving
        executors = tuple(ExecutorSpec(e.component, e.index, after[name_of(e)]) for e in spec.executors)
        behind = prepare.scaled or replace(spec, executors=executors, workers=prepare.workers or spec.workers)
        known = dict(zip(spec.numbered, spec.executors, strict=True))
        moving |= {
            name_of(e): e.place
            for number, e in zip(behind.numbered, behind.executors, strict=True)
            if number not in known or known[number].place != e.place
        }
        for name, place in (before if prepare.scaled else after).items():
            if place.node == node and prepare.store:
                self._store(name, place, cut)
        for name, place in moving.items():
            if place.node == node:
                source = name if name in before else f"{name.partition('[')[0]}[0]"
                now = round(asyncio.get_running_loop().time() * 1e9)
                self._say(
                    node,
                    Moved(
                        epoch=epoch,
                        slot=place.index,
                        barrier=cut.barrier,
                        executor=name,
                        state_bytes=10,
                        buffered=3,
                        source=source,
                        cut_ns=now + AHEAD_NS[before[source].node],
                        live_ns=now + PAUSE_NS + AHEAD_NS[node],
                        cpu_ns=1_000_000,
                    ),
                )
        self._specs[node] = behind
        for place in self.places(node):
            self._say(node, Passed(epoch=epoch, slot=place.index, barrier=cut.barrier))

    def _store(self, name: str, place: Slot, cut: Cut) -> None:
        file = f"r/checkpoints/{cut.barrier}/{name}"
        self.disks[place.node][file] = f"{cut.barrier}"
        answers: dict[str, tuple[str, ...]] = {}
        if name.startswith("sink"):
            part = f"r/answer/{name}-{cut.epoch}-{cut.barrier}"
            self.disks[place.node][part] = f"settled at {cut.barrier}"
            answers = {"counts": (part,)}
        stored = Stored(
            epoch=cut.epoch,
            slot=place.index,
            barrier=cut.barrier,
            executor=name,
            file=file,
            nbytes=10,
            position=self.position if name.startswith("src") else None,
            answers=answers,
        )
        self._say(place.node, stored)

    def _answer_for(self, place: Slot, message: Any) -> None:
        spec = self._specs[place.node]
        here = [name_of(executor) for executor in spec.executors if executor.place == place]
        sources = [name for name in here if name.startswith("src")]
        if isinstance(message, Connect):
            missing = {f"{worker.node}/{worker.index}" for worker in spec.workers} - message.ports.keys()
            if missing:
                self.wrong.append(f"Connect without the ports of {missing}")
            if self.cut:
                self._say(place.node, Lost(epoch=message.epoch, slot=place.index, peer=MID, reason="refused"))
            else:
                self._say(place.node, Connected(epoch=message.epoch, slot=place.index))
        elif isinstance(message, Stop) or (isinstance(message, Go) and spec.until):
            reached = message.positions if isinstance(message, Stop) and not self.deaf_to_positions else {}
            positions = {name: spec.until.get(name, max(self.position, reached.get(name, 0))) for name in sources}
            self._say(place.node, Stopped(epoch=message.epoch, slot=place.index, positions=positions))
            if Drained not in self.mute:
                self._drain(place, here, positions)

    def _drain(self, place: Slot, here: Sequence[str], positions: Mapping[str, int]) -> None:
        epoch = self._epochs[place.node]
        answers: dict[str, tuple[str, ...]] = {}
        for name in here:
            if name.startswith("sink"):
                file = f"r/answer/{name}-{epoch}-last"
                self.disks[place.node][file] = f"last of epoch {epoch}"
                answers = {"counts": (file,)}
        self._say(place.node, Drained(epoch=epoch, slot=place.index, positions=positions, answers=answers))

    def _say(self, node: str, report: Any) -> None:
        life = self._lives[node]
        if node not in self.hollow:
            self._later(lambda: self.coordinator.handle_report(node, report) if life == self._lives[node] else None)

    def _later(self, step: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(LAG_S, step)
