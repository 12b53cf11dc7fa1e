"""Emulated heterogeneity is real: an application gets as much done on a node as the node is worth."""

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
"""Cores that the two nodes are worth."""

ATTEMPTS = 3
ENOUGH_S = 500.0
"""No attempt is begun after this."""

NEAR = 0.1
"""By so much of it a figure may be off."""

OWN = 0.15
"""Of its node's cores at most this part is for the agent and the SSH server, and not for the worker."""


class Alone(NamedTuple):
    """What came of a run with all its work on one node.

    Attributes:
        tuples_per_s: delivered to the sink.
        cores: that the worker got.
        busy_us: of CPU time for a tuple, in operators.
    """

    tuples_per_s: float
    cores: float
    busy_us: float

    def was_given(self, share: float) -> bool:
        """Whether the worker got what its node is worth."""
        return self.cores >= share * (1 - OWN)


class Attempt(NamedTuple):
    """A run on either node."""

    strong: Alone
    weak: Alone

    @property
    def is_fair(self) -> bool:
        """Whether the host gave both what was asked for, and was as fast during one run as during the other."""
        given = self.strong.was_given(STRONG) and self.weak.was_given(WEAK)
        return given and self.weak.busy_us == pytest.approx(self.strong.busy_us, rel=NEAR / 2)

    @property
    def is_as_asked(self) -> bool:
        """Whether throughput is as unequal as the nodes."""
        return self.weak.tuples_per_s == pytest.approx(self.strong.tuples_per_s * WEAK / STRONG, rel=NEAR)


def test_throughput_is_as_unequal_as_the_nodes(tmp_path: Path) -> None:
    """One of two nodes does all the work, as fast as it can, then the other; a busy host has three attempts.

    What the workers got of the host decides: an attempt that was not fair says nothing.
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
        start_until_measuring = time.monotonic()
        while len(attempts) < ATTEMPTS and time.monotonic() - start_until_measuring < ENOUGH_S:
            attempt = Attempt(*(alone(lab, node, len(attempts)) for node in (1, 2)))
            attempts.append(attempt)
            # However busy the host is, nobody gets more than the node is worth.
            assert attempt.strong.cores <= STRONG * (1 + NEAR)
            assert attempt.weak.cores <= WEAK * (1 + NEAR)
            if attempt.is_fair and attempt.is_as_asked:
                return
    finally:
        millrace("clean")
    if len(attempts) < ATTEMPTS or not all(attempt.is_fair for attempt in attempts):
        pytest.skip(f"host busy: {attempts}; {STRONG} and {WEAK} cores were asked for")
    pytest.fail(f"workers got what was asked for, and throughput is not as unequal: {attempts}")


def alone(lab: EmulatedLab, node: int, attempt: int) -> Alone:
    """Run on one node only."""
    content = yaml.safe_load(lab.inventory.read_text())
    for name, host in content["all"]["children"]["workers"]["hosts"].items():
        host["millrace_available"] = name == f"n{node}"
    lab.inventory.write_text(yaml.safe_dump(content))
    params = {"workers": 1, "operators": 2, "tasks": 1, "cost_us": 200}
    workloads = [{"name": "linear", "params": params, "rate": {"kind": "max"}}]
    agenda = lab.agenda(f"only-{node}-{attempt}", duration_s=8, sensors=["cpu"], workloads=workloads)
    # What the host gives is judged by what the worker gets, not before the run.
    finished = lab.run(agenda, "--accept-shortfall")
    assert finished.returncode == 0, finished.stderr[-3000:]
    (record,) = lab.records(agenda.stem)
    (traces,) = (lab.results / agenda.stem / "latest" / "runs").glob("*/traces")
    marks = [row["t_ns"] for row in rows_of(traces, "event") if row["kind"] in ("measure_start", "measure_end")]
    start_until_measuring, ended = min(marks), max(marks)
    samples = [(row["t_ns"], row["cores"]) for row in rows_of(traces, "cpu") if row["scope"] == "worker"]
    # Of each sample, as much as lies in the measured interval; a busy host takes them at uneven times.
    cpu_ns = sum(
        cores * max(0, min(until, ended) - max(since, start_until_measuring))
        for (since, _), (until, cores) in pairwise(sorted(samples))
    )
    processed = sum(row["processed"] for row in rows_of(traces, "throughput") if row["role"] == "sink")
    busy_ns = sum(row["busy_ns"] for row in rows_of(traces, "executor"))
    return Alone(
        record["measured"]["throughput_tuples_per_s"],
        cpu_ns / (ended - start_until_measuring),
        busy_ns / max(processed, 1) / 1000,
    )


def rows_of(traces: Path, table: str) -> list[dict[str, Any]]:
    """All rows of a table, as Python has them."""
    rows: list[dict[str, Any]] = pq.read_table(traces / f"{table}.parquet").to_pylist()
    return rows
