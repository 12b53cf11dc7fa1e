"""A topology file as a workload: its graph and demands are kept, and its answer is the reference."""

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_run import Limits, run_spec, scripted_run

from agents.protocol import Slot
from inventory.documents import to_plain
from inventory.errors import InputError
from inventory.plugins import as_plain
from workloads.arrays import batch_of
from workloads.columns import ColumnBatch, ColumnBolt
from workloads.synthetic import operators
from workloads.synthetic.operators import Generator
from workloads.workload import Workload, load_workload

FILE = """
id: mine
workers: 3
priority: 3
worker_max_heap_mb: 512
constraints: {max_per_node: {wide: 2}}
components:
  - {id: in, kind: spout, parallelism: 2, cpu: 30}
  - {id: wide, kind: bolt, parallelism: 5, onheap_mb: 64, inputs: [{from: in, grouping: fields, fields: [user, page]}]}
  - {id: out, kind: bolt, inputs: [{from: wide, grouping: global}]}
  - {id: __acker, kind: bolt, parallelism: 2}
"""


def file_of(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text)
    return str(path)


def check_answer(workload: Workload, folder: Path) -> None:
    """Compare the answer of a scripted run with the reference, and with a wrong one."""
    topology = workload.topology()
    inputs = workload.prepare(folder)
    places = [Slot(f"n{at % 3}", at % 2) for at in range(len(topology.executors))]
    paths = {entry.name: str(entry.path) for entry in inputs}
    with scripted_run(run_spec(topology, places), workload.operator, Limits(turn_rows=40), inputs=paths) as run:
        for at in range(60):
            run.act(at * 7919)
        for worker in run.workers.values():
            for spout in worker.registry.spouts:
                spout.stop()
        run.run([], 1)
        positions = [spout.position for spout in sorted(run.spouts, key=lambda spout: spout.number)]
        rows = run.answer(operators.TABLE)
    assert sum(positions) > 0
    verdict = workload.compare({operators.TABLE: rows}, workload.reference(positions, inputs))
    assert verdict.passed, verdict.message
    other = workload.reference([positions[0] + 50, *positions[1:]], inputs)
    assert not workload.compare({operators.TABLE: rows}, other).passed


def test_the_file_gives_graph_demands_and_constraints(tmp_path: Path) -> None:
    topology = load_workload("from-topology", {"topology_file": file_of(tmp_path, FILE)}).topology()
    assert {c.id: c.parallelism for c in topology.components} == {"in": 2, "wide": 5, "out": 1, "__acker": 2}
    assert [topology.component[name].cpu_points for name in ("in", "wide")] == [30, 10]
    assert topology.component["wide"].onheap == 64
    assert (topology.id, topology.workers, topology.priority, topology.worker_max_heap_mb) == ("mine", 3, 3, 512)
    assert topology.constraints is not None
    assert topology.constraints.max_per_node == {"wide": 2}
    assert topology.component["wide"].inputs[0].fields == ("key",)


def test_nodes_get_the_content_and_do_not_read_the_file(tmp_path: Path) -> None:
    file = file_of(tmp_path, FILE)
    workload = load_workload("from-topology", {"topology_file": file, "components": {"wide": {"cost_us": 3}}})
    Path(file).unlink()
    again = load_workload("from-topology", as_plain(workload.params))
    assert again.topology() == workload.topology()
    assert as_plain(again.params) == as_plain(workload.params)


def test_the_default_topology_can_be_used() -> None:
    topology = load_workload("from-topology", {}).topology()
    assert len(topology.executors) == 32


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, Any]:
    """Draw graphs whose bolts read one or two earlier components, with any grouping."""
    size = st.integers(1, 3)
    components: list[dict[str, Any]] = [{"id": "c0", "kind": "spout", "parallelism": draw(size)}]
    for at in range(1, draw(st.integers(2, 5))):
        sources = draw(st.lists(st.integers(max(0, at - 2), at - 1), min_size=1, max_size=2, unique=True))
        inputs = []
        for source in {at - 1, *sources}:
            grouping = draw(st.sampled_from(["shuffle", "fields", "global", "all", "local-or-shuffle"]))
            fields = {"fields": ["any"]} if grouping == "fields" else {}
            inputs.append({"from": f"c{source}", "grouping": grouping, **fields})
        components.append({"id": f"c{at}", "kind": "bolt", "parallelism": draw(size), "inputs": inputs})
    return {"id": "drawn", "components": components}


