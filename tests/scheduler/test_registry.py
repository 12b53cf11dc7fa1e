"""Schedulers by name, and rounds from documents."""

import pytest

from inventory.documents import Document, parse
from inventory.errors import InputError
from inventory.params import given
from scheduler.load_problem import load_problem
from scheduler.problem import Needs, Scheduler
from scheduler.registry import make_scheduler, scheduler_class, scheduler_names
from scheduler.validation import Checked

CLUSTER = parse("nodes: [{id: n1}, {id: n2}]", "c.yml")
TOPOLOGY = parse("{id: t, components: [{id: a, kind: spout}]}", "t.yml")
RING = parse("id: r\ncomponents:\n- {id: x, kind: spout}\n- {id: a, kind: bolt, inputs: [{from: a}]}", "r.yml")


@pytest.mark.parametrize("name", scheduler_names())
def test_every_scheduler_has_the_shape_and_can_be_made(name: str) -> None:
    made = make_scheduler(name)
    assert isinstance(made, Checked)
    assert made.name == name
    kind = scheduler_class(name)
    assert isinstance(kind(kind.Params()), Scheduler)
    assert kind.paper


def test_the_built_in_ones_are_registered_like_anybody_elses() -> None:
    assert {"even", "top-storm"} <= set(scheduler_names())


def test_unknown_names_and_parameters_are_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="unknown scheduler 'top-strom'; did you mean 'top-storm'"):
        make_scheduler("top-strom")
    agenda = parse("schedulers:\n- name: top-storm\n  params: {alfa: 1}", "agenda.yml")
    with pytest.raises(InputError, match=r"agenda.yml:3: schedulers\[0\].params.alfa: .*did you mean 'alpha'"):
        make_scheduler("top-storm", (agenda, ("schedulers", 0, "params")))
    assert make_scheduler("top-storm", (given(["alpha=1"]), ())).params["alpha"] == 1.0


def posed(cluster: Document = CLUSTER, *topologies: Document, needs: Needs | None = None) -> None:
    load_problem(needs or Needs(), cluster, topologies or [TOPOLOGY])


def test_topologies_keep_their_order_and_may_not_share_a_name() -> None:
    other = parse("{id: s, components: [{id: b, kind: spout}]}", "s.yml")
    assert [t.id for t in load_problem(Needs(), CLUSTER, [TOPOLOGY, other]).topologies] == ["t", "s"]
    with pytest.raises(InputError, match=r"t.yml:1: id: two topologies are called 't'; the other one is at t.yml:1"):
        posed(CLUSTER, TOPOLOGY, TOPOLOGY)


def test_a_cycle_is_refused_where_it_stands_unless_the_definition_allows_it() -> None:
    with pytest.raises(InputError, match=r"r.yml:4: components\[1\].inputs: topology 'r' has a cycle.*: a -> a"):
        posed(CLUSTER, RING)
    posed(CLUSTER, RING, needs=Needs(cycles=True))


def test_traffic_that_is_given_is_part_of_the_round() -> None:
    traffic = parse("load: {'a[0]': 5}")
    assert load_problem(Needs(traffic="required"), CLUSTER, [TOPOLOGY]).traffic is None
    assert load_problem(Needs(traffic="required"), CLUSTER, [TOPOLOGY], traffic).traffic is not None


def test_traffic_may_name_what_runs_beside_the_round() -> None:
    cluster = parse("nodes: [{id: n1}]\nexisting: [{topology: o, node: n1, slot: 0, executors: ['x[0]']}]")
    assert load_problem(Needs(), cluster, [TOPOLOGY], parse("load: {'x[0]': 5}")).traffic.load == {"x[0]": 5.0}
    with pytest.raises(InputError, match=r"load.x\[0\]: unknown executor 'x\[0\]'"):
        load_problem(Needs(), CLUSTER, [TOPOLOGY], parse("load: {'x[0]': 5}"))
