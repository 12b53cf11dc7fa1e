"""Er-Stream's Algorithm 2: executors leave overloaded nodes, to nodes of their neighbours first.

Corrected: the target's own bound holds (C9), the global stage is an alternative with the same test (C10, C11), further
victims follow one that fits nowhere (C12), and loads are updated within the answer (C13).
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any, Literal

from scheduler.online.predicted_loads import PredictedLoads
from scheduler.toolkit.local_traffic import Rates
from workloads.topology import Executor, Topology

MOST_CANDIDATES = 20
"""Maximum number of nodes in an account that were examined, besides the one that was chosen."""


@dataclass(frozen=True)
class Candidate:
    """A node that was examined as the target of a victim.

    Attributes:
        victim: the executor.
        node: the node.
        stage: `local` where a neighbour of the victim runs on it.
        load: load of the node with the victim.
        bound: highest load allowed.
        r: reliability.
        refusal: why it cannot be the target, or an empty text.
    """

    victim: Executor
    node: str
    stage: Literal["local", "global"]
    load: float
    bound: float
    r: float
    refusal: str

    @property
    def account(self) -> dict[str, Any]:
        """The same in JSON types."""
        return {
            "executor": self.victim.name,
            "node": self.node,
            "stage": self.stage,
            "load": round(self.load, 6),
            "bound": self.bound,
            "r": round(self.r, 6),
            "refusal": self.refusal,
        }


@dataclass(frozen=True)
class Relief:
    """Decision about an overloaded node.

    Attributes:
        node: the node.
        load, bound: its load before the decision, and the highest load allowed.
        victim: executor that leaves; None = no executor fits anywhere, or none may leave.
        local: traffic between the victim and other executors on the node.
        target: node to which it moves.
        candidates: nodes examined, the target included; of several victims the last ones.
        tried: number of victims examined.
        skipped: executors that may not leave yet, or use no CPU.
    """

    node: str
    load: float
    bound: float
    victim: Executor | None
    local: float
    target: Candidate | None
    candidates: tuple[Candidate, ...]
    tried: int
    skipped: int

    @property
    def text(self) -> str:
        """The decision in words."""
        load = f"{self.node} is at {self.load:.1%} of its CPU"
        if self.victim is None or self.target is None:
            return f"{load}: {self._why_none}"
        return f"{load}: {self.victim.name} moves to {self.target.node}"

    @property
    def _why_none(self) -> str:
        return "no room" if self.tried else "no executor may leave"

    @property
    def account(self) -> dict[str, Any]:
        """The same in JSON types."""
        entry: dict[str, Any] = {"node": self.node, "load": round(self.load, 6), "bound": self.bound}
        if self.victim is None or self.target is None:
            entry |= {"outcome": self._why_none, "executor": None, "to": None, "stage": "none", "local_traffic": None}
        else:
            entry |= {"outcome": "move", "executor": self.victim.name, "to": self.target.node}
            entry |= {"stage": self.target.stage, "local_traffic": self.local}
        # The last ones and the target.
        chosen = [each for each in self.candidates[:-MOST_CANDIDATES] if each is self.target]
        candidates = [candidate.account for candidate in (*chosen, *self.candidates[-MOST_CANDIDATES:])]
        return entry | {"tried": self.tried, "skipped": self.skipped, "candidates": candidates}


def relieve(
    topology: Topology,
    loads: PredictedLoads,
    rates: Rates,
    most_moves: int,
    held: Collection[Executor] = (),
) -> list[Relief]:
    """Return the decisions about overloaded nodes with executors, most overloaded first; `loads` is updated with moves.

    Args:
        topology: the topology.
        loads: loads and places.
        rates: observed traffic.
        most_moves: maximum number of executors that leave a node.
        held: executors that may not move.
    """
    overloaded = [node for node in loads.load if loads.is_overloaded(node) and loads.on(node)]
    overloaded.sort(key=lambda node: (loads.bound[node] - loads.load[node], node))
    if not overloaded or not most_moves:
        return []
    relief = _Relieving(topology, loads, rates, overloaded, {*held, *(e for e in loads.place if not loads.work(e))})
    reliefs: list[Relief] = []
    for node in overloaded:
        for _ in range(most_moves):
            if not loads.is_overloaded(node):
                break
            reliefs.append(relief.of(node))
            if reliefs[-1].victim is None:
                break
    return reliefs


def vacate(topology: Topology, loads: PredictedLoads, rates: Rates, nodes: Collection[str]) -> list[Relief]:
    """Return the decisions about all executors on nodes that are to be left. `loads` is updated with the moves."""
    relief = _Relieving(topology, loads, rates, nodes, ())
    reliefs: list[Relief] = []
    for node in sorted(nodes):
        while loads.on(node):
            reliefs.append(relief.of(node))
            if reliefs[-1].victim is None:
                break
    return reliefs


class _Relieving:
    """The choice of victims on some nodes, and of their targets."""

    def __init__(
        self,
        topology: Topology,
        loads: PredictedLoads,
        rates: Rates,
        nodes: Collection[str],
        held: Collection[Executor],
    ) -> None:
        self._loads = loads
        self._held = held
        self._neighbours = Neighbours(topology, loads.place)
        self._number, self._executors = topology.number_of, topology.executors
        self._partners: dict[int, list[tuple[int, float]]] = {
            self._number[executor]: [] for node in nodes for executor in loads.on(node)
        }
        for (one, other), rate in rates.items():
            if one in self._partners:
                self._partners[one].append((other, rate))
            if other in self._partners:
                self._partners[other].append((one, rate))

    def of(self, node: str) -> Relief:
        """Decide about one executor of `node`, and move it."""
        loads = self._loads
        load, bound = loads.load.get(node, 0.0), loads.bound[node]
        here = loads.on(node)
        mobile = [executor for executor in here if executor not in self._held]
        local = {executor: self._local(executor, node) for executor in mobile}
        most_work = loads.most_work()
        seen: list[Candidate] = []
        victims = sorted(mobile, key=lambda executor: (local[executor], -loads.share(executor), executor))
        for tried, victim in enumerate(victims, 1):
            if loads.work(victim) > most_work and len(seen) >= MOST_CANDIDATES:
                continue  # it fits nowhere, and the account is long enough
            target, candidates = self._target(victim, node)
            seen = [*seen[-MOST_CANDIDATES:], *candidates]
            if target is not None:
                self._neighbours.move(victim, node, target.node)
                loads.move(victim, target.node)
                skipped = len(here) - len(mobile)
                return Relief(node, load, bound, victim, local[victim], target, tuple(seen), tried, skipped)
        return Relief(node, load, bound, None, 0.0, None, tuple(seen), len(mobile), len(here) - len(mobile))

    def _local(self, executor: Executor, node: str) -> float:
        """Return the traffic between `executor` and others on its node (Eq. 26)."""
        place, executors = self._loads.place, self._executors
        partners = self._partners[self._number[executor]]
        return fsum(rate for other, rate in partners if place[executors[other]] == node)

    def _target(self, victim: Executor, node: str) -> tuple[Candidate | None, list[Candidate]]:
        """Return the most reliable node that has room for `victim`, and the nodes examined."""
        near = self._neighbours.nodes(victim)
        others = [other for other in self._loads.nodes if other != node]
        seen = [self._candidate(victim, other, "local") for other in others if other in near]
        target = _best(seen)
        if target is None:
            further = [self._candidate(victim, other, "global") for other in others if other not in near]
            seen, target = [*seen, *further], _best(further)
        return target, seen

    def _candidate(self, victim: Executor, node: str, stage: Literal["local", "global"]) -> Candidate:
        loads = self._loads
        load = loads.load[node] + loads.share(victim, node)
        refusal = loads.refusal(victim, node)
        return Candidate(victim, node, stage, load, loads.bound[node], loads.reliability(node), refusal)


def _best(candidates: Sequence[Candidate]) -> Candidate | None:
    """Return the most reliable node that has room, of equal ones that with the lower load, then by id."""
    fit = [candidate for candidate in candidates if not candidate.refusal]
    return min(fit, key=lambda each: (-each.r, each.load, each.node), default=None)


class Neighbours:
    """Nodes with upstream or downstream executors of an executor, component by component."""

    def __init__(self, topology: Topology, place: Mapping[Executor, str]) -> None:
        self._place = place
        self._on: dict[str, Counter[str]] = {component.id: Counter() for component in topology.components}
        for executor, node in place.items():
            self._on[executor.component][node] += 1
        self._links: dict[str, list[tuple[str, bool, bool]]] = {c.id: [] for c in topology.components}
        for source, destination, entry in topology.links():
            only_first = entry.grouping == "global"
            self._links[source.id].append((destination.id, only_first, False))
            self._links[destination.id].append((source.id, False, only_first))

    def nodes(self, executor: Executor) -> set[str]:
        """Return the nodes with a neighbour of `executor`."""
        return set(self._each(executor))

    def _each(self, executor: Executor) -> Iterator[str]:
        for component, only_first, if_first in self._links[executor.component]:
            if if_first and executor.index:
                continue
            if only_first:
                yield self._place[Executor(component, 0)]
            else:
                yield from self._on[component]

    def move(self, executor: Executor, source: str, target: str) -> None:
        """Note a move."""
        counts = self._on[executor.component]
        counts[target] += 1
        counts[source] -= 1
        if not counts[source]:
            del counts[source]
