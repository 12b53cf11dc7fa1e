"""Campaigns and reports without traces and Spark, where `campaign.json` and `run.json` suffice."""

import json
import os
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from agents.collected_traces import TABLES
from analysis.page.build import build
from analysis.records.campaign import load_campaign
from analysis.statistics.metrics import Rows
from analysis.tables import submit as submit_module
from analysis.tables.summary import SPARK_COLUMNS

NS = 1_000_000_000

Factors = Mapping[str, float]
"""Scheduler -> factor of its latency."""


def write_campaign(folder: Path, factors: Factors, repetitions: int, **keys: Any) -> Path:
    """Write a campaign whose latencies vary by repetition, and by scheduler as given; traces are empty."""
    empty = folder / "empty"
    empty.mkdir(parents=True)
    for name, schema in TABLES.items():
        pyarrow.parquet.write_table(schema.empty_table(), empty / f"{name}.parquet")
    agenda = {"name": folder.name, "schedulers": list(factors), "workloads": [{"name": "wordcount"}], "duration_s": 10}
    record = {"agenda": agenda, "version": "0.2.0", "results_version": 2, "host": {"hostname": "a", "cores_online": 2}}
    (folder / "campaign.json").write_text(json.dumps({**record, **keys}))
    chance = random.Random(folder.name)  # noqa: S311 - no secret is made here
    for repetition in range(1, repetitions + 1):
        base_ms = chance.uniform(10, 20)
        for scheduler, factor in factors.items():
            path = folder / "runs" / f"{repetition:03d}-wordcount-{scheduler}"
            shutil.copytree(empty, path / "traces", copy_function=lambda a, b: Path(b).hardlink_to(a))
            measured = {
                "sink_tuples_per_s": 1000.0,
                "latency_ms": {"p50": base_ms / 2, "p95": base_ms * factor * chance.uniform(0.98, 1.02)},
                "hops": {"inter_worker": 0, "inter_node": 5000 * repetition},
                "saturated": False,
            }
            times = {"source_start_ns": 0, "measure_start_ns": 1 * NS, "measure_end_ns": 11 * NS}
            of_run = {"status": "ok", "workload": "wordcount", "scheduler": scheduler, "repetition": repetition}
            of_run |= {"tier": 1, "measured": measured, "times": times, "verification": {"status": "passed"}}
            (path / "run.json").write_text(json.dumps(of_run))
    shutil.rmtree(empty)
    return folder


def report_without_spark(folder: Path, tables: Mapping[str, Rows] | None = None) -> str:
    """Build the report of a campaign; return its page. Tables of the Spark job that are not given are empty."""
    campaign = load_campaign(folder)
    (folder / "report").mkdir()
    rows = {**{name: [] for name in SPARK_COLUMNS}, **(tables or {})}
    return build(campaign, rows, folder / "report", campaign.baseline(None), lambda _line: None).read_text()


def scripted_spark(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that replaces spark-submit by a script; `home` gets Spark, Java and caches."""
    program = home / "bin" / "spark-submit"
    program.parent.mkdir(parents=True)
    homes = {"JAVA_HOME": str(home / "java"), "SPARK_HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    monkeypatch.setattr(submit_module, "spark_environment", lambda: dict(os.environ) | homes)

    def write(script: str) -> None:
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    return write
