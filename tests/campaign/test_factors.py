"""Factors of an agenda: every run at every combination, with the agenda and the cluster of that combination."""

import doctest
import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import analysis.records.factors
from campaign.agenda.agenda import agenda_of
from campaign.agenda.campaign_plan import CampaignPlan, campaign_plan, select_runs
from campaign.agenda.factors import combinations_of, rules_of
from campaign.agenda.run_order import Order, ordered_runs
from inventory.cluster import cluster_from_document
from inventory.documents import dump_json, dump_yaml, parse_document
from inventory.errors import InputError
from workloads.rates import Constant

NODES = "nodes:\n" + "".join(f"  - {{id: n{k}, slots: 4, ghz: 2, flops_per_cycle: 4}}\n" for k in range(1, 5))

AGENDA = """\
name: varied
workloads:
  - {name: wordcount, rate: {kind: constant, tuples_per_s: 10}, params: {workers: 2}}
schedulers: [even, {name: top-storm, params: {alpha: 0.8}}]
"""

COUNT = "workloads.wordcount.params.parallelism.count"
RATE = "workloads.wordcount.rate.tuples_per_s"
ALPHA = "schedulers.top-storm.params.alpha"


def planned(factors: str, agenda: str = AGENDA, cluster: str = NODES) -> CampaignPlan:
    return campaign_plan(
        agenda_of(parse_document(agenda + factors, "a.yaml")), cluster_from_document(parse_document(cluster, "c.yaml"))
    )


def given_factors(**factors: list[Any]) -> str:
    return dump_yaml({"factors": factors})


scalars = st.one_of(st.integers(0, 9), st.booleans(), st.sampled_from(["a", "b c", "ü/x", "-"]))
lists = st.lists(scalars, min_size=1, max_size=4, unique_by=str)
keys = st.lists(st.sampled_from([COUNT, RATE, ALPHA, "nodes", "slots"]), min_size=1, max_size=3, unique=True)


@st.composite
def products(draw: st.DrawFn) -> dict[str, list[Any]]:
    return {key: draw(lists) for key in draw(keys)}


@given(products())
def test_a_product_has_every_combination_once_in_the_order_of_its_lists(factors: dict[str, list[Any]]) -> None:
    found = combinations_of(agenda_of(parse_document(AGENDA + dump_yaml({"factors": factors}))))
    assert [list(each.items()) for each in found] == [
        list(zip(factors, row, strict=True)) for row in itertools.product(*factors.values())
    ]


@given(keys, st.lists(st.tuples(scalars, scalars, scalars), min_size=1, max_size=5, unique_by=repr))
def test_a_zip_has_the_values_at_each_position_together(names: list[str], rows: list[tuple[Any, ...]]) -> None:
    cut = list({dump_json(row[: len(names)]): row[: len(names)] for row in rows}.values())
    factors = dict(zip(names, map(list, zip(*cut, strict=True)), strict=True))
    found = combinations_of(agenda_of(parse_document(AGENDA + dump_yaml({"factors": factors, "combine": "zip"}))))
    assert [tuple(each.values()) for each in found] == cut


