"""Timeline of a run: moves, faults and changes of the cluster that an agenda scripts, while the topology runs."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NoReturn

from agents.protocol import Kill, RunSpec, Slot
from controller.coordinator.epoch_workers import executor_name, worker_name
from controller.coordinator.event_log import ENDED, EventLog, TimelineEntry
from controller.coordinator.interfaces import Carried, CarryWaves, Environment, RunListener, Scaling
from controller.coordinator.node_membership import NodeMembership
from controller.coordinator.scripted_events import (
    AskScheduler,
    KillAgent,
    KillWorker,
    MoveExecutors,
    NodeDown,
    NodeUp,
    ScaleComponents,
    ScriptedEvent,
    SetCpu,
)
from controller.host.condition import run_watched
from inventory.errors import RunError
from inventory.times import NS
from workloads.scaling import sizes_of

NAMES: Mapping[type, str] = {
    NodeUp: "node_up",
    NodeDown: "node_down",
    SetCpu: "set_cpu",
    KillWorker: "kill",
    KillAgent: "kill",
    AskScheduler: "revise",
    ScaleComponents: "scale",
    MoveExecutors: "move",
}
"""Kinds of events, as agendas name them."""


def subject_of(event: ScriptedEvent) -> str:
    """Return the node, worker or components that an event is about."""
    match event:
        case KillWorker(place=place):
            return worker_name(place)
        case ScaleComponents(components=components):
            return ",".join(components)
        case MoveExecutors(requests=requests):
            return ",".join(each.executor for each in requests)
        case AskScheduler():
            return ""
    return event.node


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
        self._environment, self._membership = environment, membership
        self._event_log, self._listener, self._spec, self._carry = event_log, listener, spec, carry
        self._drains = drains
        # Nobody is asked in a run without an online scheduler.
        mine = [event for event in events if not (drains and isinstance(event, AskScheduler))]
        self._moves = deque(
            (event, [event_log.expect("move", each.executor, event.at_s) for each in event.requests])
            for event in mine
            if isinstance(event, MoveExecutors)
        )
        self._events = [
            (event, event_log.expect(NAMES[type(event)], subject_of(event), event.at_s))
            for event in mine
            if not isinstance(event, MoveExecutors)
        ]

    async def run(self, started: Callable[[], Awaitable[int]]) -> None:
        """Carry out the events; `started` returns the sources' start on the controller's monotonic clock, in ns."""
        self._start_s = await started() / NS
        # A move takes as long as its state; other events, such as kills, do not wait for it.
        await run_watched(self._run_moves(), self._run_events())

    def stop(self) -> None:
        """Record that moves which have not begun are not made, because the sources are to stop."""
        while self._moves:
            self._not_moved(*self._moves.popleft(), ENDED)

    async def _run_moves(self) -> NoReturn:
        while self._moves:
            await asyncio.sleep(self._moves[0][0].at_s - self._now_s)
            if self._moves:
                await self._move(*self._moves.popleft())
        await asyncio.Event().wait()
        raise asyncio.CancelledError

    async def _move(self, event: MoveExecutors, entries: Sequence[TimelineEntry]) -> None:
        """Move executors; a move that failures prevent is not tried again."""
        before = len(self._event_log.moves)
        carried = await self._carry(None, [event.moves(self._places, self._spec().workers)])
        if carried.outcome != "done":
            self._not_moved(event, entries, carried.why)
            return
        made = {move.executor: move for move in self._event_log.moves[before:]}
        for entry in entries:
            move = made.get(entry.subject)
            entry.begin(self._now_s if move is None else move.at_s)
            entry.done(self._now_s if move is None else move.at_s + (move.pause_s or 0.0))

    def _not_moved(self, event: MoveExecutors, entries: Sequence[TimelineEntry], why: str) -> None:
        for request, entry in zip(event.requests, entries, strict=True):
            entry.failed(why)
            self._event_log.not_moved(request.executor, request.target, event.at_s, why)

    async def _run_events(self) -> NoReturn:
        for event, entry in self._events:
            await asyncio.sleep(event.at_s - self._now_s)
            try:
                await self._carry_out(event, entry)
            except RunError as fault:
                entry.failed(str(fault))
                self._event_log.scripted(f"{entry.do}_failed", detail=str(fault))
            else:
                self._event_log.scripted(entry.do, entry.subject)
        await asyncio.Event().wait()
        raise asyncio.CancelledError

    @property
    def _now_s(self) -> float:
        return asyncio.get_running_loop().time() - self._start_s

    async def _carry_out(self, event: ScriptedEvent, entry: TimelineEntry) -> None:
        """Carry out an event.

        Raises:
            RunError: it is impossible now.
        """
        if isinstance(event, ScaleComponents):
            await self._scale(event, entry)
            return
        entry.begin(self._now_s)
        match event:
            case KillWorker(place=place):
                if place not in self._spec().workers:
                    raise RunError(f"no worker runs in {worker_name(place)}")
                await self._environment.send(place.node, Kill(epoch=self._spec().epoch, slot=place.index))
            case KillAgent(node=node, for_s=for_s):
                self._membership.hold(node, asyncio.get_running_loop().time() + for_s)
                await self._environment.send(node, Kill(epoch=self._spec().epoch))
            case SetCpu(node=node, settings=settings):
                await self._environment.set_cpus(node, settings)
                self._listener.changed("clock", node)
            case NodeUp(node=node):
                self._membership.withheld.discard(node)
                if node in self._membership.lost:  # it is available when it returns
                    raise RunError(f"node {node} is lost")
                self._listener.changed("node_up", node)
                await self._change_schedule(entry)
            case NodeDown(node=node):
                self._membership.withheld.add(node)
                self._listener.changed("node_down", node)
                await self._drain(node, entry)
                await self._change_schedule(entry)
            case AskScheduler():
                self._event_log.demanded(entry)
                self._listener.revise()
                return
        entry.done(self._now_s)

    async def _drain(self, node: str, entry: TimelineEntry) -> None:
        """Move all executors off drained nodes, unless an online scheduler decides about them.

        Raises:
            RunError: there is no other slot for those of `node`.
        """
        while self._drains:
            moves = tuple(self._environment.drain(self._places, self._away))
            if not moves:
                if any(place.node == node for place in self._places.values()):
                    raise RunError(f"no other node has a slot for the executors on {node}")
                return
            if await self._is_done(self._carry(None, [moves], None), entry):
                return

    async def _change_schedule(self, entry: TimelineEntry) -> None:
        """In a run with a communication schedule, follow the one of a placement on the nodes that are up now."""
        while self._drains and self._spec().gates is not None:
            schedule = await self._environment.schedule(self._places, self._away)
            if schedule is None or await self._is_done(self._carry(None, [], schedule), entry):
                return

    async def _scale(self, event: ScaleComponents, entry: TimelineEntry) -> None:
        """Start the topology again with other numbers of executors; one that failures prevent is tried again."""
        scalings = self._event_log.scalings
        while True:
            now = sizes_of(self._places)
            sizes = {component: event.to for component in event.components if now[component] != event.to}
            if not sizes:
                entry.begin(self._now_s)
                entry.done(self._now_s)
                return
            scaling = Scaling(sizes, self._environment.enlarge(self._places, self._away, sizes))
            before = len(scalings)
            if await self._is_done(self._carry(None, [], None, scaling), entry, ",".join(sizes)):
                entry.begin(min(each.at_s for each in scalings[before:]))
                entry.done(max(each.at_s + each.pause_s for each in scalings[before:]))
                for component in sizes:
                    self._listener.changed("scale", component)
                return

    async def _is_done(self, carrying: Awaitable[Carried], entry: TimelineEntry, subject: str = "") -> bool:
        """Return whether a change is done; after one that failures prevent, note why, and pause before the next try."""
        carried = await carrying
        if carried.outcome == "done":
            return True
        if entry.failed(carried.why):
            self._event_log.scripted(f"{entry.do}_failed", subject or entry.subject, carried.why)
        await asyncio.sleep(RETRY_S)
        return False

    @property
    def _places(self) -> dict[str, Slot]:
        return {executor_name(executor): executor.place for executor in self._spec().executors}

    @property
    def _away(self) -> set[str]:
        return self._membership.withheld | self._membership.lost
