"""Results of earlier versions stay readable."""

import csv
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from agents.collected_traces import TABLES
from analysis.measure.covered import completed
from analysis.page.render import render
from analysis.records.campaign import load_campaign
from campaign.results.live_file import CampaignCondition, look_at

KEPT = Path(__file__).parents[1] / "kept_results" / "0.1.0"
OK = ("001-wordcount-even-r1", "002-wordcount-pipeline-linear-r1")
FAILED = "003-wordcount-top-storm-r1"


def table(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / "report" / "tables" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_kept_results_are_small_enough_for_a_checkout() -> None:
    assert sum(path.stat().st_size for path in KEPT.rglob("*") if path.is_file()) <= 300_000


def test_a_campaign_of_0_1_0_is_read_with_its_recovered_and_its_failed_run() -> None:
    campaign = load_campaign(KEPT)
    assert campaign.schedulers == ("even", "pipeline-linear", "top-storm")
    assert [run.id for run in campaign.runs if run.status == "ok"] == list(OK)
    assert look_at(KEPT).condition is CampaignCondition.ENDED
    runs: dict[str, Any] = {name: json.loads((KEPT / "runs" / name / "run.json").read_text()) for name in (*OK, FAILED)}
    assert len(runs[OK[0]]["measured"]["recoveries"]) == 1
    assert runs[OK[1]]["gates"] is not None
    assert runs[FAILED]["status"] == "failed"


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("run", OK)
def test_trace_tables_keep_the_columns_of_0_1_0(run: str, name: str) -> None:
    kept = pyarrow.parquet.read_schema(KEPT / "runs" / run / "traces" / f"{name}.parquet")
    for column in kept:
        assert TABLES[name].field(column.name).type == column.type


def test_copies_that_say_their_times_are_whole_while_others_make_them_too(tmp_path: Path) -> None:
    traces = KEPT / "runs" / OK[0] / "traces"
    whole = pyarrow.parquet.read_table(completed(traces, "channel", tmp_path / "alone")).num_rows

    def rows(_number: int) -> int:
        return pyarrow.parquet.read_table(completed(traces, "channel", tmp_path / "shared")).num_rows

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(rows, range(80))) == {whole}


MENDED = {"suspect", "cores", "worker_cores", "agent_cores", "host_cores", "cpu_s_per_million_tuples"}
"""Columns that later versions may set, and CPU: 0.1.0 took rows at the ends of the interval for whole ones."""


def comparable(row: dict[str, str]) -> dict[str, str]:
    """Return the columns of a row whose values have to remain."""
    if row.get("metric") in MENDED:
        return {key: value for key, value in row.items() if key not in ("smallest", "largest")}
    return {key: value for key, value in row.items() if key not in MENDED}


def same(one: str, other: str | None) -> bool:
    """Return whether two cells are equal; rates are, up to the time that the first row of an executor covers."""
    try:
        return float(one) == pytest.approx(float(other or "nan"), rel=1e-3)
    except ValueError:
        return one == other


@pytest.mark.spark
@pytest.mark.long
def test_a_new_report_of_0_1_0_has_the_same_figures(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    shutil.copytree(KEPT, folder)
    shutil.rmtree(folder / "report")
    render(folder)
    for path in (KEPT / "report" / "tables").iterdir():
        before, after = table(KEPT, path.stem), table(folder, path.stem)
        assert len(after) == len(before), path.stem
        # Columns may be added; existing ones keep their values.
        for row, old in zip(after, before, strict=True):
            changed = {key for key, value in comparable(old).items() if not same(value, row.get(key))}
            assert not changed, path.stem
    (recovered,) = (row for row in table(folder, "runs") if row["run"] == OK[0])
    assert recovered["suspect"] == "recoveries, whose replays are in its figures"
