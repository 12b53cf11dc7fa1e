"""Load documents: refused values, figures of a run, and settings of a replay."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.load import (
    ComponentTotals,
    checked_load,
    load_document,
    replay_settings,
    replayed,
    run_load_document,
    streams_read,
)
from engines.replay import EXAMPLE, ReplayParams, ReplayWorkload
from inventory.documents import Document, to_plain
from inventory.errors import InputError
from workloads.topology import Component, Input, Topology


def changed(*path: str | int, value: Any) -> dict[str, Any]:
    """Return the example with another value at a path; None removes it."""
    plain = to_plain(EXAMPLE)
    parent = plain
    for step in path[:-1]:
        parent = parent[step]
    if value is None:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return plain


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("components", "splt"), {"operations": 1}, "components.splt: the topology has no component 'splt'.*'split'"),
        (("components", "count"), None, "components: the load of the component 'count' is missing"),
        (("components", "split", "operations"), -1, "components.split.operations: .*-1"),
        (("components", "split", "operatons"), 1, "operatons.*did you mean 'operations'"),
        (("components", "split", "outputs", "deflt"), {"selectivity": 1}, "nobody reads the stream 'deflt'.*'default'"),
        (("components", "split", "outputs"), {}, "components.split: the stream 'default' is read, and 'outputs' lacks"),
        (("components", "split", "outputs", "default", "keys"), [0.0, 0.0], "keys: all shares are 0"),
        (("components", "count", "outputs"), {"default": {"selectivity": 1}}, "nobody reads the stream 'default'"),
        (("topology", "components", 1, "inputs", 0, "grouping"), "direct", "grouping: 'direct' cannot be replayed"),
        (("topology", "components", 1, "inputs", 0, "from"), "spot", "unknown component 'spot'.*'spout'"),
        (("operation_ns",), 0, "operation_ns: "),
    ],
)
def test_a_wrong_document_is_refused_with_key_and_choice(path: tuple[str | int, ...], value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_document(Document("load.json", changed(*path, value=value)))


def test_a_stream_whose_bytes_are_not_known_cannot_be_replayed() -> None:
    plain = changed("components", "split", "outputs", "default", "bytes", value=None)
    with pytest.raises(InputError, match=r"components.split.outputs.default.bytes: not known"):
        replay_settings(load_document(Document("load.json", plain)).value)


TOPOLOGY = Topology(
    "fan",
    (
        Component("source", "spout", 2, outputs={"default": {"a": "int"}}),
        Component(
            "middle", "bolt", 2, outputs={"default": {"b": "int"}, "side": {"c": "str"}}, inputs=(Input("source"),)
        ),
        Component("every", "bolt", 3, inputs=(Input("middle", "all"),)),
        Component("keyed", "bolt", 4, inputs=(Input("middle", "fields", ("c",), "side"), Input("middle", "shuffle"))),
        Component("__acker", "bolt", 1),
    ),
)

counts = st.floats(min_value=1e3, max_value=1e6)


@given(counts, counts, counts, st.lists(counts, min_size=4, max_size=4))
def test_figures_of_a_run_are_ratios_of_its_totals(rows: float, sent: float, cpu_ns: float, keys: list[float]) -> None:
    totals = {
        "source": ComponentTotals(rows, cpu_ns, {"default": rows}),
        "middle": ComponentTotals(
            rows, cpu_ns, {"default": sent, "side": rows}, {"side": 10.0}, {"side": 255.0}, {"side": tuple(keys)}
        ),
        "every": ComponentTotals(rows, cpu_ns),
        "keyed": ComponentTotals(rows, cpu_ns),
    }
    load = checked_load(run_load_document("a run", TOPOLOGY, totals, 10.0, 2.0), "a run")
    middle = load.components["middle"]
    assert middle.operations == pytest.approx(cpu_ns / rows / 2.0, abs=0.06)
    assert middle.outputs["default"].selectivity == pytest.approx(sent / rows, abs=1e-4)
    assert middle.outputs["default"].bytes is None
    assert middle.outputs["side"].bytes == 25.5
    assert middle.outputs["side"].keys == pytest.approx([each / sum(keys) for each in keys], abs=1e-6)
    assert load.components["source"].rows_per_s == pytest.approx(rows / 10, abs=1e-3)
    assert "__acker" not in load.components


def test_a_component_that_has_processed_nothing_has_no_load() -> None:
    with pytest.raises(InputError, match="'middle' has processed nothing"):
        run_load_document("a run", TOPOLOGY, {"source": ComponentTotals(1.0, 1.0, {"default": 1.0})}, 1.0, 1.0)


def test_a_replayed_topology_has_the_graph_of_the_document_and_rows_of_key_and_payload() -> None:
    topology = replayed(EXAMPLE)
    assert [(c.id, c.parallelism) for c in topology.components] == [("spout", 2), ("split", 4), ("count", 4)]
    assert topology.component["count"].inputs[0].fields == ("key",)
    assert streams_read(topology, "split") == ["default"]
    assert topology.component["count"].outputs is None


def test_on_agents_a_replay_has_the_graph_and_the_cpu_time_of_the_document() -> None:
    workload = ReplayWorkload(ReplayParams())
    split = workload._synthetic.params.components["split"]
    assert [(c.id, c.parallelism) for c in workload.topology().components] == [("spout", 2), ("split", 4), ("count", 4)]
    assert split.cost_us == pytest.approx(EXAMPLE.components["split"].operations * EXAMPLE.operation_ns / 1e3)
    assert (split.selectivity, split.tuple_bytes) == (7.0, 16)


def test_a_second_stream_is_refused_before_anything_runs() -> None:
    load = {"default": {"selectivity": 1.0, "bytes": 8.0}, "late": {"selectivity": 1.0, "bytes": 8.0}}
    plain = changed("components", "split", "outputs", value=load)
    plain["topology"]["components"][2]["inputs"] += ({"from": "split", "stream": "late", "grouping": "shuffle"},)
    document = load_document(Document("load.json", plain)).value
    with pytest.raises(InputError, match=r"'split' has the stream 'late', expected 'default' only"):
        ReplayParams(document)
