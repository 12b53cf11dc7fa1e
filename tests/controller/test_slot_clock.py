"""Time slot clock: each time slot starts when all workers have finished the one before."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from simulated_runs import PLACES, spec_of

from agents.protocol import Gates, Message, Slot, SlotDone, TimeSlot
from controller.coordinator.epoch_workers import EpochWorkers
from controller.coordinator.interfaces import SlotRecord
from controller.coordinator.reports import ReportedWork
from controller.coordinator.time_slot_clock import IDLE_S, LAST_S, SLOT_S, SlotClock
from controller.host.condition import Condition
from controller.simulation.virtual_loop import run_in_virtual_time
from inventory.errors import RunError

GATES = Gates(nodes=("n1", "n2"), steps=((0, 1), (1, 0)), stages=2, part_tuples=8)
ONE, TWO = Slot("n1", 0), Slot("n2", 0)
LONG_S = 1.0


class ClockHarness:
    """Slot clock whose workers' reports are sent by the test."""

    def __init__(self, places: tuple[Slot, ...] = (ONE, TWO)) -> None:
        self.started_slots: list[int] = []
        self.records: list[SlotRecord] = []
        environment: Any = SimpleNamespace(send=self._send)
        self.workers = EpochWorkers(
            replace(spec_of(PLACES), gates=GATES), environment, Condition(), ReportedWork(), lambda _node, _why: None
        )
        self.workers.nodes |= {"n1", "n2"}
        self.workers.ports |= dict.fromkeys(places, 1)
        self.clock = SlotClock(self.workers, GATES, self.records.append)

    async def _send(self, node: str, message: Message) -> None:
        assert isinstance(message, TimeSlot)
        if node == "n1":
            self.started_slots.append(message.number)

    async def report(self, place: Slot, number: int, sent: int, received: int, **more: Any) -> None:
        """Send a worker's report, and wait until the clock has reacted."""
        done = SlotDone(epoch=1, slot=place.index, number=number, sent=sent, received=received, **more)
        self.workers.handle_report(place.node, done)
        await asyncio.sleep(2 * IDLE_S)


def run_scenario(
    scenario: Callable[[ClockHarness], Coroutine[Any, Any, None]],
    make_harness: Callable[[], ClockHarness] = ClockHarness,
) -> ClockHarness:
    async def run() -> ClockHarness:
        harness = make_harness()
        running = asyncio.create_task(harness.clock.run())
        await asyncio.sleep(2 * IDLE_S)
        await scenario(harness)
        if running.done():
            running.result()
        running.cancel()
        return harness

    return run_in_virtual_time(run())


def test_a_slot_is_over_when_all_workers_have_reported_and_all_rows_are_processed() -> None:
    async def scenario(harness: ClockHarness) -> None:
        assert harness.started_slots == [0]
        await harness.report(ONE, 0, sent=9, received=0)
        assert harness.started_slots == [0]
        await harness.report(TWO, 0, sent=0, received=4)
        assert harness.started_slots == [0]
        await harness.report(TWO, 0, sent=0, received=9)
        assert harness.started_slots == [0, 1]
        # Reports of the previous slot do not count for this one.
        await harness.report(ONE, 1, sent=9, received=0)
        await asyncio.sleep(LONG_S)
        assert harness.started_slots == [0, 1]
        await harness.report(TWO, 1, sent=0, received=9)
        assert harness.started_slots == [0, 1, 2]

    run_scenario(scenario)


def test_a_worker_that_listens_later_takes_part_from_the_next_slot_on() -> None:
    async def scenario(harness: ClockHarness) -> None:
        harness.workers.ports[TWO] = 1
        await harness.report(ONE, 0, sent=0, received=0)
        assert harness.started_slots == [0, 1]
        await harness.report(ONE, 1, sent=0, received=0)
        assert harness.started_slots == [0, 1]
        await harness.report(TWO, 1, sent=0, received=0)
        assert harness.started_slots == [0, 1, 2]

    run_scenario(scenario, lambda: ClockHarness((ONE,)))


