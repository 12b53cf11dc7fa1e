"""Smart home: rules of the query on handwritten readings, and exact answers for any distribution of readings."""

import asyncio
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import debs2014_brute_force as brute_force
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis_examples import one_in
from scripted_cluster import ScriptedCluster
from scripted_run import Limits, run_spec

from agents.protocol import Slot
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.scripted_events import MoveExecutors, MoveRequest
from controller.simulation.virtual_loop import run_in_virtual_time
from inventory.errors import InputError
from inventory.times import NS
from workloads import columns as column_operators
from workloads.operator_state import OperatorState
from workloads.operators import Batch, Context, Operator
from workloads.smart_home.application import SmartHome
from workloads.smart_home.loads import LoadPredictor, Past
from workloads.smart_home.query import QueryParams
from workloads.workload import load_workload

B = 1377986400
LOAD, WORK = 1, 0
DAY = {"slices": 60, "day_s": 180}
Reading = tuple[int, float, int, int, int, int]
"""Seconds since B, value, property, plug, household, house."""


def write(folder: Path, readings: Sequence[Reading]) -> Path:
    path = folder / "readings.csv"
    path.write_text("".join(f"{at},{B + ts},{','.join(map(str, rest))}\n" for at, (ts, *rest) in enumerate(readings)))
    return path


def made(source: Path, **params: Any) -> SmartHome:
    workload = load_workload("smart-home", {"input": str(source), **params})
    assert isinstance(workload, SmartHome)
    return workload


def checked_reference(folder: Path, readings: Sequence[Reading], **params: Any) -> dict[str, list[tuple[Any, ...]]]:
    """Return the reference with times relative to B; check it against brute force."""
    path = write(folder, readings)
    workload = made(path, parallelism={"source": 1}, **params)
    inputs = workload.prepare(folder / "prepared")
    answer = workload.reference([inputs[0].records], inputs)
    brute_force.check_same(answer, expected(workload, path.read_bytes().splitlines()))
    return {table: sorted((row[0] - B, row[1], row[2] - B, *row[3:]) for row in rows) for table, rows in answer.items()}


def expected(workload: SmartHome, lines: Sequence[bytes]) -> dict[str, list[tuple[Any, ...]]]:
    query = workload.params
    return brute_force.answer(brute_force.valid_readings(lines)[0], query.lengths, query.day_s, query.fill)


# --- the query's rules, one by one -------------------------------------------------------------------------------


def test_a_tick_covers_readings_before_it_and_the_last_tick_follows_the_last_reading(tmp_path: Path) -> None:
    answer = checked_reference(
        tmp_path, [(0, 10, LOAD, 1, 0, 0), (30, 40, LOAD, 1, 0, 0), (59, 70, LOAD, 1, 0, 0)], slices=60
    )
    assert answer["house"] == [(30, 60, 120, 0, 10, 0), (60, 60, 120, 0, 40, 0)]


def test_a_reading_on_a_border_belongs_to_the_slice_that_begins_there(tmp_path: Path) -> None:
    answer = checked_reference(tmp_path, [(59, 10, LOAD, 1, 0, 0), (60, 30, LOAD, 1, 0, 0)], slices=60)
    assert answer["house"] == [(60, 60, 120, 0, 10, 0), (90, 60, 180, 0, 30, 0)]


def test_a_house_is_the_sum_of_its_plugs_means_and_plug_ids_repeat_across_households_and_houses(tmp_path: Path) -> None:
    readings = [(0, 10, LOAD, 1, 0, 0), (0, 20, LOAD, 1, 0, 0), (1, 100, LOAD, 1, 1, 0), (2, 7, LOAD, 1, 0, 1)]
    answer = checked_reference(tmp_path, readings, slices=60)
    assert answer["house"] == [(30, 60, 120, 0, 115, 0), (30, 60, 120, 1, 7, 0)]
    assert [row[3:] for row in answer["plug"]] == [(0, 0, 1, 15, 0), (0, 1, 1, 100, 0), (1, 0, 1, 7, 0)]


def test_all_ticks_in_a_gap_fire_and_predict_from_slices_with_a_reading_only(tmp_path: Path) -> None:
    answer = checked_reference(tmp_path, [(0, 10, LOAD, 1, 0, 0), (200, 20, LOAD, 1, 0, 0)], slices="60,120")
    ticks = [(row[0], row[1]) for row in answer["house"]]
    assert ticks == [(30, 60), (30, 120), (60, 60), (60, 120), (90, 120), (120, 120), (210, 60), (210, 120)]


