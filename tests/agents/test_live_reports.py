"""What agents and workers say once a second for the live display: the same as what they write down."""

import time
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

from agents.agent.node_run import vitals_of
from agents.protocol import Mark, Place, Progress, Vitals
from agents.sensors.base import Row

pytestmark = pytest.mark.loopback


def test_progress_adds_up_to_the_traces_and_vitals_come_with_the_cpu_sensor(start_agent, wordcount, tmp_path: Path):
    agents = [start_agent("n1", "127.0.0.2"), start_agent("n2", "127.0.0.3")]
    for agent in agents:
        agent.welcome()
    run = wordcount(*agents, slots=2)
    # One count shares a worker with a split, so that there is traffic of every kind.
    together = tuple(replace(e, place=Place("n1", 1)) if e.component == "count" else e for e in run.executors)
    run.connect(run.start(sensors=["cpu"], executors=together))
    run.go()
    for agent in agents:
        agent.expect(Vitals, lambda vitals: bool(vitals.cores) and len(vitals.workers) == 2)
    agents[0].expect_progress(lambda p: p.emitted > 500)
    run.tell(Mark(epoch=1, kind="measure_start"))
    run.drain()
    run.finish()
    traces = run.traces(tmp_path / "traces")

    last = {(a.node, p.slot): p for a in agents for p in a.shown if isinstance(p, Progress)}
    said: dict[str, Counter[str]] = {"emitted": Counter(), "processed": Counter(), "busy_ns": Counter()}
    sent: dict[str, Counter[tuple[str, str, str]]] = {"tuples": Counter(), "bytes": Counter()}
    for (node, _), progress in last.items():
        for name, work in progress.executors.items():
            for key, total in said.items():
                total[name] += getattr(work, key) or 0
            assert work.queued == (None if name.startswith("spout") else 0)
            assert (work.processed is None) == (work.queued is None)
        for entry in progress.sent:
            sent["tuples"][node, entry.hop, entry.node] += entry.tuples
            sent["bytes"][node, entry.hop, entry.node] += entry.nbytes or 0
            assert (entry.nbytes is None) == (entry.hop == "intra_worker")
    for key, table in (("emitted", "throughput"), ("processed", "throughput"), ("busy_ns", "executor")):
        written: Counter[str] = Counter()
        for row in traces[table].to_pylist():
            written[row["executor"]] += row[key]
        assert said[key] == written
        assert sum(written.values()) > 0
    for key, totals in sent.items():
        channels: Counter[tuple[str, str, str]] = Counter()
        for row in traces["channel"].to_pylist():
            channels[row["node"], row["hop"], row["target_node"]] += row[key] or 0
        assert totals == channels
    assert {hop for _, hop, _ in sent["tuples"]} == {"intra_worker", "inter_worker", "inter_node"}


def test_an_agent_without_sensors_whose_workers_wait_reports_every_second_all_the_same(start_agent, wordcount) -> None:
    agent = start_agent("n1", "127.0.0.2")
    agent.welcome()
    run = wordcount(agent, slots=1)
    run.start(sensors=[])
    begun, first = time.monotonic(), len(agent.shown)
    for _ in range(4):
        assert agent.expect(Vitals) == Vitals(epoch=1)
    assert time.monotonic() - begun > 1
    assert not any(isinstance(report, Progress) and report.emitted for report in agent.shown[first:])


def test_without_the_cpu_sensor_there_are_no_rates() -> None:
    assert vitals_of(1, [Row("memory", 0, ("host", "n1", "total", 1, False))]) is None
    assert vitals_of(1, []) is None


def test_vitals_are_the_rates_of_the_node_and_its_workers() -> None:
    rows = [
        Row("cpu", 0, ("agent", "n1", 0.01, False)),
        Row("cpu", 0, ("worker", "2", 0.5, False)),
        Row("cpu", 0, ("core", "0", 0.9, True)),
        Row("cpu", 0, ("node", "n1", 0.51, False)),
    ]
    assert vitals_of(3, rows) == Vitals(epoch=3, cores=0.51, workers={2: 0.5})
    assert vitals_of(3, rows[:1]) == Vitals(epoch=3)
