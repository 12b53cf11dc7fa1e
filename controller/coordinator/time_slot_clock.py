"""Time slot clock of a run with a communication schedule, and changes of that schedule.

Time slots follow each other, the same on all nodes. The controller starts each with a message to all workers; workers
then send the permitted rows and report them. A slot is over when every worker has reported and all sent rows have been
processed (`agents.worker.task_graph.time_slots`). The next one follows, idle or not, until the topology has drained.

Another schedule begins at a round boundary, with the number of a time slot that counts as its slot 0. A node that joins
is in the schedule before executors move to it; a node that leaves is in it until they have left.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import count

from msgspec.structs import replace

from agents.protocol import Gates, MoveToPlace, Schedule, Slot, SlotDone, TimeSlot
from controller.coordinator.barrier import AbandonedError
from controller.coordinator.epoch_workers import EpochWorkers, join_names
from controller.coordinator.event_log import EventLog
from controller.coordinator.interfaces import SlotRecord, Waves
from inventory.errors import RunError
from inventory.times import NS
from scheduler.problem import CommunicationSchedule

SLOT_S = 120.0
"""Timeout of a time slot; the run fails when it is exceeded."""

LAST_S = 1.0
"""Timeout for the record of the last time slot; a run whose answer is complete does not fail without it."""

MOST_NS = 2**63 - 1

IDLE_S = 0.002
"""Minimum length of a time slot in which no rows are sent, so that an idle clock costs little."""


class SlotClock:
    """Clock of one epoch; slots are numbered from 0."""

    def __init__(self, epoch_workers: EpochWorkers, gates: Gates, note: Callable[[SlotRecord], None]) -> None:
        """Prepare the clock; `note` records each completed slot."""
        self._epoch_workers, self._gates, self._note = epoch_workers, gates, note
        self._sent = 0
        self._node_of: dict[int, str] = {}
        self._noted = asyncio.Event()

    async def run(self) -> None:
        """Run slots until cancelled.

        Raises:
            RunError: a time slot exceeds `SLOT_S`.
        """
        clock = asyncio.get_running_loop().time
        for number in count():
            begin_s = clock()
            self._noted.clear()
            # Workers that listen take part in this slot; one that a move is just adding takes part in the next.
            workers = set(self._epoch_workers.ports)
            await self._change_schedule(number)
            await self._epoch_workers.send(TimeSlot(epoch=self._epoch_workers.spec.epoch, number=number))
            if not await self._epoch_workers.wait_within(SLOT_S, lambda: self._is_over(number, workers)):  # noqa: B023 - not kept
                raise RunError(
                    f"time slot {number} was not over within {SLOT_S:.0f} s; {self._missing(number, workers)}"
                )
            record = self._record(number, round((clock() - begin_s) * NS))
            self._note(record)
            self._noted.set()
            if not record.parts:
                await asyncio.sleep(begin_s + IDLE_S - clock())

    async def wait_for_last(self) -> None:
        """Wait until the current time slot has been recorded: the last rows may have been sent in it."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._noted.wait(), LAST_S)

    async def _change_schedule(self, number: int) -> None:
        """Follow the schedule that is due, if time slot `number` begins a round of the present one."""
        gates = self._epoch_workers.next_gates
        if gates is None or (number - self._epoch_workers.first_slot) % len(self._gates.steps):
            return
        await self._epoch_workers.send(Schedule(epoch=self._epoch_workers.spec.epoch, gates=gates, first=number))
        self._gates = gates
        self._epoch_workers.follow(gates, number)

    def _is_over(self, number: int, workers: Collection[Slot]) -> bool:
        reports = self._epoch_workers.slots
        if any(place not in reports or reports[place].number != number for place in workers):
            return False
        return self._in_flight == 0

    @property
    def _in_flight(self) -> int:
        return sum(done.sent - done.received for done in self._epoch_workers.slots.values())

    def _missing(self, number: int, workers: Collection[Slot]) -> str:
        reports = self._epoch_workers.slots
        late = [place for place in workers if place not in reports or reports[place].number != number]
        return f"missing: {join_names(late)}" if late else f"{self._in_flight} rows have not been processed"

    def _record(self, number: int, lasted_ns: int) -> SlotRecord:
        """Return the sum of the workers' reports."""
        done = list(self._epoch_workers.slots.values())
        parts: Counter[int] = Counter()
        for each in done:
            parts.update(each.parts)
        sent, self._sent = self._sent, sum(each.sent for each in done)
        largest = max(parts.values(), default=0)
        h_ns, stall_ns = _times(done)
        return SlotRecord(
            epoch=self._epoch_workers.spec.epoch,
            number=number,
            steps=" ".join(
                "-" if step is None else str(step)
                for step in self._gates.steps_in(number - self._epoch_workers.first_slot)
            ),
            lasted_ns=lasted_ns,
            parts=parts.total(),
            tuples=self._sent - sent,
            largest_parts=largest,
            h_ns=h_ns,
            # Bounded like the table's column: both factors come from nodes.
            stall_predicted_ns=None if h_ns is None else min(h_ns * max(0, largest - 1), MOST_NS),
            stall_ns=stall_ns,
            waiting=sum(each.waiting for each in done),
            largest_outbox=max((each.largest for each in done), default=0),
            # All rows may have arrived before their workers began the slot.
            arrived_ns=max((each.arrived_ns or 0 for each in done), default=0) if parts else None,
            processed_ns=_last(each.last_ns for each in done),
            packed_ns=_last(each.packed_ns for each in done),
            queued_rows=sum(each.queued_rows for each in done),
            queued_bytes=sum(each.queued_bytes for each in done),
            node_parts=self._parts_by_node(parts),
        )

    def _parts_by_node(self, parts: Mapping[int, int]) -> str:
        """Return the parts that each node of the schedule receives, as text."""
        spec = self._epoch_workers.spec
        # Old executors of a component that is being scaled may have received parts, too.
        self._node_of |= {number: entry.place.node for number, entry in zip(spec.numbered, spec.executors, strict=True)}
        times_on = dict.fromkeys(self._gates.nodes, 0)
        for number, times in parts.items():
            # Numbers come from nodes.
            node = self._node_of.get(number, "")
            if node in times_on:
                times_on[node] += times
        return " ".join(f"{node}={times}" for node, times in times_on.items())


