"""Parallelism that changes while a topology runs: what runs, what is wanted, and the revision in between."""

from collections.abc import Mapping
from math import fsum
from typing import Any

from scheduler.online.observation import Observation
from scheduler.online.revision import Revision
from scheduler.problem import Move, Slot
from workloads.scaling import MOST_SCALED, sizes_of
from workloads.topology import Component, Executor, Topology

BUSY, IDLE = 0.8, 0.3
"""Share of a core above which executors of a component are busy, and below which they are idle, on average."""

BUSY_WINDOWS, IDLE_WINDOWS = 3, 12
"""Windows in a row after which a component gets more or fewer executors."""


def wanted_sizes(topology: Topology) -> dict[str, int]:
    """Return component -> its parallelism."""
    return {component.id: component.parallelism for component in topology.components}


def divides(component: Component) -> bool:
    """Return whether more executors of a component have less work each.

    No for spouts, whose schedule is given, for components that only get copies or whose first executor gets all, and
    where senders choose the executor or route by two different keys.
    """
    kinds = {entry.grouping for entry in component.inputs}
    keys = {entry.fields for entry in component.inputs if entry.grouping == "fields"}
    fixed = kinds & {"direct", "global"} or len(keys) > 1
    return component.kind == "bolt" and not fixed and bool(kinds - {"all"})


def revision_to(topology: Topology, observation: Observation, slots: Mapping[Executor, Slot]) -> Revision:
    """Return the revision, without a reason, from what runs to these slots.

    Args:
        topology: the topology with the parallelism that is wanted.
        observation: the last window.
        slots: executor -> slot, for every executor of `topology`.
    """
    now = {Executor.named(name): slot for name, slot in observation.places.items()}
    sizes = sizes_of(observation.executors)
    staying = [executor for executor in topology.executors if executor in now]
    return Revision(
        moves=tuple(Move(topology.id, e, now[e], slots[e]) for e in staying if now[e] != slots[e]),
        parallelism={name: size for name, size in wanted_sizes(topology).items() if size != sizes[name]},
        added={executor: slots[executor] for executor in topology.executors if executor not in now},
    )


class BusyRule:
    """Parallelism by how busy the executors of a component are: a quarter more, or a fifth fewer."""

    def __init__(self) -> None:
        self._version = -1
        self._end_s = 0.0  # of the last window that counted
        self._busy: dict[str, float] = {}
        self._above: dict[str, int] = {}  # component -> windows in a row
        self._below: dict[str, int] = {}

    def sizes(self, topology: Topology, observation: Observation) -> dict[str, int]:
        """Count a window, and return component -> other parallelism.

        Windows that are not complete, and those that overlap the last one, do not count. After a change of the topology
        windows are counted anew.
        """
        if observation.version != self._version:
            self._version = observation.version
            self._above, self._below = {}, {}
        if not observation.complete or observation.since_s < self._end_s - observation.sample_s / 2:
            return {}
        self._end_s = observation.at_s
        sizes: dict[str, int] = {}
        for component in filter(divides, topology.components):
            name, size = component.id, component.parallelism
            points = fsum(observation.executors[executor.name].busy for executor in topology.executors_of(name))
            busy = self._busy[name] = points / 100 / size
            self._above[name] = self._above.get(name, 0) + 1 if busy > BUSY else 0
            self._below[name] = self._below.get(name, 0) + 1 if busy < IDLE else 0
            if self._above[name] >= BUSY_WINDOWS and size < MOST_SCALED:
                sizes[name] = min(-(-5 * size // 4), MOST_SCALED)
            elif self._below[name] >= IDLE_WINDOWS and size > 1:
                sizes[name] = 4 * size // 5
        return sizes

    @property
    def account(self) -> dict[str, Any]:
        """Counts so far beside its limits, in JSON types."""
        return {
            "limits": {"above": BUSY, "windows": BUSY_WINDOWS, "below": IDLE, "idle_windows": IDLE_WINDOWS},
            "components": {
                name: {"busy": busy, "above": self._above.get(name, 0), "below": self._below.get(name, 0)}
                for name, busy in self._busy.items()
            },
        }
