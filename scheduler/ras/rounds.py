"""One round of Storm's resource-aware scheduling: topologies in order, each as a whole, evicting where necessary.

That of Storm 2.x evicts lower priorities; after Apache Storm,
`storm-server/.../scheduler/resource/ResourceAwareScheduler.java`. Users furthest below their guarantee come first
(`.../strategies/priority/{Default,FIFO}SchedulingPriorityStrategy.java`).

That of Storm 1.1 takes the user with the lowest usage next, and evicts one topology per failure; after Apache Storm
v1.1.1, `storm-core/.../scheduler/resource/{ResourceAwareScheduler,User}.java` and
`.../strategies/{priority,eviction}/Default*Strategy.java`. Its shares are floating-point numbers, since the definition
has a tolerance. Our decision: a topology is tried at most five times in a round.
"""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction

from scheduler.problem import Slot
from scheduler.ras.ledger import ResourceAmount, ResourceLedger, ratio
from scheduler.ras.strategies import AttemptOutcome, Recipe, amount_text
from scheduler.toolkit.slots import waiting
from workloads.topology import Executor, Topology

Score = tuple[int, Fraction]
"""A number, or a value larger than any number."""

NOTHING_LEFT = (1, Fraction(0))
NO_TOPOLOGY = (2, Fraction(0))


def by_importance(topology: Topology) -> tuple[int, float, str]:
    """Return the sort key of the topologies of one user: highest priority first, then earliest submission."""
    return topology.priority, -topology.uptime_s, topology.id


def scheduling_order(
    ledger: ResourceLedger, topologies: Sequence[Topology], guarantees: Mapping[str, ResourceAmount], fifo: bool = False
) -> list[Topology]:
    """Return all topologies, running ones included, in scheduling order.

    Args:
        ledger: source of capacity and demands.
        topologies: in any order.
        guarantees: user -> guaranteed amount; 0 of both for the others.
        fifo: beyond its guarantee, a user's topologies are ordered by age, the youngest first, and users by their
            youngest one. As in Storm, the order of the user's topologies stays so for the rest of the round.
    """
    queues: dict[str, list[Topology]] = {}
    for topology in sorted(topologies, key=by_importance, reverse=True):
        queues.setdefault(topology.user, []).append(topology)
    users = sorted(queues)
    assigned = dict.fromkeys(users, ResourceAmount(0, 0))
    left = ledger.total
    order: list[Topology] = []
    scores = {
        user: _score(ledger, queues[user], assigned[user], guarantees.get(user, ResourceAmount(0, 0)), left, fifo)
        for user in users
    }
    while len(order) < len(topologies):
        users.sort(key=scores.__getitem__)  # stable: equal users keep their order
        user = users[0]
        topology = queues[user].pop()
        order.append(topology)
        request = ledger.requested(topology)
        assigned[user] = assigned[user].plus(request)
        left = ResourceAmount(left.cpu - request.cpu, left.memory - request.memory)
        for user in users:
            guarantee = guarantees.get(user, ResourceAmount(0, 0))
            scores[user] = _score(ledger, queues[user], assigned[user], guarantee, left, fifo)
    return order


def _score(
    ledger: ResourceLedger,
    queue: list[Topology],
    assigned: ResourceAmount,
    guarantee: ResourceAmount,
    left: ResourceAmount,
    fifo: bool,
) -> Score:
    """Return how far the user's next topology would exceed the guarantee, as a share of the remaining resources.

    With `fifo`, a user beyond the guarantee gets the queue sorted by age, and the uptime of the youngest as score.
    """
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
        queue.sort(key=lambda topology: (topology.uptime_s, topology.id), reverse=True)
        return 0, Fraction(queue[-1].uptime_s)
    return score


ATTEMPTS = 5
"""Storm's limit on attempts per topology."""

Stopped = list[tuple[str, list[tuple[Slot, tuple[Executor, ...]]]]]


class RoundResult:
    """Results for the topologies of a round.

    Attributes:
        order: topologies in the order in which they were tried.
        messages: topology id -> Storm's status words.
        limit_hit: whether the time limit ended a search.
    """

    def __init__(self) -> None:
        self.order: list[str] = []
        self.messages: dict[str, str] = {}
        self.limit_hit = False

    def note(self, topology: str, outcome: AttemptOutcome, message: str) -> None:
        """Record the outcome of `topology`."""
        self.messages[topology] = message
        self.limit_hit |= outcome.limit_hit

    def evicted(self, topologies: Sequence[str], by: str) -> None:
        """Record evicted topologies, until they are tried again."""
        for topology in topologies:
            self.messages[topology] = f"Evicted to make room for {by}"


def schedule_in_order(ledger: ResourceLedger, recipe: Recipe, order: Sequence[Topology]) -> RoundResult:
    """Place what waits, topology by topology; update `ledger`."""
    account = RoundResult()
    account.order = [topology.id for topology in order]
    for rank, topology in enumerate(order):
        if not waiting(topology, ledger.state.workers[topology.id]):
            account.messages[topology.id] = "Fully Scheduled"
            continue
        outcome, message, evicted = _schedule(ledger, recipe, topology, order[:rank:-1])
        account.evicted(evicted, topology.id)
        account.note(topology.id, outcome, message)
    return account


