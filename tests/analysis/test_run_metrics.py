"""Metrics of a run in run.json, computed from traces as workers write them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agents.collected_traces import collect
from agents.trace import AGENT, CONTROLLER, TraceWriter
from analysis.measure.covered import PartOfIntervals, Spans, read_table
from analysis.measure.run_metrics import measure
from analysis.records.file_types import ClockDifference
from inventory.documents import to_plain
from inventory.errors import RunError
from inventory.times import NS
from workloads.workload import Answer, PreparedInput, Verdict, verified

SECONDS = 4
START, END = 100 * NS, 104 * NS


def worker(folder: Path, node: str, slot: int, clock: int = 0) -> TraceWriter:
    """Return a worker's writer with both marks of the interval; its clock is `clock` ns ahead of the others."""
    writer = TraceWriter(folder, "r", node, slot)
    mark(writer, START + clock, "measure_start")
    mark(writer, END + clock, "measure_end")
    return writer


ONE_CLOCK = {"bound": 0.0, "withheld": [], "censored": 0}
"""Keys of latencies if all nodes share a clock, and no sample is missing."""


def mark(writer: TraceWriter, at: int, kind: str) -> None:
    writer.add("event", at, kind, "", None, None)


def measured(folder: Path, *writers: TraceWriter, seconds: float = SECONDS, **offsets: int) -> dict[str, Any]:
    for writer in writers:
        writer.close()
    collect([folder], folder / "parquet")
    plain: dict[str, Any] = to_plain(measure(folder / "parquet", seconds, offsets))
    return plain


def test_only_rows_within_the_interval_count(tmp_path: Path) -> None:
    writer = worker(tmp_path, "n1", 0)
    for second in range(-3, SECONDS + 3):
        at = START + second * NS
        inside = 0 < second <= SECONDS
        writer.add("throughput", at, "src[0]", "src", "spout", 100 if inside else 7777, 0, 0, None, None, None)
        writer.add("throughput", at, "snk[0]", "snk", "sink", 0, 60 if inside else 7777, None, None, None, None)
        for hop, tuples in (("inter_node", 50), ("intra_worker", 20)):
            writer.add("channel", at, hop, "snk[0]", "d", hop, "n1", tuples if inside else 7777, 1, 1, None)
        writer.add("channel", at, "src[0]", "mid[0]", "d", "inter_worker", "n1", 5 if inside else 7777, 1, 1, None)
        writer.add("latency", at, "snk[0]", 2_000_000 if inside else 9_000_000_000, 10, None)
    found = measured(tmp_path, writer)
    assert found["source_tuples_per_s"] == 100
    assert found["sink_tuples_per_s"] == 60
    # Tuples that are delivered to sinks, 70 per second, count when sinks take them in.
    assert found["throughput_tuples_per_s"] == 60
    assert found["hops"] == {"intra_worker": 80, "inter_worker": 20, "inter_node": 200}
    assert found["latency_ms"] == {"p50": 2.0, "p95": 2.0, "p99": 2.0, "max": 2.0, "samples": 40, **ONE_CLOCK}


