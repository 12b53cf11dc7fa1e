"""Whole runs of a coordinator in virtual time, over simulated agents that a test makes fail."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Set
from typing import Any

from bare_environment import WITHOUT_CONTROL
from msgspec.structs import replace

from agents.protocol import (
    Abandon,
    Connect,
    Connected,
    Cut,
    ExecutorSpec,
    Listening,
    Lost,
    Message,
    MoveToPlace,
    Prepare,
    Ready,
    Report,
    RunSpec,
    Slot,
    Start,
    Stop,
    snapshot_sources,
    workers_of,
)
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.epoch_workers import executor_name
from controller.coordinator.interfaces import UNSCALED, Assignment, Carried, Scaling, Waves
from controller.simulation.agents import SimulatedAgents, WorkModel
from controller.simulation.cluster import differing_clocks
from controller.simulation.virtual_loop import run_in_virtual_time
from inventory.errors import RunError
from inventory.times import NS
from workloads.topology import Executor

LAG_S, NODES = 0.01, ("n1", "n2", "n3")
PAUSE_NS, PREDICTED_NS = 7_000_000, 5_000_000
PLACES = {"src[0]": Slot("n1", 0), "mid[0]": Slot("n1", 1), "sink[0]": Slot("n2", 0)}
MID, SINK = PLACES["mid[0]"], PLACES["sink[0]"]

DRIFT_S = 0.001
"""By how much clocks of nodes drift apart within a run of 20 s, at most."""

START_S = 0.5
"""Upper bound of a start of `FakeNodes`, including the lead time of the sources."""


def spec_of(places: Mapping[str, Slot]) -> RunSpec:
    """Return a run with these executors, in order; executors of `src` are spouts."""
    named = {Executor.named(name): place for name, place in places.items()}
    executors = tuple(ExecutorSpec(e.component, e.index, place) for e, place in named.items())
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


class FakeNodes(SimulatedAgents):
    """Simulated agents of three nodes that check the controller, and that fail as a test demands.

    Attributes:
        sent: (node, message) of all messages to agents, in order.
        unanswered: types of commands that have no effect (`Start`: no worker listens), and of reports that are lost.
        refusal: reason why workers refuse barriers; empty: they accept.
        links_refused: whether links between workers fail.
        silent: nodes whose agents answer heartbeats and report nothing, until they are restarted.
        violations: violations of the protocol by the controller.
        ignores_positions: whether sources end at their position even if `Stop` names a higher one.
    """

    restart_s = LAG_S

    def __init__(self, settings: ControlSettings, places: Mapping[str, Slot] = PLACES) -> None:
        self.sent: list[tuple[str, Any]] = []
        self.unanswered: set[type] = set()
        self.refusal, self.links_refused = "", False
        self.silent: set[str] = set()
        self.violations: list[str] = []
        self.ignores_positions = False
        self._prepared: Prepare | None = None
        self._cut_nodes: set[str] = set()
        self.model = WorkModel(100, 0, 10, PREDICTED_NS, PAUSE_NS, 1_000_000, 3, {"sink": "counts"})
        environment = {
            **WITHOUT_CONTROL,
            "place": self._place,
            "drain": self._moves_off,
            "enlarge": self._slots_of_added,
            "tables": ("counts",),
        }
        super().__init__(spec_of(places), settings, differing_clocks(NODES), LAG_S, environment)

    def messages(self, kind: type, node: str | None = None) -> list[Any]:
        """Return messages of a type, to one node or to all, in order."""
        return [message for to, message in self.sent if isinstance(message, kind) and node in (None, to)]

    def events_of(self, kind: str) -> list[tuple[str, str, float | None]]:
        """Return subject, detail and value of events of a kind."""
        return [tuple(rest) for found, *rest in self.events if found == kind]  # type: ignore[misc]

    @property
    def executor_places(self) -> dict[str, Slot]:
        """Places of the executors in the last epoch, as the coordinator sees them."""
        return dict(self.coordinator._epoch_workers.places)

    def carry(self, revision: int | None, waves: Waves, scaling: Scaling = UNSCALED) -> Coroutine[Any, Any, Carried]:
        """Return the result of a revision, as if the decider had asked for it."""
        return self.coordinator._checkpoint_loop.carry(revision, waves, None, scaling)

    @property
    def epoch(self) -> int:
        """Number of the last started epoch."""
        return max(node.epoch for node in self.nodes.values())

    # --- environment of the coordinator ------------------------------------------------------------------------------

    async def send(self, node: str, message: Message) -> None:
        if self.nodes[node].up:
            self.sent.append((node, message))
        await super().send(node, message)

    async def restart(self, node: str) -> None:
        await super().restart(node)
        self.silent.discard(node)

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

    # --- commands and reports ----------------------------------------------------------------------------------------

    def handle(self, node: str, message: Any) -> None:
        epoch = self.nodes[node].epoch
        if isinstance(message, Start):
            self._check_start(node, message)
        elif message.epoch > epoch:
            self.violations.append(f"{node}: {message} before Start")
        elif message.epoch < epoch or type(message) in self.unanswered:
            return
        elif isinstance(message, Prepare):
            self._check_prepare(message)
        elif isinstance(message, Cut):
            self._check_cut(node, message)
        elif isinstance(message, Abandon):
            self._prepared = None
        elif isinstance(message, Connect):
            missing = {f"{worker.node}/{worker.index}" for worker in self.spec(node).workers} - message.ports.keys()
            if missing:
                self.violations.append(f"Connect without the ports of {missing}")
        elif isinstance(message, Stop) and self.ignores_positions:
            message = replace(message, positions={})
        super().handle(node, message)

    def report(self, node: str, report: Report) -> None:
        if isinstance(report, Listening) and Start in self.unanswered:
            return
        if isinstance(report, Ready):
            report = replace(report, refused=self.refusal)
        if isinstance(report, Connected) and self.links_refused:
            report = Lost(epoch=report.epoch, slot=report.slot, peer=MID, reason="refused")
        if node not in self.silent and type(report) not in self.unanswered:
            super().report(node, report)

    # --- checks of the controller ------------------------------------------------------------------------------------

    def _check_start(self, node: str, start: Start) -> None:
        if start.epoch <= self.nodes[node].epoch:
            self.violations.append(f"{node}: Start of epoch {start.epoch} after {self.nodes[node].epoch}")
        self._prepared, self._cut_nodes = None, set()
        for executor in start.spec.executors if start.spec.restore else ():
            for source in snapshot_sources(executor_name(executor), start.spec.stored):
                file = f"r/checkpoints/{start.spec.restore}/{source}"
                if executor.place.node == node and self.nodes[node].files.get(file) != f"{start.spec.restore}":
                    self.violations.append(f"{node}: {file} is missing")

    def _check_prepare(self, prepare: Prepare) -> None:
        """Check that there is one barrier at a time, with increasing numbers."""
        if self._prepared is None or self._prepared.barrier < prepare.barrier:
            if self._prepared is not None and not {p.node for p in self._prepared.workers} <= self._cut_nodes:
                self.violations.append(f"{prepare} while {self._prepared} is under way")
            self._prepared, self._cut_nodes = prepare, set()
        elif self._prepared != prepare:
            self.violations.append(f"{prepare} after {self._prepared}")

    def _check_cut(self, node: str, cut: Cut) -> None:
        if self._prepared is None or self._prepared.barrier != cut.barrier:
            self.violations.append(f"{cut} without Prepare")
        self._cut_nodes.add(node)


def run_coordinator(
    nodes: Callable[[], FakeNodes],
    seconds: float,
    during: Callable[[FakeNodes], Coroutine[Any, Any, None]] | None = None,
) -> FakeNodes:
    """Run for some seconds of virtual time; check that the controller kept the protocol.

    Args:
        nodes: makes the nodes and their coordinator.
        seconds: time from the start of the sources until they stop.
        during: runs concurrently from the start of the sources on.
    """

    async def run() -> FakeNodes:
        fake = nodes()
        async with fake.coordinator as coordinator:
            start_ns = await coordinator.start()
            concurrent = asyncio.create_task(during(fake)) if during is not None else None
            await coordinator.wait_until(start_ns + round(seconds * NS))
            await coordinator.stop()
            await coordinator.finish()
            if concurrent is not None:
                await concurrent
        assert not fake.violations
        return fake

    return run_in_virtual_time(run())


def answer_files(nodes: FakeNodes) -> list[str]:
    """Return the replicas of the parts of the answer."""
    return [nodes.replicas.files[part.name] for part in nodes.coordinator.answer]
