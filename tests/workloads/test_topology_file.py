"""Topology files: keys, refusals and their messages, exact round trips; executors, pairs and order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import chain, topologies

from inventory.documents import dump_json, dump_yaml, parse_document
from inventory.errors import InputError
from workloads.topology import Component, Constraints, Executor, Input, Topology, topology_of

EVERY_KEY = """
id: wordcount
user: alice
priority: 10
uptime_s: 5
workers: 5
worker_max_heap_mb: 512
isolated_nodes: 2
constraints: {incompatible: [[split, count]], max_per_node: {count: 2}}
components:
  - {id: spout, kind: spout, parallelism: 6, outputs: {default: {line: str}, late: {line: str}}}
  - id: split
    kind: bolt
    parallelism: 18
    cpu: 20
    onheap_mb: 64
    offheap_mb: 32
    inputs: [{from: spout, grouping: shuffle, stream: late}]
    outputs: {default: {word: str}}
  - {id: count, kind: bolt, parallelism: 8, memory_mb: 100, inputs: [{from: split, grouping: fields, fields: [word]}]}
  - {id: __acker, kind: bolt, parallelism: 3}
"""


def test_every_documented_key_is_read() -> None:
    topology = topology_of(parse_document(EVERY_KEY)).value
    assert (topology.id, topology.user, topology.priority, topology.uptime_s) == ("wordcount", "alice", 10, 5)
    assert (topology.workers, topology.worker_max_heap_mb, topology.isolated_nodes) == (5, 512, 2)
    assert topology.constraints == Constraints((("split", "count"),), {"count": 2})
    split, count = topology.component["split"], topology.component["count"]
    assert (split.cpu_points, split.onheap, split.offheap, split.memory) == (20, 64, 32, 96)
    assert (count.cpu_points, count.memory) == (10, 100)
    assert split.inputs == (Input("spout", "shuffle", (), "late"),)
    assert count.inputs == (Input("split", "fields", ("word",)),)
    assert len(topology.executors) == 6 + 18 + 8 + 3


def test_defaults_are_the_documented_ones() -> None:
    topology = topology_of(parse_document("{id: t, components: [{id: a, kind: spout}]}")).value
    (component,) = topology.components
    assert (topology.workers, topology.priority, topology.worker_max_heap_mb) == (1, 29, 768)
    assert (component.parallelism, component.cpu_points, component.onheap, component.offheap) == (1, 10, 128, 0)


def test_executors_are_ordered_by_component_then_index() -> None:
    topology = topology_of(
        parse_document("{id: t, components: [{id: z, kind: spout, parallelism: 2}, {id: a, kind: bolt}]}")
    ).value
    assert [executor.name for executor in topology.executors] == ["z[0]", "z[1]", "a[0]"]
    assert [topology.number_of[executor] for executor in topology.executors] == [0, 1, 2]


@given(st.text(st.characters(exclude_characters="[]"), min_size=1), st.integers(0, 10**6))
def test_the_name_of_an_executor_is_read_back(component: str, index: int) -> None:
    assert Executor.named(Executor(component, index).name) == Executor(component, index)


@pytest.mark.parametrize("name", ["", "a", "a[]", "[0]", "a[x]", "a[-1]", "a[0", "a[0]b", "a0]"])
def test_an_invalid_name_of_an_executor_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"component\[index\]"):
        Executor.named(name)


HEAD = "id: t\ncomponents:\n- {id: a, kind: spout, outputs: {default: {word: str}}}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("components: [{id: a, kind: spout}]", r"t.yml:1: the key 'id' is missing"),
        ("id: t\ncomponents: []", r"t.yml:2: components: got \[\]: expected a list of length >= 1"),
        ("id: t\nworker: 3", r"t.yml:2: worker: unknown key 'worker'; did you mean 'workers'\?"),
        ("id: t\ncomponents:\n- {id: a, kind: spout}\nworkers: 0", r"t.yml:4: workers: got 0: .* >= 1"),
        ("id: t\ncomponents:\n- {id: a, kind: spot}", r"t.yml:3: .*kind: 'spot' is none of .*did you mean 'spout'"),
        ("id: t\ncomponents:\n- {id: a, kind: spout}\n- {id: a, kind: bolt}", r"t.yml:4: .*two components are .*'a'"),
        ("id: t\ncomponents:\n- id: a\n  kind: bolt\n  parallelism: 0", r"t.yml:5: .*parallelism: got 0: .* >= 1"),
        ("id: t\ncomponents:\n- id: a\n  kind: bolt\n  parallelism: 1000000000", r"t.yml:5: .*got 1000000000: .* <= 1"),
        ("id: t\ncomponents:\n- id: a[0]\n  kind: bolt", r't.yml:3: components\[0\].id: got "a\[0\]"'),
        ("id: t\ncomponents:\n- id: a\n  kind: bolt\n  cpu: -1", r"t.yml:5: .*cpu: got -1: expected a number >= 0"),
        (
            "id: t\ncomponents:\n- id: a\n  kind: bolt\n  onheap_mb: 1\n  memory_mb: 2",
            r"t.yml:6: .*give memory_mb, or onheap_mb and offheap_mb, not both",
        ),
        (HEAD + "- {id: s, kind: spout, inputs: [{from: a}]}", r"t.yml:4: .*the spout 's' cannot have inputs"),
        (HEAD + "- {id: __acker, kind: bolt, inputs: [{from: a}]}", r"t.yml:4: .*__acker is a bolt without inputs"),
        (HEAD + "- {id: __acker, kind: spout}", r"t.yml:4: .*__acker is a bolt without inputs"),
        (
            HEAD + "- {id: counter, kind: bolt, inputs: [{from: countr}]}",
            r"t.yml:4: .*from: unknown component 'countr'; did you mean 'counter'",
        ),
        (
            HEAD + "- {id: b, kind: bolt, inputs: [{from: a, grouping: shufle}]}",
            r"t.yml:4: .*grouping: 'shufle' is none of .*did you mean 'shuffle'",
        ),
        (HEAD + "- {id: b, kind: bolt, inputs: [{from: a, grouping: fields}]}", r"t.yml:4: .*names at least one field"),
        (
            HEAD + "- {id: b, kind: bolt, inputs: [{from: a, grouping: all, fields: [word]}]}",
            r"t.yml:4: .*a all grouping takes no fields",
        ),
        (
            HEAD + "- {id: b, kind: bolt, inputs: [{from: a, grouping: fields, fields: [wrd]}]}",
            r"t.yml:4: .*fields\[0\]: stream 'default' of 'a' has no field 'wrd'; did you mean 'word'",
        ),
        (
            HEAD + "- {id: b, kind: bolt, inputs: [{from: a, stream: defalt}]}",
            r"t.yml:4: .*stream: 'a' has no stream 'defalt'; did you mean 'default'",
        ),
        (HEAD + "constraints: {incompatible: [[a, bb]]}", r"t.yml:4: .*incompatible\[0\]\[1\]: unknown component 'bb'"),
        (HEAD + "constraints: {max_per_node: {bb: 1}}", r"t.yml:4: constraints.max_per_node.bb: unknown .*'bb'"),
        (HEAD + "constraints: {max_per_node: {a: 0}}", r"t.yml:4: constraints.max_per_node.a: got 0: .* >= 1"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place(text: str, message: str) -> None:
    with pytest.raises(InputError, match="^" + message):
        topology_of(parse_document(text, "t.yml"))


def test_too_many_executors_in_all_are_refused_before_they_are_made() -> None:
    half = "{{id: {}, kind: spout, parallelism: 600000}}"
    with pytest.raises(InputError, match="1200000 executors in all, at most 1000000"):
        topology_of(parse_document(f"id: t\ncomponents: [{half.format('a')}, {half.format('b')}]"))


def test_a_cycle_is_named_in_the_direction_of_the_data() -> None:
    def bolt(own: str, source: str) -> Component:
        return Component(id=own, kind="bolt", inputs=(Input(source),))

    ring = Topology(id="ring", components=(bolt("a", "c"), bolt("b", "a"), bolt("c", "b")))
    assert set(zip(ring.cycle, ring.cycle[1:], strict=False)) == {("a", "b"), ("b", "c"), ("c", "a")}
    with pytest.raises(InputError, match=r"'ring' has a cycle: \w -> \w -> \w -> \w"):
        _ = ring.order
    own = Topology(id="own", components=(bolt("a", "a"),))
    assert own.cycle == ("a", "a")
    assert chain(1, 1).cycle == ()


@given(topologies())
def test_order_puts_sources_before_destinations(topology: Topology) -> None:
    place = {name: at for at, name in enumerate(topology.order)}
    assert sorted(place) == sorted(topology.component)
    assert all(place[source.id] < place[destination.id] for source, destination, _ in topology.links())


def test_pairs_are_ordered_by_link_then_source_then_destination() -> None:
    assert [(s.name, d.name) for s, d in chain(2, 2).pairs()] == [
        ("a[0]", "b[0]"),
        ("a[0]", "b[1]"),
        ("a[1]", "b[0]"),
        ("a[1]", "b[1]"),
    ]


def test_a_global_grouping_only_reaches_index_0() -> None:
    topology = Topology(
        id="t",
        components=(
            Component(id="a", kind="spout", parallelism=2),
            Component(id="b", kind="bolt", parallelism=2, inputs=(Input("a", "global"), Input("a", "shuffle"))),
        ),
    )
    assert [(s.name, d.name) for s, d in topology.pairs()] == [
        ("a[0]", "b[0]"),
        ("a[1]", "b[0]"),
        ("a[0]", "b[1]"),
        ("a[1]", "b[1]"),
    ]


@given(topologies(cycles=True))
def test_pairs_are_those_that_groupings_connect_each_once(topology: Topology) -> None:
    expected = set()
    for source, destination, entry in topology.links():
        for one in topology.executors_of(source.id):
            for other in topology.executors_of(destination.id)[: 1 if entry.grouping == "global" else None]:
                expected.add((one, other))
    pairs = list(topology.pairs())
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == expected


words = st.text(min_size=1, max_size=4)


@given(topologies(cycles=True), words, words, st.integers(0, 40), st.none() | st.integers(1, 5), st.booleans())
def test_round_trips_exactly(
    topology: Topology, user: str, field: str, priority: int, isolated: int | None, constrained: bool
) -> None:
    first = topology.components[0]
    components = list(topology.components)
    if not any(entry.source == first.id for component in components for entry in component.inputs):
        components[0] = Component(
            first.id, first.kind, memory_mb=3.5, outputs={"default": {field: "int"}}, inputs=first.inputs
        )
    topology = Topology(
        id=topology.id,
        components=tuple(components),
        user=user,
        priority=priority,
        workers=topology.workers,
        uptime_s=0.25,
        isolated_nodes=isolated,
        constraints=Constraints(((first.id, first.id),), {first.id: 2}) if constrained else None,
    )
    for dump in (dump_yaml, dump_json):
        text = dump(topology)
        again = topology_of(parse_document(text)).value
        assert again == topology
        assert dump(again) == text
