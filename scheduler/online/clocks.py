"""Er-Stream's clocks: the lowest clock of a node that keeps its performance and its load (Eq. 27-30, Algorithm 4).

Clocks are ratios to the reference clock (C20). The closed form replaces the printed search (C23); its upper end is the
hardware's (C24), and clocks are rounded up to those that the node offers (C22).
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, inf, log
from typing import Any, Literal

from inventory.cluster import Cluster, Node
from inventory.values import EnergyModel
from scheduler.online.critical_path import CriticalPath, critical_path
from scheduler.online.observation import Observation, ObservedNode
from scheduler.online.predicted_loads import TOLERANCE, PredictedLoads
from workloads.topology import Executor, Topology

View = Literal["stream", "batch"]
"""Energy that is minimised: power, where arrivals fix the work; or energy to finish a number of tuples."""

Rule = Literal["y_min", "capacity", "energy_min", "f_min", "f_max"]
"""Source that a clock follows from."""

MOST_SHOWN = 100
"""Maximum number of executors in an account."""

ROUNDED_HZ = 50e6
"""Deviation up to which a clock that was set counts as the one that was wanted: drivers round."""

EQUAL_ANSWERS = 3
"""Consecutive windows with the same answer after which a clock is lowered."""


@dataclass(frozen=True)
class ChosenClock:
    """Clock of a node.

    Attributes:
        phi: the clock before it is rounded, as a ratio to the reference clock.
        hz: the clock that is set.
        rule: what `phi` follows from.
        feasible: whether performance and load can be kept.
        needs: rule -> lowest ratio by it.
    """

    phi: float
    hz: int
    rule: Rule
    feasible: bool
    needs: Mapping[Rule, float]


def choose_clock(
    load: float,
    bound: float,
    performance: float,
    model: EnergyModel,
    offered_hz: Sequence[int],
    view: View = "stream",
) -> ChosenClock:
    """Return the clock of a node.

    Args:
        load: its load, normalised to the reference clock.
        bound: highest load allowed.
        performance: share of full-speed performance that it keeps (p_req).
        model: its energy model.
        offered_hz: clocks that it can be set to.
        view: energy that is minimised. The load is limited in both views (ours for `batch`).
    """
    reference = reference_hz(model, offered_hz)
    needs: dict[Rule, float] = {
        "y_min": (performance - (1 - load)) / load if load else -inf,
        "capacity": load / bound if bound else inf,
    }
    if view == "batch":
        needs["energy_min"] = cheapest_clock(model)
    rule = max(needs, key=needs.__getitem__)
    phi = needs[rule]
    lowest, highest = min(offered_hz) / reference, max(offered_hz) / reference
    feasible = max(needs["y_min"], needs["capacity"]) <= highest * (1 + TOLERANCE)
    if phi > highest * (1 + TOLERANCE):
        phi, rule = highest, "f_max"
    elif phi < lowest:
        phi, rule = lowest, "f_min"
    fast_enough = (hz for hz in offered_hz if hz >= phi * reference * (1 - TOLERANCE))
    return ChosenClock(phi, min(fast_enough, default=max(offered_hz)), rule, feasible, needs)


def cheapest_clock(model: EnergyModel) -> float:
    """Return the ratio at which a number of tuples takes the least energy; infinite if faster is always better."""
    if model.kappa <= 1 or not model.p_d:
        return inf
    return float((model.p_s / (model.p_d * (model.kappa - 1))) ** (1 / model.kappa))


def watts(model: EnergyModel, phi: float, load: float) -> float:
    """Return the power of a node at the clock `phi`, with `load` normalised to the reference clock."""
    return float(model.p_s + model.p_d * phi**model.kappa * min(1.0, load / phi))


def reference_hz(model: EnergyModel, offered_hz: Sequence[int]) -> float:
    """Return the reference clock of a node."""
    return max(offered_hz) if model.f_ref_ghz is None else model.f_ref_ghz * 1e9


def why_left_alone(node: Node, shared: Collection[str] = ()) -> str:
    """Return why the clock of a node is never changed, or an empty text; `shared` are nodes beside others."""
    if not node.frequencies_hz or len(set(node.frequencies_hz)) < 2:
        return "there are no clocks to choose from"
    if node.power is None:
        return "it has no power model"
    if node.power.kappa <= 1 or not node.power.p_d:
        return "by its power model a lower clock saves nothing"
    return "it is on one machine with other nodes" if node.id in shared else ""


def present_hz(node: Node, observed: ObservedNode) -> float:
    """Return the clock that was set on a node that offers clocks: its highest if none was."""
    return observed.asked_hz or float(max(node.frequencies_hz or (0,)))


def clock_ratio(node: Node, observed: ObservedNode) -> float:
    """Return the measured clock (else the one that was set) as a share of the node's highest one; 1 where unknown."""
    if not node.frequencies_hz:
        return 1.0
    return (observed.hz or present_hz(node, observed)) / max(node.frequencies_hz)