def test_a_row_across_the_end_of_the_interval_counts_for_its_part(tmp_path: Path) -> None:
    writer = worker(tmp_path, "n1", 0)
    for second in range(SECONDS + 1):
        writer.add("throughput", START + second * NS + NS // 4, "src[0]", "src", "spout", 100, 0, 0, None, None, None)
    # A quarter of the first row's second is before the start, three quarters of the last row's are after the end.
    assert measured(tmp_path, writer)["source_tuples_per_s"] == 100


def test_each_worker_is_measured_by_its_own_clock(tmp_path: Path) -> None:
    writers = [worker(tmp_path, "n1", 0), worker(tmp_path, "n2", 0, clock=-50 * NS)]
    for writer, clock in zip(writers, (0, -50 * NS), strict=True):
        for second in range(-2, SECONDS + 3):
            tuples = 10 if 0 < second <= SECONDS else 5000
            writer.add("throughput", START + second * NS + clock, "s[0]", "s", "spout", tuples, 0, 0, None, None, None)
    assert measured(tmp_path, *writers)["source_tuples_per_s"] == 20


def test_a_worker_that_gets_the_last_mark_late_is_measured_over_its_own_interval(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, "r", "n1", 0)
    mark(writer, START, "measure_start")
    mark(writer, END + NS, "measure_end")
    for second in range(1, SECONDS + 2):
        writer.add("throughput", START + second * NS, "s[0]", "s", "spout", 10, 0, 0, None, None, None)
    assert measured(tmp_path, writer)["source_tuples_per_s"] == 10


def test_a_part_of_the_interval_ends_with_it(tmp_path: Path) -> None:
    writer = worker(tmp_path, "n1", 0)
    writer.close()
    collect([tmp_path], tmp_path / "parquet")
    whole = Spans(read_table(tmp_path / "parquet", "event", "kind", "detail", "value"), {})
    assert PartOfIntervals(whole, 1.0, 2.0).of("n1", 0) == (START + NS, START + 3 * NS)
    assert PartOfIntervals(whole, 3.0, 2.0).of("n1", 0) == (START + 3 * NS, END)


def test_refused_connections_are_counted_by_reason_over_the_whole_run(tmp_path: Path) -> None:
    writers = [worker(tmp_path, "n1", 0), worker(tmp_path, "n1", 1)]
    for at, (writer, reason, count) in enumerate(
        [(writers[0], "time-out", 2.0), (writers[1], "time-out", 5.0), (writers[0], "another epoch", 1.0)]
    ):
        writer.add("event", START + (at - 1) * 9 * NS, "refused_connection", "worker 0", reason, count)
    assert measured(tmp_path, *writers)["refused_connections"] == {"another epoch": 1, "time-out": 7}


def test_percentiles_are_taken_over_all_sinks_together(tmp_path: Path) -> None:
    writers = [worker(tmp_path, "n1", 0), worker(tmp_path, "n1", 1)]
    for number, writer in enumerate(writers):
        for value in range(1, 51):
            writer.add("latency", START + NS, f"snk[{number}]", (value + 50 * number) * 1_000_000, 1, None)
    found = measured(tmp_path, *writers)
    assert found["refused_connections"] == {}
    latency = found["latency_ms"]
    assert latency == {"p50": 50.0, "p95": 95.0, "p99": 99.0, "max": 100.0, "samples": 100, **ONE_CLOCK}


def test_unknown_metrics_are_none_and_not_zero(tmp_path: Path) -> None:
    writer = worker(tmp_path, "n1", 0)
    # The marks of an empty interval reach workers one after the other; workers are busy in between.
    writer.add("throughput", START + 1, "src[0]", "src", "spout", 8, 0, 300_000_000, 9, None, None)
    writer.add("channel", START + 1, "src[0]", "snk[0]", "d", "inter_node", "n2", 8, 1, 1, None)
    writer.add("latency", START + 1, "snk[0]", 2_000_000, 1, None)
    found = measured(tmp_path, writer, seconds=0.0)
    assert found["source_tuples_per_s"] is None
    assert found["throughput_tuples_per_s"] is None
    assert found["hops"] == {"intra_worker": None, "inter_worker": None, "inter_node": None}
    unknown = dict.fromkeys(("p50", "p95", "p99", "max", "censored"))
    assert found["latency_ms"] == {**unknown, "samples": 0, "bound": 0.0, "withheld": []}
    assert found["saturated"] is None


@pytest.mark.parametrize(
    ("bound_ms", "withheld"),
    [(0.5, []), (49.9, []), (50.0, ["p50"]), (97.0, ["p50", "p95"]), (100.0, ["p50", "p95", "p99", "max"])],
)
@pytest.mark.parametrize("nodes", [("n1", "n2"), ("n2", "n1")])
def test_latency_within_the_difference_of_clocks_is_withheld(
    tmp_path: Path, bound_ms: float, withheld: list[str], nodes: tuple[str, str]
) -> None:
    source, sink = (worker(tmp_path, node, 0) for node in nodes)
    source.add("throughput", START + NS, "src[0]", "src", "spout", 8, 0, 0, None, None, None)
    sink.add("throughput", START + NS, "snk[0]", "snk", "sink", 0, 8, None, None, None, None)
    for value in range(1, 101):
        sink.add("latency", START + NS, "snk[0]", value * 1_000_000, 1, None)
    for writer in (source, sink):
        writer.close()
    collect([tmp_path], tmp_path / "parquet")
    differences = [ClockDifference("n1", "n2", round(bound_ms * 1e6)), ClockDifference("n1", "n3", 10**12)]
    latency = to_plain(measure(tmp_path / "parquet", SECONDS, {}, differences).latency_ms)
    shown = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "max": 100.0}
    expected = {name: None if name in withheld else value for name, value in shown.items()}
    assert latency == {**expected, "samples": 100, "censored": 0, "bound": bound_ms, "withheld": withheld}


def test_a_worker_with_a_single_row_is_measured(tmp_path: Path) -> None:
    writer = worker(tmp_path, "n1", 0)
    writer.add("throughput", START + NS, "src[0]", "src", "spout", 8, 0, 0, None, None, None)
    writer.add("channel", START + NS, "src[0]", "snk[0]", "d", "inter_node", "n2", 8, 1, 1, None)
    found = measured(tmp_path, writer)
    assert found["source_tuples_per_s"] == 8 / SECONDS
    assert found["hops"] == {"intra_worker": 0, "inter_worker": 0, "inter_node": 8}