def test_the_median_is_of_the_predicted_slice_on_earlier_days_and_undefined_ones_are_left_out(tmp_path: Path) -> None:
    # Slices 2, 5 and 11 have a load, 8 has none; at slice 12, slice 14 is predicted, at the same time of day.
    readings = [(120, 1, LOAD, 1, 0, 0), (300, 5, LOAD, 1, 0, 0), (660, 100, LOAD, 1, 0, 0), (720, 50, LOAD, 1, 0, 0)]
    answer = checked_reference(tmp_path, readings, **DAY)
    assert answer["house"][-1] == (750, 60, 840, 0, (50 + 5) / 2, 3)
    even = checked_reference(tmp_path, [*readings[:2], (360, 50, LOAD, 1, 0, 0)], **DAY)
    assert even["house"][-1] == (390, 60, 480, 0, (50 + 3) / 2, 2)


def test_without_history_the_prediction_is_the_load_itself(tmp_path: Path) -> None:
    answer = checked_reference(tmp_path, [(0, 10, LOAD, 1, 0, 0), (60, 30, LOAD, 2, 0, 0)], **DAY)
    assert answer["plug"][-1] == (90, 60, 180, 0, 0, 2, 30, 0)
    # The house has history: its slice 0 is a day before slice 3, which is predicted from slice 1.
    assert answer["house"][-1] == (90, 60, 180, 0, (30 + 10) / 2, 1)


def test_readings_of_work_only_advance_time(tmp_path: Path) -> None:
    answer = checked_reference(tmp_path, [(0, 10, LOAD, 1, 0, 0), (65, 1.5, WORK, 1, 0, 0)], slices=60)
    assert answer["house"] == [(30, 60, 120, 0, 10, 0), (60, 60, 120, 0, 10, 0)]


def test_work_fills_in_for_a_plug_without_load_readings(tmp_path: Path) -> None:
    readings = [
        (10, 1.000, WORK, 1, 0, 0),
        (40, 1.001, WORK, 1, 0, 0),
        (70, 1.003, WORK, 1, 0, 0),
        (70, 1.004, WORK, 1, 0, 0),
        (100, 2000, LOAD, 1, 0, 0),
    ]
    answer = checked_reference(tmp_path, readings, slices=60, fill="work")
    loads = {row[0]: row[-2] for row in answer["plug"]}
    # At 30 nothing is known; at 60 there are two readings of slice 0; at 90 the last reading of slice 0 and the later
    # one of two in a second; then a load.
    assert loads == pytest.approx({60: 0.001 * 3.6e6 / 30, 90: 0.003 * 3.6e6 / 30, 120: 2000})
    assert checked_reference(tmp_path, readings, slices=60)["plug"] == [(120, 60, 180, 0, 0, 1, 2000, 0)]


def test_a_work_counter_that_falls_was_reset_and_gives_no_load(tmp_path: Path) -> None:
    readings = [(10, 5.0, WORK, 1, 0, 0), (40, 0.001, WORK, 1, 0, 0), (130, 0.002, WORK, 1, 0, 0)]
    answer = checked_reference(tmp_path, readings, slices=60, fill="work")
    assert [(row[0], row[-2]) for row in answer["plug"]] == [(150, pytest.approx(0.001 * 3.6e6 / 90))]


