"""Changes of a communication schedule: order relative to moves, the round boundary, and nodes that come and go."""

import asyncio
from collections.abc import Mapping, Sequence, Set
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from simulated_runs import PLACES, spec_of

from agents.protocol import Gates, Grow, Message, MoveToPlace, Schedule, Slot, SlotDone, TimeSlot
from controller.coordinator.barrier import AbandonedError, _grow
from controller.coordinator.epoch_workers import EpochWorkers
from controller.coordinator.event_log import EventLog
from controller.coordinator.interfaces import Carried, Offset, RunListener, SlotRecord
from controller.coordinator.reports import ReportedWork
from controller.coordinator.scripted_events import NodeDown, NodeUp
from controller.coordinator.time_slot_clock import SlotClock, change_schedule, change_steps, gates_around, gates_with
from controller.coordinator.timeline import Timeline
from controller.host.condition import Condition
from controller.simulation.virtual_loop import run_in_virtual_time
from scheduler.problem import CommunicationSchedule

ONE, TWO, THREE = Slot("n1", 0), Slot("n2", 0), Slot("n3", 0)
GATES = Gates(nodes=("n1", "n2"), steps=((0, 1), (1, 0), (None, None)), stages=2, part_tuples=8)
ASSIGNMENT = {"a[0]": ONE, "b[0]": TWO}
TO_N1, TO_N3 = MoveToPlace("b[0]", ONE), MoveToPlace("b[0]", THREE)


def schedule(*nodes: str) -> CommunicationSchedule:
    size = len(nodes)
    steps = tuple(tuple((step + at) % size for at in range(size)) for step in range(size))
    return CommunicationSchedule(nodes, steps, 1)


def test_a_node_joins_before_executors_come_and_leaves_after_they_have_gone() -> None:
    joined, left = schedule("n1", "n2", "n3"), schedule("n1")
    assert change_steps([(TO_N3,)], joined, GATES, ASSIGNMENT) == [gates_with(GATES, joined), (TO_N3,)]
    assert change_steps([(TO_N1,)], left, GATES, ASSIGNMENT) == [(TO_N1,), gates_with(GATES, left)]
    assert gates_with(GATES, left) == Gates(nodes=("n1",), steps=((0,),), stages=1, part_tuples=8)


def test_other_numbers_of_executors_come_between_a_node_that_joins_and_one_that_leaves() -> None:
    joined, left = schedule("n1", "n2", "n3"), schedule("n1")
    assert gates_around(joined, GATES, ASSIGNMENT, {**ASSIGNMENT, "b[1]": THREE}) == (gates_with(GATES, joined), None)
    assert gates_around(left, GATES, ASSIGNMENT, {"a[0]": ONE}) == (None, gates_with(GATES, left))
    assert gates_around(None, GATES, ASSIGNMENT, {"a[0]": ONE}) == (None, None)
    with pytest.raises(AbandonedError, match=r"^the communication schedule has no node n3$"):
        gates_around(schedule("n1", "n2"), GATES, ASSIGNMENT, {**ASSIGNMENT, "b[1]": THREE})


def test_nodes_that_join_and_leave_at_once_are_refused() -> None:
    with pytest.raises(AbandonedError, match=r"at once: n3 joins, n2 leaves$"):
        change_steps([(TO_N3,)], schedule("n1", "n3"), GATES, ASSIGNMENT)
    with pytest.raises(AbandonedError, match=r"^the communication schedule has no node n2$"):
        change_steps([], schedule("n1"), GATES, ASSIGNMENT)


def test_steps_that_change_nothing_are_left_out() -> None:
    present = CommunicationSchedule(GATES.nodes, GATES.steps, GATES.stages)
    assert change_steps([(TO_N1,), (MoveToPlace("a[0]", ONE),)], present, GATES, ASSIGNMENT) == [(TO_N1,)]
    assert change_steps([(TO_N1,)], schedule("n1"), None, ASSIGNMENT) == [(TO_N1,)]


