"""Scripted events of an agenda: what happens to a run at which second, checked before anything is started."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Annotated

from msgspec import Meta, Struct

from agents.protocol import Place
from controller.coordinator.migrations import MovePlan, MoveRequest, chosen_slot
from inventory.cluster import Cluster
from inventory.documents import Document, Steps
from inventory.errors import nearest

Moment = Annotated[float, Meta(ge=0, le=366 * 24 * 3600)]


class MoveEvent(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="do", tag="move"):
    """An executor moves while the topology runs.

    Attributes:
        at_s: seconds from the start of the sources.
        executor: `component[index]`.
        to: `node`, or `node/slot`.
        workload: label of the only workload that is meant; None: all.
    """

    at_s: Moment
    executor: str
    to: str
    workload: str | None = None


Event = MoveEvent
"""One entry; told apart by `do`."""


def move_plans(events: Sequence[Event], label: str) -> tuple[MovePlan, ...]:
    """What the timeline asks of a workload, in order of time; moves of one moment form one plan."""
    mine = sorted((event for event in events if event.workload in (None, label)), key=lambda event: event.at_s)
    return tuple(
        MovePlan(at_s, tuple(_wish(event) for event in together))
        for at_s, together in groupby(mine, key=lambda event: event.at_s)
    )


def check_timeline(
    document: Document,
    events: Sequence[Event],
    ends_s: float,
    cluster: Cluster,
    placed: Mapping[tuple[str, str], Mapping[str, Place]],
) -> None:
    """Find out whether every event can come about, under every scheduler.

    Args:
        document: the agenda.
        events: its timeline.
        ends_s: when the sources stop.
        cluster: where executors can go.
        placed: (workload's label, scheduler) -> executor -> where it starts.

    Raises:
        InputError: an event is too late, an executor, a node, a slot or a workload does not exist, a node is not
            available, an executor is already where it is to go, or is asked to go to two places at once.
    """
    labels = {label for label, _ in placed}
    for number, event in enumerate(events):
        here: Steps = ("timeline", number)
        if "do" not in document.value(here):
            raise document.error(here, "the key 'do' is missing")
        if event.at_s >= ends_s:
            raise document.error((*here, "at_s"), f"the sources stop at {ends_s:g} s, before {event.at_s:g} s")
        if event.workload is not None and event.workload not in labels:
            hint = nearest(event.workload, labels)
            raise document.error((*here, "workload"), f"the agenda has no workload {event.workload!r}{hint}")
        _check_target(document, (*here, "to"), event.to, cluster)
    for (label, scheduler), places in placed.items():
        mine = [(n, event) for n, event in enumerate(events) if event.workload in (None, label)]
        _check_moves(document, mine, f"{label} under {scheduler}", places)


def _check_target(document: Document, steps: Steps, target: str, cluster: Cluster) -> None:
    node_id, given, slot = target.partition("/")
    nodes = {node.id: node for node in cluster.available}
    if node_id not in nodes:
        raise document.error(steps, f"there is no available node {node_id!r}{nearest(node_id, nodes)}")
    slots = nodes[node_id].slots
    if given and not (slot.isdecimal() and int(slot) < slots):
        raise document.error(steps, f"node {node_id!r} has no slot {slot!r}{nearest(slot, map(str, range(slots)))}")
    if not slots:
        raise document.error(steps, f"node {node_id!r} has no slots")


def _check_moves(
    document: Document, events: Iterable[tuple[int, Event]], run: str, places: Mapping[str, Place]
) -> None:
    """Follow the executors of one run through the timeline."""
    now = dict(places)
    workers = set(places.values())
    for _, together in _by_time(events):
        moved: dict[str, Place] = {}
        for number, event in together:
            here: Steps = ("timeline", number)
            if event.executor not in now:
                hint = nearest(event.executor, now)
                raise document.error((*here, "executor"), f"{run} has no executor {event.executor!r}{hint}")
            if event.executor in moved:
                raise document.error((*here, "executor"), f"{event.executor} is moved twice at {event.at_s:g} s")
            wish, place = _wish(event), now[event.executor]
            if wish.is_met_by(place):
                there = f"{place.node}/{place.slot}"
                raise document.error(
                    (*here, "to"), f"in {run}, {event.executor} is on {there} already at {event.at_s:g} s"
                )
            slot = chosen_slot(wish.node, workers) if wish.slot is None else wish.slot
            moved[event.executor] = Place(wish.node, slot)
        now |= moved
        workers |= set(moved.values())


def _by_time(events: Iterable[tuple[int, Event]]) -> Iterator[tuple[float, Iterator[tuple[int, Event]]]]:
    return groupby(sorted(events, key=lambda entry: entry[1].at_s), key=lambda entry: entry[1].at_s)


def _wish(event: MoveEvent) -> MoveRequest:
    node, given, slot = event.to.partition("/")
    return MoveRequest(event.executor, node, int(slot) if given else None)
