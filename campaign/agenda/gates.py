"""Communication schedules of an agenda: which runs follow one, and whether they can.

A schedule is part of the scheduler's plan, of a file, or of the agenda itself. In every round each node must have a
step in which it sends to each node, itself included; without one, its tuples would never be sent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from agents.protocol import Gates, Slot
from campaign.agenda.timeline import Event, MoveEvent, NodeUpEvent
from inventory.cluster import Cluster
from inventory.documents import Located, Origin, read
from inventory.errors import nearest
from scheduler.problem import CommunicationSchedule, Overlap
from workloads.topology import Topology

PART_TUPLES = 64


class ScheduleEntry(CommunicationSchedule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A communication schedule in an agenda, or in a file of its own (docs/reference/files.md)."""

    nodes: Annotated[tuple[str, ...], Meta(min_length=1)]
    steps: Annotated[tuple[tuple[int | None, ...], ...], Meta(min_length=1)]
    stages: Annotated[int, Meta(ge=1)] = 1


class GatesEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Runs of a scheduler follow a communication schedule: that of its plan, a file's, or this one.

    Without `overlap`, time slots overlap as the scheduler says.
    """

    part_tuples: Annotated[int, Meta(ge=1, le=1_000_000)] = PART_TUPLES
    schedule: str | ScheduleEntry | None = None
    overlap: Overlap | None = None


@dataclass(frozen=True)
class Gating:
    """The agenda's `gates` of one scheduler.

    Attributes:
        entry: the entry, with a file's name replaced by the file's content, and with `overlap`.
        origin: origin of the schedule; of the entry, if each placement has its own schedule.
    """

    entry: GatesEntry
    origin: Origin

    def gates(
        self, scheduler: str, topology: Topology, places: Mapping[str, Slot], own: CommunicationSchedule | None
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
        schedule = own
        stages = nodes = steps = self.origin
        if isinstance(self.entry.schedule, ScheduleEntry):
            schedule = self.entry.schedule
            stages, nodes, steps = (self.origin / key for key in ("stages", "nodes", "steps"))
        if schedule is None:
            raise self.origin.error(
                f"the scheduler {scheduler!r} gives no communication schedule; name a file with 'schedule', "
                "or leave 'gates' out",
            )
        if schedule.stages not in (1, max(1, topology.stages)):
            raise stages.error(
                f"got {schedule.stages}, but {topology.id!r} has {topology.stages} stages; "
                f"expected {topology.stages}, or 1 for one step in all of them",
            )
        for name, place in places.items():
            if place.node not in schedule.nodes:
                raise nodes.error(f"{place.node!r} is missing, where {scheduler!r} places {name}")
        unserved = schedule.unserved
        if unserved is not None:
            raise steps.error(f"{unserved[0]!r} has no step in which it sends to {unserved[1]!r}")
        return Gates(
            nodes=schedule.nodes,
            steps=schedule.steps,
            stages=schedule.stages,
            part_tuples=self.entry.part_tuples,
            overlap=self.entry.overlap or "none",
        )


def gating_of(located: Located[GatesEntry], cluster: Cluster, overlap: Overlap) -> Gating:
    """Read and check an entry of the agenda; a file's path is relative to the agenda's folder.

    Args:
        located: the entry.
        cluster: all nodes.
        overlap: how time slots overlap if the entry does not say.

    Raises:
        InputError: the file cannot be read, or its schedule does not fit this cluster.
    """
    entry, origin = located.value, located.origin
    entry = replace(entry, overlap=entry.overlap or overlap)
    if entry.schedule is None:
        return Gating(entry, origin)
    if isinstance(entry.schedule, ScheduleEntry):
        schedule, origin = entry.schedule, origin / "schedule"
    else:
        origin = read(Path(origin.source).parent / entry.schedule).origin
        schedule = origin.convert(ScheduleEntry)
    _check(schedule, cluster, origin)
    return Gating(replace(entry, schedule=schedule), origin)


def check_targets(events: Sequence[Located[Event]], scheduler: str, gates: Gates) -> None:
    """Check that the events of a run move executors only to nodes of its schedule, or of a later one.

    Raises:
        InputError: one does not.
    """
    nodes = {*gates.nodes, *(each.value.node for each in events if isinstance(each.value, NodeUpEvent))}
    for located in events:
        if isinstance(located.value, MoveEvent):
            node = located.value.to.partition("/")[0]
            if node not in nodes:
                raise (located.origin / "to").error(
                    f"the communication schedule under {scheduler} has no node {node!r}{nearest(node, nodes)}"
                )


def _check(schedule: CommunicationSchedule, cluster: Cluster, origin: Origin) -> None:
    nodes = schedule.nodes
    for at, node in enumerate(nodes):
        here = origin / "nodes" / at
        if node not in cluster.by_id:
            raise here.error(f"there is no node {node!r}{nearest(node, cluster.by_id)}")
        if nodes.index(node) != at:
            raise here.error(f"the node {node!r} is listed twice")
    for number, step in enumerate(schedule.steps):
        here = origin / "steps" / number
        if len(step) != len(nodes):
            raise here.error(f"got {len(step)} entries, expected {len(nodes)}, one per sending node")
        for sender, receiver in enumerate(step):
            if receiver is None:
                continue
            if not 0 <= receiver < len(nodes):
                raise (here / sender).error(
                    f"got {receiver}, expected the number of a node, 0 to {len(nodes) - 1}, or null"
                )
            if step.index(receiver) != sender:
                raise (here / sender).error(f"two nodes send to {nodes[receiver]!r} in step {number}")
