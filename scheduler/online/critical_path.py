"""Longest path over the executors of a topology by compute delay, and how far each executor is from being on it.

Er-Stream's critical path (C19). Every executor of a component sends to every one of the next (global grouping: to
the first one); edges cost nothing, since their delays are not measured.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from workloads.topology import Executor, Topology


@dataclass(frozen=True)
class CriticalPath:
    """The longest path.

    Attributes:
        seconds: sum of compute delays along it.
        slack: executor -> seconds by which the longest path through it is shorter.
        delay: executor -> compute delay in seconds.
    """

    seconds: float
    slack: Mapping[Executor, float]
    delay: Mapping[Executor, float]

    def critical(self, tolerance: float) -> list[Executor]:
        """Return the executors whose slack is at most `tolerance` times the path, in the topology's order."""
        most = max(tolerance, ROUNDING) * self.seconds
        return [executor for executor, slack in self.slack.items() if slack <= most]

    def performance(self, executors: Iterable[Executor]) -> float:
        """Return p_slack of the node with `executors`: the share of full speed below which it becomes critical."""
        here = list(executors)
        delay = fsum(self.delay[executor] for executor in here)
        slack = min((self.slack[executor] for executor in here), default=0.0)
        return delay / (delay + slack) if delay + slack else 1.0


ROUNDING = 1e-12
"""Slack, as a share of the path, that is only the rounding of sums."""


def critical_path(topology: Topology, delay: Mapping[Executor, float]) -> CriticalPath:
    """Return the longest path of a topology without cycles.

    Args:
        topology: the topology.
        delay: executor -> compute delay in seconds; 0 where it is missing.
    """
    delays = {executor: delay.get(executor, 0.0) for executor in topology.executors}
    upstream: dict[str, list[tuple[str, bool]]] = {component.id: [] for component in topology.components}
    downstream: dict[str, list[tuple[str, bool]]] = {component.id: [] for component in topology.components}
    for source, destination, entry in topology.links():
        upstream[destination.id].append((source.id, entry.grouping == "global"))
        downstream[source.id].append((destination.id, entry.grouping == "global"))
    before: dict[Executor, float] = {}
    after: dict[Executor, float] = {}
    through: dict[str, float] = {}
    for component in topology.order:
        executors = topology.executors_of(component)
        to_all = max((through[source] for source, first in upstream[component] if not first), default=0.0)
        to_first = max((through[source] for source, _ in upstream[component]), default=0.0)
        before |= {executor: to_all if executor.index else to_first for executor in executors}
        through[component] = max(before[executor] + delays[executor] for executor in executors)
    seconds = max(through.values())
    whole: dict[str, float] = {}
    first_one: dict[str, float] = {}
    for component in reversed(topology.order):
        executors = topology.executors_of(component)
        rest = _longest(downstream[component], whole, first_one)
        after |= dict.fromkeys(executors, rest)
        whole[component] = max(delays[executor] for executor in executors) + rest
        first_one[component] = delays[executors[0]] + rest
    slack = {e: max(0.0, seconds - (before[e] + delays[e] + after[e])) for e in topology.executors}
    return CriticalPath(seconds, slack, delays)


def _longest(links: Sequence[tuple[str, bool]], whole: Mapping[str, float], first_one: Mapping[str, float]) -> float:
    """Return the longest rest of a path over `links`: through any executor, or through the first one only."""
    return max((first_one[to] if only_first else whole[to] for to, only_first in links), default=0.0)