def _last(times: Iterable[int | None]) -> int | None:
    """Return the latest of those that are known."""
    return max((each for each in times if each is not None), default=None)


def _times(done: Collection[SlotDone]) -> tuple[int | None, int | None]:
    """Return the time until every executor had processed one part, and the rest until the last part; None without."""
    first = [each.first_ns for each in done if each.first_ns is not None]
    last = [each.last_ns for each in done if each.last_ns is not None]
    if not first or not last:
        return None, None
    return max(first), max(last) - max(first)


def gates_with(gates: Gates, schedule: CommunicationSchedule) -> Gates:
    """Return the gates with another schedule."""
    return replace(gates, nodes=schedule.nodes, steps=schedule.steps, stages=schedule.stages)


def change_steps(
    waves: Waves, schedule: CommunicationSchedule | None, gates: Gates | None, places: Mapping[str, Slot]
) -> Sequence[tuple[MoveToPlace, ...] | Gates]:
    """Return waves of moves and, if it changes, the new schedule before or after all of them.

    Moves to the slots where executors have arrived since they were requested are left out.

    Args:
        waves: moves of each barrier.
        schedule: the new schedule, for executors after the moves; None: it does not change.
        gates: the present schedule; None: the run follows none.
        places: executor -> its slot now.

    Raises:
        AbandonedError: the new schedule lacks a node in use, or nodes join and leave at once.
    """
    left = (tuple(move for move in wave if places.get(move.executor) != move.to) for wave in waves)
    waves = [wave for wave in left if wave]
    moved = {**places, **{move.executor: move.to for wave in waves for move in wave}}
    first, last = gates_around(schedule, gates, places, moved)
    return [*([] if first is None else [first]), *waves, *([] if last is None else [last])]


def gates_around(
    schedule: CommunicationSchedule | None,
    gates: Gates | None,
    places: Mapping[str, Slot],
    after_places: Mapping[str, Slot],
) -> tuple[Gates | None, Gates | None]:
    """Return the gates that change before executors do, and those that change after them; None: none do.

    Args:
        schedule, gates: as for `change_steps`.
        places, after_places: executor -> its slot, before executors change and after that.

    Raises:
        AbandonedError: as for `change_steps`.
    """
    if schedule is None or gates is None or gates_with(gates, schedule) == gates:
        return None, None
    before, after = ({place.node for place in each.values()} for each in (places, after_places))
    lacking = after - set(schedule.nodes)
    if lacking:
        raise AbandonedError(f"the communication schedule has no node {', '.join(sorted(lacking))}")
    joining, leaving = after - set(gates.nodes), before - set(schedule.nodes)
    if joining and leaving:
        raise AbandonedError(
            f"nodes join and leave the communication schedule at once: {', '.join(sorted(joining))} joins, "
            f"{', '.join(sorted(leaving))} leaves"
        )
    new = gates_with(gates, schedule)
    return (new, None) if joining else (None, new)


async def change_schedule(epoch_workers: EpochWorkers, gates: Gates, event_log: EventLog) -> None:
    """Let all workers follow `gates` from the next round boundary on; return when they do."""
    clock = asyncio.get_running_loop().time
    begin_s = clock()
    epoch_workers.next_gates = gates
    await epoch_workers.condition.wait_until(None, lambda: epoch_workers.next_gates is None)
    event_log.scheduled(epoch_workers.first_slot, gates, clock() - begin_s)
