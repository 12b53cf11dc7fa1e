"""Resources that a run used, by its traces: workers, CPU time, the busiest link, and how evenly nodes were used."""

from collections import defaultdict
from pathlib import Path
from statistics import mean, pstdev
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from agents.trace import AGENT
from analysis.records.campaign import Run
from inventory.times import NS

_BITS_PER_MBIT = 1e6


class Used(NamedTuple):
    """Resources that a run used; None: unknown.

    Attributes:
        workers: worker processes with executors.
        cores: CPU cores in use by workers, in the mean.
        link: largest share of a link's rate that the run's tuples took; None where links have no limit.
    """

    workers: int | None
    cores: float | None
    link: float | None


def used_by(run: Run) -> Used:
    """Return what a run used; a row of its traces counts if it was written in the interval of its process."""
    workers = len(run.slots) or None
    traces = run.folder / "traces"
    if not (traces / "event.parquet").is_file():
        return Used(workers, None, None)
    marks = _marks(traces)
    return Used(workers, _worker_cores(traces, marks), _busiest_link(run, traces, marks))


def node_spread(run: Run) -> float | None:
    """Return the coefficient of variation of the tuples that the nodes' bolts processed; None: unknown.

    Nodes without workers are not counted: how many nodes a placement uses is another question.
    """
    traces = run.folder / "traces"
    if not (traces / "event.parquet").is_file():
        return None
    marks = _marks(traces)
    of_node: dict[str, float] = dict.fromkeys((node for node, worker in marks if worker != AGENT), 0.0)
    for row in _rows(traces, "throughput", "role", "processed"):
        if row["role"] != "spout" and row["processed"] is not None and _within(row, marks):
            of_node[row["node"]] += row["processed"]
    if len(of_node) < 2 or not sum(of_node.values()):
        return None
    return pstdev(of_node.values()) / mean(of_node.values())


Row = dict[str, Any]
Marks = dict[tuple[str, int], tuple[int, int]]
"""(Node, worker) -> begin and end of the measured interval in the clock of that process, in ns."""


def _marks(traces: Path) -> Marks:
    times: dict[tuple[str, int], dict[str, int]] = defaultdict(dict)
    for row in _rows(traces, "event", "kind"):
        if row["kind"] in ("measure_start", "measure_end"):
            times[row["node"], row["worker"]][row["kind"]] = row["t_ns"]
    return {
        process: (each["measure_start"], each["measure_end"])
        for process, each in times.items()
        if each.get("measure_end", 0) > each.get("measure_start", each.get("measure_end", 0))
    }


def _worker_cores(traces: Path, marks: Marks) -> float | None:
    of_worker: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in _rows(traces, "cpu", "scope", "name", "cores"):
        if row["scope"] == "worker" and row["cores"] is not None and _within(row, marks):
            of_worker[row["node"], row["name"]].append(row["cores"])
    return sum(sum(each) / len(each) for each in of_worker.values()) if of_worker else None


def _busiest_link(run: Run, traces: Path, marks: Marks) -> float | None:
    calibration = run.file.calibration if run.file else ()
    links = (each for each in calibration if each.what == "link" and each.to is not None)
    rates = {(each.node, str(each.to)): each.got * _BITS_PER_MBIT for each in links}
    if not rates:
        return None
    sent: dict[tuple[str, str], float] = defaultdict(float)
    for row in _rows(traces, "channel", "hop", "target_node", "bytes"):
        if row["hop"] == "inter_node" and row["bytes"] is not None and _within(row, marks):
            begin, end = marks[row["node"], row["worker"]]
            sent[row["node"], row["target_node"]] += 8 * row["bytes"] / ((end - begin) / NS)
    return max((sent[link] / rate for link, rate in rates.items() if rate > 0), default=None)


def _within(row: Row, marks: Marks) -> bool:
    interval = marks.get((row["node"], row["worker"]))
    return interval is not None and interval[0] < row["t_ns"] <= interval[1]


def _rows(traces: Path, table: str, *columns: str) -> list[Row]:
    rows: list[Row] = pq.read_table(
        traces / f"{table}.parquet", columns=["t_ns", "node", "worker", *columns]
    ).to_pylist()
    return rows
