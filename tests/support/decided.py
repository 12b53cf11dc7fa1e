"""What online schedulers decided in finished runs of a desk, and where executors ran."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet

QUICK = {"window_s": 2, "sample_s": 1, "average": "mean", "first_s": 3, "ask_s": 2, "revision": {"settle_s": 0.5}}
"""`online` of a scheduler that is asked every two seconds."""


def decision_lines(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's decisions, without the first, which names the scheduler."""
    lines = (folder / "decisions.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines[1:]]


def decisions(folder: Path) -> list[dict[str, Any]]:
    """Return the decisions of a run that have an answer: the end of a run withdraws a question that is still open."""
    return [line for line in decision_lines(folder) if "answer" in line]


def outcomes(run: Mapping[str, Any]) -> list[str]:
    """Return the outcomes of a run's revisions."""
    return [each["outcome"] for each in run["measured"]["revisions"]]


def measured_on(folder: Path, run: Mapping[str, Any]) -> dict[str, list[tuple[float, str]]]:
    """Return executor -> when its work was measured, in seconds since the start of the sources, and the node.

    After a move, the worker that it has left still reports the rest of its work there.
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