def _schedule(
    ledger: ResourceLedger, recipe: Recipe, topology: Topology, less_deserving: Sequence[Topology]
) -> tuple[AttemptOutcome, str, list[str]]:
    """Try to place one topology; the lowest priority is first in `less_deserving`."""
    stopped: Stopped = []
    outcome = AttemptOutcome("short", "")
    reason = f"after evicting, within {ATTEMPTS} attempts"
    unplaced: ResourceAmount | None = None
    for _ in range(ATTEMPTS):
        outcome = attempted(ledger, recipe, topology, unplaced=unplaced)
        unplaced = outcome.unplaced
        if outcome.result == "placed":
            return outcome, f"Running - {outcome.message}", [name for name, _ in stopped]
        if outcome.result in ("impossible", "never"):
            reason = ""
            break
        if not _make_room(ledger, unplaced, less_deserving, stopped):
            reason = ""
            break
    restart_evicted(ledger, stopped)
    if outcome.result == "impossible":
        return outcome, f"Failed to schedule: {outcome.message}", []
    return outcome, not_enough(ledger, topology, reason, outcome), []


def attempted(
    ledger: ResourceLedger,
    recipe: Recipe,
    topology: Topology,
    nodes: Sequence[int] | None = None,
    unplaced: ResourceAmount | None = None,
) -> AttemptOutcome:
    """Return the strategy's outcome, without running it when the total resources are too small.

    Args:
        ledger: state of the round.
        recipe: the strategy.
        topology: the topology to place.
        nodes: nodes in an order of an earlier time, for engine 1.1; None = the order of now.
        unplaced: the part of the demand that the last attempt left without a place; Storm 2.x runs the strategy again
            if this much is available. None = the whole demand.
    """
    todo = waiting(topology, ledger.state.workers[topology.id])
    # Storm refuses such a topology when it is submitted (STORM-3667).
    if reason := recipe.never_fits(ledger, topology, todo):
        return AttemptOutcome("never", reason)
    missing = ledger.demanded(topology.id, todo)
    if not ledger.available.covers(missing if unplaced is None else unplaced):
        return AttemptOutcome(
            "short",
            f"{amount_text(ledger, missing)} are missing, {amount_text(ledger, ledger.available)} available",
            unplaced=missing,
        )
    return recipe.place(ledger, topology, todo, nodes)


def _make_room(
    ledger: ResourceLedger, missing: ResourceAmount, candidates: Sequence[Topology], stopped: Stopped
) -> bool:
    """Evict until what is available, and what was evicted, cover `missing`. Return whether anything was evicted."""
    gone = ResourceAmount(0, 0)
    before = len(stopped)
    for candidate in candidates:
        if ledger.state.workers[candidate.id]:
            workers = ledger.evict(candidate.id)
            stopped.append((candidate.id, workers))
            for _, executors in workers:
                gone = gone.plus(ledger.worker_cost(candidate.id, executors))
            if ledger.available.covers(missing) and gone.covers(missing):
                break
    return len(stopped) > before


def restart_evicted(ledger: ResourceLedger, stopped: Stopped) -> None:
    """Restart evicted workers."""
    for topology, workers in stopped:
        for slot, executors in workers:
            ledger.start(topology, slot, executors)


def not_enough(ledger: ResourceLedger, topology: Topology, reason: str, outcome: AttemptOutcome) -> str:
    """Return Storm's message for a topology without enough resources, and the reason."""
    waits = len(waiting(topology, ledger.state.workers[topology.id]))
    total = len(topology.executors)
    after = f" {reason}" if reason else ""
    return f"Not enough resources to schedule{after} - {total - waits}/{total} executors scheduled: {outcome.message}"


MOST = sys.float_info.max
TIE = 0.0001
"""A pool that is used more, but by less than this, counts as equally used."""


class _User:
    """Guarantee and topologies of a user."""

    def __init__(
        self, name: str, guarantee: ResourceAmount, ledger: ResourceLedger, topologies: Sequence[Topology]
    ) -> None:
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

    def share(self, total: ResourceAmount) -> float:
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


def _comes_before(user: _User, other: _User, total: ResourceAmount) -> bool:
    if user.average < other.average:
        return True
    return user.average - other.average < TIE and user.share(total) > other.share(total)


class RoundOfUsers:
    """A round in which users alternate."""

    def __init__(
        self,
        ledger: ResourceLedger,
        recipe: Recipe,
        topologies: Sequence[Topology],
        guarantees: Mapping[str, ResourceAmount],
    ) -> None:
        self._ledger = ledger
        self._recipe = recipe
        self._users = [
            _User(name, guarantees.get(name, ResourceAmount(0, 0)), ledger, [t for t in topologies if t.user == name])
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

    @property
    def first(self) -> Topology | None:
        """Return the topology that is tried next; None if no topology waits."""
        user = self._next_user()
        return None if user is None else user.pending[0]

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
        nodes = self._recipe.ranked_nodes(self._ledger, topology)  # Storm keeps the order while it evicts
        stopped: Stopped = []
        victims: list[Topology] = []
        while True:
            outcome = attempted(self._ledger, self._recipe, topology, nodes)
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
        restart_evicted(self._ledger, stopped)
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
        # The most important of the less important ones, as in Storm, whose comment promises the least important one.
        return next((own for own in user.running if own.priority > topology.priority), None)
