"""`Observation`: what was measured of a running topology in one window, the input of `revise`.

Times are seconds since the sources started. Loads of executors are CPU points (100 = a core); loads of nodes are shares
of the node's `cpu`. A value that was not measured is None.
"""

import dataclasses
import math
from collections.abc import Mapping
from functools import cached_property
from math import fsum
from typing import Annotated, Literal

from msgspec import Meta, Struct, structs

from inventory.cluster import ExistingWorker
from inventory.documents import Document, Located, Origin, dump_json
from inventory.errors import nearest
from inventory.values import NonNegative
from scheduler.problem import CommunicationSchedule, Problem, Slot
from workloads.scaling import resized, sizes_of
from workloads.traffic import Edge, NodeLoad, Traffic

Count = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]

MOST_LOAD = 2.0
"""Largest load of a node in observations and predictions."""


Happening = Literal["node_up", "node_down", "node_lost", "node_returned", "scale", "clock", "recovered"]

Outcome = Literal["done", "partial", "stale", "no", "late", "too_large", "abandoned", "broken", "unset"]
"""Outcome of a revision:

`done`; `partial` (some of its waves); `stale` (the observation was out of date); `no` (the scheduler wants no change);
`late` (no answer in time, or the decider died); `too_large` (more moves than allowed); `abandoned` (its barrier was
refused or not ready; all is as before); `broken` (something died meanwhile); `unset` (a clock came out otherwise).
"""

WITHOUT_EFFECT: frozenset[Outcome] = frozenset({"stale", "no", "late", "too_large", "abandoned"})
"""Outcomes after which everything runs as before."""


class PairRate(
    Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename={"source": "from", "destination": "to"},
    gc=False,
):
    """Tuples/s and bytes/s from one executor to another, counted by the sender; no bytes inside a worker."""

    source: str
    destination: str
    tuples_per_s: NonNegative
    bytes_per_s: NonNegative | None = None


class ObservedTraffic(Struct, frozen=True, forbid_unknown_fields=True):
    """Rates of all pairs of executors that communicated."""

    edges: tuple[PairRate, ...] = ()


class ObservedExecutor(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, gc=False):
    """An executor in the window.

    Attributes:
        node, slot: its worker; `with_places` adds missing ones.
        busy: CPU points of its thread in the operator and in routing.
        load: `busy` and its share of the worker's transport.
        processed_per_s, emitted_per_s: tuples.
        queued: tuples that waited at the end of the window.
        blocked: share of the window in which it waited for its receivers.
        delay_s: mean CPU time per processed tuple.
        state_bytes: size of its state in the last checkpoint.
        moved_s: when it last moved.
    """

    node: str = ""
    slot: Count = 0
    busy: NonNegative = 0.0
    load: NonNegative = 0.0
    processed_per_s: NonNegative = 0.0
    emitted_per_s: NonNegative = 0.0
    queued: Count = 0
    blocked: Share = 0.0
    delay_s: NonNegative | None = None
    state_bytes: Count | None = None
    moved_s: float | None = None


class ObservedNode(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, gc=False):
    """A node in the window.

    Attributes:
        load: CPU in use, as a share of the node's `cpu`; None without reports.
        base: the same without the workers of this run.
        hz, asked_hz: mean clock, and the clock that was set.
        watts, source: power, and its reader.
        modelled: whether a part of `watts` is computed by a model instead of measured.
        heartbeats: share of heartbeats answered in the last minute.
        available: whether executors may be placed on it.
        saturated: whether `load` is so high that the demand of its executors is unknown; their loads are lower bounds.
    """

    load: NodeLoad | None = None
    base: NodeLoad | None = None
    hz: NonNegative | None = None
    asked_hz: NonNegative | None = None
    watts: NonNegative | None = None
    source: str | None = None
    modelled: bool = False
    heartbeats: Share | None = None
    available: bool = True
    saturated: bool = False


class ObservedSource(Struct, frozen=True, forbid_unknown_fields=True):
    """Tuples that the spouts' schedule asked for and that they emitted, per second, and how late they were."""

    due_per_s: NonNegative | None = None
    emitted_per_s: NonNegative | None = None
    late_s: NonNegative | None = None


class ObservedSink(Struct, frozen=True, forbid_unknown_fields=True):
    """Tuples that reached sinks, per second, and their latency."""

    per_s: NonNegative | None = None
    p50_ms: NonNegative | None = None
    p99_ms: NonNegative | None = None


