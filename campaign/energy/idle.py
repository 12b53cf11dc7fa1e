"""Idle baselines: each machine that has a meter is metered without workers, before a run and after it."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta, Struct

from agents.protocol import IdleBaseline
from campaign.cluster import Agents
from campaign.energy.machines import Machine
from inventory.documents import to_plain

MOST_DRIFT = 0.05
"""Of the power before the run, by which that after it may differ."""

SENSOR = "power"
"""Only campaigns with this sensor want to know."""

LONGEST_S = 3600.0


class IdleEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """How long machines settle and are metered before and after each run; `measure_s` 0: not at all."""

    settle_s: Annotated[float, Meta(ge=0, le=LONGEST_S)] = 10.0
    measure_s: Annotated[float, Meta(ge=0, le=LONGEST_S)] = 30.0


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


async def measure_idle(
    agents: Agents, machines: Sequence[Machine], entry: IdleEntry, lost: Collection[str] = ()
) -> dict[str, IdleBaseline]:
    """Meter all machines at once; return metered node -> its baseline.

    Args:
        agents: of all nodes.
        machines: which.
        entry: how long.
        lost: nodes that cannot be reached.
    """
    nodes = [machine.metered for machine in machines if machine.metered not in lost]
    found = await asyncio.gather(*(agents.meter_idle(node, entry.settle_s, entry.measure_s) for node in nodes))
    return dict(zip(nodes, found, strict=True))
