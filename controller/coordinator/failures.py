"""Failures of an epoch: several processes may report one fault, and only one of the reports names its cause."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Literal, NoReturn, TypeVar

from agents.protocol import AGENT
from inventory.errors import RunError

T = TypeVar("T")

CAUSE_S = 1.0
"""Time to wait for the cause after a consequence: broken links are often reported before the fault behind them."""

GATHER_S = 0.1
"""Time to wait for further causes after the first, so that one recovery covers processes that died together."""

Kind = Literal["reported", "died", "gone", "lost"]
"""A process reported an error; a worker died without a report; an agent or its files are gone; a link broke."""


@dataclass(frozen=True)
class Failure:
    """One report of a failure.

    Attributes:
        node: node of the failed process; empty for the controller itself.
        slot: slot of the worker; `AGENT` for the agent.
        reason: text for messages.
        log: path on the node of a log with details, or empty.
        kind: see `Kind`.
    """

    node: str
    slot: int
    reason: str
    log: str = ""
    kind: Kind = "reported"

    @property
    def recoverable(self) -> bool:
        """Whether a restart can recover from it; an error that a process reported itself would only occur again."""
        return self.kind != "reported"

    def __str__(self) -> str:
        if not self.node:
            return self.reason
        who = f"node {self.node}" if self.slot == AGENT else f"node {self.node}, slot {self.slot}"
        return f"{who}: {self.reason}"


class RunFailedError(RunError):
    """A run failed because of what its nodes reported.

    Attributes:
        failure: the likeliest cause, which the message names.
    """

    def __init__(self, failure: Failure, others: int = 0, given_up: str = "") -> None:
        more = f" (and {others} more)" if others else ""
        super().__init__(f"{failure}{more}{given_up and f'; {given_up}'}")
        self.failure = failure


class BrokenError(Exception):
    """An epoch cannot continue, but a recovery is possible.

    Attributes:
        cause: the likeliest cause.
        at_s: when the first failure was reported, on the event loop's clock.
    """

    def __init__(self, cause: Failure, at_s: float) -> None:
        super().__init__(str(cause))
        self.cause, self.at_s = cause, at_s


class Failures:
    """All failures of one epoch, in order of arrival."""

    def __init__(self, recovers: bool) -> None:
        """Start empty; `recovers` is whether the run can recover from failures."""
        self._recovers = recovers
        self._all: list[Failure] = []
        self._first_s = 0.0
        self._happened, self._cause_known = asyncio.Event(), asyncio.Event()

    def add(self, failure: Failure) -> None:
        """Record a failure."""
        if not self._all:
            self._first_s = asyncio.get_running_loop().time()
        self._all.append(failure)
        self._happened.set()
        if failure.kind != "lost":
            self._cause_known.set()

    def unrecoverable(self) -> "Failures":
        """Return the failures that no recovery clears."""
        others = Failures(self._recovers)
        for failure in self._all:
            if not failure.recoverable:
                others.add(failure)
        return others

    async def watch(self) -> NoReturn:
        """Wait for a failure, give related ones a moment to arrive, and raise the likeliest cause.

        Raises:
            BrokenError: recovery is possible from all failures.
            RunFailedError: it is not.
        """
        await self._happened.wait()
        try:
            async with asyncio.timeout(CAUSE_S):
                await self._cause_known.wait()
                await asyncio.sleep(GATHER_S)
        except TimeoutError:
            pass
        cause = min(self._all, key=lambda failure: ("reported", "died", "gone", "lost").index(failure.kind))
        if self._recovers and cause.recoverable:
            raise BrokenError(cause, self._first_s)
        raise RunFailedError(cause, len(self._all) - 1)


async def delay_error(step: Awaitable[T]) -> T:
    """Await a step that fails when a node is gone; delay its error so that `Failures.watch` can raise the cause first.

    Raises:
        RunError: the step's own error, when no cause was reported meanwhile.
    """
    try:
        return await step
    except RunError:
        await asyncio.sleep(2 * CAUSE_S)
        raise
