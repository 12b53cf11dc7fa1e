"""Moves of a revision in virtual time: waves with one barrier each, and the result of failures."""

import asyncio
from collections.abc import Sequence

import pytest
from simulated_runs import MID, PLACES, FakeNodes, run_coordinator

from agents.protocol import Cut, Grow, Kill, MoveToPlace, Prepare, Slot, Start
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.interfaces import Carried, RestartRules

FIRST, SECOND = (MoveToPlace("mid[0]", Slot("n3", 0)),), (MoveToPlace("sink[0]", Slot("n3", 1)),)


def carry(
    waves: Sequence[tuple[MoveToPlace, ...]], at_s: float = 3.0, checkpoint_s: float = 2.0, seconds: float = 12.0
) -> tuple[FakeNodes, Carried]:
    """Run with these waves requested at `at_s`; return the nodes and the result."""
    results: list[Carried] = []

    async def request(nodes: FakeNodes) -> None:
        await asyncio.sleep(at_s)
        results.append(await nodes.carry(7, waves))

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=checkpoint_s)), seconds, request)
    (result,) = results
    return nodes, result


def test_every_wave_has_a_barrier_of_its_own() -> None:
    nodes, result = carry([FIRST, SECOND])
    assert result == Carried("done")
    with_moves = [prepare for prepare in nodes.messages(Prepare, "n1") if prepare.moves]
    assert [prepare.moves for prepare in with_moves] == [FIRST, SECOND]
    assert len({prepare.barrier for prepare in with_moves}) == 2
    assert [(move.executor, move.revision) for move in nodes.coordinator.event_log.moves] == [
        ("mid[0]", 7),
        ("sink[0]", 7),
    ]


class NodesWithHeldInputs(FakeNodes):
    """Fake nodes that get no inputs while `held`."""

    held = False

    async def supply(self, node: str) -> None:
        await super().supply(node)
        while self.held:
            await asyncio.sleep(0.01)


def test_a_node_that_returns_during_a_revision_joins_the_epoch_before_the_next_one() -> None:
    results: list[Carried] = []

    async def request(nodes: FakeNodes) -> None:
        assert isinstance(nodes, NodesWithHeldInputs)
        carry = nodes.carry
        await asyncio.sleep(3)
        nodes.lose_node("n2")
        await asyncio.sleep(10)
        nodes.held = True
        first = asyncio.create_task(carry(1, [(MoveToPlace("mid[0]", Slot("n3", 1)),)]))
        nodes.return_node("n2")
        while not nodes.events_of("node_returned"):
            await asyncio.sleep(0.1)
        second = asyncio.create_task(carry(2, [(MoveToPlace("sink[0]", Slot("n2", 0)),)]))
        await asyncio.sleep(0.1)
        nodes.held = False
        results.extend([await first, await second])

    nodes = run_coordinator(lambda: NodesWithHeldInputs(ControlSettings(checkpoint_s=60)), 30, request)
    assert results == [Carried("done"), Carried("done")]
    received = [type(message) for node, message in nodes.sent if node == "n2"]
    assert received.index(Grow) > len(received) - received[::-1].index(Start) - 1


def test_moves_are_carried_out_without_checkpoints_too() -> None:
    nodes, result = carry([(*FIRST, *SECOND)], checkpoint_s=0)
    assert result.outcome == "done"
    assert len(nodes.messages(Cut, "n1")) == 1


@pytest.mark.parametrize(("refused", "outcome"), [(1, "abandoned"), (2, "partial")])
def test_a_refused_wave_is_the_last_and_finished_waves_stay(refused: int, outcome: str) -> None:
    results: list[Carried] = []

    async def request(nodes: FakeNodes) -> None:
        await asyncio.sleep(3)
        if refused == 1:
            nodes.refusal = "not now"
        carrying = asyncio.create_task(nodes.carry(1, [FIRST, SECOND]))
        while len(nodes.coordinator.event_log.moves) < refused - 1:
            await asyncio.sleep(0.001)
        nodes.refusal = "not now"
        results.append(await carrying)
        nodes.refusal = ""

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2)), 9, request)
    ((found, why),) = results
    assert found == outcome
    assert "not now" in why
    assert len(nodes.coordinator.event_log.moves) == refused - 1


def test_a_revision_is_abandoned_without_effect_when_a_worker_is_not_ready_in_time() -> None:
    results: list[Carried] = []

    async def request(nodes: FakeNodes) -> None:
        await asyncio.sleep(3)
        nodes.unanswered.add(Prepare)
        results.append(await nodes.carry(7, [FIRST, SECOND]))
        nodes.unanswered.clear()

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=0)), 45, request)
    ((outcome, why),) = results
    assert outcome == "abandoned"
    assert why.startswith("not ready within 30 s: n1/0")
    assert nodes.executor_places == PLACES
    assert nodes.coordinator.event_log.moves == []
    assert nodes.coordinator.event_log.recoveries == []


