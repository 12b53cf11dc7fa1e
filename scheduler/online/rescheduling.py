"""Er-Stream's Algorithm 3: whether a new partition replaces the running one, and which of its changes are accepted.

Corrected: groups are compared without their names (C15), the test is on the traffic between nodes (C16), changes that
are no pairs form one group (C17), and what was accepted is tested again (C18).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, inf
from typing import Any

from scheduler.online.predicted_loads import PredictedLoads
from scheduler.online.replanning import heaviest_matching
from scheduler.toolkit.local_traffic import Rates
from workloads.topology import Executor, Topology

MOST_SHOWN = 100
"""Maximum number of executors in the account of a group."""

Change = tuple[Executor, str, str]
"""Executor, the node where it is, and the node where it goes."""


@dataclass(frozen=True)
class JointChanges:
    """Changes that are accepted together or not at all.

    Attributes:
        changes: the changes.
        refusal: why it is not accepted, or an empty text.
    """

    changes: Sequence[Change]
    refusal: str

    @property
    def account(self) -> dict[str, Any]:
        """The same in JSON types."""
        shown = [[executor.name, source, target] for executor, source, target in self.changes[:MOST_SHOWN]]
        return {"changes": shown, "size": len(self.changes), "refusal": self.refusal}


@dataclass(frozen=True)
class RescheduleDecision:
    """Decision about a new partition.

    Attributes:
        cut_now, cut_plan, cut_accepted: tuples/s between nodes now, by the plan, and with the accepted groups.
        alpha: the ratio that a plan must exceed.
        named: executors that change their node by the plan, before groups are renamed.
        groups: the changes of the plan after renaming; empty if the plan does not pass the test.
        accepted: the changes to be made.
        text: the decision in words.
    """

    cut_now: float
    cut_plan: float
    cut_accepted: float
    alpha: float
    named: int
    groups: Sequence[JointChanges]
    accepted: Sequence[Change]
    text: str

    @property
    def account(self) -> dict[str, Any]:
        """The same in JSON types."""
        return {
            "asked": True,
            "cut_old": self.cut_now,
            "cut_new": self.cut_plan,
            "cut_accepted": self.cut_accepted,
            "alpha": self.alpha,
            "fired": is_worth_it(self.cut_now, self.cut_plan, self.alpha),
            "moves_before_renaming": self.named,
            "moves_after_renaming": sum(len(group.changes) for group in self.groups),
            "groups": [group.account for group in self.groups if not group.refusal],
            "rejected": [group.account for group in self.groups if group.refusal],
            "accepted": len(self.accepted),
            "outcome": self.text,
        }


def not_asked(why: str) -> dict[str, Any]:
    """Return the account where no new partition was made."""
    return {"asked": False, "fired": False, "outcome": why}


def is_worth_it(now: float, plan: float, alpha: float) -> bool:
    """Return whether a cut is smaller, and by a ratio above `alpha` (Eq. 24); 0 is smaller by any ratio."""
    return plan < now and (plan == 0 or now / plan > alpha)


def node_cut(topology: Topology, place: Mapping[Executor, str], rates: Rates) -> float:
    """Return the tuples/s between executors on different nodes."""
    nodes = [place[executor] for executor in topology.executors]
    return fsum(rate for (one, other), rate in rates.items() if nodes[one] != nodes[other])


def renamed_nodes(
    now: Mapping[Executor, str], plan: Mapping[Executor, str], places: Mapping[str, int]
) -> dict[Executor, str]:
    """Return the plan with groups renamed among nodes with equally many places, so that the fewest executors move.

    Args:
        now: executor -> node.
        plan: executor -> node, for the same executors.
        places: node -> its places, for all nodes of the plan.
    """
    common: dict[str, dict[str, int]] = {node: {} for node in places}
    for executor, group in plan.items():
        node = now[executor]
        if places.get(node) == places[group]:
            common[group][node] = common[group].get(node, 0) + 1
    _, home = heaviest_matching(common)
    taken = set(home.values())
    free = [node for node in places if node not in taken]
    for group in places:
        if group in home:
            continue
        alike = [node for node in free if places[node] == places[group]]
        home[group] = group if group in alike else alike[0]
        free.remove(home[group])
    return {executor: home[group] for executor, group in plan.items()}


def reschedule(
    topology: Topology,
    loads: PredictedLoads,
    plan: Mapping[Executor, str],
    rates: Rates,
    alpha: float,
    held: Collection[Executor] = (),
) -> RescheduleDecision:
    """Decide about a partition. `loads` is updated with the accepted changes.

    Args:
        topology: the topology.
        loads: loads and places.
        plan: executor -> node, on the nodes in use.
        rates: observed traffic.
        alpha: ratio of cuts that the plan must exceed.
        held: executors that may not move.
    """
    now = dict(loads.place)
    places = {node: loads.places(node) for node in dict.fromkeys((*now.values(), *plan.values()))}
    target = renamed_nodes(now, plan, places)
    named = sum(now[executor] != plan[executor] for executor in plan)
    cut_now, cut_plan = node_cut(topology, now, rates), node_cut(topology, target, rates)
    if not is_worth_it(cut_now, cut_plan, alpha):
        text = "the plan is not better" if cut_plan >= cut_now else "the plan saves too little"
        return RescheduleDecision(cut_now, cut_plan, cut_now, alpha, named, (), (), text)
    groups = [_judged(changes, loads, held) for changes in grouped(now, target)]
    accepted = [change for group in groups if not group.refusal for change in group.changes]
    cut_accepted = node_cut(topology, loads.place, rates)
    if accepted and not is_worth_it(cut_now, cut_accepted, alpha):
        for executor, source, _ in accepted:
            loads.move(executor, source)
        text = "what was accepted of the plan saves too little"
        return RescheduleDecision(cut_now, cut_plan, cut_now, alpha, named, groups, (), text)
    text = f"{cut_now:.6g} -> {cut_accepted:.6g} tuples/s between nodes" if accepted else "no change is accepted"
    return RescheduleDecision(cut_now, cut_plan, cut_accepted, alpha, named, groups, accepted, text)


def grouped(now: Mapping[Executor, str], target: Mapping[Executor, str]) -> list[list[Change]]:
    """Return the changes in groups: pairs of opposite changes first, then one group of all others."""
    changes = [(executor, now[executor], target[executor]) for executor in sorted(now)]
    changes = [change for change in changes if change[1] != change[2]]
    waiting: dict[tuple[str, str], list[Change]] = {}
    opposite: dict[Executor, Change] = {}
    for change in changes:
        _, source, node = change
        if waiting.get((node, source)):
            partner = waiting[node, source].pop(0)
            opposite[partner[0]] = change
        else:
            waiting.setdefault((source, node), []).append(change)
    pairs = [[change, opposite[change[0]]] for change in changes if change[0] in opposite]
    paired = {change for pair in pairs for change in pair}
    rest = [change for change in changes if change not in paired]
    return [*pairs, rest] if rest else pairs


def _judged(changes: Sequence[Change], loads: PredictedLoads, held: Collection[Executor]) -> JointChanges:
    """Apply the changes to `loads` if every node that receives an executor ends below its bound."""
    cooling = [executor.name for executor, _, _ in changes if executor in held]
    if cooling:
        return JointChanges(changes, f"moved a short time ago: {', '.join(cooling[:MOST_SHOWN])}")
    for executor, _, target in changes:
        loads.move(executor, target)
    for node in dict.fromkeys(target for _, _, target in changes):
        if not loads.is_below(node, loads.load.get(node, inf)):
            for executor, source, _ in changes:
                loads.move(executor, source)
            return JointChanges(changes, f"the load of {node} would reach its bound")
    return JointChanges(changes, "")
