"""Validation of plans: every fault is named, and valid plans pass."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import chain, nodes_of, problems

from inventory.cluster import Cluster, ExistingWorker, Node
from inventory.errors import InputError, RunError
from inventory.power_index import NodePower
from scheduler.algorithms.even import Even, EvenParams
from scheduler.problem import CommunicationSchedule, Move, Needs, NoParams, Placement, Plan, Problem, Slot
from scheduler.registry import Checked, InvalidPlanError, make_scheduler
from scheduler.toolkit.plan_faults import plan_faults
from workloads.topology import Component, Executor, Input, Topology
from workloads.traffic import Edge, Traffic

T = chain(2, 1, name="t")
U = chain(1, name="u")
CLUSTER = Cluster(
    (
        Node(id="n1", slots=2, frequencies_hz=(1000, 2000)),
        Node(id="n2", slots=2),
        Node(id="down", slots=2, available=False),
    ),
    existing=(
        ExistingWorker("other", "n2", 1, ("x[0]",)),
        ExistingWorker("t", "n2", 0, ("b[0]",)),
        ExistingWorker("t", "down", 0, ("a[1]",)),
    ),
)
PROBLEM = Problem(CLUSTER, (T, U))
A0, A1, B0 = T.executors

VALID = Plan(
    {
        "t": Placement({A0: Slot("n1", 0), A1: Slot("n1", 0), B0: Slot("n2", 0)}),
        "u": Placement({Executor("a", 0): Slot("n1", 1)}),
    }
)


def plan_for_t(assignments: Any, status: Any = "placed", message: Any = "") -> Plan:
    """Return the valid plan with another placement of t."""
    return replace(VALID, placements={**VALID.placements, "t": Placement(assignments, status, message)})


def plan_for_t_with(executor: Any, slot: Any) -> Plan:
    return plan_for_t({**VALID.placements["t"].assignments, executor: slot})


def plan_with_u(placement: Any) -> Plan:
    return replace(VALID, placements={**VALID.placements, "u": placement})


def test_a_valid_plan_has_no_fault() -> None:
    assert plan_faults(PROBLEM, VALID) == []
    schedule = CommunicationSchedule(("n1", "n2"), ((1, None), (None, 0)), 2)
    rich = replace(VALID, schedule=schedule, frequencies={"n1": 2000, "n2": 5}, power=[NodePower("n1", 1.0, 1)])
    assert plan_faults(PROBLEM, replace(rich, details={"a": [1, None, {"b": 1.5}]})) == []
    partial = plan_for_t({A0: Slot("n1", 0), B0: Slot("n2", 0)}, "partial", "no room for a[1]")
    assert plan_faults(PROBLEM, partial) == []
    assert plan_faults(PROBLEM, plan_with_u(Placement({}, "failed", "no room"))) == []


INVALID: dict[str, tuple[object, list[str]]] = {
    "no plan": (None, ["returned None, a Plan was expected"]),
    "a dict": ({}, ["returned a dict, a Plan was expected"]),
    "placements no mapping": (Plan([]), ["placements is a list, a mapping was expected"]),
    "unknown topology": (
        replace(VALID, placements={**VALID.placements, "tt": VALID.placements["t"]}),
        ["unknown topology 'tt'; did you mean 't'?"],
    ),
    "topology forgotten": (
        replace(VALID, placements={"t": VALID.placements["t"]}),
        ["topology 'u' has no placement"],
    ),
    "placement of another type": (plan_with_u({}), ["topology 'u': it is a dict, a Placement was expected"]),
    "executor missing": (
        plan_for_t({A0: Slot("n1", 0), B0: Slot("n2", 0)}),
        ["topology 't': it is called placed, but 1 executors are missing: a[1]"],
    ),
    "executor twice in a list": (
        plan_for_t([*VALID.placements["t"].assignments.items(), (A0, Slot("n1", 1))]),
        [
            "topology 't': assignments is a list, a mapping from executors to slots was expected",
            "topology 't': a[0] is placed 2 times",
            "slot 1 of 'n1' is shared by the topologies 't', 'u'",
        ],
    ),
    "executor moved away from a worker that runs": (
        plan_for_t_with(B0, Slot("n1", 0)),
        ["topology 't': b[0] is placed in slot 0 of 'n1', but its worker in slot 0 of 'n2' runs and was not released"],
    ),
    "running executor forgotten": (
        plan_for_t({A0: Slot("n1", 0), A1: Slot("n1", 0)}, "partial", "why"),
        ["topology 't': b[0] is missing, but its worker in slot 0 of 'n2' runs and was not released"],
    ),
    "unknown component": (
        plan_for_t_with(Executor("c", 0), Slot("n1", 0)),
        ["topology 't': unknown executor c[0]: no component 'c'; valid: a, b"],
    ),
    "executor beyond the parallelism": (
        plan_for_t_with(Executor("a", 2), Slot("n1", 0)),
        ["topology 't': unknown executor a[2]: 'a' has 2 executors"],
    ),
    "executor below 0": (
        plan_for_t_with(Executor("a", -1), Slot("n1", 0)),
        ["topology 't': unknown executor a[-1]: 'a' has 2 executors"],
    ),
    "executor by name": (
        plan_for_t_with("a[0]", Slot("n1", 0)),
        ["topology 't': 'a[0]' is a str, an Executor was expected"],
    ),
    "unknown node": (
        plan_for_t_with(A0, Slot("n3", 0)),
        ["topology 't': a[0]: unknown node 'n3'; valid: down, n1, n2"],
    ),
    "slot beyond the node": (
        plan_for_t_with(A0, Slot("n1", 2)),
        ["topology 't': a[0]: slot 2 is beyond the 2 slots of 'n1'"],
    ),
    "slot below 0": (plan_for_t_with(A0, Slot("n1", -1)), ["topology 't': a[0]: -1 is no slot of 'n1'"]),
    "slot index no number": (plan_for_t_with(A0, Slot("n1", "0")), ["topology 't': a[0]: '0' is no slot of 'n1'"]),
    "slot a truth value": (plan_for_t_with(A0, Slot("n1", False)), ["topology 't': a[0]: False is no slot of 'n1'"]),
    "slot a pair": (plan_for_t_with(A0, ("n1", 0)), ["topology 't': a[0]: ('n1', 0) is a tuple, a Slot was expected"]),
    "slot None": (plan_for_t_with(A0, None), ["topology 't': a[0]: None is None, a Slot was expected"]),
    "node not available": (plan_for_t_with(A0, Slot("down", 1)), ["topology 't': a[0]: node 'down' is not available"]),
    "slot shared by two topologies": (
        plan_for_t_with(A0, Slot("n1", 1)),
        ["slot 1 of 'n1' is shared by the topologies 't', 'u'"],
    ),
    "slot of a running worker": (
        plan_for_t_with(A0, Slot("n2", 1)),
        ["slot 1 of 'n2' is shared by the topologies 't', 'other'"],
    ),
    "unknown status": (
        plan_for_t(VALID.placements["t"].assignments, "plased"),
        ["topology 't': unknown status 'plased'; did you mean 'placed'?"],
    ),
    "message no text": (
        plan_for_t(VALID.placements["t"].assignments, "placed", None),
        ["topology 't': message is None, text was expected"],
    ),
    "failed without a reason": (
        plan_with_u(Placement({}, "failed")),
        ["topology 'u': it is failed and no message says why"],
    ),
    "partial although complete": (
        plan_for_t(VALID.placements["t"].assignments, "partial", "why"),
        ["topology 't': it is called partial, but no executor is missing"],
    ),
    "partial although empty": (
        plan_with_u(Placement({}, "partial", "why")),
        ["topology 'u': it is called partial, but all executors are missing"],
    ),
    "freed no worker": (
        replace(VALID, freed=[("t", "n2", 0)]),
        ["freed: ('t', 'n2', 0) is a tuple, an ExistingWorker was expected"],
    ),
    "freed what never ran": (
        replace(VALID, freed=[ExistingWorker("u", "n1", 0)]),
        ["freed: no worker of 'u' ran in slot 0 of 'n1'"],
    ),
    "freed twice": (
        replace(VALID, freed=[CLUSTER.existing[0]] * 2),
        ["freed: the worker of 'other' in slot 1 of 'n2' is listed 2 times"],
    ),
    "freed no list": (replace(VALID, freed=None), ["freed is None, a sequence of workers was expected"]),
    "moved from nowhere": (
        replace(VALID, migrations=[Move("t", A0, Slot("n2", 1), Slot("n1", 0))]),
        ["migrations: a[0] of 't' did not run in slot 1 of 'n2'"],
    ),
    "moved to elsewhere": (
        replace(VALID, migrations=[Move("t", A1, Slot("down", 0), Slot("n1", 1))]),
        ["migrations: a[1] of 't' is not placed in slot 1 of 'n1', where it moves to"],
    ),
    "a move of another type": (
        replace(VALID, migrations=["a[0]"]),
        ["migrations: 'a[0]' is a str, a Move was expected"],
    ),
    "frequency of an unknown node": (
        replace(VALID, frequencies={"n9": 1000}),
        ["frequencies: unknown node 'n9'; valid: down, n1, n2"],
    ),
    "frequency that is none": (
        replace(VALID, frequencies={"n2": 1.5e9}),
        ["frequencies: 1500000000.0 is no clock in Hz for 'n2'"],
    ),
    "frequency that the node lacks": (
        replace(VALID, frequencies={"n1": 1500}),
        ["frequencies: 'n1' does not offer 1500 Hz, the nearest is 1000"],
    ),
    "schedule of another type": (
        replace(VALID, schedule=[[0]]),
        ["schedule is a list, a CommunicationSchedule was expected"],
    ),
    "schedule with faults": (
        replace(VALID, schedule=CommunicationSchedule(("n1", "n1", "zz"), ((0, None), (3, None, None)), 1)),
        [
            "schedule: unknown node 'zz'; valid: down, n1, n2",
            "schedule: a node is listed twice",
            "schedule: step 0 has 2 senders, there are 3 nodes",
            "schedule: step 1, sender 0: 3 is no node's index",
        ],
    ),
    "power of an unknown node": (
        replace(VALID, power=[NodePower("n9", 1.0, 1), NodePower("n1", 1.0, 1), NodePower("n1", 1.0, 1), 3]),
        [
            "power: unknown node 'n9'; valid: down, n1, n2",
            "power: 3 is an int, a NodePower was expected",
            "power: 'n1' is listed 2 times",
        ],
    ),
    "details that are no JSON": (
        replace(VALID, details={"a": [{1, 2}], 3: None, "nan": float("nan"), "b": {"c": A0}}),
        [
            "details.a[0]: a set cannot be written as JSON",
            "details: the key 3 is an int, text was expected",
            "details.nan: nan is not a finite number",
        ],
    ),
}


@pytest.mark.parametrize("case", INVALID)
def test_every_fault_of_a_plan_is_named(case: str) -> None:
    plan, faults = INVALID[case]
    found = [fault.removeprefix("it ") for fault in plan_faults(PROBLEM, plan)]
    assert sorted(found) == sorted(faults)


def test_all_faults_of_a_plan_are_named_together() -> None:
    plan = replace(
        plan_for_t({A0: Slot("n3", 0), Executor("c", 0): Slot("n1", 7)}),
        frequencies={"n9": 1},
        freed=[ExistingWorker("u", "n1", 0)],
        details={"x": object()},
    )
    found = "\n".join(plan_faults(PROBLEM, plan))
    for part in ("'n3'", "c[0]", "slot 7", "2 executors are missing", "b[0] is missing", "'n9'", "'u' ran", "object"):
        assert part in found


def test_a_released_worker_makes_room_and_may_move() -> None:
    plan = replace(
        plan_for_t({A0: Slot("n2", 1), A1: Slot("n2", 1), B0: Slot("n2", 1)}),
        freed=CLUSTER.existing[:2],
        migrations=[Move("t", B0, Slot("n2", 0), Slot("n2", 1))],
    )
    assert plan_faults(PROBLEM, plan) == []


def checked_scheduler(answer: Callable[[Problem], Any]) -> Checked:
    """Return a scheduler with this answer, under the checking wrapper."""

    class Answering:
        name = "answering"
        paper = "none"
        needs = Needs()
        Params = NoParams

        def __init__(self, params: NoParams) -> None:
            self.params = params

        def place(self, problem: Problem) -> Any:
            return answer(problem)

    return Checked(Answering, NoParams())


def test_the_wrapper_refuses_with_all_faults_in_the_message() -> None:
    with pytest.raises(InvalidPlanError, match="'answering' gave a wrong answer") as caught:
        checked_scheduler(lambda _: plan_for_t({}, "plased")).place(PROBLEM)
    assert len(caught.value.faults) == 2
    assert all(fault in str(caught.value) for fault in caught.value.faults)
    assert caught.value.exit_status == 1


def test_the_wrapper_returns_a_valid_plan() -> None:
    assert checked_scheduler(lambda _: VALID).place(PROBLEM) is VALID


def test_very_many_faults_are_counted_not_all_printed() -> None:
    many = chain(100)
    plan = Plan({"t": Placement({executor: Slot("zz", 0) for executor in many.executors})})
    with pytest.raises(InvalidPlanError, match="and 80 more") as caught:
        checked_scheduler(lambda _: plan).place(Problem(nodes_of(n=1), (many,)))
    assert len(caught.value.faults) == 100


def test_an_exception_of_a_scheduler_is_reported_with_its_cause() -> None:
    with pytest.raises(
        RunError, match=r"raised ZeroDivisionError: division by zero \(.*test_checking.py:\d+\)$"
    ) as caught:
        checked_scheduler(lambda _: 1 / 0).place(PROBLEM)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_input_errors_of_a_scheduler_are_passed_on() -> None:
    def refuse(_: Problem) -> Plan:
        raise InputError("no traffic for me")

    with pytest.raises(InputError, match="no traffic for me"):
        checked_scheduler(refuse).place(PROBLEM)


def test_a_plan_that_cannot_be_validated_is_an_error_of_the_scheduler() -> None:
    plan = replace(VALID, schedule=CommunicationSchedule(("n1",), None, 1))
    with pytest.raises(RunError, match="raised TypeError"):
        checked_scheduler(lambda _: plan).place(PROBLEM)


def test_cycles_only_reach_schedulers_that_define_them() -> None:
    ring = Topology(id="r", components=(Component(id="a", kind="bolt", inputs=(Input("a"),)),))
    with pytest.raises(InputError, match="'r' has a cycle: a -> a"):
        checked_scheduler(lambda _: VALID).place(Problem(CLUSTER, (ring,)))
    assert Checked(Even, EvenParams()).place(Problem(nodes_of(n=1), (ring,))).placements["r"].status == "placed"


@given(problems(cycles=True), st.data())
def test_one_wrong_executor_is_always_found(problem: Problem, data: st.DataObject) -> None:
    plan = Even(EvenParams()).place(problem)
    assert plan_faults(problem, plan) == []
    placed = [(name, executor) for name, p in plan.placements.items() for executor in p.assignments]
    if not placed:
        return
    name, executor = data.draw(st.sampled_from(placed))
    assignments = dict(plan.placements[name].assignments)
    change = data.draw(st.sampled_from(["drop", "node", "slot", "component", "index"]))
    slot = assignments.pop(executor)
    if change == "node":
        assignments[executor] = Slot("nowhere", slot.index)
    elif change == "slot":
        assignments[executor] = Slot(slot.node, problem.cluster.by_id[slot.node].slots)
    elif change == "component":
        assignments[Executor("nobody", 0)] = slot
    elif change == "index":
        assignments[Executor(executor.component, 99)] = slot
    invalid = replace(plan, placements={**plan.placements, name: Placement(assignments, "placed")})
    assert plan_faults(problem, invalid) != []


RATES = Traffic((Edge("a[0]", "b[0]", 5.0),))
LOADS = Traffic(load={"a[0]": 5.0})
BARE, KNOWN = Cluster((Node(id="n1"),)), Cluster((Node(id="n1", ghz=2.0, flops_per_cycle=4),))
COUNTED = Cluster((Node(id="n1", capacity=6.0),))


@pytest.mark.parametrize(
    ("scheduler", "cluster", "traffic", "not_given"),
    [
        ("t-storm", BARE, None, ("traffic", "load")),
        ("t-storm", BARE, RATES, ("load",)),
        ("t-storm", BARE, LOADS, ("traffic",)),
        ("i-scheduler", COUNTED, None, ("traffic",)),
        ("top-storm", KNOWN, None, ("traffic",)),
        ("top-storm", BARE, RATES, ("hardware",)),
        ("even", BARE, None, ()),
        ("r-storm", BARE, None, ()),
    ],
)
def test_missing_inputs_of_a_scheduler_are_named(
    scheduler: str, cluster: Cluster, traffic: Traffic | None, not_given: tuple[str, ...]
) -> None:
    assert make_scheduler(scheduler).not_given(Problem(cluster, (T,), traffic)) == not_given
