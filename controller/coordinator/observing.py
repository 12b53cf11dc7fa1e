"""Observation of a window: traffic, loads of executors and nodes, sources and sinks."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from agents.protocol import Gates, Progress, Slot, Vitals
from controller.coordinator.epoch_workers import worker_name
from controller.coordinator.rates import (
    Average,
    ExecutorRates,
    Heartbeats,
    Interval,
    PairFlow,
    Samples,
    executor_rates,
    joined,
    known_average,
    mean_watts,
    pair_rates,
    sunk_per_s,
    weighted_median,
    with_transport,
)
from inventory.cluster import Cluster, Node
from inventory.times import NS
from scheduler.online.observation import (
    MOST_LOAD,
    Change,
    Observation,
    ObservedExecutor,
    ObservedNode,
    ObservedSink,
    ObservedSource,
    ObservedTraffic,
    PairRate,
)
from scheduler.online.revision import Rhythm, average
from scheduler.problem import CommunicationSchedule

SILENT_SAMPLES = 2.5
"""Time without a report, in samples, after which a worker is missing."""

SATURATED = 0.98
"""Load of a node from which the demand of its executors is unknown."""

NOTHING = ExecutorRates(0.0, 0.0, 0.0, 0.0, None)

Pairs = Mapping[tuple[str, str], PairFlow]
"""(sender, receiver) by name -> rates."""


class WorkerReports(NamedTuple):
    """Reports of one worker: those at the ends of samples, and the last one; and how many pairs it has reported."""

    samples: Samples[Progress]
    heard_s: float
    last: Progress
    pairs: int


class LatencyReport(Struct, frozen=True, gc=False):
    """Percentiles in one report, in ns, and the number of tuples that they are of."""

    at_s: float
    tuples: int
    p50_ns: int
    p99_ns: int


@dataclass(frozen=True, kw_only=True)
class Window:
    """What is known of a window at its end; nothing of it changes later.

    Attributes:
        at_s: its end.
        cut_s, begin_s: last change of the topology or the cluster, and when it has settled.
        rhythm: of the scheduler.
        wanted, most: samples of a full window, and most that are used.
        sample_s: time between samples.
        epoch, version: as in `Observation`.
        cluster: all nodes.
        names: executors by number.
        places: executor -> slot.
        workers, nodes, heartbeats: reports of workers and nodes, and answers of nodes.
        latencies: those within the window.
        state_bytes, moved_s: as in `ObservedExecutor`.
        available, asked_hz: as in `ObservedNode`.
        schedule: the communication schedule that the run follows, if any.
        changes: as in `Observation`.
        last: the last complete observation.
    """

    at_s: float
    cut_s: float
    begin_s: float
    rhythm: Rhythm
    wanted: int
    most: int
    sample_s: float
    epoch: int
    version: int
    cluster: Cluster
    names: Mapping[int, str]
    places: Mapping[str, Slot]
    workers: Mapping[Slot, WorkerReports]
    nodes: Mapping[str, Samples[Vitals]]
    heartbeats: Mapping[str, Heartbeats]
    latencies: Sequence[LatencyReport]
    state_bytes: Mapping[str, int]
    moved_s: Mapping[str, float]
    available: Mapping[str, bool]
    asked_hz: Mapping[str, int]
    schedule: Gates | None
    changes: tuple[Change, ...]
    last: Observation | None

    def observe(self) -> Observation:
        """Return what was measured in it, without a history.

        Right after a change a window has no samples: traffic and loads are then those of the last complete window.
        """
        rhythm, most, sample = self.rhythm, self.most, self.sample_s
        smooth: Average = partial(average, kind=rhythm.average, newest=rhythm.newest)
        # Loads add up, which trimmed averages do not.
        mean: Average = partial(average, kind="ewma" if rhythm.average == "ewma" else "mean", newest=rhythm.newest)
        known = {place: worker.samples.intervals(most, sample) for place, worker in self.workers.items()}
        workers = {place: joined(found) if rhythm.average == "mean" else found for place, found in known.items()}
        nodes = {node: samples.intervals(most, sample) for node, samples in self.nodes.items()}
        used = sorted(set(self.places.values()))
        samples = min((sum(each.times for each in known.get(place, ())) for place in used), default=0)
        silent_s = self.at_s - SILENT_SAMPLES * sample
        missing = tuple([worker_name(place) for place in used if self._is_silent(place, silent_s)])
        rates = self._executor_rates(workers, mean)
        pairs = self._pair_rates(workers, smooth)
        executors = self._executors(rates, loads_of(self.places, rates, pairs, nodes, mean))
        points = points_of(executors)
        gates = self.schedule
        found = Observation(
            at_s=self.at_s,
            since_s=max(self.begin_s, self.at_s - samples * sample) if samples else self.at_s - sample,
            samples=samples,
            sample_s=sample,
            epoch=self.epoch,
            version=self.version,
            traffic=traffic_of(pairs, self.places),
            executors=executors,
            nodes={
                node.id: node_of(node, nodes.get(node.id, ()), points, mean, self._without_reports(node.id))
                for node in self.cluster.nodes
            },
            source=self._source(rates),
            sink=self._sink(workers, mean),
            schedule=None if gates is None else CommunicationSchedule(gates.nodes, gates.steps, gates.stages),
            missing=missing,
            complete=samples >= self.wanted and not missing and all(has_cpu(place, nodes) for place in used),
            changes=self.changes,
        )
        return found if samples or self.last is None else with_last_rates(found, self.last, self.cluster)

    def _is_silent(self, place: Slot, since_s: float) -> bool:
        """Return whether a worker has reported nothing since then, nor had to because of a change."""
        worker = self.workers.get(place)
        return max(self.cut_s, worker.heard_s if worker is not None else self.cut_s) < since_s

    def _executor_rates(
        self, workers: Mapping[Slot, Sequence[Interval[Progress]]], mean: Average
    ) -> dict[str, ExecutorRates]:
        found = {name: executor_rates(name, workers.get(place, ()), mean) for name, place in self.places.items()}
        return {name: rates for name, rates in found.items() if rates is not None}

    def _pair_rates(
        self, workers: Mapping[Slot, Sequence[Interval[Progress]]], smooth: Average
    ) -> dict[tuple[str, str], PairFlow]:
        """Return the rates by names, summed over workers, in the order of the executors."""
        total: dict[int, dict[int, PairFlow]] = {}
        for intervals in workers.values():
            for (sender, receiver), flow in pair_rates(intervals, smooth).items():
                of_sender = total.setdefault(sender, {})
                so_far = of_sender.get(receiver)
                of_sender[receiver] = flow if so_far is None else so_far + flow
        names = self.names
        # Sorted by sender: sorting all pairs at once holds up other threads.
        return {
            (names[sender], names[receiver]): total[sender][receiver]
            for sender in sorted(total)
            if sender in names
            for receiver in sorted(total[sender])
            if receiver in names
        }

    def _executors(self, rates: Mapping[str, ExecutorRates], loads: Mapping[str, float]) -> dict[str, ObservedExecutor]:
        found: dict[str, ObservedExecutor] = {}
        for name, place in self.places.items():
            own = rates.get(name, NOTHING)
            worker = self.workers.get(place)
            work = worker.last.executors.get(name) if worker is not None else None
            found[name] = ObservedExecutor(
                node=place.node,
                slot=place.index,
                busy=own.busy,
                load=loads.get(name, 0.0),
                processed_per_s=own.processed,
                emitted_per_s=own.emitted,
                queued=work.queued or 0 if work is not None else 0,
                blocked=own.blocked,
                delay_s=own.delay_s,
                state_bytes=self.state_bytes.get(name),
                moved_s=self.moved_s.get(name),
            )
        return found

    def _without_reports(self, node: str) -> ObservedNode:
        """Return what is known of a node without its reports."""
        return ObservedNode(
            load=None,
            base=None,
            asked_hz=self.asked_hz.get(node),
            heartbeats=self.heartbeats[node].share(self.at_s),
            available=self.available[node],
        )

    def _source(self, rates: Mapping[str, ExecutorRates]) -> ObservedSource:
        spouts = {name: found for name, found in rates.items() if found.due is not None}
        late_ns = [
            work.late_ns
            for worker in self.workers.values()
            for name, work in worker.last.executors.items()
            if name in spouts and work.late_ns is not None
        ]
        due = math.fsum(found.due for found in spouts.values() if found.due is not None)
        emitted = math.fsum(found.emitted for found in spouts.values())
        return ObservedSource(due, emitted, max(late_ns, default=0) / NS)

    def _sink(self, workers: Mapping[Slot, Sequence[Interval[Progress]]], mean: Average) -> ObservedSink:
        per_s = math.fsum(sunk_per_s(intervals, mean) for intervals in workers.values())
        p50 = weighted_median((found.p50_ns, found.tuples) for found in self.latencies)
        p99 = weighted_median((found.p99_ns, found.tuples) for found in self.latencies)
        return ObservedSink(per_s, None if p50 is None else p50 / 1e6, None if p99 is None else p99 / 1e6)


def traffic_of(pairs: Pairs, places: Mapping[str, Slot]) -> ObservedTraffic:
    """Return the rates of all pairs that communicated; bytes are unknown within a worker."""
    return ObservedTraffic(
        tuple(
            PairRate(*pair, flow.tuples_per_s, None if places[pair[0]] == places[pair[1]] else flow.bytes_per_s)
            for pair, flow in pairs.items()
        )
    )


def loads_of(
    places: Mapping[str, Slot],
    rates: Mapping[str, ExecutorRates],
    pairs: Pairs,
    nodes: Mapping[str, Sequence[Interval[Vitals]]],
    mean: Average,
) -> dict[str, float]:
    """Return the loads of all executors with rates, in CPU points; they add up to the CPU of their workers."""
    remote: dict[str, float] = {}
    for pair, flow in pairs.items():
        if places[pair[0]] != places[pair[1]]:
            for name in pair:
                remote[name] = remote.get(name, 0.0) + flow.tuples_per_s
    busy: dict[Slot, dict[str, float]] = {}
    for name, found in rates.items():
        busy.setdefault(places[name], {})[name] = found.busy
    loads: dict[str, float] = {}
    for place, own in busy.items():
        cores = known_average(nodes.get(place.node, ()), partial(_cores_of_worker, slot=place.index), mean)
        loads |= with_transport(None if cores is None else cores * 100, own, remote)
    return loads


def _cores_of_worker(vitals: Vitals, slot: int) -> float | None:
    return vitals.workers.get(slot)


def has_cpu(place: Slot, nodes: Mapping[str, Sequence[Interval[Vitals]]]) -> bool:
    """Return whether a node in use has reported its CPU time and that of this worker within the window."""
    return any(i.after.cores is not None and place.index in i.after.workers for i in nodes.get(place.node, ()))


def points_of(executors: Mapping[str, ObservedExecutor]) -> dict[str, float]:
    """Return node -> load of its executors in CPU points."""
    loads: dict[str, list[float]] = {}
    for found in executors.values():
        loads.setdefault(found.node, []).append(found.load)
    return {node: math.fsum(each) for node, each in loads.items()}


def load_of(node: Node, points: Mapping[str, float]) -> float:
    """Return the load of the executors on a node as a share of its CPU; 0 for a node without CPU."""
    return points.get(node.id, 0.0) / node.cpu_points if node.cpu_points else 0.0


def node_of(
    node: Node,
    intervals: Sequence[Interval[Vitals]],
    points: Mapping[str, float],
    mean: Average,
    known: ObservedNode,
) -> ObservedNode:
    """Return a node with what was measured of it, and the `points` of executors; the rest is as in `known`."""
    cores = known_average(intervals, lambda vitals: vitals.cores, mean)
    load = base = None
    if cores is not None and node.cpu_points:
        load = cores * 100 / node.cpu_points
        base = max(0.0, load - load_of(node, points))
    watts = mean_watts(intervals)
    return replace(
        known,
        load=None if load is None else min(MOST_LOAD, load),
        base=None if base is None else min(MOST_LOAD, base),
        hz=known_average(intervals, lambda vitals: vitals.hz, mean),
        watts=watts,
        source=None if watts is None else intervals[-1].after.source,
        modelled=watts is not None and intervals[-1].after.modelled,
        saturated=load is not None and load >= SATURATED,
    )


def with_last_rates(observation: Observation, last: Observation, cluster: Cluster) -> Observation:
    """Return an observation without samples with the traffic and loads of the last complete one."""
    executors = {
        name: replace(
            last.executors[name],
            node=found.node,
            slot=found.slot,
            queued=found.queued,
            state_bytes=found.state_bytes,
            moved_s=found.moved_s,
        )
        for name, found in observation.executors.items()
        if name in last.executors
    }
    nodes, points = {}, points_of(executors)
    for name, found in observation.nodes.items():
        base = last.nodes[name].base
        load = None if base is None else base + load_of(cluster.by_id[name], points)
        load = None if load is None else min(MOST_LOAD, load)
        nodes[name] = replace(found, base=base, load=load, saturated=last.nodes[name].saturated)
    return replace(
        observation,
        traffic=last.traffic,
        executors={**observation.executors, **executors},
        nodes=nodes,
        source=last.source,
        sink=last.sink,
    )
