"""Observations of windows: made in one place from what was measured, live, in traces or in `live.json`."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import fsum
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from inventory.cluster import Cluster, Node
from inventory.values import Slot
from scheduler.online.observation import (
    MOST_LOAD,
    Observation,
    ObservedExecutor,
    ObservedNode,
    ObservedSink,
    ObservedSource,
    ObservedTraffic,
    PairRate,
)

SATURATED = 0.98
"""Load of a node from which the demand of its executors is unknown."""

POINTS = 100.0
"""CPU points of a core."""

MOST_HISTORY = 64
"""Most revisions in the history of an observation."""

SILENT_SAMPLES = 2.5
"""Time without a report, in samples, after which a worker is missing."""

STATE, HEARTBEATS, CLOCK, SCHEDULE = "observed_state", "observed_heartbeats", "observed_clock", "observed_schedule"
"""Events of an observed run: what observations have that no other rows of the traces have."""

DIGITS = 9
"""Decimal places of numbers in files."""


class PairFlow(Struct, frozen=True, gc=False):
    """Tuples and bytes per second between two executors."""

    tuples_per_s: float
    bytes_per_s: float

    def __add__(self, other: "PairFlow") -> "PairFlow":
        return PairFlow(self.tuples_per_s + other.tuples_per_s, self.bytes_per_s + other.bytes_per_s)


class ExecutorRates(Struct, frozen=True, gc=False):
    """Work of one executor per second.

    Attributes:
        busy: CPU points.
        processed, emitted: tuples; a spout processes none.
        blocked: share of the time.
        due: tuples that a spout's schedule asked for, without one those that it emitted; None for bolts.
    """

    busy: float
    processed: float
    emitted: float
    blocked: float
    due: float | None

    @property
    def delay_s(self) -> float | None:
        """CPU time per tuple; None without tuples."""
        tuples = self.processed if self.due is None else self.emitted
        return self.busy / 100 / tuples if tuples else None


def with_transport(worker: float | None, busy: Mapping[str, float], remote: Mapping[str, float]) -> dict[str, float]:
    """Return the loads of a worker's executors: their own CPU, and their shares of the rest, its transport.

    >>> with_transport(50.0, {"a": 20.0, "b": 10.0}, {"a": 300.0, "b": 100.0})
    {'a': 35.0, 'b': 15.0}

    Args:
        worker: CPU of the worker in points; None if unknown.
        busy: executor -> CPU of its thread in points.
        remote: executor -> tuples that it exchanged with other workers. Without any, shares are those of `busy`.
    """
    rest = max(0.0, (worker or 0.0) - fsum(busy.values()))
    weights = {name: remote.get(name, 0.0) for name in busy}
    if not any(weights.values()):
        weights = dict(busy)
    total = fsum(weights.values())
    return {name: own + (rest * weights[name] / total if total else 0.0) for name, own in busy.items()}


NOTHING = ExecutorRates(0.0, 0.0, 0.0, 0.0, None)

Pairs = Mapping[tuple[str, str], PairFlow]
"""(sender, receiver) by name -> rates."""


class NodeRates(NamedTuple):
    """Measurements of a node; None where it is not known.

    Attributes:
        cores: CPU in use.
        hz: mean clock.
        watts, source: power, and its reader.
        modelled: whether a part of `watts` is computed by a model instead of measured.
        heartbeats: share of heartbeats answered in the last minute.
    """

    cores: float | None = None
    hz: float | None = None
    watts: float | None = None
    source: str | None = None
    modelled: bool = False
    heartbeats: float | None = None


@dataclass(frozen=True, kw_only=True)
class WindowFigures:
    """Measurements of a window.

    Attributes:
        places: executor -> slot.
        rates: executor -> its work; executors without any are left out.
        loads: executor -> CPU points with its share of the transport (`with_transport`).
        pairs: rates of the pairs that communicated.
        nodes: node -> what was measured of it.
        available, asked_hz: as in `ObservedNode`, by node.
        queued, state_bytes, moved_s: as in `ObservedExecutor`, by executor; those without one are left out.
        late_s: largest delay of the sources.
        sink: tuples and latency at the sinks.
    """

    places: Mapping[str, Slot]
    rates: Mapping[str, ExecutorRates]
    loads: Mapping[str, float]
    pairs: Pairs
    nodes: Mapping[str, NodeRates]
    available: Mapping[str, bool]
    asked_hz: Mapping[str, float]
    queued: Mapping[str, int]
    state_bytes: Mapping[str, int]
    moved_s: Mapping[str, float]
    late_s: float
    sink: ObservedSink

    def observation(self, cluster: Cluster, since_s: float, at_s: float) -> Observation:
        """Return the observation of the window (`since_s`, `at_s`] on a cluster, without what was not measured."""
        executors = {name: self._executor(name, place) for name, place in self.places.items()}
        points = points_of(executors)
        return Observation(
            at_s=at_s,
            since_s=since_s,
            traffic=traffic_of(self.pairs, self.places),
            executors=executors,
            nodes={node.id: self._node(node, points) for node in cluster.nodes},
            source=self._source(),
            sink=self.sink,
        )

    def _executor(self, name: str, place: Slot) -> ObservedExecutor:
        own = self.rates.get(name, NOTHING)
        return ObservedExecutor(
            node=place.node,
            slot=place.index,
            busy=own.busy,
            load=self.loads.get(name, 0.0),
            processed_per_s=own.processed,
            emitted_per_s=own.emitted,
            queued=self.queued.get(name, 0),
            blocked=own.blocked,
            delay_s=own.delay_s,
            state_bytes=self.state_bytes.get(name),
            moved_s=self.moved_s.get(name),
        )

    def _node(self, node: Node, points: Mapping[str, float]) -> ObservedNode:
        rates = self.nodes.get(node.id, NodeRates())
        load = base = None
        if rates.cores is not None and node.cpu_points:
            load = rates.cores * POINTS / node.cpu_points
            base = max(0.0, load - load_of(node, points))
        return ObservedNode(
            load=None if load is None else min(MOST_LOAD, load),
            base=None if base is None else min(MOST_LOAD, base),
            hz=rates.hz,
            asked_hz=self.asked_hz.get(node.id),
            watts=rates.watts,
            source=rates.source,
            modelled=rates.modelled,
            heartbeats=rates.heartbeats,
            available=self.available[node.id],
            saturated=load is not None and load >= SATURATED,
        )

    def _source(self) -> ObservedSource:
        spouts = [spout for spout in self.rates.values() if spout.due is not None]
        due = fsum(spout.due for spout in spouts if spout.due is not None)
        return ObservedSource(due, fsum(spout.emitted for spout in spouts), self.late_s)


class LatencyReport(Struct, frozen=True, gc=False):
    """Percentiles in one report, in ns, and the number of tuples that they are of."""

    at_s: float
    tuples: int
    p50_ns: int
    p99_ns: int


def sink_of(per_s: float, latencies: Collection[LatencyReport]) -> ObservedSink:
    """Return the sinks' rate, and medians of the percentiles in reports of workers, each of as many tuples."""
    p50 = weighted_median((report.p50_ns, report.tuples) for report in latencies)
    p99 = weighted_median((report.p99_ns, report.tuples) for report in latencies)
    return ObservedSink(per_s, None if p50 is None else p50 / 1e6, None if p99 is None else p99 / 1e6)


