"""Measurements of a whole run over time, from its traces: bins of one second, and means of any part.

Times are seconds since the start of the sources, by the controller's clock.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agents.power.energy import IntervalEnergy, energy
from agents.power.series import Sample
from analysis.measure.covered import AmountOverTime, Floats, Times, due_curves, read_table
from analysis.measure.energy_attribution import curve_of, domains_of
from analysis.measure.run_metrics import HOPS
from analysis.records.accounts import EnergyExcess, WindowMeans
from inventory.cluster import Machine
from inventory.times import NS

POWER_COLUMNS = ("domain", "role", "source", "in_total", "raw", "joules", "watts", "bound_joules", "t_half_ns", "flags")


@dataclass(frozen=True)
class SecondBins:
    """Consecutive bins of one second.

    Attributes:
        tuples: tuples that reached sinks, per bin.
        due: tuples due by the schedule of the spouts; None without a schedule.
        latency_s: mean latency of the samples; NaN without samples.
        watts: power of all machines; None when it is unknown in any bin.
    """

    tuples: Floats
    due: Floats | None
    latency_s: Floats
    watts: Floats | None = None

    def __len__(self) -> int:
        return len(self.tuples)

    def part(self, first: int, end: int) -> "SecondBins":
        """Return the bins from number `first` up to `end`, without that one."""
        due = None if self.due is None else self.due[first:end]
        watts = None if self.watts is None else self.watts[first:end]
        return SecondBins(self.tuples[first:end], due, self.latency_s[first:end], watts)

    @property
    def mean_latency_s(self) -> float | None:
        """Mean latency over all tuples; None without samples."""
        sampled = ~np.isnan(self.latency_s)
        tuples = self.tuples[sampled]
        if not sampled.any():
            return None
        if not tuples.sum():
            return float(self.latency_s[sampled].mean())
        return float((self.latency_s[sampled] * tuples).sum() / tuples.sum())


class RunSeries:
    """Measurements of one run."""

    def __init__(
        self,
        traces: Path,
        machines: Sequence[Machine],
        offsets: Mapping[str, int],
        start_ns: int,
        latency_bound_ms: float = 0.0,
    ) -> None:
        """Read the traces.

        Args:
            traces: folder of `<table>.parquet`.
            machines: machines of the run.
            offsets: node -> its monotonic clock minus the controller's, in nanoseconds.
            start_ns: start of the sources, on the controller's monotonic clock.
            latency_bound_ms: error bound of latencies due to different clocks.
        """
        self._offsets, self._start_ns, self._bound_ms = offsets, start_ns, latency_bound_ms
        columns = ("executor", "role", "processed", "due", "replayed")
        rows = read_table(traces, "throughput", *columns)
        sinks, spouts = (rows.filter(pc.equal(rows["role"], role)) for role in ("sink", "spout"))
        self._sinks, self._replayed = self._flow(sinks, "processed"), self._flow(spouts, "replayed")
        self._due = due_curves(spouts, self)
        sent = read_table(traces, "channel", "hop", "tuples")
        self._hops = {hop: self._flow(sent.filter(pc.equal(sent["hop"], hop)), "tuples") for hop in HOPS}
        latency = read_table(traces, "latency", "value_ns", "count")
        latency = latency.append_column("product", pc.multiply(latency["value_ns"], latency["count"]))
        self._samples, self._products = (self._flow(latency, column) for column in ("count", "product"))
        order = np.argsort(times := self._times(latency), kind="stable")
        self._latency_at = times[order]
        self._latency_ns = latency["value_ns"].to_numpy()[order]
        self._latency_counts = latency["count"].to_numpy()[order]
        self._places = self._place_changes(rows)
        power = read_table(traces, "power", *POWER_COLUMNS)
        self._power = [_Meter(power, each.metered, start_ns + offsets.get(each.metered, 0)) for each in machines]

    def bins(self, since_s: float, count: int) -> SecondBins:
        """Return bins from a time on."""
        edges = since_s + np.arange(count + 1.0)
        edges_ns = np.round(edges * NS).astype(np.int64)
        samples = self._samples.steps(edges_ns)
        with np.errstate(divide="ignore", invalid="ignore"):
            latency_s = np.where(samples > 0, self._products.steps(edges_ns) / samples / NS, np.nan)
        meters = [meter.steps(edges) for meter in self._power]
        known = [each for each in meters if each is not None]
        return SecondBins(
            tuples=self._sinks.steps(edges_ns),
            due=np.diff(self._due_at(edges)) if self._due else None,
            latency_s=latency_s,
            watts=np.sum(known, axis=0) if known and len(known) == len(meters) else None,
        )

    def means(self, from_s: float, to_s: float) -> WindowMeans:
        """Return means over a part of the run that is not empty."""
        seconds = to_s - from_s
        edges = np.array([from_s, to_s])
        part_ns = round(from_s * NS), round(to_s * NS)
        samples = self._samples.between(*part_ns)
        mean_ms = self._products.between(*part_ns) / samples / 1e6 if samples > 0 else None
        used = self.energy(from_s, to_s)
        return WindowMeans(
            from_s=round(from_s, 6),
            to_s=round(to_s, 6),
            due_tuples_per_s=round(float(np.diff(self._due_at(edges))[0]) / seconds, 3) if self._due else None,
            sink_tuples_per_s=round(self._sinks.between(*part_ns) / seconds, 3),
            latency_mean_ms=self._known_ms(mean_ms),
            latency_p50_ms=self._known_ms(self._percentile_ms(0.50, from_s, to_s)),
            latency_p95_ms=self._known_ms(self._percentile_ms(0.95, from_s, to_s)),
            hops={hop: round(flow.between(*part_ns) / seconds, 3) for hop, flow in self._hops.items()},
            nodes=self._nodes_at(to_s),
            watts=None if used is None else round(used.joules / seconds, 6),
            sources=used.sources if used else [],
            modelled=used is not None and used.modelled,
        )

    def replayed(self, from_s: float, to_s: float) -> float:
        """Return the number of tuples that spouts emitted again."""
        return self._replayed.between(round(from_s * NS), round(to_s * NS))

    def energy(self, from_s: float, to_s: float) -> EnergyExcess | None:
        """Return the energy of all machines in an interval; None when a part is unknown."""
        parts = [part for meter in self._power for part in meter.energy(from_s, to_s)]
        if not parts or not all(meter.is_present for meter in self._power):
            return None
        joules, bounds = [part.joules for part in parts], [part.bound_joules for part in parts]
        known, bound = [one for one in joules if one is not None], [one for one in bounds if one is not None]
        if len(known) < len(parts):
            return None
        return EnergyExcess(
            joules=sum(known),
            bound_joules=sum(bound),
            sources=sorted({source for meter in self._power for source in meter.sources}),
            modelled=any(meter.modelled for meter in self._power),
        )

    def energy_excess(self, before_s: float, begun_s: float, recovered_s: float) -> EnergyExcess | None:
        """Return the energy from the begin of a change to its recovery beyond that of as long a time before it.

        Args:
            before_s: begin of the time before, which ends when the change begins.
            begun_s, recovered_s: the change and its recovery.
        """
        before = self.energy(before_s, begun_s)
        if before is None:
            return None
        if recovered_s == begun_s:
            return EnergyExcess(joules=0.0, bound_joules=0.0, sources=before.sources, modelled=before.modelled)
        during = self.energy(begun_s, recovered_s)
        if during is None:
            return None
        ratio = (recovered_s - begun_s) / (begun_s - before_s)
        return EnergyExcess(
            joules=round(during.joules - before.joules * ratio, 6),
            bound_joules=round(during.bound_joules + before.bound_joules * ratio, 6),
            sources=during.sources,
            modelled=during.modelled,
        )

    def _known_ms(self, value: float | None) -> float | None:
        return None if value is None or (self._bound_ms and value <= self._bound_ms) else round(value, 3)

    def _percentile_ms(self, share: float, from_s: float, to_s: float) -> float | None:
        first, end = np.searchsorted(self._latency_at, [from_s, to_s], side="right")
        values, counts = self._latency_ns[first:end], self._latency_counts[first:end]
        if not counts.sum():
            return None
        order = np.argsort(values, kind="stable")
        reached = np.cumsum(counts[order])
        return float(values[order][np.searchsorted(reached, share * reached[-1])]) / 1e6

    def _local_ns(self, table: pa.Table, column: str) -> Times:
        """Return times of a table's rows, in nanoseconds since the start of the sources."""
        names = pc.unique(table["node"]).to_pylist()
        clocks = np.array([self._start_ns + self._offsets.get(name, 0) for name in names], dtype=np.int64)
        at = pc.index_in(table["node"], pa.array(names, pa.string())).to_numpy()
        since_start: Times = table[column].to_numpy() - clocks[at]
        return since_start

    def _times(self, table: pa.Table) -> Floats:
        """Return the ends of the times that rows cover, in seconds."""
        return self._local_ns(table, "t_ns") / NS

    def _flow(self, table: pa.Table, column: str) -> AmountOverTime:
        """Return a column's amounts over time."""
        added = table[column].fill_null(0).to_numpy().astype(np.float64)
        return AmountOverTime(self._local_ns(table, "since_ns"), self._local_ns(table, "t_ns"), added)

    def _due_at(self, edges: Floats) -> Floats:
        return np.array([sum(curve.at(round(edge * NS)) for curve in self._due.values()) for edge in edges])

    def of(self, node: str, _worker: int) -> tuple[int, int]:
        """Return start and end of the sources' time on a node's clock, in nanoseconds, as one of `Intervals`."""
        start_ns = self._start_ns + self._offsets.get(node, 0)
        return start_ns, start_ns

    def _place_changes(self, rows: pa.Table) -> Mapping[str, list[tuple[float, str]]]:
        """Return executor -> its nodes, each with the time from which it is known."""
        nodes_of: dict[str, list[tuple[float, str]]] = {}
        times = self._times(rows)
        names, nodes = rows["executor"].to_pylist(), rows["node"].to_pylist()
        for at in np.argsort(times, kind="stable"):
            here = nodes_of.setdefault(names[at], [])
            if not here or here[-1][1] != nodes[at]:
                here.append((float(times[at]), nodes[at]))
        return nodes_of

    def _nodes_at(self, at_s: float) -> int | None:
        used = {
            next((node for since_s, node in reversed(changes) if since_s <= at_s), changes[0][1])
            for changes in self._places.values()
        }
        return len(used) or None


