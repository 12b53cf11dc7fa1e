"""Windows in the report: tables, comparisons, and the page."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from synthetic_campaign import report_without_spark

from analysis.page.windows import WINDOW_COLUMNS, window_groups, window_tables
from analysis.records.campaign import load_campaign
from analysis.statistics.metrics import METRICS
from campaign.results.open_results import Results

Maker = Callable[..., Path]


def figures(k: int, factor: float) -> list[dict[str, Any]]:
    """Return the windows of repetition k; the throughput of the second one is proportional to `factor`."""
    latency = {"p50": 5.0, "p95": 9.0, "p99": None, "max": 20.0, "samples": 7, "bound": 0.5, "withheld": ["p99"]}
    common = {"due_tuples_per_s": 100.0, "latency_ms": latency, "saturated": False, "hops": {"inter_node": 50}}
    return [
        {**common, "name": "calm", "from_s": 0.0, "to_s": 2.0, "seconds": 2.0, "sink_tuples_per_s": 50.0 + k},
        {**common, "name": "peak", "from_s": 1.0, "to_s": 2.0, "seconds": 1.0, "sink_tuples_per_s": factor * (90 + k)},
    ]


@pytest.fixture(scope="module")
def campaign(campaign_maker: Maker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve repetitions, of which one under `even` has failed."""
    folder = campaign_maker(
        tmp_path_factory.mktemp("windows") / "c",
        workloads=["exclamation"],
        repetitions=12,
        duration_s=2.0,
        failed={("exclamation", "even", 3): "gone"},
    )
    for path in folder.glob("runs/*/run.json"):
        record: dict[str, Any] = json.loads(path.read_text())
        if record["status"] == "ok":
            factor = 2.0 if record["scheduler"] == "top-storm" else 1.0
            record["measured"]["windows"] = figures(record["repetition"], factor)
            path.write_text(json.dumps(record))
    return folder


def test_windows_are_compared_like_the_whole_interval(campaign: Path) -> None:
    tables = window_tables(load_campaign(campaign), "even")
    assert {name: {tuple(row) for row in rows} for name, rows in tables.items()} == {
        name: {columns} for name, columns in WINDOW_COLUMNS.items()
    }
    assert len(tables["windows"]) == 2 * 23
    row = tables["windows"][1]
    assert (row["window"], row["seconds"], row["inter_node_tuples_per_s"], row["latency_p99_ms"]) == (
        "peak",
        1,
        50,
        None,
    )
    sinks = {
        (row["window"], row["scheduler"]): row
        for row in tables["window_comparison"]
        if row["metric"] == "sink_tuples_per_s"
    }
    assert sinks["peak", "even"]["n"] == 11
    assert sinks["peak", "top-storm"]["n"] == 12
    assert sinks["peak", "top-storm"]["smallest"] == 182
    assert sinks["calm", "top-storm"]["median"] == 56.5
    differences = {r["window"]: r for r in tables["window_differences"] if r["metric"] == "sink_tuples_per_s"}
    assert differences["calm"]["median_difference"] == 0
    assert differences["peak"]["excludes_zero"]
    pairs = {r["window"]: r for r in tables["window_pairs"] if r["metric"] == "sink_tuples_per_s"}
    assert (pairs["peak"]["outcome"], pairs["calm"]["outcome"]) == ("higher", "not distinguishable")
    assert pairs["peak"]["ratio"] == pytest.approx(2)
    assert not any(row["metric"] == "nodes_used" for row in tables["window_comparison"])


def test_the_page_and_the_tables_have_the_windows(campaign: Path) -> None:
    html = report_without_spark(campaign)
    part = html[html.index('<h3 id="exclamation-windows">Windows</h3>') :]
    part = part[: part.index("</table>")]
    assert part.count('<th scope="row">') == 4
    assert part.index("calm, 0–2") < part.index("peak, 1–2")
    assert "n = 11" in part
    frame = Results(campaign).table("windows").to_pandas()
    assert frame["window"].tolist()[:2] == ["calm", "peak"]
    assert frame["latency_p99_ms"].isna().all()
    assert Results(campaign).runs()[frame["run"][0]].measured.windows[1].name == "peak"  # type: ignore[union-attr]


def test_campaigns_without_windows_have_none(campaign_maker: Maker, tmp_path: Path) -> None:
    folder = campaign_maker(tmp_path / "c", workloads=["exclamation"], repetitions=1, duration_s=1.0)
    tables = window_tables(load_campaign(folder), "even")
    assert not any(tables.values())
    assert window_groups("exclamation", ["even"], tables["windows"]) == []


def test_all_columns_of_the_comparison_are_metrics_of_the_report() -> None:
    names = {metric.name for metric in METRICS}
    others = {"throughput_tuples_per_s", "latency_samples"}
    assert set(WINDOW_COLUMNS["windows"][10:]) - others <= names
