"""Schedulers by name, and rounds from documents."""

import pytest

from inventory.cluster import cluster_from_document
from inventory.documents import Located, parse_document
from inventory.errors import InputError
from inventory.plugins import given
from scheduler.problem import Needs, Scheduler, load_problem
from scheduler.registry import Checked, make_scheduler, scheduler_class, scheduler_names
from workloads.topology import Topology, topology_of
from workloads.traffic import traffic_from_document

CLUSTER = cluster_from_document(parse_document("nodes: [{id: n1}, {id: n2}]", "c.yml"))
TOPOLOGY = topology_of(parse_document("{id: t, components: [{id: a, kind: spout}]}", "t.yml"))
RING = topology_of(
    parse_document("id: r\ncomponents:\n- {id: x, kind: spout}\n- {id: a, kind: bolt, inputs: [{from: a}]}", "r.yml")
)


@pytest.mark.parametrize("name", scheduler_names())
def test_every_scheduler_implements_the_interface_and_can_be_made(name: str) -> None:
    scheduler = make_scheduler(name)
    assert isinstance(scheduler, Checked)
    assert scheduler.name == name
    kind = scheduler_class(name)
    assert isinstance(kind(kind.Params()), Scheduler)
    assert kind.paper


def test_built_in_schedulers_are_registered() -> None:
    assert {"even", "top-storm"} <= set(scheduler_names())


def test_errors_about_unknown_names_and_parameters_suggest_the_nearest() -> None:
    with pytest.raises(InputError, match="unknown scheduler 'top-strom'; did you mean 'top-storm'"):
        make_scheduler("top-strom")
    agenda = parse_document("schedulers:\n- name: top-storm\n  params: {alfa: 1}", "agenda.yml")
    with pytest.raises(InputError, match=r"agenda.yml:3: schedulers\[0\].params.alfa: .*did you mean 'alpha'"):
        make_scheduler("top-storm", agenda.origin / "schedulers" / 0 / "params")
    assert make_scheduler("top-storm", given(["alpha=1"])).params["alpha"] == 1.0


def load(*topologies: Located[Topology], needs: Needs | None = None) -> None:
    load_problem(needs or Needs(), CLUSTER, topologies or [TOPOLOGY])


def test_topologies_keep_their_order_and_may_not_share_a_name() -> None:
    other = topology_of(parse_document("{id: s, components: [{id: b, kind: spout}]}", "s.yml"))
    assert [t.id for t in load_problem(Needs(), CLUSTER, [TOPOLOGY, other]).topologies] == ["t", "s"]
    with pytest.raises(InputError, match=r"t.yml:1: id: two topologies are called 't'; the other one is at t.yml:1"):
        load(TOPOLOGY, TOPOLOGY)


def test_a_cycle_is_refused_with_its_line_unless_the_scheduler_allows_cycles() -> None:
    with pytest.raises(InputError, match=r"r.yml:4: components\[1\].inputs: topology 'r' has a cycle.*: a -> a"):
        load(RING)
    load(RING, needs=Needs(cycles=True))


def test_given_traffic_is_part_of_the_problem() -> None:
    traffic = traffic_from_document(parse_document("load: {'a[0]': 5}"))
    assert load_problem(Needs(traffic="required"), CLUSTER, [TOPOLOGY]).traffic is None
    assert load_problem(Needs(traffic="required"), CLUSTER, [TOPOLOGY], traffic).traffic is not None


def test_traffic_may_name_executors_of_other_running_topologies() -> None:
    running = parse_document("nodes: [{id: n1}]\nexisting: [{topology: o, node: n1, slot: 0, executors: ['x[0]']}]")
    traffic = traffic_from_document(parse_document("load: {'x[0]': 5}"))
    assert load_problem(Needs(), cluster_from_document(running), [TOPOLOGY], traffic).traffic.load == {"x[0]": 5.0}
    with pytest.raises(InputError, match=r"load.x\[0\]: unknown executor 'x\[0\]'"):
        load_problem(Needs(), CLUSTER, [TOPOLOGY], traffic)


@pytest.mark.parametrize(
    ("components", "words"),
    [
        ("[{id: a, kind: bolt}]", r"t.yml:1: components: topology 't' has no spout"),
        ("[{id: a, kind: spout}, {id: b, kind: bolt}]", r"t.yml:1: components\[1\]: bolt 'b' has no input"),
        (
            "[{id: a, kind: spout}, {id: b, kind: bolt, inputs: [{from: a}, {from: a, grouping: all}]}]",
            r"t.yml:1: components\[1\].inputs\[1\]: 'b' subscribes twice to the stream 'default' of 'a'",
        ),
    ],
)
def test_what_a_run_refuses_is_not_placed_either(components: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        load(topology_of(parse_document(f"{{id: t, components: {components}}}", "t.yml")))


def test_ackers_need_no_input() -> None:
    load(topology_of(parse_document("{id: t, components: [{id: a, kind: spout}, {id: __acker, kind: bolt}]}", "t.yml")))
