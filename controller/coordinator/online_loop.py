"""Loop of an online scheduler in a run: from reports to observations, questions, answers, and what is carried out.

Monitor -> Rescheduling -> Decider -> Rescheduling -> CheckpointLoop.carry
"""

import asyncio
import gc
import sys
from collections.abc import Coroutine, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import NoReturn, Protocol

from agents.protocol import Gates, MoveToPlace, Progress, Pulse, Report, RunSpec, Slot, Vitals
from controller.coordinator.decider import Answer
from controller.coordinator.event_log import EventLog
from controller.coordinator.interfaces import Carried, CarryWaves, Environment, RunListener, Scaling, Waves
from controller.coordinator.monitor import Monitor
from controller.coordinator.rescheduling import (
    Answered,
    AskForRevision,
    Broke,
    Carry,
    Changed,
    DecisionNote,
    Effect,
    Event,
    Fail,
    Rescheduling,
    RevisionFinished,
    RevisionSettings,
    Sampled,
    Stopping,
    Wait,
)
from controller.coordinator.waves import WaveLoads, waves_of
from inventory.errors import RunError
from inventory.times import NS
from scheduler.online.observation import Happening, Observation
from scheduler.online.revision import Revision, Rhythm
from scheduler.problem import Problem
from workloads.traffic import Traffic

SWITCH_S = 0.001
"""Time after which a thread that observes lets the event loop run; Python's own is 5 ms."""


@contextmanager
def brief_pauses() -> Iterator[None]:
    """Keep the event loop responsive beside threads that observe, and the garbage that they make.

    What is there at the start is exempt from garbage collection until the end: a collection, which holds up all
    threads, would take 40 ms at 10,000 executors, half of it for modules and the topology.
    """
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(interval_s)


class AsksScheduler(Protocol):
    """Interface to the scheduler; see `controller.coordinator.decider.Decider`."""

    async def start(self) -> None:
        """Start it in advance."""
        ...

    async def ask(self, problem: Problem, observation: Observation) -> Answer:
        """Ask a question; `problem` has the topology, the cluster, and the workers of other topologies."""
        ...

    async def close(self) -> None:
        """End it."""
        ...


@dataclass(frozen=True)
class OnlineSettings:
    """The online scheduler of a run.

    Attributes:
        decider: the scheduler.
        rhythm: its windows, and when it is asked.
        revision: rules for its revisions.
        problem: the topology, the cluster, and the workers of other topologies.
        ends_s: planned end of the sources, in seconds since their start.
        clocks: node -> clock in Hz that the placement at the start asks for.
        fixed: component -> why it keeps its number of executors, for those that do.
    """

    decider: AsksScheduler
    rhythm: Rhythm
    revision: RevisionSettings
    problem: Problem
    ends_s: float
    clocks: Mapping[str, int]
    fixed: Mapping[str, str] = field(default_factory=dict)


