"""Agents of a simulated cluster: they answer the control protocol for workers that are only computed."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
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
    Report,
    RunSpec,
    Slot,
    Start,
    Stop,
    Stopped,
    Stored,
    Vitals,
)
from agents.protocol.node_folders import NodeFolder, RunFolder
from controller.coordinator.epoch_workers import executor_name
from controller.simulation.cluster import SimulatedCluster

VITALS_S = 1.0


@dataclass
class WorkModel:
    """Reports of workers about their rows and their state.

    Attributes:
        position: position of every source.
        records: records that every source has emitted; None: they cannot be numbered.
        state_bytes: bytes of state of every executor.
        predicted_ns, pause_ns: predicted and real time for which a move pauses an executor.
        move_cpu_ns, buffered: CPU time of a move, and rows that arrive during the pause.
        answers: component -> table of the answer that it writes.
    """

    position: int
    records: int | None
    state_bytes: int
    predicted_ns: int
    pause_ns: int
    move_cpu_ns: int
    buffered: int
    answers: Mapping[str, str]


class _Layout:
    """Executors and workers of a run by node."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.spouts = {each["id"] for each in spec.topology["components"] if each["kind"] == "spout"}
        self.workers: defaultdict[str, list[Slot]] = defaultdict(list)
        self.executors: defaultdict[str, list[ExecutorSpec]] = defaultdict(list)
        self.sources: defaultdict[Slot, list[str]] = defaultdict(list)
        for slot in spec.workers:
            self.workers[slot.node].append(slot)
        for executor in spec.executors:
            self.executors[executor.place.node].append(executor)
            if executor.component in self.spouts:
                self.sources[executor.place].append(executor_name(executor))


class _Barrier:
    """A barrier: the run before and after it, and the executors that move at it, by their new nodes."""

    def __init__(self, before: _Layout, prepare: Prepare) -> None:
        self.prepare, self.before = prepare, before
        spec = before.spec
        moves = {move.executor: move.to for move in prepare.moves}
        executors = tuple(replace(e, place=moves.get(executor_name(e), e.place)) for e in spec.executors)
        moved = replace(spec, executors=executors, workers=prepare.workers or spec.workers)
        self.after = _Layout(prepare.scaled or moved)
        self.places = {executor_name(e): e.place for e in spec.executors}
        known = dict(zip(spec.numbered, spec.executors, strict=True))
        self.arriving: defaultdict[str, list[ExecutorSpec]] = defaultdict(list)
        for number, executor in zip(self.after.spec.numbered, self.after.spec.executors, strict=True):
            if number not in known or known[number].place != executor.place:
                self.arriving[executor.place.node].append(executor)

    @property
    def storing(self) -> Mapping[str, list[ExecutorSpec]]:
        """Executors that store a snapshot, by node: where they are after a move, or before a scaling."""
        return (self.before if self.prepare.scaled else self.after).executors

    def source(self, executor: ExecutorSpec) -> str:
        """Return the name of the executor from which the state of an arriving executor comes."""
        name = executor_name(executor)
        return name if name in self.places else f"{executor.component}[0]"