class Change(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Change of the cluster or the topology, other than by a revision.

    Attributes:
        at_s: time of the change.
        kind: kind of the change.
        node, component: the one that changed, if it is one of these.
        value: new number of executors of a component, where it is known.
    """

    at_s: float
    kind: Happening
    node: str | None = None
    component: str | None = None
    value: float | None = None

    @staticmethod
    def of(at_s: float, kind: Happening, subject: str = "", value: float | None = None) -> "Change":
        """Return a change of `subject`: a component if it is scaled, else a node; empty for the whole topology."""
        if kind == "scale":
            return Change(at_s, kind, component=subject or None, value=value)
        return Change(at_s, kind, node=subject or None, value=value)


class KeyFigures(Struct, frozen=True, forbid_unknown_fields=True):
    """Tuples/s between nodes, highest load of a node, and watts of all nodes, where known."""

    cut: NonNegative | None = None
    load: NodeLoad | None = None
    watts: NonNegative | None = None


class Expected(Struct, frozen=True, forbid_unknown_fields=True):
    """Prediction of a revision, where known.

    Attributes:
        cut: tuples/s between nodes.
        load: node -> its load.
        watts: power of all nodes.
    """

    cut: NonNegative | None = None
    load: Mapping[str, NodeLoad] = {}
    watts: NonNegative | None = None

    @property
    def figures(self) -> KeyFigures:
        """The same, with the highest load only."""
        return KeyFigures(self.cut, max(self.load.values(), default=None), self.watts)


def clamped(loads: Mapping[str, float]) -> dict[str, float]:
    """Return predicted loads within the range that files have.

    A prediction below 0 is no mistake: CPU times of executors and of their node are read at different moments, so that
    executors that leave may take more with them than their node had.
    """
    return {node: max(0.0, min(load, MOST_LOAD)) for node, load in loads.items()}


class PastRevision(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An earlier revision: what it wanted, what became of it, and what was measured before and after.

    Attributes:
        number: number of its decision.
        at_s: when its outcome was known.
        moves: number of executors that it moves.
        before: measured in the window that was decided about.
        effect: the same in the first complete window after it; None until that has passed, if the topology was changed
            again before, and of outcomes without effect.
    """

    number: Count = 0
    at_s: float
    reason: str
    outcome: Outcome
    message: str = ""
    moves: Count = 0
    expects: KeyFigures = KeyFigures()
    before: KeyFigures | None = None
    effect: KeyFigures | None = None


class Observation(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """One window of a running topology.

    Attributes:
        at_s, since_s: end and begin of the window (`since_s`, `at_s`]; `observation_of` adds a missing `since_s`.
        samples, sample_s: how many samples it has, and how far apart they are.
        epoch: number of the epoch.
        version: counts changes of placement, parallelism, schedule, clocks and availability.
        traffic: rates per pair.
        executors, nodes: by name.
        source, sink: sums over spouts and over sinks.
        schedule: the communication schedule that the run follows; None: it follows none.
        missing: workers (`node/slot`) whose reports are overdue.
        complete: whether none is missing, the window is full, and the CPU time of all workers in use is known.
        changes: since the window before.
        history: the last revisions.
    """

    at_s: float
    since_s: float = math.nan
    samples: Count = 1
    sample_s: Annotated[float, Meta(gt=0)] = 1.0
    epoch: Count = 0
    version: Count = 0
    traffic: ObservedTraffic = ObservedTraffic()
    executors: Mapping[str, ObservedExecutor]
    nodes: Mapping[str, ObservedNode]
    source: ObservedSource = ObservedSource()
    sink: ObservedSink = ObservedSink()
    schedule: CommunicationSchedule | None = None
    missing: tuple[str, ...] = ()
    complete: bool = True
    changes: tuple[Change, ...] = ()
    history: tuple[PastRevision, ...] = ()

    @property
    def places(self) -> dict[str, Slot]:
        """Executor's name -> slot."""
        return {name: Slot(executor.node, executor.slot) for name, executor in self.executors.items()}

    @cached_property
    def measured(self) -> KeyFigures:
        """Measured values of the figures that revisions predict; power only if that of all nodes is known."""
        watts = [node.watts for node in self.nodes.values()]
        return KeyFigures(
            cut=fsum(
                edge.tuples_per_s
                for edge in self.traffic.edges
                if self.executors[edge.source].node != self.executors[edge.destination].node
            )
            if self.samples
            else None,
            load=max((node.load for node in self.nodes.values() if node.load is not None), default=None),
            watts=fsum(known) if len(known := [each for each in watts if each is not None]) == len(watts) else None,
        )

    def outcome_of(self, decided_s: float) -> Outcome | None:
        """Return what became of the revision that was decided about the window that ended at `decided_s`.

        One revision is under way at a time, so that it is the first outcome since then; None if there is none.
        """
        return next((past.outcome for past in self.history if past.at_s >= decided_s), None)

    @property
    def as_traffic(self) -> Traffic:
        """Rates and loads as schedulers use them; unknown bytes count as 0, since no scheduler uses them."""
        return Traffic(
            tuple(
                Edge(edge.source, edge.destination, edge.tuples_per_s, edge.bytes_per_s or 0.0)
                for edge in self.traffic.edges
            ),
            {name: executor.load for name, executor in self.executors.items()},
            {name: node.load for name, node in self.nodes.items() if node.load is not None},
        )


def problem_at(problem: Problem, observation: Observation, wanted: bool = False) -> Problem:
    """Return the round at the end of a window: what runs, which nodes are available, and the observed traffic.

    Args:
        problem: the topology, the cluster, and the workers of other topologies.
        observation: the window.
        wanted: whether the topology keeps its numbers of executors, instead of getting those that run.
    """
    topology = problem.topologies[0]
    topology = topology if wanted else resized(topology, sizes_of(observation.executors))
    workers: dict[Slot, list[str]] = {}
    for name, slot in observation.places.items():
        workers.setdefault(slot, []).append(name)
    others = [worker for worker in problem.existing if worker.topology != topology.id]
    own = [ExistingWorker(topology.id, slot.node, slot.index, tuple(names)) for slot, names in sorted(workers.items())]
    nodes = tuple(
        structs.replace(node, available=node.available and observation.nodes[node.id].available)
        if node.id in observation.nodes
        else node
        for node in problem.cluster.nodes
    )
    cluster = structs.replace(problem.cluster, nodes=nodes, existing=(*others, *own))
    return dataclasses.replace(problem, cluster=cluster, topologies=(topology,), traffic=observation.as_traffic)


def observation_of(document: Document) -> Located[Observation]:
    """Convert a document; without `since_s`, the window is as long as its samples.

    Raises:
        InputError: it is invalid; the message names file, line, key and value.
    """
    observation = document.convert(Observation)
    if math.isnan(observation.since_s):
        observation = structs.replace(
            observation, since_s=observation.at_s - observation.samples * observation.sample_s
        )
    if observation.at_s <= observation.since_s:
        raise document.error(("at_s",), f"{observation.at_s:g} is not after since_s, {observation.since_s:g}")
    return Located(observation, document.origin)


def with_places(located: Located[Observation], problem: Problem) -> Located[Observation]:
    """Return an observation in which executors have their workers: those of `existing` where the file has none.

    Raises:
        InputError: an executor of the topology has none; the message names file and line.
    """
    observation, origin = located.value, located.origin
    (topology,) = problem.topologies
    running = {
        name: (worker.node, worker.slot)
        for worker in problem.existing
        if worker.topology == topology.id
        for name in worker.executors
    }
    executors = dict(observation.executors)
    for name, executor in observation.executors.items():
        if executor.node or (name not in topology.executor_named and name not in running):
            continue
        if name not in running:
            what = "runs nowhere: it has no 'node', and no worker of 'existing' in the cluster file has it"
            raise (origin / "executors" / name).error(what)
        node, slot = running[name]
        executors[name] = structs.replace(executor, node=node, slot=slot)
    return Located(structs.replace(observation, executors=executors), origin)


def check_observed(located: Located[Observation], problem: Problem) -> None:
    """Check that executors, nodes and slots exist, and that no executor is missing.

    Raises:
        InputError: the message names file, line, key and value.
    """
    observation, origin = located.value, located.origin
    (topology,) = problem.topologies
    known, nodes = topology.executor_named, problem.cluster.by_id
    for name, executor in observation.executors.items():
        here = origin / "executors" / name
        _check_known(here, "executor", name, known)
        _check_known(here / "node", "node", executor.node, nodes)
        slots = nodes[executor.node].slots
        if executor.slot >= slots:
            raise (here / "slot").error(f"slot {executor.slot} is beyond the {slots} slots of {executor.node!r}")
    missing = [name for name in known if name not in observation.executors]
    if missing:
        raise (origin / "executors").error(f"the executor {missing[0]!r} is missing")
    for at, edge in enumerate(observation.traffic.edges):
        for key, name in (("from", edge.source), ("to", edge.destination)):
            _check_known(origin / "traffic" / "edges" / at / key, "executor", name, known)
    for name in observation.nodes:
        _check_known(origin / "nodes" / name, "node", name, nodes)


def _check_known(origin: Origin, kind: str, name: str, known: Mapping[str, object]) -> None:
    if name not in known:
        raise origin.error(f"unknown {kind} {name!r}{nearest(name, known)}")


def observation_json(observation: Observation) -> str:
    """Return the observation as text, with the same bytes for the same observation."""
    return dump_json(observation)
