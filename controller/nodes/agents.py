"""Agents of all nodes of one run: started together, restarted one by one, ended together, their clocks synchronized.

The next run of a campaign takes over agents that a run leaves without a failure, with their channels, unless something
of that run remains on their nodes.

Clock offsets are measured throughout a run and sent to the nodes, with bounds on the error. Workers stamp rows in the
controller's time, using the last offset sent to their node. The error of a stamp is bounded by the difference between
that offset and the next measurement, plus the bound of the measurement. The error of a latency between two nodes is
bounded by the sum of both nodes' bounds.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from agents.host.facts import gather
from agents.protocol import (
    CpusSet,
    Equip,
    Equipped,
    Failed,
    Finish,
    Finished,
    IdleBaseline,
    Idled,
    Launch,
    Launched,
    Message,
    MeterIdle,
    Report,
    RestoreCpus,
    Reuse,
    Reused,
    SetCpus,
    Write,
    Written,
)
from agents.trace import AGENT, TraceWriter
from analysis.records.file_types import ClockDifference
from controller.coordinator.interfaces import Offset
from controller.host.condition import run_to_end, run_together
from controller.nodes.agent_channel import AgentChannel, AgentKilledError
from controller.nodes.transport import Transport
from inventory.errors import RunError
from inventory.values import EnergyModel, MeterLag

STARTS = 3
"""Number of attempts to start an agent that is killed while it starts."""

GRACE_S = 30.0
"""Time for an agent to reply to a request, in addition to the time that the requested work takes."""

REUSE_S = 10.0
"""Timeout for an agent to take over another run, which takes milliseconds; a new agent starts in a second."""

AgentRequest = MeterIdle | SetCpus | RestoreCpus | Reuse | Equip | Launch | Write | Finish
"""Requests with exactly one reply."""

AgentReply = Idled | CpusSet | Reused | Equipped | Launched | Written | Finished

A = TypeVar("A", Idled, CpusSet, Reused, Equipped, Launched, Written, Finished)

CLOCKS_EVERY_S = 2.0
"""Interval between two updates of the nodes' offsets."""


@dataclass(frozen=True)
class RunNode:
    """A node of the run.

    Attributes:
        address: its data address.
        transport: its transport.
        power, meter_lag: its energy model and the lag of its meter, if known.
        shared: whether it shares its machine with other nodes, although its address does not show it.
    """

    address: str
    transport: Transport
    power: EnergyModel | None = None
    meter_lag: MeterLag | None = None
    shared: bool = False


class AgentListener(Protocol):
    """Receiver of reports; called in the event loop and must not block."""

    def handle_report(self, node: str, report: Report) -> None:
        """Handle a report of a node."""
        ...

    def handle_agent_gone(self, node: str, reason: str) -> None:
        """Handle the loss of a node's agent."""
        ...


class KeptAgents:
    """Agents between two runs on one cluster; the caller ends those that are left."""

    def __init__(self) -> None:
        self._channels: dict[str, AgentChannel] = {}

    def keep(self, channel: AgentChannel) -> None:
        """Keep an agent for the next run; what it reports until then is dropped."""
        channel.attach(_drop, _drop)
        self._channels[channel.node] = channel

    def take(self, node: str) -> AgentChannel | None:
        """Return the agent of a node, which is not kept any more; None if there is none."""
        return self._channels.pop(node, None)

    async def end_all(self, but: Collection[str] = ()) -> None:
        """End the agents of all nodes but these."""
        ended = [self._channels.pop(node) for node in [*self._channels] if node not in but]
        await run_to_end(asyncio.gather(*(channel.close() for channel in ended)))


def _drop(_node: str, _what: Report | str) -> None:
    """Drop a report, or the loss of an agent: its channel knows that it is gone."""


