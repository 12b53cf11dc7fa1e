"""Whether the figures of a run with recoveries are those of an undisturbed run.

Counters go back with the state, and what comes again is not counted. So once the topology has caught up, all that was
due in the measured interval has been counted in it, once.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from campaign.results.run_metrics import Spans, read_table, total, weighted

NEAR = 0.01
"""By this share of the tuples that were due, or delivered, figures may be off."""

REPORT_S = 1.0
"""Workers report once a second: the first rows behind a recovery tell of the time before it, too."""


def doubt(recoveries: Sequence[Mapping[str, Any]], incomplete: str | None) -> list[str]:
    """Why a run with recoveries is suspect; nothing without any.

    >>> doubt([{}, {}], "no traces of n2")
    ['2 recoveries, figures incomplete: no traces of n2']
    """
    if not recoveries:
        return []
    count = f"{len(recoveries)} {'recovery' if len(recoveries) == 1 else 'recoveries'}"
    return [f"{count}, figures incomplete: {incomplete}" if incomplete else count]


def why_incomplete(
    traces: Path,
    offsets: Mapping[str, int],
    figures: Mapping[str, Any],
    recoveries: Sequence[Mapping[str, Any]],
    lost: Collection[str],
    end_s: float,
) -> str | None:
    """Why figures are not those of an undisturbed run; None when they are, within `NEAR`.

    Args:
        traces: folder of `<table>.parquet`.
        offsets: node -> what its monotonic clock shows more than the controller's, in nanoseconds.
        figures: what `measured.measure` returned.
        recoveries: of the run, as in `run.json`.
        lost: nodes whose traces could not be collected.
        end_s: end of the measured interval, in seconds since the sources' start.
    """
    before = [entry for entry in recoveries if entry["at_s"] < end_s]
    due, emitted = figures["due_tuples_per_s"], figures["source_tuples_per_s"]
    if not before or emitted is None:
        return None
    if lost:
        return f"no traces of {', '.join(sorted(lost))}, which cannot be reached"
    if any(entry["at_s"] + entry["took_s"] + REPORT_S > end_s for entry in before):
        return f"a recovery had not ended {REPORT_S:g} s before the measured interval did"
    if due is None:
        return "sources without a schedule never catch up"
    if abs(emitted - due) > NEAR * due:
        behind = "behind" if emitted < due else "ahead, of what had been due before"
        return f"sources emitted {emitted:,.0f} of {due:,.0f} tuples/s that were due: {behind}"
    return _waiting(traces, offsets)


def _waiting(traces: Path, offsets: Mapping[str, int]) -> str | None:
    """Whether bolts had not done what was delivered to them in the interval; what one lacks all behind it lack, too."""
    spans = Spans(read_table(traces, "event", "kind", "detail", "value"), offsets)
    rows = weighted(read_table(traces, "throughput", "executor", "role", "processed"), ["executor"], spans)
    sent = weighted(
        read_table(traces, "channel", "source", "target", "stream", "tuples"), ["source", "target", "stream"], spans
    )
    bolts = pc.unique(rows.filter(pc.not_equal(rows["role"], "spout"))["executor"]).to_pylist()
    behind, share = "", 0.0
    for component in sorted({name.rpartition("[")[0] for name in bolts}):
        mine = pa.array([name for name in bolts if name.rpartition("[")[0] == component], pa.string())
        processed = total(rows.filter(pc.is_in(rows["executor"], mine)), "processed")
        delivered = total(sent.filter(pc.is_in(sent["target"], mine)), "tuples")
        if delivered and round(processed) != round(delivered):
            share += abs(processed / delivered - 1)
            behind = f"{component} processed {processed:,.0f} of {delivered:,.0f} tuples in the measured interval"
    return behind if share > NEAR else None