def utilisations(cluster: Cluster, loads: PredictedLoads, frequencies: Mapping[str, int]) -> dict[str, float]:
    """Return node -> predicted load at the clock that it will have."""
    ratio = dict(loads.clock)
    for name, hz in frequencies.items():
        ratio[name] = hz / max(cluster.by_id[name].frequencies_hz or (hz,))
    return {name: load / ratio.get(name, 1.0) for name, load in loads.load.items()}


def sharing(cluster: Cluster) -> frozenset[str]:
    """Return the nodes that are on one machine with other nodes."""
    machine = {n.id: "this host" if (n.address or "").startswith("127.") else n.machine for n in cluster.nodes}
    count = Counter(machine.values())
    return frozenset(name for name, host in machine.items() if count[host] > 1)


@dataclass(frozen=True)
class ClockAnswer:
    """Clocks of one window.

    Attributes:
        frequencies: node -> new clock in Hz.
        watts: predicted power of all nodes; None unless all have a model.
        details: account of every node, JSON types.
    """

    frequencies: Mapping[str, int]
    watts: float | None
    details: Mapping[str, Any]


class ClockControl:
    """Clocks window by window: raised at once, lowered after three equal answers."""

    def __init__(self, p_min: float, tolerance: float, view: View) -> None:
        """Begin a run.

        Args:
            p_min: share of full-speed performance that a slowed node keeps at least.
            tolerance: slack up to which an executor is critical, as a share of the longest path.
            view: energy that is minimised.
        """
        self._p_min = p_min
        self._tolerance = tolerance
        self._view: View = view
        self._answers: dict[str, tuple[int, int]] = {}  # node -> last answer, and windows with it
        self._delay: dict[Executor, float] = {}  # at the highest clock of its node
        self._wanted: dict[str, int] = {}  # node -> clock that was answered last

    def ratios(self, cluster: Cluster, observation: Observation) -> dict[str, float]:
        """Return node -> clock that was set, as a share of the highest one, for nodes whose clock is chosen here."""
        shared = sharing(cluster)
        return {
            node.id: min(1.0, self._now(node, observed) / max(node.frequencies_hz or (1,)))
            for node in cluster.nodes
            if (observed := observation.nodes.get(node.id)) is not None and not why_left_alone(node, shared)
        }

    def _now(self, node: Node, observed: ObservedNode) -> float:
        """Return the present clock: the one that was wanted, where it was set to nearly that."""
        now, wanted = present_hz(node, observed), self._wanted.get(node.id)
        return now if wanted is None or abs(now - wanted) > ROUNDED_HZ else wanted

    def answer(
        self,
        cluster: Cluster,
        topology: Topology,
        observation: Observation,
        loads: PredictedLoads,
        received: Collection[str],
    ) -> ClockAnswer:
        """Return the clocks of this window.

        Args:
            cluster: the cluster.
            topology: the topology.
            observation: the last window.
            loads: predicted loads with `ratios`, moves of this answer included.
            received: nodes to which this answer moves executors. No clock is lowered together with moves.
        """
        path = self._path(cluster, topology, observation)
        critical = frozenset(path.critical(self._tolerance)) if path else frozenset()
        shared = sharing(cluster)
        frequencies: dict[str, int] = {}
        nodes: dict[str, Any] = {}
        power: list[float | None] = []
        for node in cluster.available:
            observed = observation.nodes.get(node.id)
            always = why_left_alone(node, shared)
            alone = always or _why_not_judged(node, observed, loads, path)
            now = 0.0 if always or observed is None else self._now(node, observed)
            if alone or observed is None or path is None:
                nodes[node.id] = {"left_alone": alone}
                self._answers.pop(node.id, None)
                highest = max(node.frequencies_hz or (0,))
                if 0 < now < highest and _is_hot(node, loads, now):
                    frequencies[node.id] = highest
                    nodes[node.id] |= {"binding": "overloaded", "hz": highest}
            else:
                wanted = _wanted(node, observed, now, loads, path, critical, self._p_min, self._view)
                last, windows = self._answers.get(node.id, (0, 0))
                windows = 0 if received else windows + 1 if last == wanted.hz else 1
                self._answers[node.id] = wanted.hz, windows
                if wanted.hz > wanted.now_hz or (wanted.hz < wanted.now_hz and windows >= EQUAL_ANSWERS):
                    frequencies[node.id] = wanted.hz
                nodes[node.id] = {**wanted.account, "windows": windows, "sets": node.id in frequencies}
            power.append(_predicted_watts(node, observed, loads, frequencies.get(node.id)))
        self._wanted |= frequencies
        known = [each for each in power if each is not None]
        known_path = bool(path and path.seconds)
        details: dict[str, Any] = {
            "clocks": nodes,
            "tolerance": self._tolerance,
            "path_s": path.seconds if path and known_path else None,
            "critical": [executor.name for executor in sorted(critical)[:MOST_SHOWN]] if known_path else [],
            "critical_executors": len(critical) if known_path else None,
            "critical_nodes": sorted({loads.place[executor] for executor in critical}) if known_path else [],
        }
        return ClockAnswer(frequencies, fsum(known) if len(known) == len(power) else None, details)

    def _path(self, cluster: Cluster, topology: Topology, observation: Observation) -> CriticalPath | None:
        """Return the longest path at the highest clocks, by the last delays that were measured."""
        for executor in topology.executors:
            observed = observation.executors[executor.name]
            if observed.delay_s is not None:
                node, there = cluster.by_id[observed.node], observation.nodes.get(observed.node)
                self._delay[executor] = observed.delay_s * (1.0 if there is None else clock_ratio(node, there))
        return None if topology.cycle else critical_path(topology, self._delay)


