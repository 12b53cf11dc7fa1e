"""Observation of a window: traffic, loads of executors and nodes, sources and sinks."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from agents.protocol import Gates, Progress, Slot, Vitals
from analysis.measure.live_rates import (
    Average,
    Heartbeats,
    Interval,
    Samples,
    executor_rates,
    joined,
    known_average,
    mean_watts,
    pair_rates,
    sunk_per_s,
)
from analysis.measure.observations import (
    POINTS,
    SILENT_SAMPLES,
    ExecutorRates,
    LatencyReport,
    NodeRates,
    PairFlow,
    Pairs,
    WindowFigures,
    load_of,
    points_of,
    sink_of,
    with_transport,
)
from controller.coordinator.epoch_workers import worker_name
from inventory.cluster import Cluster
from inventory.times import NS
from scheduler.online.observation import (
    MOST_LOAD,
    Change,
    Observation,
    ObservedSink,
)
from scheduler.online.revision import Rhythm, average
from scheduler.problem import CommunicationSchedule


class WorkerReports(NamedTuple):
    """Reports of one worker: those at the ends of samples, and the last one; and how many pairs it has reported."""

    samples: Samples[Progress]
    heard_s: float
    last: Progress
    pairs: int


@dataclass(frozen=True, kw_only=True)
class ObservedWindow:
    """Measurements of a window at its end; nothing of it changes later.

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
        workers = {
            place: joined(intervals) if rhythm.average == "mean" else intervals for place, intervals in known.items()
        }
        nodes = {node: samples.intervals(most, sample) for node, samples in self.nodes.items()}
        used = sorted(set(self.places.values()))
        samples = min((sum(each.times for each in known.get(place, ())) for place in used), default=0)
        silent_s = self.at_s - SILENT_SAMPLES * sample
        missing = tuple([worker_name(place) for place in used if self._is_silent(place, silent_s)])
        rates = self._executor_rates(workers, mean)
        pairs = self._pair_rates(workers, smooth)
        gates = self.schedule
        figures = WindowFigures(
            places=self.places,
            rates=rates,
            loads=loads_of(self.places, rates, pairs, nodes, mean),
            pairs=pairs,
            nodes={node.id: self._node_rates(node.id, nodes.get(node.id, ()), mean) for node in self.cluster.nodes},
            available=self.available,
            asked_hz=self.asked_hz,
            queued=self._queued(),
            state_bytes=self.state_bytes,
            moved_s=self.moved_s,
            late_s=self._late_s(rates),
            sink=self._sink(workers, mean),
        )
        since_s = max(self.begin_s, self.at_s - samples * sample) if samples else self.at_s - sample
        observation = replace(
            figures.observation(self.cluster, since_s, self.at_s),
            samples=samples,
            sample_s=sample,
            epoch=self.epoch,
            version=self.version,
            schedule=None if gates is None else CommunicationSchedule(gates.nodes, gates.steps, gates.stages),
            missing=missing,
            complete=samples >= self.wanted and not missing and all(has_cpu(place, nodes) for place in used),
            changes=self.changes,
        )
        return observation if samples or self.last is None else with_last_rates(observation, self.last, self.cluster)

    def _is_silent(self, place: Slot, since_s: float) -> bool:
        """Return whether a worker has reported nothing since then, nor had to because of a change."""
        worker = self.workers.get(place)
        return max(self.cut_s, worker.heard_s if worker is not None else self.cut_s) < since_s

    def _executor_rates(
        self, workers: Mapping[Slot, Sequence[Interval[Progress]]], mean: Average
    ) -> dict[str, ExecutorRates]:
        rates_of = {name: executor_rates(name, workers.get(place, ()), mean) for name, place in self.places.items()}
        return {name: rates for name, rates in rates_of.items() if rates is not None}

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

    def _queued(self) -> dict[str, int]:
        reports = {place: worker.last.executors for place, worker in self.workers.items()}
        works = {name: reports.get(place, {}).get(name) for name, place in self.places.items()}
        return {name: work.queued for name, work in works.items() if work is not None and work.queued is not None}

    def _node_rates(self, node: str, intervals: Sequence[Interval[Vitals]], mean: Average) -> NodeRates:
        watts = mean_watts(intervals)
        return NodeRates(
            cores=known_average(intervals, lambda vitals: vitals.cores, mean),
            hz=known_average(intervals, lambda vitals: vitals.hz, mean),
            watts=watts,
            source=None if watts is None else intervals[-1].after.source,
            modelled=watts is not None and intervals[-1].after.modelled,
            heartbeats=self.heartbeats[node].share(self.at_s),
        )

    def _late_s(self, rates: Mapping[str, ExecutorRates]) -> float:
        late_ns = [
            work.late_ns
            for worker in self.workers.values()
            for name, work in worker.last.executors.items()
            if work.late_ns is not None and name in rates and rates[name].due is not None
        ]
        return max(late_ns, default=0) / NS

    def _sink(self, workers: Mapping[Slot, Sequence[Interval[Progress]]], mean: Average) -> ObservedSink:
        per_s = math.fsum(sunk_per_s(intervals, mean) for intervals in workers.values())
        return sink_of(per_s, self.latencies)


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
    for name, observed in rates.items():
        busy.setdefault(places[name], {})[name] = observed.busy
    loads: dict[str, float] = {}
    for place, own in busy.items():
        cores = known_average(nodes.get(place.node, ()), partial(_cores_of_worker, slot=place.index), mean)
        loads |= with_transport(None if cores is None else cores * POINTS, own, remote)
    return loads


def _cores_of_worker(vitals: Vitals, slot: int) -> float | None:
    return vitals.workers.get(slot)


def has_cpu(place: Slot, nodes: Mapping[str, Sequence[Interval[Vitals]]]) -> bool:
    """Return whether a node in use has reported its CPU time and that of this worker within the window."""
    return any(i.after.cores is not None and place.index in i.after.workers for i in nodes.get(place.node, ()))


def with_last_rates(observation: Observation, last: Observation, cluster: Cluster) -> Observation:
    """Return an observation without samples with the traffic and loads of the last complete one."""
    executors = {
        name: replace(
            last.executors[name],
            node=executor.node,
            slot=executor.slot,
            queued=executor.queued,
            state_bytes=executor.state_bytes,
            moved_s=executor.moved_s,
        )
        for name, executor in observation.executors.items()
        if name in last.executors
    }
    nodes, points = {}, points_of(executors)
    for name, node in observation.nodes.items():
        base = last.nodes[name].base
        load = None if base is None else base + load_of(cluster.by_id[name], points)
        load = None if load is None else min(MOST_LOAD, load)
        nodes[name] = replace(node, base=base, load=load, saturated=last.nodes[name].saturated)
    return replace(
        observation,
        traffic=last.traffic,
        executors={**observation.executors, **executors},
        nodes=nodes,
        source=last.source,
        sink=last.sink,
    )