def test_history_does_not_reach_before_the_first_slice(tmp_path: Path) -> None:
    answer = checked_reference(
        tmp_path, [(-60, 10, LOAD, 1, 0, 0), (0, 20, LOAD, 1, 0, 0), (60, 30, LOAD, 1, 0, 0)], **DAY
    )
    assert [row[-1] for row in answer["house"]] == [0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"day_s": 3600}, "a day of 3600 s .* has 1 slices of 3600 s, expected at least 3"),
        ({"slices": [60], "day_s": 120}, "has 2 slices of 60 s"),
        ({"slices": [300], "day_s": 1000}, "300 s is no whole part of a day of 1000 s"),
        ({"slices": [45]}, "got 45, expected a multiple of 30 s"),
        ({"slices": [0]}, "got 0, expected a multiple of 30 s"),
        ({"slices": "60;300"}, "got '60;300', expected whole seconds parted by commas"),
        ({"slices": []}, "got none, expected at least one"),
        ({"fill": "wrok"}, "work"),
        ({"parallelism": {"hose": 1}}, "did you mean 'house'"),
    ],
)
def test_invalid_parameters_are_refused(params: Mapping[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        load_workload("smart-home", params)


def test_the_topology_is_the_published_one() -> None:
    topology = load_workload("smart-home", {}).topology()
    assert len(topology.executors) == 40
    assert sum(source.parallelism * there.parallelism for source, there, _ in topology.links()) == 400


# --- bolts -------------------------------------------------------------------------------------------------------


def test_history_costs_8_bytes_per_slice() -> None:
    past = Past(100)
    for at in range(100, 1100):
        past.put(at, 1.0)
    assert len(past.values.tobytes()) == 8000
    assert len(past.every(24, 1120)) == len(range(1120 - 24, 99, -24))


def test_a_snapshot_has_the_whole_state_of_a_bolt() -> None:
    query = QueryParams(slices=(60, 90), day_s=540, fill="work")
    random = Random(7)  # noqa: S311 - it must be repeatable
    whole, moved, rows = LoadPredictor(query), LoadPredictor(query), 0
    for tick in range(1, 60):
        readings = [
            (0, 0, random.randrange(3), random.randrange(2), random.random(), B + 30 * tick - 1, rows + at)
            for at in range(3)
        ]
        rows += len(readings)
        for bolt in (whole, moved):
            bolt.process(Batch("source", "default", readings))
        restored = LoadPredictor(query)
        OperatorState(restored).restore(OperatorState(moved).snapshot())
        moved = restored
        answers = [bolt.on_tick((B + 30 * tick) * NS) for bolt in (whole, moved)]
        assert sorted(answers[0]["default"]) == sorted(answers[1]["default"])


# --- on a cluster ------------------------------------------------------------------------------------------------

NODES = ("n1", "n2", "n3")
STEPS = st.sampled_from([0, 0, 0, 1, 3, 13, 29, 30, 31, 61, 250])
NAMES = st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 2))
VALUES = st.one_of(st.integers(0, 50), st.floats(0, 3000, width=32))
READING = st.tuples(STEPS, VALUES, st.sampled_from([LOAD, LOAD, WORK]), NAMES)
READINGS = st.one_of(st.lists(READING, min_size=1, max_size=60), st.lists(READING, min_size=50, max_size=70))


class RunWithFaults:
    """Run of a workload on a scripted cluster, with kills and moves."""

    def __init__(self, workload: SmartHome, source: Path, seed: int) -> None:
        self.workload, self.random = workload, Random(seed)  # noqa: S311 - it must be repeatable
        self.inputs = workload.prepare(source.parent / "prepared")
        self.topology = workload.topology()
        self.limits = Limits(batch_rows=self.random.randint(1, 5), turn_rows=self.random.randint(1, 8))

    def operator(self, component: str) -> Operator:
        """Return an operator of the workload that opens with the prepared input."""
        operator = self.workload.operator(component)
        opened, inputs = operator.open, {entry.name: str(entry.path) for entry in self.inputs}

        def open_(context: Context) -> None:
            opened(replace(context, inputs=inputs))

        operator.open = open_  # type: ignore[method-assign]
        return operator

    def answer(self) -> tuple[dict[str, list[tuple[Any, ...]]], list[int]]:
        """Run to the end; return the answer, and the final positions of sources."""
        with self.limits.applied():
            cluster = run_in_virtual_time(self._run_cluster())
        tables: dict[str, list[tuple[Any, ...]]] = {"house": [], "plug": []}
        for part in cluster.answer():
            tables[part.table] += part.rows
        positions = cluster.coordinator.positions
        return tables, [positions[f"source[{at}]"] for at in range(self.workload.params.parallelism["source"])]

    async def _run_cluster(self) -> ScriptedCluster:
        random = self.random
        places = [Slot(random.choice(NODES), random.randrange(2)) for _ in self.topology.executors]
        names = [executor.name for executor in self.topology.executors]
        moves = [
            MoveExecutors(
                round(random.uniform(0, 0.1), 3), (MoveRequest(random.choice(names), random.choice(NODES), None),)
            )
            for _ in range(2)
        ]
        control = ControlSettings((), 0.03, tuple(sorted(moves, key=lambda plan: plan.at_s)))

        def place(lost: Set[str], _places: Mapping[str, Slot]) -> Mapping[str, Slot]:
            left = [node for node in NODES if node not in lost]
            return {name: Slot(random.choice(left), random.randrange(2)) for name in names}

        # Slow enough for kills and moves during the run.
        spec = run_spec(self.topology, places, rate={"kind": "constant", "tuples_per_s": 60})
        cluster = ScriptedCluster(spec, self.operator, self.limits, control, NODES, place)
        kills = sorted(random.uniform(0, 0.15) for _ in range(2))
        stop_ns = random.choice([random.randrange(200_000_000), 10**12])
        async with cluster.coordinator as coordinator:
            running = asyncio.create_task(self._drive(coordinator, stop_ns))
            loop = asyncio.get_running_loop()
            while not running.done():
                await asyncio.sleep(0.001)
                if kills and kills[0] <= loop.time():
                    kills.pop(0)
                    if cluster.run.workers:
                        cluster.kill_worker(random.choice(list(cluster.run.workers)))
                cluster.step(random, random.choice([0, 0, 3_000_000]))
                assert loop.time() < 600, "stuck"
            running.result()
        return cluster

    async def _drive(self, coordinator: Any, stop_ns: int) -> None:
        started = await coordinator.start()
        await coordinator.wait_until(started + stop_ns)
        await coordinator.stop()
        await coordinator.finish()


