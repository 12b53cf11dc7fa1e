"""Verdict on a trial of a search: from the lag of sources and sinks, the delay of sources, and the latency."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from agents.collected_traces import TABLES
from agents.trace import AGENT, CONTROLLER
from analysis.records.conditions import SloRecord
from analysis.records.file_types import Measured, RunRecord, Times
from analysis.records.interval_metrics import Backlog, Latency
from campaign.results.trial_verdict import slope_of, verdict_of
from inventory.errors import RunError
from inventory.times import NS

SECONDS = 10
SLO = SloRecord(p99_ms=100.0)


def write(folder: Path, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a trace table; columns that a row lacks are null."""
    whole = [{"run": "r", "node": "n1", "worker": 0, **row} for row in rows]
    columns = {name: [row.get(name) for row in whole] for name in TABLES[table].names}
    pyarrow.parquet.write_table(pa.table(columns, schema=TABLES[table]), folder / f"{table}.parquet")


def judged(
    folder: Path,
    late_s: Sequence[float | None] = (0.01,) * SECONDS,
    latency_s: Sequence[float] = (0.02,) * SECONDS,
    busy: float = 0.2,
    blocked: float = 0.0,
    lasted_s: float = SECONDS,
    latency: Latency = Latency(p50=20.0, p95=30.0, p99=40.0, samples=100),  # noqa: B008 - frozen
    saturated: bool = False,
    backlog: Backlog | None = None,
    unfinished: str = "",
) -> Any:
    """Return the verdict on a run with one reading per second."""
    marks = {"measure_start": 0, "measure_end": SECONDS * NS}
    for node, worker in (("n1", 0), (CONTROLLER, AGENT)):
        rows = [{"node": node, "worker": worker, "t_ns": t, "kind": kind} for kind, t in marks.items()]
    write(folder, "event", [*rows, *({"t_ns": t, "kind": kind} for kind, t in marks.items())])
    times = [(second + 1) * NS for second in range(SECONDS)]
    spout = {"executor": "s[0]", "component": "s", "role": "spout", "emitted": 5}
    throughput = [
        {"t_ns": t, **spout, "late_ns": None if late is None else round(late * NS)}
        for t, late in zip(times, late_s, strict=True)
    ]
    write(folder, "throughput", throughput)
    sinks = zip(times, latency_s, strict=False)
    write(folder, "latency", [{"t_ns": t, "executor": "k[0]", "value_ns": round(s * NS), "count": 3} for t, s in sinks])
    used = {"executor": "s[0]", "busy_ns": round(busy * NS), "blocked_ns": round(blocked * NS), "queued": 0}
    write(folder, "executor", [{"t_ns": t, **used} for t in times])
    measured = Measured(latency_ms=latency, source_tuples_per_s=5.0, saturated=saturated, backlog=backlog)
    record = RunRecord(
        status="incomplete" if unfinished else "ok",
        reason=unfinished,
        workload="w",
        scheduler="even",
        repetition=1,
        times=Times(measure_start_ns=0, measure_end_ns=round(lasted_s * NS)),
        measured=measured,
    )
    return verdict_of(folder, record, 5.0, SLO, SECONDS)


def test_a_run_whose_queues_swallow_the_excess_does_not_hold(tmp_path: Path) -> None:
    # The sources are busy, but not the limit: they keep their schedule.
    backlog = Backlog(begin_records=5, end_records=1234, share=0.3)
    found = judged(tmp_path, busy=0.9, saturated=True, backlog=backlog)
    assert not found.holds
    assert found.reason == "1,234 due records were not out of the topology at the end"


def test_a_run_that_has_not_drained_does_not_hold_whatever_its_latencies_are(tmp_path: Path) -> None:
    unknown = Latency(samples=0, censored=None)
    found = judged(tmp_path, latency=unknown, unfinished="the topology has not drained within 30 s")
    assert not found.holds
    assert found.reason == "the topology has not drained within 30 s"


JITTER = (0.01, 0.03, 0.02, 0.01, 0.04, 0.02, 0.01, 0.03, 0.01, 0.02)
GROWING = tuple(0.1 * second for second in range(SECONDS))


def test_a_run_that_keeps_its_schedule_holds_in_spite_of_jitter(tmp_path: Path) -> None:
    found = judged(tmp_path, late_s=JITTER)
    assert (found.holds, found.reason, found.tuples_per_s, found.p99_ms) == (True, "", 5.0, 40.0)
    assert found.late_s == pytest.approx(0.04)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"late_s": GROWING}, "lag grows by 0.1 s/s"),
        ({"latency_s": GROWING}, "lag grows by 0.1 s/s"),
        ({"late_s": (1.5,) * SECONDS}, "sources late by 1.5 s, at most 1 are allowed"),
        ({"late_s": (None,) * (SECONDS - 1) + (0.1,), "latency_s": ()}, "too busy to report their lag"),
        ({"saturated": True}, "sources emitted less than what was due"),
        ({"latency": Latency(p99=100.5, samples=5)}, "p99 1.*e.02 ms|p99 10[01] ms, at most 100 are allowed"),
        ({"late_s": (3.0,) * SECONDS, "busy": 0.9, "blocked": 0.3}, "sources late by 3 s"),
    ],
)
def test_an_unmet_condition_is_named(tmp_path: Path, changes: Any, reason: str) -> None:
    found = judged(tmp_path, **changes)
    assert not found.holds
    assert re.search(reason, found.reason), found.reason


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"late_s": (None,) * SECONDS}, "the lag is unknown: the sources emitted nothing"),
        ({"lasted_s": 4.0}, "the input ended after 4 of the 10 s that are measured"),
        ({"late_s": (3.0,) * SECONDS, "busy": 0.9}, r"the sources are slower than the rate: s\[0\] computes for 90%"),
        ({"latency": Latency(samples=0)}, "whether p99 is within 100 ms is unknown: no tuple was sampled"),
        ({"latency": Latency(bound=150.0, withheld=("p99",))}, "latencies are known to ± 150 ms"),
    ],
)
def test_a_run_without_evidence_about_its_rate_is_an_error(tmp_path: Path, changes: Any, message: str) -> None:
    with pytest.raises(RunError, match=message):
        judged(tmp_path, **changes)


def test_a_latency_within_an_error_below_the_limit_holds(tmp_path: Path) -> None:
    assert judged(tmp_path, latency=Latency(bound=50.0, withheld=("p99",))).holds


def test_the_growth_of_the_lag_is_robust_to_an_outlier_and_needs_two_seconds() -> None:
    line = [(float(second), 0.5 * second) for second in range(9)]
    found = slope_of([*line[:4], (4.0, 90.0), *line[5:]])
    assert found is not None
    assert found.value == pytest.approx(0.5)
    assert found.low <= found.value
    assert slope_of([(3.1, 1.0), (3.2, 2.0)]) is None
