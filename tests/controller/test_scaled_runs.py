"""Scaling of components by a restart, also after failures; and live scaling of workloads."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from scripted_workload import run_with_faults
from simulated_runs import MID, PLACES, SINK, FakeNodes, run_coordinator, spec_of

from agents.protocol import Connect, Cut, Division, MoveToPlace, Prepare, Progress, RunSpec, Slot, Start, Work, Worked
from controller.coordinator.barrier import AbandonedError
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.interfaces import Carried, RestartRules, Scaling
from controller.coordinator.reports import BoltCounts
from controller.coordinator.scaling import rescaled
from controller.coordinator.scripted_events import MoveExecutors, MoveRequest, ScaleComponents, ScriptedEvent
from workloads.workload import load_workload

AT_S = 3.0
NEW = Slot("n1", 3)
"""Where `FakeNodes` puts executors that are added, while n1 is there."""


def scale(
    *sizes: int,
    seconds: float = 14,
    during: Callable[[FakeNodes], Coroutine[Any, Any, None]] | None = None,
    then: Sequence[ScriptedEvent] = (),
    **settings: Any,
) -> FakeNodes:
    """Run in which `mid` gets these numbers of executors by restarts, three seconds apart, `then` other events."""
    settings.setdefault("restart", RestartRules())
    events = (*(ScaleComponents(AT_S * at, ("mid",), size) for at, size in enumerate(sizes, 1)), *then)
    return run_coordinator(
        lambda: FakeNodes(ControlSettings(checkpoint_s=2, events=events, **settings)), seconds, during
    )


def started_specs(nodes: FakeNodes) -> list[RunSpec]:
    """Return the run specifications of the epochs."""
    return [message.spec for message in nodes.messages(Start, "n1")]


def test_a_component_gets_more_executors_and_then_fewer_from_checkpoints() -> None:
    nodes = scale(3, 2)
    assert nodes.executor_places == {"src[0]": PLACES["src[0]"], "mid[0]": MID, "mid[1]": NEW, "sink[0]": SINK}
    first, second, third = started_specs(nodes)
    assert [dict(spec.stored) for spec in (first, second, third)] == [{}, {"mid": Division(1)}, {"mid": Division(3)}]
    assert [len(spec.executors) for spec in (first, second, third)] == [3, 5, 4]
    assert 0 < second.restore < third.restore
    sizes = [
        {entry["id"]: entry.get("parallelism") for entry in spec.topology["components"]} for spec in (second, third)
    ]
    assert sizes == [{"src": 1, "mid": 3, "sink": 1}, {"src": 1, "mid": 2, "sink": 1}]


def test_every_scaling_is_in_traces_and_in_the_record_of_the_run() -> None:
    nodes = scale(3, 2)
    (up, _), (down, _) = [(detail, value) for subject, detail, value in nodes.events_of("scaled") if subject == "mid"]
    assert (up, down) == ("from=1 to=3 mid[1]=n1/3 mid[2]=n1/3", "from=3 to=2")
    assert nodes.events_of("timeline_scale") == [("mid", "", None)] * 2
    larger, smaller = nodes.coordinator.event_log.scalings
    assert (larger.component, larger.how, larger.before, larger.after) == ("mid", "restart", 1, 3)
    assert larger.added == {"mid[1]": "n1/3", "mid[2]": "n1/3"}
    assert (smaller.before, smaller.after, smaller.added, smaller.revision) == (3, 2, {}, None)
    assert AT_S <= larger.at_s < larger.at_s + larger.pause_s < 2 * AT_S <= smaller.at_s


def test_several_components_are_scaled_by_one_restart() -> None:
    events = (ScaleComponents(AT_S, ("mid", "sink"), 2),)
    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(events=events, restart=RestartRules())), 9)
    assert nodes.epoch == 2
    assert nodes.executor_places.keys() == PLACES.keys() | {"mid[1]", "sink[1]"}
    assert [each.component for each in nodes.coordinator.event_log.scalings] == ["mid", "sink"]


def test_a_scaling_that_is_refused_is_tried_again() -> None:
    async def refuse(nodes: FakeNodes) -> None:
        nodes.refusal = "not now"
        await asyncio.sleep(AT_S + 2)
        nodes.refusal = ""

    nodes = scale(2, during=refuse)
    assert "mid[1]" in nodes.executor_places
    assert "not now" in nodes.events_of("timeline_scale_failed")[0][1]
    assert len(nodes.coordinator.event_log.scalings) == 1


@pytest.mark.parametrize("while_it_halts", [True, False])
def test_a_scaling_that_is_interrupted_by_a_failure_is_completed_later(while_it_halts: bool) -> None:
    async def kill(nodes: FakeNodes) -> None:
        await asyncio.sleep(AT_S)
        if while_it_halts:
            while not any(prepare.halt for prepare in nodes.messages(Prepare)):
                await asyncio.sleep(0.001)
            nodes.unanswered.add(Cut)
            nodes.kill_worker(MID)
            await asyncio.sleep(0.5)
            nodes.unanswered.clear()
        else:
            nodes.unanswered.add(Connect)
            while nodes.epoch == 1:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.2)
            nodes.kill_worker(SINK)
            nodes.unanswered.clear()

    nodes = scale(2, during=kill)
    assert len(nodes.coordinator.event_log.recoveries) == 1
    # The scaling is in the record and in the traces in both cases.
    assert [(each.before, each.after) for each in nodes.coordinator.event_log.scalings] == [(1, 2)]
    assert [subject for subject, _, _ in nodes.events_of("scaled")] == ["mid"]
    assert "mid[1]" in nodes.executor_places
    last = started_specs(nodes)[-1]
    assert [executor.component for executor in last.executors] == ["src", "mid", "mid", "sink"]


def test_an_executor_that_was_added_is_placed_again_when_its_node_is_lost() -> None:
    async def lose(nodes: FakeNodes) -> None:
        await asyncio.sleep(AT_S + 1)
        nodes.lose_node("n1")

    nodes = scale(2, during=lose)
    assert nodes.events_of("node_lost")
    assert {place.node for place in nodes.executor_places.values()} == {"n2", "n3"}
    assert "mid[1]" in nodes.executor_places


def test_executors_are_not_added_on_a_lost_node() -> None:
    async def lose(nodes: FakeNodes) -> None:
        await asyncio.sleep(AT_S - 1)
        nodes.lose_node("n1")

    assert scale(2, during=lose).executor_places["mid[1]"] == Slot("n2", 3)


def test_a_restart_follows_the_rules_of_revisions() -> None:
    nodes = scale(2, seconds=9, restart=RestartRules(wait_s=1.5, fresh=True))
    (scaling,) = nodes.coordinator.event_log.scalings
    assert scaling.pause_s > 1.5
    assert [start.fresh for start in nodes.messages(Start, "n1")] == [False, True]


def test_other_changes_that_wait_behind_a_scaling_are_abandoned() -> None:
    results: list[Carried] = []

    async def request(nodes: FakeNodes) -> None:
        await asyncio.sleep(2)
        scaling = Scaling({"mid": 2}, {"mid[1]": NEW})
        found = await asyncio.gather(
            nodes.carry(None, [], scaling), nodes.carry(1, [(MoveToPlace("mid[0]", Slot("n3", 0)),)])
        )
        results.extend(found)

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2, restart=RestartRules())), 9, request)
    assert results == [Carried("done"), Carried("abandoned", "the numbers of executors have changed")]
    assert nodes.executor_places["mid[0]"] == MID


def test_a_move_of_an_executor_that_was_removed_is_abandoned() -> None:
    move = MoveExecutors(2 * AT_S + 1, (MoveRequest("mid[1]", "n3"),))
    nodes = scale(2, 1, then=(move,))
    (move,) = nodes.coordinator.event_log.moves
    assert move.abandoned == "there is no executor mid[1] now"


def test_an_executor_that_is_added_again_begins_with_new_counts() -> None:
    def report(epoch: int, name: str, processed: int) -> Progress:
        work = Work(emitted=processed, processed=processed, queued=0, busy_ns=0, blocked_ns=0)
        return Progress(epoch=epoch, slot=1, at_ns=0, emitted=0, sunk=0, executors={name: work})

    async def count(nodes: FakeNodes) -> None:
        await asyncio.sleep(AT_S + 1)
        nodes.coordinator.handle_report("n1", report(2, "mid[0]", 70))
        nodes.coordinator.handle_report("n1", report(2, "mid[1]", 50))

    nodes = scale(2, 1, 2, during=count)
    worked = [{name: each.processed for name, each in spec.worked.items()} for spec in started_specs(nodes)]
    assert worked == [{}, {"mid[0]": 0, "mid[1]": 0}, {"mid[0]": 70}, {"mid[0]": 70, "mid[1]": 0}]


def test_repeated_work_is_not_counted_twice_by_other_executors() -> None:
    def report(epoch: int, **processed: int) -> Progress:
        works = {
            f"mid[{name[1:]}]": Work(emitted=2 * count, processed=count, queued=0, busy_ns=0, blocked_ns=0)
            for name, count in processed.items()
        }
        return Progress(epoch=epoch, slot=0, at_ns=0, emitted=0, sunk=0, executors=works)

    counts = BoltCounts()
    counts.record_report(report(2, m0=100, m1=80, m2=60))
    # After a recovery, executors have repeated a part of their work when they are scaled to two.
    counts.record_report(report(3, m0=40, m1=85, m2=0))
    counts.record_report(report(2, m0=100))
    counts.rescale({"mid": 2}, ["src[0]", "mid[0]", "mid[1]", "mid[2]", "sink[0]"])
    # mid[0] has 60 rows to repeat, and mid[2] another 60; each new executor gets half of them.
    assert counts.worked == {"mid[0]": Worked(200, 100), "mid[1]": Worked(290, 145)}
    counts.record_report(report(4, m0=90, m1=160))
    counts.rescale({"mid": 3}, ["src[0]", "mid[0]", "mid[1]", "sink[0]"])
    assert {name: each.processed for name, each in counts.worked.items()} == {"mid[0]": 93, "mid[1]": 163, "mid[2]": 4}


@pytest.mark.parametrize(
    ("scaling", "why"),
    [
        (Scaling({"middle": 2}), "there is no component middle"),
        (Scaling({"mid": 2}), r"slots for none, but the executors that are added are mid\[1\]"),
        (Scaling({"mid": 1}, {"mid[1]": NEW}), r"slots for mid\[1\], but the executors that are added are none"),
    ],
)
def test_slots_that_are_not_those_of_the_added_executors_are_refused(scaling: Scaling, why: str) -> None:
    spec = spec_of(PLACES)
    assert rescaled(spec, Scaling()) is spec
    with pytest.raises(AbandonedError, match=why):
        rescaled(spec, scaling)


TEXT = "call me ishmael some years ago never mind how long precisely having little or no money in my purse\n" * 9


@pytest.mark.long
@pytest.mark.parametrize("combine", [False, True])
def test_words_are_counted_exactly_despite_scaling_moves_and_kills(tmp_path: Path, combine: bool) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    event_counts: Counter[str] = Counter()
    for seed in range(6):
        few = {"spout": 2, "split": 2, "count": 4}
        params = {"text": str(tmp_path / "text.txt"), "ackers": 0, "parallelism": few, "combine": combine}
        workload = load_workload("wordcount", params)
        rate = {"kind": "constant", "tuples_per_s": 300.0}
        events, verdict = run_with_faults(workload, tmp_path / f"inputs{seed}", seed, rate, ("split", "count"))
        assert verdict.passed, (seed, verdict.message)
        event_counts += events
    assert event_counts.keys() >= {"scaled live", "recovery", "move", "killed in a copy"}, event_counts
    assert "scaled restart" not in event_counts
