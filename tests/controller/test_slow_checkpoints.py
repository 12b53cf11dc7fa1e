"""Checkpoints whose snapshots take long to copy, in virtual time: the barrier is free as soon as all have passed it."""

import asyncio

from simulated_runs import MID, FakeNodes, answer_files, run_coordinator

from agents.protocol import Prepare, Slot, Stop
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.scripted_events import MoveExecutors, MoveRequest

MOVE = MoveExecutors(3, (MoveRequest("mid[0]", "n3", 1),))
COPY_S = 5.0


def slow_copies(settings: ControlSettings) -> FakeNodes:
    """Return nodes whose snapshots take `COPY_S` to copy."""
    nodes = FakeNodes(settings)
    replicate = nodes.replicas.replicate

    async def replicate_slowly(node: str, file: str, name: str) -> None:
        await asyncio.sleep(COPY_S)
        await replicate(node, file, name)

    nodes.replicas.replicate = replicate_slowly  # type: ignore[method-assign]
    return nodes


def test_a_move_does_not_wait_for_the_copies_of_a_checkpoint() -> None:
    nodes = run_coordinator(lambda: slow_copies(ControlSettings(checkpoint_s=2, events=(MOVE,))), 14)
    (move,) = nodes.coordinator.event_log.moves
    assert 3 <= move.at_s < 3.2
    kinds = [kind for kind, *_ in nodes.events if kind in {"checkpoint", "move"}]
    assert kinds[:2] == ["move", "checkpoint"]
    ((first, _, took_s), *_) = nodes.events_of("checkpoint")
    assert (first, COPY_S < took_s < COPY_S + 6) == ("1", True)


def test_a_checkpoint_waits_for_the_previous_one() -> None:
    nodes = run_coordinator(lambda: slow_copies(ControlSettings(checkpoint_s=2)), 20)
    assert [(message.barrier, message.complete) for message in nodes.messages(Prepare, "n3")] == [(1, 0), (2, 1)]
    assert len(answer_files(nodes)) == len(nodes.messages(Prepare, "n3")) + 1


def test_the_end_of_a_run_waits_for_the_copies() -> None:
    nodes = run_coordinator(lambda: slow_copies(ControlSettings(checkpoint_s=2)), 3)
    assert answer_files(nodes) == ["settled at 1", "last of epoch 1"]
    assert len(nodes.messages(Stop)) == 3


def test_a_failure_after_a_move_restarts_in_the_new_slots_from_the_last_complete_checkpoint() -> None:
    async def kill(nodes: FakeNodes) -> None:
        await asyncio.sleep(4)
        nodes.kill_worker(MID)

    nodes = run_coordinator(lambda: slow_copies(ControlSettings(checkpoint_s=2, events=(MOVE,))), 20, kill)
    (recovery,) = nodes.coordinator.event_log.recoveries
    assert recovery.checkpoint == 0
    assert nodes.spec("n3").executors[1].place == Slot("n3", 1)
    assert not any(name.startswith(("checkpoints/1", "answers/1")) for name in nodes.replicas.files)
    assert answer_files(nodes)[0] == "settled at 3"
