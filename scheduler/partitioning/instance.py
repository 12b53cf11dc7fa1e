"""Scheduling round as a partitioning problem in integers.

Executors with the same topology, load, memory and weighted neighbourhood form one class, so that a placement is a count
per class and node. Without observed traffic classes are derived from the topology, and pairs are never listed: 10^4 x
10^4 executors of two linked components are one link.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import ceil, fsum, gcd

from scheduler.partitioning.rate_rows import MANY, RateRows, rate_rows
from scheduler.partitioning.worker_limit import WorkerLimit, workers_needed
from scheduler.problem import Problem
from scheduler.toolkit.communication import classes_of
from scheduler.toolkit.cost import Loads
from scheduler.toolkit.exact import scaled
from workloads.topology import Component, Executor, Topology
from workloads.traffic import Traffic


@dataclass(frozen=True)
class Instance:
    """Partitioning problem. Executors are numbered over all topologies, in order; so are nodes.

    Attributes:
        members: class -> its executors, ascending; classes by their first executor.
        load: class -> load of one member, in a unit that makes all loads and capacities integers.
        memory: class -> memory of one member.
        topology: class -> number of its topology.
        near: class -> {class: rate between one member of each}, zero rates left out; a class itself is listed when its
            members communicate with each other. In `rate_scale` units per tuple/s (or per pair).
        capacity: node -> capacity; 0 for nodes that cannot be used.
        room: node -> memory.
        slots: node -> maximum number of topologies hosted.
        rate_scale: see `near`.
        load_unit: load of the round per unit of `load`.
        home: executor -> node where it already runs, or -1.
        worker: limit of the work of one worker; None: none that matters. `slots` are then the most workers of a node.
    """

    members: tuple[Sequence[int], ...]
    load: tuple[int, ...]
    memory: tuple[int, ...]
    topology: tuple[int, ...]
    near: Sequence[Mapping[int, int]]
    capacity: tuple[int, ...]
    room: tuple[int, ...]
    slots: tuple[int, ...]
    rate_scale: int
    load_unit: float
    home: tuple[int, ...]
    worker: WorkerLimit | None = None

    @cached_property
    def executors(self) -> int:
        """Number of executors."""
        return len(self.home)

    @cached_property
    def class_of(self) -> Sequence[int]:
        """Executor -> its class."""
        if self.distinct:
            return range(self.executors)
        of = [0] * self.executors
        for number, executors in enumerate(self.members):
            for executor in executors:
                of[executor] = number
        return of

    @cached_property
    def distinct(self) -> bool:
        """Return whether every executor is a class of its own, with the same number."""
        return len(self.members) == self.executors

    @cached_property
    def total_load(self) -> int:
        """Load of all executors together."""
        return sum(load * len(members) for load, members in zip(self.load, self.members, strict=True))

    @cached_property
    def pairs(self) -> int:
        """Number of communicating pairs of executors."""
        if isinstance(self.near, RateRows):
            return self.near.pairs
        if self.distinct:
            return sum(len(others) - (one in others) for one, others in enumerate(self.near)) // 2
        return self._over_links(lambda rate: 1)

    @cached_property
    def links(self) -> int:
        """Number of pairs of classes that communicate; classes with themselves count half."""
        return self.near.pairs if isinstance(self.near, RateRows) else sum(map(len, self.near)) // 2

    @cached_property
    def total_rate(self) -> int:
        """Rate of all pairs together: W if every executor had a node of its own."""
        if isinstance(self.near, RateRows):
            return self.near.total
        return self._over_links(lambda rate: rate)

    @cached_property
    def scarce(self) -> bool:
        """Return whether slots limit how many topologies share a node."""
        topologies = len(set(self.topology))
        return any(0 < slots < topologies for slots in self.slots)

    @cached_property
    def memory_counts(self) -> bool:
        """Return whether memory limits anything."""
        return any(self.memory)

    def in_rates(self, value: int) -> int | float:
        """Return an amount of rate in tuples/s, or pairs."""
        return value // self.rate_scale if value % self.rate_scale == 0 else value / self.rate_scale

    def _over_links(self, value: Callable[[int], int]) -> int:
        sizes = [len(members) for members in self.members]
        total = 0
        for one, others in enumerate(self.near):
            for other, rate in others.items():
                if other == one:
                    total += value(rate) * (sizes[one] * (sizes[one] - 1) // 2)
                elif other > one:
                    total += value(rate) * sizes[one] * sizes[other]
        return total

    def cut(self, node_of: Sequence[int]) -> int:
        """Return W of a placement (executor -> node)."""
        if isinstance(self.near, RateRows):
            return self.near.cut(node_of)
        if self.distinct:
            twice = 0
            for here, others in zip(node_of, self.near, strict=True):
                for other, rate in others.items():
                    if node_of[other] != here:
                        twice += rate
            return twice // 2
        counts: list[dict[int, int]] = []
        for members in self.members:
            mine: dict[int, int] = {}
            for executor in members:
                mine[node_of[executor]] = mine.get(node_of[executor], 0) + 1
            counts.append(mine)
        kept = 0
        for one, others in enumerate(self.near):
            for other, rate in others.items():
                if other == one:
                    kept += rate * sum(count * (count - 1) // 2 for count in counts[one].values())
                elif other > one:
                    few, many = sorted((counts[one], counts[other]), key=len)
                    kept += rate * sum(count * many[node] for node, count in few.items() if node in many)
        return self.total_rate - kept

    def hosts(self, node: int, members: Mapping[int, int]) -> bool:
        """Return whether the workers of `node` can do the work of `members` (class -> number), as far as it matters."""
        worker = self.worker
        if worker is None:
            return True
        works = [(self.topology[kind], work) for kind, count in members.items() for work in worker.works[kind] * count]
        hosted = {self.topology[kind] for kind, count in members.items() if count}
        return worker.suffices(self.slots[node], sorted(works, reverse=True), hosted)

    def workers_for(self, members: Mapping[int, int]) -> int:
        """Return the number of workers that do the work of `members` (class -> number) of one topology; at least 1."""
        worker = self.worker
        if worker is None:
            return 1
        works = sorted((work for kind, count in members.items() for work in worker.works[kind] * count), reverse=True)
        return workers_needed(tuple(works), worker.most)

    def members_on(self, node_of: Sequence[int]) -> dict[int, dict[int, int]]:
        """Return node -> class -> members there; executors without a node are left out."""
        members: dict[int, dict[int, int]] = {}
        for executor, node in enumerate(node_of):
            if node >= 0:
                mine = members.setdefault(node, {})
                mine[self.class_of[executor]] = mine.get(self.class_of[executor], 0) + 1
        return members

    def fits(self, node_of: Sequence[int]) -> bool:
        """Return whether a placement (executor -> node) respects all limits."""
        load = [0] * len(self.capacity)
        memory = [0] * len(self.capacity)
        hosted: list[set[int]] = [set() for _ in self.capacity]
        for executor, node in enumerate(node_of):
            if node < 0:
                return False
            kind = self.class_of[executor]
            load[node] += self.load[kind]
            memory[node] += self.memory[kind]
            hosted[node].add(self.topology[kind])
        return (
            all(used <= limit for used, limit in zip(load, self.capacity, strict=True))
            and (not self.memory_counts or all(used <= limit for used, limit in zip(memory, self.room, strict=True)))
            and all(len(topologies) <= slots for topologies, slots in zip(hosted, self.slots, strict=True))
            and (
                self.worker is None
                or all(self.hosts(node, members) for node, members in self.members_on(node_of).items())
            )
        )


def instance_of(problem: Problem, topologies: Sequence[Topology], memory_counts: bool = False) -> Instance:
    """Return the partitioning problem of placing `topologies` on the resources not used by other workers.

    Args:
        problem: the round; its own topologies may move, other running workers stay.
        topologies: the topologies of the round to place.
        memory_counts: respect memory limits too, if any component declares its memory.
    """
    loads = Loads(problem)
    first = _first_numbers(topologies)
    states = memory_counts and any(_states_memory(component) for t in topologies for component in t.components)
    classes = (
        _declared_classes(topologies, first, loads)
        if problem.traffic is None
        else _observed_classes(problem.traffic, topologies, first, loads)
    )
    capacity, slots = _left_over(problem, {topology.id for topology in topologies}, loads)
    worker = _worker_limit(problem, topologies, classes)
    most = problem.worker_points
    if worker is not None and most is not None and loads.unit == "points" and [*classes.load] == [*classes.work]:
        # The same limit as a sum, which bounds and large searches use.
        capacity = [min(limit, most * count) for limit, count in zip(capacity, slots, strict=True)]
    enough = ceil(fsum(load * len(members) for load, members in zip(classes.load, classes.members, strict=True))) + 1
    load_scale, (load, limits) = scaled(classes.load, [min(limit, float(enough)) for limit in capacity])
    common = gcd(*load, *limits) or 1
    room = [node.memory_mb for node in problem.cluster.nodes]
    demanded = classes.memory if states else [0.0] * len(classes.memory)
    _, (memory, rooms) = scaled(demanded, room if states else [0.0] * len(room))
    return Instance(
        members=tuple(classes.members),
        load=tuple(value // common for value in load),
        memory=tuple(memory),
        topology=tuple(classes.topology),
        near=classes.near,
        capacity=tuple(value // common for value in limits),
        room=tuple(rooms),
        slots=tuple(slots),
        rate_scale=classes.rate_scale,
        load_unit=common / load_scale,
        home=_homes(problem, topologies, first),
        worker=worker,
    )


def _worker_limit(problem: Problem, topologies: Sequence[Topology], classes: "_Classes") -> WorkerLimit | None:
    """Return the limit of workers; None if there is none, or all work of each topology is within it."""
    if problem.worker_points is None:
        return None
    totals = [0.0] * len(topologies)
    for work, members, number in zip(classes.work, classes.members, classes.topology, strict=True):
        totals[number] += work * len(members)
    if max(totals, default=0.0) <= problem.worker_points:
        return None
    scale, ((most,), works) = scaled([problem.worker_points], classes.work)
    common = gcd(most, *works)
    return WorkerLimit(most // common, tuple((work // common,) if work else () for work in works), common / scale)


@dataclass(frozen=True)
class _Classes:
    """Classes before conversion to integers; `near` is in units, `work` in CPU points, 0 where it is not known."""

    members: Sequence[Sequence[int]]
    load: Sequence[float]
    work: Sequence[float]
    memory: Sequence[float]
    topology: Sequence[int]
    rate_scale: int
    near: Sequence[Mapping[int, int]]


def _in_units(near: Sequence[Mapping[int, float]]) -> tuple[int, tuple[Mapping[int, int], ...]]:
    """Return the number of units per tuple/s, and rates in units; rates of less than half a unit are left out."""
    values = sorted(set(chain.from_iterable(others.values() for others in near)))
    rate_scale, (whole,) = scaled(values)
    unit = dict(zip(values, whole, strict=True))
    made = tuple(dict(zip(others, map(unit.__getitem__, others.values()), strict=True)) for others in near)
    if 0 in whole:
        made = tuple({other: rate for other, rate in others.items() if rate} for others in made)
    return rate_scale, made


def _first_numbers(topologies: Sequence[Topology]) -> list[int]:
    """Return the number of each topology's first executor, and the number after the last."""
    first = [0]
    for topology in topologies:
        first.append(first[-1] + sum(component.parallelism for component in topology.components))
    return first


