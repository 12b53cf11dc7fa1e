"""`millrace run` ends with the report; without Spark the results are complete all the same."""

import csv
from typing import Any

import pytest

pytestmark = pytest.mark.loopback


@pytest.mark.spark
@pytest.mark.slow
def test_a_campaign_ends_with_a_report_whose_figures_are_those_of_its_runs(desk: Any) -> None:
    outcome = desk.run("run", desk.agenda(), program=desk.whole)
    assert outcome.status == 0, outcome
    assert f"report: results/short/{desk.campaign.name}/report/index.html" in outcome.out
    assert (desk.campaign / "report" / "index.html").stat().st_size > 0
    with (desk.campaign / "report" / "tables" / "runs.csv").open() as file:
        rows = {row["run"]: row for row in csv.DictReader(file)}
    results = desk.results()
    assert rows.keys() == results.keys()
    for name, row in rows.items():
        assert row["counts"] == "true"
        measured = results[name]["measured"]
        # Two programs by two ways: Spark from the interval in run.json, the campaign from marks in the traces.
        for column in ("source_tuples_per_s", "sink_tuples_per_s"):
            assert float(row[column]) == pytest.approx(measured[column], rel=0.5)
        assert float(row["latency_p50_ms"]) == pytest.approx(measured["latency_ms"]["p50"], rel=0.5)


def test_without_spark_the_results_are_complete_and_the_message_says_how_to_go_on(desk: Any) -> None:
    outcome = desk.run("run", desk.agenda(schedulers=["even"]), program=desk.without_spark)
    assert outcome.status == 3, outcome
    assert "Spark is not installed" in outcome.err or "no Java" in outcome.err
    folder = f"results/short/{desk.campaign.name}"
    assert f"The results are complete in {folder}; later: millrace report {folder}" in outcome.err
    assert [run["status"] for run in desk.results().values()] == ["ok"]
