"""Idle baseline of a machine before and after a run."""

from dataclasses import dataclass
from typing import Any

from agents.protocol import IdleBaseline
from inventory.documents import to_plain

MOST_DRIFT = 0.05
"""Accepted difference of the power after a run, as a share of the power before it."""

NOT_MEASURED = IdleBaseline(reason="it was not measured")


@dataclass(frozen=True)
class Idle:
    """Idle baseline of a machine before and after a run."""

    before: IdleBaseline = NOT_MEASURED
    after: IdleBaseline = NOT_MEASURED

    @property
    def watts(self) -> dict[str, float]:
        """Return domain -> its idle power: the mean of both values, or the known one."""
        known = [baseline.domains for baseline in (self.before, self.after) if baseline.watts is not None]
        return {
            domain: sum(each[domain] for each in known) / len(known)
            for domain in (known[0] if known else ())
            if all(domain in each for each in known)
        }

    @property
    def flags(self) -> tuple[str, ...]:
        """Return `unsteady` and `loaded` if either has them, and `drift` if they differ."""
        flags = [*self.before.flags, *self.after.flags]
        before, after = self.before.watts, self.after.watts
        if before is not None and after is not None and abs(after - before) > MOST_DRIFT * before:
            flags.append("drift")
        return tuple(dict.fromkeys(flags))

    @property
    def reason(self) -> str:
        """Return why the baseline is unknown, or an empty string."""
        return "" if self.watts else self.before.reason or self.after.reason

    def document(self) -> dict[str, Any]:
        """Return the content of `run.json`."""
        return {"before": _document(self.before), "after": _document(self.after), "flags": list(self.flags)}


def _document(baseline: IdleBaseline) -> dict[str, Any]:
    return {**to_plain(baseline), "reason": baseline.reason or None}