def test_an_idle_slot_has_a_minimum_duration_and_a_busy_one_has_none() -> None:
    async def run() -> None:
        harness = ClockHarness((ONE,))
        running = asyncio.create_task(harness.clock.run())
        times: list[float] = []
        loop = asyncio.get_running_loop()
        for number, parts in enumerate([{}, {4: 1}, {}, {4: 1}]):
            while len(harness.started_slots) <= number:
                await asyncio.sleep(IDLE_S / 100)
            times.append(loop.time())
            rows = number + 1 if parts else number
            done = SlotDone(epoch=1, slot=0, number=number, sent=rows, received=rows, parts=parts)
            harness.workers.handle_report("n1", done)
        while len(harness.started_slots) < 5:
            await asyncio.sleep(IDLE_S / 100)
        times.append(loop.time())
        lasted = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert [seconds >= IDLE_S * 0.9 for seconds in lasted] == [True, False, True, False]
        running.cancel()

    run_in_virtual_time(run())


def test_a_record_has_the_parts_that_were_sent_and_the_stalls() -> None:
    async def scenario(harness: ClockHarness) -> None:
        one: dict[str, Any] = {"parts": {1: 2, 2: 1}, "waiting": 7, "largest": 4}
        await harness.report(ONE, 0, sent=20, received=0, arrived_ns=40, queued_rows=9, queued_bytes=900, **one)
        more: dict[str, Any] = {"parts": {1: 1, 77: 1}, "waiting": 6, "largest": 6, "first_ns": 100, "last_ns": 350}
        stages: dict[str, Any] = {"arrived_ns": 60, "packed_ns": 380, "queued_rows": 6, "queued_bytes": 10}
        await harness.report(TWO, 0, sent=5, received=25, **more, **stages)
        await harness.report(ONE, 1, sent=20, received=0)
        await harness.report(TWO, 1, sent=5, received=25)

    first, second = run_scenario(scenario).records
    assert first._replace(lasted_ns=0) == SlotRecord(
        epoch=1,
        number=0,
        steps="0 -",
        lasted_ns=0,
        parts=5,
        tuples=25,
        largest_parts=3,
        h_ns=100,
        stall_predicted_ns=200,
        stall_ns=250,
        waiting=13,
        largest_outbox=6,
        arrived_ns=60,
        processed_ns=350,
        packed_ns=380,
        queued_rows=15,
        queued_bytes=910,
        # Executors 1 and 2 are on n1 and n2; a number without an executor is ignored.
        node_parts="n1=3 n2=1",
    )
    assert first.lasted_ns > 0
    assert (second.number, second.steps, second.parts, second.tuples) == (1, "1 0", 0, 0)
    assert (second.arrived_ns, second.packed_ns, second.node_parts) == (None, None, "n1=0 n2=0")
    assert (second.h_ns, second.stall_predicted_ns, second.stall_ns) == (None, None, None)


@pytest.mark.parametrize(
    ("received", "message"),
    [
        (None, rf"^time slot 0 was not over within {SLOT_S:.0f} s; missing: n2/0$"),
        (3, r"; 6 rows have not been processed$"),
    ],
)
def test_a_slot_that_exceeds_its_timeout_fails_with_the_reason(received: int | None, message: str) -> None:
    async def scenario(harness: ClockHarness) -> None:
        await harness.report(ONE, 0, sent=9, received=0)
        if received is not None:
            await harness.report(TWO, 0, sent=0, received=received)
        await asyncio.sleep(SLOT_S + LONG_S)

    with pytest.raises(RunError, match=message):
        run_scenario(scenario)


def test_the_slot_of_the_last_rows_is_recorded_with_a_bounded_wait() -> None:
    async def scenario(harness: ClockHarness) -> None:
        waiting = asyncio.create_task(harness.clock.wait_for_last())
        await asyncio.sleep(LAST_S / 2)
        assert not waiting.done()
        await harness.report(ONE, 0, sent=9, received=0)
        await harness.report(TWO, 0, sent=0, received=9)
        assert waiting.done()
        assert [record.number for record in harness.records] == [0]
        await asyncio.wait_for(harness.clock.wait_for_last(), 2 * LAST_S)
        assert harness.started_slots == [0, 1]
        assert len(harness.records) == 1

    run_scenario(scenario)
