"""`given`: the placement in a file, such as one by `millrace place --json`, by another program or by hand.

The file is read once, when the scheduler is made: its parameters then have the placement itself, so that a campaign's
record and its bundle have it, too. Our decisions: executors that run already stay where they are; a topology without a
slot for each executor is not placed, since it was not placed in the file either.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from inventory.documents import Origin, read
from inventory.errors import InputError, ParameterError, nearest
from inventory.plugins import FilePath
from scheduler.problem import CommunicationSchedule, Needs, Placement, Plan, Problem, Slot, concluded
from scheduler.toolkit.slots import assigned, running, waiting
from workloads.topology import Executor, Topology


class GivenSlot(Struct, frozen=True, forbid_unknown_fields=True):
    """An executor and its slot."""

    executor: str
    node: str
    slot: int


class GivenTopology(Struct, frozen=True, forbid_unknown_fields=True):
    """The slots of a topology's executors."""

    assignments: tuple[GivenSlot, ...]


class GivenPlacement(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A placement in short: topologies by id, and the communication schedule and clocks that belong to it."""

    topologies: Annotated[Mapping[str, GivenTopology], Meta(min_length=1)]
    communication_schedule: CommunicationSchedule | None = None
    frequencies_hz: Mapping[str, int] = {}


class _PlacedTopology(Struct, frozen=True):
    """Part of a topology in the output of `millrace place --json` that is used."""

    assignments: tuple[GivenSlot, ...]


class _PlaceOutput(Struct, frozen=True):
    """Part of the output of `millrace place --json` that is used."""

    topologies: Mapping[str, _PlacedTopology]
    communication_schedule: CommunicationSchedule | None = None
    frequencies_hz: Mapping[str, int] = {}


@dataclass(frozen=True)
class GivenParams:
    """Parameters of `given`.

    Attributes:
        placement: the file: a placement by `millrace place --json`, or a short one; or the content of a short one.
    """

    placement: FilePath | GivenPlacement | None = None
    origin: ClassVar[Origin | None] = None
    """Position of the content of a file, for messages."""

    def __post_init__(self) -> None:
        """Read the file."""
        if isinstance(self.placement, str):
            if not Path(self.placement).is_file():
                raise ValueError(f"placement: there is no file {self.placement!r}")
            origin = read(self.placement).origin
            object.__setattr__(self, "origin", origin)
            object.__setattr__(self, "placement", _in_short(origin))


def _in_short(origin: Origin) -> GivenPlacement:
    """Return the placement of a file."""
    content = origin.plain
    if not isinstance(content, Mapping) or "scheduler" not in content:
        return origin.convert(GivenPlacement)
    output = origin.convert(_PlaceOutput)
    topologies = {name: GivenTopology(each.assignments) for name, each in output.topologies.items()}
    return GivenPlacement(topologies, output.communication_schedule, output.frequencies_hz)


class Given:
    """Takes every slot from a file."""

    name: ClassVar[str] = "given"
    paper: ClassVar[str] = "none: a placement from a file"
    needs: ClassVar[Needs] = Needs(cycles=True, ignores="everything but executors, slots and the file")
    Params: ClassVar[type] = GivenParams

    def __init__(self, params: GivenParams) -> None:
        self._given, self._origin = params.placement, params.origin

    def place(self, problem: Problem) -> Plan:
        """Place the topologies as the file does.

        Raises:
            InputError: there is no file, or a topology, executor, node or slot in it is unknown; the message names
                file, line, key, value and the nearest one.
        """
        given = self._given
        if not isinstance(given, GivenPlacement):
            raise InputError("the scheduler 'given' needs a placement; give one: params: {placement: FILE}")
        workers = running(problem)
        taken = {Slot(worker.node, worker.slot): worker.topology for worker in problem.existing}
        placements: dict[str, Placement] = {}
        for topology in problem.topologies:
            if topology.id not in given.topologies:
                words = f"there is no topology {topology.id!r}{nearest(topology.id, given.topologies)}"
                raise self._fault(("topologies",), words)
            given_slots = self._slots(problem, topology)
            placed = assigned(workers[topology.id])
            message = ""
            for executor in waiting(topology, workers[topology.id]):
                slot = given_slots.get(executor)
                reason = _why_not(problem, topology, slot, taken)
                if reason:
                    message = message or f"{executor.name}: {reason}"
                elif slot is not None:
                    placed[executor] = slot
            placements[topology.id] = concluded(topology, placed, message)
        return Plan(placements, schedule=given.communication_schedule, frequencies=dict(given.frequencies_hz))

    def _slots(self, problem: Problem, topology: Topology) -> Mapping[Executor, Slot]:
        """Return the slots that the file has for executors of a topology."""
        assert isinstance(self._given, GivenPlacement)  # noqa: S101 - checked by `place`
        nodes = problem.cluster.by_id
        slot_of: dict[Executor, Slot] = {}
        for at, each in enumerate(self._given.topologies[topology.id].assignments):
            here = ("topologies", topology.id, "assignments", at)
            if each.executor not in topology.executor_named:
                hint = nearest(each.executor, topology.executor_named)
                raise self._fault((*here, "executor"), f"unknown executor {each.executor!r}{hint}")
            if each.node not in nodes:
                raise self._fault((*here, "node"), f"unknown node {each.node!r}{nearest(each.node, nodes)}")
            slots = nodes[each.node].slots
            if not 0 <= each.slot < slots:
                raise self._fault((*here, "slot"), f"got {each.slot}, and {each.node!r} has {slots} slots")
            executor = topology.executor_named[each.executor]
            if executor in slot_of:
                raise self._fault((*here, "executor"), f"{each.executor!r} is listed twice")
            slot_of[executor] = Slot(each.node, each.slot)
        return slot_of

    def _fault(self, steps: tuple[str | int, ...], words: str) -> InputError:
        """Return the error about a value of the file, or of the parameter if it has the content of one."""
        if self._origin is None:
            return ParameterError(("placement", *steps), words)
        return reduce(Origin.__truediv__, steps, self._origin).error(words)


def _why_not(problem: Problem, topology: Topology, slot: Slot | None, taken: Mapping[Slot, str]) -> str:
    """Return why an executor cannot have its slot; empty if it can."""
    if slot is None:
        return "the placement has no slot for it"
    if not problem.cluster.by_id[slot.node].available:
        return f"node {slot.node!r} is not available"
    if taken.get(slot, topology.id) != topology.id:
        return f"slot {slot.index} of {slot.node!r} has a worker of {taken[slot]!r}"
    return ""