def test_a_failure_breaks_a_revision_and_the_finished_waves_stay() -> None:
    results: list[Carried] = []

    async def request(nodes: FakeNodes) -> None:
        await asyncio.sleep(3)
        carrying = asyncio.create_task(nodes.carry(1, [FIRST, SECOND]))
        while not nodes.coordinator.event_log.moves:
            await asyncio.sleep(0.001)
        nodes.unanswered.add(Cut)
        nodes.kill_worker(MID)
        results.append(await carrying)
        nodes.unanswered.clear()

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2)), 12, request)
    ((outcome, why),) = results
    assert outcome == "broken"
    assert "was killed" in why
    places = nodes.executor_places
    assert (places["mid[0]"], places["sink[0]"]) == (Slot("n3", 0), PLACES["sink[0]"])


def test_a_request_that_is_withdrawn_during_a_recovery_is_not_carried_out_after_it() -> None:
    async def request(nodes: FakeNodes) -> None:
        await asyncio.sleep(3)
        nodes.kill_worker(MID)
        while nodes.epoch < 2:
            await asyncio.sleep(0.001)
        carrying = asyncio.create_task(nodes.carry(1, [FIRST]))
        await asyncio.sleep(0.001)
        carrying.cancel()

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2)), 12, request)
    assert len(nodes.coordinator.event_log.recoveries) == 1
    assert not nodes.coordinator.event_log.moves
    assert not [prepare for prepare in nodes.messages(Prepare) if prepare.moves]


def test_moves_to_a_lost_node_are_abandoned() -> None:
    async def request(nodes: FakeNodes) -> None:
        await asyncio.sleep(3)
        nodes.lose_node("n3")
        await asyncio.sleep(4)
        found = await nodes.carry(1, [FIRST])
        assert found == Carried("abandoned", "node n3 is lost")

    run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2)), 12, request)


def test_nothing_is_carried_out_when_the_sources_have_ended() -> None:
    _, result = carry([FIRST], at_s=3.0, seconds=2.0)
    assert result == Carried("abandoned", "the sources had ended")


def test_a_node_held_back_by_the_timeline_returns_when_its_time_is_over() -> None:
    async def kill(nodes: FakeNodes) -> None:
        await asyncio.sleep(3)
        nodes.coordinator._membership.hold("n2", asyncio.get_running_loop().time() + 8)
        nodes.kill_agent("n2")

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2)), 25, kill)
    ((node, why, _),) = nodes.events_of("node_lost")
    assert node == "n2"
    assert "keeps it away" in why
    assert nodes.events_of("node_returned") == [("n2", "", None)]
    assert not nodes.messages(Kill)


@pytest.mark.parametrize("fresh", [False, True])
def test_a_restart_begins_a_new_epoch_from_a_checkpoint_behind_halted_sources(fresh: bool) -> None:
    results: list[Carried] = []

    async def request(nodes: FakeNodes) -> None:
        await asyncio.sleep(3)
        results.append(await nodes.carry(7, [FIRST, SECOND]))

    rules = RestartRules(wait_s=1.5, fresh=fresh)
    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2, restart=rules)), 9, request)
    assert results == [Carried("done")]
    (halt,) = [prepare for prepare in nodes.messages(Prepare, "n1") if prepare.halt]
    first, second = nodes.messages(Start, "n1")
    assert (first.spec.epoch, first.fresh) == (1, False)
    assert (second.spec.epoch, second.spec.restore, second.fresh) == (2, halt.barrier, fresh)
    places = nodes.executor_places
    assert (places["mid[0]"], places["sink[0]"]) == (Slot("n3", 0), Slot("n3", 1))
    log = nodes.coordinator.event_log
    assert not log.recoveries
    assert [(move.executor, move.revision, move.cpu_ms) for move in log.moves] == [
        ("mid[0]", 7, None),
        ("sink[0]", 7, None),
    ]
    assert all(move.pause_s is not None and 1.5 <= move.pause_s < 2.5 for move in log.moves)


def test_a_failure_during_a_restart_is_recovered_from_in_the_new_slots() -> None:
    results: list[Carried] = []

    async def request(nodes: FakeNodes) -> None:
        await asyncio.sleep(3)
        nodes.unanswered.add(Start)
        carrying = asyncio.create_task(nodes.carry(1, [FIRST]))
        while nodes.epoch < 2:
            await asyncio.sleep(0.001)
        nodes.kill_worker(MID, epoch=2)
        nodes.unanswered.clear()
        results.append(await carrying)

    rules = RestartRules()
    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2, restart=rules)), 12, request)
    ((outcome, _),) = results
    assert outcome == "broken"
    assert nodes.executor_places["mid[0]"] == Slot("n3", 0)
    assert len(nodes.coordinator.event_log.recoveries) == 1


def test_a_refused_restart_leaves_the_topology_running() -> None:
    results: list[Carried] = []

    async def request(nodes: FakeNodes) -> None:
        await asyncio.sleep(3)
        nodes.refusal = "not now"
        results.append(await nodes.carry(1, [FIRST]))
        nodes.refusal = ""

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2, restart=RestartRules())), 9, request)
    ((outcome, why),) = results
    assert (outcome, nodes.epoch) == ("abandoned", 1)
    assert "not now" in why