class SimulatedAgents(SimulatedCluster):
    """Nodes whose agents answer for workers that do as `model` says.

    The time per command is proportional to the executors of a node, not to those of the cluster.
    """

    model: WorkModel

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._layouts: dict[str, _Layout] = {}
        self._barriers: dict[str, _Barrier] = {}
        self._newest_layout: _Layout | None = None
        self._newest_barrier: _Barrier | None = None

    def spec(self, node: str) -> RunSpec:
        """Return the run as the workers of a node have it."""
        return self._layouts[node].spec

    def workers(self, node: str) -> list[Slot]:
        """Return the workers of a node."""
        return self._layouts[node].workers[node]

    def report(self, node: str, report: Report) -> None:
        """Send a report to the controller."""
        self.nodes[node].reports.put(report)

    def handle(self, node: str, message: Message) -> None:
        state = self.nodes[node]
        if isinstance(message, Start):
            state.epoch = message.epoch
            self._barriers.pop(node, None)
            self._lay_out(node, message.spec)
            self._listen(node, self.workers(node))
            self._send_vitals(node, message.epoch)
        elif getattr(message, "epoch", None) == state.epoch:
            self._answer(node, message)

    def _answer(self, node: str, message: Message) -> None:
        match message:
            case Grow(spec=spec):
                known = self.workers(node)
                self._lay_out(node, spec)
                self._listen(node, [slot for slot in self.workers(node) if slot not in known])
            case Connect(epoch=epoch):
                for slot in self.workers(node):
                    self.report(node, Connected(epoch=epoch, slot=slot.index))
            case Precopy():
                self._copy_ahead(node, message)
            case Prepare():
                self._prepare(node, message)
            case Cut():
                self._pass_barrier(node, message)
            case Abandon():
                self._barriers.pop(node, None)
            case Stop(positions=positions):
                for slot in self.workers(node):
                    self._stop(slot, positions)
            case Finish(epoch=epoch):
                self.report(node, Finished(epoch=epoch))

    def _lay_out(self, node: str, spec: RunSpec) -> None:
        if self._newest_layout is None or self._newest_layout.spec is not spec:
            self._newest_layout = _Layout(spec)  # shared by all nodes
        self._layouts[node] = self._newest_layout

    def _listen(self, node: str, slots: Sequence[Slot]) -> None:
        for slot in slots:
            listening = Listening(epoch=self.nodes[node].epoch, slot=slot.index, pid=1, port=1000 + slot.index)
            self.report(node, listening)

    def _send_vitals(self, node: str, epoch: int) -> None:
        """Report vitals once a second, until the epoch ends."""
        if self.nodes[node].epoch == epoch:
            self.report(node, Vitals(epoch=epoch))
            asyncio.get_running_loop().call_later(VITALS_S, self._send_vitals, node, epoch)

    def _copy_ahead(self, node: str, precopy: Precopy) -> None:
        scaled = precopy.scaled.executors if precopy.scaled is not None else ()
        for move in (*precopy.moves, *(MoveToPlace(executor_name(e), e.place) for e in scaled)):
            if move.to.node == node:
                copied = Precopied(
                    epoch=precopy.epoch,
                    slot=move.to.index,
                    barrier=precopy.barrier,
                    executor=move.executor,
                    predicted_ns=self.model.predicted_ns,
                )
                self.report(node, copied)

    def _prepare(self, node: str, prepare: Prepare) -> None:
        before = self._layouts[node]
        newest = self._newest_barrier
        if newest is None or newest.before is not before or newest.prepare.barrier != prepare.barrier:
            newest = self._newest_barrier = _Barrier(before, prepare)  # shared by all nodes
        self._barriers[node] = newest
        for slot in self.workers(node):
            ready = Ready(epoch=prepare.epoch, slot=slot.index, barrier=prepare.barrier, records=self.model.records)
            self.report(node, ready)

    def _pass_barrier(self, node: str, cut: Cut) -> None:
        barrier = self._barriers.get(node)
        if barrier is None or barrier.prepare.barrier != cut.barrier:
            return
        for executor in barrier.storing[node] if barrier.prepare.store else ():
            self._store(executor, cut)
        for executor in barrier.arriving[node]:
            source = barrier.source(executor)
            moved = Moved(
                epoch=cut.epoch,
                slot=executor.place.index,
                barrier=cut.barrier,
                executor=executor_name(executor),
                state_bytes=self.model.state_bytes,
                buffered=self.model.buffered,
                source=source,
                cut_ns=self.nodes[barrier.places[source].node].clock.read(self.now_ns),
                live_ns=self.nodes[node].clock.read(self.now_ns + self.model.pause_ns),
                cpu_ns=self.model.move_cpu_ns,
            )
            self.report(node, moved)
        self._layouts[node] = barrier.after
        for slot in self.workers(node):
            self.report(node, Passed(epoch=cut.epoch, slot=slot.index, barrier=cut.barrier))

    def _store(self, executor: ExecutorSpec, cut: Cut) -> None:
        node, name = executor.place.node, executor_name(executor)
        file = str(self._folder(node).snapshot(cut.barrier, name))
        self.nodes[node].files[file] = f"{cut.barrier}"
        stored = Stored(
            epoch=cut.epoch,
            slot=executor.place.index,
            barrier=cut.barrier,
            executor=name,
            file=file,
            nbytes=self.model.state_bytes,
            position=self.model.position if executor.component in self._layouts[node].spouts else None,
            answers=self._write_answer(executor, f"{cut.epoch}-{cut.barrier}", f"settled at {cut.barrier}"),
        )
        self.report(node, stored)

    def _write_answer(self, executor: ExecutorSpec, part: str, content: str) -> Mapping[str, tuple[str, ...]]:
        """Write a part of the answer if the executor has one; return table -> files."""
        table = self.model.answers.get(executor.component)
        if table is None:
            return {}
        file = f"{self._folder(executor.place.node).answers}/{executor_name(executor)}-{part}"
        self.nodes[executor.place.node].files[file] = content
        return {table: (file,)}

    def _folder(self, node: str) -> RunFolder:
        return NodeFolder(Path()).run(self.spec(node).run)

    def _stop(self, slot: Slot, reached: Mapping[str, int]) -> None:
        layout, epoch = self._layouts[slot.node], self.nodes[slot.node].epoch
        positions = {
            name: layout.spec.until.get(name, max(self.model.position, reached.get(name, 0)))
            for name in layout.sources[slot]
        }
        self.report(slot.node, Stopped(epoch=epoch, slot=slot.index, positions=positions))
        answers: dict[str, tuple[str, ...]] = {}
        for executor in layout.executors[slot.node]:
            if executor.place == slot:
                for table, files in self._write_answer(executor, f"{epoch}-last", f"last of epoch {epoch}").items():
                    answers[table] = (*answers.get(table, ()), *files)
        self.report(slot.node, Drained(epoch=epoch, slot=slot.index, positions=positions, answers=answers))

    # --- faults ----------------------------------------------------------------------------------------------------

    def kill_worker(self, slot: Slot, epoch: int | None = None) -> None:
        """Kill a worker; its peers report the lost link first, all in the current epoch or in this one."""
        epoch = self.nodes[slot.node].epoch if epoch is None else epoch
        for peer in self.spec(slot.node).workers:
            if peer != slot and self.nodes[peer.node].epoch:
                self._receive(peer.node, Lost(epoch=epoch, slot=peer.index, peer=slot, reason="reset"))
        if self.nodes[slot.node].epoch:
            self._receive(slot.node, Failed(epoch=epoch, slot=slot.index, reason="was killed", died=True))
