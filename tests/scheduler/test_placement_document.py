"""The placement document: exact round trips, complete contents, and errors that name the mistake."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from msgspec.structs import replace
from problems import chain, nodes_of, problems

from inventory.cluster import ExistingWorker
from inventory.errors import InputError
from scheduler.algorithms.even import Even, EvenParams
from scheduler.algorithms.top_storm import TopStorm, TopStormParams
from scheduler.explain.explanation import loads_by_node
from scheduler.explain.worker_loads import loads_by_worker, overloaded_count, undetermined_count
from scheduler.placement_file import (
    PlacementFile,
    make_placement_file,
    parse_placement_file,
    read_placement_file,
    to_json,
)
from scheduler.problem import CommunicationSchedule, Move, Plan, Problem, Slot, concluded
from scheduler.registry import Checked
from scheduler.toolkit.cost import cost


def placement_file(problem: Problem, kind: type, params: object) -> PlacementFile:
    scheduler = Checked(kind, params)
    return make_placement_file(scheduler.name, scheduler.params, problem, scheduler.place(problem), 0.25)


@given(problems(observed=True))
def test_round_trips_exactly(problem: Problem) -> None:
    for kind, params in ((Even, EvenParams(idle_rebalance=True)), (TopStorm, TopStormParams())):
        answer = placement_file(problem, kind, params)
        text = to_json(answer)
        assert parse_placement_file(text) == answer
        assert to_json(parse_placement_file(text)) == text
        assert to_json(placement_file(problem, kind, params)) == text


@given(problems(observed=True))
def test_it_has_the_values_of_the_plan(problem: Problem) -> None:
    plan = Checked(TopStorm, TopStormParams()).place(problem)
    answer = make_placement_file("top-storm", {}, problem, plan, 0.0)
    assert list(answer.topologies) == [topology.id for topology in problem.topologies]
    for topology in problem.topologies:
        entry = answer.topologies[topology.id]
        assert entry.placement.assignments == plan.placements[topology.id].assignments
        assert (entry.status, entry.message) == (
            plan.placements[topology.id].status,
            plan.placements[topology.id].message,
        )
        names = [assignment.executor for assignment in entry.assignments]
        order = {executor.name: number for number, executor in enumerate(topology.executors)}
        assert sorted([*names, *entry.unassigned], key=order.__getitem__) == list(order)
        assert names == sorted(names, key=order.__getitem__)
    workers = loads_by_worker(problem, plan.placements)
    overloaded = {
        "overloaded_nodes": sum(node.overloaded for node in loads_by_node(problem, plan)),
        "overloaded_workers": overloaded_count(workers),
        "undetermined_workers": undetermined_count(workers),
    }
    assert answer.cost == replace(cost(problem, plan.placements), **overloaded)
    assert [node.id for node in answer.nodes] == [node.id for node in problem.cluster.nodes]
    available = {node.id for node in problem.cluster.available}
    assert {node.id for node in answer.nodes if node.computing_power is not None} == available


def test_every_part_of_a_plan_is_written() -> None:
    topology = chain(1)
    executor = topology.executors[0]
    plan = Plan(
        {"t": concluded(topology, {executor: Slot("n", 1)}, "moved")},
        freed=[ExistingWorker("t", "n", 0, ("a[0]",))],
        schedule=CommunicationSchedule(("n", "m"), ((1, None), (None, 0)), 2),
        frequencies={"n": 800_000_000},
        migrations=[Move("t", executor, Slot("n", 0), Slot("n", 1))],
        details={"rows": ((1, 2), (3,))},
    )
    document = json.loads(
        to_json(make_placement_file("x", {"a": 1}, Problem(nodes_of(n=2, m=1), (topology,)), plan, 0.5))
    )
    assert document == {
        "scheduler": "x",
        "params": {"a": 1},
        "elapsed_s": 0.5,
        "topologies": {
            "t": {
                "status": "placed",
                "message": "moved",
                "assignments": [{"executor": "a[0]", "node": "n", "slot": 1}],
                "unassigned": [],
            }
        },
        "cost": {
            "inter_node_edges": 0,
            "inter_node_tuples_per_s": None,
            "inter_worker_edges": 0,
            "nodes_used": 1,
            "slots_used": 1,
            "load_stddev": pytest.approx(0.0125),
            "overloaded_nodes": 0,
            "overloaded_workers": None,
            "undetermined_workers": 1,
        },
        "nodes": [
            {"id": "n", "computing_power": pytest.approx(13.6), "index": 1},
            {"id": "m", "computing_power": pytest.approx(13.6), "index": 1},
        ],
        "communication_schedule": {"nodes": ["n", "m"], "steps": [[1, None], [None, 0]], "stages": 2},
        "freed": [{"topology": "t", "node": "n", "slot": 0, "executors": ["a[0]"]}],
        "details": {"rows": [[1, 2], [3]]},
        "migrations": [
            {"topology": "t", "executor": "a[0]", "from": {"node": "n", "slot": 0}, "to": {"node": "n", "slot": 1}}
        ],
        "frequencies_hz": {"n": 800_000_000},
    }


def test_mistakes_in_a_placement_file_are_named(tmp_path: Path) -> None:
    valid = to_json(placement_file(Problem(nodes_of(n=1), (chain(2),)), Even, EvenParams()))
    path = tmp_path / "p.json"
    path.write_text(valid.replace('"placed"', '"plased"'))
    with pytest.raises(
        InputError, match=r"p.json:12: topologies.t.status: 'plased' is none of .*did you mean 'placed'"
    ):
        read_placement_file(path)
    path.write_text(valid.replace('"slots_used"', '"slots_usd"'))
    with pytest.raises(InputError, match=r"cost.slots_usd: unknown key 'slots_usd'; did you mean 'slots_used'"):
        read_placement_file(path)
    path.write_text("{")
    with pytest.raises(InputError, match=r"p.json:1: not valid YAML or JSON"):
        read_placement_file(path)
    with pytest.raises(InputError, match=r"absent.json: cannot be read"):
        read_placement_file(tmp_path / "absent.json")
