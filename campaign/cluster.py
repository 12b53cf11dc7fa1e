"""The agents of all nodes of one run: started together, told together, ended together."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self

from agents.facts import gather
from agents.protocol import Failed, Message, Report
from agents.trace import AGENT
from campaign.channel import Channel
from campaign.clock import Offset
from campaign.failures import Failure, Failures
from campaign.transport import Transport
from inventory.errors import RunError


@dataclass(frozen=True)
class Member:
    """A node of the run: its data address and how it is reached."""

    address: str
    transport: Transport


class Agents:
    """All agents of one run, as an asynchronous context manager that always ends them.

    Entering starts them in parallel and raises RunError, with none left, when one cannot be started. What fails
    later is noted in `failures`; all other reports go to `listener`, once there is one.
    """

    def __init__(self, members: Mapping[str, Member], campaign: str, on_start: Callable[[str, int], None]) -> None:
        """Describe them.

        Args:
            members: by node id.
            campaign: its name, for the agents' logs.
            on_start: gets (node, pid) of an agent on this host as soon as it exists.
        """
        self.members = members
        self.failures = Failures()
        self.listener: Callable[[str, Report], None] | None = None
        self._campaign, self._on_start = campaign, on_start
        self._channels = {
            node: Channel(node, member.transport, self._take, self._gone) for node, member in members.items()
        }

    async def __aenter__(self) -> Self:
        try:
            await self._all(
                channel.open(self.members[node].address, self._campaign, partial(self._on_start, node))
                for node, channel in self._channels.items()
            )
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    @property
    def facts(self) -> dict[str, Mapping[str, Any]]:
        """What each agent said of its node."""
        return {node: channel.facts for node, channel in self._channels.items()}

    @property
    def share_clock(self) -> bool:
        """Whether all nodes read one and the same monotonic clock."""
        clocks = {facts.get("clock") for facts in self.facts.values()}
        return len(clocks) == 1 and None not in clocks

    @property
    def offsets(self) -> dict[str, Offset]:
        """Node -> its monotonic clock against ours; exactly 0 where it is the same clock.

        Raises:
            RunError: a node has another clock and has not answered a heartbeat yet.
        """
        ours = gather()["clock"]
        found: dict[str, Offset] = {}
        for node, channel in self._channels.items():
            if ours is not None and channel.facts.get("clock") == ours:
                found[node] = Offset(0, 0)
            elif channel.offset is not None:
                found[node] = channel.offset
            else:
                raise RunError(f"the clock of node {node} is not known yet")
        return found

    async def tell(self, message: Message | Callable[[str], Message]) -> None:
        """Send one message to all nodes, or to each the one that is made for its id.

        Raises:
            RunError: an agent is gone.
        """
        await self._all(
            channel.send(message if isinstance(message, Message) else message(node))
            for node, channel in self._channels.items()
        )

    def _take(self, node: str, report: Report) -> None:
        if isinstance(report, Failed):
            self.failures.add(Failure(node, report.slot, report.reason, report.log))
        elif self.listener is not None:
            self.listener(node, report)

    def _gone(self, node: str, reason: str) -> None:
        self.failures.add(Failure(node, AGENT, reason))

    async def _all(self, steps: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Do all steps; when some fail, raise the first failure after all have ended."""
        for outcome in await asyncio.gather(*steps, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _close(self) -> None:
        # A closing that is cancelled half-way would leave processes behind; it takes a few seconds at most.
        await asyncio.shield(asyncio.gather(*(channel.close() for channel in self._channels.values())))
