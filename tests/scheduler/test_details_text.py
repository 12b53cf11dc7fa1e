"""Details of plans as text: names instead of numbers of executors and nodes, tables instead of objects."""

import pytest
from hypothesis import given, settings
from problems import chain, nodes_of, problems

from inventory.cluster import Cluster, ExistingWorker, Node
from scheduler.explain.details import MOST_ENTRIES, MOST_ROWS, Section, compact, describe_details
from scheduler.problem import CommunicationSchedule, Problem
from scheduler.registry import computing_schedulers, make_scheduler, scheduler_class
from workloads.topology import Executor
from workloads.traffic import Edge, Traffic

ROUND = Problem(nodes_of(m=2, n=2), (chain(2, 2),))


def _described(details: dict[str, object]) -> list[Section]:
    return describe_details(ROUND, details, None)


def test_slots_of_top_storm_have_names() -> None:
    groups, nodes, rest = _described({"groups": [[0, 2], [1, 3]], "slot_nodes": [1, 0], "something_else": [1, 0]})
    assert groups.rows == (("0", "a[0] b[0]"), ("1", "a[1] b[1]"))
    assert nodes.text == "n, m"
    assert (rest.title, rest.text) == ("something else", "1, 0")


def test_names_carry_their_topology_where_there_are_several() -> None:
    problem = Problem(nodes_of(m=2), (chain(1, name="t"), chain(2, name="u")))
    assert describe_details(problem, {"groups": [[0, 1, 2]]}, None)[0].rows == (("0", "t/a[0] u/a[0-1]"),)


def test_numbers_within_a_topology_are_relative_to_it() -> None:
    problem = Problem(nodes_of(m=2, n=2), (chain(2, name="t"), chain(1, 2, name="u")))
    below = {"order": [2, 0], "opened": [1], "workers": [[0, 1], [2]], "fallback": ""}
    order, opened, workers, fallback = describe_details(problem, {"topologies": {"u": below}}, None)
    assert (order.title, order.text) == ("topologies: u: order", "b[1], a[0]")
    assert opened.text == "n"
    assert workers.rows == (("0", "a[0] b[0]"), ("1", "b[1]"))
    assert fallback.text == "none"
    (table,) = describe_details(problem, {"workers": [{"topology": 1, "node": 0, "executors": [1, 2]}]}, None)
    assert table.rows == (("0", "u", "m", "b[0-1]"),)


def test_an_empty_list_of_executors_is_none() -> None:
    assert _described({"over_limit": []})[0].text == "none"


def test_objects_become_a_table_and_plain_values_words() -> None:
    table, flag, nothing, share = _described(
        {"steps": [{"k": 1, "pairs": [[0, 1], [1, 1]]}, {"k": 2, "pairs": []}], "ok": True, "m": None, "gap": 0.125}
    )
    assert table.columns == ("", "k", "pairs")
    assert table.rows == (("0", "1", "(0, 1), (1, 1)"), ("1", "2", "none"))
    assert (flag.text, nothing.text, share.text) == ("yes", "-", "0.125")


def test_a_matrix_is_a_table_with_its_columns_and_an_object_its_entries() -> None:
    matrix, inner = _described({"schedule": [[0, 1, 2], [1, None, 0]], "timing": {"v": 1, "times": [1.5, 2]}})[:2]
    assert matrix.columns == ("", "0", "1", "2")
    assert matrix.rows == (("0", "0", "1", "2"), ("1", "1", "-", "0"))
    assert (inner.title, inner.text) == ("timing: v", "1")


def test_matrices_inside_objects_become_separate_tables() -> None:
    flat, matrix = _described({"layers": [{"swaps": [], "m_fin": [[0, 1, 2], [2, 1, 0]]}]})
    assert flat.columns == ("", "swaps")
    assert matrix.rows == (("0", "0", "1", "2"), ("1", "2", "1", "0"))


