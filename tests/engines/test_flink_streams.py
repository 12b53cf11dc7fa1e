"""Streams and groupings on Flink: every row arrives where its grouping sends it, also of sources that are late."""

import asyncio
from contextlib import nullcontext
from pathlib import Path

import pytest
from msgspec.structs import replace
from package_install import skipping_without_jars

from agents.protocol import Slot
from engines.conducting import DrainedRun, conduct, write_due
from engines.flink.processes import FlinkProcesses
from engines.installation import install
from engines.job import REPORTS, EngineJob
from engines.limits import RunLimits
from engines.load import ComponentLoad, LoadDocument, StreamLoad, replay_settings, replayed
from engines.programs import engine_jar
from engines.reports import Reports
from inventory.times import NS
from workloads.rates import Constant
from workloads.topology import Component, Executor, Input, Topology

pytestmark = [pytest.mark.flink, pytest.mark.loopback]

LATE = "late"
STREAMS = {"default": StreamLoad(2.0, 50.0, (3.0, 1.0)), LATE: StreamLoad(1.0, 30.0)}
LOAD = LoadDocument(
    "declared",
    1.0,
    Topology(
        "streams",
        (
            Component("source", "spout", 2),
            Component("both", "bolt", 2, inputs=(Input("work"), Input("work", "global", stream=LATE))),
            Component("work", "bolt", 2, inputs=(Input("source"),)),
            Component("keyed", "bolt", 2, inputs=(Input("work", "fields", ("key",)),)),
            Component("every", "bolt", 2, inputs=(Input("work", "all", stream=LATE),)),
        ),
    ),
    {
        "source": ComponentLoad(0.0, {"default": StreamLoad(1.0, 100.0)}),
        "work": ComponentLoad(1000.0, STREAMS),
        **{name: ComponentLoad(0.0) for name in ("both", "keyed", "every")},
    },
)
RECORDS = 100
SECONDS = 2


def rows(reports: Reports, stream: str, target: str) -> list[int]:
    """Return the rows of a stream that the executors of a component received, by index."""
    received = [0, 0]
    for (_, name, received_stream), count in reports.received.items():
        executor = Executor.named(name)
        if received_stream == stream and executor.component == target:
            received[executor.index] += count
    return received


@pytest.mark.parametrize("operations", [0.0, 5e7], ids=["in time", "late"])
def test_every_row_arrives_where_its_grouping_sends_it(tmp_path: Path, operations: float) -> None:
    with skipping_without_jars():
        engine = install("flink", print)
    source = replace(LOAD.components["source"], operations=operations)
    load = replace(LOAD, components={**LOAD.components, "source": source})
    topology = replayed(load)
    places = {executor.name: Slot(f"n{executor.index + 1}", 0) for executor in topology.executors}
    schedule = Constant(tuples_per_s=RECORDS / SECONDS).schedule()
    # Without the record that is due at the end of the interval.
    assert write_due(schedule, SECONDS - 0.01, tmp_path / "due") == RECORDS
    settings = {**replay_settings(load), "due": str(tmp_path / "due"), "seed": 1}
    addresses = {"n1": "127.0.0.2", "n2": "127.0.0.3"}
    job = EngineJob("run", "replay", topology, places, addresses, tmp_path, settings)
    job.write_properties()
    reports = Reports(tmp_path / REPORTS, "run", topology)

    async def run() -> DrainedRun:
        async with FlinkProcesses(job, engine, engine_jar(engine, print)) as processes:
            await processes.place()
            limits, seconds = RunLimits(None, []), (0.5, SECONDS - 0.5, 300.0)
            return await conduct(job, processes, reports, limits, nullcontext(), *seconds, lambda stage, left_s: None)

    outcome = asyncio.run(run())
    assert outcome.drained
    assert outcome.left.emitted_records == outcome.left.due_records == RECORDS
    if operations:
        assert any((totals.late_ns or 0) > NS // 10 for totals in reports.totals.values())
    assert rows(reports, "default", "work") == [RECORDS / 2, RECORDS / 2]
    assert sum(rows(reports, "default", "both")) == sum(rows(reports, "default", "keyed")) == 2 * RECORDS
    assert rows(reports, LATE, "both") == [RECORDS, 0]
    assert rows(reports, LATE, "every") == [RECORDS, RECORDS]
