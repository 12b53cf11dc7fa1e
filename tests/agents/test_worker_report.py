"""What a worker writes down once a second, at any moment: also in the middle of a move."""

from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet
from scripted import Limits, run_spec, scripted_run
from turns import Count, Echo

from agents.protocol import Connect, Cut, Go, Move, Place, Prepare, Worked
from agents.trace import TraceWriter, collect
from agents.worker.process.metrics_reporter import MetricsReporter
from workloads.operators import Operator
from workloads.topology import Component, Input, Topology

HERE, THERE, NEW = Place("n1", 0), Place("n2", 0), Place("n3", 1)
TOPOLOGY = Topology(
    "line",
    (
        Component("s", "spout", outputs={"default": {"number": "int"}}),
        Component("b", "bolt", outputs={"default": {"number": "int"}}, inputs=(Input("s"),)),
    ),
)


def operators(component: str) -> Operator:
    return Count() if component == "s" else Echo()


def rows_of(folder: Path, table: str) -> list[dict[str, Any]]:
    collect([folder], folder / "parquet")
    return pyarrow.parquet.read_table(folder / "parquet" / f"{table}.parquet").to_pylist()


def test_what_has_left_before_a_channels_receiver_moved_is_counted_although_the_channel_is_gone(tmp_path: Path) -> None:
    with scripted_run(run_spec(TOPOLOGY, [HERE, THERE]), operators, Limits()) as run:
        worker = run.workers[HERE]
        traces = TraceWriter(tmp_path, "r", "n1", 0)
        reporter = MetricsReporter(worker.share, traces, 0)
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


def test_what_comes_again_is_neither_in_throughput_nor_in_traffic_and_totals_go_on(tmp_path: Path) -> None:
    spec = msgspec.structs.replace(run_spec(TOPOLOGY, [HERE, HERE]), worked={"b[0]": Worked(emitted=10, processed=10)})
    with scripted_run(spec, operators, Limits(turn_rows=4, batch_rows=4, window_rows=100, window_bytes=10_000)) as run:
        worker = run.workers[HERE]
        worker.share.start(0, seen={"s[0]": 12})
        traces = TraceWriter(tmp_path, "r", "n1", 0)
        reporter = MetricsReporter(worker.share, traces, 0)
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


def test_what_leaves_for_a_new_worker_while_the_old_one_has_not_let_go_is_counted_for_it(tmp_path: Path) -> None:
    spec = run_spec(TOPOLOGY, [HERE, THERE])
    with scripted_run(spec, operators, Limits()) as run:
        grown = msgspec.structs.replace(spec, workers=(HERE, THERE, NEW))
        run.add(grown, NEW)
        run.command(NEW, Connect(epoch=1, ports={}))
        run.command(NEW, Go(epoch=1, at_ns=0))
        move = Prepare(epoch=1, barrier=1, moves=(Move("b[0]", NEW),), workers=(HERE, THERE, NEW))
        for place in run.workers:
            run.command(place, move)
        run.command(HERE, Cut(epoch=1, barrier=1, tick=0))
        for _ in range(5):
            run.turn(0)
        traces = TraceWriter(tmp_path, "r", "n1", 0)
        reporter = MetricsReporter(run.workers[HERE].share, traces, 0)
        (sent,) = reporter.report(1_000_000_000).sent
        assert (sent.hop, sent.node) == ("inter_node", "n3")
        assert sent.tuples > 0
        traces.close()
    rows = rows_of(tmp_path, "channel")
    assert [(row["hop"], row["target_node"], row["tuples"]) for row in rows] == [("inter_node", "n3", sent.tuples)]
