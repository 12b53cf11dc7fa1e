"""Order of topologies in Storm 2.x: users furthest below their guarantee first.

After Apache Storm, `storm-server/.../resource/strategies/priority/{Default,FIFO}SchedulingPriorityStrategy.java`.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from scheduler.ras.ledger import Amount, ResourceLedger
from workloads.topology import Topology

Score = tuple[int, Fraction]
"""A number, or a value larger than any number."""

NOTHING_LEFT = (1, Fraction(0))
NO_TOPOLOGY = (2, Fraction(0))


def by_importance(topology: Topology) -> tuple[int, float, str]:
    """Return the sort key of the topologies of one user: highest priority first, then earliest submission."""
    return topology.priority, -topology.uptime_s, topology.id


def scheduling_order(
    ledger: ResourceLedger, topologies: Sequence[Topology], guarantees: Mapping[str, Amount], fifo: bool = False
) -> list[Topology]:
    """Return all topologies, running ones included, in scheduling order.

    Args:
        ledger: source of capacity and demands.
        topologies: in any order.
        guarantees: user -> guaranteed amount; 0 of both for the others.
        fifo: beyond the guarantees, users with the youngest topology come first.
    """
    queues: dict[str, list[Topology]] = {}
    for topology in sorted(topologies, key=by_importance, reverse=True):
        queues.setdefault(topology.user, []).append(topology)
    users = sorted(queues)
    assigned = dict.fromkeys(users, Amount(0, 0))
    left = ledger.total
    order: list[Topology] = []
    scores = {
        user: _score(ledger, queues[user], assigned[user], guarantees.get(user, Amount(0, 0)), left, fifo)
        for user in users
    }
    while len(order) < len(topologies):
        users.sort(key=scores.__getitem__)  # stable: equal users keep their order
        user = users[0]
        topology = queues[user].pop()
        order.append(topology)
        request = ledger.requested(topology)
        assigned[user] = assigned[user].plus(request)
        left = Amount(left.cpu - request.cpu, left.memory - request.memory)
        for user in users:
            guarantee = guarantees.get(user, Amount(0, 0))
            scores[user] = _score(ledger, queues[user], assigned[user], guarantee, left, fifo)
    return order


def _score(
    ledger: ResourceLedger, queue: Sequence[Topology], assigned: Amount, guarantee: Amount, left: Amount, fifo: bool
) -> Score:
    """Return how far the user's next topology would exceed the guarantee, as a share of the remaining resources."""
    if not queue:
        return NO_TOPOLOGY
    score: Score = NOTHING_LEFT
    if left.cpu > 0 and left.memory > 0:
        request = ledger.requested(queue[-1])
        score = (
            0,
            max(
                Fraction(assigned.cpu + request.cpu - guarantee.cpu, left.cpu),
                Fraction(assigned.memory + request.memory - guarantee.memory, left.memory),
            ),
        )
    if fifo and score >= (0, Fraction(0)):
        return 0, Fraction(min(topology.uptime_s for topology in queue))
    return score
