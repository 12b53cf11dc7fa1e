"""The agenda's key `cpu`: settings per class of nodes, once or under labels."""

import pytest

from campaign.agenda.agenda import agenda_of
from campaign.agenda.campaign_plan import select_runs
from campaign.agenda.plan import CombinationPlan, plan_of
from inventory.cluster import cluster_from_document
from inventory.documents import dump_json, parse_document
from inventory.errors import InputError, UnfitError

CLUSTER = """\
nodes:
  - {id: n1, address: 10.0.0.1, class: big, ghz: 2, flops_per_cycle: 4}
  - {id: n2, address: 10.0.0.2, class: small, ghz: 2, flops_per_cycle: 4}
  - {id: n3, address: 10.0.0.3, ghz: 2, flops_per_cycle: 4}
"""

AGENDA = """\
name: clocks
workloads:
  - {name: wordcount, rate: {kind: constant, tuples_per_s: 10}, params: {workers: 2}}
schedulers: [even, top-storm]
"""

LABELLED = """\
cpu:
  - {label: slow, nodes: {"*": {max_ghz: 1.2}}}
  - {label: fast, nodes: {"*": {governor: performance, turbo: false}, big: {turbo: true}}}
"""


def planned(cpu: str, cluster: str = CLUSTER) -> CombinationPlan:
    document = parse_document(AGENDA + cpu, "clocks.yaml")
    return plan_of(agenda_of(document), cluster_from_document(parse_document(cluster, "cluster.yaml")))


def test_without_the_key_nothing_is_set_and_run_names_do_not_change() -> None:
    plan = planned("")
    assert plan.cpus == {"": {}}
    assert sorted(run.name[4:] for run in plan.runs) == ["wordcount-even-r1", "wordcount-top-storm-r1"]


def test_a_class_overrules_all_classes_setting_by_setting() -> None:
    plan = planned('cpu: {"*": {governor: performance, max_ghz: 2}, small: {max_ghz: 1.5, cores: 2}}\n')
    common = {"governor": "performance", "max_ghz": 2.0}
    assert plan.cpus == {"": {"n1": common, "n2": {**common, "max_ghz": 1.5, "cores": 2}, "n3": common}}
    assert {run.cpu for run in plan.runs} == {""}


def test_nodes_of_other_classes_get_no_settings() -> None:
    assert planned("cpu: {small: {turbo: false}}\n").cpus == {"": {"n2": {"turbo": False}}}


def test_labels_are_a_factor_beside_workloads_and_schedulers() -> None:
    plan = planned(LABELLED)
    assert plan.cpus["fast"]["n1"] == {"governor": "performance", "turbo": True}
    assert plan.cpus["slow"] == {node: {"max_ghz": 1.2} for node in ("n1", "n2", "n3")}
    assert sorted(run.name[4:] for run in plan.runs) == [
        "wordcount-even-fast-r1",
        "wordcount-even-slow-r1",
        "wordcount-top-storm-fast-r1",
        "wordcount-top-storm-slow-r1",
    ]
    assert len({run.seed for run in plan.runs}) == 1
    chosen = select_runs(plan, "cpu=slow,scheduler=even")
    assert [(run.cpu, run.scheduler) for run in chosen] == [("slow", "even")]


def test_the_resolved_agenda_reads_back_unchanged() -> None:
    for cpu in (LABELLED, "cpu: {small: {turbo: false}}\n", ""):
        agenda = planned(cpu).agenda
        assert agenda_of(parse_document(dump_json(agenda))).value == agenda


WRONG = [
    ("cpu: {governor: performance}\n", "clocks.yaml:5: cpu.governor: 'governor' stands below a class of nodes, or '*'"),
    ('cpu: {"*": {governer: performance}}\n', "unknown key 'governer'; did you mean 'governor'?"),
    ("cpu: {smal: {turbo: false}}\n", "clocks.yaml:5: cpu.smal: no node is of the class 'smal'; did you mean 'small'?"),
    ('cpu: {"*": {max_ghz: 2400}}\n', "got 2400"),
    ('cpu: {"*": {cores: 0}}\n', "got 0"),
    ('cpu: {"*": {turbo: 1}}\n', "got 1"),
    (
        'cpu: {"*": {min_ghz: 2}, big: {max_ghz: 1}}\n',
        "clocks.yaml:5: cpu: min_ghz: got 2, expected at most max_ghz, 1",
    ),
    ("cpu: []\n", "clocks.yaml:5: cpu: lists nothing"),
    ("cpu: [{label: a, nodes: {}}, {label: a, nodes: {}}]\n", "second CPU settings are called 'a'"),
    ("cpu: [{label: a/b, nodes: {}}]\n", "at most 100 letters"),
    ("cpu: [{label: a}]\n", "the key 'nodes' is missing"),
]


@pytest.mark.parametrize(("cpu", "message"), WRONG)
def test_errors_have_their_place(cpu: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        planned(cpu)
    assert message in str(caught.value)
    assert str(caught.value).startswith("clocks.yaml:5: cpu")


def test_a_cluster_without_classes_has_only_the_star() -> None:
    with pytest.raises(InputError, match=r"none has one: use '\*'"):
        planned("cpu: {zen: {turbo: false}}\n", "nodes: [{id: a, address: 10.0.0.1}]\n")


def test_nodes_of_one_machine_are_refused() -> None:
    with pytest.raises(UnfitError, match="the nodes a, b are one machine") as caught:
        planned('cpu: {"*": {turbo: false}}\n', "nodes: [{id: a}, {id: b}]\n")
    assert "possible: one node per machine" in str(caught.value)


def test_only_accepts_cpu_labels_of_the_agenda() -> None:
    with pytest.raises(InputError, match=r"expected workload=LABEL or scheduler=LABEL; valid"):
        select_runs(planned(""), "cpu=slow")
    with pytest.raises(InputError, match=r"the agenda has no cpu 'slw'; did you mean 'slow'"):
        select_runs(planned(LABELLED), "cpu=slw")
