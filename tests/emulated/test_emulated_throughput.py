"""Emulated heterogeneity: the throughput of an application is proportional to the cores of its node."""

import time
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
import yaml
from emulated_clusters import write_inventory
from emulated_lab import EmulatedLab, millrace

from controller.emulation.description import description_in

pytestmark = [pytest.mark.emulated, pytest.mark.emulation, pytest.mark.timeout(1200)]

STRONG, WEAK = 0.9, 0.36
"""Performance of the two nodes, in cores of the host."""

ATTEMPTS = 3
LAST_START_S = 500.0
"""No attempt starts later than this."""

TOLERANCE = 0.1
"""Relative tolerance of figures."""

OVERHEAD = 0.15
"""Largest part of a node's cores that the agent and the SSH server use."""


class NodeRun(NamedTuple):
    """Result of a run with all its work on one node.

    Attributes:
        tuples_per_s: tuples delivered to the sink.
        cores: cores used by the worker.
        busy_us: CPU time of operators per tuple.
    """

    tuples_per_s: float
    cores: float
    busy_us: float

    def got_cores(self, cores: float) -> bool:
        """Return whether the worker got as many cores as its node has."""
        return self.cores >= cores * (1 - OVERHEAD)


class Attempt(NamedTuple):
    """One run on each node."""

    strong: NodeRun
    weak: NodeRun

    @property
    def is_fair(self) -> bool:
        """Whether both workers got their cores, and the host was equally fast in both runs."""
        enough = self.strong.got_cores(STRONG) and self.weak.got_cores(WEAK)
        return enough and self.weak.busy_us == pytest.approx(self.strong.busy_us, rel=TOLERANCE / 2)

    @property
    def is_proportional(self) -> bool:
        """Whether throughput is proportional to the nodes' cores."""
        return self.weak.tuples_per_s == pytest.approx(self.strong.tuples_per_s * WEAK / STRONG, rel=TOLERANCE)


def test_throughput_is_proportional_to_the_cores_of_nodes(tmp_path: Path) -> None:
    """Run all work on one node at the highest rate, then on the other; on a busy host, try up to three times.

    Attempts in which a worker got too little of the host do not count.
    """
    machine: dict[str, object] = {"cores": 1, "ghz": 3.0, "memory_mb": 768}
    inventory = write_inventory(tmp_path, [machine | {"share_per_core": share} for share in (STRONG, WEAK)])
    done = millrace("provision", str(inventory))
    description = description_in(tmp_path / "cluster")
    attempts: list[Attempt] = []
    try:
        assert done.returncode == 0, done.stderr[-3000:]
        assert description is not None
        lab = EmulatedLab(tmp_path, inventory, description)
        begin_s = time.monotonic()
        while len(attempts) < ATTEMPTS and time.monotonic() - begin_s < LAST_START_S:
            attempt = Attempt(*(run_on_node(lab, node, len(attempts)) for node in (1, 2)))
            attempts.append(attempt)
            # However busy the host is, no worker gets more than its node has.
            assert attempt.strong.cores <= STRONG * (1 + TOLERANCE)
            assert attempt.weak.cores <= WEAK * (1 + TOLERANCE)
            if attempt.is_fair and attempt.is_proportional:
                return
    finally:
        millrace("clean", str(inventory))
    if len(attempts) < ATTEMPTS or not all(attempt.is_fair for attempt in attempts):
        pytest.skip(f"host busy: {attempts}; {STRONG} and {WEAK} cores were asked for")
    pytest.fail(f"workers got what was asked for, and throughput is not as unequal: {attempts}")


def run_on_node(lab: EmulatedLab, node: int, attempt: int) -> NodeRun:
    """Run with all work on one node."""
    content = yaml.safe_load(lab.inventory.read_text())
    for name, host in content["all"]["children"]["workers"]["hosts"].items():
        host["millrace_available"] = name == f"n{node}"
    lab.inventory.write_text(yaml.safe_dump(content))
    params = {"workers": 1, "operators": 2, "tasks": 1, "cost_us": 200}
    workloads = [{"name": "linear", "params": params, "rate": {"kind": "max"}}]
    agenda = lab.agenda(f"only-{node}-{attempt}", duration_s=8, sensors=["cpu"], workloads=workloads)
    # The share of the host is judged by what the worker gets, not before the run.
    finished = lab.run(agenda, "--accept-shortfall")
    assert finished.returncode == 0, finished.stderr[-3000:]
    (record,) = lab.records(agenda.stem)
    (traces,) = (lab.results / agenda.stem / "latest" / "runs").glob("*/traces")
    marks = [row["t_ns"] for row in rows_of(traces, "event") if row["kind"] in ("measure_start", "measure_end")]
    start_ns, end_ns = min(marks), max(marks)
    samples = [(row["t_ns"], row["cores"]) for row in rows_of(traces, "cpu") if row["scope"] == "worker"]
    # The part of each sample within the measured interval; on a busy host, samples are irregular.
    cpu_ns = sum(
        cores * max(0, min(until, end_ns) - max(since, start_ns))
        for (since, _), (until, cores) in pairwise(sorted(samples))
    )
    processed = sum(row["processed"] for row in rows_of(traces, "throughput") if row["role"] == "sink")
    busy_ns = sum(row["busy_ns"] for row in rows_of(traces, "executor"))
    return NodeRun(
        record["measured"]["throughput_tuples_per_s"],
        cpu_ns / (end_ns - start_ns),
        busy_ns / max(processed, 1) / 1000,
    )


def rows_of(traces: Path, table: str) -> list[dict[str, Any]]:
    """Return all rows of a table."""
    rows: list[dict[str, Any]] = pq.read_table(traces / f"{table}.parquet").to_pylist()
    return rows
