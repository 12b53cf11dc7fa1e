"""What no search can place: slots and heap that do not suffice even if nothing were wasted.

Storm has no such test; its search then goes on until it has tried as many places as it may. Since the answer is known,
ours does not begin. Every bound leaves out rules that could only make it tighter.
"""

from collections import Counter
from collections.abc import Iterable

from scheduler.ras.attempt import Attempt, Kind
from workloads.topology import Executor

Node = tuple[int, int, int]
"""Free slots, CPU and memory."""


def shortage(attempt: Attempt, executors: Iterable[Executor]) -> str | None:
    """Why `executors` cannot all find a place in `attempt`, which is empty yet; None where that is not obvious."""
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
    """How many executors of `kind` a node takes that takes nothing else; no more than wait if nothing limits them."""
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
