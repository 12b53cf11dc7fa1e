"""One round of Storm 2.x: topologies in order, each as a whole, evicting lower priorities where necessary.

After Apache Storm, `storm-server/.../scheduler/resource/ResourceAwareScheduler.java`. The 1.1 round is in `rounds_1_1`.
"""

from collections.abc import Sequence

from scheduler.problem import Slot
from scheduler.ras.ledger import Amount, ResourceLedger
from scheduler.ras.strategies import Outcome, Recipe, in_words
from scheduler.toolkit.slots import waiting
from workloads.topology import Executor, Topology

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

    def note(self, topology: str, outcome: Outcome, message: str) -> None:
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
) -> tuple[Outcome, str, list[str]]:
    """Try to place one topology; the lowest priority is first in `less_deserving`."""
    stopped: Stopped = []
    outcome = Outcome("short", "")
    reason = f"after evicting, within {ATTEMPTS} attempts"
    for _ in range(ATTEMPTS):
        outcome = attempted(ledger, recipe, topology)
        if outcome.result == "placed":
            return outcome, f"Running - {outcome.message}", [name for name, _ in stopped]
        if outcome.result == "impossible":
            break
        if not _make_room(ledger, topology, less_deserving, stopped):
            reason = ""
            break
    restore(ledger, stopped)
    if outcome.result == "impossible":
        return outcome, f"Failed to schedule: {outcome.message}", []
    return outcome, not_enough(ledger, topology, reason, outcome), []


def attempted(ledger: ResourceLedger, recipe: Recipe, topology: Topology) -> Outcome:
    """Return the strategy's outcome, without running it when the total resources are too small."""
    todo = waiting(topology, ledger.state.workers[topology.id])
    missing = ledger.demanded(topology.id, todo)
    if not ledger.available.covers(missing):
        return Outcome(
            "short", f"{in_words(ledger, missing)} are missing, {in_words(ledger, ledger.available)} available"
        )
    return recipe.place(ledger, topology, todo)


def _make_room(ledger: ResourceLedger, topology: Topology, candidates: Sequence[Topology], stopped: Stopped) -> bool:
    """Evict until the total resources suffice and cover what was missing. Return whether anything was evicted."""
    missing = ledger.demanded(topology.id, waiting(topology, ledger.state.workers[topology.id]))
    gone = Amount(0, 0)
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


def restore(ledger: ResourceLedger, stopped: Stopped) -> None:
    """Restart evicted workers."""
    for topology, workers in stopped:
        for slot, executors in workers:
            ledger.start(topology, slot, executors)


def not_enough(ledger: ResourceLedger, topology: Topology, reason: str, outcome: Outcome) -> str:
    """Return Storm's message for a topology without enough resources, and the reason."""
    waits = len(waiting(topology, ledger.state.workers[topology.id]))
    total = len(topology.executors)
    after = f" {reason}" if reason else ""
    return f"Not enough resources to schedule{after} - {total - waits}/{total} executors scheduled: {outcome.message}"
