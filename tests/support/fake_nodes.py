"""Fake nodes that speak the control protocol and do no work; they handle a message `LAG_S` after it was sent."""

import asyncio
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import Any

from bare_environment import bare_environment
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
    Grow,
    Listening,
    Lost,
    Message,
    Moved,
    MoveToPlace,
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
    snapshot_sources,
    workers_of,
)
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.coordinator import Coordinator
from controller.coordinator.epoch_workers import executor_name
from controller.coordinator.interfaces import Assignment, Offset
from inventory.errors import RunError

LAG_S, NODES = 0.01, ("n1", "n2", "n3")
CLOCK_OFFSET_NS = {"n1": 0, "n2": 5_000_000_000, "n3": -3_000_000_000}
"""Offsets of the nodes' clocks from the controller's."""

PAUSE_NS, PREDICTED_NS = 7_000_000, 5_000_000
PLACES = {"src[0]": Slot("n1", 0), "mid[0]": Slot("n1", 1), "sink[0]": Slot("n2", 0)}
MID = PLACES["mid[0]"]


def spec_of(places: Mapping[str, Slot]) -> RunSpec:
    """Return a run with these executors, in order; executors of `src` are spouts."""
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


class ReplicasInMemory:
    """Replica store in memory, of disks in memory."""

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