def _states_memory(component: Component) -> bool:
    return any(value is not None for value in (component.memory_mb, component.onheap_mb, component.offheap_mb))


def _declared_classes(topologies: Sequence[Topology], first: Sequence[int], loads: Loads) -> _Classes:
    """Return classes with rate 1 between executors of linked components."""
    parts: list[tuple[range, float, float, float, int, tuple[int, ...]]] = []
    for number, topology in enumerate(topologies):
        classes = classes_of(topology)
        base = len(parts)
        for members, linked in zip(classes.members, classes.linked, strict=True):
            executor = topology.executors[members[0]]
            component = topology.component[executor.component]
            here = range(first[number] + members.start, first[number] + members.stop)
            others = tuple(base + other for other in linked)
            work = loads.known_points(topology, executor) or 0.0
            parts.append((here, loads.of(topology, executor), work, component.memory, number, others))
    merged: dict[tuple[object, ...], list[int]] = {}
    for at, (_, load, work, memory, number, linked) in enumerate(parts):
        alone = at if at in linked else None  # members that communicate with each other have different neighbours
        merged.setdefault((number, load, work, memory, linked, alone), []).append(at)
    kind_of = {part: kind for kind, together in enumerate(merged.values()) for part in together}
    chosen = [parts[together[0]] for together in merged.values()]
    everyone: list[Sequence[int]] = [
        [executor for part in together for executor in parts[part][0]] if len(together) > 1 else parts[together[0]][0]
        for together in merged.values()
    ]
    return _Classes(
        everyone,
        [load for _, load, *_ in chosen],
        [work for _, _, work, *_ in chosen],
        [memory for *_, memory, _, _ in chosen],
        [number for *_, number, _ in chosen],
        *_in_units([dict.fromkeys((kind_of[other] for other in linked), 1.0) for *_, linked in chosen]),
    )


