"""Runs with a communication schedule: under any faults, tuples leave only in their time slot, and all arrive."""

from collections import Counter, defaultdict
from random import Random

import hypothesis
import pytest
from delivery_oracle import SCHEMA, SIDE, random_topology
from exactly_once_oracle import ExactlyOnceOracle
from gated_runs import GatedRun, level_of, run_and_check
from hypothesis import given
from hypothesis import strategies as st
from hypothesis_examples import one_in
from msgspec.structs import replace
from problems import nodes_of
from scripted_run import Limits, run_spec

from agents.protocol import Gates, MoveToPlace, Slot
from agents.worker.task_graph.plan import RunPlan
from controller.coordinator.interfaces import RestartRules
from inventory.errors import RunError
from scheduler.algorithms.pipeline_linear import PipelineLinear, PipelineLinearParams
from scheduler.problem import Problem
from workloads.topology import Component, Input, Topology

SETTINGS = hypothesis.settings(
    max_examples=one_in(5), deadline=None, suppress_health_check=list(hypothesis.HealthCheck), print_blob=False
)
RANDOM, SEEDS = st.randoms(use_true_random=False), st.integers(0, 2**32)


def seeds(some: range, others: range) -> pytest.MarkDecorator:
    """Run some seeds with `-m long`, which show all outcomes that the test requires, and the others with `-m soak`."""
    sets = [pytest.param(some, marks=pytest.mark.long), pytest.param(others, marks=pytest.mark.soak)]
    return pytest.mark.parametrize("seeds", sets, ids=str)


@SETTINGS
@given(RANDOM, SEEDS)
def test_tuples_leave_only_in_their_time_slot_and_all_arrive(random: Random, seed: int) -> None:
    cluster, checker = run_and_check(GatedRun(random, seed, disturbed=False))
    assert not checker.in_flight
    assert {record.epoch for record in cluster.slots} == {1}


@SETTINGS
@given(RANDOM, SEEDS)
def test_a_gated_run_survives_kills_and_restarts_with_slot_0(random: Random, seed: int) -> None:
    run_and_check(GatedRun(random, seed, disturbed=True))


@SETTINGS
@given(RANDOM, SEEDS, st.booleans())
def test_nothing_is_lost_when_the_schedule_changes_whatever_is_killed(
    random: Random, seed: int, disturbed: bool
) -> None:
    run = GatedRun(random, seed, disturbed=disturbed, changing=True)
    _, checker = run_and_check(run)
    assert disturbed or not checker.in_flight


@seeds(range(28, 40), range(28))
def test_schedules_change_while_nodes_join_and_leave_and_while_something_is_killed(seeds: range) -> None:
    happened: Counter[str] = Counter()
    for seed in seeds:
        run = GatedRun(Random(seed), seed, disturbed=seed % 2 == 1, changing=True)  # noqa: S311 - repeatable
        cluster, checker = run_and_check(run)
        happened.update(run.outcomes)
        happened["change"] += checker.changes
        happened.update(kind for kind, *_ in cluster.events)
    assert happened.keys() >= {"done", "abandoned", "broken", "change", "schedule", "move", "recovery"}


@pytest.mark.long
def test_answers_are_right_when_a_worker_is_killed_during_a_change() -> None:
    happened: Counter[str] = Counter()
    for seed in range(30):
        run = GatedRun(Random(seed), seed, disturbed=True, changing=True)  # noqa: S311 - it must be repeatable
        run.faults = []
        run.kill_when = "sent" if seed % 2 else "requested"
        cluster, _ = run_and_check(run)
        happened.update(run.outcomes)
        happened.update(kind for kind, *_ in cluster.events)
    assert happened["killed when sent"]
    assert happened["killed when requested"]
    assert happened["recovery"] >= happened["killed when sent"] + happened["killed when requested"]


@seeds(range(12), range(12, 30))
def test_a_restart_changes_moves_and_schedule_together(seeds: range) -> None:
    happened: Counter[str] = Counter()
    for seed in seeds:
        run = GatedRun(Random(seed), seed, disturbed=True, changing=True)  # noqa: S311 - it must be repeatable
        run.faults, run.restart = [], RestartRules()
        cluster, checker = run_and_check(run)
        assert not checker.changes
        happened.update(run.outcomes)
        happened["epochs"] = max(happened["epochs"], *(record.epoch for record in cluster.slots))
    assert happened["done"]
    assert happened["epochs"] > 1


def test_the_next_rows_travel_while_the_last_ones_are_processed() -> None:
    overlapped = Counter[str]()
    for seed in range(8):
        for overlap in ("none", "transfer"):
            run = GatedRun(Random(seed), seed, disturbed=False)  # noqa: S311 - it must be repeatable
            run.moves, run.checkpoint_s = [], 0.0
            run.gates = replace(run.gates, overlap=overlap)
            overlapped[overlap] += run_and_check(run)[1].overlapped
    assert not overlapped["none"]
    assert overlapped["transfer"]


