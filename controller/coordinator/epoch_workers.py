"""The workers of one epoch: where executors are, what every worker has said, and how to speak to them all."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from msgspec.structs import replace

from agents.protocol import (
    Connected,
    Drained,
    ExecutorSpec,
    Exhausted,
    Listening,
    Message,
    Move,
    Moved,
    Passed,
    Place,
    Profile,
    Profiled,
    Ready,
    Report,
    RunSpec,
    SlotDone,
    Stopped,
    Stored,
    WorkerReport,
)
from controller.coordinator.interfaces import Environment
from controller.coordinator.report_validation import check_answers, check_positions, check_stored, check_worker
from controller.host.condition import Condition
from inventory.errors import RunError

T = TypeVar("T", Place, str)


def at(place: Place) -> str:
    """`node/slot`, as messages name a worker.

    >>> at(Place("n1", 2))
    'n1/2'
    """
    return f"{place.node}/{place.slot}"


def name_of(executor: ExecutorSpec) -> str:
    """`component[index]`."""
    return f"{executor.component}[{executor.index}]"


class EpochWorkers:
    """All workers of an epoch, and what they have reported in it.

    Attributes:
        spec: the epoch's, with workers and places as they are by now.
        nodes: those whose agents have been told `Start`.
        heard: nodes that have reported anything of the epoch since somebody looked.
        ports: of the workers that listen.
        connected, exhausted, stopped, drained: what workers have come to.
        seen: positions that sources had reached in earlier epochs when these were told to go.
        slots: how far they are with the time slots, in a run with gates.
        ready, passed: answers to the barrier under way, by worker; moved, stored: by executor.
    """

    def __init__(
        self, spec: RunSpec, environment: Environment, condition: Condition, on_gone: Callable[[str, str], None]
    ) -> None:
        """Begin with none; `on_gone(node, reason)` is told of agents that cannot be spoken to."""
        self.spec = spec
        self._environment, self.condition, self._on_gone = environment, condition, on_gone
        components = {c["id"]: c["kind"] for c in spec.topology["components"]}
        self.spouts = frozenset(name_of(e) for e in spec.executors if components[e.component] == "spout")
        self._known = frozenset(spec.workers)
        self.nodes: set[str] = set()
        self.heard: set[str] = set()
        self.ports: dict[Place, int] = {}
        self.connected: set[Place] = set()
        self.exhausted: set[Place] = set()
        self.stopped: dict[Place, Stopped] = {}
        self.drained: dict[Place, Drained] = {}
        self.seen: Mapping[str, int] = {}
        self.slots: dict[Place, SlotDone] = {}
        self.forget_barrier(0)

    @property
    def workers(self) -> tuple[Place, ...]:
        """All workers, those without executors included."""
        return self.spec.workers

    @property
    def places(self) -> dict[str, Place]:
        """Executor -> its worker."""
        return {name_of(executor): executor.place for executor in self.spec.executors}

    @property
    def sources(self) -> set[Place]:
        """Workers that have a spout executor."""
        return {place for name, place in self.places.items() if name in self.spouts}

    @property
    def all_exhausted(self) -> bool:
        """Whether all sources have come to the end of a finite input."""
        return self.exhausted >= self.sources

    def take(self, node: str, report: Report) -> None:
        """Note what a worker says; what belongs to another epoch or barrier is passed over.

        Raises:
            RunError: it claims what cannot be; it is not noted.
        """
        if getattr(report, "epoch", None) != self.spec.epoch:
            return
        if isinstance(report, WorkerReport):
            check_worker(Place(node, report.slot), self._known)
        match report:
            case Listening(slot=slot, port=port):
                self.ports[Place(node, slot)] = port
            case Connected(slot=slot):
                self.connected.add(Place(node, slot))
            case Exhausted(slot=slot):
                self.exhausted.add(Place(node, slot))
            case Stopped(slot=slot):
                check_positions(report.positions, self.spouts)
                self.stopped[Place(node, slot)] = report
            case Drained(slot=slot):
                check_positions(report.positions, self.spouts)
                check_answers(report.answers, self.spec.run, self._environment.tables)
                self.drained[Place(node, slot)] = report
            case SlotDone(slot=slot):
                self.slots[Place(node, slot)] = report
            case Ready(slot=slot, barrier=self._barrier):
                self.ready[Place(node, slot)] = report
            case Passed(slot=slot, barrier=self._barrier):
                self.passed.add(Place(node, slot))
            case Stored(barrier=self._barrier, executor=executor):
                check_stored(node, report, self.spec, self.places, self._environment.tables)
                self.stored[executor] = (node, report)
            case Moved(barrier=self._barrier, executor=executor):
                self.moved[executor] = (node, report)
        self.condition.tell()

    def forget_barrier(self, number: int) -> None:
        """From now on answers to barrier `number` count."""
        self._barrier = number
        self.ready: dict[Place, Ready] = {}
        self.passed: set[Place] = set()
        self.stored: dict[str, tuple[str, Stored]] = {}
        self.moved: dict[str, tuple[str, Moved]] = {}

    def grow(self, places: Iterable[Place]) -> None:
        """There are to be more workers."""
        self.spec = replace(self.spec, workers=(*self.spec.workers, *places))
        self._known = frozenset(self.spec.workers)

    def settle(self, moves: Iterable[Move]) -> None:
        """These executors have changed their places."""
        to = {move.executor: move.to for move in moves}
        executors = tuple(replace(e, place=to.get(name_of(e), e.place)) for e in self.spec.executors)
        self.spec = replace(self.spec, executors=executors)

    @property
    def named_ports(self) -> Mapping[str, int]:
        """`node/slot` -> port."""
        return {at(place): port for place, port in self.ports.items()}

    async def begin(self, message: Message, nodes: Collection[str]) -> None:
        """Tell agents that this epoch begins; from then on they hear of it."""
        await self.tell(message, nodes)
        self.nodes |= set(nodes)

    async def tell(self, message: Message | Callable[[str], Message], nodes: Collection[str] | None = None) -> None:
        """Send one message, or to each node the one that is made for it, to all agents or to those of `nodes`.

        An agent that is gone makes this wait for ever: it is a failure, which ends the epoch and this with it.
        """

        async def send(node: str) -> None:
            try:
                await self._environment.tell(node, message if isinstance(message, Message) else message(node))
            except RunError as fault:
                self._on_gone(node, str(fault))
                await asyncio.Event().wait()

        await asyncio.gather(*(send(node) for node in sorted(self.nodes if nodes is None else nodes)))

    async def until(
        self, done: Callable[[], Collection[T]], wanted: Collection[T], seconds: float, otherwise: str
    ) -> None:
        """Wait until `done()` holds all that is `wanted`: workers, or executors by name.

        Raises:
            RunError: it takes longer than `seconds`; the message begins with `otherwise` and names what is missing.
        """
        if not await self.within(seconds, lambda: set(done()) >= set(wanted)):
            raise RunError(f"{otherwise} within {seconds:.0f} s; missing: {listed(set(wanted) - set(done()))}")

    async def within(self, seconds: float, condition: Callable[[], bool]) -> bool:
        """Wait for `condition`, but not longer than `seconds`; return whether it holds."""
        return await self.condition.by(asyncio.get_running_loop().time() + seconds, condition)


def listed(names: Iterable[Place | str]) -> str:
    """Workers or executors, for messages."""
    return ", ".join(sorted(at(name) if isinstance(name, Place) else name for name in names))


class WorkerProfiles:
    """What nodes say of them; `of` has those of every node that has answered, in that order."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        self.of: dict[str, tuple[Profile, ...]] = {}

    def take(self, node: str, report: Report) -> None:
        """Take a report; all but `Profiled` are passed over."""
        if isinstance(report, Profiled):
            self.of[node] = report.profiles
            self._condition.tell()
