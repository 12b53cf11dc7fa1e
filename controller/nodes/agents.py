"""The agents of all nodes of one run: started together, started again one by one, ended together."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from agents.host.facts import gather
from agents.protocol import CpusSet, Failed, IdleBaseline, Idled, Message, MeterIdle, Report, RestoreCpus, SetCpus
from controller.coordinator.clock_offset import Offset
from controller.host.condition import all_of
from controller.nodes.agent_channel import AgentChannel, AgentKilledError
from controller.nodes.transport import Transport
from inventory.energy_model import EnergyModel, MeterLag
from inventory.errors import RunError

STARTS = 3
"""How many agents of a node may be killed while they begin before it counts as one that cannot be started."""

GRACE_S = 30.0
"""What an agent may take to answer a question, beyond the time that its work takes."""

Question = MeterIdle | SetCpus | RestoreCpus
"""What a node answers once, whether it has a run or not."""

Answer = Idled | CpusSet

A = TypeVar("A", Idled, CpusSet)


@dataclass(frozen=True)
class Member:
    """A node of the run.

    Attributes:
        address: its data address.
        transport: how it is reached.
        power, meter_lag: its energy model and its meter's lag, if they are known.
        shared: whether it shares its machine with other nodes although its address does not say so.
    """

    address: str
    transport: Transport
    power: EnergyModel | None = None
    meter_lag: MeterLag | None = None
    shared: bool = False


class Listener(Protocol):
    """Who hears of agents; called in the event loop, must not block."""

    def take(self, node: str, report: Report) -> None:
        """A report of a node."""
        ...

    def gone(self, node: str, reason: str) -> None:
        """The agent of a node is gone."""
        ...


class Agents:
    """All agents of one run, as an asynchronous context manager that always ends them.

    Entering starts them in parallel and raises RunError, with none left, when one cannot be started. What they report,
    and that one is gone, is told to whoever listens, or waits for him.
    """

    def __init__(self, members: Mapping[str, Member], campaign: str, on_start: Callable[[str, int], None]) -> None:
        """Describe them.

        Args:
            members: by node id.
            campaign: its name, for the agents' logs.
            on_start: gets (node, pid) of an agent on this host as soon as it exists.
        """
        self.members = members
        self._listener: Listener | None = None
        self._unheard: list[tuple[str, Report | str]] = []
        self._facts: dict[str, Mapping[str, Any]] = {}
        self._offsets: dict[str, Offset] = {}
        self._asked: dict[str, asyncio.Future[Answer]] = {}
        self._clock = gather()["clock"]
        self._campaign, self._on_start = campaign, on_start
        self._channels: dict[str, AgentChannel] = {}

    async def __aenter__(self) -> Self:
        try:
            await all_of(self._begin(node, self._open) for node in self.members)
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    def listen(self, listener: Listener) -> None:
        """Let `listener` hear of everything, from the start on."""
        self._listener = listener
        unheard, self._unheard = self._unheard, []
        for node, what in unheard:
            self._hear(node, what)

    @property
    def facts(self) -> Mapping[str, Mapping[str, Any]]:
        """What each agent last said of its node."""
        return self._facts

    @property
    def share_clock(self) -> bool:
        """Whether all nodes read one and the same monotonic clock."""
        clocks = {facts.get("clock") for facts in self._facts.values()}
        return len(clocks) == 1 and None not in clocks

    def offset(self, node: str) -> Offset:
        """The node's monotonic clock against ours as last known; exactly 0 where it is the same clock.

        Raises:
            RunError: it is another clock, and the agent has not answered a heartbeat yet.
        """
        if self._clock is not None and self._facts[node].get("clock") == self._clock:
            return Offset(0, 0)
        found = self._channels[node].offset or self._offsets.get(node)
        if found is None:
            raise RunError(f"the clock of node {node} is not known yet")
        self._offsets[node] = found
        return found

    async def tell(self, node: str, message: Message) -> None:
        """Send one message to a node.

        Raises:
            RunError: its agent is gone.
        """
        await self._channels[node].send(message)

    async def meter_idle(self, node: str, settle_s: float, measure_s: float) -> IdleBaseline:
        """What a node draws without workers, or why that is not known; while no run has workers there.

        Args:
            node: which.
            settle_s, measure_s: how long it settles, and is metered.
        """
        try:
            question = MeterIdle(settle_s=settle_s, measure_s=measure_s)
            return (await self.ask(node, question, Idled, settle_s + 2 * measure_s)).baseline
        except RunError as fault:
            return IdleBaseline(reason=str(fault))

    async def ask(self, node: str, question: Question, kind: type[A], seconds: float) -> A:
        """What a node answers; one question at a time.

        Args:
            node: which.
            question: what it is told.
            kind: what that is answered with.
            seconds: what it may take, beyond `GRACE_S`.

        Raises:
            RunError: its agent is gone, fails, or does not answer in time.
        """
        asked = self._asked[node] = asyncio.get_running_loop().create_future()
        try:
            await self.tell(node, question)
            async with asyncio.timeout(seconds + GRACE_S):
                answer = await asked
        except TimeoutError:
            raise RunError(f"the agent of {node} did not answer in time") from None
        finally:
            del self._asked[node]
        if not isinstance(answer, kind):
            raise RunError(f"the agent of {node} answers {type(answer).__name__}, {kind.__name__} was expected")
        return answer

    async def restart(self, node: str) -> None:
        """Start the agent of a node anew; what is left of the old one ends.

        Raises:
            RunError: it cannot be started.
        """
        await self._channels[node].close()
        await self._begin(node, self._open_until_its_clock_is_known)

    async def _begin(self, node: str, step: Callable[[str], Awaitable[None]]) -> None:
        """Start an agent, and another one when it is killed meanwhile; `step` is what has to succeed."""
        for attempt in range(1, STARTS + 1):
            try:
                await step(node)
            except AgentKilledError:
                if attempt == STARTS:
                    raise
            else:
                return

    async def _open_until_its_clock_is_known(self, node: str) -> None:
        await self._open(node)
        try:
            await self._channels[node].first_pulse()
        except AgentKilledError:
            await self._channels[node].close()
            raise

    async def _open(self, node: str) -> None:
        channel = self._channels[node] = AgentChannel(node, self.members[node].transport, self._hear, self._hear)
        try:
            member = self.members[node]
            on_start = partial(self._on_start, node)
            await channel.open(member.address, self._campaign, on_start, member.power, member.meter_lag, member.shared)
        except BaseException:
            await asyncio.shield(channel.close())
            raise
        self._facts[node] = channel.facts

    def _hear(self, node: str, what: Report | str) -> None:
        """Pass on a report, or the reason why an agent is gone."""
        if isinstance(what, str | Failed | Idled | CpusSet):
            self._answer(node, what)
        if isinstance(what, Idled | CpusSet):
            return
        if self._listener is None:
            self._unheard.append((node, what))
        elif isinstance(what, str):
            self._listener.gone(node, what)
        else:
            self._listener.take(node, what)

    def _answer(self, node: str, what: str | Failed | Answer) -> None:
        answer = self._asked.get(node)
        if answer is not None and not answer.done():
            match what:
                case str() | Failed():
                    answer.set_exception(RunError(what if isinstance(what, str) else what.reason))
                case _:
                    answer.set_result(what)

    async def _close(self) -> None:
        # A closing that is cancelled half-way would leave processes behind; it takes a few seconds at most.
        await asyncio.shield(asyncio.gather(*(channel.close() for channel in self._channels.values())))
