"""The idle baseline of a machine, before a run and after it, as results have it."""

from dataclasses import dataclass
from typing import Any

from agents.protocol import IdleBaseline
from inventory.documents import to_plain

MOST_DRIFT = 0.05
"""Of the power before the run, by which that after it may differ."""

NOT_MEASURED = IdleBaseline(reason="it was not measured")


@dataclass(frozen=True)
class Idle:
    """The idle baseline of a machine.

    Attributes:
        before, after: the run.
    """

    before: IdleBaseline = NOT_MEASURED
    after: IdleBaseline = NOT_MEASURED

    @property
    def watts(self) -> dict[str, float]:
        """Domain -> what it draws without work: the mean of both, or the one that is known."""
        known = [baseline.domains for baseline in (self.before, self.after) if baseline.watts is not None]
        return {
            domain: sum(each[domain] for each in known) / len(known)
            for domain in (known[0] if known else ())
            if all(domain in each for each in known)
        }

    @property
    def flags(self) -> tuple[str, ...]:
        """`unsteady` and `loaded` of either, and `drift` when they differ."""
        flags = [*self.before.flags, *self.after.flags]
        before, after = self.before.watts, self.after.watts
        if before is not None and after is not None and abs(after - before) > MOST_DRIFT * before:
            flags.append("drift")
        return tuple(dict.fromkeys(flags))

    @property
    def reason(self) -> str:
        """Why it is not known; empty when it is."""
        return "" if self.watts else self.before.reason or self.after.reason

    def document(self) -> dict[str, Any]:
        """For `run.json`."""
        return {"before": _document(self.before), "after": _document(self.after), "flags": list(self.flags)}


def _document(baseline: IdleBaseline) -> dict[str, Any]:
    return {**to_plain(baseline), "reason": baseline.reason or None}