@given(products(), st.integers(1, 3), st.sampled_from(["interleaved", "sequential"]), st.integers(0, 2**32))
def test_runs_are_at_every_combination_once_per_repetition_with_names_and_seeds_in_order(
    factors: dict[str, list[Any]], repetitions: int, order: Order, seed: int
) -> None:
    combinations = combinations_of(agenda_of(parse_document(AGENDA + dump_yaml({"factors": factors}))))
    labels = (["w", "v"], ["even", "s"])
    runs = ordered_runs(*labels, repetitions, order, seed, factors=combinations)
    expected = itertools.product(*labels, [dump_json(c) for c in combinations], range(1, repetitions + 1))
    assert Counter((r.workload, r.scheduler, dump_json(dict(r.factors)), r.repetition) for r in runs) == Counter(
        expected
    )
    assert [run.number for run in runs] == list(range(1, len(runs) + 1))
    assert len({run.name for run in runs}) == len(runs)
    assert all(set(run.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789._+-") for run in runs)
    alone = ordered_runs(*labels, repetitions, order, seed)
    assert {(r.workload, r.repetition, r.seed) for r in runs} == {(r.workload, r.repetition, r.seed) for r in alone}


rules = st.lists(
    st.dictionaries(st.sampled_from(["workload", "scheduler", "nodes", "slots"]), st.integers(0, 1), min_size=1),
    max_size=3,
)


@given(rules, rules)
def test_runs_are_those_of_any_only_rule_and_of_no_except_rule(only: list[Any], excepted: list[Any]) -> None:
    choices = {"workload": ["w", "v"], "scheduler": ["even", "top-storm"], "nodes": [2, 3], "slots": [1, 4]}
    agenda = {
        "name": "varied",
        "workloads": [{"name": "wordcount", "label": label, "rate": {"kind": "max"}} for label in ("w", "v")],
        "schedulers": choices["scheduler"],
        "factors": {"nodes": [2, 3], "slots": [1, 4]},
        "only": [{key: choices[key][at] for key, at in rule.items()} for rule in only],
        "except": [{key: choices[key][at] for key, at in rule.items()} for rule in excepted],
    }
    located = agenda_of(parse_document(dump_json(agenda)))
    runs = ordered_runs(
        *(choices["workload"], choices["scheduler"], 2, "interleaved", 0),
        factors=combinations_of(located),
        keeps=rules_of(located),
    )

    def kept(row: tuple[int, ...]) -> bool:
        values = dict(zip(choices, row, strict=True))
        chosen = not only or any(rule.items() <= values.items() for rule in only)
        return chosen and not any(rule.items() <= values.items() for rule in excepted)

    rows = filter(kept, itertools.product((0, 1), repeat=4))
    expected = {tuple(choices[key][at] for key, at in zip(choices, row, strict=True)): 2 for row in rows}
    assert Counter((r.workload, r.scheduler, r.factors["nodes"], r.factors["slots"]) for r in runs) == expected
    assert [run.number for run in runs] == list(range(1, len(runs) + 1))


def test_excluded_combinations_are_not_planned() -> None:
    rule = "except: [{scheduler: even, nodes: 2}, {nodes: 4}, {nodes: 2, slots: 1}]\n"
    plan = planned(f"factors: {{nodes: [2, 3, 4], slots: [1, 4]}}\n{rule}")
    assert {name: list(each.placed) for name, each in plan.plans.items()} == {
        "nodes=2, slots=4": [("wordcount", "top-storm")],
        "nodes=3, slots=1": [("wordcount", "even"), ("wordcount", "top-storm")],
        "nodes=3, slots=4": [("wordcount", "even"), ("wordcount", "top-storm")],
    }
    assert len(plan.runs) == 5
    assert agenda_of(parse_document(dump_json(plan.agenda))).value == plan.agenda


def test_rules_need_no_factors() -> None:
    assert [run.scheduler for run in planned("except: [{scheduler: even}]\n").runs] == ["top-storm"]
    assert [run.scheduler for run in planned("only: [{scheduler: even}]\n").runs] == ["even"]


TIGHT = AGENDA.replace("schedulers: [even, ", "schedulers: [even, resource-aware, ") + "factors: {slots: [1, 4]}\n"
SMALL = "nodes:\n" + "".join(f"  - {{id: n{k}, cores: 2, ghz: 2, flops_per_cycle: 4}}\n" for k in (1, 2))


def test_runs_that_cannot_be_placed_are_refused_or_left_out_with_the_reason() -> None:
    with pytest.raises(InputError, match=r"a\.yaml:3: workloads\[0\]: .* finds no place for .*\(at slots=1; factors"):
        planned("", TIGHT, SMALL)
    plan = planned("unplaceable: skip\n", TIGHT, SMALL)
    left_out = {run.scheduler: plan.why_unplaced(run) for run in plan.runs if plan.why_unplaced(run)}
    assert list(left_out) == ["resource-aware"]
    assert left_out["resource-aware"].startswith("the scheduler 'resource-aware' finds no place for")
    assert len(plan.runs) == 6
    with pytest.raises(InputError, match=r"unplaceable: no run can be placed; the first one: the scheduler 'resource-"):
        planned("unplaceable: skip\nonly: [{scheduler: resource-aware, slots: 1}]\n", TIGHT, SMALL)
    with pytest.raises(InputError, match="unplaceable: 'drop' is none of the valid values; valid: refuse, skip"):
        planned("unplaceable: drop\n")


WRONG_RULES = [
    ("except: [{}]", "except[0]: got {}: expected"),
    ("except: {nodes: 2}", "except: got"),
    ("except: [{scheduler: evn}]", "except[0].scheduler: no run has scheduler 'evn'; did you mean 'even'?"),
    ("only: [{schedulr: even}]", "only[0].schedulr: 'schedulr' is no factor of this agenda; did you mean 'scheduler'?"),
    ("only: [{cpu: slow}]", "only[0].cpu: 'cpu' is no factor of this agenda; valid: nodes, scheduler, workload"),
    ("except: [{nodes: 5}]", "except[0].nodes: no run has nodes '5'; valid: 2, 4"),
    ("only: [{nodes: 2, slots: 1}]", "only[0].slots: 'slots' is no factor"),
    ("except: [{nodes: 2}, {nodes: 4}]", "except: leaves out every run"),
    ("only: [{nodes: 2}]\nexcept: [{workload: wordcount}]", "except: leaves out every run"),
]


@pytest.mark.parametrize(("rules", "message"), WRONG_RULES)
def test_a_wrong_rule_is_an_error_with_its_line(rules: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        planned(f"factors: {{nodes: [2, 4]}}\n{rules}\n")
    line = 7 if rules.startswith("only: [{nodes: 2}]") else 6
    assert str(caught.value).startswith(f"a.yaml:{line}: {message}")


def test_the_examples_in_the_docstrings_are_right() -> None:
    outcome = doctest.testmod(analysis.records.factors)
    assert (outcome.attempted > 0, outcome.failed) == (True, 0)


def test_without_factors_there_is_one_empty_combination() -> None:
    plan = planned("")
    assert list(plan.plans) == [""]
    assert {run.combination for run in plan.runs} == {""}
    assert [run.name for run in plan.runs] == [run.name for run in plan.plans[""].runs]


def test_nodes_and_slots_are_those_of_the_cluster_of_a_run() -> None:
    plan = planned("factors: {nodes: [2, 3], slots: [1, 4]}\n")
    assert [node.id for node in plan.cluster.nodes] == ["n1", "n2", "n3", "n4"]
    for run in plan.runs:
        nodes = plan.at(run).cluster.nodes
        assert [node.id for node in nodes] == ["n1", "n2", "n3"][: run.factors["nodes"]]
        assert {node.slots for node in nodes} == {run.factors["slots"]}
        used = {slot.node for slot in plan.at(run).placed[run.workload, run.scheduler].places.values()}
        assert used <= {node.id for node in nodes}
    assert plan.runs[0].name.startswith("001-wordcount-")
    assert plan.runs[0].name.split("-")[-3:] == [*map(str, plan.runs[0].factors.values()), "r1"]


def test_nodes_counts_available_nodes_and_slots_leave_the_first_ports() -> None:
    cluster = NODES.replace("{id: n1,", "{id: n1, available: false,").replace("slots: 4", "ports: [7, 8, 9]", 2)
    plan = planned("factors: {nodes: [2], slots: [2]}\n", cluster=cluster)
    nodes = plan.at(plan.runs[0]).cluster.nodes
    assert [(node.id, node.slots, node.ports) for node in nodes] == [
        ("n1", 2, (7, 8)),
        ("n2", 2, (7, 8)),
        ("n3", 2, None),
    ]


def test_parameters_and_rates_are_those_of_the_run() -> None:
    plan = planned(given_factors(**{COUNT: [3, 5], RATE: [10, 20], ALPHA: [0.5]}))
    for run in plan.runs:
        here = plan.at(run)
        application = here.applications["wordcount"]
        components = {component.id: component for component in application.topology.components}
        assert components["count"].parallelism == run.factors[COUNT]
        assert application.rate == Constant(run.factors[RATE])
        assert here.schedulers["top-storm"].params["alpha"] == 0.5
        assert here.schedulers["even"].params.get("alpha") is None
    assert len({dump_json(dict(run.factors)) for run in plan.runs}) == 4


def test_a_step_of_a_rate_and_a_label_with_dots_can_be_varied() -> None:
    entry = "{name: wordcount, label: v1.params, rate: {kind: steps, steps: [[0, 5], [9, 7]]}}"
    agenda = f"name: varied\nworkloads: [{entry}]\nschedulers: [even]\n"
    plan = planned('factors: {"workloads.v1.params.rate.steps.1.1": [8, 9]}\n', agenda)
    assert [plan.at(run).applications["v1.params"].rate.steps[1] for run in plan.runs] == [
        (9, run.factors["workloads.v1.params.rate.steps.1.1"]) for run in plan.runs
    ]


def test_a_scheduler_that_is_listed_by_name_only_gets_parameters() -> None:
    agenda = AGENDA.replace("{name: top-storm, params: {alpha: 0.8}}", "top-storm")
    plan = planned(given_factors(**{ALPHA: [0.2, 0.4]}), agenda)
    assert {plan.at(run).schedulers["top-storm"].params["alpha"] for run in plan.runs} == {0.2, 0.4}


def test_the_resolved_agenda_gives_the_same_runs_and_plans_again() -> None:
    timeline = "timeline: [{at_s: 5, do: rate, tuples_per_s: 99}]\n"
    first = planned(timeline + given_factors(**{COUNT: [3, 5], RATE: [10, 20], "nodes": [2, 4]}))
    again = campaign_plan(
        agenda_of(parse_document(dump_json(first.agenda), "campaign.json")),
        cluster_from_document(parse_document(dump_json(first.cluster))),
    )
    assert again.agenda == first.agenda
    assert again.runs == first.runs
    for run in first.runs:
        assert again.at(run).cluster == first.at(run).cluster
        before, after = (plan.at(run).applications["wordcount"] for plan in (first, again))
        assert (before.params, before.rate, before.topology) == (after.params, after.rate, after.topology)
        assert after.rate.steps == ((0, run.factors[RATE]), (5, 99))


def test_only_selects_by_factors_and_labels() -> None:
    plan = planned("repetitions: 2\nfactors: {nodes: [2, 3, 4], slots: [2, 4]}\n")
    chosen = select_runs(plan, "nodes=4,nodes=2,scheduler=even,slots=2")
    assert Counter((r.factors["nodes"], r.factors["slots"], r.scheduler) for r in chosen) == {
        (4, 2, "even"): 2,
        (2, 2, "even"): 2,
    }
    with pytest.raises(InputError, match=r"--only: the agenda has no nodes '5'; valid: 2, 3, 4"):
        select_runs(plan, "nodes=5")
    with pytest.raises(
        InputError, match=r"--only: got 'node=4', which is no name.*nodes=VALUE.*; did you mean 'nodes'"
    ):
        select_runs(plan, "node=4")


WRONG = [
    ("factors: {node: [1]}", "factors.node: unknown factor 'node'; did you mean 'nodes'?"),
    (
        "factors: {heat: [0.5]}",
        "factors.heat: unknown factor 'heat'; valid: acks, engine, engine_options, inventory, linger_ms, load, ",
    ),
    ("factors: {nodes: []}", "factors.nodes: got []: expected a list of length >= 1"),
    ("factors: {nodes: 4}", "factors.nodes: got 4: expected a list"),
    ("factors: {nodes: [2, 5]}", "factors.nodes[1]: got 5, but the inventory has 4 available nodes"),
    ("factors: {nodes: [0]}", "factors.nodes[0]: got 0, expected a whole number, 1 or more"),
    ("factors: {nodes: [true]}", "factors.nodes[0]: got true, expected a whole number, 1 or more"),
    ("factors: {slots: [2.5]}", "factors.slots[0]: got 2.5, expected a whole number, 1 or more"),
    ("factors: {nodes: [2, 2]}", "factors.nodes: 2 is listed twice"),
    ('factors: {workloads.wordcount.params.text: [4, "4"]}', "params.text: 4 is listed twice"),
    (
        "factors: {nodes: [1, 2], slots: [3]}\ncombine: zip",
        "combine: zip needs as many values of each factor: nodes has 2",
    ),
    ("factors: {nodes: [1, 1], slots: [3, 3]}\ncombine: zip", "factors: nodes=1, slots=3 is listed twice"),
    ("factors: {nodes: [2]}\ncombine: cross", "combine: 'cross' is none of the valid values; valid: product, zip"),
    ("factors: {workloads.wordcuont.params.size: [2]}", "there is no workload 'wordcuont'; did you mean 'wordcount'?"),
    ("factors: {schedulers.evn.params.size: [2]}", "there is no scheduler 'evn'; did you mean 'even'?"),
    (
        "factors: {workloads.wordcount.parallelism: [2]}",
        "expected workloads.LABEL, then params or rate or demands, then a key",
    ),
    ("factors: {schedulers.even.rate.x: [2]}", "expected schedulers.LABEL, then params, then a key"),
    (
        "factors: {workloads.wordcount.params: [2]}",
        "expected workloads.LABEL, then params or rate or demands, then a key",
    ),
    ("factors: {workloads.wordcount.params.paralelism.count: [2]}", "'paralelism'; did you mean 'parallelism'?"),
    (
        "factors: {workloads.wordcount.params.parallelism.cuont: [2]}",
        "unknown component 'cuont'; did you mean 'count'? (at cuont=2; factors: a.yaml:6)",
    ),
    (
        "factors: {workloads.wordcount.params.parallelism.count: [2, -1]}",
        "got -1, expected at least 1 (at count=-1; factors: a.yaml:6)",
    ),
    ("factors: {workloads.wordcount.params.workers.a: [2]}", "leads to 'a' of 2, which has no keys"),
    ("factors: {workloads.wordcount.rate.tuple_per_s: [2]}", "unknown key 'tuple_per_s'; did you mean 'tuples_per_s'?"),
    ("factors: {workloads.wordcount.rate.tuples_per_s: [fast]}", 'got "fast"'),
    ("factors: {schedulers.top-storm.params.alhpa: [0.5]}", "'alhpa'; did you mean 'alpha'?"),
    ("factors: {schedulers.top-storm.params.alpha: [0.5, 7]}", "alpha: got 7"),
]


@pytest.mark.parametrize(("factors", "message"), WRONG)
def test_errors_have_the_line_of_the_factor(factors: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        planned(f"# a comment\n{factors}\n")
    assert message in str(caught.value)
    line = 7 if message.startswith("combine") and "cross" in message else 6
    assert str(caught.value).startswith(f"a.yaml:{line}: ") or "factors: a.yaml:6" in str(caught.value)


def test_too_many_combinations_are_refused_at_once() -> None:
    with pytest.raises(InputError, match="more than 10,000 combinations"):
        planned(f"factors: {{nodes: {list(range(1, 201))}, slots: {list(range(1, 201))}}}\n")


FEWER = AGENDA.replace("[even, {name: top-storm, params: {alpha: 0.8}}]", "[even, {name: even, label: few, nodes: 2}]")


def test_a_scheduler_may_use_the_first_nodes_only_also_after_the_loss_of_one() -> None:
    plan = planned("repetitions: 1\n", FEWER.replace("workers: 2", "workers: 4"))
    few = next(run for run in plan.runs if run.scheduler == "few")
    at = plan.at(few)
    assert {slot.node for slot in at.placed["wordcount", "few"].places.values()} == {"n1", "n2"}
    assert {slot.node for slot in at.placed["wordcount", "even"].places.values()} == {"n1", "n2", "n3", "n4"}
    again = at.place_without(few, {"n1"}, at.placed["wordcount", "few"].places)
    assert {slot.node for slot in again.places.values()} == {"n2"}
    assert [node.id for node in at.cluster_of("few").available] == ["n1", "n2"]
    assert at.cluster_of("even") == at.cluster


def test_a_scheduler_with_more_nodes_than_there_are_is_refused_or_left_out() -> None:
    more = FEWER.replace("nodes: 2", "nodes: 9")
    with pytest.raises(InputError, match=r"a\.yaml:4: schedulers\[1\]\.nodes: got 9, but the cluster has 4 available"):
        planned("", more)
    with pytest.raises(InputError, match=r"schedulers\[1\]\.nodes: got 0: expected a whole number >= 1"):
        planned("", FEWER.replace("nodes: 2", "nodes: 0"))
    plan = planned("unplaceable: skip\nfactors: {nodes: [1, 2]}\n", FEWER)
    reasons = {(run.factors["nodes"], run.scheduler): plan.why_unplaced(run) for run in plan.runs}
    assert reasons == {
        (1, "even"): "",
        (1, "few"): "the scheduler 'few' uses 2 nodes, and there are 1",
        (2, "even"): "",
        (2, "few"): "",
    }


def test_an_event_with_a_node_that_a_scheduler_does_not_use_is_refused() -> None:
    event = "timeline: [{at_s: 20, do: move, executor: 'count[0]', to: n3}]\n"
    with pytest.raises(InputError, match=r"timeline\[0\]\.to: the scheduler 'few' does not use the node 'n3'"):
        planned(event, FEWER)
    planned(event.replace("to: n3", "to: n3, scheduler: even"), FEWER)