class Agents:
    """All agents of one run, as an asynchronous context manager.

    Entering takes over the kept agents, and starts the others, in parallel; if one cannot be started, all others are
    ended and RunError is raised. Leaving without an exception keeps them for the next run, and ends them otherwise.
    Reports and losses go to the listener; before there is one, they are queued.

    Attributes:
        members: the nodes by id.
        replaced: node -> why its kept agent was not used again.
    """

    def __init__(
        self,
        members: Mapping[str, RunNode],
        campaign: str,
        on_start: Callable[[str, int], None],
        kept: KeptAgents | None = None,
    ) -> None:
        """Prepare the agents.

        Args:
            members: by node id.
            campaign: name of the campaign, for the agents' logs.
            on_start: called with (node, pid) as soon as an agent on this host exists.
            kept: agents between runs; None: all agents are of this run alone.
        """
        self.members = members
        self.replaced: dict[str, str] = {}
        self._kept = kept
        self._listener: AgentListener | None = None
        self._pending_reports: list[tuple[str, Report | str]] = []
        self._facts: dict[str, Mapping[str, Any]] = {}
        self._offsets: dict[str, Offset] = {}
        self._pending_replies: dict[tuple[str, type[AgentReply]], asyncio.Future[Any]] = {}
        self._clock = gather()["clock"]
        self._campaign, self._on_start = campaign, on_start
        self._channels: dict[str, AgentChannel] = {}

    async def __aenter__(self) -> Self:
        try:
            if self._kept is not None:
                # The run is to find nothing on other nodes, whatever ran before it.
                await self._kept.end_all(self.members)
            await run_together(self._take_or_start(node) for node in self.members)
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._kept is not None and kind is None:
            # Those that are gone are left to be closed.
            for node, channel in [*self._channels.items()]:
                if channel.is_open:
                    self._kept.keep(self._channels.pop(node))
        await self._close()

    def listen(self, listener: AgentListener) -> None:
        """Set the listener, and pass on everything queued since the start."""
        self._listener = listener
        pending, self._pending_reports = self._pending_reports, []
        for node, what in pending:
            self._deliver(node, what)

    @property
    def facts(self) -> Mapping[str, Mapping[str, Any]]:
        """Facts last reported by each agent about its node."""
        return self._facts

    @property
    def share_clock(self) -> bool:
        """True if all nodes have the same monotonic clock."""
        clocks = {facts.get("clock") for facts in self._facts.values()}
        return len(clocks) == 1 and None not in clocks

    def offset(self, node: str) -> Offset:
        """Return the last known offset of the node's monotonic clock; exactly 0 if it is the controller's own clock.

        Raises:
            RunError: it is another clock, and the agent has not replied to a heartbeat yet.
        """
        if self._clock is not None and self._facts[node].get("clock") == self._clock:
            return Offset(0, 0)
        offset = self._channels[node].offset or self._offsets.get(node)
        if offset is None:
            raise RunError(f"the clock of node {node} is not known yet")
        self._offsets[node] = offset
        return offset

    async def send(self, node: str, message: Message) -> None:
        """Send one message to a node.

        Raises:
            RunError: its agent is gone.
        """
        await self._channels[node].send(message)

    async def meter_idle(self, node: str, settle_s: float, measure_s: float) -> IdleBaseline:
        """Return the power that a node draws without workers, or the reason why it is unknown.

        Args:
            node: id of a node on which no run has workers.
            settle_s, measure_s: time to settle, and time to measure.
        """
        try:
            request = MeterIdle(settle_s=settle_s, measure_s=measure_s)
            return (await self.request_reply(node, request, Idled, settle_s + 2 * measure_s)).baseline
        except RunError as fault:
            return IdleBaseline(reason=str(fault))

    async def request_reply(self, node: str, request: AgentRequest, kind: type[A], seconds: float) -> A:
        """Send a request and return the reply; one request for this kind of reply per node at a time.

        Args:
            node: id of the node.
            request: the request.
            kind: type of the reply.
            seconds: timeout, in addition to `GRACE_S`.

        Raises:
            RunError: the agent is gone, fails, or does not reply in time.
        """
        reply = self._pending_replies[node, kind] = asyncio.get_running_loop().create_future()
        try:
            await self.send(node, request)
            async with asyncio.timeout(seconds + GRACE_S):
                answer: A = await reply
        except TimeoutError:
            raise RunError(f"the agent of {node} did not answer in time") from None
        finally:
            del self._pending_replies[node, kind]
        return answer

    async def restart(self, node: str) -> None:
        """End what is left of a node's agent and start a new one.

        Raises:
            RunError: it cannot be started.
        """
        await self._channels[node].close()
        await self._start(node, self._open_and_measure_clock)

    async def _take_or_start(self, node: str) -> None:
        """Take over the kept agent of a node if it is as good as a new one, or else start one."""
        channel = None if self._kept is None else self._kept.take(node)
        if channel is not None:
            self._channels[node] = channel
            why_not = await self._reuse(channel)
            if not why_not:
                return
            self.replaced[node] = why_not
            await channel.close()
        await self._start(node, self._open)

    async def _reuse(self, channel: AgentChannel) -> str:
        """Have an agent take over this run; return why it cannot, empty if it has."""
        node = channel.node
        # Whatever else comes before the reply belongs to the last run.
        channel.attach(self._resolve, self._resolve)
        if channel.gone_reason:
            return channel.gone_reason
        reuse = Reuse(folder=self.members[node].transport.folder)
        try:
            async with asyncio.timeout(REUSE_S):
                reused = await self.request_reply(node, reuse, Reused, 0.0)
        except TimeoutError:
            return f"the agent of {node} did not answer within {REUSE_S:g} s"
        except RunError as fault:
            return channel.gone_reason or str(fault)
        if reused.leftovers:
            return f"the agent of {node} was not clean after its last run: {'; '.join(reused.leftovers)}"
        channel.attach(self._deliver, self._deliver)
        self._facts[node] = reused.facts
        return ""

    async def _start(self, node: str, step: Callable[[str], Awaitable[None]]) -> None:
        """Start an agent with `step`; retry when it is killed meanwhile."""
        for attempt in range(1, STARTS + 1):
            try:
                await step(node)
            except AgentKilledError:
                if attempt == STARTS:
                    raise
            else:
                return

    async def _open_and_measure_clock(self, node: str) -> None:
        await self._open(node)
        try:
            await self._channels[node].first_pulse()
        except AgentKilledError:
            await self._channels[node].close()
            raise

    async def _open(self, node: str) -> None:
        channel = self._channels[node] = AgentChannel(node, self.members[node].transport, self._deliver, self._deliver)
        try:
            member = self.members[node]
            on_start = partial(self._on_start, node)
            await channel.open(member.address, self._campaign, on_start, member.power, member.meter_lag, member.shared)
        except BaseException:
            await run_to_end(channel.close())
            raise
        self._facts[node] = channel.facts

    def _deliver(self, node: str, what: Report | str) -> None:
        """Deliver a report, or the reason why an agent is gone."""
        self._resolve(node, what)
        # Coordinators finish runs themselves.
        if isinstance(what, AgentReply) and not isinstance(what, Finished):
            return
        if self._listener is None:
            self._pending_reports.append((node, what))
        elif isinstance(what, str):
            self._listener.handle_agent_gone(node, what)
        else:
            self._listener.handle_report(node, what)

    def _resolve(self, node: str, what: Report | str) -> None:
        """Resolve the request to a node that this answers, or that gets no answer any more."""
        if not isinstance(what, str | Failed | AgentReply):
            return
        for (asked, kind), answer in self._pending_replies.items():
            if asked != node or answer.done():
                continue
            if isinstance(what, str | Failed):
                answer.set_exception(RunError(what if isinstance(what, str) else what.reason))
            elif isinstance(what, kind):
                answer.set_result(what)

    async def _close(self) -> None:
        # A cancelled close would leave processes behind; it takes a few seconds at most.
        await run_to_end(asyncio.gather(*(channel.close() for channel in self._channels.values())))


