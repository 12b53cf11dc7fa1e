"""Traffic and observations of finished runs, from their traces: what schedulers use of a running topology."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from agents.worker.executors.executor import percentile
from analysis.measure.covered import amounts, by_worker, due_curves, ends_within, read_table, weighted, weighted_total
from analysis.measure.cpu_times import CpuPoints, read_loads
from analysis.measure.energy_attribution import metered
from analysis.measure.finished_run import FinishedRun, RunPart
from analysis.measure.observations import (
    CLOCK,
    HEARTBEATS,
    MOST_HISTORY,
    POINTS,
    SILENT_SAMPLES,
    STATE,
    ExecutorRates,
    LatencyReport,
    NodeRates,
    PairFlow,
    WindowFigures,
    rounded,
    sink_of,
)
from analysis.measure.observed_events import HAPPENINGS, Told, cuts_until, lost_nodes, schedule_at, told_until
from inventory.cluster import Node
from inventory.errors import InputError
from inventory.times import NS
from scheduler.online.observation import (
    MOST_LOAD,
    Change,
    Observation,
    ObservedSink,
    PastRevision,
)
from scheduler.problem import Slot
from workloads.traffic import Edge, Traffic

SETTLE_S = 2.0
"""Time from a change to the first sample of a window."""

SHIFT = 6
"""Digits of shares and times after the decimal point; rates and points have three."""

Progress = Callable[[float], None]
"""Receiver of the completed share, 0 to 1."""


class PairRates(NamedTuple):
    """Rates from one executor to another; `bytes_per_s` is None inside a worker."""

    source: str
    target: str
    tuples_per_s: float
    bytes_per_s: float | None


def traffic_of_run(run: FinishedRun, since_s: float, until_s: float, on_progress: Progress) -> Traffic:
    """Return the mean rates and loads in a part of a run; without the sensor `cpu` there are no loads.

    Args:
        run: the run.
        since_s, until_s: begin and end, in seconds since the sources started.
        on_progress: receiver of the progress.
    """
    interval = run.interval(since_s, until_s)
    channels = _channels(run, interval)
    on_progress(0.5)
    loads = read_loads(run.traces, interval, channels) or CpuPoints({}, {}, {})
    on_progress(1.0)
    return Traffic(
        tuple(
            Edge(pair.source, pair.target, pair.tuples_per_s, *([] if pair.bytes_per_s is None else [pair.bytes_per_s]))
            for pair in _pairs(run, channels)
        ),
        {name: round(loads.load[name], 3) for name in run.placed if name in loads.load},
        {node.id: share_of(loads.nodes[node.id], node) for node in run.cluster.nodes if node.id in loads.nodes},
    )


def observe_run(run: FinishedRun, at_s: float, window_s: float | None, on_progress: Progress) -> Observation:
    """Return the observation of a run at one time.

    The window begins `window_s` before, or with the measured interval, and is cut at the last change before its end.

    Args:
        run: the run.
        at_s: end of the window, in seconds since the sources started.
        window_s: its length; None: from the begin of the measured interval, or of the run if that is later.
        on_progress: receiver of the progress.

    Raises:
        InputError: the run was made without the sensor `cpu`, or the window is empty.
    """
    measured_s, _ = run.measured_s
    asked_s = at_s - window_s if window_s is not None else measured_s if measured_s < at_s else 0.0
    cuts = cuts_until(run, at_s)
    since_s = max([asked_s, 0.0, *(cut.at_s + SETTLE_S for cut in cuts)])
    if since_s >= at_s:
        last = max(cuts, key=lambda cut: cut.at_s)
        what = f"{last.kind}{' of ' * bool(last.subject)}{last.subject}"
        raise InputError(
            f"{run.run.id}: no window ends at {at_s:g} s: samples begin {SETTLE_S:g} s after a change, and the last "
            f"one ({what}) was at {last.at_s:g} s; another end is chosen with --at"
        )
    interval = run.interval(since_s, at_s)
    channels = _channels(run, interval)
    on_progress(0.3)
    loads = read_loads(run.traces, interval, channels)
    if loads is None:
        raise InputError(f"{run.run.id}: its executors' loads are unknown: it was made without the sensor 'cpu'")
    on_progress(0.6)
    places, queued, missing = _ends(run, interval)
    rates = _rates(run, interval, places)
    told = told_until(run, at_s)
    figures = WindowFigures(
        places=places,
        rates=rates,
        loads=loads.load,
        pairs={
            (p.source, p.target): PairFlow(p.tuples_per_s, p.bytes_per_s or 0.0)
            for p in _pairs(run, channels)
            if {p.source, p.target} <= places.keys()
        },
        nodes=_nodes(run, interval, loads, told),
        available={node.id: node.available and node.id not in lost_nodes(cuts) for node in run.cluster.nodes},
        asked_hz=run.frequencies_hz,
        queued=queued,
        state_bytes={name: round(size) for name, size in told.get(STATE, {}).items()},
        moved_s={cut.subject: round(cut.at_s, SHIFT) for cut in cuts if cut.kind == "move"},
        late_s=_late_s(run, interval),
        sink=_sink(run, interval),
    )
    observation = replace(
        figures.observation(run.cluster, round(since_s, SHIFT), round(at_s, SHIFT)),
        samples=max(1, round(interval.seconds)),
        epoch=1 + sum(cut.kind == "recovery" for cut in cuts),
        version=len(cuts),
        schedule=schedule_at(run, at_s, cuts),
        missing=tuple(missing),
        complete=not missing and (window_s is None or since_s <= asked_s),
        changes=tuple(
            Change.of(round(cut.at_s, SHIFT), HAPPENINGS[cut.kind], cut.subject)
            for cut in cuts
            if cut.kind in HAPPENINGS and cut.at_s > asked_s
        ),
        history=_history(run, at_s),
    )
    on_progress(1.0)
    return rounded(observation)


def _history(run: FinishedRun, at_s: float) -> tuple[PastRevision, ...]:
    """Return the last revisions whose outcome was known at a time."""
    measured = run.run.file.measured if run.run.file else None
    past = []
    for record in measured.revisions if measured is not None else ():
        known_s = record.ended_s if record.ended_s is not None else record.at_s + record.decided_s
        if known_s > at_s or record.outcome == "no" or record.outcome == "shadow":
            continue
        past.append(
            PastRevision(
                number=record.number,
                at_s=known_s,
                reason=record.reason,
                outcome=record.outcome,
                message=record.message,
                moves=record.moves,
                expects=record.expects,
                before=record.before,
                effect=record.after,
            )
        )
    return tuple(past[-MOST_HISTORY:])


def _channels(run: FinishedRun, interval: RunPart) -> pa.Table:
    """Return the rows of table `channel` in an interval, with their weights."""
    rows = weighted(
        read_table(run.traces, "channel", "source", "target", "hop", "target_node", "tuples", "bytes"), interval
    )
    # Bytes of other times would make those of pairs within a worker known, as 0.
    return rows.filter(pc.greater(rows["weight"], 0))


def _pairs(run: FinishedRun, channels: pa.Table) -> list[PairRates]:
    """Return the pairs with traffic, in the topology's order."""
    tuples, nbytes = (amounts(channels, column) for column in ("tuples", "bytes"))
    rated = channels.append_column("rate", tuples).append_column("byte_rate", nbytes)
    # A sum of nulls alone is null.
    rows = rated.group_by(["source", "target"]).aggregate([("rate", "sum"), ("byte_rate", "sum")]).to_pylist()
    at = {name: number for number, name in enumerate(run.placed)}
    rows.sort(key=lambda row: (at.get(row["source"], len(at)), at.get(row["target"], len(at))))
    return [
        PairRates(row["source"], row["target"], round(row["rate_sum"], 3), _rounded(row["byte_rate_sum"]))
        for row in rows
        if row["rate_sum"] > 0
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def share_of(points: float, node: Node) -> float:
    """Return CPU points as a share of a node's `cpu`, as far as files have it."""
    return min(MOST_LOAD, round(points / node.cpu_points, SHIFT)) if node.cpu_points else MOST_LOAD


def _ends(run: FinishedRun, interval: RunPart) -> tuple[dict[str, Slot], dict[str, int], list[str]]:
    """Return executor -> its slot and its queue at the end, and the workers (`node/slot`) that were silent then."""
    rows = read_table(run.traces, "executor", "executor", "queued")
    ends = {name: _end_of(own_rows, interval) for name, own_rows in _rows_by_executor(rows).items()}
    places, missing = {}, []
    for name, placed in run.placed_at(interval.at_s).items():
        end = ends.get(name)
        places[name] = slot = placed if end is None else end.slot
        if end is None or end.is_silent:
            missing.append(f"{slot.node}/{slot.index}")
    queued = {name: end.queued for name, end in ends.items() if end.queued is not None}
    return places, queued, list(dict.fromkeys(missing))


def _rates(run: FinishedRun, interval: RunPart, places: Mapping[str, Slot]) -> dict[str, ExecutorRates]:
    columns = ("executor", "role", "emitted", "processed", "due")
    throughput = weighted(read_table(run.traces, "throughput", *columns), interval)
    emitted, processed = _by_executor(throughput, "emitted"), _by_executor(throughput, "processed")
    spouts = throughput.filter(pc.equal(throughput["role"], "spout"))
    due = due_curves(spouts, interval)
    sources = set(pc.unique(spouts["executor"]).to_pylist())
    times = weighted(read_table(run.traces, "executor", "executor", "busy_ns", "blocked_ns"), interval)
    busy, blocked = _by_executor(times, "busy_ns"), _by_executor(times, "blocked_ns")
    return {
        name: ExecutorRates(
            busy=busy.get(name, 0.0) / NS * POINTS,
            processed=processed.get(name, 0.0),
            emitted=emitted.get(name, 0.0),
            blocked=min(1.0, blocked.get(name, 0.0) / NS),
            due=None
            if name not in sources
            else due[name].between(0, round(interval.seconds * NS)) / interval.seconds
            if name in due
            else emitted.get(name, 0.0),
        )
        for name in places
    }


def _by_executor(rows: pa.Table, column: str) -> dict[str, float]:
    """Return executor -> mean of a counter per second."""
    rated = rows.append_column("rate", amounts(rows, column))
    summed = rated.group_by("executor").aggregate([("rate", "sum")]).to_pylist()
    return {row["executor"]: row["rate_sum"] or 0.0 for row in summed}


class _End(NamedTuple):
    """An executor at the end of a window."""

    slot: Slot
    queued: int | None
    is_silent: bool


def _rows_by_executor(rows: pa.Table) -> dict[str, list[tuple[str, int, int, int]]]:
    """Return executor -> its rows (node, slot, time, queued)."""
    by_name: dict[str, list[tuple[str, int, int, int]]] = {}
    columns = (rows[column].to_pylist() for column in ("executor", "node", "worker", "t_ns", "queued"))
    for name, *values in zip(*columns, strict=True):
        by_name.setdefault(name, []).append(tuple(values))
    return by_name


def _end_of(rows: Iterable[tuple[str, int, int, int]], interval: RunPart) -> _End:
    """Return where an executor was at the end of a window, from the row that covers it, and its queue then."""
    # Times are relative to the window's end, which nodes have in their own clocks.
    timed = sorted((t_ns - interval.of(node, slot)[1], node, slot, queued) for node, slot, t_ns, queued in rows)
    after = bisect_left(timed, 0, key=lambda row: row[0])
    _, node, slot, _ = timed[min(after, len(timed) - 1)]
    before_ns, _, _, queued = timed[max(0, after - 1)]
    covered = after < len(timed) or before_ns >= -SILENT_SAMPLES * NS
    return _End(Slot(node, slot), queued, not covered)


def _nodes(run: FinishedRun, interval: RunPart, loads: CpuPoints, told: Told) -> dict[str, NodeRates]:
    power = read_table(
        run.traces,
        *("power", "domain", "role", "source", "in_total", "raw", "joules", "watts", "bound_joules", "t_half_ns"),
        *("flags", "shared"),
    )
    own = power.filter(pc.invert(power["shared"]))
    by_node = {}
    for node in run.cluster.nodes:
        points = loads.nodes.get(node.id)
        watts, source, modelled = _watts(own, node.id, interval)
        by_node[node.id] = NodeRates(
            cores=None if points is None else points / POINTS,
            hz=told.get(CLOCK, {}).get(node.id),
            watts=watts,
            source=source,
            modelled=modelled,
            heartbeats=told.get(HEARTBEATS, {}).get(node.id),
        )
    return by_node


def _watts(power: pa.Table, node: str, interval: RunPart) -> tuple[float | None, str | None, bool]:
    """Return the mean power of a node that has its machine for itself, its reader, and whether it is modelled.

    Power and reader are None if they are not known.
    """
    start_ns, end_ns = interval.of(node, -1)
    terms = [each for each in metered(power, node, start_ns, end_ns) if each.domain.in_total]
    joules = [each.energy.joules for each in terms]
    if not terms or None in joules:
        return None, None, False
    watts = round(sum(j or 0.0 for j in joules) / interval.seconds, 3)
    return watts, terms[0].domain.source, any("modelled" in each.domain.flags for each in terms)


def _late_s(run: FinishedRun, interval: RunPart) -> float:
    """Return the largest delay of a source in its last row until the end."""
    throughput = read_table(run.traces, "throughput", "executor", "role", "late_ns")
    late: dict[str, int] = {}
    for row in throughput.filter(pc.equal(throughput["role"], "spout")).sort_by("t_ns").to_pylist():
        if row["t_ns"] <= interval.of(row["node"], row["worker"])[1] and row["late_ns"] is not None:
            late[row["executor"]] = row["late_ns"]
    return max(late.values(), default=0) / NS


def _sink(run: FinishedRun, interval: RunPart) -> ObservedSink:
    """Return rate and latency at the sinks; latencies are unknown that do not exceed the error of the clocks."""
    throughput = read_table(run.traces, "throughput", "role", "processed")
    sinks = weighted(throughput.filter(pc.equal(throughput["role"], "sink")), interval)
    at_sinks = sink_of(weighted_total(sinks, "processed", "weight_per_s"), _latency_reports(run, interval, sinks))
    bound_ms = run.run.latency_bound_ms or 0.0
    known = (
        None if bound_ms and each is not None and each <= bound_ms else each
        for each in (at_sinks.p50_ms, at_sinks.p99_ms)
    )
    return ObservedSink(at_sinks.per_s, *known)


def _latency_reports(run: FinishedRun, interval: RunPart, sinks: pa.Table) -> list[LatencyReport]:
    """Return the percentiles that workers reported in an interval, from the histograms in the traces."""
    processed: Counter[tuple[str, int, int]] = Counter()
    for row in sinks.select(["node", "worker", "t_ns", "processed"]).to_pylist():
        processed[row["node"], row["worker"], row["t_ns"]] += row["processed"]
    counts: dict[tuple[str, int, int], list[tuple[int, int]]] = {}
    samples = read_table(run.traces, "latency", "value_ns", "count")
    for rows, start, end in by_worker(samples, interval):
        for row in rows.filter(ends_within(rows, start, end)).sort_by("value_ns").to_pylist():
            counts.setdefault((row["node"], row["worker"], row["t_ns"]), []).append((row["value_ns"], row["count"]))
    return [
        LatencyReport(
            run.seconds(key[2] - run.offsets.get(key[0], 0)),
            processed[key],
            percentile(histogram, 0.5) or 0,
            percentile(histogram, 0.99) or 0,
        )
        for key, histogram in counts.items()
    ]