@dataclass(frozen=True)
class _Wanted:
    """The answer for one node: present clock, wanted clock, and its account."""

    now_hz: float
    hz: int
    account: Mapping[str, Any]


def _why_not_judged(node: Node, observed: ObservedNode | None, loads: PredictedLoads, path: CriticalPath | None) -> str:
    """Return why no clock is chosen for a node in this window, or an empty text."""
    if observed is None or observed.load is None:
        return "its load was not measured"
    if not loads.on(node.id):
        return "no executor runs on it"
    if path is None:
        return "there is no longest path: the topology has a cycle"
    return "" if path.seconds else "no compute delay was measured"


def _added(node: Node, loads: PredictedLoads) -> float:
    """Return the load at the highest clock that moves of this answer add to a node."""
    return loads.load[node.id] - loads.observed[node.id]


def _is_hot(node: Node, loads: PredictedLoads, now_hz: float) -> bool:
    """Return whether a node whose load is known exceeds its bound at its present clock."""
    load = loads.load.get(node.id, 0.0) * max(node.frequencies_hz or (now_hz,)) / now_hz
    return load > loads.bound[node.id] + TOLERANCE


def _wanted(
    node: Node,
    observed: ObservedNode,
    now: float,
    loads: PredictedLoads,
    path: CriticalPath,
    critical: Collection[Executor],
    p_min: float,
    view: View,
) -> _Wanted:
    """Return the clock that a node is to have; `now` is its present one."""
    offered, model, bound, here = node.frequencies_hz, node.power, loads.bound[node.id], loads.on(node.id)
    if not offered or model is None or observed.load is None:
        raise ValueError(f"{node.id} is to be left alone")
    highest, reference = max(offered), reference_hz(model, offered)
    load = (observed.load * clock_ratio(node, observed) + _added(node, loads)) * highest / reference
    p_slack = path.performance(here)
    p_req = max(p_min, p_slack)
    theta = fsum(path.delay[executor] for executor in here) / len(here)
    chosen = choose_clock(load, bound, p_req, model, offered, view)
    hot = _is_hot(node, loads, now)
    stuck = [executor.name for executor in here if executor in critical]
    hz = highest if stuck or hot else chosen.hz
    account = {
        "load": round(load, 6),
        "utilisation": round(loads.load[node.id] * highest / now, 6),
        "bound": bound,
        "theta_s": theta,
        "p_slack": round(p_slack, 6),
        "p_req": round(p_req, 6),
        "y_min_s": theta * log(p_req) if p_req else None,
        "phi": round(chosen.phi, 6),
        "binding": "critical" if stuck else "overloaded" if hot else chosen.rule,
        "feasible": chosen.feasible,
        "critical": stuck[:MOST_SHOWN],
        "now_hz": now,
        "hz": hz,
    }
    return _Wanted(now, hz, account)


def _predicted_watts(node: Node, observed: ObservedNode | None, loads: PredictedLoads, hz: int | None) -> float | None:
    """Return the power of a node after the answer, or None without model or load."""
    if node.power is None or observed is None or observed.load is None:
        return None
    added = _added(node, loads)
    if not node.frequencies_hz:
        return watts(node.power, 1.0, max(0.0, observed.load + added))
    highest, now = max(node.frequencies_hz), clock_ratio(node, observed)
    scale = highest / reference_hz(node.power, node.frequencies_hz)
    load = max(0.0, (observed.load * now + added) * scale)
    return watts(node.power, now * scale if hz is None else hz / highest * scale, load)