def test_nodes_of_the_communication_schedule_have_names_in_matrices() -> None:
    schedule = CommunicationSchedule(("n", "m", "x"), ((1, 0, None),), 1)
    details = {"m_inter": [[0, 1, 2], [1, None, 0]], "schedule": [[1, 0, None]], "node_loads": [3, 1, 2]}
    matrix, loads, steps = describe_details(ROUND, details, schedule)
    assert matrix.rows == (("0", "n", "m", "x"), ("1", "m", "-", "n"))
    assert loads.text == "n 3, m 1, x 2"
    assert steps.rows == (("0", "n to m, m to n"),)


def test_classes_without_pairs_are_left_out() -> None:
    (table,) = _described({"class_table": [{"k": 0, "pairs": [[0, 1]]}, {"k": 1, "pairs": []}]})
    assert table.rows == (("0", "0", "(0, 1)"),)


def test_long_tables_and_lists_are_cut_with_the_number_left_out() -> None:
    (table,) = _described({"x": [{"a": at} for at in range(MOST_ROWS + 3)]})
    assert (len(table.rows), table.left_out) == (MOST_ROWS, 3)
    (row,) = _described({"y": list(range(MOST_ENTRIES + 7))})
    assert row.text.endswith(f"{MOST_ENTRIES - 1} ... and 7 more")


def test_numbers_that_are_no_executors_stay_numbers() -> None:
    assert _described({"groups": [[0, 99]]})[0].rows == (("0", "0, 99"),)


def test_a_communication_schedule_names_senders_and_receivers() -> None:
    (section,) = describe_details(ROUND, {}, CommunicationSchedule(("n", "m"), ((1, 0), (None, 1)), 2))
    assert section.rows == (("0", "n to m, m to n"), ("1", "m to m"))
    assert "2 stages" in section.title


def test_runs_of_executors_are_folded() -> None:
    assert compact(["b[1]", "a[10]", "a[0]", "a[1]", "a[2]"]) == "a[0-2,10] b[1]"
    assert compact([Executor("x", 3).name]) == "x[3]"


@pytest.mark.parametrize("name", computing_schedulers())
def test_every_scheduler_has_details(name: str) -> None:
    hardware = {"ghz": 1.0, "flops_per_cycle": 4.0}
    nodes = Cluster((Node(id="m", **hardware), Node(id="n", **hardware)))
    problem = Problem(nodes, (chain(2, 2, workers=2),), Traffic((Edge("a[0]", "b[1]", 5.0),)))
    plan = make_scheduler(name).place(problem)
    assert describe_details(problem, plan.details, plan.schedule)


def test_started_workers_are_listed_in_order_without_those_that_keep_running() -> None:
    running = ExistingWorker("t", "n", 1, ("a[0]",))
    nodes = Cluster((Node(id="m", slots=1), Node(id="n", slots=3)), existing=(running,))
    problem = Problem(nodes, (chain(2, 3, workers=3),))
    plan = make_scheduler("even").place(problem)
    assert plan.details == {
        "started": [
            {"topology": 0, "node": 1, "slot": 0, "executors": [1, 3]},
            {"topology": 0, "node": 0, "slot": 0, "executors": [2, 4]},
        ]
    }
    assert describe_details(problem, plan.details, None)[0].rows[0] == ("0", "t", "n", "0", "a[1] b[1]")


@pytest.mark.parametrize("name", computing_schedulers())
def test_details_of_every_scheduler_can_be_described(name: str) -> None:
    @settings(max_examples=12, deadline=None)
    @given(problems(cycles=scheduler_class(name).needs.cycles, observed=True))
    def check(problem: Problem) -> None:
        if not scheduler_class(name).needs.cycles and any(topology.cycle for topology in problem.topologies):
            return
        plan = make_scheduler(name).place(problem)
        for section in describe_details(problem, plan.details, plan.schedule):
            assert section.title
            assert all(len(row) == len(section.columns) for row in section.rows)

    check()
