"""Workers of one epoch: slots of executors, reports of workers, messages to all of them, and steps taken together.

The steps lead from `Start` to running sources, and from `Stop` to the answer.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

from msgspec.structs import replace

from agents.protocol import (
    SILENCE_S,
    Connect,
    Connected,
    Division,
    Drained,
    ExecutorSpec,
    Exhausted,
    Gates,
    Go,
    Listening,
    Message,
    Moved,
    MoveToPlace,
    Passed,
    Precopied,
    Profile,
    Profiled,
    Ready,
    Report,
    RunSpec,
    Slot,
    SlotDone,
    Start,
    Stop,
    Stopped,
    Stored,
    WorkerReport,
)
from controller.coordinator.interfaces import Environment
from controller.coordinator.reports import ReportedWork, check_answers, check_positions, check_stored, check_worker
from controller.host.condition import Condition, run_together
from inventory.errors import RunError
from inventory.times import NS
from workloads.scaling import shared_anew
from workloads.topology import Executor

T = TypeVar("T", Slot, str)

START_S, CONNECT_S = 120.0, 30.0
"""Timeout of a step; the run fails when it is exceeded."""

CHECK_S = 1.0
"""Interval between two checks for reports."""

MOST_CHECKS = round(SILENCE_S / CHECK_S) + 2
"""Number of consecutive checks without a report after which an agent counts as gone.

