"""`Monitor`: reports of workers and nodes become windows for online schedulers; without clocks and I/O.

`monitor.conclude(monitor.window(now_s).observe())` is an observation. The second step is the long one: it may be taken
in another thread, while further reports are recorded.

Times are seconds since the sources started, and are passed in. A window never reaches across a change of placement,
parallelism, clocks or availability, nor across a recovery. A change of the sources' rate does not end it.
"""

import math
from collections import deque
from collections.abc import Mapping

from msgspec.structs import replace

from agents.protocol import Gates, Progress, RunSpec, Slot, Vitals, sample_s
from analysis.measure.live_rates import Heartbeats, Samples
from analysis.measure.observations import MOST_HISTORY, LatencyReport
from controller.coordinator.epoch_workers import executor_name
from controller.coordinator.observing import ObservedWindow, WorkerReports
from inventory.cluster import Cluster
from scheduler.online.observation import WITHOUT_EFFECT, Change, Happening, Observation, PastRevision
from scheduler.online.revision import Rhythm

NEGLIGIBLE, MOST_SMOOTHED = 1e-3, 64
"""An exponentially weighted average ends at samples of less weight than this, or after so many."""


class Monitor:
    """Observer of a run, over all its epochs.

    Attributes:
        version: number of changes of placement, parallelism, schedule, clocks and availability.
        epoch: number of the current epoch.
    """

    def __init__(self, rhythm: Rhythm, cluster: Cluster, settle_s: float, asked_hz: Mapping[str, int] = {}) -> None:
        """Wait for `start_epoch`.

        Args:
            rhythm: of the scheduler.
            cluster: all nodes, those that are not available included.
            settle_s: time after a change in which nothing is measured.
            asked_hz: node -> clock that is set at the start.
        """
        self._rhythm, self._cluster, self._settle_s = rhythm, cluster, settle_s
        self.version = self.epoch = 0
        self._names: Mapping[int, str] = {}
        self._places: dict[str, Slot] = {}
        self._workers: dict[Slot, WorkerReports] = {}
        self._nodes: dict[str, Samples[Vitals]] = {}
        self._pairs = 0
        self._cut_s = self._begin_s = 0.0
        self._replaced_s = 0.0  # when placement, numbers of executors, clocks or schedule last changed
        self._latencies: deque[LatencyReport] = deque()
        self._heartbeats = {node.id: Heartbeats() for node in cluster.nodes}
        self._state_bytes: dict[str, int] = {}
        self._moved_s: dict[str, float] = {}
        self._available = {node.id: node.available for node in cluster.nodes}
        self._asked_hz = asked_hz
        self._changes: list[Change] = []
        self._history: deque[PastRevision] = deque(maxlen=MOST_HISTORY)
        self._full: Observation | None = None
        self._schedule: Gates | None = None

    # --- what happens --------------------------------------------------------------------------------------------

    def start_epoch(self, spec: RunSpec, at_s: float) -> None:
        """Begin with the placement of an epoch, whose totals start at 0."""
        self.epoch = spec.epoch
        self._names = _names_of(spec)
        self._workers.clear()
        self._pairs = 0
        self._schedule = spec.gates
        self._place({executor_name(executor): executor.place for executor in spec.executors}, at_s)

    def record(self, node: str, report: Progress | Vitals, at_s: float) -> None:
        """Record a report of the current epoch; others are ignored.

        Args:
            node: its sender.
            report: the report.
            at_s: its time.
        """
        if report.epoch != self.epoch or node not in self._cluster.by_id:
            return
        if isinstance(report, Progress):
            self._record_progress(Slot(node, report.slot), report, at_s)
        elif report.at_ns is not None and at_s >= self._begin_s:
            samples = self._nodes.get(node) or Samples[Vitals](self._most)
            self._nodes[node] = samples.add(report.at_ns, report, self._sample_s)

    def answered(self, node: str, at_s: float) -> None:
        """Note that a node has answered a heartbeat."""
        self._heartbeats[node] = self._heartbeats[node].answered(at_s)

    def stored(self, executor: str, nbytes: int) -> None:
        """Note the size of an executor's state in the last checkpoint."""
        self._state_bytes[executor] = nbytes

    def changed(self, at_s: float, what: Happening, subject: str = "") -> None:
        """Note a change other than by a revision: the window begins anew."""
        self._changes.append(Change.of(at_s, what, subject))
        if what == "clock":
            self._replaced_s = at_s
        self._cut(at_s)

    def placed(self, places: Mapping[str, Slot], at_s: float) -> None:
        """Note that executors have moved to these places; those that are not named have stayed."""
        self._place({**self._places, **places}, at_s)

    def scaled(self, spec: RunSpec, at_s: float) -> None:
        """Note that components have other numbers of executors; totals of executors with new numbers start at 0."""
        self._names = _names_of(spec)
        self._place({executor_name(executor): executor.place for executor in spec.executors}, at_s)

    def scheduled(self, gates: Gates, at_s: float) -> None:
        """Note that all nodes follow another communication schedule: the window begins anew."""
        self._schedule = gates
        self._replaced_s = at_s
        self._cut(at_s)

    def available(self, node: str, is_available: bool) -> None:
        """Note whether executors may be placed on a node."""
        if self._available[node] != is_available:
            self._available[node] = is_available
            self.version += 1

    def asked_clocks(self, hz: Mapping[str, int], at_s: float) -> None:
        """Note the clocks that are set now, by node: the window begins anew."""
        self._asked_hz = dict(hz)
        self._replaced_s = at_s
        self._cut(at_s)

    def remember(self, past: PastRevision) -> None:
        """Add a revision to the history.

        If it was carried out, its `effect` is measured in the first full window that begins later, unless the topology
        changes again before.
        """
        self._history.append(past)

    def _place(self, places: dict[str, Slot], at_s: float) -> None:
        for name, place in places.items():
            if name in self._places and self._places[name] != place:
                self._moved_s[name] = at_s
        if places != self._places:
            self._replaced_s = at_s
        self._places = places
        self._cut(at_s)

    def _cut(self, at_s: float) -> None:
        self.version += 1
        self._cut_s = max(self._cut_s, at_s)
        self._begin_s = max(self._begin_s, at_s + self._settle_s)
        for place, worker in self._workers.items():
            self._workers[place] = worker._replace(samples=Samples(self._most))
        self._nodes.clear()
        self._latencies.clear()

    def _record_progress(self, place: Slot, report: Progress, at_s: float) -> None:
        before = self._workers.get(place)
        samples = Samples[Progress](self._most) if before is None else before.samples
        pairs = 0 if before is None else before.pairs
        if report.pairs is not None:
            self._pairs += len(report.pairs) - pairs
            pairs = len(report.pairs)
            if at_s >= self._begin_s:
                samples = samples.add(report.at_ns, report, self._sample_s)
        self._workers[place] = WorkerReports(samples, at_s, report, pairs)
        if at_s < self._begin_s:
            return
        p50, p99 = report.latency_p50_ns, report.latency_p99_ns
        if before is not None and p50 is not None and p99 is not None:
            self._latencies.append(LatencyReport(at_s, report.sunk - before.last.sunk, p50, p99))
            self._forget_latencies(at_s - self._most * self._sample_s)

    def _forget_latencies(self, since_s: float) -> None:
        while self._latencies and self._latencies[0].at_s <= since_s:
            self._latencies.popleft()

    # --- windows -------------------------------------------------------------------------------------------------

    @property
    def _sample_s(self) -> float:
        """Time between samples: that of the rhythm, or as long as the number of pairs requires."""
        return max(self._rhythm.sample_s, float(sample_s(self._pairs)))

    @property
    def _wanted(self) -> int:
        """Samples of a full window."""
        return 1 if self._rhythm.average == "ewma" else max(1, round(self._rhythm.window_s / self._sample_s))

    @property
    def _most(self) -> int:
        """Most samples that are used: an exponentially weighted average reaches further back than a window."""
        if self._rhythm.average != "ewma":
            return self._wanted
        kept = 1 - self._rhythm.newest
        return 1 if kept <= 0 else min(MOST_SMOOTHED, math.ceil(math.log(NEGLIGIBLE) / math.log(kept)))

    def window(self, at_s: float) -> ObservedWindow:
        """Return what is known of the window that ends at `at_s`."""
        sample, most = self._sample_s, self._most
        self._forget_latencies(at_s - most * sample)
        return ObservedWindow(
            at_s=at_s,
            cut_s=self._cut_s,
            begin_s=self._begin_s,
            rhythm=self._rhythm,
            wanted=self._wanted,
            most=most,
            sample_s=sample,
            epoch=self.epoch,
            version=self.version,
            cluster=self._cluster,
            names=self._names,
            places=self._places,
            workers=dict(self._workers),
            nodes=dict(self._nodes),
            heartbeats=dict(self._heartbeats),
            latencies=tuple(self._latencies),
            state_bytes=dict(self._state_bytes),
            moved_s=dict(self._moved_s),
            available=dict(self._available),
            asked_hz=self._asked_hz,
            schedule=self._schedule,
            changes=self._recent_changes(at_s, sample),
            last=self._full,
        )

    def conclude(self, observation: Observation) -> Observation:
        """Return an observation of a window with the history, after it has shown effects of past revisions."""
        if observation.complete:
            self._full = observation
            for number, past in enumerate(self._history):
                carried = past.outcome not in WITHOUT_EFFECT
                if carried and past.effect is None and observation.since_s >= past.at_s >= self._replaced_s:
                    self._history[number] = replace(past, effect=observation.measured)
        return replace(observation, history=tuple(self._history))

    def _recent_changes(self, at_s: float, sample: float) -> tuple[Change, ...]:
        """Return the changes; those before a full window in which the scheduler was asked are forgotten."""
        if at_s >= self._begin_s + self._wanted * sample + (self._rhythm.ask_s or 0.0):
            self._changes.clear()
        return tuple(self._changes)


def _names_of(spec: RunSpec) -> Mapping[int, str]:
    return dict(zip(spec.numbered, map(executor_name, spec.executors), strict=True))