def _observed_classes(traffic: Traffic, topologies: Sequence[Topology], first: Sequence[int], loads: Loads) -> _Classes:
    """Return classes with observed rates, both directions added; unlisted pairs do not communicate."""
    number_of: dict[str, int] = {}
    for start, topology in zip(first, topologies, strict=False):
        number_of.update((name, start + at) for at, name in enumerate(topology.executor_named))
    load: list[float] = []
    work: list[float] = []
    memory: list[float] = []
    owner: list[int] = []
    for number, topology in enumerate(topologies):
        load.extend(loads.of(topology, executor) for executor in topology.executors)
        work.extend(loads.known_points(topology, executor) or 0.0 for executor in topology.executors)
        memory.extend(topology.component[executor.component].memory for executor in topology.executors)
        owner.extend([number] * len(topology.executors))
    alone = tuple(zip(range(first[-1])))
    if len(traffic.edges) >= MANY:
        rate_scale, rows = rate_rows(traffic, number_of, first[-1])
        if rows.distinct:
            return _Classes(alone, load, work, memory, owner, rate_scale, rows)
    rates: list[dict[int, float]] = [{} for _ in range(first[-1])]
    for edge in traffic.edges:
        one, other = number_of.get(edge.source), number_of.get(edge.destination)
        if one is not None and other is not None and one != other and edge.tuples_per_s:
            rates[one][other] = rates[other][one] = rates[one].get(other, 0.0) + edge.tuples_per_s
    # Most executors differ from all others in this already, and whole neighbourhoods take a hundred times the memory.
    marks = [
        (*demand, len(mine), min(mine, default=-1))
        for *demand, mine in zip(load, work, memory, owner, rates, strict=True)
    ]
    times = Counter(marks)
    merged: dict[object, list[int]] = {}
    for number, (mark, mine) in enumerate(zip(marks, rates, strict=True)):
        key: object = number if times[mark] == 1 else (mark, tuple(sorted(mine.items())))
        merged.setdefault(key, []).append(number)
    if len(merged) == len(rates):
        return _Classes(alone, load, work, memory, owner, *_in_units(rates))
    kind_of = [0] * first[-1]
    for kind, together in enumerate(merged.values()):
        for number in together:
            kind_of[number] = kind
    everyone = list(merged.values())
    chosen = [together[0] for together in everyone]
    return _Classes(
        everyone,
        [load[one] for one in chosen],
        [work[one] for one in chosen],
        [memory[one] for one in chosen],
        [owner[one] for one in chosen],
        *_in_units([{kind_of[other]: rate for other, rate in rates[one].items()} for one in chosen]),
    )