class ClockHarness:
    """Slot clock, and workers that finish every time slot at once."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.records: list[SlotRecord] = []
        self.events: list[tuple[str, str, str, float | None]] = []
        environment: Any = SimpleNamespace(send=self._send, supply=self._supply, offset=lambda _node: Offset(0, 0))
        spec = replace(spec_of(PLACES), gates=GATES)
        self.environment = environment
        self.workers = EpochWorkers(spec, environment, Condition(), ReportedWork(), lambda _node, _why: None)
        self.workers.nodes |= {"n1", "n2"}
        self.workers.ports |= {ONE: 1, TWO: 1}
        self.clock = SlotClock(self.workers, GATES, self.records.append)
        self.log = EventLog(lambda *event: self.events.append(event))

    async def _supply(self, _node: str) -> None:
        pass

    async def _send(self, node: str, message: Message) -> None:
        if node == "n1" or isinstance(message, Grow):
            self.sent.append(message)
        if isinstance(message, TimeSlot):
            done = SlotDone(epoch=1, slot=0, number=message.number, sent=0, received=0)
            self.workers.handle_report(node, done)
        if isinstance(message, Grow):
            self.workers.ports[THREE] = 1


def test_a_schedule_changes_at_a_round_boundary_and_begins_with_its_slot_0() -> None:
    async def run() -> ClockHarness:
        harness = ClockHarness()
        running = asyncio.create_task(harness.clock.run())
        while len(harness.records) < 4:
            await asyncio.sleep(0.0001)
        new = gates_with(GATES, replace(schedule("n2", "n1"), stages=2))
        await change_schedule(harness.workers, new, harness.log)
        assert harness.workers.spec.gates == new
        while len(harness.records) < 11:
            await asyncio.sleep(0.0001)
        running.cancel()
        return harness

    harness = run_in_virtual_time(run())
    (change,) = (at for at, message in enumerate(harness.sent) if isinstance(message, Schedule))
    (first, following) = harness.sent[change], harness.sent[change + 1]
    assert isinstance(first, Schedule)
    assert (first.first, first.gates.nodes) == (6, ("n2", "n1"))
    assert following == TimeSlot(epoch=1, number=6)
    steps = [record.steps for record in harness.records]
    assert steps[:10] == ["0 -", "1 0", "2 1", "0 2", "1 0", "2 1", "0 -", "1 0", "0 1", "1 0"]
    assert [record.number for record in harness.records] == list(range(len(steps)))
    ((kind, subject, detail, took_s),) = harness.events
    assert (kind, subject, detail) == ("schedule", "6", "nodes=n2,n1 steps=2 stages=2")
    assert took_s is not None
    assert 0 < took_s < 0.01


def test_a_worker_that_joins_later_gets_the_first_slot_of_the_schedule() -> None:
    async def run() -> ClockHarness:
        harness = ClockHarness()
        harness.workers.follow(gates_with(GATES, schedule("n1", "n2", "n3")), 42)
        harness.workers.nodes.add("n3")
        await _grow(harness.workers, [THREE], 0, harness.environment)
        return harness

    (grow,) = run_in_virtual_time(run()).sent
    assert isinstance(grow, Grow)
    assert grow.first_slot == 42
    assert grow.spec.gates == gates_with(GATES, schedule("n1", "n2", "n3"))


@pytest.mark.parametrize("first", ["done", "broken"])
def test_nodes_that_come_and_go_change_the_schedule_of_a_static_run(first: str) -> None:
    excluded: list[set[str]] = []
    carried: list[tuple[Sequence[Any], CommunicationSchedule | None]] = []
    spec = replace(spec_of({"spout[0]": ONE, "mid[0]": ONE, "sink[0]": ONE}), gates=GATES)
    membership: Any = SimpleNamespace(withheld={"n3"}, lost=set())

    async def make_schedule(_places: Mapping[str, Slot], away: Set[str]) -> CommunicationSchedule:
        excluded.append(set(away))
        return schedule(*sorted({"n1", "n2", "n3"} - away))

    async def carry(_revision: int | None, waves: Any, new_schedule: Any = None, _scaling: object = None) -> Carried:
        carried.append((waves, new_schedule))
        return Carried(first if len(carried) == 1 else "done")  # type: ignore[arg-type]

    async def run() -> None:
        environment: Any = SimpleNamespace(drain=lambda _places, _away: (), schedule=make_schedule)
        events = [NodeUp(1, "n3"), NodeDown(5, "n2")]
        log = EventLog(lambda *_event: None)
        timeline = Timeline(events, environment, membership, log, RunListener(), lambda: spec, carry, drains=True)

        async def started() -> int:
            return 0

        running = asyncio.create_task(timeline.run(started))
        await asyncio.sleep(10)
        running.cancel()

    run_in_virtual_time(run())
    tries = 2 if first == "broken" else 1
    assert excluded == [set()] * tries + [{"n2"}]
    assert carried == [([], schedule("n1", "n2", "n3"))] * tries + [([], schedule("n1", "n3"))]
