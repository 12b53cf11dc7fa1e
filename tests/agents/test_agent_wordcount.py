"""Agents and real workers in one process tree: word count from hello to bye."""

from pathlib import Path

import pyarrow.compute as pc
import pytest

from agents.protocol import Bye, Mark
from agents.worker.process.answer_files import read_answer_rows

pytestmark = pytest.mark.loopback


def _answers(run, drained):
    rows = []
    for agent in run.agents:
        for report in drained:
            for paths in report.answers.values():
                for path in paths:
                    if (agent.folder / path).exists():
                        table = read_answer_rows(agent.folder / path, {"word": "str", "count": "int"})
                        rows += list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return {"counts": rows}


def _positions(run, drained):
    emitted = {}
    for report in drained:
        emitted |= report.positions
    return [emitted[f"spout[{index}]"] for index in range(2)]


def test_one_agent_with_two_workers_runs_word_count_to_the_right_answer(start_agent, wordcount, tmp_path: Path):
    agent = start_agent()
    agent.welcome()
    run = wordcount(agent)
    run.connect(run.start(sensors=["cpu", "memory", "network"]))
    run.go()
    run.send_all(Mark(epoch=1, kind="measure_start"))
    agent.expect_progress(lambda p: p.emitted > 500)
    run.send_all(Mark(epoch=1, kind="measure_end"))
    drained = run.drain()
    run.finish()
    agent.send(Bye())
    assert agent.wait() == 0
    assert (agent.folder / "logs" / "agent.log").exists()

    positions = _positions(run, drained)
    assert sum(positions) > 500
    verdict = run.workload.compare(_answers(run, drained), run.workload.reference(positions, run.inputs))
    assert verdict.passed, verdict.message

    traces = run.traces(tmp_path / "traces")
    events = traces["event"].filter(pc.equal(traces["event"]["worker"], -1)).to_pylist()
    kinds = [event["kind"] for event in events]
    assert kinds.count("worker_started") == 2
    assert kinds.count("measure_start") == kinds.count("measure_end") == 1
    assert {"worker_failed", "sensor_failed", "sensor_absent"}.isdisjoint(kinds)
    assert all(traces[table].num_rows for table in ("cpu", "memory", "network", "clock", "throughput", "channel"))
    assert set(traces["cpu"]["scope"].to_pylist()) == {"core", "worker", "agent", "node"}


def test_two_agents_run_one_topology_and_then_the_next_with_a_higher_epoch(start_agent, wordcount):
    agents = [start_agent("n1", "127.0.0.2"), start_agent("n2", "127.0.0.3")]
    for agent in agents:
        agent.welcome()
    run = wordcount(*agents, slots=1)
    for epoch in (1, 2):
        run.connect(run.start(epoch), epoch)
        run.go(epoch)
        agents[0].expect_progress(lambda p, epoch=epoch: p.epoch == epoch and p.emitted > 100)
        drained = run.drain(epoch)
        run.finish(epoch)
        positions = _positions(run, drained)
        verdict = run.workload.compare(_answers(run, drained), run.workload.reference(positions, run.inputs))
        assert verdict.passed, verdict.message
