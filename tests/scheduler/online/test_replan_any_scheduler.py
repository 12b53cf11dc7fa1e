"""`replan`: any scheduler's `place` revises a running topology."""

import pytest
from msgspec.structs import replace
from observed_rounds import SKEWED_RATES, SPREAD_PLACEMENT, chain, nodes, observed, round_at

from inventory.errors import InputError, RunError
from inventory.plugins import given
from scheduler.online.observation import Observation
from scheduler.online.replanner import Replan, replanning
from scheduler.online.replanning import cut_of
from scheduler.online.revision import Revision
from scheduler.online.validation import CheckedOnline, make_online_scheduler, rhythm_of
from scheduler.problem import Needs, NoParams, Plan, Problem
from scheduler.registry import computing_schedulers

CLUSTER = nodes(ghz=1.0, flops_per_cycle=4)


def revise(name: str, observation: Observation, **replan: float) -> Revision:
    revision = make_online_scheduler(name, Replan(**replan)).revise(round_at(observation, cluster=CLUSTER), observation)
    assert revision is not None
    return revision


def cut_after(observation: Observation, revision: Revision) -> float:
    problem = round_at(observation, cluster=CLUSTER)
    (topology,) = problem.topologies
    slots = {topology.executor_named[name]: slot for name, slot in observation.places.items()}
    return cut_of(problem, topology, slots | {move.executor: move.target for move in revision.moves})


@pytest.mark.parametrize("name", computing_schedulers())
def test_every_scheduler_revises_at_most_once_and_only_for_enough_gain(name: str) -> None:
    observation = observed(60, cluster=CLUSTER)
    revision = revise(name, observation)
    if revision.moves:
        assert revision.reason == "cut"
        assert cut_after(observation, revision) == pytest.approx(revision.expects.cut)
        assert cut_after(observation, revision) <= 0.9 * 310
    else:
        assert revision.text in ("the plan saves too little", "the plan is what runs") or "no plan: " in revision.text
    moved = {move.executor.name: f"{move.target.node}/{move.target.index}" for move in revision.moves}
    assert not revise(name, observed(120, {**SPREAD_PLACEMENT, **moved}, cluster=CLUSTER)).moves


@pytest.mark.parametrize("name", ["optimal", "local-search"])
def test_a_plan_is_applied_from_the_minimum_gain_on(name: str) -> None:
    revision = revise(name, observed(60, cluster=CLUSTER), min_gain_percent=70)
    assert revision.expects.cut == 90
    assert len(revision.moves) == 2
    assert not revise(name, observed(60, cluster=CLUSTER), min_gain_percent=72).moves  # 310 -> 90 saves 71 %


def test_it_revises_periodically_from_the_first_full_window_on() -> None:
    rhythm = rhythm_of(make_online_scheduler("even", Replan(every_s=200)))
    assert rhythm is not None
    assert (rhythm.window_s, rhythm.first_s, rhythm.ask_s) == (60, 200, 200)
    short_period = rhythm_of(make_online_scheduler("even", Replan(every_s=5)))
    assert short_period is not None
    assert (short_period.window_s, short_period.first_s, short_period.ask_s) == (5, 5, 5)


def test_executors_leave_a_node_that_is_not_available_whatever_it_saves() -> None:
    observation = observed(60, rates=dict.fromkeys(SKEWED_RATES, 1.0), cluster=CLUSTER)
    node_states = {name: replace(node, available=name != "n1") for name, node in observation.nodes.items()}
    revision = revise("even", replace(observation, nodes=node_states))
    assert revision.reason == "nodes"
    assert {m.executor.name for m in revision.moves} >= {"s[0]", "b[0]", "k[1]"}
    assert all(move.target.node != "n1" for move in revision.moves)


def test_parameters_reach_the_scheduler_and_wrong_ones_are_named() -> None:
    scheduler = make_online_scheduler("top-storm", Replan(), given(["alpha=1"]))
    assert (scheduler.name, scheduler.params["alpha"]) == ("top-storm", 1.0)
    with pytest.raises(InputError, match="did you mean 'alpha'"):
        make_online_scheduler("top-storm", Replan(), given(["alfa=1"]))


def test_without_replan_a_scheduler_needs_revise() -> None:
    assert rhythm_of(make_online_scheduler("t-storm", None)) is not None
    with pytest.raises(InputError, match="'even' does not revise running topologies; with `replan` its `place` does"):
        make_online_scheduler("even", None)


class Breaks:
    """A scheduler with a fault in its `place`."""

    name = "breaks"
    paper = "none"
    needs = Needs()
    Params = NoParams

    def __init__(self, params: NoParams) -> None:
        pass

    def place(self, problem: Problem) -> Plan:
        raise RuntimeError("no idea")


def test_an_exception_in_place_is_reported_with_its_line() -> None:
    scheduler = CheckedOnline(replanning(Breaks, Replan()), NoParams())
    observation = observed(60)
    with pytest.raises(RunError, match=r"'breaks' raised RuntimeError: no idea \(.*test_replan_any_scheduler.py:"):
        scheduler.revise(round_at(observation, chain()), observation)
