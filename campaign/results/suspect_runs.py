"""Reasons why a run is suspect, from CPU events of its nodes."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from agents.sensors.interference import BACKGROUND, CHANGED, THROTTLED
from campaign.results.run_metrics import read_table

MOST_SHOWN = 3
"""Changes that are listed per node; the traces contain all of them."""


def reasons(traces: Path, nodes: Collection[str]) -> list[str]:
    """Return one line per node and kind of event.

    Args:
        traces: folder of `<table>.parquet`.
        nodes: one node of each machine, and the controller for events of this host.
    """
    events = read_table(traces, "event", "kind", "subject", "detail", "value")
    found = []
    for node in sorted(nodes):
        rows = events.filter(pc.equal(events["node"], node))
        where = node or "this host"
        heat, changes, load = (_of(rows, kind) for kind in (THROTTLED, CHANGED, BACKGROUND))
        if heat:
            files = ", ".join(sorted({row["subject"] for row in heat}))
            found.append(f"{where}: thermal throttling, {sum(row['value'] for row in heat):g} times ({files})")
        found += [f"{where}: {row['subject']}: {row['detail']}" for row in changes[:MOST_SHOWN]]
        if len(changes) > MOST_SHOWN:
            found.append(f"{where}: {len(changes) - MOST_SHOWN} more CPU settings were changed, not by this run")
        found += [f"{where}: {row['detail']}" for row in load]
    return found


def _of(rows: pa.Table, kind: str) -> Sequence[Mapping[str, Any]]:
    chosen: list[Mapping[str, Any]] = rows.filter(pc.equal(rows["kind"], kind)).sort_by("t_ns").to_pylist()
    return chosen
