"""Scaling of sources, also while workers are killed."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from scripted_workload import run_with_faults
from simulated_runs import MID, FakeNodes, run_coordinator, spec_of

from agents.collected_traces import UnreportedRows
from agents.protocol import Cut, Go, Prepare, Progress, Start, Stored, Work, Worked
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.epoch_workers import executor_name
from controller.coordinator.interfaces import RestartRules, Scaling
from controller.coordinator.reports import ReportedWork, SourcePositions
from controller.coordinator.scaling import rescaled_live, undo_scaling
from controller.coordinator.scripted_events import ScaleComponents
from controller.coordinator.timeline import RETRY_S
from inventory.errors import RunError
from workloads.workload import load_workload

AT_S = 3.0
TEXT = "call me ishmael some years ago never mind how long precisely having little or no money in my purse\n" * 9
RATE = {"kind": "constant", "tuples_per_s": 300.0}


def settings(*sizes: int, restart: RestartRules | None = None) -> ControlSettings:
    events = tuple(ScaleComponents(AT_S * at, ("src",), size) for at, size in enumerate(sizes, 1))
    return ControlSettings(checkpoint_s=2, events=events, restart=restart)


def restarting(*sizes: int) -> ControlSettings:
    return settings(*sizes, restart=RestartRules())


def report(epoch: int, position: int, number: int = 0) -> Progress:
    work = Work(emitted=position, processed=None, queued=None, busy_ns=0, blocked_ns=0, position=position)
    return Progress(epoch=epoch, slot=0, at_ns=0, emitted=0, sunk=0, executors={"src[0]": work}, sources_from=number)


def scaled_at(nodes: FakeNodes) -> Prepare:
    """Return the Prepare of the first scaling, for which sources halt and nothing is stored."""
    prepare: Prepare = next(message for message in nodes.messages(Prepare, "n1") if message.scaled is not None)
    assert prepare.halt
    assert not prepare.store
    return prepare


def test_live_scaled_sources_continue_after_the_highest_record_of_all() -> None:
    async def report_on_both_sides(nodes: FakeNodes) -> None:
        nodes.model.records = 100
        while not any(message.scaled is not None for message in nodes.messages(Prepare)):
            await asyncio.sleep(0.001)
        nodes.unanswered.add(Cut)
        await asyncio.sleep(0.5)
        coordinator = nodes.coordinator
        coordinator.handle_report("n1", report(1, 99))
        assert coordinator._reported.sources.positions["src[0]"] == 100  # of the previous checkpoint
        # Reports of a new and of an old executor, before all workers have passed the barrier.
        number = min(scaled_at(nodes).scaled.numbers[:2])  # type: ignore[union-attr]
        coordinator.handle_report("n1", report(1, 57, number))
        coordinator.handle_report("n1", report(1, 101))
        assert coordinator._reported.sources.positions == {"src[0]": 101}
        nodes.unanswered.clear()
        cut = nodes.messages(Cut, "n1")[-1]
        for node in ("n1", "n2", "n3"):
            nodes.handle(node, cut)
        nodes.model.position = 60
        await asyncio.sleep(0.5)
        coordinator.handle_report("n1", report(1, 4000))  # late report of an old executor
        assert coordinator._reported.sources.positions == {"src[0]": 60, "src[1]": 60}

    nodes = run_coordinator(lambda: FakeNodes(settings(2)), 9, report_on_both_sides)
    assert nodes.epoch == 1
    (scaling,) = nodes.coordinator.event_log.scalings
    assert (scaling.component, scaling.how, scaling.before, scaling.after) == ("src", "live", 1, 2)
    assert [cut.records for cut in nodes.messages(Cut, "n1") if cut.barrier == scaled_at(nodes).barrier] == [100]
    assert nodes.coordinator.positions == {"src[0]": 60, "src[1]": 60}


@pytest.mark.parametrize(
    "dies",
    ["a worker", "a worker twice", "an agent, which is away for longer than between two tries to scale"],
)
def test_a_scaling_of_sources_that_no_checkpoint_follows_is_undone_by_a_recovery_and_made_again(dies: str) -> None:
    async def kill(nodes: FakeNodes) -> None:
        nodes.model.records = 100
        while not any(message.scaled is not None for message in nodes.messages(Prepare)):
            await asyncio.sleep(0.001)
        nodes.unanswered.add(Stored)
        while nodes.messages(Prepare, "n1")[-1].barrier == scaled_at(nodes).barrier:
            await asyncio.sleep(0.001)
        nodes.unanswered.add(Cut)
        await asyncio.sleep(0.2)
        coordinator = nodes.coordinator
        assert len(coordinator._epoch_workers.spouts) == 3
        assert not coordinator.event_log.scalings
        number = coordinator._epoch_workers.spec.numbers[0]
        coordinator.handle_report("n1", report(1, 41, number))
        if dies.startswith("a worker"):
            nodes.kill_worker(MID)
        else:
            nodes.restart_s = 3 * RETRY_S
            nodes.kill_agent(MID.node)
        while nodes.epoch == 1:
            await asyncio.sleep(0.001)
        if dies == "a worker twice":
            nodes.kill_worker(MID)
            while nodes.epoch == 2:
                await asyncio.sleep(0.001)
        coordinator.handle_report("n1", report(1, 70, number))  # late
        nodes.unanswered.clear()

    nodes = run_coordinator(lambda: FakeNodes(settings(3)), 14, kill)
    second = nodes.messages(Start, "n1")[1].spec
    assert [executor_name(executor) for executor in second.executors] == ["src[0]", "mid[0]", "sink[0]"]
    assert (second.restore, dict(second.stored), second.numbers) == (scaled_at(nodes).barrier - 1, {}, ())
    assert [start.spec.epoch for start in nodes.messages(Start, "n1")] == list(range(1, nodes.epoch + 1))
    # The three executors share the 100 records of the checkpoint; one of them has emitted 7 more than its share.
    assert nodes.messages(Go, "n1")[-1].seen == {"src[0]": 107}
    (scaling,) = nodes.coordinator.event_log.scalings
    assert (scaling.how, scaling.before, scaling.after) == ("live", 1, 3)
    assert nodes.coordinator.positions.keys() == {"src[0]", "src[1]", "src[2]"}


def test_work_of_executors_removed_by_a_recovery_is_repeated_by_others() -> None:
    before = spec_of({"src[0]": MID, "mid[0]": MID, "mid[1]": MID})
    after = rescaled_live(before, Scaling({"src": 2, "mid": 3}, {"src[1]": MID, "mid[2]": MID}))
    reported = ReportedWork()
    works = {f"mid[{at}]": Work(20 * at, 10 * at, 0, 0, 0) for at in (1, 2)}
    reported.record("n1", Progress(epoch=1, slot=0, at_ns=0, emitted=0, sunk=0, executors=works))
    undo_scaling(before, after, reported)
    assert reported.bolts.worked == {"mid[0]": Worked(20, 10), "mid[1]": Worked(40, 20)}
    assert reported.sources.positions == {"src[0]": 0}


def test_rows_after_the_last_report_before_a_scaling_is_undone_do_not_count() -> None:
    before = spec_of({"src[0]": MID})
    after = rescaled_live(before, Scaling({"src": 2}, {"src[1]": MID}))
    reported = ReportedWork()
    reported.share_anew((1, min(after.numbers)), ["src[0]", "src[1]"])
    reported.record("n1", replace(report(1, 41, min(after.numbers)), at_ns=5))
    undo_scaling(before, after, reported)
    reported.record("n1", replace(report(1, 70, min(after.numbers)), at_ns=9))
    reported.times.start_epoch(2, [], {"n1": 100})
    assert reported.counted.positions == reported.sources.positions == {"src[0]": 41}
    assert reported.times.unreported == [UnreportedRows("n1", 0, 5, 100)]


def test_sources_scaled_by_a_restart_continue_after_the_highest_record_of_all() -> None:
    async def late(nodes: FakeNodes) -> None:
        nodes.model.records = 100
        await asyncio.sleep(AT_S + 1.5)
        assert nodes.epoch == 2
        nodes.coordinator.handle_report("n1", report(1, 99))
        nodes.model.position = 40

    nodes = run_coordinator(lambda: FakeNodes(restarting(3)), 9, late)
    (scaling,) = nodes.coordinator.event_log.scalings
    assert (scaling.component, scaling.how, scaling.before, scaling.after) == ("src", "restart", 1, 3)
    cuts = {cut.records for cut in nodes.messages(Cut, "n1") if cut.epoch == 1}
    assert cuts == {0, 100}
    assert {cut.records for cut in nodes.messages(Cut, "n1") if cut.epoch == 2} == {0}
    assert [go.seen for go in nodes.messages(Go, "n1")] == [{}, {"src[0]": 34, "src[1]": 33, "src[2]": 33}]
    assert nodes.coordinator.positions == {"src[0]": 40, "src[1]": 40, "src[2]": 40}


@pytest.mark.parametrize("settings_of", [settings, restarting])
def test_sources_whose_input_has_ended_keep_their_number(settings_of: Callable[[int], ControlSettings]) -> None:
    async def end(nodes: FakeNodes) -> None:
        nodes.model.records = None
        await asyncio.sleep(0)

    nodes = run_coordinator(lambda: FakeNodes(settings_of(3)), 6, end)
    assert nodes.coordinator.event_log.scalings == []
    assert len(nodes.messages(Start, "n1")) == 1
    assert "the input of sources has ended: " in nodes.events_of("timeline_scale_failed")[0][1]


def test_a_failure_in_the_restart_of_a_scaling_is_recovered_from_with_the_new_number() -> None:
    async def kill(nodes: FakeNodes) -> None:
        nodes.unanswered.add(Go)
        while nodes.epoch == 1:
            await asyncio.sleep(0.001)
        nodes.kill_worker(MID)

    nodes = run_coordinator(lambda: FakeNodes(restarting(3)), 9, kill)
    second, third = [message.spec for message in nodes.messages(Start, "n1")][1:]
    assert (second.restore, second.stored) == (third.restore, third.stored)
    assert [len(spec.executors) for spec in (second, third)] == [5, 5]
    assert nodes.messages(Go, "n1")[-1].seen == {"src[0]": 34, "src[1]": 33, "src[2]": 33}


def test_reports_of_earlier_epochs_are_ignored_after_a_scaling_of_sources() -> None:
    positions = SourcePositions()
    positions.record_report(report(1, 70))
    positions.rescale(2, {"count": 5}, {"src[0]": 80})
    positions.record_report(report(1, 80))
    assert positions.positions == {"src[0]": 80}
    positions.rescale(2, {"src": 2, "count": 5}, {"src[0]": 81})
    positions.record_report(report(1, 81))
    assert positions.positions == {"src[0]": 41, "src[1]": 40}
    positions.record_report(report(2, 50))
    assert positions.positions == {"src[0]": 50, "src[1]": 40}
    with pytest.raises(RunError, match="sources at 50, 40 have not emitted the first 90 records"):
        positions.rescale(3, {"src": 3}, positions.positions)


def run_seeds(folder: Path, name: str, seeds: range, gated: bool = False) -> Counter[str]:
    (folder / "text.txt").write_text(TEXT)
    text = {"text": str(folder / "text.txt"), "ackers": 0}
    sizes, source = ({"spout": 2, "split": 2, "count": 3}, "spout") if name == "wordcount" else ({"read": 2}, "read")
    windows = {"n": 3, "window_s": 0.3, "slide_s": 0.1, "words_per_s": 100} if name == "top-n" else {}
    event_counts: Counter[str] = Counter()
    for seed in seeds:
        workload = load_workload(name, {**text, "parallelism": sizes, **windows})
        elastic = (source, source, "count")
        events, verdict = run_with_faults(workload, folder / f"inputs{seed}", seed, RATE, elastic, gated)
        assert verdict.passed, (seed, verdict.message)
        event_counts += events
    return event_counts


@pytest.mark.parametrize("name", ["wordcount", "top-n"])
def test_answers_are_exact_when_workers_are_killed_at_any_step_of_a_scaling_of_sources(
    tmp_path: Path, name: str
) -> None:
    event_counts = run_seeds(tmp_path, name, range(4))
    assert event_counts.keys() >= {"scaled live", "recovery"}, event_counts


def test_answers_are_exact_when_sources_that_follow_a_schedule_are_scaled(tmp_path: Path) -> None:
    event_counts = run_seeds(tmp_path, "wordcount", range(2, 3), gated=True)
    assert event_counts.keys() >= {"scaled live"}, event_counts


@pytest.mark.parametrize(
    "seeds",
    [pytest.param(range(100, 107), marks=pytest.mark.long), pytest.param(range(107, 112), marks=pytest.mark.soak)],
)
@pytest.mark.parametrize(("name", "gated"), [("wordcount", False), ("top-n", False), ("wordcount", True)])
def test_answers_are_exact_in_many_more_orders(tmp_path: Path, name: str, gated: bool, seeds: range) -> None:
    event_counts = run_seeds(tmp_path, name, seeds, gated)
    assert event_counts.keys() >= {"scaled live", "recovery", "checkpoint" if gated else "move"}, event_counts
    assert event_counts["killed in a scaling"] or event_counts["killed in a restart"], event_counts
