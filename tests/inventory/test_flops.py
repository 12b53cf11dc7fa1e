"""FLOPs per cycle: four sources, one for the whole cluster; a node without it is named."""

import pytest

from inventory.cluster import Facts, Node
from inventory.errors import InputError
from inventory.power_index import SOURCES, choose_source, flops_per_cycle, isa_flops

ALL = Node(
    id="all",
    flops_per_cycle=10,
    facts=Facts(bogomips=6816, isa=("fpu", "sse2", "avx", "avx2", "fma"), measured_flops_per_cycle=15.1),
)


def test_every_source_reads_its_own_key() -> None:
    assert {source: flops_per_cycle(ALL, source) for source in SOURCES} == {
        "config": 10,
        "measured": 15.1,
        "isa": 16,
        "bogomips": 6816,
    }


@pytest.mark.parametrize(
    ("flags", "flops"),
    [
        (["sse2"], 4),
        (["sse2", "avx"], 8),
        (["sse2", "avx", "fma"], 8),
        (["sse2", "avx", "avx2"], 8),
        (["sse2", "avx", "avx2", "fma"], 16),
        (["sse2", "avx", "avx2", "fma", "avx512f"], 32),
        (["avx2", "fma", "avx512f", "avx512-one-unit"], 16),
        (["ASIMD"], 8),
        (["neon"], 8),
        (["altivec"], None),
        ([], None),
    ],
)
def test_peak_by_processor_flags(flags: list[str], flops: float | None) -> None:
    assert isa_flops(flags) == flops


def test_the_best_source_that_all_nodes_have_is_taken() -> None:
    measured = Node(id="m", facts=Facts(bogomips=5000, measured_flops_per_cycle=3))
    slow = Node(id="b", facts=Facts(bogomips=5000))
    assert choose_source([ALL]) == "config"
    assert choose_source([ALL, measured]) == "measured"
    assert choose_source([ALL, measured, slow]) == "bogomips"
    assert choose_source([ALL, Node(id="i", facts=Facts(isa=("sse2",)))]) == "isa"


@pytest.mark.parametrize(
    ("source", "key"),
    [
        ("config", "flops_per_cycle"),
        ("measured", "facts.measured_flops_per_cycle"),
        ("isa", "facts.isa"),
        ("bogomips", "facts.bogomips"),
    ],
)
def test_a_node_without_the_wanted_source_is_named_with_its_key(source: str, key: str) -> None:
    with pytest.raises(InputError, match=f"'bare'.*{key}") as caught:
        choose_source([ALL, Node(id="bare")], source)
    assert caught.value.node == "bare"


def test_unknown_processor_flags_are_answered_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"'odd'.*facts.isa; known flags: asimd, avx"):
        choose_source([Node(id="odd", facts=Facts(isa=("altivec",)))], "isa")


def test_without_any_source_the_node_and_all_keys_are_named() -> None:
    with pytest.raises(InputError, match=r"'bare'.*flops_per_cycle.*measured.*isa.*bogomips"):
        choose_source([ALL, Node(id="bare")])


def test_sources_are_never_mixed() -> None:
    mixed = [Node(id="c", flops_per_cycle=4), Node(id="m", facts=Facts(measured_flops_per_cycle=4))]
    with pytest.raises(InputError, match=r"common to all nodes.*'m'"):
        choose_source(mixed)