@settings(max_examples=one_in(4), suppress_health_check=list(HealthCheck))
@given(
    READINGS,
    st.sampled_from(["none", "work"]),
    st.lists(st.integers(1, 4), min_size=4, max_size=4),
    st.integers(0, 2**32),
    st.sampled_from(["rows", "columns"]),
)
def test_the_answer_is_that_of_brute_force_for_any_distribution_kills_and_moves(
    tmp_path_factory: pytest.TempPathFactory,
    readings: list[tuple[int, float, int, tuple[int, int, int]]],
    fill: str,
    tasks: list[int],
    seed: int,
    api: str,
) -> None:
    folder = tmp_path_factory.mktemp("played")
    timed, now = [], 1
    for step, value, kind, (house, household, plug) in readings:
        now += step
        timed.append((now, value, kind, plug, household, house))
    source = write(folder, timed)
    parallelism = dict(zip(("source", "house", "plug", "sink"), tasks, strict=True))
    workload = made(source, slices=[60, 120], day_s=360, fill=fill, parallelism=parallelism, api=api)
    run = RunWithFaults(workload, source, seed)
    # Without the patch, all of these small batches would be rows.
    with mock.patch.object(column_operators, "rows_below", return_value=seed % 3):
        answer, positions = run.answer()
    sources = parallelism["source"]
    lines = [
        line for at, line in enumerate(source.read_bytes().splitlines()) if at // sources < positions[at % sources]
    ]
    brute_force.check_same(answer, expected(workload, lines))
    verdict = workload.compare(answer, workload.reference(positions, run.inputs))
    assert verdict.passed, verdict.message
    assert verdict.checked == sum(map(len, answer.values()))


# --- real data ---------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_half_a_day_of_a_real_house_has_the_answer_of_brute_force(shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "debs2014" / "house0-60s-first12h.csv.gz"
    workload = made(source, slices="60,300,900", day_s=7200, parallelism={"source": 3})
    inputs = workload.prepare(tmp_path)
    assert (inputs[0].records, sum(inputs[0].quarantined.values())) == (73_974, 0)
    answer = workload.reference([24_658] * 3, inputs)
    brute_force.check_same(answer, expected(workload, brute_force.lines_of(source)))
    assert max(row[-1] for row in answer["plug"]) == 6


def test_all_houses_with_work_filled_in(shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "debs2014" / "all-houses-first10000.csv.gz"
    workload = made(source, fill="work", parallelism={"source": 1})
    inputs = workload.prepare(tmp_path)
    answer = workload.reference([inputs[0].records], inputs)
    brute_force.check_same(answer, expected(workload, brute_force.lines_of(source)))
    assert len({row[3] for row in answer["house"]}) == 40


def test_the_default_input_is_generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.smart_home.application.GENERATED_ROWS", 20_000)
    workload = load_workload("smart-home", {"parallelism": {"source": 2}})
    inputs = workload.prepare(tmp_path)
    assert inputs[0].records == 20_000
    assert workload.reference([10_000, 10_000], inputs)["plug"]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda rows: rows[1:], "is missing"),
        (lambda rows: [*rows, rows[0]], "is in the answer twice"),
        (lambda rows: [(*rows[0][:-2], rows[0][-2] + 2e-6, rows[0][-1]), *rows[1:]], "the reference has"),
        (lambda rows: [(*rows[0][:-1], rows[0][-1] + 1), *rows[1:]], "the reference has"),
    ],
)
def test_a_wrong_answer_is_found(tmp_path: Path, spoil: Any, said: str) -> None:
    workload = made(write(tmp_path, [(0, 10, LOAD, 1, 0, 0), (40, 20, LOAD, 2, 0, 0)]), parallelism={"source": 1})
    inputs = workload.prepare(tmp_path / "prepared")
    right = workload.reference([2], inputs)
    assert workload.compare(right, right).passed
    near = {table: [(*row[:-2], row[-2] + 1e-7, row[-1]) for row in rows] for table, rows in right.items()}
    assert workload.compare(near, right).passed
    verdict = workload.compare({**right, "plug": spoil(right["plug"])}, right)
    assert not verdict.passed
    assert said in verdict.message