@settings(max_examples=12, deadline=None)
@given(graphs(), st.sampled_from([0.4, 1.0, 1.7]), st.sampled_from([None, 0, 70]))
def test_the_answer_is_the_reference_of_any_graph(
    tmp_path_factory: pytest.TempPathFactory, graph: dict[str, Any], selectivity: float, payload: int | None
) -> None:
    components = {"c1": {"selectivity": selectivity, "tuple_bytes": payload}} if len(graph["components"]) > 2 else {}
    params = {"topology_file": graph, "components": components, "cost_us": 0.0, "tuple_bytes": 5}
    check_answer(load_workload("from-topology", params), tmp_path_factory.mktemp("inputs"))


def test_components_can_have_their_own_costs_sizes_and_selectivities(tmp_path: Path) -> None:
    loads = {"in": {"tuple_bytes": 7}, "wide": {"selectivity": 2, "tuple_bytes": 9}, "out": {"cost_us": 0}}
    params = {"topology_file": file_of(tmp_path, FILE), "components": loads, "cost_us": 1, "tuple_bytes": 3}
    workload = load_workload("from-topology", params)
    source = workload.operator("in")
    assert isinstance(source, Generator)
    source.open(operators.Context("in", 0, 2))
    assert {len(payload) for *_, payload in source.next_batch(3)} == {7}
    inputs = {entry.name: str(entry.path) for entry in workload.prepare(tmp_path)}
    wide = workload.operator("wide")
    assert isinstance(wide, operators.Stage)
    wide.open(operators.Context("wide", 0, 5, inputs=inputs))
    emitted = wide.process(operators.Batch("in", "default", [(1, 2, b"1234567"), (3, 4, b"1234567")]))
    assert [(record, len(payload)) for record, _, payload in emitted["default"]] == [(1, 9), (1, 9), (3, 9), (3, 9)]


@pytest.mark.parametrize("api", ["rows", "columns"])
def test_a_large_payload_of_a_bolt_is_not_copied_for_every_row(tmp_path: Path, api: str) -> None:
    params = {
        "topology_file": file_of(tmp_path, FILE),
        "components": {"wide": {"tuple_bytes": 100_000}},
        "cost_us": 0.0,
        "api": api,
    }
    workload = load_workload("from-topology", params)
    wide = workload.operator("wide")
    assert isinstance(wide, operators.Stage)
    wide.open(operators.Context("wide", 0, 5, inputs={e.name: str(e.path) for e in workload.prepare(tmp_path)}))
    rows = [(at, at, b"") for at in range(600)]
    tracemalloc.start()
    if isinstance(wide, ColumnBolt):
        wide.process_columns(ColumnBatch("in", "default", batch_of(operators.ROW, rows)))
    else:
        wide.process(operators.Batch("in", "default", rows))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


IN = {"id": "in", "kind": "spout"}
OUT = {"id": "out", "kind": "bolt", "inputs": [{"from": "in"}]}


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"topology_file": "/nowhere/t.yaml"}, "/nowhere/t.yaml"),
        ({"topology_file": {"id": "t", "components": [IN]}}, "spout 'in': no bolt receives its tuples"),
        (
            {
                "topology_file": {
                    "id": "t",
                    "components": [IN, {**OUT, "inputs": [{"from": "in", "grouping": "direct"}]}],
                }
            },
            "bolt 'out': generated rows name no executor, so the grouping 'direct' cannot be used",
        ),
        (
            {"topology_file": {"id": "t", "components": [IN, {**OUT, "inputs": [{"from": "in", "stream": "late"}]}]}},
            "bolt 'out': its input has the stream 'late', expected 'default'",
        ),
        ({"topology_file": {"id": "t", "components": [IN, OUT]}, "components": {"ot": {}}}, "'ot'; did you mean 'out'"),
        ({"components": {"spout": {"cost_us": 1}}}, "components.spout: a spout has 'tuple_bytes' only"),
        ({"components": {"count": {"selectivity": 2}}}, "components.count: a sink has 'cost_us' only"),
        ({"components": {"split": {"selectivity": 0}}}, "selectivity"),
        ({"components": {"split": {"cost": 1}}}, "cost"),
        ({"topology_file": {"id": "t", "components": [IN, {**OUT, "inputs": [{"from": "inn"}]}]}}, "inn"),
    ],
)
def test_unsupported_topologies_and_parameters_are_refused_with_the_reason(
    params: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        load_workload("from-topology", params)


def test_the_topology_of_the_workload_is_a_valid_topology_file() -> None:
    topology = load_workload("from-topology", {}).topology()
    assert load_workload("from-topology", {"topology_file": to_plain(topology)}).topology() == topology
