"""What a worker writes down once a second, at any moment: also in the middle of a move."""

from pathlib import Path

import msgspec
import pyarrow.parquet
from scripted import Limits, run_spec, scripted_run
from turns import Count, Echo

from agents.protocol import Connect, Cut, Go, Move, Place, Prepare
from agents.trace import TraceWriter, collect
from agents.worker.report import Reporter
from workloads.topology import Component, Input, Topology

HERE, THERE, NEW = Place("n1", 0), Place("n2", 0), Place("n3", 1)
TOPOLOGY = Topology(
    "line",
    (
        Component("s", "spout", outputs={"default": {"number": "int"}}),
        Component("b", "bolt", outputs={"default": {"number": "int"}}, inputs=(Input("s"),)),
    ),
)


def test_what_leaves_for_a_new_worker_while_the_old_one_has_not_let_go_is_counted_for_it(tmp_path: Path) -> None:
    spec = run_spec(TOPOLOGY, [HERE, THERE])
    with scripted_run(spec, lambda component: Count() if component == "s" else Echo(), Limits()) as run:
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
        reporter = Reporter(run.workers[HERE].share, traces, 0)
        (sent,) = reporter.report(1_000_000_000).sent
        assert (sent.hop, sent.node) == ("inter_node", "n3")
        assert sent.tuples > 0
        traces.close()
    collect([tmp_path], tmp_path / "parquet")
    rows = pyarrow.parquet.read_table(tmp_path / "parquet" / "channel.parquet").to_pylist()
    assert [(row["hop"], row["target_node"], row["tuples"]) for row in rows] == [("inter_node", "n3", sent.tuples)]
