"""Reports of agents and workers for the live display, once a second: they match the traces."""

import time
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace
from scripted_reports import observe

from agents.agent.worker_reports import vitals_of
from agents.protocol import Mark, Progress, Slot, Vitals
from agents.sensors import Row
from controller.coordinator.monitor import Monitor
from inventory.cluster import Cluster, Node
from scheduler.online.revision import Rhythm

pytestmark = pytest.mark.loopback


def test_progress_adds_up_to_the_traces_and_vitals_come_with_the_cpu_sensor(start_agent, wordcount, tmp_path: Path):
    agents = [start_agent("n1", "127.0.0.2"), start_agent("n2", "127.0.0.3")]
    for agent in agents:
        agent.welcome()
    run = wordcount(*agents, slots=2)
    # One count shares a worker with a split, so that there is traffic of every kind.
    together = tuple(replace(e, place=Slot("n1", 1)) if e.component == "count" else e for e in run.executors)
    run.connect(run.start(sensors=["cpu"], executors=together))
    run.go()
    for agent in agents:
        agent.expect(Vitals, lambda vitals: bool(vitals.cores) and len(vitals.workers) == 2)
    agents[0].expect_progress(lambda p: p.emitted > 500)
    run.send_all(Mark(epoch=1, kind="measure_start"))
    run.drain()
    run.finish()
    traces = run.traces(tmp_path / "traces")

    last = {(a.node, p.slot): p for a in agents for p in a.metrics if isinstance(p, Progress)}
    reported: dict[str, Counter[str]] = {"emitted": Counter(), "processed": Counter(), "busy_ns": Counter()}
    sent: dict[str, Counter[tuple[str, str, str]]] = {"tuples": Counter(), "bytes": Counter()}
    for (node, _), progress in last.items():
        for name, work in progress.executors.items():
            for key, total in reported.items():
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
        assert reported[key] == written
        assert sum(written.values()) > 0
    for key, totals in sent.items():
        channels: Counter[tuple[str, str, str]] = Counter()
        for row in traces["channel"].to_pylist():
            channels[row["node"], row["hop"], row["target_node"]] += row[key] or 0
        assert totals == channels
    assert {hop for _, hop, _ in sent["tuples"]} == {"intra_worker", "inter_worker", "inter_node"}


def test_an_observed_run_reports_channels_by_pair_and_due_records_of_sources(start_agent, wordcount, tmp_path: Path):
    agents = [start_agent("n1", "127.0.0.2"), start_agent("n2", "127.0.0.3")]
    for agent in agents:
        agent.welcome()
    run = wordcount(*agents, slots=1)
    run.connect(run.start(sensors=["cpu"], observed=True))
    run.go()
    for agent in agents:
        vitals = agent.expect(Vitals, lambda vitals: vitals.at_ns is not None)
        assert vitals.joules is None  # the nodes share their machine
    observed_progress = agents[0].expect_progress(lambda p: p.emitted > 500 and p.latency_p99_ns is not None)
    assert observed_progress.latency_p99_ns >= observed_progress.latency_p50_ns
    assert all(
        (work.due is not None and work.due + 100 > work.emitted) == name.startswith("spout")
        for name, work in observed_progress.executors.items()
    )
    run.drain()
    run.finish()
    names = [f"{e.component}[{e.index}]" for e in run.executors]
    reported: Counter[tuple[str, str]] = Counter()
    nbytes: Counter[tuple[str, str]] = Counter()
    last = {a.node: p for a in agents for p in a.metrics if isinstance(p, Progress) and p.pairs is not None}
    for progress in last.values():
        for entry in progress.pairs or ():
            reported[names[entry.sender], names[entry.receiver]] += entry.tuples
            nbytes[names[entry.sender], names[entry.receiver]] += entry.nbytes or 0
    written: Counter[tuple[str, str]] = Counter()
    bytes_written: Counter[tuple[str, str]] = Counter()
    for row in run.traces(tmp_path / "traces")["channel"].to_pylist():
        written[row["source"], row["target"]] += row["tuples"]
        bytes_written[row["source"], row["target"]] += row["bytes"] or 0
    # The very last report may come less than a sample after the one before, and then has no pairs.
    assert reported.keys() == written.keys()
    assert all(0.5 * written[pair] <= reported[pair] <= written[pair] for pair in written)
    assert sum(nbytes.values()) > 0
    assert all(nbytes[pair] <= bytes_written[pair] for pair in written)


def test_reports_of_an_observed_run_make_complete_observations(start_agent, wordcount) -> None:
    agents = [start_agent("n1", "127.0.0.2"), start_agent("n2", "127.0.0.3")]
    for agent in agents:
        agent.welcome()
    run = wordcount(*agents, slots=1)
    run.connect(run.start(sensors=["cpu"], observed=True))
    run.go()
    end_ns = agents[0].expect_progress(lambda p: p.emitted > 4000).at_ns
    run.drain()
    run.finish()
    cluster = Cluster((Node(id="n1"), Node(id="n2")))
    monitor = Monitor(Rhythm(window_s=2), cluster, settle_s=0.5)
    begin_ns = min(report.at_ns for agent in agents for report in agent.metrics if isinstance(report, Progress))
    monitor.start_epoch(run.spec(), 0.0)
    for agent in agents:
        for report in agent.metrics:
            if report.at_ns is not None and report.at_ns <= end_ns:
                monitor.record(agent.node, report, (report.at_ns - begin_ns) / 1e9)
    found = observe(monitor, (end_ns - begin_ns) / 1e9)
    assert found.complete
    assert found.source.due_per_s == pytest.approx(2000, rel=0.02)
    from_spouts = sum(e.tuples_per_s for e in found.traffic.edges if e.source.startswith("spout"))
    assert from_spouts == pytest.approx(found.source.emitted_per_s, rel=0.1)
    for node in cluster.nodes:
        here = {name: e.load / node.cpu_points for name, e in found.executors.items() if e.node == node.id}
        assert all(here[name] > 0 for name in here if name.startswith(("spout", "split", "count")))
        usage = found.nodes[node.id]
        assert usage.base is not None
        assert sum(here.values()) + usage.base == pytest.approx(usage.load)


def test_an_agent_without_sensors_and_with_idle_workers_still_reports_every_second(start_agent, wordcount) -> None:
    agent = start_agent("n1", "127.0.0.2")
    agent.welcome()
    run = wordcount(agent, slots=1)
    run.start(sensors=[])
    start_s, first = time.monotonic(), len(agent.metrics)
    for _ in range(4):
        assert agent.expect(Vitals) == Vitals(epoch=1)
    assert time.monotonic() - start_s > 1
    assert not any(isinstance(report, Progress) and report.emitted for report in agent.metrics[first:])


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
