"""Timeline of a run: faults and changes of the cluster that an agenda scripts, carried out while the topology runs.

Scripted moves are due at barriers (`controller.coordinator.barrier.MovePlan`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from agents.protocol import Kill, RunSpec, Slot
from controller.coordinator.epoch_workers import name_of, worker_name
from controller.coordinator.event_log import EventLog
from controller.coordinator.interfaces import CarryWaves, Environment, RunListener, Scaling
from controller.coordinator.node_membership import NodeMembership
from inventory.errors import RunError
from inventory.times import NS
from workloads.scaling import sizes_of


@dataclass(frozen=True)
class NodeUp:
    """A node may be used from `at_s` seconds after the start of the sources on, as the times of all events are."""

    at_s: float
    node: str


@dataclass(frozen=True)
class NodeDown:
    """A node may not be used any longer: its executors leave, its agent keeps running."""

    at_s: float
    node: str


@dataclass(frozen=True)
class SetCpu:
    """CPU settings of a node change; `settings` is a document of `agents.cpu.request.CpuRequest`."""

    at_s: float
    node: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class KillWorker:
    """A worker is killed."""

    at_s: float
    place: Slot


@dataclass(frozen=True)
class KillAgent:
    """The agent of a node is killed, and its node cannot return within `for_s` seconds."""

    at_s: float
    node: str
    for_s: float


@dataclass(frozen=True)
class AskScheduler:
    """An online scheduler is asked, whenever it would be asked next."""

    at_s: float


@dataclass(frozen=True)
class ScaleComponents:
    """These components have another number of executors each."""

    at_s: float
    components: tuple[str, ...]
    to: int


ScriptedEvent = NodeUp | NodeDown | SetCpu | KillWorker | KillAgent | AskScheduler | ScaleComponents


def withheld_nodes(events: Iterable[ScriptedEvent]) -> frozenset[str]:
    """Return the nodes that are not used at the start: those that come up before they go down.

    Args:
        events: events of a run, ordered by time.
    """
    first: dict[str, ScriptedEvent] = {}
    for event in events:
        if isinstance(event, NodeUp | NodeDown):
            first.setdefault(event.node, event)
    return frozenset(node for node, event in first.items() if isinstance(event, NodeUp))


NAMES: Mapping[type, str] = {
    NodeUp: "node_up",
    NodeDown: "node_down",
    SetCpu: "set_cpu",
    KillWorker: "kill",
    KillAgent: "kill",
    AskScheduler: "revise",
    ScaleComponents: "scale",
}
"""Kinds of events, as agendas name them."""


RETRY_S = 1.0
"""Pause after a change that a failure prevented."""


class Timeline:
    """Timeline of one run."""

    def __init__(
        self,
        events: Sequence[ScriptedEvent],
        environment: Environment,
        membership: NodeMembership,
        event_log: EventLog,
        listener: RunListener,
        spec: Callable[[], RunSpec],
        carry: CarryWaves,
        drains: bool,
    ) -> None:
        """Prepare it.

        Args:
            events: in order of time.
            environment: reaches nodes.
            membership: nodes that are withheld or kept away.
            event_log: records every event.
            listener: is notified of nodes that come and go.
            spec: returns the specification of the current epoch.
            carry: changes the topology.
            drains: whether executors are moved off drained nodes, and nodes follow a schedule for those that are left;
                not in runs with an online scheduler, which decides about both.
        """
        self._events, self._environment, self._membership = events, environment, membership
        self._event_log, self._listener, self._spec, self._carry = event_log, listener, spec, carry
        self._drains = drains

    async def run(self, started: Callable[[], Awaitable[int]]) -> NoReturn:
        """Carry out the events; `started` returns the sources' start on the controller's monotonic clock, in ns."""
        start_ns = await started()
        loop = asyncio.get_running_loop()
        for event in self._events:
            await asyncio.sleep(start_ns / NS + event.at_s - loop.time())
            try:
                await self._carry_out(event)
            except RunError as fault:
                self._event_log.timeline(f"{NAMES[type(event)]}_failed", detail=str(fault))
        await asyncio.Event().wait()
        raise asyncio.CancelledError

    async def _carry_out(self, event: ScriptedEvent) -> None:
        subject = ""
        match event:
            case KillWorker(place=place):
                await self._environment.send(place.node, Kill(epoch=self._spec().epoch, slot=place.index))
                subject = worker_name(place)
            case KillAgent(node=subject, for_s=for_s):
                self._membership.hold(subject, asyncio.get_running_loop().time() + for_s)
                await self._environment.send(subject, Kill(epoch=self._spec().epoch))
            case SetCpu(node=subject, settings=settings):
                await self._environment.set_cpus(subject, settings)
                self._listener.changed("clock", subject)
            case NodeUp(node=subject):
                self._membership.withheld.discard(subject)
                if subject not in self._membership.lost:  # else it is available when it returns
                    self._listener.changed("node_up", subject)
                    await self._change_schedule()
            case NodeDown(node=subject):
                self._membership.withheld.add(subject)
                self._listener.changed("node_down", subject)
                await self._drain()
                await self._change_schedule()
            case AskScheduler():
                self._listener.revise()
            case ScaleComponents(components=components):
                subject = ",".join(components)
                await self._scale(event)
        self._event_log.timeline(NAMES[type(event)], subject)

    async def _drain(self) -> None:
        """Move all executors off drained nodes, unless an online scheduler decides about them."""
        while self._drains:
            moves = tuple(self._environment.drain(self._places, self._away))
            if not moves or (await self._carry(None, [moves], None)).outcome == "done":
                return
            await asyncio.sleep(RETRY_S)

    async def _change_schedule(self) -> None:
        """In a run with a communication schedule, follow the one of a placement on the nodes that are up now."""
        while self._drains and self._spec().gates is not None:
            schedule = await self._environment.schedule(self._places, self._away)
            if schedule is None or (await self._carry(None, [], schedule)).outcome == "done":
                return
            await asyncio.sleep(RETRY_S)

    async def _scale(self, event: ScaleComponents) -> None:
        """Start the topology again with other numbers of executors; one that failures prevent is tried again."""
        why = ""
        while True:
            now = sizes_of(self._places)
            sizes = {component: event.to for component in event.components if now[component] != event.to}
            if not sizes:
                return
            scaling = Scaling(sizes, self._environment.enlarge(self._places, self._away, sizes))
            carried = await self._carry(None, [], None, scaling)
            if carried.outcome == "done":
                for component in sizes:
                    self._listener.changed("scale", component)
                return
            if carried.why != why:
                why = carried.why
                self._event_log.timeline("scale_failed", ",".join(sizes), why)
            await asyncio.sleep(RETRY_S)

    @property
    def _places(self) -> dict[str, Slot]:
        return {name_of(executor): executor.place for executor in self._spec().executors}

    @property
    def _away(self) -> set[str]:
        return self._membership.withheld | self._membership.lost
