"""Scripted events of an agenda, and what they are for one run."""

from collections.abc import Sequence
from itertools import groupby
from typing import Annotated

from msgspec import Meta, Struct

from agents.protocol import Slot
from campaign.agenda.cpu import CpuEntry
from controller.coordinator.scripted_events import (
    AskScheduler,
    KillAgent,
    KillWorker,
    MoveExecutors,
    MoveRequest,
    NodeDown,
    NodeUp,
    ScaleComponents,
    ScriptedEvent,
    SetCpu,
)
from inventory.documents import Located, to_plain
from inventory.values import Seconds, SomeSeconds
from workloads.rates import Constant, NonNegative, Rate, Steps
from workloads.scaling import MOST_SCALED


class WorkloadEvent(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="do"):
    """An event in the runs of a workload.

    Attributes:
        at_s: seconds from the start of the sources.
        workload: label of the workload; None for all workloads.
    """

    at_s: Seconds
    workload: str | None = None


class RateEvent(WorkloadEvent, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="rate"):
    """The rate of the workload changes to `tuples_per_s`."""

    tuples_per_s: NonNegative


class RunEvent(WorkloadEvent, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event in the runs of a workload under a scheduler.

    Attributes:
        scheduler: label of the scheduler; None for all schedulers.
    """

    scheduler: str | None = None


class MoveEvent(RunEvent, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="move"):
    """An executor moves while the topology runs.

    Attributes:
        executor: `component[index]`.
        to: `node`, or `node/slot`.
    """

    executor: str
    to: str


class NodeUpEvent(RunEvent, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="node_up"):
    """A node may be used; if this is its first event, it is not used before."""

    node: str


class NodeDownEvent(RunEvent, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="node_down"):
    """A node may not be used any longer: its executors leave, its agent keeps running."""

    node: str


class SetCpuEvent(RunEvent, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="set_cpu"):
    """CPU settings of a node change."""

    node: str
    settings: CpuEntry


class KillEvent(RunEvent, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="kill"):
    """A process is killed.

    Attributes:
        worker: the worker, as `node/slot`; or
        agent: the node of the agent.
        for_s: seconds within which the agent's node cannot return.
    """

    worker: str | None = None
    agent: str | None = None
    for_s: SomeSeconds | None = None


class ReviseEvent(RunEvent, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="revise"):
    """An online scheduler is asked, whenever it would be asked next."""


class ScaleEvent(RunEvent, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="scale"):
    """Components get another number of executors.

    Attributes:
        component: id of the component, or several.
        to: number of executors of each.
    """

    component: str | Annotated[tuple[str, ...], Meta(min_length=1)]
    to: Annotated[int, Meta(ge=1, le=MOST_SCALED)]

    @property
    def components(self) -> tuple[str, ...]:
        """The components."""
        return (self.component,) if isinstance(self.component, str) else self.component


Event = MoveEvent | RateEvent | NodeUpEvent | NodeDownEvent | SetCpuEvent | KillEvent | ReviseEvent | ScaleEvent
"""One entry of the timeline; `do` is its type."""


def events_in(timeline: Located[Sequence[Event]], label: str, scheduler: str) -> list[Located[Event]]:
    """Return the events of the runs of a workload under a scheduler, by their labels, in order of time."""
    mine = (
        Located(event, timeline.origin / number)
        for number, event in enumerate(timeline.value)
        if event.workload in (None, label) and (isinstance(event, RateEvent) or event.scheduler in (None, scheduler))
    )
    return sorted(mine, key=lambda located: located.value.at_s)


def scripted_events(events: Sequence[Located[Event]]) -> tuple[ScriptedEvent, ...]:
    """Return the checked events of a run, in order of time, without changes of rates; moves at a time are one event."""
    scripted: list[ScriptedEvent] = []
    for at_s, together in groupby((located.value for located in events), key=lambda event: event.at_s):
        due = list(together)
        if moves := tuple(move_request(event) for event in due if isinstance(event, MoveEvent)):
            scripted.append(MoveExecutors(at_s, moves))
        scripted += (other for event in due if (other := _scripted(event)) is not None)
    return tuple(scripted)


def _scripted(event: Event) -> ScriptedEvent | None:
    match event:
        case NodeUpEvent():
            return NodeUp(event.at_s, event.node)
        case NodeDownEvent():
            return NodeDown(event.at_s, event.node)
        case SetCpuEvent():
            return SetCpu(event.at_s, event.node, to_plain(event.settings))
        case KillEvent(worker=str(worker)):
            node, _, slot = worker.partition("/")
            return KillWorker(event.at_s, Slot(node, int(slot)))
        case KillEvent(agent=str(node)):
            return KillAgent(event.at_s, node, event.for_s or 0.0)
        case ReviseEvent():
            return AskScheduler(event.at_s)
        case ScaleEvent():
            return ScaleComponents(event.at_s, event.components, event.to)
    return None


def scripted_rate(rate: Rate, label: str, timeline: Located[Sequence[Event]]) -> Rate:
    """Return the rate of a workload with the changes that the timeline makes.

    Raises:
        InputError: the rate is neither constant nor of steps, changes twice at the same time, or ends in a pause.
    """
    changes = [
        Located(event, timeline.origin / number)
        for number, event in enumerate(timeline.value)
        if isinstance(event, RateEvent) and event.workload in (None, label)
    ]
    if not changes:
        return rate
    if isinstance(rate, Constant) and rate.load is not None:
        raise (changes[0].origin / "do").error(f"the rate of {label!r} is a load, which no event can change")
    steps = (
        {0.0: rate.peak_per_s} if isinstance(rate, Constant) else dict(rate.steps if isinstance(rate, Steps) else ())
    )
    if not steps:
        raise (changes[0].origin / "do").error(
            f"the rate of {label!r} is {type(rate).__struct_config__.tag!r}; only 'constant' and 'steps' can change"
        )
    for change in changes:
        at_s = change.value.at_s
        if at_s in steps:
            raise (change.origin / "at_s").error(f"the rate of {label!r} changes at {at_s:g} s already")
        steps[at_s] = change.value.tuples_per_s
    last = max(changes, key=lambda change: change.value.at_s)
    if steps[max(steps)] == 0:
        raise (last.origin / "tuples_per_s").error(f"the sources of {label!r} would never emit again")
    return Steps(tuple(sorted(steps.items())))


def move_request(event: MoveEvent) -> MoveRequest:
    """Return the move that an event requests."""
    node, given, slot = event.to.partition("/")
    return MoveRequest(event.executor, node, int(slot) if given else None)
