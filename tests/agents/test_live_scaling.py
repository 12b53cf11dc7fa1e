"""Components that are scaled at a barrier while the topology runs: the answer is right, and nothing else changes."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_scaling_run import LIMITS, TEXT, LiveScalingRun, wordcount
from scripted_run import scripted_run
from scripted_workload import with_inputs

from agents.protocol import (
    Abandon,
    Division,
    Prepare,
)
from agents.worker.process.metrics_reporter import MetricsReporter
from agents.worker.task_graph.redistribution import state_sources
from controller.coordinator.interfaces import Scaling
from controller.coordinator.scaling import rescaled_live
from workloads.data.text import LineSpout
from workloads.key_groups import KEY_GROUPS, first_owners, owner_runs, rebalanced
from workloads.operators import Spout
from workloads.workload import load_workload


@pytest.mark.parametrize("combine", [False, True])
def test_words_are_counted_exactly_by_four_then_five_then_four_executors(tmp_path: Path, combine: bool) -> None:
    for seed in range(3):
        scaled = LiveScalingRun(wordcount(tmp_path, combine=combine), tmp_path / f"inputs{seed}", seed)
        with scripted_run(scaled.spec, with_inputs(scaled.workload, scaled.inputs), LIMITS) as run:
            for barrier, size in enumerate((5, 4), 1):
                scaled.sweep(run, scaled.random.randint(0, 30))
                scaled.scale(run, barrier, {"count": size})
            scaled.sweep(run, 20)
            verdict = scaled.verdict(run)
        assert verdict.passed, (seed, verdict.message)
        assert verdict.checked > 10


@pytest.mark.parametrize("name", ["wordcount", "top-n"])
def test_two_then_three_then_one_source_emit_every_record_once(tmp_path: Path, name: str) -> None:
    for seed in range(4):
        workload = wordcount(tmp_path)
        (tmp_path / "text.txt").write_text(TEXT * 20)  # so that no input ends
        if name == "top-n":
            text, windows = str(tmp_path / "text.txt"), {"n": 3, "window_s": 0.3, "slide_s": 0.1, "words_per_s": 100}
            workload = load_workload(name, {"text": text, "ackers": 0, "parallelism": {"read": 2}, **windows})
        source = next(c.id for c in workload.topology().components if c.kind == "spout")
        scaled = LiveScalingRun(workload, tmp_path / f"inputs{seed}", seed)
        with scripted_run(scaled.spec, with_inputs(workload, scaled.inputs), LIMITS) as run:
            for barrier, size in enumerate((3, 1), 1):
                scaled.sweep(run, scaled.random.randint(0, 12))
                others = {"count": 5 - barrier} if scaled.random.random() < 0.5 else {}
                scaled.scale(run, barrier, {source: size, **others})
            scaled.sweep(run, 20)
            verdict = scaled.verdict(run)
            emitted = sum(running.worked.emitted for running in run.spouts)
        assert verdict.passed, (seed, verdict.message)
        sources = {report.executor: report.source for report in scaled.reports if source in report.executor}
        assert sources == {f"{source}[{at}]": f"{source}[{at % 2}]" if at < 2 else f"{source}[0]" for at in range(3)}
        assert emitted > 0


def test_an_abandoned_scaling_leaves_everything_as_it_was_and_the_rows_go_on(tmp_path: Path) -> None:
    scaled = LiveScalingRun(wordcount(tmp_path), tmp_path / "inputs", 1)
    with scripted_run(scaled.spec, with_inputs(scaled.workload, scaled.inputs), LIMITS) as run:
        for barrier in (1, 2):
            scaled.sweep(run, 5)
            before = {name: id(running) for name, running in run.executors.items()}
            channels = {key: id(end) for key, end, _ in run.channels()}
            scaled.scale(run, barrier, {"count": 5, "split": 1, "spout": 3}, abandon=True)
            assert {name: id(running) for name, running in run.executors.items()} == before
            assert {key: id(end) for key, end, _ in run.channels()} == channels
        scaled.scale(run, 3, {"count": 1, "split": 3})
        verdict = scaled.verdict(run)
    assert verdict.passed, verdict.message


def test_executors_report_the_source_and_size_of_the_state_that_they_take_over(tmp_path: Path) -> None:
    scaled = LiveScalingRun(wordcount(tmp_path), tmp_path / "inputs", 1)
    with scripted_run(scaled.spec, with_inputs(scaled.workload, scaled.inputs), LIMITS) as run:
        scaled.sweep(run, 10)
        before = {name: getattr(running, "worked", None) for name, running in run.executors.items()}
        scaled.scale(run, 1, {"count": 5})
        assert {report.executor: report.source for report in scaled.reports} == {
            **{f"count[{at}]": f"count[{at}]" for at in range(4)},
            "count[4]": "count[0]",
        }
        assert all(report.state_bytes > 0 for report in scaled.reports)
        assert any(before.values())
        assert scaled.verdict(run).passed


def test_records_that_scaled_sources_had_emitted_before_a_recovery_remain_replays(tmp_path: Path) -> None:
    scaled = LiveScalingRun(wordcount(tmp_path), tmp_path / "inputs", 1)
    with scripted_run(scaled.spec, with_inputs(scaled.workload, scaled.inputs), LIMITS) as run:
        scaled.sweep(run, 5)
        before = list(run.spouts)
        before[0].seen = before[0].position + 500
        scaled.scale(run, 1, {"spout": 3})
        assert before[1].position > before[1].seen
        assert len(run.spouts) == 3
        assert sum(each.seen for each in run.spouts) == before[0].seen + before[1].position
        assert scaled.verdict(run).passed


def test_a_spout_without_seek_cannot_be_scaled(tmp_path: Path) -> None:
    class Fixed(Spout):
        def __init__(self) -> None:
            self._lines = LineSpout()
            self.open, self.next_batch = self._lines.open, self._lines.next_batch  # type: ignore[method-assign]

    workload = wordcount(tmp_path)
    original = workload.operator
    workload.operator = lambda name: Fixed() if name == "spout" else original(name)  # type: ignore[method-assign]
    scaled = LiveScalingRun(workload, tmp_path / "inputs", 1)
    after = rescaled_live(scaled.spec, Scaling({"spout": 1}))
    with scripted_run(scaled.spec, with_inputs(scaled.workload, scaled.inputs), LIMITS) as run:
        channels = {key: id(end) for key, end, _ in run.channels()}
        for place in run.workers:
            run.command(place, Prepare(epoch=1, barrier=1, store=True, scaled=after, workers=after.workers))
        refused = {report.refused for report in scaled.ready(run)} - {""}
        (reason,) = refused
        assert reason == "the number of executors of spout cannot change: its spout has no seek()"
        for place in run.workers:
            run.command(place, Abandon(epoch=1, barrier=1))
        assert {key: id(end) for key, end, _ in run.channels()} == channels
        assert scaled.verdict(run).passed


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 12))
def test_every_group_comes_from_its_last_owner_and_nothing_is_lost(first: int, before: int, after: int) -> None:
    old = rebalanced(first_owners(first), before)
    new = rebalanced(old, after)
    keyed = state_sources(Division(before, owner_runs(old)), Division(after, owner_runs(new)), is_keyed=True)
    assert {(old[group], new[group]) for group in range(KEY_GROUPS)} == {
        (source, at) for at, sources in enumerate(keyed) for source in sources
    }
    # Executors that stay keep state of their own.
    assert all(at in keyed[at] for at in range(min(before, after)))
    whole = state_sources(Division(before), Division(after), is_keyed=False)
    assert len(whole) == after
    assert all(whole)
    assert {source for sources in whole for source in sources} == set(range(before))
    staying = range(min(before, after))
    assert [whole[at][0] for at in staying] == list(staying)


def test_work_before_and_behind_the_barrier_is_in_one_row_and_all_of_it_is_reported(tmp_path: Path) -> None:
    class Rows:
        def __init__(self) -> None:
            self.rows: list[tuple[Any, ...]] = []

        def add(self, *row: Any) -> None:
            self.rows.append(row)

    scaled = LiveScalingRun(wordcount(tmp_path), tmp_path / "inputs", 3)
    with scripted_run(scaled.spec, with_inputs(scaled.workload, scaled.inputs), LIMITS) as run:
        traces = {place: Rows() for place in run.workers}
        reporters = {
            place: MetricsReporter(worker.tasks, traces[place], place.index)  # type: ignore[arg-type]
            for place, worker in run.workers.items()
        }
        for barrier, size in ((1, 5), (2, 2), (3, 4)):
            scaled.sweep(run, 5)
            for place in run.workers:
                reporters[place].report(barrier)
            scaled.sweep(run, 3)
            scaled.scale(run, barrier, {"count": size})
        scaled.sweep(run, 5)
        for place in run.workers:
            reporters[place].report(4)
        processed = {name: running.worked.processed for name, running in run.executors.items() if "count" in name}  # type: ignore[attr-defined]
        emitted = sum(running.meter.emitted for name, running in run.executors.items() if "split" in name)
        worked = [row for each in traces.values() for row in each.rows if row[0] == "throughput"]
        keys = [(place, *row[1:3]) for place, each in traces.items() for row in each.rows if row[0] == "throughput"]
        assert len(keys) == len(set(keys))
        channels = [row for each in traces.values() for row in each.rows if row[0] == "channel"]
        sent = sum(row[7] for row in channels if "count" in row[3])
        counted = sum(row[6] for row in worked if row[3] == "count")
        assert all(row[5] >= 0 and row[6] >= 0 for row in worked)
        queued = sum(running.inputs.rows for name, running in run.executors.items() if "count" in name)  # type: ignore[attr-defined]
        assert 0 < sum(processed.values()) <= counted
        on_the_way = sum(map(len, run.pipes.values()))
        assert counted + queued <= sent
        assert on_the_way or counted + queued == sent
        assert sent <= emitted
        assert scaled.verdict(run).passed
