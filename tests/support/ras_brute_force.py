"""Storm's resource aware strategies by brute force: sums and orders are computed anew each time.

Shares no code with `scheduler.ras` except the order of executors. For one topology, engine 2.3, searches and round
robin.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from scheduler.problem import Problem
from workloads.topology import ACKER, Component, Executor, Topology

Place = tuple[str, int]


def exact(value: float) -> Fraction:
    return Fraction(repr(value))


class BruteForceStrategy:
    """One attempt to place the waiting executors of the only topology of a problem."""

    def __init__(self, problem: Problem, params: Any, order: Sequence[Executor]) -> None:
        self.topology: Topology = problem.topologies[0]
        self.params = params
        self.order = list(order)
        self.nodes = sorted(problem.cluster.available, key=lambda node: node.id)
        self.old = {(w.node, w.slot): w for w in problem.existing}
        self.new: dict[Place, list[Executor]] = {}
        self.bound: list[Executor] = []
        self.states = 0

    def component(self, name: str) -> Component:
        return self.topology.component[name]

    def cost(self, workers: Sequence[tuple[str, Sequence[str]]]) -> tuple[Fraction, Fraction]:
        cpu = memory = Fraction(0)
        for owner, components in workers:
            known = owner == self.topology.id
            points = sum(
                (exact(self.component(c).cpu_points) if known else Fraction(10) for c in components), Fraction()
            )
            memory += sum(
                (
                    exact(self.component(c).onheap) + exact(self.component(c).offheap) if known else Fraction(128)
                    for c in components
                ),
                Fraction(),
            )
            cpu += max(points, exact(self.params.worker_min_cpu)) if components else points
        return cpu, memory

    def workers_on(self, node: str) -> list[tuple[str, list[str]]]:
        old = [
            (w.topology, [name.split("[")[0] for name in w.executors])
            for (where, _), w in self.old.items()
            if where == node
        ]
        mine = [(self.topology.id, [e.component for e in es]) for (where, _), es in self.new.items() if where == node]
        return old + mine

    def left(self, node: Any) -> tuple[Fraction, Fraction]:
        cpu, memory = self.cost(self.workers_on(node.id))
        return max(exact(node.cpu_points) - cpu, Fraction()), max(exact(node.memory_mb) - memory, Fraction())

    def mine_on(self, nodes: Sequence[Any]) -> int:
        return sum(len(cs) for node in nodes for owner, cs in self.workers_on(node.id) if owner == self.topology.id)

    def sort(self) -> list[str]:
        def ranked(groups: dict[Any, list[Any]]) -> list[Any]:
            left = {
                name: [sum(column) for column in zip(*map(self.left, group), strict=True)]
                for name, group in groups.items()
            }
            totals = [sum(column) for column in zip(*left.values(), strict=True)]

            def key(name: Any) -> tuple[Any, ...]:
                shares = [have / total for have, total in zip(left[name], totals, strict=True) if total]
                smallest = min([Fraction(1), *shares])
                mean = sum(shares) / len(shares) if shares else Fraction(1)
                first, second = (smallest, mean) if self.params.strategy == "default-old" else (mean, smallest)
                return -self.mine_on(groups[name]), -first, -second, name

            return sorted(groups, key=key)

        def by(attribute: str, nodes: Sequence[Any]) -> dict[str, list[Any]]:
            groups: dict[str, list[Any]] = {}
            for node in nodes:
                groups.setdefault(getattr(node, attribute), []).append(node)
            return groups

        order: list[str] = []
        racks = by("rack", self.nodes)
        for rack in ranked(racks):
            hosts = by("machine", racks[rack])
            for host in ranked(hosts):
                order.extend(ranked(by("id", hosts[host])))
        favored = [name for name in self.params.favored_nodes if name in order]
        unfavored = [name for name in self.params.unfavored_nodes if name in order and name not in favored]
        return favored + [name for name in order if name not in favored + unfavored] + unfavored

    def candidates(self, name: str) -> list[Place]:
        node = next(node for node in self.nodes if node.id == name)
        return [(name, index) for index in node.slot_order if (name, index) not in self.old]

    def fits(self, executor: Executor, place: Place) -> bool:
        node = next(node for node in self.nodes if node.id == place[0])
        before = self.new.get(place, [])
        if self.params.one_executor_per_worker and before:
            return False
        if self.params.one_component_per_worker and any(e.component != executor.component for e in before):
            return False
        if self.params.strategy == "constraint" and self.topology.constraints is not None:
            for one, other in self.topology.constraints.incompatible:
                for mine, theirs in ((one, other), (other, one)):
                    if executor.component == mine and any(e.component == theirs for e in before):
                        return False
            most = self.topology.constraints.max_per_node.get(executor.component)
            there = sum(
                cs.count(executor.component) for owner, cs in self.workers_on(node.id) if owner == self.topology.id
            )
            if most is not None and there >= most:
                return False
        heap = sum((exact(self.component(e.component).onheap) for e in [*before, executor]), Fraction())
        if heap > exact(self.topology.worker_max_heap_mb):
            return False
        left = self.left(node)
        had = self.cost([(self.topology.id, [e.component for e in before])])
        has = self.cost([(self.topology.id, [e.component for e in [*before, executor]])])
        return has[0] - had[0] <= left[0] and has[1] - had[1] <= left[1]

    def put(self, executor: Executor, place: Place) -> int:
        """Place an executor; return the number of ackers that were bound."""
        opened = place not in self.new
        self.new.setdefault(place, []).append(executor)
        if not opened or executor.component == ACKER or ACKER not in self.topology.component:
            return 0
        if self.params.one_executor_per_worker or self.params.one_component_per_worker:
            return 0
        user = [c for c in self.topology.components if not c.id.startswith("__")]
        heap, limit = sum(exact(c.onheap) * c.parallelism for c in user), exact(self.topology.worker_max_heap_mb)
        each = -(-self.component(ACKER).parallelism // max(1, -int(-heap // limit)))
        waiting = [e for e in self.order if e.component == ACKER and e not in self.bound]
        most = min(each, len(waiting))
        if self.component(ACKER).onheap:
            room = (limit - exact(self.component(executor.component).onheap)) // exact(self.component(ACKER).onheap)
            most = min(most, int(room))
        bound = 0
        for acker in waiting[:most]:
            if not self.fits(acker, place):
                break
            self.new[place].append(acker)
            self.bound.append(acker)
            bound += 1
        return bound

    def take_back(self, place: Place, bound: int) -> None:
        for _ in range(bound):
            self.new[place].pop()
            self.bound.pop()
        self.new[place].pop()
        if not self.new[place]:
            del self.new[place]

    def search(self, limit: int) -> bool:
        steps: list[tuple[int, Place, int]] = []
        nodes: list[str] = []
        position = 0
        while position < len(self.order):
            executor = self.order[position]
            if executor in self.bound:
                position += 1
                continue
            if self.states > limit:
                return False
            same = position > 0 and executor.component == self.order[position - 1].component
            once = self.params.strategy == "default-old"
            if position == 0 or (not once and same != self.params.intended_sorting):
                nodes = self.sort()
            place = next((p for name in nodes for p in self.candidates(name) if self.fits(executor, p)), None)
            while place is None:
                if not steps:
                    return False
                position, was, bound = steps.pop()
                executor = self.order[position]
                self.take_back(was, bound)
                if self.states > limit:
                    return False
                nodes = self.sort()
                options = [p for name in nodes for p in self.candidates(name)]
                place = next((p for p in options[options.index(was) + 1 :] if self.fits(executor, p)), None)
            steps.append((position, place, self.put(executor, place)))
            self.states += 1
            position += 1
        return True

    def round_robin(self) -> bool:
        nodes = [name for name in self.sort() if all(owner == self.topology.id for owner, _ in self.workers_on(name))][
            : self.topology.isolated_nodes
        ]
        cursor = 0
        for position, executor in enumerate(self.order):
            if executor in self.bound:
                continue
            same = position > 0 and executor.component == self.order[position - 1].component
            if cursor == len(nodes) or same != self.params.intended_sorting:
                cursor = 0
            place = None
            while place is None and cursor < len(nodes):
                place = next((p for p in self.candidates(nodes[cursor]) if self.fits(executor, p)), None)
                cursor += 1
            if place is None:
                return False
            self.put(executor, place)
        return True
