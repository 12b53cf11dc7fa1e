"""Drained nodes of static runs, in virtual time: executors leave them despite refusals, failures and lost nodes."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from simulated_runs import MID, PLACES, FakeNodes, run_coordinator

from agents.protocol import Cut, Prepare, Slot
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.scripted_events import NodeDown, NodeUp

DOWN_S = 3.0


def drain(during: Callable[[FakeNodes], Coroutine[Any, Any, None]] | None = None, node: str = "n2") -> FakeNodes:
    """Run with a node that goes down after three seconds."""
    return run_coordinator(
        lambda: FakeNodes(ControlSettings(checkpoint_s=2, events=(NodeDown(DOWN_S, node),))), 14, during
    )


def test_the_executors_of_a_drained_node_leave_it() -> None:
    nodes = drain()
    assert nodes.executor_places == PLACES | {"sink[0]": Slot("n1", 2)}
    assert nodes.events_of("timeline_node_down") == [("n2", "", None)]
    assert len(nodes.coordinator.event_log.moves) == 1


def test_a_drain_that_is_refused_is_tried_again() -> None:
    async def refuse(nodes: FakeNodes) -> None:
        nodes.refusal = "not now"
        await asyncio.sleep(DOWN_S + 2)
        nodes.refusal = ""

    nodes = drain(refuse)
    assert nodes.executor_places["sink[0]"] == Slot("n1", 2)


def test_a_drain_that_is_interrupted_by_a_failure_is_tried_again() -> None:
    async def kill(nodes: FakeNodes) -> None:
        while not any(prepare.moves for prepare in nodes.messages(Prepare)):
            await asyncio.sleep(0.001)
        nodes.unanswered.add(Cut)
        nodes.kill_worker(MID)
        await asyncio.sleep(0.5)
        nodes.unanswered.clear()

    nodes = drain(kill)
    assert len(nodes.coordinator.event_log.recoveries) == 1
    assert nodes.executor_places["sink[0]"] == Slot("n1", 2)


def test_executors_of_a_drained_node_are_not_moved_to_a_lost_one() -> None:
    async def lose(nodes: FakeNodes) -> None:
        await asyncio.sleep(DOWN_S - 1)
        nodes.lose_node("n2")

    nodes = drain(lose, node="n1")
    assert {slot.node for slot in nodes.executor_places.values()} == {"n3"}


@pytest.mark.parametrize("up", [False, True])
def test_a_node_that_returns_while_it_is_drained_stays_empty(up: bool) -> None:
    changes: list[tuple[str, str]] = []

    async def lose(nodes: FakeNodes) -> None:
        nodes.coordinator._membership._on_change = lambda what, node: changes.append((what, node))
        await asyncio.sleep(DOWN_S + 1)
        nodes.lose_node("n2")
        nodes.kill_worker(MID)
        await asyncio.sleep(2)
        nodes.return_node("n2")

    events = (NodeDown(DOWN_S, "n2"), *([NodeUp(DOWN_S + 2.5, "n2")] if up else []))
    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2, events=events)), 16, lose)
    assert nodes.events_of("node_returned") == [("n2", "", None)]
    assert changes == [("node_lost", "n2"), *([("node_returned", "n2")] if up else [])]
    assert "n2" not in {slot.node for slot in nodes.executor_places.values()}
