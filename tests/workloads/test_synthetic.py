"""Synthetic applications: outputs of a record depend on the record only, and answers are the reference."""

from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_run import Limits, run_spec, scripted_run

from agents.protocol import Slot
from inventory.errors import InputError
from workloads.operators import Batch, Context
from workloads.synthetic import operators
from workloads.synthetic.operators import KEYS, Generator, LoopSpeed, dealing, key_of, measure_loop_speed, work
from workloads.workload import check_runnable, load_workload

SMALL = {
    "linear": {"operators": 3, "tasks": 2},
    "diamond": {"operators": 3, "tasks": 2},
    "star": {"sources": 2, "sinks": 2, "source_tasks": 1, "tasks": 2},
    "random-dag": {"executors": 14, "layers": 3, "widest": 3},
}


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("linear", {"source": 8, "op1": 8, "op2": 8, "sink": 8}),
        ("diamond", {"source": 8, "middle1": 8, "middle2": 8, "middle3": 8, "sink": 8}),
        ("star", {"source1": 4, "source2": 4, "middle": 8, "sink1": 8, "sink2": 8}),
    ],
)
def test_throughput_runs_have_the_published_numbers_of_tasks(name: str, sizes: dict[str, int]) -> None:
    topology = load_workload(name, {}).topology()
    check_runnable(topology)
    assert {component.id: component.parallelism for component in topology.components} == sizes


def test_a_random_dag_is_determined_by_its_seed() -> None:
    first, again, other = (load_workload("random-dag", {"shape_seed": seed}).topology() for seed in (3, 3, 4))
    assert first == again != other
    assert len(first.executors) == 40
    groupings = {entry.grouping for component in first.components for entry in component.inputs}
    assert groupings == {"shuffle", "fields"}


@given(st.integers(2, 80), st.integers(0, 9), st.integers(1, 100), st.integers(0, 2**32))
def test_every_seed_gives_a_random_dag_of_that_size_that_can_run(
    executors: int, layers: int, widest: int, seed: int
) -> None:
    layers = 0 if layers == 1 else min(layers, executors)
    sizes = {"executors": executors, "layers": layers, "widest": widest, "shape_seed": seed}
    topology = load_workload("random-dag", sizes).topology()
    check_runnable(topology)
    assert len(topology.executors) == executors
    assert max(component.parallelism for component in topology.components) <= widest
    read = {entry.source for component in topology.components for entry in component.inputs}
    assert {component.id for component in topology.components if component.kind == "spout"} <= read
    # Components are named by layer and position.
    assert not layers or len({component.id.split("-")[0] for component in topology.components}) == layers


@given(st.text(min_size=1, max_size=8), st.floats(0.01, 5), st.integers(0, 2**40))
def test_selectivity_is_right_on_average_and_depends_on_the_record_alone(name: str, share: float, first: int) -> None:
    import numpy as np

    deals = dealing(name, share)
    records = range(first, first + 4_000)
    counts = [deals.of(record) for record in records]
    assert counts == deals.of_all(np.array(records, np.uint64)).tolist()
    assert set(counts) <= {int(share), int(share) + 1}
    assert abs(sum(counts) / len(counts) - share) < 0.06


def test_keys_are_skewed_and_cover_all_values() -> None:
    counts = Counter(key_of(record) for record in range(200_000))
    assert 0 <= min(counts) <= max(counts) < KEYS
    assert len(counts) > 0.99 * KEYS
    (_, most), *_ = counts.most_common(1)
    assert most > 200_000 / 20


@given(st.integers(1, 4), st.integers(1, 3), st.lists(st.integers(1, 50), min_size=1, max_size=5), st.data())
def test_sources_divide_the_records_and_continue_from_snapshots(
    of: int, sources: int, limits: list[int], data: st.DataObject
) -> None:
    emitted: list[int] = []
    for source in range(sources):
        for index in range(of):
            spout = Generator(source, sources, 3)
            spout.open(Context("source", index, of))
            rows = []
            for limit in limits:
                if data.draw(st.booleans()):
                    state = spout.snapshot()
                    spout = Generator(source, sources, 3)
                    spout.open(Context("source", index, of))
                    spout.restore(state)
                rows += spout.next_batch(limit)
            assert all(payload == bytes(3) and key == key_of(record) for record, key, payload in rows)
            emitted += [record for record, _, _ in rows]
    assert sorted(emitted) == list(range(sum(limits) * of * sources))


def calibration(folder: Path, turns_per_us: float) -> Path:
    path = folder / "calibration.json"
    path.write_bytes(msgspec.json.encode(LoopSpeed(turns_per_us)))
    return path


def test_the_work_for_a_row_is_the_cost_in_turns_with_no_fraction_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns_done: list[int] = []
    monkeypatch.setattr(operators, "work", turns_done.append)
    stage = operators.Stage(0.75, dealing("stage", 1.0))
    inputs = {operators.CALIBRATION: str(calibration(tmp_path, 3.0))}
    stage.open(Context("stage", 0, 1, inputs=inputs))
    for rows in (1, 1, 5, 93):
        stage.process(Batch("source", "default", [(0, 0, b"")] * rows))
    assert sum(turns_done) == 225
    assert all(turns >= 0 for turns in turns_done)


def test_work_is_repeatable_and_its_speed_is_measured() -> None:
    assert work(5) == work(5) != work(6)
    assert measure_loop_speed().turns_per_us > 0


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("selectivity", [1.0, 0.4, 1.7])
def test_the_answer_is_the_reference_on_any_number_of_executors(name: str, selectivity: float, tmp_path: Path) -> None:
    given = {**SMALL[name], "selectivity": selectivity, "cost_us": 0.0, "tuple_bytes": 5}
    workload = load_workload(name, given)
    topology = workload.topology()
    inputs = workload.prepare(tmp_path)
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
    wrong = workload.reference([positions[0] + 1, *positions[1:]], inputs)
    if selectivity >= 1:
        assert not workload.compare({operators.TABLE: rows}, wrong).passed


def test_values_together_are_checked() -> None:
    with pytest.raises(InputError, match="layers: got 9, expected at most the 4 executors"):
        load_workload("random-dag", {"executors": 4, "layers": 9})
    with pytest.raises(InputError, match=r"unknown parameter 'task'.*did you mean 'tasks'"):
        load_workload("linear", {"task": 9})