class OnlineLoop(RunListener):
    """Loop of one run; `now` is in seconds since the sources started."""

    def __init__(
        self,
        settings: OnlineSettings,
        environment: Environment,
        event_log: EventLog,
        carry: CarryWaves,
        withheld: Set[str],
    ) -> None:
        """Prepare the loop; `carry` moves executors in waves, and nodes in `withheld` are not available at first."""
        self._settings, self._environment, self._event_log, self._carry = settings, environment, event_log, carry
        settle_s = settings.revision.settle_s
        self._monitor = Monitor(settings.rhythm, settings.problem.cluster, settle_s, settings.clocks)
        self._machine = Rescheduling(settings.revision, settings.rhythm, settings.ends_s, settings.problem)
        self._events: asyncio.Queue[Event | RunError | None] = asyncio.Queue()
        self._carrying: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._without_effect: set[int] = set()  # numbers of the revisions whose effect has not been measured yet
        self._clocks: dict[str, int | None] = dict(settings.clocks)
        self._start_ns: int | None = None
        self._is_broken = False
        self._until_s = inf if settings.rhythm.first_s is None else settings.rhythm.first_s
        for node in withheld:
            self._monitor.available(node, False)

    # --- what happens to the topology -----------------------------------------------------------------------

    def epoch_started(self, spec: RunSpec, start_ns: int) -> None:
        self._start_ns = start_ns
        self._monitor.start_epoch(spec, self._now_s)
        if self._is_broken:
            self._is_broken = False
            self.changed("recovered", "")
        else:
            self._events.put_nowait(None)

    def reported(self, node: str, report: Report) -> None:
        if self._start_ns is None:
            return
        if isinstance(report, Pulse):
            self._monitor.answered(node, self._now_s)
        elif isinstance(report, Progress | Vitals) and report.at_ns is not None:
            ahead_ns = self._environment.offset(node).offset_ns
            self._monitor.record(node, report, (report.at_ns - ahead_ns - self._start_ns) / NS)

    def moved(self, places: Mapping[str, Slot]) -> None:
        self._monitor.placed(places, self._now_s)

    def scaled(self, spec: RunSpec) -> None:
        self._monitor.scaled(spec, self._now_s)

    def scheduled(self, gates: Gates) -> None:
        self._monitor.scheduled(gates, self._now_s)

    def stored(self, nbytes: Mapping[str, int]) -> None:
        for executor, size in nbytes.items():
            self._monitor.stored(executor, size)

    def changed(self, what: Happening, subject: str) -> None:
        if what in ("node_up", "node_returned", "node_down", "node_lost"):
            self._monitor.available(subject, what in ("node_up", "node_returned"))
        if self._start_ns is not None:
            self._monitor.changed(self._now_s, what, subject)
            self._events.put_nowait(Changed(self._now_s, what))

    def broke(self, why: str) -> None:
        if self._start_ns is not None:
            self._is_broken = True
            self._events.put_nowait(Broke(self._now_s, why))

    def revise(self) -> None:
        self._events.put_nowait(Changed(self._now_s, "revise"))

    async def stopping(self) -> None:
        self._events.put_nowait(Stopping(self._now_s))
        await self._observe()

    async def traffic(self) -> Traffic | None:
        observation = await self._observe() if self._start_ns is not None else None
        return observation.as_traffic if observation is not None and observation.traffic.edges else None

    # --- the loop ---------------------------------------------------------------------------------------------

    async def run(self) -> NoReturn:
        """Run the loop until it is cancelled.

        Raises:
            RunError: the scheduler cannot be started, gave a wrong answer, or was late too often.
        """
        try:
            with brief_pauses():
                await self._settings.decider.start()
                while True:
                    event = await self._next_event()
                    for effect in self._machine.step(event):
                        self._perform(effect)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._settings.decider.close()

    async def _next_event(self) -> Event:
        event: Event | RunError | None = None
        while event is None:  # None: the sources have started, so that the time is known
            until = None if self._start_ns is None or self._until_s == inf else self._until_s + self._start_ns / NS
            try:
                async with asyncio.timeout_at(until):
                    event = await self._events.get()
            except TimeoutError:
                # Not before that time, by which rounding could miss it.
                at_s = max(self._now_s, self._until_s)
                return Sampled(at_s, await self._observe())
        if isinstance(event, RunError):
            raise event
        if isinstance(event, Broke) and self._carrying is not None:
            # The machine ends the revision itself.
            self._carrying.cancel()
            self._carrying = None
        return event

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Wait(until_s=until_s):
                self._until_s = until_s
            case AskForRevision(number=number, observation=observation):
                self._event_log.asked(self._now_s)
                self._start_task(self._ask(number, observation))
            case Carry():
                self._event_log.revision_begun(effect.number)
                self._carrying = self._start_task(self._carry_out(effect))
            case DecisionNote():
                self._event_log.revision(effect, self._settings.revision.how)
                if effect.past is not None:
                    self._monitor.remember(effect.past)
                    self._without_effect.add(effect.number)
            case Fail(reason=reason):
                raise RunError(reason)

    async def _observe(self) -> Observation:
        """Return the observation of the window that ends now, made in a thread: large ones take more than a second."""
        observation = self._monitor.conclude(await asyncio.to_thread(self._monitor.window(self._now_s).observe))
        self._event_log.observed(observation)
        for past in observation.history:
            if past.effect is not None and past.number in self._without_effect:
                self._without_effect.remove(past.number)
                self._event_log.measured_after(past.number, past.effect)
        return observation

    async def _ask(self, number: int, observation: Observation) -> Event:
        answer = await self._settings.decider.ask(self._settings.problem, observation)
        now_s = self._now_s
        decided_s = now_s - observation.at_s
        fault = answer.fault
        for component in () if answer.revision is None else answer.revision.parallelism:
            if component in self._settings.fixed:
                reason = self._settings.fixed[component]
                fault = f"the scheduler's revision scales {component!r}, which keeps its number of executors: {reason}"
        self._event_log.decided(number, answer.revision, observation.at_s, decided_s)
        return Answered(
            now_s,
            number,
            self._monitor.version,
            self._monitor.epoch,
            answer.revision,
            decided_s,
            answer.cpu_s,
            answer.late,
            fault,
        )

    async def _carry_out(self, carry: Carry) -> Event:
        """Raise clocks, change placement, schedule and numbers of executors, and lower clocks when that has settled."""
        revision = carry.revision
        rising = {node: hz for node, hz in revision.frequencies.items() if self._rises(node, hz)}
        falling = {node: hz for node, hz in revision.frequencies.items() if node not in rising}
        unset = await self._set_clocks(rising)
        carried = Carried("done")
        if revision.moves or revision.schedule is not None or revision.parallelism:
            waves = await self._waves(revision, carry.wave)
            added = {executor.name: slot for executor, slot in revision.added.items()}
            scaling = Scaling(revision.parallelism, added)
            carried = await self._carry(carry.number, waves, revision.schedule, scaling)
        if falling and carried.outcome == "done":
            if revision.moves or revision.parallelism:
                await asyncio.sleep(self._settings.revision.settle_s)
            unset |= await self._set_clocks(falling)
        if carried.outcome == "done" and unset:
            return RevisionFinished(
                self._now_s, "unset", "; ".join(f"{node}: {why}" for node, why in sorted(unset.items()))
            )
        if carried.outcome == "broken":
            # `Broke` ends the revision, and this step.
            await asyncio.Event().wait()
            raise asyncio.CancelledError
        return RevisionFinished(self._now_s, carried.outcome, carried.why)

    async def _waves(self, revision: Revision, most: int) -> Waves:
        if not revision.moves:
            return ()
        now = await self._observe()
        nodes = self._settings.problem.cluster.nodes
        loads = WaveLoads(
            {name: executor.load for name, executor in now.executors.items()},
            {name: node.load for name, node in now.nodes.items() if node.load is not None},
            {node.id: node.cpu_points for node in nodes},
            {node.id: node.max_load for node in nodes if node.max_load is not None},
        )
        moves = [MoveToPlace(move.executor.name, move.target) for move in revision.moves]
        return await asyncio.to_thread(waves_of, moves, now.places, loads, most)

    def _rises(self, node: str, hz: int | None) -> bool:
        now = self._clocks.get(node)
        return (inf if hz is None else hz) > (inf if now is None else now)

    async def _set_clocks(self, clocks: Mapping[str, int | None]) -> dict[str, str]:
        """Set clocks; return node -> description for those that came out otherwise."""
        if not clocks:
            return {}
        unset = dict(await self._environment.set_clocks(clocks))
        self._clocks |= clocks
        asked = {node: hz for node, hz in self._clocks.items() if hz is not None}
        self._monitor.asked_clocks(asked, self._now_s)
        return unset

    def _start_task(self, step: Coroutine[None, None, Event]) -> asyncio.Task[None]:
        async def forward() -> None:
            try:
                self._events.put_nowait(await step)
            except RunError as fault:
                self._events.put_nowait(fault)

        task = asyncio.create_task(forward())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @property
    def _now_s(self) -> float:
        return asyncio.get_running_loop().time() - (self._start_ns or 0) / NS
