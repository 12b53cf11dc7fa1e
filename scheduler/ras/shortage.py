"""Shortages that no search can solve: not enough slots or heap even without waste.

Storm has no such test and searches until its limit of places tried. Ours skips the search, since the result is known.
Every bound leaves out rules that could only make it tighter.
"""

from collections import Counter
from collections.abc import Iterable

from scheduler.ras.attempt import Attempt, Kind
from workloads.topology import Executor

Node = tuple[int, int, int]
"""Free slots, CPU and memory."""


def shortage(attempt: Attempt, executors: Iterable[Executor]) -> str | None:
    """Return why `executors` cannot all be placed in `attempt`, which is still empty, or None if unclear.

    None where that is not obvious.
    """
    waiting = Counter(executor.component for executor in executors)
    nodes = attempt.alike()
    for component, count in waiting.items():
        room = sum(many * _room(attempt, node, attempt.kinds[component]) for node, many in nodes.items())
        if count > room:
            return f"of {count} executors of {component!r} at most {room} fit into free slots"
    limit = attempt.rules.heap_limit
    needed = sum(count * attempt.kinds[component].heap for component, count in waiting.items())
    offered = sum(many * min(places * limit, memory) for (places, _, memory), many in nodes.items())
    if needed > offered:
        unit = attempt.ledger.mb_unit
        return f"{unit.written(needed)} MB of heap are missing, free slots offer {unit.written(offered)} MB"
    return None


def _room(attempt: Attempt, node: Node, kind: Kind) -> int:
    """Return how many executors of `kind` an otherwise empty node has room for, at most those waiting.

    No more than wait if nothing limits them.
    """
    places, cpu, memory = node
    rules, demand = attempt.rules, kind.demand
    room = len(attempt.topology.executors) if places else 0
    if rules.one_executor:
        room = min(room, places)
    if kind.heap:
        room = min(room, places * (rules.heap_limit // kind.heap))
    if demand.memory:
        room = min(room, memory // demand.memory)
    if demand.cpu and not rules.soft_cpu:
        room = min(room, cpu // demand.cpu)
    return room