class _Meter:
    """Meters of one machine: the terms of its total power."""

    def __init__(self, power: pa.Table, node: str, start_ns: int) -> None:
        """Take the rows of a node from the table `power`; `start_ns` is the start of the sources in its clock."""
        self._start_ns = start_ns
        terms = [samples for samples in domains_of(power, node) if samples[0].domain.in_total]
        self._terms = [_Term(samples) for samples in terms]
        self.sources = {samples[0].domain.source for samples in terms}
        self.modelled = any("modelled" in samples[0].domain.flags for samples in terms)

    @property
    def is_present(self) -> bool:
        """True if the machine has a meter."""
        return bool(self._terms)

    def energy(self, from_s: float, to_s: float) -> list[IntervalEnergy]:
        """Return the energy of every term in an interval."""
        start_ns, end_ns = (self._start_ns + round(at_s * NS) for at_s in (from_s, to_s))
        return [term.energy(start_ns, end_ns) for term in self._terms]

    def steps(self, edges: Floats) -> Floats | None:
        """Return the joules between each edge and the next; None without a meter, or if a part is unknown."""
        if any(each.joules is None for each in self.energy(edges[0], edges[-1])) or not self._terms:
            return None
        at_ns = [self._start_ns + round(edge * NS) for edge in edges]
        return np.diff([sum(term.curve.at(moment) for term in self._terms) for moment in at_ns])


class _Term:
    """Samples of one domain."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples, self.curve = samples, curve_of(samples)
        self._times = [sample.t_ns for sample in samples]

    def energy(self, start_ns: int, end_ns: int) -> IntervalEnergy:
        """Return the energy in an interval of the node's time."""
        # A few samples beside the interval are enough for its edges; a long run has many.
        first, last = bisect_left(self._times, start_ns) - 2, bisect_right(self._times, end_ns) + 2
        return energy(self._samples[max(0, first) : last], start_ns, end_ns)