class FakeNodes:
    """All nodes of a run, and the coordinator that controls them.

    Attributes:
        sent: (node, message) of all messages to agents, in order.
        events: events of the coordinator.
        unanswered: types of messages that get no answer.
        refusal: reason why workers refuse barriers; empty: they accept.
        links_refused: whether links between workers fail.
        unreachable: nodes that cannot be reached.
        silent: nodes whose agents answer heartbeats and report nothing, until they are restarted.
        violations: violations of the protocol by the controller.
        position, records: position of all sources, and the `records` of `Ready`.
        ignores_positions: whether sources end at `position` even if `Stop` names a higher one.
    """

    def __init__(self, settings: ControlSettings, places: Mapping[str, Slot] = PLACES) -> None:
        self.sent: list[tuple[str, Any]] = []
        self.events: list[tuple[str, str, str, float | None]] = []
        self.unanswered: set[type] = set()
        self.refusal, self.restart_s, self.links_refused = "", LAG_S, False
        self.unreachable: set[str] = set()
        self.silent: set[str] = set()
        self.violations: list[str] = []
        self.records: int | None = 0
        self.position, self.ignores_positions = 100, False
        self.disks: dict[str, dict[str, str]] = {node: {} for node in NODES}
        self.replicas = ReplicasInMemory(self.disks)
        self._epochs = dict.fromkeys(NODES, 0)
        self._specs: dict[str, RunSpec] = {}
        self._incarnations = dict.fromkeys(NODES, 0)
        self._barrier: Prepare | None = None
        self._cut_nodes: set[str] = set()
        environment = bare_environment(
            nodes=NODES,
            send=self._send,
            restart=self._restart,
            supply=self._supply,
            place=self._place,
            offset=lambda node: Offset(CLOCK_OFFSET_NS[node], 0),
            replicas=self.replicas,
            note=lambda *event: self.events.append(event),
            drain=self._moves_off,
            enlarge=self._slots_of_added,
            tables=("counts",),
        )
        self.coordinator = Coordinator(spec_of(places), environment, settings)

    # --- for tests -----------------------------------------------------------------------------------------------

    def messages(self, kind: type, node: str | None = None) -> list[Any]:
        """Return messages of a type, to one node or to all, in order."""
        return [message for to, message in self.sent if isinstance(message, kind) and node in (None, to)]

    def events_of(self, kind: str) -> list[tuple[str, str, float | None]]:
        """Return subject, detail and value of events of a kind."""
        return [tuple(rest) for found, *rest in self.events if found == kind]  # type: ignore[misc]

    @property
    def epoch(self) -> int:
        """Number of the last started epoch."""
        return max(self._epochs.values())

    def worker_slots(self, node: str) -> list[Slot]:
        """Return the workers of a node."""
        return [place for place in self._specs[node].workers if place.node == node]

    def kill_worker(self, place: Slot, epoch: int | None = None) -> None:
        """Kill a worker; its peers report the lost link first."""
        epoch = self.epoch if epoch is None else epoch
        report = self.coordinator.handle_report
        for peer in PLACES.values():
            if peer != place:
                report(peer.node, Lost(epoch=epoch, slot=peer.index, peer=place, reason="reset"))
        report(place.node, Failed(epoch=epoch, slot=place.index, reason="was killed", died=True))

    def kill_agent(self, node: str) -> None:
        """Kill an agent, and with it its workers."""
        self._incarnations[node] += 1
        self.coordinator.handle_agent_gone(node, f"the agent of {node} was killed")

    def lose_node(self, node: str) -> None:
        """Switch a node off; its disk is lost."""
        self.unreachable.add(node)
        self.disks[node].clear()
        self.kill_agent(node)

    # --- environment of the coordinator ------------------------------------------------------------------------------

    async def _send(self, node: str, message: Message) -> None:
        if node in self.unreachable:
            raise RunError(f"the agent of {node} is gone")
        self.sent.append((node, message))
        incarnation = self._incarnations[node]
        await asyncio.sleep(0)
        self._schedule(lambda: self._handle(node, message) if incarnation == self._incarnations[node] else None)

    async def _restart(self, node: str) -> None:
        await asyncio.sleep(self.restart_s)
        if node in self.unreachable:
            raise RunError(f"{node} does not answer")
        self._incarnations[node] += 1
        self._epochs[node] = 0
        self.silent.discard(node)

    async def _supply(self, node: str) -> None:
        await asyncio.sleep(LAG_S)

    async def _place(self, lost: Set[str], places: Mapping[str, Slot], _traffic: object) -> Assignment:
        await asyncio.sleep(LAG_S)
        left = [node for node in NODES if node not in lost]
        if len(left) < 2:
            raise RunError("two nodes are needed")
        return Assignment({name: Slot(left[at % 2], 0) for at, name in enumerate(places)})

    @staticmethod
    def _moves_off(places: Mapping[str, Slot], away: Set[str]) -> list[MoveToPlace]:
        left = [node for node in NODES if node not in away]
        return [MoveToPlace(name, Slot(left[0], 2)) for name, at in places.items() if left and at.node in away]

    @staticmethod
    def _slots_of_added(places: Mapping[str, Slot], away: Set[str], sizes: Mapping[str, int]) -> Mapping[str, Slot]:
        left = [node for node in NODES if node not in away]
        names = [f"{component}[{index}]" for component, size in sizes.items() for index in range(size)]
        return {name: Slot(left[0], 3) for name in names if name not in places}

    # --- behaviour of nodes --------------------------------------------------------------------------------------

    def _handle(self, node: str, message: Any) -> None:
        epoch = message.epoch
        if isinstance(message, Start):
            if epoch <= self._epochs[node]:
                self.violations.append(f"{node}: Start of epoch {epoch} after {self._epochs[node]}")
            self._start_epoch(node, message)
        elif epoch > self._epochs[node]:
            self.violations.append(f"{node}: {message} before Start")
        elif epoch == self._epochs[node] and type(message) not in self.unanswered:
            self._reply(node, message)

    def _start_epoch(self, node: str, start: Start) -> None:
        self._epochs[node], self._specs[node] = start.epoch, start.spec
        self._barrier, self._cut_nodes = None, set()
        for executor in start.spec.executors if start.spec.restore else ():
            for source in snapshot_sources(executor_name(executor), start.spec.stored):
                file = f"r/checkpoints/{start.spec.restore}/{source}"
                if executor.place.node == node and self.disks[node].get(file) != f"{start.spec.restore}":
                    self.violations.append(f"{node}: {file} is missing")
        if Start not in self.unanswered:
            self._report_listening(node, self.worker_slots(node))
        self._send_vitals(node, self._incarnations[node], start.epoch)

    def _send_vitals(self, node: str, incarnation: int, epoch: int) -> None:
        """Report vitals once a second."""
        if (incarnation, epoch) == (self._incarnations[node], self._epochs[node]):
            if Vitals not in self.unanswered:
                self._report(node, Vitals(epoch=epoch))
            asyncio.get_running_loop().call_later(1, self._send_vitals, node, incarnation, epoch)

    def _report_listening(self, node: str, places: Sequence[Slot]) -> None:
        for place in places:
            self._report(node, Listening(epoch=self._epochs[node], slot=place.index, pid=1, port=1000 + place.index))

    def _reply(self, node: str, message: Any) -> None:
        if isinstance(message, Grow):
            known = self.worker_slots(node)
            new = [place for place in message.spec.workers if place.node == node and place not in known]
            self._specs[node] = message.spec
            self._report_listening(node, new)
        elif isinstance(message, Finish):
            self._report(node, Finished(epoch=message.epoch))
        elif isinstance(message, Precopy):
            after_barrier = [MoveToPlace(executor_name(e), e.place) for e in getattr(message.scaled, "executors", ())]
            copied = partial(Precopied, epoch=message.epoch, barrier=message.barrier, predicted_ns=PREDICTED_NS)
            for move in (*message.moves, *after_barrier):
                if move.to.node == node:
                    self._report(node, copied(slot=move.to.index, executor=move.executor))
        elif isinstance(message, Prepare):
            self._check_order(message)
            for place in self.worker_slots(node):
                ready = Ready(epoch=message.epoch, slot=place.index, barrier=message.barrier, refused=self.refusal)
                self._report(node, replace(ready, records=self.records))
        elif isinstance(message, Cut):
            self._pass_barrier(node, message)
        elif isinstance(message, Abandon):
            self._barrier = None
        else:
            for place in self.worker_slots(node):
                self._reply_for_worker(place, message)

    def _check_order(self, prepare: Prepare) -> None:
        """Check that there is one barrier at a time, with increasing numbers."""
        if self._barrier is None or self._barrier.barrier < prepare.barrier:
            if self._barrier is not None and not {p.node for p in self._barrier.workers} <= self._cut_nodes:
                self.violations.append(f"{prepare} while {self._barrier} is under way")
            self._barrier, self._cut_nodes = prepare, set()
        elif self._barrier != prepare:
            self.violations.append(f"{prepare} after {self._barrier}")

    def _pass_barrier(self, node: str, cut: Cut) -> None:
        prepare, epoch = self._barrier, cut.epoch
        if prepare is None or prepare.barrier != cut.barrier:
            self.violations.append(f"{cut} without Prepare")
            return
        self._cut_nodes.add(node)
        spec = self._specs[node]
        moving = {move.executor: move.to for move in prepare.moves}
        before = {executor_name(e): e.place for e in spec.executors}
        after = before | moving
        executors = tuple(ExecutorSpec(e.component, e.index, after[executor_name(e)]) for e in spec.executors)
        after_barrier = prepare.scaled or replace(spec, executors=executors, workers=prepare.workers or spec.workers)
        known = dict(zip(spec.numbered, spec.executors, strict=True))
        moving |= {
            executor_name(e): e.place
            for number, e in zip(after_barrier.numbered, after_barrier.executors, strict=True)
            if number not in known or known[number].place != e.place
        }
        for name, place in (before if prepare.scaled else after).items():
            if place.node == node and prepare.store:
                self._store(name, place, cut)
        for name, place in moving.items():
            if place.node == node:
                source = name if name in before else f"{name.partition('[')[0]}[0]"
                now = round(asyncio.get_running_loop().time() * 1e9)
                self._report(
                    node,
                    Moved(
                        epoch=epoch,
                        slot=place.index,
                        barrier=cut.barrier,
                        executor=name,
                        state_bytes=10,
                        buffered=3,
                        source=source,
                        cut_ns=now + CLOCK_OFFSET_NS[before[source].node],
                        live_ns=now + PAUSE_NS + CLOCK_OFFSET_NS[node],
                        cpu_ns=1_000_000,
                    ),
                )
        self._specs[node] = after_barrier
        for place in self.worker_slots(node):
            self._report(node, Passed(epoch=epoch, slot=place.index, barrier=cut.barrier))

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
        self._report(place.node, stored)

    def _reply_for_worker(self, place: Slot, message: Any) -> None:
        spec = self._specs[place.node]
        here = [executor_name(executor) for executor in spec.executors if executor.place == place]
        sources = [name for name in here if name.startswith("src")]
        if isinstance(message, Connect):
            missing = {f"{worker.node}/{worker.index}" for worker in spec.workers} - message.ports.keys()
            if missing:
                self.violations.append(f"Connect without the ports of {missing}")
            if self.links_refused:
                self._report(place.node, Lost(epoch=message.epoch, slot=place.index, peer=MID, reason="refused"))
            else:
                self._report(place.node, Connected(epoch=message.epoch, slot=place.index))
        elif isinstance(message, Stop):
            reached = {} if self.ignores_positions else message.positions
            positions = {name: spec.until.get(name, max(self.position, reached.get(name, 0))) for name in sources}
            self._report(place.node, Stopped(epoch=message.epoch, slot=place.index, positions=positions))
            if Drained not in self.unanswered:
                self._drain(place, here, positions)

    def _drain(self, place: Slot, here: Sequence[str], positions: Mapping[str, int]) -> None:
        epoch = self._epochs[place.node]
        answers: dict[str, tuple[str, ...]] = {}
        for name in here:
            if name.startswith("sink"):
                file = f"r/answer/{name}-{epoch}-last"
                self.disks[place.node][file] = f"last of epoch {epoch}"
                answers = {"counts": (file,)}
        self._report(place.node, Drained(epoch=epoch, slot=place.index, positions=positions, answers=answers))

    def _report(self, node: str, report: Any) -> None:
        incarnation = self._incarnations[node]
        if node not in self.silent:
            self._schedule(
                lambda: (
                    self.coordinator.handle_report(node, report) if incarnation == self._incarnations[node] else None
                )
            )

    def _schedule(self, step: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(LAG_S, step)
