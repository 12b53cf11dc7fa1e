"""TOP-Storm's computing power and its rank, against the paper's Table 3 cell by cell."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inventory.cluster import Facts, Node, cluster_from_document
from inventory.documents import read
from inventory.errors import InputError
from inventory.power_index import power_index
from inventory.reading import find_inventory

TABLE_3 = [
    # id, GHz, RAM GB, FLOPs/cycle, cores, speed, power and index for alpha 0.8, power and index for alpha 0.2
    ("A", 2.4, 4, 4, 4, 38.4, 31.52, 5, 10.88, 5),
    ("B", 2.8, 8, 4, 4, 44.8, 37.44, 4, 15.36, 4),
    ("C", 3.2, 10, 16, 2, 102.4, 83.92, 3, 28.48, 3),
    ("D", 3.4, 12, 16, 4, 217.6, 176.48, 1, 53.12, 2),
    ("E", 3.2, 16, 8, 8, 204.8, 167.04, 2, 53.76, 1),
]
NODES = [
    Node(id=name, ghz=ghz, ram_gb=ram, flops_per_cycle=flops, cores=cores)
    for name, ghz, ram, flops, cores, *_ in TABLE_3
]


@pytest.mark.parametrize("row", TABLE_3, ids=lambda row: row[0])
def test_table_3_cell_by_cell(row: tuple) -> None:
    name, _, _, _, _, speed, power_8, index_8, power_2, index_2 = row
    for alpha, power, index in ((1.0, speed, None), (0.8, power_8, index_8), (0.2, power_2, index_2)):
        (entry,) = [entry for entry in power_index(NODES, alpha).ranked if entry.node == name]
        assert entry.power == pytest.approx(power, abs=1e-9)
        assert index is None or entry.index == index


def test_the_default_is_the_papers_alpha() -> None:
    assert power_index(NODES) == power_index(NODES, 0.8)
    assert [entry.node for entry in power_index(NODES).ranked] == ["D", "E", "C", "B", "A"]


def test_d_and_e_swap_where_the_formula_says() -> None:
    swap = 4 / 16.8
    assert [e.node for e in power_index(NODES, swap + 1e-6).ranked][:2] == ["D", "E"]
    assert [e.node for e in power_index(NODES, swap - 1e-6).ranked][:2] == ["E", "D"]


def test_sockets_multiply_and_ram_defaults_to_memory() -> None:
    (entry,) = power_index([Node(id="n", sockets=2, cores=8, ghz=2.0, flops_per_cycle=16, memory_mb=2048)], 0.5).ranked
    assert entry.power == 0.5 * 2 * 8 * 2.0 * 16 + 0.5 * 2


def test_equal_power_shares_an_index_and_goes_by_name() -> None:
    def node(name: str, ghz: float) -> Node:
        return Node(id=name, ghz=ghz, flops_per_cycle=1)

    ranked = power_index([node("b", 1), node("c", 2), node("a", 1), node("d", 0.5)]).ranked
    assert [(entry.node, entry.index) for entry in ranked] == [("c", 1), ("a", 2), ("b", 2), ("d", 3)]


def test_normalise_divides_by_the_largest_of_the_cluster() -> None:
    fast = Node(id="fast", cores=1, ghz=4, flops_per_cycle=1, ram_gb=1)
    big = Node(id="big", cores=1, ghz=1, flops_per_cycle=1, ram_gb=4)
    powers = {entry.node: entry.power for entry in power_index([fast, big], 0.8, normalise=True).ranked}
    assert powers == {"fast": pytest.approx(0.8 + 0.2 / 4), "big": pytest.approx(0.8 / 4 + 0.2)}


def test_normalise_without_any_ram_counts_speed_alone() -> None:
    (entry,) = power_index([Node(id="n", ghz=1, flops_per_cycle=1, ram_gb=0)], normalise=True).ranked
    assert entry.power == pytest.approx(0.8)


def test_with_bogomips_it_ranks_like_cores_times_clock_squared() -> None:
    nodes = [
        Node(id="many-slow", cores=8, ghz=2.0, ram_gb=512, facts=Facts(bogomips=4000)),
        Node(id="few-fast", cores=4, ghz=3.0, ram_gb=4, facts=Facts(bogomips=6000)),
    ]
    index = power_index(nodes, flops="bogomips")
    assert index.source == "bogomips"
    assert [entry.node for entry in index.ranked] == ["few-fast", "many-slow"]


def measured(name: str, flops: float, error: float | None = None, **other: float) -> Node:
    facts = Facts(measured_flops_per_cycle=flops, measured_flops_error=error, ghz_error=other.pop("ghz_error", None))
    return Node(id=name, ghz=other.pop("ghz", 3.0), ram_gb=16, facts=facts, **other)


def ranks(*nodes: Node) -> dict[str, int]:
    return {entry.node: entry.index for entry in power_index(nodes).ranked}


def test_measurements_that_are_equal_within_their_errors_are_equal() -> None:
    """Three hosts of one kind, measured on busy hosts, beside one that is half as fast."""
    equal = measured("a", 16.3), measured("b", 16.6), measured("c", 15.5)
    assert ranks(*equal, measured("d", 8.1)) == {"a": 1, "b": 1, "c": 1, "d": 2}
    (power,) = {entry.power for entry in power_index(equal).ranked}
    assert power == pytest.approx(0.8 * 4 * 3.0 * (16.3 + 16.6 + 15.5) / 3 + 0.2 * 16, rel=0.01)


def test_a_precise_measurement_counts_more_than_a_rough_one() -> None:
    precise, rough = measured("a", 16.0, 0.01), measured("c", 10.0, 0.6)
    assert ranks(precise, measured("b", 14.0, 0.01), rough) == {"a": 1, "c": 1, "b": 2}


def test_the_stored_error_decides_what_is_equal() -> None:
    assert ranks(measured("a", 16.0, 0.05), measured("b", 14.0, 0.05)) == {"a": 1, "b": 2}
    assert ranks(measured("a", 16.0, 0.10), measured("b", 14.0, 0.05)) == {"a": 1, "b": 1}


def test_a_chain_of_near_values_does_not_make_its_ends_equal() -> None:
    nodes = [measured(f"n{at}", 16.0 * 0.93**at) for at in range(8)]
    found = ranks(*nodes)
    assert found["n0"] == found["n1"]
    assert found["n0"] < found["n7"]


def test_measured_clocks_are_equal_within_their_errors_and_given_ones_never() -> None:
    near = measured("a", 16, ghz=3.00, ghz_error=0.02), measured("b", 16, ghz=3.05, ghz_error=0.02)
    assert ranks(*near) == {"a": 1, "b": 1}
    assert ranks(measured("a", 16, ghz=3.00), measured("b", 16, ghz=3.05)) == {"a": 2, "b": 1}
    assert ranks(measured("a", 16, ghz=3.00), measured("c", 16, ghz=3.04), near[1]) == {"b": 1, "c": 2, "a": 3}


def test_flops_that_are_given_differ_however_little() -> None:
    nodes = [Node(id="a", ghz=3.0, flops_per_cycle=16.0), Node(id="b", ghz=3.0, flops_per_cycle=16.3)]
    assert ranks(*nodes) == {"a": 2, "b": 1}


@given(
    st.lists(st.tuples(st.floats(0.5, 64), st.floats(0, 0.3), st.floats(0.5, 5)), min_size=1, max_size=8),
)
@example([(1.0, 0.25, 1.0), (1.0, 2.2e-311, 1.0)])
def test_ranks_of_measured_nodes_do_not_depend_on_their_order(hardware: list[tuple]) -> None:
    nodes = [
        measured(f"n{at}", flops, error, ghz=ghz, ghz_error=error) for at, (flops, error, ghz) in enumerate(hardware)
    ]
    assert power_index(nodes[::-1]) == power_index(nodes)


def test_a_node_without_a_clock_is_named_with_the_key() -> None:
    with pytest.raises(InputError, match=r"'n2'.*'ghz'") as caught:
        power_index([Node(id="n1", ghz=1, flops_per_cycle=4), Node(id="n2", flops_per_cycle=4)])
    assert caught.value.node == "n2"


def test_a_node_that_is_not_available_may_lack_everything() -> None:
    nodes = [Node(id="up", ghz=1, flops_per_cycle=4), Node(id="down", available=False)]
    assert [entry.node for entry in power_index(nodes).ranked] == ["up"]


def test_the_shipped_loopback_cluster_is_the_papers_hardware() -> None:
    cluster = cluster_from_document(read(find_inventory("loopback"))).value
    assert [node.id for node in cluster.nodes] == ["n1", "n2", "n3", "n4", "n5"]
    assert [node.address for node in cluster.nodes] == [f"127.0.0.{i}" for i in range(2, 7)]
    assert {node.slots for node in cluster.nodes} == {4}
    powers = {entry.node: entry.power for entry in power_index(cluster.nodes).ranked}
    assert list(powers.values()) == [pytest.approx(p) for p in (176.48, 167.04, 83.92, 37.44, 31.52)]
    assert list(powers) == ["n4", "n5", "n3", "n2", "n1"]


@given(
    st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 64), st.floats(0, 1024)), min_size=1, max_size=8),
    st.floats(0, 1),
    st.booleans(),
)
def test_ranks_follow_power_without_gaps(hardware: list[tuple], alpha: float, normalise: bool) -> None:
    nodes = [
        Node(id=f"n{at}", ghz=ghz, flops_per_cycle=flops, ram_gb=ram) for at, (ghz, flops, ram) in enumerate(hardware)
    ]
    ranked = power_index(nodes, alpha, normalise).ranked
    assert sorted(entry.node for entry in ranked) == sorted(node.id for node in nodes)
    assert [entry.power for entry in ranked] == sorted((entry.power for entry in ranked), reverse=True)
    distinct = sorted({entry.power for entry in ranked}, reverse=True)
    assert [entry.index for entry in ranked] == [distinct.index(entry.power) + 1 for entry in ranked]
    assert power_index(nodes[::-1], alpha, normalise) == power_index(nodes, alpha, normalise)
