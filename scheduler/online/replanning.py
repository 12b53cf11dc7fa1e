"""A whole new plan as a revision of what runs: from `place` to the fewest moves.

The topology's own workers are vacated, a plan is made as if it started now, and the plan's groups are renamed among
equal nodes and among the slots of a node, which are nameless, so that as little state as possible moves: a matching of
the greatest weight between groups of the plan and what runs.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import TypeVar

from msgspec.structs import replace as replaced

from inventory.cluster import Node
from scheduler.online.observation import Observation
from scheduler.problem import CommunicationSchedule, Move, Plan, Problem, Slot
from scheduler.toolkit.local_traffic import observed_rates
from workloads.topology import Executor, Topology

R = TypeVar("R", bound=Hashable)
C = TypeVar("C", bound=Hashable)


def heaviest_matching(weight: Mapping[R, Mapping[C, int]]) -> tuple[int, dict[R, C]]:
    """Return the weight of a heaviest matching, and its pairs; rows and columns may stay single.

    Exact as long as no weight exceeds 2^53.

    Args:
        weight: row -> column -> weight of the pair, at least 0; pairs that are not listed are impossible.
    """
    columns = {column: at for at, column in enumerate(dict.fromkeys(c for pairs in weight.values() for c in pairs))}
    if not columns:
        return 0, {}
    # Loaded here: most commands need no SciPy, and it takes as long to load as they take to run.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    # SciPy matches every row, and ignores pairs of cost 0: a row has a column of its own, on which it is single.
    highest = max(w for pairs in weight.values() for w in pairs.values()) + 1
    edges = [(row, columns[c], highest - w) for row, pairs in enumerate(weight.values()) for c, w in pairs.items()]
    edges += [(row, len(columns) + row, highest) for row in range(len(weight))]
    rows, ends, costs = zip(*edges, strict=True)
    whole = coo_array((costs, (rows, ends)), shape=(len(weight), len(columns) + len(weight)), dtype=float)
    column_at, row_at = list(columns), list(weight)
    matched = zip(*min_weight_full_bipartite_matching(whole.tocsr()), strict=True)
    pairs = {row_at[row]: column_at[column] for row, column in matched if column < len(columns)}
    return sum(weight[row][column] for row, column in pairs.items()), pairs


Group = frozenset[Executor]


@dataclass(frozen=True)
class Replanned:
    """A new plan for a running topology.

    Attributes:
        moves: executors that change their slot.
        named: number of moves that the plan would take as it names nodes and slots.
        cut_now, cut_plan: tuples/s between nodes, by observed rates.
        load_plan: node -> predicted load, as a share of its `cpu`; nodes that were not measured are missing.
        schedule: the plan's communication schedule, if the run follows another one.
        message: why there is no plan; moves are empty then.
    """

    moves: Sequence[Move]
    named: int
    cut_now: float
    cut_plan: float
    load_plan: Mapping[str, float]
    schedule: CommunicationSchedule | None = None
    message: str = ""

    @property
    def gain_percent(self) -> float | None:
        """Share of the traffic between nodes that is saved; None without such traffic."""
        return 100 * (1 - self.cut_plan / self.cut_now) if self.cut_now else None

    def saves(self, percent: float) -> bool:
        """Return whether at least so many per cent of the traffic between nodes are saved, and something moves."""
        return bool(self.moves) and self.cut_plan <= self.cut_now * (1 - percent / 100) and self.cut_plan < self.cut_now


def vacated(problem: Problem) -> Problem:
    """Return the problem without the workers of its topologies."""
    mine = {topology.id for topology in problem.topologies}
    others = tuple(worker for worker in problem.existing if worker.topology not in mine)
    return replace(problem, cluster=replaced(problem.cluster, existing=others))


def replan(problem: Problem, observation: Observation, place: Callable[[Problem], Plan]) -> Replanned:
    """Plan the running topology anew with `place`, and return the moves that lead there.

    In a run with a communication schedule, nodes cannot join it while others leave it: a plan that needs this is made
    again for the nodes of the present schedule.
    """
    replanned = _replan(problem, observation, place)
    present = observation.schedule
    if present is None:
        return replanned
    after = {move.target.node for move in replanned.moves}
    before = {slot.node for slot in observation.places.values()}
    joining = not after <= set(present.nodes)
    if joining and (replanned.schedule is None or not before <= set(replanned.schedule.nodes)):
        nodes = [replaced(n, available=n.available and n.id in present.nodes) for n in problem.cluster.nodes]
        within = replace(problem, cluster=replaced(problem.cluster, nodes=tuple(nodes)))
        return _replan(within, observation, place)
    return replanned


def _replan(problem: Problem, observation: Observation, place: Callable[[Problem], Plan]) -> Replanned:
    (topology,) = problem.topologies
    now = {topology.executor_named[name]: slot for name, slot in observation.places.items()}
    cut_now = cut_of(problem, topology, now)
    plan = place(vacated(problem))
    placement = plan.placements[topology.id]
    if placement.status != "placed":
        return Replanned((), 0, cut_now, cut_now, {}, message=placement.message)
    state = {topology.executor_named[name]: observed.state_bytes for name, observed in observation.executors.items()}
    target = renamed_slots(problem, now, placement.assignments, state)
    moves = tuple(
        Move(topology.id, executor, now[executor], target[executor])
        for executor in topology.executors
        if now[executor] != target[executor]
    )
    schedule = None
    if observation.schedule is not None and plan.schedule is not None:
        schedule = _renamed_schedule(plan.schedule, placement.assignments, target)
    return Replanned(
        moves=moves,
        named=sum(now[executor] != slot for executor, slot in placement.assignments.items()),
        cut_now=cut_now,
        cut_plan=cut_of(problem, topology, target),
        load_plan=loads_after(problem, observation, target),
        schedule=None if schedule == observation.schedule else schedule,
    )


def _renamed_schedule(
    schedule: CommunicationSchedule, plan: Mapping[Executor, Slot], target: Mapping[Executor, Slot]
) -> CommunicationSchedule:
    """Return the schedule with the nodes on which the executors of each planned node run; others fill the rest."""
    now = {slot.node: target[executor].node for executor, slot in plan.items()}
    free = [node for node in schedule.nodes if node not in now.values()]
    for node in schedule.nodes:
        if node not in now and node in free:
            now[node] = free.pop(free.index(node))
    return replaced(schedule, nodes=tuple([now[node] if node in now else free.pop(0) for node in schedule.nodes]))


def cut_of(problem: Problem, topology: Topology, slots: Mapping[Executor, Slot]) -> float:
    """Return the observed tuples/s between executors on different nodes."""
    node_of = [slots[executor].node for executor in topology.executors]
    rates = observed_rates(topology, problem.traffic) or {}
    return fsum(rate for (one, other), rate in rates.items() if node_of[one] != node_of[other])


def loads_after(problem: Problem, observation: Observation, slots: Mapping[Executor, Slot]) -> dict[str, float]:
    """Return node -> predicted load: its base, and the measured loads of the executors placed there."""
    points: dict[str, list[float]] = {}
    for executor, slot in slots.items():
        points.setdefault(slot.node, []).append(observation.executors[executor.name].load)
    return {
        name: node.base + fsum(points.get(name, ())) / problem.cluster.by_id[name].cpu_points
        for name, node in observation.nodes.items()
        if node.base is not None and problem.cluster.by_id[name].cpu_points
    }


def renamed_slots(
    problem: Problem,
    now: Mapping[Executor, Slot],
    plan: Mapping[Executor, Slot],
    state_bytes: Mapping[Executor, int | None],
) -> dict[Executor, Slot]:
    """Return the plan with groups renamed among equal nodes, and among slots, so that the fewest state bytes move.

    Executors count where sizes of states are unknown, and where bytes are equal.

    Args:
        problem: the round.
        now: executor -> slot where it runs.
        plan: executor -> slot, for the same executors.
        state_bytes: executor -> size of its state.
    """
    known = [size for size in state_bytes.values() if size is not None]
    whole = len(known) == len(state_bytes)
    weight = {e: (size or 0) * (len(state_bytes) + 1) * whole + 1 for e, size in state_bytes.items()}
    running, planned = _groups(now), _groups(plan)

    def common(one: Group, other: Group) -> int:
        return sum(weight[executor] for executor in one & other)

    renamed: dict[Executor, Slot] = {}
    for nodes in _equal_nodes(problem):
        kept = {
            mine: {
                node: heaviest_matching(_overlaps(planned[mine], running.get(node, {}), common))[0]
                for node in _met(planned[mine], now)
                if node in nodes
            }
            for mine in nodes
            if mine in planned
        }
        home = dict(heaviest_matching(kept)[1])
        free = [node for node in nodes if node not in home.values()]
        for mine in kept:
            node = home.get(mine) or free.pop(free.index(mine) if mine in free else 0)
            renamed.update(_slots_on(problem, node, planned[mine], running.get(node, {}), common))
    return renamed


def _groups(slots: Mapping[Executor, Slot]) -> dict[str, dict[Slot, Group]]:
    """Return node -> slot -> executors in it."""
    members: dict[Slot, set[Executor]] = {}
    for executor, slot in slots.items():
        members.setdefault(slot, set()).add(executor)
    groups: dict[str, dict[Slot, Group]] = {}
    for slot, executors in members.items():
        groups.setdefault(slot.node, {})[slot] = frozenset(executors)
    return groups


def _met(groups: Mapping[Slot, Group], now: Mapping[Executor, Slot]) -> list[str]:
    """Return the nodes on which members of the groups run, in a fixed order."""
    return sorted({now[executor].node for group in groups.values() for executor in group})


def _overlaps(
    planned: Mapping[Slot, Group], running: Mapping[Slot, Group], common: Callable[[Group, Group], int]
) -> dict[Slot, dict[Slot, int]]:
    """Return planned slot -> running slot -> weight of the executors in both."""
    return {
        mine: {slot: shared for slot, other in running.items() if (shared := common(group, other))}
        for mine, group in planned.items()
    }


def _slots_on(
    problem: Problem,
    node: str,
    planned: Mapping[Slot, Group],
    running: Mapping[Slot, Group],
    common: Callable[[Group, Group], int],
) -> dict[Executor, Slot]:
    """Return the slots of groups that are planned for `node`.

    Groups stay with the worker that most of their state is in; the others get the topology's other workers there, then
    empty slots, lowest port first.
    """
    home = dict(heaviest_matching(_overlaps(planned, running, common))[1])
    taken = {Slot(worker.node, worker.slot) for worker in vacated(problem).existing} | set(home.values())
    slots = [Slot(node, index) for index in problem.cluster.by_id[node].slot_order]
    left = iter(sorted((slot for slot in slots if slot not in taken), key=lambda slot: slot not in running))
    return {e: slot for mine, group in planned.items() for slot in [home.get(mine) or next(left)] for e in group}


def _equal_nodes(problem: Problem) -> list[list[str]]:
    """Return the available nodes in classes that differ in their names only.

    A node with workers of other topologies, or on a machine with other nodes, is a class of its own.
    """
    machines: dict[str, int] = {}
    for node in problem.cluster.nodes:
        machines[node.machine] = machines.get(node.machine, 0) + 1
    apart = {worker.node for worker in vacated(problem).existing}
    classes: dict[object, list[str]] = {}
    for node in problem.cluster.nodes:
        alone = node.id in apart or machines[node.machine] > 1
        classes.setdefault(node.id if alone else _nameless(node), []).append(node.id)
    return list(classes.values())


def _nameless(node: Node) -> Node:
    """Return the node without what only names it."""
    return replaced(node, id="-", address=None, host=None, ports=None, meter_lag=None, uptime_s=None)