def _left_over(problem: Problem, placed: Collection[str], loads: Loads) -> tuple[list[float], list[int]]:
    """Return per node the capacity and the slots not used by workers of topologies outside `placed`."""
    nodes = problem.cluster.nodes
    index = {node.id: number for number, node in enumerate(nodes)}
    capacity = [loads.capacity[node.id] for node in nodes]
    slots = [node.slots for node in nodes]
    topology = {topology.id: topology for topology in problem.topologies}
    for worker in problem.existing:
        if worker.topology not in placed:
            at = index[worker.node]
            slots[at] -= 1
            capacity[at] -= fsum(_running_load(loads, topology.get(worker.topology), name) for name in worker.executors)
    for at, node in enumerate(nodes):
        if not node.available or slots[at] <= 0 or capacity[at] < 0:
            capacity[at], slots[at] = 0.0, max(slots[at], 0) if node.available else 0
    return capacity, slots


def _running_load(loads: Loads, topology: Topology | None, name: str) -> float:
    return loads.of_outside_executor(name) if topology is None else loads.of(topology, Executor.named(name))


def _homes(problem: Problem, topologies: Sequence[Topology], first: Sequence[int]) -> tuple[int, ...]:
    home = [-1] * first[-1]
    index = {node.id: number for number, node in enumerate(problem.cluster.nodes)}
    number_of = {topology.id: number for number, topology in enumerate(topologies)}
    for worker in problem.existing:
        number = number_of.get(worker.topology)
        if number is not None and problem.cluster.by_id[worker.node].available:
            for name in worker.executors:
                home[first[number] + topologies[number].number_of[Executor.named(name)]] = index[worker.node]
    return tuple(home)