def weighted_median(values: Iterable[tuple[float, float]]) -> float | None:
    """Return the median of (value, weight) pairs; None without weight."""
    ordered = sorted(values)
    half, seen = fsum(weight for _, weight in ordered) / 2, 0.0
    for value, weight in ordered:
        seen += weight
        if weight and seen >= half:
            return value
    return None


def traffic_of(pairs: Pairs, places: Mapping[str, Slot]) -> ObservedTraffic:
    """Return the rates of all pairs that communicated; bytes are unknown within a worker."""
    return ObservedTraffic(
        tuple(
            PairRate(*pair, flow.tuples_per_s, None if places[pair[0]] == places[pair[1]] else flow.bytes_per_s)
            for pair, flow in pairs.items()
        )
    )


def points_of(executors: Mapping[str, ObservedExecutor]) -> dict[str, float]:
    """Return node -> load of its executors in CPU points."""
    loads: dict[str, list[float]] = {}
    for executor in executors.values():
        loads.setdefault(executor.node, []).append(executor.load)
    return {node: fsum(each) for node, each in loads.items()}


def load_of(node: Node, points: Mapping[str, float]) -> float:
    """Return the load of the executors on a node as a share of its CPU; 0 for a node without CPU."""
    return points.get(node.id, 0.0) / node.cpu_points if node.cpu_points else 0.0


def rounded(observation: Observation) -> Observation:
    """Return an observation as files have it: with numbers of nine decimal places, not the noise of sums."""

    def plain(value: Any) -> Any:
        match value:
            case float():
                return round(value, DIGITS)
            case dict():
                return {key: plain(each) for key, each in value.items()}
            case list() | tuple():
                return [plain(each) for each in value]
        return value

    return msgspec.convert(plain(msgspec.to_builtins(observation)), Observation)
