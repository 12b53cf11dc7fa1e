"""Strategy of Storm 1.1: nodes are sorted once per topology, executors take the first place that fits.

After Apache Storm v1.1.1, `storm-core/.../strategies/scheduling/DefaultResourceAwareStrategy.java`. There is no
backtracking; Storm continues with the other executors before it gives up, which does not change the outcome.
"""

from collections.abc import Sequence

from scheduler.ras.attempt import Attempt
from workloads.topology import Executor


def place_in_order(attempt: Attempt, nodes: Sequence[int], order: Sequence[Executor]) -> bool:
    """Place the executors of `order` on `nodes`. Return whether all found a place."""
    first = dict.fromkeys(
        {kind.number for kind in attempt.kinds.values()}, 0
    )  # nodes before it have no room for the kind
    for executor in order:
        kind = attempt.kinds[executor.component]
        place = None
        while first[kind.number] < len(nodes) and place is None:
            place = attempt.first_fit(nodes[first[kind.number]], kind)
            if place is None:
                first[kind.number] += 1
        if place is None:
            return False
        attempt.put(nodes[first[kind.number]], place, kind, executor)
    return True
