"""Changes of the communication schedule of a running topology, and the order of such a change and of moves.

A node that joins is in the schedule before executors move to it; a node that leaves is in it until they have left. The
change happens at a round boundary of the time slot clock (`controller.coordinator.time_slot_clock`).
"""

import asyncio
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from agents.protocol import Gates, MoveToPlace, Slot
from controller.coordinator.barrier import AbandonedError
from controller.coordinator.epoch_workers import EpochWorkers
from controller.coordinator.event_log import EventLog
from controller.coordinator.interfaces import Waves
from scheduler.problem import CommunicationSchedule


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
        schedule, gates: as for `steps_of`.
        places, after_places: executor -> its slot, before executors change and after that.

    Raises:
        AbandonedError: as for `steps_of`.
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
