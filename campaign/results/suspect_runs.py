"""Reasons to doubt the metrics of a run: CPU events of its nodes, sensors that failed, its timeline, and recoveries.

The metrics of a run with recoveries should equal those of an undisturbed run. Counters are restored with the state,
and replayed tuples are not counted twice. Once the topology has caught up, every tuple that was due in the measured
interval has been counted exactly once.
"""

from collections.abc import Collection, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from agents.sensors.interference import BACKGROUND, CHANGED, THROTTLED
from agents.sensors.sampler import FAILED
from analysis.measure.covered import Spans, read_table, weighted, weighted_total
from analysis.records.file_types import Measured, Recovery, TimelineRecord
from analysis.records.interval_metrics import Draining
from campaign.results.live_file import duration_text

MOST_SHOWN = 3
"""Changes that are listed per node; the traces contain all of them."""


def doubts_from_events(traces: Path, nodes: Collection[str]) -> list[str]:
    """Return one line per node and kind of event, then one per node and sensor that failed.

    Args:
        traces: folder of `<table>.parquet`.
        nodes: one node of each machine, and the controller for events of this host. Sensors count on every node.
    """
    events = read_table(traces, "event", "kind", "subject", "detail", "value")
    doubts = []
    for node in sorted(nodes):
        rows = events.filter(pc.equal(events["node"], node))
        where = _where(node)
        heat, changes, load = (_of(rows, kind) for kind in (THROTTLED, CHANGED, BACKGROUND))
        if heat:
            files = ", ".join(sorted({row["subject"] for row in heat}))
            doubts.append(f"{where}: thermal throttling, {sum(row['value'] for row in heat):g} times ({files})")
        doubts += [f"{where}: {row['subject']}: {row['detail']}" for row in changes[:MOST_SHOWN]]
        if len(changes) > MOST_SHOWN:
            doubts.append(f"{where}: {len(changes) - MOST_SHOWN} more CPU settings were changed, not by this run")
        doubts += [f"{where}: {row['detail']}" for row in load]
    return doubts + _failures(events)


def _failures(events: pa.Table) -> list[str]:
    """Return a line per node and sensor whose samples are missing: a sum over nodes then lacks what was not read."""
    failed: dict[tuple[str, str], list[str]] = {}
    for row in _of(events, FAILED):
        failed.setdefault((row["node"], row["subject"]), []).append(row["detail"])
    return [
        f"{_where(node)}: sensor {sensor} failed {len(details)} times, last: {details[-1]}"
        for (node, sensor), details in sorted(failed.items())
    ]


def _where(node: str) -> str:
    return node or "this host"


def _of(rows: pa.Table, kind: str) -> Sequence[Mapping[str, Any]]:
    chosen: list[Mapping[str, Any]] = rows.filter(pc.equal(rows["kind"], kind)).sort_by("t_ns").to_pylist()
    return chosen


def checked_timeline(events: Sequence[TimelineRecord], edges_s: Collection[float]) -> list[TimelineRecord]:
    """Return the events of a timeline; those that ended in another part of the run than they were due in are late.

    >>> growth = TimelineRecord(do="scale", asked_s=5.0, began_s=8.0, ended_s=9.5, outcome="done")
    >>> [event.reason for event in checked_timeline([growth], [1.0, 9.0, 15.0])]
    ['it was done at 9.5 s, and had to be before 9 s']

    Args:
        events: what has become of them.
        edges_s: begin and end of the measured interval and of its windows, and the end of the sources, in seconds since
            the sources started.
    """
    checked = []
    for event in events:
        edge_s = min((edge for edge in edges_s if edge > event.asked_s), default=inf)
        if event.ended_s is not None and event.asked_s >= max(edges_s, default=inf):
            event = replace(event, outcome="late", reason="the sources had ended")
        elif event.ended_s is not None and event.ended_s > edge_s:
            reason = f"it was done at {event.ended_s:.3g} s, and had to be before {edge_s:g} s"
            event = replace(event, outcome="late", reason=reason)
        checked.append(event)
    return checked


NEAR = 0.01
"""Accepted deviation, as a share of the tuples that were due or delivered."""

REPORT_S = 1.0
"""Reporting period of workers: the first rows after a recovery also cover the time before it."""


