"""Parallelism by true rates: what executors process per second of CPU time, and what reaches them at the sources' rate.

The rule of DS2: Kalavri, Liagouris, Hoffmann, Dimitrova, Forshaw, Roscoe, "Three steps is all you need: fast, accurate,
automatic scaling decisions for distributed streaming dataflows", OSDI 2018. Useful time is the CPU time of an executor
with its share of transport, which (de)serialises. Ours: executors that get copies, limits of what cannot be scaled, and
a margin for noise.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, fsum
from typing import Any

from scheduler.online.elastic import divides
from scheduler.online.observation import Observation, ObservedExecutor
from workloads.scaling import MOST_SCALED
from workloads.topology import MOST_EXECUTORS, Component, Executor, Topology

MARGIN = 0.05
"""Relative difference that changes nothing: rates and loads are measured."""

LEAST = 1e-6
"""Smaller rates (tuples/s) and loads (CPU points) count as none, since they say nothing about others."""

MOST_GROWTH = 1e6
"""Rates of components that are further behind than that are not known any better."""


@dataclass(frozen=True)
class Requirement:
    """Demand of a component at the rate that its sources are due to emit.

    Attributes:
        size: executors that run.
        growth: rate that reaches it at that rate, relative to the present one; 1 if unknown.
        shared: tuples/s that its executors divide.
        copied: tuples/s that reach each of its executors.
        true_rate: mean tuples per second of CPU time of an executor; None if nothing was processed.
        scalable: whether more executors have less work each.
    """

    size: int
    growth: float
    shared: float
    copied: float
    true_rate: float | None
    scalable: bool

    def executors(self, target: float) -> float | None:
        """Return how many executors, as a fraction, use `target` of a core each; None if unknown or impossible."""
        if not self.scalable or not self.true_rate:
            return None
        room = target * self.true_rate - self.copied
        return min(self.shared / room, float(MOST_EXECUTORS)) if room > 0 else None

    def wanted(self, target: float) -> int:
        """Return the number of executors that use at most `target` of a core each, the present one within a margin."""
        needed = self.executors(target)
        if needed is None:
            return self.size
        if needed > self.size * (1 + MARGIN):
            return max(self.size, min(ceil(needed), MOST_SCALED))
        return min(self.size, max(ceil(needed * (1 + MARGIN)), 1))

    def points(self, size: int) -> float | None:
        """Return the CPU points of an executor if there are `size`; None if unknown."""
        return None if not self.true_rate else 100 * (self.shared / size + self.copied) / self.true_rate

    def account(self, target: float) -> dict[str, Any]:
        """The same in JSON types."""
        return {
            "executors": self.size,
            "rate": self.shared + self.copied * self.size,
            "growth": self.growth,
            "true_rate": self.true_rate,
            "needed": self.executors(target),
        }


def requirements(topology: Topology, observation: Observation) -> dict[str, Requirement]:
    """Return component -> what it needs, in topological order.

    Args:
        topology: the topology with the parallelism that runs.
        observation: the last window.
    """
    links: dict[tuple[str, str], float] = {}
    for edge in observation.traffic.edges:
        link = Executor.named(edge.source).component, Executor.named(edge.destination).component
        links[link] = links.get(link, 0.0) + edge.tuples_per_s
    due, emitted = observation.source.due_per_s or 0.0, observation.source.emitted_per_s or 0.0
    lag = due / emitted if min(due, emitted) > LEAST else 1.0
    grown: dict[str, float] = {}  # component -> growth of what it emits
    requirement_of: dict[str, Requirement] = {}
    for name in topology.order:
        component = topology.component[name]
        executors = [observation.executors[executor.name] for executor in topology.executors_of(name)]
        if component.kind == "spout":
            required = _of_spout(executors, lag)
        else:
            required = _of_bolt(component, executors, links, grown)
        busiest = max(executor.load for executor in executors)
        # What cannot be scaled emits no more than its busiest executor can.
        limit = MOST_GROWTH if required.scalable or busiest < LEAST else max(100 / busiest, 1.0)
        grown[name] = min(required.growth, limit)
        requirement_of[name] = required
    return requirement_of


def _of_spout(executors: Sequence[ObservedExecutor], lag: float) -> Requirement:
    emitted = fsum(executor.emitted_per_s for executor in executors)
    true_rate = _true_rate((executor.emitted_per_s, executor.load) for executor in executors)
    return Requirement(len(executors), lag, emitted * lag, 0.0, true_rate, scalable=False)


def _of_bolt(
    component: Component,
    executors: Sequence[ObservedExecutor],
    links: Mapping[tuple[str, str], float],
    grown: Mapping[str, float],
) -> Requirement:
    # Rates are known per pair of components; where one stream is divided and another one copied, all count as divided.
    divided = {entry.source for entry in component.inputs if entry.grouping != "all"}
    shared = copied = 0.0
    for source in dict.fromkeys(entry.source for entry in component.inputs):
        rate = links.get((source, component.id), 0.0) * grown[source]
        if source in divided:
            shared += rate
        else:
            copied += rate / len(executors)
    processed = fsum(executor.processed_per_s for executor in executors)
    total = shared + copied * len(executors)
    growth = total / processed if min(total, processed) > LEAST else 1.0
    true_rate = _true_rate((executor.processed_per_s, executor.load) for executor in executors)
    return Requirement(len(executors), growth, shared, copied, true_rate, divides(component))


def _true_rate(executors: Iterable[tuple[float, float]]) -> float | None:
    """Return the mean rate of executors (rate, load) per second of CPU time; None if none of them worked."""
    rates = [100 * rate / load for rate, load in executors if min(rate, load) > LEAST]
    return fsum(rates) / len(rates) if rates else None
