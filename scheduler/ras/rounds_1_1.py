"""One round of Storm 1.1: the user with the lowest usage is next, and one topology is evicted per failure.

After Apache Storm v1.1.1, `storm-core/.../scheduler/resource/{ResourceAwareScheduler,User}.java` and
`.../strategies/{priority,eviction}/Default*Strategy.java`. Shares are floating-point numbers, since the definition has
a tolerance. Our decision: a topology is tried at most five times in a round.
"""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence

from scheduler.ras.ledger import Amount, ResourceLedger
from scheduler.ras.rounds import ATTEMPTS, RoundResult, Stopped, attempted, not_enough, restore
from scheduler.ras.strategies import Recipe
from scheduler.ras.topology_order import by_importance
from scheduler.ras.units import ratio
from scheduler.toolkit.slots import waiting
from workloads.topology import Topology

MOST = sys.float_info.max
TIE = 0.0001
"""Pools whose usage differs by less count as equally used."""


class _User:
    """Guarantee and topologies of a user."""

    def __init__(self, name: str, guarantee: Amount, ledger: ResourceLedger, topologies: Sequence[Topology]) -> None:
        self.name = name
        self.guarantee = guarantee
        self._ledger = ledger
        self.pending: list[Topology] = []
        self.running: list[Topology] = []
        for topology in sorted(topologies, key=by_importance):
            complete = not waiting(topology, ledger.state.workers[topology.id])
            (self.running if complete else self.pending).append(topology)

    @property
    def used(self) -> tuple[float, float]:
        """Return CPU and memory in use relative to the guarantee; the largest float where nothing is guaranteed."""
        cpu = memory = 0
        for topology in self.running:
            request = self._ledger.requested(topology)
            cpu, memory = cpu + request.cpu, memory + request.memory
        return (
            ratio(cpu, self.guarantee.cpu) if self.guarantee.cpu else MOST,
            ratio(memory, self.guarantee.memory) if self.guarantee.memory else MOST,
        )

    @property
    def average(self) -> float:
        """Return the mean of both."""
        cpu, memory = self.used
        return cpu / 2 + memory / 2

    def share(self, total: Amount) -> float:
        """Return the guarantee as a share of the cluster, CPU and memory averaged."""
        cpu = ratio(self.guarantee.cpu, total.cpu) if total.cpu else 0.0
        memory = ratio(self.guarantee.memory, total.memory) if total.memory else 0.0
        return cpu / 2 + memory / 2

    def start(self, topology: Topology) -> None:
        """Move the topology from waiting to running."""
        self.pending.remove(topology)
        self.running.append(topology)
        self.running.sort(key=by_importance)

    def stop(self, topology: Topology) -> None:
        """Move the topology from running to waiting."""
        self.running.remove(topology)
        self.pending.append(topology)
        self.pending.sort(key=by_importance)


def _comes_before(user: _User, other: _User, total: Amount) -> bool:
    if abs(user.average - other.average) < TIE:
        return user.share(total) > other.share(total)
    return user.average < other.average


class RoundOfUsers:
    """A round in which users alternate."""

    def __init__(
        self, ledger: ResourceLedger, recipe: Recipe, topologies: Sequence[Topology], guarantees: Mapping[str, Amount]
    ) -> None:
        self._ledger = ledger
        self._recipe = recipe
        self._users = [
            _User(name, guarantees.get(name, Amount(0, 0)), ledger, [t for t in topologies if t.user == name])
            for name in sorted({topology.user for topology in topologies})
        ]
        self._owner = {
            topology.id: user for user in self._users for topology in topologies if topology.user == user.name
        }
        self._account = RoundResult()
        self._tried: Counter[str] = Counter()
        for user in self._users:
            for topology in user.running:
                self._account.messages[topology.id] = "Fully Scheduled"

    def run(self) -> RoundResult:
        """Place waiting topologies; update the ledger."""
        while (user := self._next_user()) is not None:
            topology = user.pending[0]
            self._account.order.append(topology.id)
            self._tried[topology.id] += 1
            self._schedule(user, topology)
        return self._account

    def _next_user(self) -> _User | None:
        """Return the user with the lowest usage of the pool; ties go to the larger share of the cluster."""
        total = self._ledger.total
        best: _User | None = None
        for user in self._users:
            if not user.pending:
                continue
            if best is None or _comes_before(user, best, total):
                best = user
        return best

    def _schedule(self, user: _User, topology: Topology) -> None:
        stopped: Stopped = []
        victims: list[Topology] = []
        while True:
            outcome = attempted(self._ledger, self._recipe, topology)
            if outcome.result == "placed":
                user.start(topology)
                self._account.evicted([victim.id for victim in victims], topology.id)
                self._account.note(topology.id, outcome, f"Running - {outcome.message}")
                for gone in victims:
                    if self._tried[gone.id] >= ATTEMPTS:
                        self._owner[gone.id].pending.remove(gone)
                return
            victim = self._victim(user, topology) if outcome.result == "short" else None
            if victim is None:
                break
            victims.append(victim)
            stopped.append((victim.id, self._ledger.evict(victim.id)))
            self._owner[victim.id].stop(victim)
        restore(self._ledger, stopped)
        for gone in victims:
            self._owner[gone.id].start(gone)
        user.pending.remove(topology)
        if outcome.result == "impossible":
            self._account.note(topology.id, outcome, f"Failed to schedule: {outcome.message}")
        else:
            self._account.note(topology.id, outcome, not_enough(self._ledger, topology, "", outcome))

    def _victim(self, user: _User, topology: Topology) -> Topology | None:
        """Return the running topology to evict, or None."""
        if not user.guarantee.cpu or not user.guarantee.memory:
            return None
        request = self._ledger.requested(topology)
        needs = (ratio(request.cpu, user.guarantee.cpu), ratio(request.memory, user.guarantee.memory))
        used = user.used
        within = 1.0 - used[0] >= needs[0] and 1.0 - used[1] >= needs[1]
        above = [other for other in self._users if other.running and other.average - 1.0 > 0.0]
        if above:
            other = max(above, key=lambda candidate: candidate.average)
            if within or other.average - 1.0 > needs[0] / 2 + needs[1] / 2 + (user.average - 1.0):
                return other.running[-1]
        if user.running and user.running[-1].priority > topology.priority:
            return user.running[-1]
        return None
