"""Decisions of online schedulers in finished runs, and placements of executors over time."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet

FAST_ONLINE = {"window_s": 2, "sample_s": 1, "average": "mean", "first_s": 3, "ask_s": 2, "revision": {"settle_s": 0.5}}
"""`online` settings of a scheduler that decides every two seconds."""


def decision_lines(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's decisions without the header line."""
    lines = (folder / "decisions.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines[1:]]


def decisions(folder: Path) -> list[dict[str, Any]]:
    """Return the decisions of a run that have an answer; the end of a run cancels a pending request."""
    return [line for line in decision_lines(folder) if "answer" in line]


def outcomes(run: Mapping[str, Any]) -> list[str]:
    """Return the outcomes of a run's revisions."""
    return [each["outcome"] for each in run["measured"]["revisions"]]


def nodes_over_time(folder: Path, run: Mapping[str, Any]) -> dict[str, list[tuple[float, str]]]:
    """Return executor -> [(seconds since the start of the sources, node)] of its reports.

    After a move, the old worker still reports the rest of the executor's work there.
    """
    rows = pyarrow.parquet.read_table(folder / "traces" / "throughput.parquet").to_pylist()
    start_ns = run["times"]["source_start_ns"]
    found: dict[str, list[tuple[float, str]]] = {}
    for row in sorted(rows, key=lambda row: row["t_ns"]):
        found.setdefault(row["executor"], []).append(((row["t_ns"] - start_ns) / 1e9, row["node"]))
    return found


def table(folder: Path, name: str) -> Sequence[dict[str, Any]]:
    """Return the sorted rows of a table of the run's answer."""
    rows = pyarrow.parquet.read_table(folder / "answer" / name).to_pylist()
    return sorted(rows, key=lambda row: json.dumps(row, default=str))
