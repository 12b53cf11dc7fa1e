"""What went wrong in an epoch: several processes complain about one fault, and one of them knows the cause."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Literal, NoReturn, TypeVar

from agents.protocol import AGENT
from inventory.errors import RunError

T = TypeVar("T")

SETTLE_S = 1.0
"""How long the cause is awaited after a consequence: broken links are often reported before what broke them."""

GATHER_S = 0.1
"""How long further causes are awaited after the first: what dies together is mended together."""

Kind = Literal["said", "died", "gone", "lost"]
"""Somebody said what is wrong; a worker died without a word; an agent, or what it held, is gone; a link is lost."""


@dataclass(frozen=True)
class Failure:
    """One complaint.

    Attributes:
        node: where; empty for the controller itself.
        slot: whose; `AGENT` for the agent.
        reason: in words.
        log: path on the node of the log that tells more, or empty.
        kind: what it is.
    """

    node: str
    slot: int
    reason: str
    log: str = ""
    kind: Kind = "said"

    @property
    def mendable(self) -> bool:
        """Whether a new start can mend it; what a process says itself would only happen again."""
        return self.kind != "said"

    def __str__(self) -> str:
        if not self.node:
            return self.reason
        who = f"node {self.node}" if self.slot == AGENT else f"node {self.node}, slot {self.slot}"
        return f"{who}: {self.reason}"


class RunFailedError(RunError):
    """A run failed because of what its nodes reported.

    Attributes:
        failure: the one that is told.
    """

    def __init__(self, failure: Failure, others: int = 0, given_up: str = "") -> None:
        more = f" (and {others} more)" if others else ""
        super().__init__(f"{failure}{more}{given_up and f'; {given_up}'}")
        self.failure = failure


class BrokenError(Exception):
    """An epoch cannot go on, but the next one may.

    Attributes:
        cause: why.
        at_s: when the first complaint arrived, on the event loop's clock.
    """

    def __init__(self, cause: Failure, at_s: float) -> None:
        super().__init__(str(cause))
        self.cause, self.at_s = cause, at_s


class Failures:
    """All complaints of one epoch, in order of arrival."""

    def __init__(self, mending: bool) -> None:
        """Expect some; `mending` says whether a mendable one may be mended."""
        self._mending = mending
        self._all: list[Failure] = []
        self._first_s = 0.0
        self._happened, self._explained = asyncio.Event(), asyncio.Event()

    def add(self, failure: Failure) -> None:
        """Note one."""
        if not self._all:
            self._first_s = asyncio.get_running_loop().time()
        self._all.append(failure)
        self._happened.set()
        if failure.kind != "lost":
            self._explained.set()

    def unmendable(self) -> "Failures":
        """Those that are told whatever else is mended, or even if nothing were left to mend."""
        others = Failures(self._mending)
        for failure in self._all:
            if not failure.mendable:
                others.add(failure)
        return others

    async def watch(self) -> NoReturn:
        """Wait for a failure, give others a moment to arrive, and raise the likeliest cause.

        Raises:
            BrokenError: all that happened can be mended.
            RunFailedError: something cannot.
        """
        await self._happened.wait()
        try:
            async with asyncio.timeout(SETTLE_S):
                await self._explained.wait()
                await asyncio.sleep(GATHER_S)
        except TimeoutError:
            pass
        cause = min(self._all, key=lambda failure: ("said", "died", "gone", "lost").index(failure.kind))
        if self._mending and cause.mendable:
            raise BrokenError(cause, self._first_s)
        raise RunFailedError(cause, len(self._all) - 1)


async def explained(step: Awaitable[T]) -> T:
    """Await a step that fails when a node is gone; who watches for failures has the time to hear of that first.

    Raises:
        RunError: what the step raised, when nothing explained it.
    """
    try:
        return await step
    except RunError:
        await asyncio.sleep(2 * SETTLE_S)
        raise
