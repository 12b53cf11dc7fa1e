"""Streams and groupings on Flink: every row arrives where its grouping sends it, and nowhere else."""

import asyncio
from contextlib import nullcontext
from pathlib import Path

import pytest
from package_install import skipping_without_jars

from agents.protocol import Slot
from engines.conducting import conduct, write_due
from engines.flink.processes import FlinkProcesses
from engines.installation import install
from engines.job import REPORTS, EngineJob
from engines.limits import RunLimits
from engines.load import ComponentLoad, LoadDocument, StreamLoad, replay_settings, replayed
from engines.programs import engine_jar
from engines.reports import Reports
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


def test_every_row_arrives_where_its_grouping_sends_it(tmp_path: Path) -> None:
    with skipping_without_jars():
        engine = install("flink", print)
    topology = replayed(LOAD)
    places = {executor.name: Slot(f"n{executor.index + 1}", 0) for executor in topology.executors}
    write_due(Constant(tuples_per_s=RECORDS / SECONDS).schedule(), SECONDS, tmp_path / "due")
    settings = {**replay_settings(LOAD), "due": str(tmp_path / "due"), "seed": 1}
    addresses = {"n1": "127.0.0.2", "n2": "127.0.0.3"}
    job = EngineJob("run", "replay", topology, places, addresses, tmp_path, settings)
    job.write_properties()
    reports = Reports(tmp_path / REPORTS, "run", topology)

    async def run() -> None:
        async with FlinkProcesses(job, engine, engine_jar(engine, print)) as processes:
            limits, seconds = RunLimits(None, []), (0.5, SECONDS - 0.5, 60.0)
            await conduct(job, processes, reports, limits, nullcontext(), *seconds, lambda stage, left_s: None)

    asyncio.run(run())
    assert rows(reports, "default", "work") == [RECORDS / 2, RECORDS / 2]
    assert sum(rows(reports, "default", "both")) == sum(rows(reports, "default", "keyed")) == 2 * RECORDS
    assert rows(reports, LATE, "both") == [RECORDS, 0]
    assert rows(reports, LATE, "every") == [RECORDS, RECORDS]
