"""Workers of one epoch: the slots of executors, the reports of workers, and messages to all of them."""

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


def worker_name(place: Place) -> str:
    """Return `node/slot`, the form in which messages name a worker.

    >>> worker_name(Place("n1", 2))
    'n1/2'
    """
    return f"{place.node}/{place.slot}"


def name_of(executor: ExecutorSpec) -> str:
    """Return `component[index]`."""
    return f"{executor.component}[{executor.index}]"


class EpochWorkers:
    """All workers of an epoch and their reports.

    Attributes:
        spec: specification of the epoch, with its current workers and slots.
        nodes: nodes whose agents have received `Start`.
        heard: nodes that have reported anything of the epoch since the set was last replaced.
        ports: ports of the workers that listen.
        connected, exhausted, stopped, drained: workers that have reached this state.
        seen: positions that sources had reached in earlier epochs when `Go` was sent.
        slots: progress of the workers in time slots, in runs with a communication schedule.
        ready, passed: replies to the current barrier, by worker; moved, stored: by executor.
    """

    def __init__(
        self, spec: RunSpec, environment: Environment, condition: Condition, on_gone: Callable[[str, str], None]
    ) -> None:
        """Start without reports; `on_gone(node, reason)` is called for agents that cannot be reached."""
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
        """The worker of each executor, by name."""
        return {name_of(executor): executor.place for executor in self.spec.executors}

    @property
    def sources(self) -> set[Place]:
        """Workers that have a spout executor."""
        return {place for name, place in self.places.items() if name in self.spouts}

    @property
    def all_exhausted(self) -> bool:
        """Whether all sources have reached the end of a finite input."""
        return self.exhausted >= self.sources

    def handle_report(self, node: str, report: Report) -> None:
        """Record a worker's report; reports of other epochs or barriers are ignored.

        Raises:
            RunError: the report is impossible; it is not recorded.
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
        self.condition.notify()

    def forget_barrier(self, number: int) -> None:
        """Discard the replies to the previous barrier; from now on only those to barrier `number` count."""
        self._barrier = number
        self.ready: dict[Place, Ready] = {}
        self.passed: set[Place] = set()
        self.stored: dict[str, tuple[str, Stored]] = {}
        self.moved: dict[str, tuple[str, Moved]] = {}

    def add_workers(self, places: Iterable[Place]) -> None:
        """Add workers to the specification."""
        self.spec = replace(self.spec, workers=(*self.spec.workers, *places))
        self._known = frozenset(self.spec.workers)

    def apply_moves(self, moves: Iterable[Move]) -> None:
        """Record the new slots of moved executors."""
        to = {move.executor: move.to for move in moves}
        executors = tuple(replace(e, place=to.get(name_of(e), e.place)) for e in self.spec.executors)
        self.spec = replace(self.spec, executors=executors)

    @property
    def named_ports(self) -> Mapping[str, int]:
        """Ports of the workers, by `node/slot`."""
        return {worker_name(place): port for place, port in self.ports.items()}

    async def start(self, message: Message, nodes: Collection[str]) -> None:
        """Start this epoch on more nodes; later messages go to them, too."""
        await self.send(message, nodes)
        self.nodes |= set(nodes)

    async def send(self, message: Message | Callable[[str], Message], nodes: Collection[str] | None = None) -> None:
        """Send a message, or the one returned by `message(node)`, to the agents of all nodes or of `nodes`.

        If an agent is gone, this never returns: the failure ends the epoch and cancels this call.
        """

        async def send(node: str) -> None:
            try:
                await self._environment.send(node, message if isinstance(message, Message) else message(node))
            except RunError as fault:
                self._on_gone(node, str(fault))
                await asyncio.Event().wait()

        await asyncio.gather(*(send(node) for node in sorted(self.nodes if nodes is None else nodes)))

    async def wait_for_all(
        self, done: Callable[[], Collection[T]], wanted: Collection[T], seconds: float, otherwise: str
    ) -> None:
        """Wait until `done()` contains all of `wanted`: workers, or executors by name.

        Raises:
            RunError: timeout after `seconds`; the message starts with `otherwise` and names what is missing.
        """
        if not await self.wait_within(seconds, lambda: set(done()) >= set(wanted)):
            raise RunError(f"{otherwise} within {seconds:.0f} s; missing: {join_names(set(wanted) - set(done()))}")

    async def wait_within(self, seconds: float, condition: Callable[[], bool]) -> bool:
        """Wait up to `seconds` for `condition`; return whether it holds."""
        return await self.condition.wait_until(asyncio.get_running_loop().time() + seconds, condition)


def join_names(names: Iterable[Place | str]) -> str:
    """Format workers or executors for a message."""
    return ", ".join(sorted(worker_name(name) if isinstance(name, Place) else name for name in names))


class WorkerProfiles:
    """Sampled stacks of workers; `of` maps each node that has replied to its profiles, in order of arrival."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        self.of: dict[str, tuple[Profile, ...]] = {}

    def record(self, node: str, report: Report) -> None:
        """Record a `Profiled` report; ignore all others."""
        if isinstance(report, Profiled):
            self.of[node] = report.profiles
            self._condition.notify()
