"""Communication schedules of an agenda: which runs follow one, and whether they can.

A schedule is part of the scheduler's plan, of a file, or of the agenda itself. In every round each node must have a
step in which it sends to each node, itself included; without one, its tuples would never be sent.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from agents.protocol import Gates, Place
from campaign.agenda.timeline import Event
from inventory.cluster import Cluster
from inventory.documents import Document, Steps, read
from inventory.errors import InputError, nearest
from scheduler.problem import CommunicationSchedule
from workloads.topology import Topology

PART_TUPLES = 64


class Schedule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Per step and sending node, the index of the receiving node or null (docs/reference/files.md)."""

    nodes: Annotated[tuple[str, ...], Meta(min_length=1)]
    steps: Annotated[tuple[tuple[int | None, ...], ...], Meta(min_length=1)]
    stages: Annotated[int, Meta(ge=1)] = 1


class GatesEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Runs of a scheduler follow a communication schedule: that of its plan, a file's, or this one."""

    part_tuples: Annotated[int, Meta(ge=1, le=1_000_000)] = PART_TUPLES
    schedule: str | Schedule | None = None


@dataclass(frozen=True)
class Gating:
    """The agenda's `gates` of one scheduler.

    Attributes:
        entry: the entry, with a file's name replaced by the file's content.
        error: makes an error for a key of the schedule, with its place in the file.
    """

    entry: GatesEntry
    error: Callable[[Steps, str], InputError]

    def gates(
        self, scheduler: str, topology: Topology, places: Mapping[str, Place], own: CommunicationSchedule | None
    ) -> Gates:
        """Return the gates of a run.

        Args:
            scheduler: name of the scheduler.
            topology: the topology that runs.
            places: executor's name -> worker.
            own: the schedule of this placement.

        Raises:
            InputError: there is no schedule, or it does not fit.
        """
        schedule: Schedule | CommunicationSchedule | None = own
        if isinstance(self.entry.schedule, Schedule):
            schedule = self.entry.schedule
        if schedule is None:
            raise self.error(
                (),
                f"the scheduler {scheduler!r} gives no communication schedule; name a file with 'schedule', "
                "or leave 'gates' out",
            )
        if schedule.stages not in (1, max(1, topology.stages)):
            raise self.error(
                ("stages",),
                f"got {schedule.stages}, but {topology.id!r} has {topology.stages} stages; "
                f"expected {topology.stages}, or 1 for one step in all of them",
            )
        for name, place in places.items():
            if place.node not in schedule.nodes:
                raise self.error(("nodes",), f"{place.node!r} is missing, where {scheduler!r} places {name}")
        unserved = _unserved(schedule)
        if unserved is not None:
            raise self.error(("steps",), f"{unserved[0]!r} has no step in which it sends to {unserved[1]!r}")
        return Gates(
            nodes=schedule.nodes, steps=schedule.steps, stages=schedule.stages, part_tuples=self.entry.part_tuples
        )


def gating_of(document: Document, steps: Steps, entry: GatesEntry, cluster: Cluster) -> Gating:
    """Read and check the entry at `steps` of the agenda; a file's path is relative to the agenda's folder.

    Raises:
        InputError: the file cannot be read, or its schedule does not fit this cluster.
    """
    if entry.schedule is None:
        return Gating(entry, lambda _, message: document.error(steps, message))
    if isinstance(entry.schedule, Schedule):
        where, under, schedule = document, (*steps, "schedule"), entry.schedule
    else:
        where, under = read(Path(document.source).parent / entry.schedule), ()
        schedule = where.convert(Schedule)

    def error(inside: Steps, message: str) -> InputError:
        return where.error((*under, *inside), message)

    _check(schedule, cluster, error)
    return Gating(GatesEntry(part_tuples=entry.part_tuples, schedule=schedule), error)


def check_targets(document: Document, events: Sequence[Event], label: str, scheduler: str, gates: Gates) -> None:
    """Check that executors move only to nodes of the communication schedule.

    Raises:
        InputError: one does not.
    """
    for number, event in enumerate(events):
        node = event.to.partition("/")[0]
        if event.workload in (None, label) and node not in gates.nodes:
            hint = nearest(node, gates.nodes)
            raise document.error(
                ("timeline", number, "to"), f"the communication schedule under {scheduler} has no node {node!r}{hint}"
            )


def _check(schedule: Schedule, cluster: Cluster, error: Callable[[Steps, str], InputError]) -> None:
    nodes = schedule.nodes
    for at, node in enumerate(nodes):
        if node not in cluster.by_id:
            raise error(("nodes", at), f"there is no node {node!r}{nearest(node, cluster.by_id)}")
        if nodes.index(node) != at:
            raise error(("nodes", at), f"the node {node!r} is listed twice")
    for number, step in enumerate(schedule.steps):
        if len(step) != len(nodes):
            raise error(("steps", number), f"got {len(step)} entries, expected {len(nodes)}, one per sending node")
        for sender, receiver in enumerate(step):
            if receiver is None:
                continue
            here: Steps = ("steps", number, sender)
            if not 0 <= receiver < len(nodes):
                raise error(here, f"got {receiver}, expected the number of a node, 0 to {len(nodes) - 1}, or null")
            if step.index(receiver) != sender:
                raise error(here, f"two nodes send to {nodes[receiver]!r} in step {number}")


def _unserved(schedule: Schedule | CommunicationSchedule) -> tuple[str, str] | None:
    """Return a pair of nodes without a step in which the first sends to the second."""
    served = {(sender, receiver) for step in schedule.steps for sender, receiver in enumerate(step)}
    for sender, source in enumerate(schedule.nodes):
        for receiver, target in enumerate(schedule.nodes):
            if (sender, receiver) not in served:
                return source, target
    return None