class ClockSync:
    """Offsets of all nodes whose clock is not the controller's.

    Attributes:
        used: node -> the offset that it uses.
        bounds: node -> largest error bound of its offsets so far.
    """

    def __init__(self, measure: Callable[[str], Offset], folder: Path, run: str) -> None:
        """Start without measurements.

        Args:
            measure: returns a node's current offset; raises RunError when it is unknown.
            folder: folder for trace files; measurements are written to the table `clock`.
            run: the run's id.
        """
        self._measure, self._folder, self._run = measure, folder, run
        self._writers: dict[str, TraceWriter] = {}
        self.used: dict[str, int] = {}
        self.bounds: dict[str, int] = {}

    def current(self, node: str) -> Offset:
        """Return the offset that a node uses, and its largest error bound so far.

        Raises:
            RunError: it is unknown.
        """
        if node not in self.used:
            self._note(node, self._measure(node))
        return Offset(self.used[node], self.bounds[node])

    async def run(self, nodes: Collection[str], send: Callable[[str, int], Awaitable[None]]) -> None:
        """Measure offsets and send them to the nodes regularly; never return. Unreachable nodes are skipped.

        Args:
            nodes: all nodes of the run.
            send: sends a node its offset in ns; raises RunError when it cannot be reached.
        """
        while True:
            await asyncio.sleep(CLOCKS_EVERY_S)
            for node in nodes:
                with suppress(RunError):
                    offset = self._measure(node)
                    if offset.bound_ns:
                        await send(node, offset.offset_ns)
                        self._note(node, offset)

    def differences(self) -> list[ClockDifference]:
        """Return all pairs of nodes whose clocks may differ, in order."""
        pairs = (
            ClockDifference(a, b, self.bounds[a] + self.bounds[b]) for a, b in combinations(sorted(self.bounds), 2)
        )
        return [pair for pair in pairs if pair.bound_ns]

    def close(self) -> None:
        """Write the measurements."""
        for writer in self._writers.values():
            writer.close()

    def _note(self, node: str, offset: Offset) -> None:
        was_off_ns = abs(offset.offset_ns - self.used.get(node, offset.offset_ns)) + offset.bound_ns
        self.used[node], self.bounds[node] = offset.offset_ns, max(self.bounds.get(node, 0), was_off_ns)
        if offset.bound_ns:
            self._write(node, offset)

    def _write(self, node: str, offset: Offset) -> None:
        if node not in self._writers:
            self._writers[node] = TraceWriter(self._folder, self._run, node, AGENT)
        before_ns = time.monotonic_ns()
        utc_ns = time.time_ns()
        now_ns = (before_ns + time.monotonic_ns()) // 2 + offset.offset_ns
        self._writers[node].add("clock", now_ns, utc_ns, offset.offset_ns, offset.bound_ns)
