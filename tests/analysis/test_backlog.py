"""Backlog of a run: queues that swallow what is too much, and samples that are not out at the end of the interval."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.collected_traces import collect
from agents.trace import TraceWriter
from analysis.measure.backlog import BacklogStage, passed, rows_left
from analysis.measure.run_metrics import measure
from inventory.documents import to_plain
from inventory.times import NS

SECONDS, START_S = 10, 5
DUE = 1000
"""Records due per second; each is split into ten rows."""


def traced(folder: Path, capacity: int, until_s: int, waits_at: str = "count[0]") -> Mapping[str, Any]:
    """Return the metrics of a run whose sources keep their schedule, while one bolt processes `capacity` records/s.

    The sources stop at the end of the interval; the run ends after `until_s`. All times are seconds after their start.
    """
    writer = TraceWriter(folder / "traces", "r", "n1", 0)
    end_s = START_S + SECONDS
    writer.add("event", START_S * NS, "measure_start", "", None, None)
    writer.add("event", end_s * NS, "measure_end", "", None, None)
    done = {"split[0]": 0, "count[0]": 0}
    emitted = 0
    for second in range(1, until_s + 1):
        at, since = second * NS, (second - 1) * NS
        fresh = DUE if second <= end_s else 0
        emitted += fresh
        least = min(emitted, capacity * second)
        reached = {"split[0]": emitted if waits_at == "count[0]" else least, "count[0]": least}
        rows = {name: (reached[name] - done[name]) * (10 if name == "count[0]" else 1) for name in done}
        writer.add("throughput", at, "src[0]", "src", "spout", fresh, 0, 0, emitted, 0, since)
        writer.add(
            "throughput",
            at,
            "split[0]",
            "split",
            "bolt",
            rows["split[0]"] * 10,
            rows["split[0]"],
            None,
            None,
            None,
            since,
        )
        writer.add("throughput", at, "count[0]", "count", "sink", 0, rows["count[0]"], None, None, None, since)
        writer.add("executor", at, "src[0]", 0, 0, 0, since)
        writer.add("executor", at, "split[0]", 0, 0, emitted - reached["split[0]"], since)
        writer.add("executor", at, "count[0]", 0, 0, 10 * (reached["split[0]"] - reached["count[0]"]), since)
        for source, target, tuples in (("src[0]", "split[0]", fresh), ("split[0]", "count[0]", rows["split[0]"] * 10)):
            writer.add("channel", at, source, target, "default", "intra_worker", "n1", tuples, 1, None, since)
        if rows["count[0]"]:
            # The record that is out now was due so long ago.
            late_s = second - reached["count[0]"] / DUE
            writer.add(
                "latency", at, "count[0]", round(max(0.002, late_s) * NS), 100 * rows["count[0]"] // (10 * DUE), since
            )
        done = reached
    writer.close()
    collect([folder / "traces"], folder / "parquet")
    return dict(to_plain(measure(folder / "parquet", SECONDS, {})))


@pytest.mark.parametrize("where", ["split[0]", "count[0]"])
def test_a_run_whose_queues_swallow_the_excess_is_saturated(tmp_path: Path, where: str) -> None:
    found = traced(tmp_path, 800, until_s=40, waits_at=where)
    assert found["source_tuples_per_s"] == found["due_tuples_per_s"] == DUE
    # A fifth of what was due so far waits.
    assert found["backlog"] == {"begin_records": 1000, "end_records": 3000, "share": 0.3}
    assert found["saturated"] is True


def test_a_run_that_keeps_up_is_not_saturated(tmp_path: Path) -> None:
    found = traced(tmp_path, 5000, until_s=20)
    assert found["backlog"] == {"begin_records": 0, "end_records": 0, "share": 0.0}
    assert found["saturated"] is False
    assert found["latency_ms"]["censored"] == 0


def test_samples_of_records_that_were_due_and_not_out_are_counted(tmp_path: Path) -> None:
    found = traced(tmp_path, 800, until_s=40)
    # 3,000 records, of which one in ten was sampled; all came out in the drain.
    assert found["latency_ms"]["censored"] == pytest.approx(300, rel=0.1)


def test_samples_of_records_that_were_due_before_the_interval_are_not_counted(tmp_path: Path) -> None:
    found = traced(tmp_path, 100, until_s=160)
    # At the end of the interval 1,500 records are out; the next 3,500 were due before its begin.
    assert found["latency_ms"]["censored"] == pytest.approx(1000, rel=0.1)


def test_samples_that_never_came_out_are_counted_too(tmp_path: Path) -> None:
    found = traced(tmp_path, 800, until_s=START_S + SECONDS + 1)
    assert found["latency_ms"]["censored"] == pytest.approx(300, rel=0.1)


def test_latencies_without_a_record_out_have_an_unknown_number_of_missing_samples(tmp_path: Path) -> None:
    found = traced(tmp_path, 0, until_s=START_S + SECONDS + 1)
    assert found["latency_ms"]["samples"] == 0
    assert found["latency_ms"]["censored"] is None
    assert found["saturated"] is True


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 9)), min_size=1, max_size=4), st.integers(1, 1000))
def test_what_waits_along_a_chain_is_what_is_left_of_the_records(
    bolts: Sequence[tuple[int, int]], through: int
) -> None:
    """Each bolt has rows of some records waiting, and makes some rows of one."""
    records = through + sum(waiting for waiting, _ in bolts)
    stages, flows = {"c0": BacklogStage(records, 0)}, {}
    out, rows, expected = records, 1, 0
    for at, (waiting, factor) in enumerate(bolts, 1):
        rows *= factor
        flows[f"c{at - 1}", f"c{at}"] = float(out * rows)
        out -= waiting
        stages[f"c{at}"] = BacklogStage(out * rows, waiting * rows)
        expected += (records - out) * rows
    assert passed(stages, flows)[f"c{len(bolts)}"] == pytest.approx(through / records)
    assert rows_left(stages, flows) == pytest.approx(expected)
