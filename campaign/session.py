"""One start of a topology on the agents: the steps of the control protocol, each awaited on all nodes.

    start -> connect -> go -> (mark, wait) -> stop -> finish

Every step ends early when something fails, with the likeliest cause, or when it takes longer than it may.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from agents.protocol import (
    Connect,
    Connected,
    Drained,
    Exhausted,
    Finish,
    Finished,
    Go,
    Listening,
    Mark,
    Message,
    Place,
    Progress,
    Report,
    RunSpec,
    Start,
    Stop,
)
from campaign.cluster import Agents
from inventory.errors import RunError
from workloads.rates import NS

START_S = 120.0
CONNECT_S = 30.0
DRAIN_S = 120.0
FINISH_S = 30.0
"""How long a step may take before the run is given up."""

LEAD_NS = 200_000_000
"""Sources start so much later than the message that says so, for it to reach all nodes."""


class Sample(NamedTuple):
    """What goes through the topology now: tuples per second into the sinks, and their median latency."""

    tuples_per_s: float | None
    latency_p50_ms: float | None


class Session:
    """From `Start` to `Finished`."""

    def __init__(self, agents: Agents, spec: RunSpec, sensors: tuple[str, ...]) -> None:
        """Prepare it; `spec.executors` says which workers there are to be."""
        self._agents, self._spec, self._sensors = agents, spec, sensors
        self._workers = {executor.place for executor in spec.executors}
        components = {c["id"]: c["kind"] for c in spec.topology["components"]}
        self._sources = {e.place for e in spec.executors if components[e.component] == "spout"}
        self._ports: dict[Place, int] = {}
        self._connected: set[Place] = set()
        self._exhausted: set[Place] = set()
        self._drained: dict[Place, Drained] = {}
        self._finished: set[str] = set()
        self._progress: dict[Place, tuple[float, Progress]] = {}
        self._rates: dict[Place, tuple[float, int | None]] = {}
        self._news = asyncio.Event()
        agents.listener = self._take

    @property
    def exhausted(self) -> bool:
        """Whether all sources have come to the end of a finite input."""
        return self._exhausted >= self._sources

    async def start(self) -> None:
        """Have all workers started and listening."""
        await self._tell(Start(spec=self._spec, sensors=self._sensors))
        await self._until(lambda: self._ports.keys() >= self._workers, START_S, "the workers did not all start")

    async def connect(self) -> None:
        """Have all workers linked to one another."""
        ports = {f"{place.node}/{place.slot}": port for place, port in self._ports.items()}
        await self._tell(Connect(epoch=self._spec.epoch, ports=ports))
        await self._until(lambda: self._connected >= self._workers, CONNECT_S, "the workers did not all connect")

    async def go(self) -> int:
        """Have the sources start; return when they do, in nanoseconds of our monotonic clock."""
        offsets = self._agents.offsets
        at_ns = time.monotonic_ns() + LEAD_NS
        await self._tell(lambda node: Go(epoch=self._spec.epoch, at_ns=at_ns + offsets[node].offset_ns))
        return at_ns

    async def wait_until(self, at_ns: int) -> None:
        """Return at `at_ns` of our monotonic clock, or earlier when the sources are exhausted."""
        seconds = (at_ns - time.monotonic_ns()) / NS
        await self._until(lambda: self.exhausted, max(0.0, seconds), None)

    async def mark(self, kind: str) -> int:
        """Have the event written into all traces; return when it was sent, in ns of our monotonic clock."""
        now_ns = time.monotonic_ns()
        await self._tell(Mark(epoch=self._spec.epoch, kind=kind))
        return now_ns

    async def stop(self) -> None:
        """Have the sources end and the topology drain."""
        await self._tell(Stop(epoch=self._spec.epoch))
        await self._until(lambda: self._drained.keys() >= self._workers, DRAIN_S, "the topology did not drain")

    async def finish(self) -> None:
        """Have the workers exit and all trace files closed."""
        await self._tell(Finish(epoch=self._spec.epoch))
        nodes = self._agents.members.keys()
        await self._until(lambda: self._finished >= nodes, FINISH_S, "the agents did not all finish")

    @property
    def positions(self) -> Mapping[str, int]:
        """Spout executor -> records emitted, after `stop`."""
        return {name: at for drained in self._drained.values() for name, at in drained.positions.items()}

    @property
    def answers(self) -> list[tuple[str, str, str]]:
        """(table, node, path below the node's folder) of every answer part, after `stop`."""
        places = sorted(self._drained, key=lambda place: (place.node, place.slot))
        return [
            (table, place.node, path)
            for place in places
            for table, paths in sorted(self._drained[place].answers.items())
            for path in paths
        ]

    def sample(self) -> Sample:
        """The latest that workers have reported; None where nothing is known yet."""
        rates = [rate for rate, _ in self._rates.values()]
        latencies = sorted(p50 for _, p50 in self._rates.values() if p50 is not None)
        return Sample(
            sum(rates) if rates else None,
            latencies[len(latencies) // 2] / 1e6 if latencies else None,
        )

    def _take(self, node: str, report: Report) -> None:
        match report:
            case Finished():
                self._finished.add(node)
            case Listening(slot=slot, port=port):
                self._ports[Place(node, slot)] = port
            case Connected(slot=slot):
                self._connected.add(Place(node, slot))
            case Exhausted(slot=slot):
                self._exhausted.add(Place(node, slot))
            case Drained(slot=slot):
                self._drained[Place(node, slot)] = report
            case Progress(slot=slot):
                self._note(Place(node, slot), report)
                return
        self._news.set()

    def _note(self, place: Place, progress: Progress) -> None:
        now = time.monotonic()
        before = self._progress.get(place)
        self._progress[place] = (now, progress)
        if before is not None and now > before[0]:
            rate = (progress.sunk - before[1].sunk) / (now - before[0])
            self._rates[place] = (rate, progress.latency_p50_ns)

    async def _tell(self, message: Message | Callable[[str], Message]) -> None:
        await self._or_failure(self._agents.tell(message))

    async def _until(self, condition: Callable[[], bool], seconds: float, otherwise: str | None) -> None:
        """Wait until `condition`; after `seconds` go on, or raise RunError when `otherwise` says what is wrong."""

        async def wait() -> None:
            while not condition():
                self._news.clear()
                await self._news.wait()

        try:
            await asyncio.wait_for(self._or_failure(wait()), seconds)
        except TimeoutError:
            if otherwise is not None:
                raise RunError(f"{otherwise} within {seconds:.0f} s{self._missing()}") from None

    async def _or_failure(self, step: Awaitable[None]) -> None:
        """Await a step; a failure of any node ends it and is raised, in place of what the step itself raises."""
        doing = asyncio.ensure_future(step)
        watching = asyncio.ensure_future(self._agents.failures.watch())
        try:
            await asyncio.wait({doing, watching}, return_when=asyncio.FIRST_COMPLETED)
            if doing.done() and not self._agents.failures.any:
                doing.result()
            else:
                await watching
        finally:
            for task in (doing, watching):
                task.cancel()
            await asyncio.gather(doing, watching, return_exceptions=True)

    def _missing(self) -> str:
        for done in (self._ports.keys(), self._connected, self._drained.keys()):
            missing = sorted(f"{p.node}/{p.slot}" for p in self._workers - done)
            if missing:
                return f"; missing: {', '.join(missing)}"
        return ""
