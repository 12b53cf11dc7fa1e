"""Live scaling of components: at one barrier, completely or not at all."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from unittest import mock

import pytest
from scripted_run import run_spec
from simulated_runs import DRIFT_S, MID, PAUSE_NS, PLACES, SINK, FakeNodes, run_coordinator

from agents.protocol import Abandon, Cut, Division, ExecutorSpec, MoveToPlace, Precopy, Prepare, RunSpec, Slot, Start
from controller.coordinator import barrier
from controller.coordinator.barrier import arriving_in
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.interfaces import Carried, Scaling
from controller.coordinator.scaling import rescaled_live
from controller.coordinator.scripted_events import ScaleComponents
from workloads.key_groups import first_ownership, owners_from_runs
from workloads.topology import Component, Input, Topology

AT_S = 3.0
NEW = Slot("n1", 3)
"""Where `FakeNodes` puts executors that are added, while n1 is there."""


def scale(
    *sizes: int, seconds: float = 14, during: Callable[[FakeNodes], Coroutine[Any, Any, None]] | None = None
) -> FakeNodes:
    """Run in which `mid` gets these numbers of executors, three seconds apart."""
    events = tuple(ScaleComponents(AT_S * at, ("mid",), size) for at, size in enumerate(sizes, 1))
    return run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2, events=events)), seconds, during)


def scaled_specs(nodes: FakeNodes) -> list[RunSpec]:
    """Return the run specifications after the barriers of scalings."""
    return [message.scaled for message in nodes.messages(Prepare, "n1") if message.scaled is not None]


def test_a_component_gets_more_executors_and_then_fewer_in_one_epoch() -> None:
    nodes = scale(3, 2)
    assert nodes.epoch == 1
    assert nodes.executor_places == {"src[0]": PLACES["src[0]"], "mid[0]": MID, "mid[1]": NEW, "sink[0]": SINK}
    more, fewer = scaled_specs(nodes)
    # All executors of the component are new ones; the others keep their numbers.
    assert (more.numbers, fewer.numbers) == ((0, 3, 4, 5, 2), (0, 6, 7, 2))
    larger, smaller = nodes.coordinator.event_log.scalings
    assert (larger.how, larger.before, larger.after) == ("live", 1, 3)
    assert larger.added == {"mid[1]": "n1/3", "mid[2]": "n1/3"}
    assert (smaller.how, smaller.before, smaller.after, smaller.added) == ("live", 3, 2, {})
    assert larger.pause_s == pytest.approx(PAUSE_NS / 1e9, abs=DRIFT_S)
    assert AT_S <= larger.at_s < 2 * AT_S <= smaller.at_s
    values = [value for _, _, value in nodes.events_of("scaled")]
    assert values == pytest.approx([larger.pause_s, smaller.pause_s], abs=DRIFT_S)


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_checkpoint_follows_a_scaling_and_the_one_before_is_divided_until_then(is_stored: bool) -> None:
    async def kill(nodes: FakeNodes) -> None:
        log = nodes.coordinator.event_log
        while not log.scalings or (is_stored and log.checkpoints < 2):
            await asyncio.sleep(0.001)
        if not is_stored:
            nodes.unanswered.add(Cut)
        nodes.kill_worker(SINK)
        while len(nodes.messages(Start, "n1")) < 2:
            await asyncio.sleep(0.001)
        nodes.unanswered.clear()

    nodes = scale(2, during=kill)
    _, second = [message.spec for message in nodes.messages(Start, "n1")]
    (scaling,) = [message for message in nodes.messages(Prepare, "n1") if message.scaled is not None]
    assert not scaling.store
    expected = (scaling.barrier + 1, {}) if is_stored else (scaling.barrier - 1, {"mid": Division(1)})
    assert (second.restore, dict(second.stored)) == expected
    assert second.numbers == ()
    assert "mid[1]" in nodes.executor_places


@pytest.mark.parametrize("step", [Precopy, Prepare, Cut])
def test_a_scaling_that_is_interrupted_by_a_failure_is_completed_later(step: type) -> None:
    async def kill(nodes: FakeNodes) -> None:
        await asyncio.sleep(AT_S - 0.5)
        nodes.unanswered.add(step)
        while not [message for message in nodes.messages(Precopy) if message.scaled is not None]:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.2)
        assert bool(scaled_specs(nodes)) == (step is not Precopy)
        nodes.kill_worker(MID)
        nodes.unanswered.clear()

    nodes = scale(2, during=kill)
    assert len(nodes.coordinator.event_log.recoveries) == 1
    _, second = [message.spec for message in nodes.messages(Start, "n1")]
    assert [executor.component for executor in second.executors] == ["src", "mid", "sink"]
    assert [scaling.after for scaling in nodes.coordinator.event_log.scalings] == [2]
    assert "mid[1]" in nodes.executor_places


def test_copies_get_more_time_for_more_state() -> None:
    times: dict[type, float] = {}

    async def watch(nodes: FakeNodes) -> None:
        nodes.unanswered.add(Precopy)
        while not scaled_specs(nodes):
            await asyncio.sleep(0.05)
            for kind in (Precopy, Prepare):
                if any(message.scaled is not None for message in nodes.messages(kind)):
                    times.setdefault(kind, asyncio.get_running_loop().time())

    # Three executors have stored 10 bytes each.
    with mock.patch.multiple(barrier, PRECOPY_S=1.0, SLOWEST_COPY=15):
        nodes = scale(2, during=watch)
    assert times[Prepare] - times[Precopy] == pytest.approx(1 + 3 * 10 / 15, abs=0.3)
    assert "mid[1]" in nodes.executor_places


def test_a_refused_scaling_changes_nothing_and_is_tried_again() -> None:
    async def refuse(nodes: FakeNodes) -> None:
        nodes.refusal = "not now"
        await asyncio.sleep(AT_S + 2)
        assert "mid[1]" not in nodes.executor_places
        nodes.refusal = ""

    nodes = scale(2, during=refuse)
    assert nodes.messages(Abandon)
    assert "mid[1]" in nodes.executor_places
    assert "not now" in nodes.events_of("timeline_scale_failed")[0][1]
    assert len(nodes.coordinator.event_log.scalings) == 1


def test_moves_of_the_same_revision_share_the_barrier() -> None:
    results: list[Carried] = []

    async def request(nodes: FakeNodes) -> None:
        await asyncio.sleep(2)
        moves = (MoveToPlace("mid[0]", Slot("n3", 0)), MoveToPlace("sink[0]", Slot("n3", 1)))
        scaling = Scaling({"mid": 2}, {"mid[1]": NEW})
        results.append(await nodes.carry(7, [moves], scaling))

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2)), 9, request)
    assert results == [Carried("done")]
    assert {name: place for name, place in nodes.executor_places.items() if name != "src[0]"} == {
        "mid[0]": Slot("n3", 0),
        "mid[1]": NEW,
        "sink[0]": Slot("n3", 1),
    }
    log = nodes.coordinator.event_log
    assert [(move.executor, move.target, move.revision) for move in log.moves] == [
        ("mid[0]", "n3/0", 7),
        ("sink[0]", "n3/1", 7),
    ]
    assert [(scaling.how, scaling.revision) for scaling in log.scalings] == [("live", 7)]


def test_the_fewest_key_groups_change_their_owners_and_others_keep_their_numbers() -> None:
    count = Component("count", "bolt", 4, inputs=(Input("s", "fields", ("word",)),))
    topology = Topology("t", (Component("s", "spout", 1, outputs={"default": {"word": "str"}}), count))
    spec = run_spec(topology, [SINK] * 5)
    more = rescaled_live(spec, Scaling({"count": 5}, {"count[4]": NEW}))
    assert more.numbers == (0, 5, 6, 7, 8, 9)
    assert sum(a != b for a, b in zip(*(owners_from_runs(s.owners["count"]) for s in (spec, more)), strict=True)) == 204
    fewer = rescaled_live(more, Scaling({"count": 4}))
    assert fewer.numbers == (0, 10, 11, 12, 13)
    assert fewer.owners == first_ownership({"count": 4})
    assert arriving_in(more, spec) == {f"count[{at}]" for at in range(5)}
    assert arriving_in(spec, spec) == set()
    moved = (ExecutorSpec("s", 0, NEW), *spec.executors[1:])
    assert (
        rescaled_live(spec, Scaling({"count": 5}, {"count[4]": NEW}), [MoveToPlace("s[0]", NEW)]).executors[0]
        == moved[0]
    )