@seeds(range(12), range(12, 24))
def test_checkpoints_recoveries_lost_nodes_and_moves_happen_in_gated_runs(seeds: range) -> None:
    happened: Counter[str] = Counter()
    for seed in seeds:
        cluster, _ = run_and_check(GatedRun(Random(seed), seed, disturbed=seed % 2 == 1))  # noqa: S311 - it must be repeatable
        happened.update(kind for kind, *_ in cluster.events)
        happened["stall"] += any(record.stall_predicted_ns for record in cluster.slots)
    assert happened.keys() >= {"checkpoint", "recovery", "node_lost", "move", "stall"}


@given(RANDOM)
def test_the_stage_of_a_component_is_its_longest_path(random: Random) -> None:
    topology = random_topology(random)
    assert topology.level == {component.id: level_of(topology, component.id) for component in topology.components}
    assert topology.stages == max(topology.level.values())


def test_an_executor_on_a_node_without_a_part_in_the_schedule_is_refused() -> None:
    places = [Slot("n1", 0)] * len(CHAIN.executors)
    spec = run_spec(CHAIN, places)
    gates = Gates(nodes=("n0", "n1"), steps=((0, 1), (1, 0)), stages=1, part_tuples=1)
    plan = RunPlan(replace(spec, gates=gates))
    with pytest.raises(RunError, match=r"^node n2 has no part in the run's communication schedule$"):
        plan.moved([MoveToPlace("c1[0]", Slot("n2", 0))], (*spec.workers, Slot("n2", 0)))


# --- the worked example of pipeline-linear: N = 8, t = 4 ------------------------------------------------------------

CHAIN = Topology(
    "linear",
    (
        Component("c0", "spout", 3, outputs={"default": SCHEMA}),
        Component("c1", "bolt", 4, outputs={"default": SCHEMA, SIDE: SCHEMA}, inputs=(Input("c0", "shuffle"),)),
        Component("c2", "bolt", 3, outputs={"default": SCHEMA, SIDE: SCHEMA}, inputs=(Input("c1", "shuffle"),)),
        Component("c3", "bolt", 4, outputs={"default": SCHEMA, SIDE: SCHEMA}, inputs=(Input("c2", "shuffle"),)),
    ),
)
LETTERS = dict(zip((executor.name for executor in CHAIN.executors), "LMNABCDEFGHIJK", strict=True))
EXPECTED_TRANSFERS = {
    0: ("L>D M>A N>C", "D>F A>G B>E", "F>J G>K E>H"),
    1: ("L>B M>D N>A", "A>F B>G C>E", "F>H G>J E>I"),
}
"""Step -> sender and receiver by stage, as published."""


def test_gates_open_as_in_the_worked_example_of_pipeline_linear() -> None:
    nodes = [f"n{at}" for at in range(8)]
    plan = PipelineLinear(PipelineLinearParams()).place(Problem(nodes_of(**dict.fromkeys(nodes, 1)), (CHAIN,)))
    assert plan.schedule is not None
    slots = plan.placements["linear"].assignments
    places = [Slot(*slots[executor]) for executor in CHAIN.executors]
    oracle = ExactlyOnceOracle(CHAIN, 3000, places)
    gates = Gates(nodes=plan.schedule.nodes, steps=plan.schedule.steps, stages=plan.schedule.stages, part_tuples=4)
    assert (len(gates.steps), gates.stages) == (8, 3)
    run = GatedRun(Random(0), 0, disturbed=False)  # noqa: S311 - it must be repeatable
    run.nodes, run.places, run.oracle, run.gates, run.moves = nodes, places, oracle, gates, []
    run.checkpoint_s = 0.0
    run.rate, run.stop_ns, run.limits = {"kind": "max"}, 10**12, Limits(window_rows=40, window_bytes=10**6)
    cluster, checker = run_and_check(run)

    transfers: dict[tuple[int, int], set[str]] = defaultdict(set)
    for (_, number), pairs in checker.pairs.items():
        for sender, receiver in pairs:
            stage = int(sender[1])
            transfers[(number - stage) % 8, stage].add(f"{LETTERS[sender]}>{LETTERS[receiver]}")
    assert {step for step, _ in transfers} == {0, 1, 2, 3}
    for step, stages in EXPECTED_TRANSFERS.items():
        for stage, pairs in enumerate(stages):
            assert transfers[step, stage] == set(pairs.split())
    first = [record.steps for record in cluster.slots[:11]]
    assert first[:4] == ["0 - -", "1 0 -", "2 1 0", "3 2 1"]
    assert first[8:] == ["0 7 6", "1 0 7", "2 1 0"]
    assert {record.largest_parts for record in cluster.slots} == {0, 1}