def doubts_from_recoveries(recoveries: Sequence[Recovery], incomplete: str | None) -> list[str]:
    """Return why a run with recoveries is suspect; an empty list without recoveries.

    >>> doubts_from_recoveries([Recovery(at_s=1, took_s=1), Recovery(at_s=4, took_s=1)], "no traces of n2")
    ['2 recoveries, figures incomplete: no traces of n2']
    """
    if not recoveries:
        return []
    count = f"{len(recoveries)} {'recovery' if len(recoveries) == 1 else 'recoveries'}"
    return [f"{count}, figures incomplete: {incomplete}" if incomplete else count]


def why_incomplete(
    traces: Path,
    offsets: Mapping[str, int],
    figures: Measured,
    recoveries: Sequence[Recovery],
    lost: Collection[str],
    end_s: float,
) -> str | None:
    """Return why metrics differ from those of an undisturbed run; None if they are equal within `NEAR`.

    Args:
        traces: folder of `<table>.parquet`.
        offsets: node -> its monotonic clock minus the controller's, in nanoseconds.
        figures: result of `run_metrics.measure`.
        recoveries: recoveries of the run, as in `run.json`.
        lost: nodes whose traces could not be collected.
        end_s: end of the measured interval, in seconds since the sources' start.
    """
    before = [entry for entry in recoveries if entry.at_s < end_s]
    due, emitted = figures.due_tuples_per_s, figures.source_tuples_per_s
    if not before or emitted is None:
        return None
    if lost:
        return f"no traces of {', '.join(sorted(lost))}, which cannot be reached"
    if any(entry.at_s + entry.took_s + REPORT_S > end_s for entry in before):
        return f"a recovery had not ended {REPORT_S:g} s before the measured interval did"
    if due is None:
        return "sources without a schedule never catch up"
    if abs(emitted - due) > NEAR * due:
        behind = "behind" if emitted < due else "ahead, of what had been due before"
        return f"sources emitted {emitted:,.0f} of {due:,.0f} tuples/s that were due: {behind}"
    return _waiting(traces, offsets)


WHOLE = 0.99
"""Share of the due records that a complete run has emitted."""


def why_unfinished(left: Draining, drained: bool, drain_s: float) -> str:
    """Return why a run is incomplete; empty if it is not.

    Args:
        left: what the topology had yet to do at the end.
        drained: whether it had drained.
        drain_s: time that it had for that, in seconds.

    >>> why_unfinished(Draining(rows=0, emitted_records=3278, due_records=4000), True, 30)
    'sources emitted 3,278 of 4,000 records that were due'
    """
    reasons = []
    if not drained:
        reasons.append(f"the topology has not drained within {drain_s:g} s (drain_s): {drain_in_words(left)}")
    if left.due_records is not None and left.emitted_records < WHOLE * left.due_records:
        reasons.append(f"sources emitted {left.emitted_records:,} of {left.due_records:,} records that were due")
    return "; ".join(reasons)


def drain_in_words(left: Draining) -> str:
    """Return the progress of draining.

    >>> drain_in_words(Draining(rows=120_000, rows_per_s=4000, seconds=30))
    '120,000 rows left, 4,000/s, about 30 s'
    """
    parts = [f"{left.rows:,} rows left"]
    if left.rows_per_s is not None:
        parts.append(f"{left.rows_per_s:,.0f}/s")
    if left.seconds is not None:
        parts.append(f"about {duration_text(left.seconds)}")
    return ", ".join(parts)


def _waiting(traces: Path, offsets: Mapping[str, int]) -> str | None:
    """Return the last bolt that did not process the tuples delivered in the interval, if the total share is large.

    Tuples that one bolt lacks are missing in all bolts downstream of it.
    """
    spans = Spans(read_table(traces, "event", "kind", "detail", "value"), offsets)
    rows = weighted(read_table(traces, "throughput", "executor", "role", "processed"), spans)
    sent = weighted(read_table(traces, "channel", "target", "tuples"), spans)
    bolts = pc.unique(rows.filter(pc.not_equal(rows["role"], "spout"))["executor"]).to_pylist()
    behind, share = "", 0.0
    for component in sorted({name.rpartition("[")[0] for name in bolts}):
        mine = pa.array([name for name in bolts if name.rpartition("[")[0] == component], pa.string())
        processed = weighted_total(rows.filter(pc.is_in(rows["executor"], mine)), "processed")
        delivered = weighted_total(sent.filter(pc.is_in(sent["target"], mine)), "tuples")
        if delivered and round(processed) != round(delivered):
            share += abs(processed / delivered - 1)
            behind = f"{component} processed {processed:,.0f} of {delivered:,.0f} tuples in the measured interval"
    return behind if share > NEAR else None