@pytest.mark.parametrize(
    ("late_ms", "per_row", "saturated"),
    [
        (lambda second: 5, 100, False),
        (lambda second: 300, 100, False),
        (lambda second: 450, 100, True),
        (lambda second: 80 * second, 100, True),
        (lambda second: 305 if second == 2 else 5, 100, False),
        (lambda second: 5, 80, True),
    ],
    ids=["on time", "late but steady", "later than a tenth", "ever later", "late for a while", "owing a fifth"],
)
def test_sources_that_fall_behind_are_called_saturated(
    tmp_path: Path, late_ms: Any, per_row: int, saturated: bool
) -> None:
    writer = worker(tmp_path, "n1", 0)
    for second in range(SECONDS + 1):
        late = late_ms(second) * 1_000_000
        due = 100 * (second + 1)
        writer.add("throughput", START + second * NS, "src[0]", "src", "spout", per_row, 0, late, due, None, None)
    assert measured(tmp_path, writer)["saturated"] is saturated


def test_tuples_due_are_counted_across_the_workers_of_a_moved_source(tmp_path: Path) -> None:
    """The schedule continues while a source moves or restarts, and so do the tuples due."""
    before, after = TraceWriter(tmp_path, "r", "n1", 0), TraceWriter(tmp_path, "r", "n2", 0)
    mark(before, START, "measure_start")
    mark(after, END, "measure_end")
    for node in ("n1", "n2"):
        agent = TraceWriter(tmp_path, "r", node, AGENT)
        mark(agent, START, "measure_start")
        mark(agent, END, "measure_end")
        agent.close()
    for writer, seconds in ((before, (0, 1)), (after, (3, 4))):
        for second in seconds:
            row = ("src[0]", "src", "spout", 100, 0, 5_000_000, 50 + 100 * second, None)
            writer.add("throughput", START + second * NS, *row, None)
    found = measured(tmp_path, before, after)
    assert found["source_tuples_per_s"] == 300 / SECONDS
    assert found["saturated"] is True


@pytest.mark.parametrize("noted_by", ["the agent", "the controller"])
def test_a_worker_without_a_mark_is_measured_by_that_of_its_agent_or_the_controller(
    tmp_path: Path, noted_by: str
) -> None:
    """One worker dies before the end of the interval, one starts after its beginning."""
    ahead = 7 * NS
    first, second = TraceWriter(tmp_path, "r", "n1", 0), TraceWriter(tmp_path, "r", "n1", 1)
    mark(first, START + ahead, "measure_start")
    mark(second, END + ahead, "measure_end")
    by_agent = noted_by == "the agent"
    other = TraceWriter(tmp_path, "r", "n1" if by_agent else CONTROLLER, AGENT)
    mark(other, START + ahead * by_agent, "measure_start")
    mark(other, END + ahead * by_agent, "measure_end")
    for at in (1, 2):
        first.add("throughput", START + ahead + at * NS, "s[0]", "s", "spout", 10, 0, 0, None, None, None)
    for at in (4, 5):
        second.add("throughput", START + ahead + at * NS, "s[0]", "s", "spout", 10, 0, 0, None, None, None)
    assert measured(tmp_path, first, second, other, n1=ahead)["source_tuples_per_s"] == 30 / SECONDS


def test_a_worker_that_did_not_note_the_interval_is_an_error(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, "r", "n3", 2)
    writer.add("throughput", START, "src[0]", "src", "spout", 100, 0, 0, None, None, None)
    with pytest.raises(RunError, match="worker 2 of n3 did not record"):
        measured(tmp_path, writer)


class Lenient:
    """Workload that passes every answer: it checks `checked` rows, and its reference has `rows`."""

    def __init__(self, rows: int, checked: int) -> None:
        self.rows, self.checked = rows, checked

    def reference(self, _positions: Sequence[int], _inputs: Sequence[PreparedInput]) -> Answer:
        return {"empty": [], "counts": [("word", 1)] * self.rows}

    def compare(self, _answer: Answer, _reference: Answer) -> Verdict:
        return Verdict(True, self.checked)


@pytest.mark.parametrize(
    ("positions", "rows", "checked", "passed"),
    [
        ([700, 0], 5, 0, False),
        ([700, 0], 5, 5, True),
        # All that was emitted may be filtered out.
        ([700, 0], 0, 0, True),
        ([0, 0], 5, 0, True),
    ],
)
def test_a_run_that_emitted_and_checked_nothing_fails_unless_the_reference_is_empty(
    positions: list[int], rows: int, checked: int, passed: bool
) -> None:
    verdict = verified(Lenient(rows, checked), {}, positions, [])  # type: ignore[arg-type]
    assert verdict.passed is passed
    assert ("700 records were emitted" in verdict.message) is not passed
