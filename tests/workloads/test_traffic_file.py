"""Traffic files: rates and loads of known executors, every mistake with its place, exact round trips."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import chain

from inventory.documents import dump_json, dump_yaml, parse_document
from inventory.errors import InputError
from workloads.topology import Component, Topology
from workloads.traffic import Edge, Traffic, check_executors, load_traffic, traffic_from_document

TEXT = """
edges:
- {from: "a[0]", to: "b[1]", tuples_per_s: 812.0, bytes_per_s: 20480}
- {from: "a[1]", to: "b[1]", tuples_per_s: 0}
load: {"a[0]": 23.5}
node_load: {n1: 0.62}
"""


def test_every_documented_key_is_read(tmp_path: Path) -> None:
    (tmp_path / "f.yml").write_text(TEXT)
    assert load_traffic(tmp_path / "f.yml", [chain(2, 2)]) == Traffic(
        edges=(Edge("a[0]", "b[1]", 812.0, 20480.0), Edge("a[1]", "b[1]", 0.0)),
        load={"a[0]": 23.5},
        node_load={"n1": 0.62},
    )


def test_edges_given_twice_are_added() -> None:
    traffic = Traffic((Edge("a[0]", "b[0]", 1.5), Edge("a[0]", "b[0]", 2.0), Edge("b[0]", "a[0]", 4.0)))
    assert traffic.rate == {("a[0]", "b[0]"): 3.5, ("b[0]", "a[0]"): 4.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('edges:\n- {from: "a[9]", to: "b[0]", tuples_per_s: 1}', r"f.yml:2: .*from: unknown executor 'a\[9\]'; did"),
        ('edges:\n- {from: "a[0]", to: "b", tuples_per_s: 1}', r"f.yml:2: .*to: unknown executor 'b'; valid: a"),
        ('edges:\n- {from: "a[0]", to: "b[0]"}', r"f.yml:2: edges\[0\]: the key 'tuples_per_s' is missing"),
        ('edges:\n- {from: "a[0]", to: "b[0]", tuples_per_s: -1}', r"f.yml:2: .*tuples_per_s: got -1: .* >= 0"),
        ('edges:\n- {from: "a[0]", to: "b[0]", tuples_per_s: .nan}', r"f.yml:2: .*tuples_per_s: .nan is not a finite"),
        ('edges:\n- {fron: "a[0]", to: "b[0]", tuples_per_s: 1}', r"f.yml:2: .*unknown key 'fron'; did you .* 'from'"),
        ('load:\n  "a[0]": 1\n  "a[7]": 1', r"f.yml:3: load.a\[7\]: unknown executor 'a\[7\]'"),
        ('load:\n  "a[0]": 1\n  "a[1]": -2', r"f.yml:3: load.a\[1\]: got -2: expected a number >= 0"),
        ("node_load:\n  n1: 62", r"f.yml:2: node_load.n1: got 62: expected a number <= 2"),
        ("egdes: []", r"f.yml:1: egdes: unknown key 'egdes'; did you mean 'edges'"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place(text: str, message: str) -> None:
    with pytest.raises(InputError, match="^" + message):
        check_executors(traffic_from_document(parse_document(text, "f.yml")), [chain(2, 2)])


def test_an_executor_that_two_topologies_have_is_refused() -> None:
    twins = [chain(1, 1, name="one"), chain(1, 1, name="two")]
    with pytest.raises(InputError, match=r"f.yml:1: load.a.0.: the topologies 'one' and 'two' both have .*'a\[0\]'"):
        check_executors(traffic_from_document(parse_document('load: {"a[0]": 1}', "f.yml")), twins)


def test_an_edge_between_two_topologies_is_refused() -> None:
    other = Topology(id="other", components=(Component(id="z", kind="spout"),))
    with pytest.raises(InputError, match=r"edges.0..to: 'a\[0\]' is of topology 't' and 'z\[0\]' of 'other'"):
        check_executors(
            traffic_from_document(parse_document('edges: [{from: "a[0]", to: "z[0]", tuples_per_s: 1}]', "f.yml")),
            [chain(1, 1), other],
        )


def test_executors_of_existing_workers_are_known() -> None:
    text = 'edges: [{from: "x[0]", to: "x[1]", tuples_per_s: 1}, {from: "a[0]", to: "x[0]", tuples_per_s: 1}]'
    check_executors(traffic_from_document(parse_document(text)), [chain(1)], {"x[0]", "x[1]"})


names = st.text(min_size=1, max_size=6)
rates = st.floats(0, 1e12)


@given(
    st.builds(
        Traffic,
        st.lists(st.builds(Edge, names, names, rates, rates), max_size=5).map(tuple),
        st.dictionaries(names, rates, max_size=4),
        st.dictionaries(names, st.floats(0, 1), max_size=4),
    )
)
def test_round_trips_exactly(traffic: Traffic) -> None:
    for dump in (dump_yaml, dump_json):
        text = dump(traffic)
        again = traffic_from_document(parse_document(text)).value
        assert again == traffic
        assert dump(again) == text
