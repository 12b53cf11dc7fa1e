"""Failures of an epoch: several processes may report one fault, and only one of the reports names its cause."""

import asyncio
import math
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Literal, NoReturn, get_args

from agents.protocol import AGENT
from controller.host.condition import run_watched
from inventory.errors import RunError

CAUSE_S = 1.0
"""Time to wait for the cause after a consequence: broken links are often reported before the fault behind them."""

GATHER_S = 0.1
"""Time to wait for further causes after the first, so that one recovery covers processes that died together."""

PAUSES_S = (0.0, 1.0, 2.0, 4.0, 8.0)
"""Minimum time from one recovery to the next, for recoveries without a new complete checkpoint in between: a fault that
lasts some seconds must not use up all recoveries."""

MOST_RECOVERIES = len(PAUSES_S)
"""Number of consecutive epochs that may break without a new complete checkpoint; the run fails at the next."""

Kind = Literal["reported", "died", "gone", "lost", "step"]
"""A process reported an error; a worker died without a report; an agent is gone; a link or a copy of state was lost; a
step of the controller failed. The likeliest cause is the first kind in this order."""


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
        """True if a restart can recover from it; an error that a process reported itself would only occur again."""
        return self.kind not in {"reported", "step"}

    def __str__(self) -> str:
        if not self.node:
            return self.reason
        who = f"node {self.node}" if self.slot == AGENT else f"node {self.node}, slot {self.slot}"
        return f"{who}: {self.reason}"


class RunFailedError(RunError):
    """A run, or a step of it, failed.

    Attributes:
        failure: the likeliest cause, which the message names.
    """

    def __init__(self, failure: Failure, others: int = 0, given_up: str = "") -> None:
        more = f" (and {others} more)" if others else ""
        super().__init__(f"{failure}{more}{given_up and f'; {given_up}'}")
        self.failure = failure


class EpochBrokenError(Exception):
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
        if failure.kind not in {"lost", "step"}:
            self._cause_known.set()

    def unrecoverable(self) -> "Failures":
        """Return the failures that no recovery clears."""
        others = Failures(self._recovers)
        for failure in self._all:
            if failure.kind == "reported":
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
        cause = min(self._all, key=lambda failure: get_args(Kind).index(failure.kind))
        if self._recovers and cause.recoverable:
            raise EpochBrokenError(cause, self._first_s)
        raise RunFailedError(cause, sum(failure.kind != "step" for failure in self._all if failure is not cause))

    async def run(self, steps: Awaitable[None]) -> None:
        """Await the steps of an epoch while watching for failures; the error of a step is a failure, too.

        A step often fails before the cause is reported, such as the loss of a node.

        Raises:
            BrokenError, RunFailedError: see `watch`.
        """

        async def recorded() -> None:
            try:
                await steps
            except RunFailedError as fault:
                self.add(fault.failure)
            except RunError as fault:
                self.add(Failure("", AGENT, str(fault), kind="step"))
            else:
                return
            await asyncio.Event().wait()

        await run_watched(recorded(), self.watch())


class RecoveryBackoff:
    """Consecutive recoveries of a run without a new complete checkpoint, and the pauses between them."""

    def __init__(self) -> None:
        """Start without recoveries."""
        self._consecutive, self._last_s = 0, -math.inf

    def count(self, cause: Failure, begins_again: bool) -> None:
        """Count a recovery; `begins_again`: a checkpoint has been completed since the one before.

        Raises:
            RunFailedError: there are too many in a row.
        """
        self._consecutive = 1 if begins_again else self._consecutive + 1
        if self._consecutive > MOST_RECOVERIES:
            raise RunFailedError(
                cause, given_up=f"given up after {MOST_RECOVERIES} recoveries without a new checkpoint"
            )

    async def wait(self) -> None:
        """Wait until the counted recovery may begin."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._last_s + PAUSES_S[self._consecutive - 1] - loop.time())
        self._last_s = loop.time()
