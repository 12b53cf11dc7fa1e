"""What went wrong in a run: several processes complain about one fault, and one of them knows the cause."""

import asyncio
from dataclasses import dataclass

from agents.trace import AGENT
from inventory.errors import RunError

SETTLE_S = 1.0
"""How long further failures are awaited after the first: consequences are often reported before their cause."""

CONSEQUENCE = "the link to "
"""How a worker's complaint begins that has only lost its peer."""


@dataclass(frozen=True)
class Failure:
    """One complaint.

    Attributes:
        node: where.
        slot: whose; `AGENT` for the agent.
        reason: in words.
        log: path on the node of the log that tells more, or empty.
    """

    node: str
    slot: int
    reason: str
    log: str = ""

    @property
    def is_consequence(self) -> bool:
        """Whether it is likely to follow from another failure."""
        return self.slot != AGENT and self.reason.startswith(CONSEQUENCE)

    def __str__(self) -> str:
        who = f"node {self.node}" if self.slot == AGENT else f"node {self.node}, slot {self.slot}"
        return f"{who}: {self.reason}"


class RunFailedError(RunError):
    """A run failed because of what its nodes reported.

    Attributes:
        failure: the one that is told.
    """

    def __init__(self, failure: Failure, others: int) -> None:
        super().__init__(str(failure) + (f" (and {others} more)" if others else ""))
        self.failure = failure


class Failures:
    """All complaints of one run, in order of arrival."""

    def __init__(self) -> None:
        self._all: list[Failure] = []
        self._happened = asyncio.Event()

    def add(self, failure: Failure) -> None:
        """Note one."""
        self._all.append(failure)
        self._happened.set()

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return bool(self._all)

    async def watch(self) -> None:
        """Wait for a failure, give others a moment to arrive, and raise the likeliest cause.

        Raises:
            RunFailedError: sooner or later; this never returns.
        """
        await self._happened.wait()
        await asyncio.sleep(SETTLE_S)
        first = min(self._all, key=lambda failure: failure.is_consequence)
        raise RunFailedError(first, len(self._all) - 1)
