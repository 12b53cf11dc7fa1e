"""Runs in which the sources get another number of executors, also while workers are killed."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from conducting import MID, conduct
from obedient import Obedient
from scripted_workload import play_with_faults

from agents.protocol import Cut, Go, Progress, Start, Work
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.reports import SourcePositions
from controller.coordinator.timeline import ScaleComponents
from inventory.errors import RunError
from workloads.workload import load_workload

AT_S = 3.0
TEXT = "call me ishmael some years ago never mind how long precisely having little or no money in my purse\n" * 9
RATE = {"kind": "constant", "tuples_per_s": 300.0}


def settings(*sizes: int) -> ControlSettings:
    events = tuple(ScaleComponents(AT_S * at, ("src",), size) for at, size in enumerate(sizes, 1))
    return ControlSettings(checkpoint_s=2, events=events)


def report(epoch: int, position: int) -> Progress:
    work = Work(emitted=position, processed=None, queued=None, busy_ns=0, blocked_ns=0, position=position)
    return Progress(epoch=epoch, slot=0, at_ns=0, emitted=0, sunk=0, executors={"src[0]": work})


def test_sources_are_scaled_by_a_restart_behind_the_highest_record_of_all() -> None:
    async def late(nodes: Obedient) -> None:
        nodes.records = 100
        await asyncio.sleep(AT_S + 1.5)
        assert nodes.epoch == 2
        nodes.coordinator.handle_report("n1", report(1, 99))
        nodes.position = 40

    nodes = conduct(lambda: Obedient(settings(3)), 9, late)
    (scaling,) = nodes.coordinator.event_log.scalings
    assert (scaling.component, scaling.how, scaling.before, scaling.after) == ("src", "restart", 1, 3)
    cuts = {cut.records for cut in nodes.got(Cut, "n1") if cut.epoch == 1}
    assert cuts == {0, 100}
    assert {cut.records for cut in nodes.got(Cut, "n1") if cut.epoch == 2} == {0}
    assert [go.seen for go in nodes.got(Go, "n1")] == [{}, {"src[0]": 34, "src[1]": 33, "src[2]": 33}]
    assert nodes.coordinator.positions == {"src[0]": 40, "src[1]": 40, "src[2]": 40}


def test_sources_whose_input_has_ended_keep_their_number() -> None:
    async def end(nodes: Obedient) -> None:
        nodes.records = None
        await asyncio.sleep(0)

    nodes = conduct(lambda: Obedient(settings(3)), 6, end)
    assert nodes.coordinator.event_log.scalings == []
    assert len(nodes.got(Start, "n1")) == 1
    assert "the input of sources has ended: " in nodes.noted("timeline_scale_failed")[0][1]


def test_a_failure_in_the_start_behind_it_is_recovered_from_with_the_new_number() -> None:
    async def kill(nodes: Obedient) -> None:
        nodes.mute.add(Go)
        while nodes.epoch == 1:
            await asyncio.sleep(0.001)
        nodes.kill_worker(MID)

    nodes = conduct(lambda: Obedient(settings(3)), 9, kill)
    second, third = [message.spec for message in nodes.got(Start, "n1")][1:]
    assert (second.restore, second.stored) == (third.restore, third.stored)
    assert [len(spec.executors) for spec in (second, third)] == [5, 5]
    assert nodes.got(Go, "n1")[-1].seen == {"src[0]": 34, "src[1]": 33, "src[2]": 33}


def test_reports_of_earlier_epochs_are_of_other_shares() -> None:
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


def played(folder: Path, name: str, seeds: range) -> Counter[str]:
    (folder / "text.txt").write_text(TEXT)
    text = {"text": str(folder / "text.txt"), "ackers": 0}
    sizes, source = ({"spout": 2, "split": 2, "count": 3}, "spout") if name == "wordcount" else ({"read": 2}, "read")
    windows = {"n": 3, "window_s": 0.3, "slide_s": 0.1, "words_per_s": 100} if name == "top-n" else {}
    happened: Counter[str] = Counter()
    for seed in seeds:
        workload = load_workload(name, {**text, "parallelism": sizes, **windows})
        events, verdict = play_with_faults(workload, folder / f"inputs{seed}", seed, RATE, (source, source, "count"))
        assert verdict.passed, (seed, verdict.message)
        happened += events
    return happened


@pytest.mark.parametrize("name", ["wordcount", "top-n"])
def test_answers_are_exact_when_workers_are_killed_at_any_step_of_a_scaling_of_sources(
    tmp_path: Path, name: str
) -> None:
    happened = played(tmp_path, name, range(4))
    assert happened.keys() >= {"scaled restart", "killed in a restart", "recovery"}, happened


@pytest.mark.long
@pytest.mark.parametrize("name", ["wordcount", "top-n"])
def test_answers_are_exact_in_many_more_orders(tmp_path: Path, name: str) -> None:
    happened = played(tmp_path, name, range(100, 112))
    assert happened.keys() >= {"scaled live", "scaled restart", "killed in a restart", "recovery", "move"}, happened
