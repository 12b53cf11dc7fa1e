"""`isolation`: Storm's IsolationScheduler, chosen topologies get machines of their own.

After Apache Storm, `storm-server/src/main/java/org/apache/storm/scheduler/IsolationScheduler.java`. Hosts are ranked as
in the master branch since 2026-05; all releases up to 2.8.8 shuffle hosts with equal numbers of slots. Our decisions: a
topology with fewer executors than workers requests one worker per executor. Isolation is per host: the nodes of one
host are isolated together.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from msgspec import Meta
from msgspec.structs import replace

from inventory.cluster import Cluster, ExistingWorker
from inventory.errors import ParameterError, nearest
from scheduler.algorithms.default import place_by_default
from scheduler.problem import Needs, Placement, Plan, Problem, Slot, concluded
from scheduler.toolkit.slots import RunningWorkers, assigned
from workloads.topology import Executor, Topology

Specs = list[frozenset[Executor]]


@dataclass(frozen=True)
class IsolationParams:
    """Parameters of `isolation`.

    Attributes:
        machines: topology -> number of hosts reserved for it.
    """

    machines: Mapping[str, Annotated[int, Meta(ge=1)]] = field(default_factory=dict)


class Isolation:
    """Chosen topologies on hosts of their own, the others by `default` on the remaining hosts."""

    name: ClassVar[str] = "isolation"
    paper: ClassVar[str] = "Apache Storm, IsolationScheduler (order of hosts: master)"
    needs: ClassVar[Needs] = Needs(cycles=True, ignores="load, traffic, CPU, memory, hardware")
    Params: ClassVar[type] = IsolationParams

    def __init__(self, params: IsolationParams) -> None:
        self._machines = params.machines

    def place(self, problem: Problem) -> Plan:
        """Run one round: keep good hosts, assign hosts, then place the others by `default`.

        Raises:
            InputError: `machines` names a topology that is neither to be placed nor running.
        """
        known = {t.id for t in problem.topologies} | {worker.topology for worker in problem.existing}
        for name in self._machines:
            if name not in known:
                raise ParameterError(("machines", name), f"unknown topology {name!r}{nearest(name, known)}")
        hosts = _Hosts(problem)
        isolated = sorted((t for t in problem.topologies if t.id in self._machines), key=lambda t: t.id)
        wants = {t.id: _Wanted(t, self._machines[t.id]) for t in isolated}
        hosts.keep_good(wants)
        hosts.hand_out(wants)
        unmet = [name for name, wanted in wants.items() if wanted.specs]
        if unmet:
            hosts.empty_the_rest()
            others = {t.id: _made_to_wait(t, hosts.state, unmet) for t in problem.topologies if t.id not in wants}
        else:
            others = hosts.place_others(problem, [t for t in problem.topologies if t.id not in wants])
        placements = {t.id: others.get(t.id) or _isolated(t, hosts.state, wants[t.id]) for t in problem.topologies}
        return hosts.state.plan(placements)


class _Wanted:
    """Outstanding request of an isolated topology: workers, and machines with their number of workers."""

    def __init__(self, topology: Topology, machines: int) -> None:
        executors = sorted(topology.executors)  # component by component, in Storm's order of ids
        workers = min(topology.workers, len(executors))
        self.machines = machines
        self.specs: Specs = [frozenset(executors[first::workers]) for first in range(workers)]
        size, larger = divmod(workers, machines)
        self.shape = Counter({size + 1: larger, size: machines - larger})
        del self.shape[0]

    def takes(self, workers: Iterable[frozenset[Executor]], count: int) -> bool:
        """Return whether one machine with exactly these workers is still requested, and count it as assigned if so."""
        here = set(workers)
        if self.shape[count] <= 0 or len(here) != count or not here <= set(self.specs):
            return False
        self.shape[count] -= 1
        self.specs = [spec for spec in self.specs if spec not in here]
        return True

    def sizes(self) -> list[int]:
        """Return the workers per outstanding machine, largest first."""
        return sorted(self.shape.elements(), reverse=True)


class _Hosts:
    """Hosts and their workers. A reserved host is closed to all other topologies in this round."""

    def __init__(self, problem: Problem) -> None:
        self.state = RunningWorkers(problem)
        self._cluster: Cluster = problem.cluster
        self._slots: dict[str, list[Slot]] = {}
        for node in sorted(problem.cluster.available, key=lambda node: node.id):
            self._slots.setdefault(node.machine, []).extend(Slot(node.id, index) for index in node.slot_order)
        self._reserved: set[str] = set()

    def keep_good(self, wants: Mapping[str, _Wanted]) -> None:
        """Reserve the hosts that run exactly what an isolated topology requests; stop isolated workers elsewhere."""
        for host in sorted(self._slots):
            used = [slot for slot in self._slots[host] if slot in self.state.owner]
            here = {self.state.owner[slot] for slot in used}
            only = here.pop() if len(here) == 1 else ""
            wanted = wants.get(only)
            running = self.state.workers.get(only, {})
            if wanted is not None and wanted.takes((frozenset(running[slot]) for slot in used), len(used)):
                self._reserved.add(host)
            else:
                self.state.release([slot for slot in used if self.state.owner[slot] in wants])

    def hand_out(self, wants: Mapping[str, _Wanted]) -> None:
        """Assign whole hosts, most slots first, to the topologies, by id, largest machine first."""
        ranking = sorted(
            (host for host in self._slots if host not in self._reserved),
            key=lambda host: (-len(self._slots[host]), -sum(map(self.state.free.is_free, self._slots[host])), host),
        )
        ranking.reverse()  # the head is the last one
        for name, wanted in wants.items():
            for size in wanted.sizes():
                if not ranking or len(self._slots[ranking[-1]]) < size:
                    continue
                host = ranking.pop()
                self._empty(host)
                for slot, spec in zip(self._slots[host][:size], wanted.specs[:size], strict=True):
                    self.state.start(name, slot, sorted(spec))
                del wanted.specs[:size]
                self._reserved.add(host)

    def empty_the_rest(self) -> None:
        """Stop everything on hosts that are not reserved."""
        for host in self._slots:
            if host not in self._reserved:
                self._empty(host)

    def _empty(self, host: str) -> None:
        self.state.release([slot for slot in self._slots[host] if slot in self.state.owner])

    def place_others(self, problem: Problem, topologies: list[Topology]) -> dict[str, Placement]:
        """Place the other topologies by `default`, on hosts that are not reserved."""
        open_nodes = tuple(
            replace(node, available=node.available and node.machine not in self._reserved)
            for node in problem.cluster.nodes
        )
        existing = tuple(
            ExistingWorker(name, slot.node, slot.index, tuple(executor.name for executor in executors))
            for name, workers in self.state.workers.items()
            for slot, executors in workers.items()
        )
        cluster = replace(problem.cluster, nodes=open_nodes, existing=existing)
        rest = RunningWorkers(dataclasses.replace(problem, cluster=cluster, topologies=tuple(topologies)))
        placements = place_by_default(self._cluster, topologies, rest)
        for topology in topologies:
            self.state.workers[topology.id] = rest.workers[topology.id]
        return placements


def _isolated(topology: Topology, state: RunningWorkers, wanted: _Wanted) -> Placement:
    message = f"{len(wanted.specs)} workers got no host of their own" if wanted.specs else ""
    return concluded(topology, assigned(state.workers[topology.id]), message)


def _made_to_wait(topology: Topology, state: RunningWorkers, unmet: list[str]) -> Placement:
    message = f"waits until there are hosts enough for the isolated {', '.join(unmet)}"
    return concluded(topology, assigned(state.workers[topology.id]), message)
