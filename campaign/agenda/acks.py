"""Acknowledgements of an agenda (`acks: true`): which campaigns can have them."""

from collections.abc import Sequence

from campaign.agenda.agenda import Agenda
from campaign.agenda.timeline import Event, KillEvent, RateEvent, SetCpuEvent
from inventory.documents import Origin
from workloads.columns import ColumnBolt, ColumnSpout
from workloads.topology import ACKER, Topology
from workloads.workload import Workload

POSSIBLE_EVENTS = (RateEvent, KillEvent, SetCpuEvent)
"""Events that leave executors where they are, other than by a recovery."""


def check_acks(agenda: Agenda, origin: Origin) -> None:
    """Check that nothing else in an agenda prevents acknowledgements.

    Args:
        agenda: the agenda.
        origin: its origin.

    Raises:
        InputError: executors would move, runs follow a communication schedule, or there is a profile.
    """
    here = origin / "acks"
    for label, entry in zip(agenda.scheduler_labels, agenda.schedulers, strict=True):
        if isinstance(entry, str):
            continue
        if entry.gates is not None:
            raise here.error(
                f"runs of {label!r} have gates, whose schedules have no step for acknowledgements; "
                "leave 'gates' or 'acks' out"
            )
        if entry.online is not None:
            raise here.error(
                f"runs of {label!r} are online, and executors whose rows are acknowledged cannot move; "
                "leave 'online' or 'acks' out"
            )
    if agenda.profile is not None:
        raise here.error(
            "a profile measures the traffic of a topology without acknowledgements; leave 'profile' or 'acks' out"
        )
    _check_events(agenda.timeline, origin)


def _check_events(timeline: Sequence[Event], origin: Origin) -> None:
    for at, event in enumerate(timeline):
        if not isinstance(event, POSSIBLE_EVENTS):
            tag = event.__struct_config__.tag
            raise (origin / "timeline" / at / "do").error(
                f"{tag!r} moves executors, which is not possible with acks: true; expected rate, kill or set_cpu"
            )


def check_acknowledging(label: str, workload: Workload, topology: Topology, origin: Origin) -> None:
    """Check that the rows of a workload can be acknowledged.

    Args:
        label: of the workload.
        workload, topology: the workload and its topology.
        origin: origin of its entry in the agenda.

    Raises:
        InputError: it has no ackers, or operators that process columns.
    """
    if ACKER not in topology.component:
        has_parameter = hasattr(workload.params, "ackers")
        hint = "give its parameter 'ackers' 1 or more" if has_parameter else f"add {ACKER} to its topology"
        raise origin.error(f"acks: true, but {label!r} has no ackers; {hint}")
    for component in topology.components:
        if component.id != ACKER and isinstance(workload.operator(component.id), ColumnBolt | ColumnSpout):
            raise origin.error(
                f"acks: true, but {component.id!r} of {label!r} processes columns, which carry no ids of rows; "
                "use a workload of rows (api: rows)"
            )
