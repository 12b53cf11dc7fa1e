"""`pipeline-linear`: the worked example cell by cell, then properties."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import chain, nodes_of, problems, topologies

from inventory.cluster import Cluster, ExistingWorker, Node
from inventory.errors import InputError
from scheduler.algorithms import pipeline_linear
from scheduler.algorithms.pipeline_linear import PipelineLinear, PipelineLinearParams
from scheduler.problem import Plan, Problem, Slot
from scheduler.registry import Checked
from scheduler.toolkit.node_assignment import MOST_NODES
from workloads.topology import Component, Executor, Input, Topology

EIGHT = nodes_of(**{f"n{at}": 1 for at in range(8)})
LINEAR = chain(3, 4, 3, 4)
LETTERS = dict(zip(LINEAR.executors, "LMNABCDEFGHIJK", strict=True))


def place(problem: Problem, refine: bool = True) -> Plan:
    return Checked(PipelineLinear, PipelineLinearParams(refine)).place(problem)


def test_the_worked_example_cell_by_cell() -> None:
    plan = place(Problem(EIGHT, (LINEAR,)))
    schedule = [
        [0, 1, 3, 2, 6, 7, 5, 4],
        [2, 0, 1, 3, 4, 6, 7, 5],
        [3, 2, 0, 1, 5, 4, 6, 7],
        [1, 3, 2, 0, 7, 5, 4, 6],
        [6, 7, 5, 4, 0, 1, 3, 2],
        [4, 6, 7, 5, 2, 0, 1, 3],
        [5, 4, 6, 7, 3, 2, 0, 1],
        [7, 5, 4, 6, 1, 3, 2, 0],
    ]
    details = plan.details
    assert (details["t"], details["G"]) == (4, 4)
    assert details["m_inter"] == [
        [0, 6, 4, 2, 1, 7, 5, 3],
        [2, 0, 6, 4, 3, 1, 7, 5],
        [4, 2, 0, 6, 5, 3, 1, 7],
        [6, 4, 2, 0, 7, 5, 3, 1],
    ]
    assert details["layers"] == [{"m_fin": schedule[:4], "swaps": [[6, 1], [4, 3]]}]
    assert [list(step) for step in details["schedule"]] == schedule
    assert details["node_loads"] == [4, 4, 3, 3, 0, 0, 0, 0]
    cells = [["."] * 8 for _ in range(4)]
    for executor, slot in plan.placements["t"].assignments.items():
        cells[executor.index][int(slot.node[1:])] = LETTERS[executor]
        assert slot.index == 0
    assert [" ".join(row) for row in cells] == [
        "L A H E . . . .",
        "F M B I . . . .",
        "J G N C . . . .",
        "D K . . . . . .",
    ]
    assert plan.schedule is not None
    assert plan.schedule.nodes == tuple(f"n{at}" for at in range(8))
    assert [list(step) for step in plan.schedule.steps] == schedule
    assert plan.schedule.stages == 3


def communications(plan: Plan, step: int, source: str, destination: str) -> str:
    """Return the communicating pairs of executors in a step, by sending node."""
    assert plan.schedule is not None
    on: dict[int, list[Executor]] = {}
    for executor, slot in plan.placements["t"].assignments.items():
        on.setdefault(int(slot.node[1:]), []).append(executor)
    return " ".join(
        f"{LETTERS[u]}>{LETTERS[v]}"
        for sender, receiver in enumerate(plan.schedule.steps[step])
        for u in on.get(sender, ())
        for v in on.get(receiver or 0, ())
        if (u.component, v.component) == (source, destination)
    )


@pytest.mark.parametrize(
    ("step", "stages"),
    [
        (0, ["L>D M>A N>C", "D>F A>G B>E", "F>J G>K E>H"]),
        (1, ["L>B M>D N>A", "A>F B>G C>E", "F>H G>J E>I"]),
        *((idle, ["", "", ""]) for idle in range(4, 8)),
    ],
)
def test_task_communications_of_the_worked_example(step: int, stages: list[str]) -> None:
    plan = place(Problem(EIGHT, (LINEAR,)))
    communicating = [communications(plan, step, source, destination) for source, destination in ("ab", "bc", "cd")]
    assert communicating == stages


def test_the_step_table_of_the_worked_example() -> None:
    table = place(Problem(EIGHT, (LINEAR,))).details["timeline"]
    steps = [[row["steps"][stage] for row in table] for stage in range(3)]
    assert steps == [
        [0, 1, 2, 3, 4, 5, 6, 7, 0, 1],
        [None, 0, 1, 2, 3, 4, 5, 6, 7, 0],
        [None, None, 0, 1, 2, 3, 4, 5, 6, 7],
    ]
    assert [(row["slot"], row["start"], row["stall"]) for row in table] == [(slot, slot, 0) for slot in range(10)]


def test_without_refinement_the_worked_example_is_balanced() -> None:
    details = place(Problem(EIGHT, (LINEAR,)), refine=False).details
    assert details["node_loads"] == [2, 2, 1, 1, 2, 2, 2, 2]
    assert details["layers"] == [{"m_fin": details["m_inter"], "swaps": []}]


def test_details_of_a_topology_without_edges_have_an_empty_timeline() -> None:
    plan = place(Problem(nodes_of(a=1, b=1), (chain(2),)))
    assert plan.details["timeline"] == []
    assert plan.schedule is not None
    assert plan.schedule.stages == 0


def test_more_components_than_nodes_are_dealt_in_layers() -> None:
    plan = place(Problem(nodes_of(a=1, b=1), (chain(1, 1, 1, 1, 1),)))
    assert len(plan.details["layers"]) == 3
    assert plan.placements["t"].status == "placed"


def test_every_layer_is_refined_by_its_own_edges() -> None:
    eight_then_four = (
        *(Component(id=f"s{at}", kind="spout", parallelism=4) for at in range(8)),
        *(
            Component(id=f"b{at}", kind="bolt", parallelism=4, inputs=(Input(f"b{at - 1}" if at else "s1"),))
            for at in range(4)
        ),
    )
    topology = Topology(id="t", components=eight_then_four)
    plan = place(Problem(EIGHT, (topology,)))
    layers = plan.details["layers"]
    assert [layer["swaps"] for layer in layers] == [[], [[6, 1], [4, 3]]]
    assert_on_nodes_of_their_cells(plan, topology, 8)


def test_a_single_node_gets_all_executors() -> None:
    plan = place(Problem(nodes_of(only=1), (chain(2, 3),)))
    assert plan.details["schedule"] == [(0,)]
    assert plan.details["node_loads"] == [5]
    # Both executors of `a` send to every executor of `b` in the only slot of a round.
    assert plan.details["timeline"] == [{"slot": 0, "start": 0, "steps": [0], "stall": 1}]


def test_without_a_slot_a_topology_fails() -> None:
    plan = place(Problem(nodes_of(full=0), (chain(2, 3),)))
    assert plan.placements["t"].status == "failed"
    assert plan.placements["t"].message == "no free slot: 5 executors wait"
    assert plan.schedule is None
    assert (plan.details["t"], plan.details["m_inter"], plan.details["schedule"]) == (None, None, [])


def test_topologies_share_one_schedule_and_take_a_slot_each() -> None:
    plan = place(Problem(nodes_of(a=2, b=2), (chain(2, 2, name="t"), chain(2, name="u"))))
    assert plan.schedule is not None
    assert plan.schedule.stages == 1
    assert sum(plan.details["node_loads"]) == 6
    slots = {name: set(placement.assignments.values()) for name, placement in plan.placements.items()}
    assert slots == {"t": {Slot("a", 0), Slot("b", 0)}, "u": {Slot("a", 1), Slot("b", 1)}}


def test_an_executor_whose_node_is_full_goes_where_its_component_is_rarest() -> None:
    plan = place(Problem(nodes_of(a=2, b=1), (chain(2, name="t"), chain(2, name="u"))))
    assert set(plan.placements["u"].assignments.values()) == {Slot("a", 1)}
    assert plan.placements["u"].message == "1 executors are not on the node of their cell, which has no free slot"


def test_running_executors_stay_and_others_join_their_worker() -> None:
    existing = (ExistingWorker("t", "b", 0, ("a[0]",)),)
    cluster = Cluster(nodes_of(a=1, b=1).nodes, existing=existing)
    without_running = place(Problem(nodes_of(a=1, b=1), (chain(2, 2),))).placements["t"].assignments
    plan = place(Problem(cluster, (chain(2, 2),)))
    assert plan.placements["t"].assignments == {**without_running, Executor("a", 0): Slot("b", 0)}
    assert (plan.freed, plan.migrations) == ((), ())


def test_of_two_workers_on_a_node_the_one_with_the_lower_port_is_joined() -> None:
    node = Node(id="a", slots=3, ports=(6702, 6701, 6700))
    existing = (ExistingWorker("t", "a", 0, ("a[0]",)), ExistingWorker("t", "a", 1, ("a[1]",)))
    plan = place(Problem(Cluster((node,), existing=existing), (chain(3),)))
    assert plan.placements["t"].assignments[Executor("a", 2)] == Slot("a", 1)


def test_too_many_nodes_are_refused() -> None:
    cluster = Cluster(tuple(Node(id=f"n{at}") for at in range(MOST_NODES + 1)))
    with pytest.raises(InputError, match=f"at most {MOST_NODES}"):
        place(Problem(cluster, (chain(1),)))


def test_matrices_too_large_to_write_are_not_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_linear, "MOST_CELLS", 1000)
    details = place(Problem(nodes_of(a=1, b=1), (chain(1, 1, 1000),))).details
    assert (details["m_inter"], details["layers"]) == (None, [{"m_fin": None, "swaps": []}] * 2)
    assert sum(details["node_loads"]) == 1002


@given(problems(), st.booleans())
def test_every_step_serves_each_node_once_and_a_round_every_pair_once(problem: Problem, refine: bool) -> None:
    plan = place(problem, refine)
    if plan.schedule is None:
        return
    size = len(plan.schedule.nodes)
    assert len(plan.schedule.steps) == size
    assert all(sorted(step) == list(range(size)) for step in plan.schedule.steps)  # type: ignore[type-var]
    pairs = Counter((sender, receiver) for step in plan.schedule.steps for sender, receiver in enumerate(step))
    assert set(pairs.values()) == {1}
    assert len(pairs) == size * size


@given(topologies(most_components=8), st.integers(1, 9), st.booleans())
def test_executors_are_on_the_nodes_of_their_cells(topology: Topology, nodes: int, refine: bool) -> None:
    plan = place(Problem(nodes_of(**{f"n{at}": 1 for at in range(nodes)}), (topology,)), refine)
    assert_on_nodes_of_their_cells(plan, topology, nodes)


def assert_on_nodes_of_their_cells(plan: Plan, topology: Topology, nodes: int) -> None:
    details = plan.details
    number = {component.id: at for at, component in enumerate(topology.components)}
    assert len(plan.placements["t"].assignments) == len(topology.executors)
    for executor, slot in plan.placements["t"].assignments.items():
        layer, label = divmod(number[executor.component], nodes)
        assert details["layers"][layer]["m_fin"][executor.index][int(slot.node[1:])] == label
    assert len(details["layers"]) == max(1, -(-len(number) // nodes))
    for layer in details["layers"]:
        assert len(layer["m_fin"]) == details["t"]
        assert all(sorted(row) == list(range(nodes)) for row in layer["m_fin"])
    rows = min(details["t"], nodes)
    assert [list(step) for step in details["schedule"][:rows]] == details["layers"][0]["m_fin"][:rows]
    loads = Counter(int(slot.node[1:]) for slot in plan.placements["t"].assignments.values())
    assert details["node_loads"] == [loads[at] for at in range(nodes)]


@given(st.integers(1, 10), st.integers(1, 12), st.integers(1, 8))
def test_without_refinement_full_components_are_balanced(components: int, parallelism: int, nodes: int) -> None:
    plan = place(
        Problem(nodes_of(**{f"n{at}": 1 for at in range(nodes)}), (chain(*[parallelism] * components),)), False
    )
    if plan.details["t"] == parallelism:
        loads = plan.details["node_loads"]
        assert max(loads) - min(loads) <= 1


@given(topologies(), st.integers(1, 6))
def test_every_communicating_pair_is_served_once_per_round(topology: Topology, nodes: int) -> None:
    plan = place(Problem(nodes_of(**{f"n{at}": 1 for at in range(nodes)}), (topology,)))
    assert plan.schedule is not None
    node = {executor: int(slot.node[1:]) for executor, slot in plan.placements["t"].assignments.items()}
    for u, v in topology.pairs():
        assert sum(step[node[u]] == node[v] for step in plan.schedule.steps) == 1


@given(problems(), st.booleans())
def test_each_stage_follows_the_previous_one_by_a_step(problem: Problem, refine: bool) -> None:
    table = place(problem, refine).details["timeline"]
    for before, row in pairwise(table):
        assert row["steps"][1:] == before["steps"][:-1]
        assert row["start"] == before["start"] + 1 + before["stall"]
    assert all(row["stall"] >= 0 for row in table)


@given(problems())
def test_running_executors_stay_and_all_others_are_placed_if_a_node_has_a_slot(problem: Problem) -> None:
    plan = place(problem)  # the checking wrapper refuses a running executor elsewhere
    assert (plan.freed, plan.migrations) == ((), ())
    used = {slot for placement in plan.placements.values() for slot in placement.assignments.values()}
    used |= {Slot(worker.node, worker.slot) for worker in problem.existing}
    for placement in plan.placements.values():
        if placement.status != "placed":
            assert not placement.assignments  # otherwise they could have joined it
            assert all(Slot(node.id, at) in used for node in problem.cluster.available for at in range(node.slots))


@given(problems())
def test_a_second_round_changes_nothing(problem: Problem) -> None:
    plan = place(problem)
    workers: dict[tuple[str, Slot], list[str]] = {}
    for name, placement in plan.placements.items():
        for executor, slot in placement.assignments.items():
            workers.setdefault((name, slot), []).append(executor.name)
    others = [w for w in problem.existing if w.topology not in plan.placements]
    existing = [*others, *(ExistingWorker(t, s.node, s.index, tuple(e)) for (t, s), e in workers.items())]
    again = place(Problem(Cluster(problem.cluster.nodes, existing=tuple(existing)), problem.topologies))
    for name, placement in plan.placements.items():
        assert again.placements[name].assignments == placement.assignments


def test_groupings_and_repeated_links_do_not_matter() -> None:
    def join(*inputs: Input) -> Topology:
        parts = (Component(id="a", kind="spout", parallelism=2), Component(id="b", kind="bolt", inputs=inputs))
        return Topology(id="t", components=parts)

    cluster = nodes_of(x=1, y=1)
    plain = place(Problem(cluster, (join(Input("a")),)))
    assert place(Problem(cluster, (join(Input("a", "global"), Input("a", stream="other")),))) == plain
