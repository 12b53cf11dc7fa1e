"""The slot clock of a run with gates: one time slot after the other, the same on all nodes.

A time slot begins with a word to all workers, which let go what may leave and say what that was. It is over when every
worker has said so and all rows that have left have come to their end (`agents.worker.task_graph.time_slots`). Then the
next one begins, idle or not, until the topology has drained.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from itertools import count

from agents.protocol import Gates, Place, SlotDone, TimeSlot
from controller.coordinator.epoch_workers import EpochWorkers, listed
from controller.coordinator.interfaces import SlotRecord
from inventory.errors import RunError
from workloads.rates import NS

SLOT_S = 120.0
"""How long a time slot may take before the run is given up."""

LAST_S = 1.0
"""How long the last time slot is waited for; a run whose answer is complete does not fail for its report."""

MOST_NS = 2**63 - 1

IDLE_S = 0.002
"""How long a time slot in which nothing leaves lasts at least, so that a clock without work costs little."""


class SlotClock:
    """The clock of one epoch; its slots begin at 0."""

    def __init__(self, epoch_workers: EpochWorkers, gates: Gates, note: Callable[[SlotRecord], None]) -> None:
        """Prepare it; `note` takes every slot that is over."""
        self._epoch_workers, self._gates, self._note = epoch_workers, gates, note
        self._sent = 0
        self._noted = asyncio.Event()

    async def run(self) -> None:
        """Never return.

        Raises:
            RunError: a time slot takes too long.
        """
        clock = asyncio.get_running_loop().time
        for number in count():
            begun = clock()
            self._noted.clear()
            # Whoever listens hears of the slot; a worker that is about to be, for a move, is in the next.
            workers = set(self._epoch_workers.ports)
            await self._epoch_workers.tell(TimeSlot(epoch=self._epoch_workers.spec.epoch, number=number))
            if not await self._epoch_workers.within(SLOT_S, lambda: self._is_over(number, workers)):  # noqa: B023 - not kept
                raise RunError(f"time slot {number} was not over within {SLOT_S:.0f} s; {self._why(number, workers)}")
            record = self._record(number, round((clock() - begun) * NS))
            self._note(record)
            self._noted.set()
            if not record.parts:
                await asyncio.sleep(begun + IDLE_S - clock())

    async def last(self) -> None:
        """Wait until the time slot that is under way has been noted: the last rows may have left in it."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._noted.wait(), LAST_S)

    def _is_over(self, number: int, workers: Collection[Place]) -> bool:
        said = self._epoch_workers.slots
        if any(place not in said or said[place].number != number for place in workers):
            return False
        return self._on_the_way == 0

    @property
    def _on_the_way(self) -> int:
        return sum(done.sent - done.received for done in self._epoch_workers.slots.values())

    def _why(self, number: int, workers: Collection[Place]) -> str:
        said = self._epoch_workers.slots
        late = [place for place in workers if place not in said or said[place].number != number]
        return f"missing: {listed(late)}" if late else f"{self._on_the_way} rows have not come to their end"

    def _record(self, number: int, lasted_ns: int) -> SlotRecord:
        """What the workers say together."""
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
            steps=" ".join("-" if step is None else str(step) for step in self._gates.steps_in(number)),
            lasted_ns=lasted_ns,
            parts=parts.total(),
            tuples=self._sent - sent,
            largest_parts=largest,
            h_ns=h_ns,
            # Bounded as the table's columns are: nodes say both.
            stall_predicted_ns=None if h_ns is None else min(h_ns * max(0, largest - 1), MOST_NS),
            stall_ns=stall_ns,
            waiting=sum(each.waiting for each in done),
            largest_outbox=max((each.largest for each in done), default=0),
        )


def _times(done: Collection[SlotDone]) -> tuple[int | None, int | None]:
    """The time until every executor had processed one part, and the rest until the last one was; None without parts."""
    first = [each.first_ns for each in done if each.first_ns is not None]
    last = [each.last_ns for each in done if each.last_ns is not None]
    if not first or not last:
        return None, None
    return max(first), max(last) - max(first)
