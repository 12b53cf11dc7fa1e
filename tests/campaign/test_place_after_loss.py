"""Placements after the loss of a node: schedulers that keep running executors move no survivor."""

import asyncio
from collections.abc import Mapping, Set
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_cluster import ScriptedCluster
from scripted_run import Limits, run_spec
from scripted_workload import STEP_S, answer_tables, with_inputs

from campaign.agenda.agenda import agenda_of
from campaign.agenda.plan import CombinationPlan, plan_of
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.scripted_events import MoveExecutors, MoveRequest
from controller.simulation.virtual_loop import run_in_virtual_time
from inventory.cluster import cluster_from_document
from inventory.documents import parse_document
from inventory.values import Slot
from workloads.traffic import Edge, Traffic

KEEPING_SCHEDULERS = ("even", "pmod", "er-stream", "r-storm")
"""Schedulers that do not move running executors."""


def plan(scheduler: str, nodes: int = 3, slots: int = 12, parallelism: int = 3) -> CombinationPlan:
    listed = ", ".join(f"{{id: n{k}, slots: {slots}}}" for k in range(1, nodes + 1))
    each = f"{{spout: {parallelism}, split: {parallelism}, count: {parallelism}}}"
    text = f"""
name: a
workloads: [{{name: wordcount, params: {{workers: 3, ackers: 0, parallelism: {each}}}, rate: {{kind: max}}}}]
schedulers: [{scheduler}]
"""
    return plan_of(
        agenda_of(parse_document(text, "a.yaml")), cluster_from_document(parse_document(f"nodes: [{listed}]", "c.yaml"))
    )


def survivors(places: Mapping[str, Slot], lost: Set[str]) -> dict[str, Slot]:
    return {name: slot for name, slot in places.items() if slot.node not in lost}


@pytest.mark.parametrize("scheduler", KEEPING_SCHEDULERS)
@given(nodes=st.integers(3, 5), parallelism=st.integers(1, 4), lost=st.integers(1, 3))
@settings(max_examples=10)
def test_no_survivor_moves_when_a_node_is_lost(scheduler: str, nodes: int, parallelism: int, lost: int) -> None:
    found = plan(scheduler, nodes, parallelism=parallelism)
    (run,) = found.runs
    before = found.placed["wordcount", scheduler].places
    after = found.place_without(run, {f"n{lost}"}, before).places
    assert after.keys() == before.keys()
    assert survivors(before, {f"n{lost}"}).items() <= after.items()
    assert f"n{lost}" not in {slot.node for slot in after.values()}


@pytest.mark.parametrize("scheduler", KEEPING_SCHEDULERS)
@pytest.mark.parametrize("size", [1, 5])
def test_after_a_scaling_the_executors_that_run_are_placed_without_the_lost_node(scheduler: str, size: int) -> None:
    found = plan(scheduler)
    (run,) = found.runs
    start = found.placed["wordcount", scheduler].places
    added = {f"count[{at}]": Slot("n1", 0) for at in range(3, size)}
    before = {name: slot for name, slot in start.items() if size > 1 or name not in ("count[1]", "count[2]")} | added
    # Observed before the scaling: an executor that is gone or never existed has a rate, which is ignored.
    observed = Traffic((Edge("split[0]", "count[1]" if size == 1 else "count[9]", 5.0),))
    after = found.place_without(run, {"n2"}, before, observed).places
    assert after.keys() == before.keys()
    assert "n2" not in {slot.node for slot in after.values()}
    assert survivors(before, {"n2"}).items() <= after.items()


@pytest.mark.parametrize("scheduler", ["even", "t-storm", "multitenant"])
def test_survivors_move_if_their_nodes_lack_slots_for_the_others(scheduler: str) -> None:
    found = plan(scheduler, 3, slots=1, parallelism=2)
    (run,) = found.runs
    before = found.placed["wordcount", scheduler].places
    assert {slot.node for slot in before.values()} == {"n1", "n2", "n3"}
    after = found.place_without(run, {"n2"}, before).places
    assert {slot.node for slot in after.values()} == {"n1", "n3"}
    assert after.keys() == before.keys()


@pytest.mark.parametrize("scheduler", ["pmod", "er-stream"])
def test_a_run_that_loses_a_node_continues_with_its_survivors_in_place(scheduler: str, tmp_path: Path) -> None:
    found = plan(scheduler, slots=5)
    (run,) = found.runs
    application, places = found.applications["wordcount"], found.placed["wordcount", scheduler].places
    workload, topology, random = application.workload, application.topology, Random(1)  # noqa: S311 - repeatable
    inputs = workload.prepare(tmp_path)
    mover = next(name for name, slot in places.items() if slot.node == "n1")
    control = ControlSettings(checkpoint_s=0.05, events=(MoveExecutors(0.02, (MoveRequest(mover, "n3", 3),)),))
    calls: list[tuple[Set[str], Mapping[str, Slot]]] = []
    placed: dict[str, Slot] = {}

    def place(lost: Set[str], before: Mapping[str, Slot]) -> Mapping[str, Slot]:
        calls.append((lost, before))
        placed.update(found.place_without(run, lost, before).places)
        return placed

    async def run_cluster() -> ScriptedCluster:
        rate = {"kind": "constant", "tuples_per_s": 2000}
        spec = run_spec(topology, [places[executor.name] for executor in topology.executors], rate=rate)
        cluster = ScriptedCluster(spec, with_inputs(workload, inputs), Limits(), control, ("n1", "n2", "n3"), place)

        async def running() -> None:
            started = await cluster.coordinator.start()
            await cluster.coordinator.wait_until(started + 400_000_000)
            await cluster.coordinator.stop()
            await cluster.coordinator.finish()

        async with cluster.coordinator as coordinator:
            task = asyncio.create_task(running())
            while not task.done():
                await asyncio.sleep(STEP_S)
                if cluster.nodes["n2"].reachable and coordinator.event_log.moves and coordinator.event_log.checkpoints:
                    cluster.lose_node("n2")
                cluster.step(random, 0)
            task.result()
        return cluster

    cluster = run_in_virtual_time(run_cluster())
    before = places | {mover: Slot("n3", 3)}
    assert calls == [({"n2"}, before)]
    assert survivors(before, {"n2"}).items() <= placed.items()
    positions = [
        cluster.coordinator.positions[e.name] for e in topology.executors if e.name in cluster.coordinator.positions
    ]
    verdict = workload.compare(answer_tables(cluster.answer()), workload.reference(positions, inputs))
    assert verdict.passed, verdict.message
    assert verdict.checked > 0
