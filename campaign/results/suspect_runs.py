"""Why a run is suspect, by what its nodes have seen of their CPUs."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from agents.sensors.interference import BACKGROUND, CHANGED, THROTTLED
from campaign.results.run_metrics import read_table

MOST_SHOWN = 3
"""Changes that are told of one node; the traces have all."""


def reasons(traces: Path, nodes: Collection[str]) -> list[str]:
    """One line per node and kind of event.

    Args:
        traces: folder of `<table>.parquet`.
        nodes: whose events count; of nodes that share a machine one is enough. The controller's are of this host.
    """
    events = read_table(traces, "event", "kind", "subject", "detail", "value")
    found = []
    for node in sorted(nodes):
        rows = events.filter(pc.equal(events["node"], node))
        where = node or "this host"
        heat, changes, load = (_of(rows, kind) for kind in (THROTTLED, CHANGED, BACKGROUND))
        if heat:
            files = ", ".join(sorted({row["subject"] for row in heat}))
            found.append(f"{where}: throttled itself for heat {sum(row['value'] for row in heat):g} times ({files})")
        found += [f"{where}: {row['subject']}: {row['detail']}" for row in changes[:MOST_SHOWN]]
        if len(changes) > MOST_SHOWN:
            found.append(f"{where}: {len(changes) - MOST_SHOWN} more CPU settings were changed, not by this run")
        found += [f"{where}: {row['detail']}" for row in load]
    return found


def _of(rows: pa.Table, kind: str) -> Sequence[Mapping[str, Any]]:
    chosen: list[Mapping[str, Any]] = rows.filter(pc.equal(rows["kind"], kind)).sort_by("t_ns").to_pylist()
    return chosen