Later than for one that is silent altogether, whose channel says so.
"""


def worker_name(place: Slot) -> str:
    """Return `node/slot`, the form in which messages name a worker.

    >>> worker_name(Slot("n1", 2))
    'n1/2'
    """
    return f"{place.node}/{place.index}"


def executor_name(executor: ExecutorSpec) -> str:
    """Return `component[index]`."""
    return f"{executor.component}[{executor.index}]"


def executor_places(spec: RunSpec) -> dict[str, Slot]:
    """Return the slot of every executor, by name."""
    return {executor_name(executor): executor.place for executor in spec.executors}


def links_of(spec: RunSpec) -> list[tuple[str, str]]:
    """Return (sender, receiver) of every link of the topology, by component."""
    components = spec.topology["components"]
    return [(entry["from"], component["id"]) for component in components for entry in component.get("inputs", ())]


def sources_in(spec: RunSpec) -> dict[str, int]:
    """Return the number of every executor of a spout, by name."""
    kinds = {component["id"]: component["kind"] for component in spec.topology["components"]}
    numbered = zip(spec.executors, spec.numbered, strict=True)
    return {executor_name(executor): number for executor, number in numbered if kinds[executor.component] == "spout"}


@dataclass
class CheckpointSnapshots:
    """Snapshots of one checkpoint.

    Attributes:
        barrier: its number.
        places, divisions: slots of all executors and division of the state of each component, at its barrier.
        stored: (node, report) of the snapshots that are on disk, by executor.
    """

    barrier: int
    places: Mapping[str, Slot]
    divisions: Mapping[str, Division] = field(default_factory=dict)
    stored: dict[str, tuple[str, Stored]] = field(default_factory=dict)

    @property
    def positions(self) -> dict[str, int]:
        """Records emitted, by spout executor."""
        return {name: report.position for name, (_, report) in self.stored.items() if report.position is not None}


class EpochWorkers:
    """All workers of an epoch and their reports.

    Attributes:
        spec: specification of the epoch, with its current workers and slots.
        reported: work that has been reported in all epochs.
        nodes: nodes whose agents have received `Start`.
        heard: nodes that have reported anything of the epoch since the set was last replaced.
        ports: ports of the workers that listen.
        connected, exhausted, stopped, drained: workers that have reached this state.
        seen: positions up to which rows of earlier epochs count, when `Go` was sent.
        slots: progress of the workers in time slots, in runs with a communication schedule.
        first_slot: time slot that counts as slot 0 of the schedule.
        next_gates: schedule that replaces the present one at the next round boundary; None: it stays.
        ready, passed: replies to the current barrier, by worker; precopied, moved: by executor.
        snapshots: snapshots of the last checkpoint, which workers may still store when they have passed its barrier.
    """

    def __init__(
        self,
        spec: RunSpec,
        environment: Environment,
        condition: Condition,
        reported: ReportedWork,
        on_gone: Callable[[str, str], None],
    ) -> None:
        """Start without reports; `on_gone(node, reason)` is called for agents that cannot be reached."""
        self.spec, self.reported = spec, reported
        self._environment, self.condition, self._on_gone = environment, condition, on_gone
        self.spouts = frozenset(sources_in(spec))
        self._known = frozenset(spec.workers)
        self.nodes: set[str] = set()
        self.heard: set[str] = set()
        self.ports: dict[Slot, int] = {}
        self.connected: set[Slot] = set()
        self.exhausted: set[Slot] = set()
        self.stopped: dict[Slot, Stopped] = {}
        self.drained: dict[Slot, Drained] = {}
        self.seen: Mapping[str, int] = {}
        self.slots: dict[Slot, SlotDone] = {}
        self.first_slot = 0
        self.next_gates: Gates | None = None
        self.snapshots = CheckpointSnapshots(0, {})
        self.forget_barrier(0)

    @property
    def workers(self) -> tuple[Slot, ...]:
        """All workers, those without executors included."""
        return self.spec.workers

    @property
    def places(self) -> dict[str, Slot]:
        """The worker of each executor, by name."""
        return executor_places(self.spec)

    @property
    def sources(self) -> set[Slot]:
        """Workers that have a spout executor."""
        return {place for name, place in self.places.items() if name in self.spouts}

    def are_spouts(self, components: Collection[str]) -> bool:
        """Return whether one of these components is a spout."""
        return any(Executor.named(name).component in components for name in self.spouts)

    @property
    def all_exhausted(self) -> bool:
        """True if all sources have reached the end of a finite input."""
        return self.exhausted >= self.sources

    def handle_report(self, node: str, report: Report) -> None:
        """Record a worker's report; reports of other epochs or barriers are ignored.

        Raises:
            RunError: the report is impossible; it is not recorded.
        """
        if getattr(report, "epoch", None) != self.spec.epoch:
            return
        if isinstance(report, WorkerReport):
            check_worker(Slot(node, report.slot), self._known)
        match report:
            case Listening(slot=slot, port=port):
                self.ports[Slot(node, slot)] = port
            case Connected(slot=slot):
                self.connected.add(Slot(node, slot))
            case Exhausted(slot=slot):
                self.exhausted.add(Slot(node, slot))
            case Stopped(slot=slot):
                check_positions(report.positions, self.spouts)
                self.stopped[Slot(node, slot)] = report
            case Drained(slot=slot):
                check_positions(report.positions, self.spouts)
                check_answers(report.answers, self.spec.run, self._environment.tables)
                self.drained[Slot(node, slot)] = report
            case SlotDone(slot=slot):
                self.slots[Slot(node, slot)] = report
            case Ready(slot=slot, barrier=self._barrier):
                self.ready[Slot(node, slot)] = report
            case Passed(slot=slot, barrier=self._barrier):
                self.passed.add(Slot(node, slot))
            case Stored(barrier=self.snapshots.barrier, executor=executor):
                check_stored(node, report, self.spec.run, self.snapshots.places, self._environment.tables)
                self.snapshots.stored[executor] = (node, report)
            case Precopied(barrier=self._barrier, executor=executor):
                self.precopied[executor] = report
            case Moved(barrier=self._barrier, executor=executor):
                self.moved[executor] = (node, report)
        self.condition.notify()

    def forget_barrier(self, number: int, store: bool = False) -> None:
        """Discard the replies to the previous barrier; from now on only those to barrier `number` count.

        Its snapshots replace those of the previous checkpoint with `store`.
        """
        self._barrier = number
        if store:
            self.snapshots = CheckpointSnapshots(number, self.places, self.spec.divisions)
        self.ready: dict[Slot, Ready] = {}
        self.passed: set[Slot] = set()
        self.precopied: dict[str, Precopied] = {}
        self.moved: dict[str, tuple[str, Moved]] = {}

    def add_workers(self, places: Collection[Slot]) -> None:
        """Add workers to the specification, before they start."""
        now_ns = round(asyncio.get_running_loop().time() * NS)
        for place in places:
            since_ns = now_ns + self._environment.offset(place.node).offset_ns
            self.reported.times.add_worker(self.spec.epoch, place, since_ns)
        self.spec = replace(self.spec, workers=(*self.spec.workers, *places))
        self._known = frozenset(self.spec.workers)

    def apply_moves(self, moves: Iterable[MoveToPlace]) -> None:
        """Record the new slots of moved executors."""
        to = {move.executor: move.to for move in moves}
        executors = tuple(replace(e, place=to.get(executor_name(e), e.place)) for e in self.spec.executors)
        self.spec = replace(self.spec, executors=executors)

    def apply_scaling(self, after: RunSpec) -> None:
        """Record the specification behind a barrier at which components have got other numbers of executors."""
        self.spec, sources = after, frozenset(sources_in(after))
        if sources != self.spouts:
            self.spouts, self.seen = sources, shared_anew(self.seen, sources)

    def follow(self, gates: Gates, first: int) -> None:
        """Record the communication schedule that all workers follow from time slot `first` on."""
        self.spec = replace(self.spec, gates=gates)
        self.first_slot, self.next_gates = first, None
        self.condition.notify()

    @property
    def named_ports(self) -> Mapping[str, int]:
        """Ports of the workers, by `node/slot`."""
        return {worker_name(place): port for place, port in self.ports.items()}

    async def join(self, nodes: Collection[str], sensors: tuple[str, ...], fresh: bool = False) -> None:
        """Start this epoch on more nodes, with `fresh` in new processes; later messages go to them, too."""
        await self.send(Start(spec=self.spec, sensors=sensors, fresh=fresh), nodes)
        self.nodes |= set(nodes)

    async def start(self, nodes: Collection[str], sensors: tuple[str, ...], fresh: bool = False) -> None:
        """Start all workers of the epoch, with `fresh` in new processes, and wait until they listen.

        Raises:
            RunError: inputs cannot be copied to a node, or a timeout.
        """
        await run_together(self._environment.supply(node) for node in sorted({place.node for place in self.workers}))
        await self.join(nodes, sensors, fresh)
        await self.wait_for_all(lambda: self.ports.keys(), self.workers, START_S, "the workers did not all start")

    async def connect(self) -> None:
        """Connect all workers to one another.

        Raises:
            RunError: a timeout.
        """
        await self.send(Connect(epoch=self.spec.epoch, ports=self.named_ports))
        await self.wait_for_all(lambda: self.connected, self.workers, CONNECT_S, "the workers did not all connect")

    async def start_sources(self, at_ns: int, seen: Mapping[str, int]) -> None:
        """Start the sources' schedules at `at_ns` on the controller's monotonic clock.

        `seen` are positions reached in earlier epochs, up to which rows count in the traces.
        """
        self.seen = seen

        def message(node: str) -> Go:
            offset_ns = self._environment.offset(node).offset_ns
            return Go(epoch=self.spec.epoch, at_ns=at_ns + offset_ns, offset_ns=offset_ns, seen=seen)

        await self.send(message)

    async def drain(self, due_ns: int, reached: Mapping[str, int]) -> None:
        """Stop the sources and wait until the topology has drained; the caller knows how long.

        Args:
            due_ns: time after the start of the sources up to which sources emit what is due.
            reached: spout executor -> position before which it must not stop; a source with a known end stops there.
        """
        await self.send(Stop(epoch=self.spec.epoch, due_ns=max(0, due_ns), positions=reached))
        workers = set(self.places.values())
        await self.condition.wait_until(None, lambda: self.drained.keys() >= workers)

    async def watch_reports(self) -> NoReturn:
        """Handle agents that answer heartbeats but report nothing of the epoch as gone; never return.

        An agent reports every second (`Vitals`), however busy its workers and sensors are. Checks are counted instead
        of seconds, so that a controller that was suspended itself counts one check only.
        """
        quiet: Counter[str] = Counter()
        while True:
            await asyncio.sleep(CHECK_S)
            heard, self.heard = self.heard, set()
            for node in sorted(self.nodes):
                quiet[node] = 0 if node in heard else quiet[node] + 1
                if quiet[node] >= MOST_CHECKS:
                    seconds = quiet.pop(node) * CHECK_S
                    reason = f"its agent answers heartbeats, but has reported nothing of the run for {seconds:.0f} s"
                    self._on_gone(node, reason)

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

    async def send_to(self, usable: Collection[str], message: Message) -> None:
        """Send a message to those nodes of this epoch that are `usable`; others count as gone."""

        async def send(node: str) -> None:
            try:
                await self._environment.send(node, message)
            except RunError as fault:
                self._on_gone(node, str(fault))

        await run_together(send(node) for node in sorted(self.nodes & set(usable)))

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


def join_names(names: Iterable[Slot | str]) -> str:
    """Format workers or executors for a message."""
    return ", ".join(sorted(worker_name(name) if isinstance(name, Slot) else name for name in names))


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
