"""Checks of an agenda's timeline, before anything is started: of every event, and of the events of each run."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from agents.cpu.request import CpuRequest
from campaign.agenda.cpu import ByNode, check_own_machines
from campaign.agenda.online import OnlineRun
from campaign.agenda.timeline import (
    Event,
    KillEvent,
    MoveEvent,
    NodeDownEvent,
    NodeUpEvent,
    RateEvent,
    ReviseEvent,
    ScaleEvent,
    SetCpuEvent,
    events_in,
    scripted_events,
)
from controller.coordinator.scripted_events import withheld_nodes
from inventory.cluster import Cluster
from inventory.documents import Located, Origin, to_plain
from inventory.errors import nearest
from workloads.scaling import resized
from workloads.topology import Topology


@dataclass(frozen=True)
class TimelineContext:
    """Properties of a campaign that a timeline is checked against.

    Attributes:
        ends_s: second at which the sources stop.
        cluster: nodes and slots.
        topologies: workload's label -> its topology at the start.
        why_fixed: returns why the component of a workload, given by its label, keeps its number of executors; empty if
            it does not.
        schedulers: labels of all schedulers.
        online: label of a scheduler -> what makes its runs online.
        scheduled: labels of schedulers whose runs follow a communication schedule of the agenda, which does not change.
        cpus: label of CPU settings -> settings of each node at the start.
    """

    ends_s: float
    cluster: Cluster
    topologies: Mapping[str, Topology]
    why_fixed: Callable[[str, str], str]
    schedulers: Collection[str]
    online: Mapping[str, OnlineRun]
    scheduled: Collection[str]
    cpus: Mapping[str, ByNode]


def check_timeline(timeline: Located[Sequence[Event]], campaign: TimelineContext) -> None:
    """Check that every event is possible in every run to which it belongs.

    Raises:
        InputError: an event is too late, or impossible; an executor, component, node, slot, worker, workload or
            scheduler does not exist; an executor has two moves at the same time; no node would be left; a component
            cannot be scaled, or has that number of executors already.
        UnfitError: CPUs of nodes that share a machine cannot be set.
    """
    for number, event in enumerate(timeline.value):
        _check_event(event, timeline.origin / number, campaign)
    for label, topology in campaign.topologies.items():
        for scheduler in campaign.schedulers:
            events = events_in(timeline, label, scheduler)
            run = f"{label} under {scheduler}"
            sizes = _check_scalings(events, run, topology, partial(campaign.why_fixed, label))
            _check_moves(events, run, topology, sizes)
            _check_nodes(events, run, campaign.cluster)
            _check_cpus(events, campaign.cpus)
            for located in events:
                _check_change(located, scheduler, campaign)


def _check_event(event: Event, here: Origin, campaign: TimelineContext) -> None:
    """Check what is the same in all runs."""
    cluster = campaign.cluster
    if event.at_s >= campaign.ends_s:
        raise (here / "at_s").error(f"the sources stop at {campaign.ends_s:g} s, before {event.at_s:g} s")
    _check_label(here, "workload", event.workload, campaign.topologies)
    if not isinstance(event, RateEvent):
        _check_label(here, "scheduler", event.scheduler, campaign.schedulers)
    match event:
        case MoveEvent():
            _check_slot(here / "to", event.to, cluster)
        case NodeUpEvent() | NodeDownEvent():
            _check_node(here / "node", event.node, cluster)
        case SetCpuEvent():
            _check_node(here / "node", event.node, cluster)
            if not to_plain(event.settings):
                raise (here / "settings").error("has no setting")
            check_own_machines({event.node}, cluster, here / "node", "an agenda without 'set_cpu'")
        case KillEvent():
            _check_kill(event, here, cluster)
        case ReviseEvent():
            asked = campaign.schedulers if event.scheduler is None else [event.scheduler]
            if not campaign.online.keys() & set(asked):
                raise here.error(f"none of these schedulers has 'online': {', '.join(asked)}")


def _check_kill(event: KillEvent, here: Origin, cluster: Cluster) -> None:
    if (event.worker is None) == (event.agent is None):
        raise here.error("give 'worker' or 'agent'")
    if event.worker is not None:
        if event.for_s is not None:
            raise (here / "for_s").error("a worker starts again at once; 'for_s' belongs to 'agent'")
        if "/" not in event.worker:
            raise (here / "worker").error(f"got {event.worker!r}, expected a worker: node/slot")
        _check_slot(here / "worker", event.worker, cluster)
    if event.agent is not None:
        _check_node(here / "agent", event.agent, cluster)


def _check_label(here: Origin, key: str, label: str | None, known: Collection[str]) -> None:
    if label is not None and label not in known:
        raise (here / key).error(f"the agenda has no {key} {label!r}{nearest(label, known)}")


def _check_node(origin: Origin, node: str, cluster: Cluster) -> None:
    nodes = {each.id for each in cluster.available}
    if node not in nodes:
        raise origin.error(f"there is no available node {node!r}{nearest(node, nodes)}")


def _check_slot(origin: Origin, target: str, cluster: Cluster) -> None:
    """Check a target `node` or `node/slot`."""
    node, given, slot = target.partition("/")
    _check_node(origin, node, cluster)
    slots = cluster.by_id[node].slots
    if given and not (slot.isdecimal() and int(slot) < slots):
        raise origin.error(f"node {node!r} has no slot {slot!r}{nearest(slot, map(str, range(slots)))}")
    if not slots:
        raise origin.error(f"node {node!r} has no slots")


def _check_scalings(
    events: Sequence[Located[Event]], run: str, topology: Topology, why_fixed: Callable[[str], str]
) -> list[tuple[float, Mapping[str, int]]]:
    """Return the numbers of executors over time: (begin, component -> number)."""
    sizes = {component.id: component.parallelism for component in topology.components}
    sizes_from: list[tuple[float, Mapping[str, int]]] = [(0.0, sizes)]
    for located in events:
        event, here = located.value, located.origin / "component"
        if not isinstance(event, ScaleEvent):
            continue
        for at, component in enumerate(event.components):
            spot = here if isinstance(event.component, str) else here / at
            if component not in sizes:
                raise spot.error(f"{run} has no component {component!r}{nearest(component, sizes)}")
            if component in event.components[:at]:
                raise spot.error(f"{component!r} is listed twice")
            if reason := why_fixed(component):
                raise spot.error(f"in {run}, {component!r} keeps its number of executors: {reason}")
            if sizes[component] == event.to:
                raise (located.origin / "to").error(
                    f"in {run}, at {event.at_s:g} s, {component!r} has {event.to} executors already"
                )
        sizes = {**sizes, **dict.fromkeys(event.components, event.to)}
        sizes_from.append((event.at_s, sizes))
    return sizes_from


def _check_moves(
    events: Sequence[Located[Event]], run: str, topology: Topology, sizes: Sequence[tuple[float, Mapping[str, int]]]
) -> None:
    moves = [(each.value, each.origin) for each in events if isinstance(each.value, MoveEvent)]
    for at_s, together in groupby(moves, key=lambda move: move[0].at_s):
        moved: set[str] = set()
        now = next(current for begin_s, current in reversed(sizes) if begin_s < at_s or begin_s == 0)
        executors = resized(topology, now).executor_named
        for event, here in together:
            if event.executor not in executors:
                hint = nearest(event.executor, executors)
                raise (here / "executor").error(f"{run} has no executor {event.executor!r}{hint}")
            if event.executor in moved:
                raise (here / "executor").error(f"{event.executor} is moved twice at {at_s:g} s")
            moved.add(event.executor)


def _check_nodes(events: Sequence[Located[Event]], run: str, cluster: Cluster) -> None:
    """Check which nodes are up when events need them, in order of time."""
    slots = {node.id: node.slots for node in cluster.available}
    withheld = withheld_nodes(scripted_events(events))
    up = slots.keys() - withheld
    if withheld and not any(slots[node] for node in up):
        first = next(each for each in events if isinstance(each.value, NodeUpEvent))
        raise (first.origin / "node").error(
            f"{run} has no node at the start, when {', '.join(sorted(withheld))} are not up"
        )
    for located in events:
        event, here = located.value, located.origin
        at = f"in {run}, at {event.at_s:g} s"
        match event:
            case NodeUpEvent():
                if event.node in up:
                    raise (here / "node").error(f"{at}, node {event.node!r} is up already")
                up = up | {event.node}
            case NodeDownEvent():
                if event.node not in up:
                    raise (here / "node").error(f"{at}, node {event.node!r} is not up")
                up = up - {event.node}
                if not any(slots[node] for node in up):
                    raise (here / "node").error(f"{at}, node {event.node!r} is the last one: no executor could run")
            case MoveEvent():
                node = event.to.partition("/")[0]
                if node not in up:
                    raise (here / "to").error(f"{at}, node {node!r} is not up")


def _check_cpus(events: Sequence[Located[Event]], cpus: Mapping[str, ByNode]) -> None:
    """Check that settings do not contradict those that are in effect, under all settings at the start."""
    for at_start in cpus.values():
        now = dict(at_start)
        for located in events:
            if isinstance(located.value, SetCpuEvent):
                node = located.value.node
                now[node] = {**now.get(node, {}), **to_plain(located.value.settings)}
                CpuRequest.from_document(now[node], str(located.origin / "settings"))


def _check_change(located: Located[Event], scheduler: str, campaign: TimelineContext) -> None:
    """Check that runs under this scheduler can follow an event of a node."""
    event, here = located.value, located.origin
    online = campaign.online.get(scheduler)
    if isinstance(event, NodeDownEvent | ScaleEvent) and online is not None and online.revision.how == "shadow":
        what = "executors must leave the node" if isinstance(event, NodeDownEvent) else "the topology must change"
        raise here.error(f"{what}, but revisions under {scheduler!r} are not carried out (how: shadow)")
    if not isinstance(event, NodeUpEvent | NodeDownEvent):
        return
    if scheduler in campaign.scheduled:
        raise here.error(
            f"the runs under {scheduler!r} follow the communication schedule in 'gates', which has the same nodes "
            "throughout; without 'schedule' they follow those of the scheduler"
        )


def check_used_nodes(timeline: Located[Sequence[Event]], scheduler: str, unused: Collection[str]) -> None:
    """Refuse events of a scheduler, by its label, with nodes that it does not use."""
    for at, event in enumerate(timeline.value):
        if isinstance(event, RateEvent) or event.scheduler not in (None, scheduler):
            continue
        for key in ("node", "to", "worker", "agent"):
            name = getattr(event, key, None)
            node = name.partition("/")[0] if isinstance(name, str) else ""
            if node in unused:
                raise (timeline.origin / at / key).error(f"the scheduler {scheduler!r} does not use the node {node!r}")
