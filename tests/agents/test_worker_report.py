"""Reports and trace rows that a worker writes once a second, also during a move."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow.parquet
from executor_harness import CountingSpout, EchoBolt
from scripted_run import Limits, run_spec, scripted_run

from agents.collected_traces import collect
from agents.protocol import Connect, Cut, Go, Mark, MoveToPlace, PairSent, Prepare, Slot, Worked, encode
from agents.trace import TraceWriter
from agents.worker.channels.ends import RemoteOutgoing
from agents.worker.process.metrics_reporter import MetricsReporter, PairTotals
from agents.worker.process.worker import QUIET_REPORTS, Worker
from workloads.operators import Operator
from workloads.topology import Component, Input, Topology

HERE, THERE, NEW = Slot("n1", 0), Slot("n2", 0), Slot("n3", 1)
TOPOLOGY = Topology(
    "line",
    (
        Component("s", "spout", outputs={"default": {"number": "int"}}),
        Component("b", "bolt", outputs={"default": {"number": "int"}}, inputs=(Input("s"),)),
    ),
)


def operators(component: str) -> Operator:
    return CountingSpout() if component == "s" else EchoBolt()


def rows_of(folder: Path, table: str) -> list[dict[str, Any]]:
    collect([folder], folder / "parquet")
    return pyarrow.parquet.read_table(folder / "parquet" / f"{table}.parquet").to_pylist()


def test_tuples_sent_before_the_receiver_moved_are_counted_after_the_channel_is_removed(tmp_path: Path) -> None:
    with scripted_run(run_spec(TOPOLOGY, [HERE, THERE]), operators, Limits()) as run:
        worker = run.workers[HERE]
        traces = TraceWriter(tmp_path, "r", "n1", 0)
        reporter = MetricsReporter(worker.tasks, traces, 0)
        (channel,) = worker.registry.outgoing.values()
        run.turn(0)
        channel.flush()
        assert channel.tuples > 0
        channel.closed = True
        del worker.registry.outgoing[channel.id]
        worker.registry.retire([channel])
        worker.registry.drop_closed()
        reports = [reporter.report(at * 1_000_000_000) for at in (1, 2)]
        assert [report.sent[0].tuples for report in reports] == [channel.tuples] * 2
        traces.close()
    assert [row["tuples"] for row in rows_of(tmp_path, "channel")] == [channel.tuples]


def test_rows_cover_the_time_since_the_last_report_also_after_seconds_without_tuples(tmp_path: Path) -> None:
    half = 500_000_000
    with scripted_run(run_spec(TOPOLOGY, [HERE, THERE]), operators, Limits()) as run:
        worker = run.workers[HERE]
        worker.tasks.start(0)
        traces = TraceWriter(tmp_path, "r", "n1", 0)
        reporter = MetricsReporter(worker.tasks, traces, 0)
        (channel,) = worker.registry.outgoing.values()
        for at in (1, 3, 5, 7):
            if at in (1, 7):
                run.turn(0)
                channel.flush()
            reporter.report(at * half)
        traces.close()
    # The sources started half a second before the first report.
    times = [(0, half), (half, 3 * half), (3 * half, 5 * half), (5 * half, 7 * half)]
    for table, expected in (("throughput", times), ("executor", times), ("channel", [times[0], times[3]])):
        assert [(row["since_ns"], row["t_ns"]) for row in rows_of(tmp_path, table)] == expected


def test_replayed_tuples_are_neither_in_throughput_nor_in_traffic_and_totals_continue(tmp_path: Path) -> None:
    spec = msgspec.structs.replace(run_spec(TOPOLOGY, [HERE, HERE]), worked={"b[0]": Worked(emitted=10, processed=10)})
    with scripted_run(spec, operators, Limits(turn_rows=4, batch_rows=4, window_rows=100, window_bytes=10_000)) as run:
        worker = run.workers[HERE]
        worker.tasks.start(0, seen={"s[0]": 12})
        traces = TraceWriter(tmp_path, "r", "n1", 0)
        reporter = MetricsReporter(worker.tasks, traces, 0)
        for at in range(1, 6):
            run.turn(0)
            run.turn(1)
            report = reporter.report(at * 1_000_000_000)
        assert report.emitted == 20 - 12
        assert (report.executors["b[0]"].emitted, report.executors["b[0]"].processed) == (20, 20)
        assert report.sent[0].tuples == 20
        traces.close()
    rows = rows_of(tmp_path, "throughput")
    assert [(row["emitted"], row["replayed"]) for row in rows if row["role"] == "spout"] == [
        *([(0, 4)] * 3),
        *([(4, 0)] * 2),
    ]
    assert [row["processed"] for row in rows if row["role"] == "sink"] == [0, 0, 2, 4, 4]
    assert [row["tuples"] for row in rows_of(tmp_path, "channel")] == [0, 0, 0, 4, 4]


def test_rows_of_every_report_are_later_than_the_previous_report(
    tmp_path: Path,
) -> None:
    # The report of a passed barrier has the current time. The next one may follow in the same pass of the event loop,
    # with the start time of the pass. Rows that are later than the last report count as lost after a recovery.
    with scripted_run(run_spec(TOPOLOGY, [HERE, THERE]), operators, Limits()) as run:
        traces = TraceWriter(tmp_path, "r", "n1", 0)
        reporter = MetricsReporter(run.workers[HERE].tasks, traces, 0)
        times = []
        for now_ns in (1_000, 900, 900, 2_000):
            run.turn(0)
            times.append(reporter.report(now_ns).at_ns)
        traces.close()
    assert times == [1_000, 1_001, 1_002, 2_000]
    assert [row["t_ns"] for row in rows_of(tmp_path, "throughput")] == times


def test_tuples_to_a_new_worker_are_counted_for_it_while_the_old_one_still_has_the_executor(tmp_path: Path) -> None:
    spec = run_spec(TOPOLOGY, [HERE, THERE])
    with scripted_run(spec, operators, Limits()) as run:
        grown = msgspec.structs.replace(spec, workers=(HERE, THERE, NEW))
        run.add(grown, NEW)
        run.command(NEW, Connect(epoch=1, ports={}))
        run.command(NEW, Go(epoch=1, at_ns=0))
        move = Prepare(epoch=1, barrier=1, moves=(MoveToPlace("b[0]", NEW),), workers=(HERE, THERE, NEW))
        for place in run.workers:
            run.command(place, move)
        run.command(HERE, Cut(epoch=1, barrier=1, tick=0))
        for _ in range(5):
            run.turn(0)
        traces = TraceWriter(tmp_path, "r", "n1", 0)
        reporter = MetricsReporter(run.workers[HERE].tasks, traces, 0)
        (sent,) = reporter.report(1_000_000_000).sent
        assert (sent.hop, sent.node) == ("inter_node", "n3")
        assert sent.tuples > 0
        traces.close()
    rows = rows_of(tmp_path, "channel")
    assert [(row["hop"], row["target_node"], row["tuples"]) for row in rows] == [("inter_node", "n3", sent.tuples)]


def test_an_observed_run_reports_totals_per_pair_that_continue_after_a_move(tmp_path: Path) -> None:
    spec = msgspec.structs.replace(run_spec(TOPOLOGY, [HERE, THERE]), observed=True)
    with scripted_run(spec, operators, Limits()) as run:
        worker = run.workers[HERE]
        traces = TraceWriter(tmp_path, "r", "n1", 0)
        reporter = MetricsReporter(worker.tasks, traces, 0)
        assert reporter.report(0).pairs == ()
        (channel,) = worker.registry.outgoing.values()
        run.turn(0)
        channel.flush()
        sent = [reporter.report(1_000_000_000)]
        channel.closed = True
        del worker.registry.outgoing[channel.id]
        worker.registry.retire([channel])
        worker.registry.drop_closed()
        sent += [reporter.report(at * 1_000_000_000) for at in (2, 3)]
        assert isinstance(channel, RemoteOutgoing)
        assert channel.tuples > 0
        assert [report.pairs for report in sent] == [(PairSent(0, 1, channel.tuples, channel.nbytes),)] * 3
        # The report of a mark is no sample.
        assert reporter.report(3_100_000_000).pairs is None
        assert reporter.report(4_000_000_000).pairs is not None
        traces.close()


def test_a_pair_within_a_worker_has_no_bytes_and_counts_replayed_tuples(tmp_path: Path) -> None:
    spec = msgspec.structs.replace(
        run_spec(TOPOLOGY, [HERE, HERE], rate={"kind": "constant", "tuples_per_s": 1e9}), observed=True
    )
    with scripted_run(spec, operators, Limits(turn_rows=4, batch_rows=4, window_rows=100, window_bytes=10_000)) as run:
        worker = run.workers[HERE]
        worker.tasks.start(0, seen={"s[0]": 6})
        traces = TraceWriter(tmp_path, "r", "n1", 0)
        reporter = MetricsReporter(worker.tasks, traces, 0)
        run.now_ns = 1000
        for _ in range(3):
            run.turn(0)
            run.turn(1)
        report = reporter.report(1_000_000_000)
        assert report.pairs == (PairSent(0, 1, report.executors["s[0]"].position or 0, None),)
        assert report.executors["s[0]"].emitted == (report.executors["s[0]"].position or 0) - 6
        assert report.executors["s[0]"].due == 1_000_000_001
        assert report.executors["b[0]"].due is None
        traces.close()


def test_a_run_that_is_not_observed_reports_neither_pairs_nor_due_tuples(tmp_path: Path) -> None:
    spec = run_spec(TOPOLOGY, [HERE, HERE], rate={"kind": "constant", "tuples_per_s": 1e9})
    with scripted_run(spec, operators, Limits()) as run:
        worker = run.workers[HERE]
        worker.tasks.start(0)
        traces = TraceWriter(tmp_path, "r", "n1", 0)
        reporter = MetricsReporter(worker.tasks, traces, 0)
        run.now_ns = 1000
        for _ in range(3):
            run.turn(0)
            run.turn(1)
        report = reporter.report(1_000_000_000)
        assert report.sent[0].tuples > 0
        assert report.executors["s[0]"].due is None
        assert b"pairs" not in encode(report)
        assert b"p99" not in encode(report)
        traces.close()


def test_many_pairs_are_reported_less_often() -> None:
    totals = PairTotals(channels=40_001)
    totals.add(0, 1, 5, None)
    taken = [at for at in range(10) if totals.take(at * 1_000_000_000) is not None]
    assert taken == [0, 3, 6, 9]


def reporting(quiet: bool) -> tuple[Any, list[str]]:
    """Return a worker whose reports are quiet or not, and a list of the calls that it makes for them."""
    calls: list[str] = []

    def note(what: str) -> Any:
        return lambda *_: calls.append(what)

    worker: Any = SimpleNamespace(
        _mesh=SimpleNamespace(expire=note("expire"), rejected={}),
        _reporter=SimpleNamespace(report=note("report"), report_rejected=note("rejected"), is_quiet=quiet),
        _traces=SimpleNamespace(flush=note("flush"), add=note("add")),
        _flush_timer=SimpleNamespace(now_ns=0),
        _send=note("send"),
        _unwritten=0,
        epoch=1,
    )
    worker._report = lambda now_ns: Worker._report(worker, now_ns)
    return worker, calls


def test_rows_are_on_disk_before_they_are_reported() -> None:
    # A worker that dies in between leaves uncounted rows, and no report of work without its rows.
    worker, calls = reporting(quiet=False)
    for _ in range(2):
        worker._report(0)
    assert calls == ["expire", "report", "rejected", "flush", "send"] * 2


def test_rows_about_no_work_are_written_together_and_every_report_is_sent() -> None:
    worker, calls = reporting(quiet=True)
    for _ in range(3 * QUIET_REPORTS):
        worker._report(0)
    assert (calls.count("report"), calls.count("send"), calls.count("flush")) == (
        3 * QUIET_REPORTS,
        3 * QUIET_REPORTS,
        3,
    )
    calls.clear()
    # Pending rows are written with the first row about work.
    worker._reporter.is_quiet = False
    worker._report(0)
    assert calls == ["expire", "report", "rejected", "flush", "send"]


def test_a_mark_is_on_disk_at_once() -> None:
    worker, calls = reporting(quiet=True)
    Worker.handle_command(worker, Mark(epoch=1, kind="measure_end"))
    assert calls == ["add", "expire", "report", "rejected", "flush", "send"]


def test_a_report_is_quiet_only_without_received_sent_or_pending_rows(tmp_path: Path) -> None:
    with scripted_run(run_spec(TOPOLOGY, [HERE, THERE]), operators, Limits(batch_rows=100, window_rows=1000)) as run:
        traces = TraceWriter(tmp_path, "r", "n1", 0)
        reporter = MetricsReporter(run.workers[HERE].tasks, traces, 0)
        (channel,) = run.workers[HERE].registry.outgoing.values()
        quiet = []
        for act in (lambda: None, lambda: run.turn(0), channel.flush, lambda: None):
            act()
            reporter.report(1)
            quiet.append(reporter.is_quiet)
        traces.close()
    assert quiet == [True, False, False, True]
