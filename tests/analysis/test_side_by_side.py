"""Several campaigns in one report: differences of set-ups, metrics, ratios, and errors."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from synthetic_campaign import write_campaign

from analysis.page import side_by_side
from analysis.page.side_by_side import compare_campaigns
from analysis.statistics.metrics import Row
from campaign.commands.main import run

KEPT = Path(__file__).parents[1] / "kept_results" / "0.1.0"


def compare(out: Path, *folders: Path) -> tuple[dict[tuple[str, ...], Row], list[Row]]:
    """Return the rows of the comparison by scheduler, campaign and metric, and those of the set-up."""
    _, tables = compare_campaigns(folders, out)
    key = ("scheduler", "campaign", "metric")
    return {tuple(row[name] for name in key): row for row in tables["comparison"]}, tables["setup"]


def test_ratios_are_computed_per_campaign_even_for_schedulers_of_one_name(tmp_path: Path) -> None:
    one = write_campaign(tmp_path / "one", {"even": 1.0, "top-storm": 0.8}, repetitions=10)
    other = write_campaign(tmp_path / "other", {"top-storm": 1.3, "even": 1.0}, repetitions=11)
    few = write_campaign(tmp_path / "few", {"even": 1.0, "top-storm": 2.0}, repetitions=3)
    rows, _ = compare(tmp_path / "out", one, other, few)
    for label, n, factor in (("C1", 10, 0.8), ("C2", 11, 1.3), ("C3", 3, 2.0)):
        row = rows["top-storm", label, "latency_p95_ms"]
        assert (row["n"], row["baseline"]) == (n, "even")
        assert row["ratio"] == pytest.approx(factor, rel=0.2 if n == 3 else 0.03)
        if n == 3:
            assert row["ratio_low"] is row["ratio_high"] is None
        else:
            assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
            assert row["ratio_low"] == pytest.approx(factor, rel=0.05)
        assert row["low"] <= row["median"] <= row["high"]
        assert rows["even", label, "latency_p95_ms"]["ratio"] is None
        # Hops are counts in run.json.
        assert rows["even", label, "inter_node_tuples_per_s"]["median"] == 500 * (n + 1) / 2
        # A metric without values has no row, one that is 0 has a row without a ratio.
        assert ("even", label, "latency_p99_ms") not in rows
        assert rows["top-storm", label, "inter_worker_tuples_per_s"]["ratio"] is None
    page = (tmp_path / "out" / "index.html").read_text()
    assert page.index("Differences of the set-up") < page.index("Metrics of wordcount")
    figure = (tmp_path / "out" / "figures" / "wordcount-found.svg").read_text()
    assert all(f"top-storm (C{number})" in figure for number in (1, 2, 3))
    with (tmp_path / "out" / "tables" / "comparison.csv").open(newline="") as file:
        written = [(row["scheduler"], row["campaign"], row["metric"]) for row in csv.DictReader(file)]
    assert written == list(rows)
    assert "top-storm" in (tmp_path / "out" / "tables" / "comparison.tex").read_text()


def test_every_difference_of_the_setup_is_listed_by_part_and_nothing_else(tmp_path: Path) -> None:
    nodes = [{"id": "n1", "cores": 2}]
    flags = [f"flag{number}" for number in range(9)]
    host: dict[str, Any] = {"hostname": "a", "cores_online": 2, "clock": "boot 1", "isa": flags, "list": flags}
    one = write_campaign(tmp_path / "x" / "same", {"even": 1.0}, 1, host=host, cluster={"nodes": nodes})
    host = host | {"clock": "boot 2", "cores_online": 8, "cpu_model": None, "isa": [*flags[1:], "avx", "sse"]}
    nodes = [{"id": "n1", "cores": 4}, {"id": "n2"}]
    keys: dict[str, Any] = {"host": host, "cluster": {"nodes": nodes}, "version": "0.3.0"}
    other = write_campaign(tmp_path / "y" / "same", {"even": 1.0}, 1, **keys)
    record = json.loads((one / "campaign.json").read_text())
    record["agenda"]["warmup_s"] = 5
    (one / "campaign.json").write_text(json.dumps(record))
    record = json.loads((other / "campaign.json").read_text())
    record["agenda"] |= {
        "duration_s": 20.0,
        "warmup_s": 5.0,
        "cpu": None,
        "schedulers": [{"name": "even", "params": {"a": 1}}],
    }
    (other / "campaign.json").write_text(json.dumps(record))
    run_path = other / "runs" / "001-wordcount-even" / "run.json"
    run_record = json.loads(run_path.read_text())
    run_record |= {
        "tier": 2,
        "cpu": [{"node": "n1", "setting": "turbo", "before": "1", "asked": "0", "got": "0", "ok": True}],
    }
    run_path.write_text(json.dumps(run_record))
    _, setup = compare(tmp_path / "out", one, other)
    assert [(row["part"], row["setting"], row["C1"], row["C2"]) for row in setup] == [
        ("machine", "host.cores_online", "2", "8"),
        ("machine", "host.isa", "9 entries, among them flag0", "10 entries, among them avx, sse"),
        ("machine", "host.cpu_model", "not given", "unknown"),
        ("version", "version", "0.2.0", "0.3.0"),
        ("agenda", "schedulers", '["even"]', "not given"),
        ("agenda", "duration_s", "10", "20"),
        ("agenda", "schedulers.even.name", "not given", "even"),
        ("agenda", "schedulers.even.params.a", "not given", "1"),
        ("agenda", "cpu", "not given", "none"),
        ("inventory", "nodes.n1.cores", "2", "4"),
        ("inventory", "nodes.n2.id", "not given", "n2"),
        ("settings", "tier", "1", "2"),
        ("settings", "n1: turbo", "not given", "0"),
    ]
    _, setup = compare(tmp_path / "out", one, Path(shutil.copytree(one, tmp_path / "copy")))
    assert setup == []
    assert "are the same." in (tmp_path / "out" / "index.html").read_text()


def test_results_of_0_1_0_are_compared_with_fresh_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fresh = write_campaign(tmp_path / "fresh", {"even": 1.0, "top-storm": 0.5}, 2)
    assert run(["compare", str(KEPT), str(fresh), "--out", str(tmp_path / "out")]) == 0
    output = capsys.readouterr().out
    lines = [line.split() for line in output.splitlines()]
    assert ["version", "version", "0.1.0", "0.2.0"] in lines
    assert ["version", "results_version", "1", "2"] in lines
    assert any(line[:3] == ["wordcount", "even", "C1"] for line in lines)
    assert any(line[:3] == ["wordcount", "pipeline-linear", "C1"] for line in lines)
    assert any(line[:4] == ["wordcount", "top-storm", "C2", "2"] for line in lines)
    assert output.splitlines()[-1] == f"comparison: {tmp_path / 'out' / 'index.html'}"


def test_without_a_common_scheduler_there_are_no_ratios(tmp_path: Path) -> None:
    one = write_campaign(tmp_path / "one", {"even": 1.0}, 2)
    other = write_campaign(tmp_path / "other", {"<b>top": 1.0}, 2)
    rows, _ = compare(tmp_path / "out", one, other)
    assert {row["ratio"] for row in rows.values()} == {row["baseline"] for row in rows.values()} == {None}
    page = (tmp_path / "out" / "index.html").read_text()
    assert "no scheduler in common" in page
    assert "&lt;b&gt;top" in page
    assert "<b>top" not in page


def test_campaigns_that_cannot_be_compared_are_refused_and_nothing_is_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = write_campaign(tmp_path / "one", {"even": 1.0}, 1)
    newer = write_campaign(tmp_path / "newer", {"even": 1.0}, 1, results_version=99)
    before = sorted(tmp_path.rglob("*"))
    for folders, out, words in (
        ([one], "out", "at least two campaigns"),
        ([one, tmp_path / "one" / ".." / "one"], "out", "is given twice"),
        ([one, newer], "out", "got 99, but this version of Millrace reads 1 to 2; they were written by version 0.2.0"),
        ([one, tmp_path], "out", "this is not a campaign's folder"),
        ([one, KEPT], "one", "is there already, and not a comparison"),
        ([one, KEPT], "one/campaign.json", "is there already, and not a comparison"),
    ):
        assert run(["compare", *map(str, folders), "--out", str(tmp_path / out)]) == 2
        assert words in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_an_interrupted_comparison_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = write_campaign(tmp_path / "in" / "one", {"even": 1.0}, 1)
    out = tmp_path / "out" / "here"
    compare_campaigns([one, KEPT], out)
    page = (out / "index.html").read_text()

    def interrupt(*_: object, **__: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(side_by_side, "render_template", interrupt)
    with pytest.raises(KeyboardInterrupt):
        compare_campaigns([KEPT, one], out)
    assert [path.name for path in out.parent.iterdir()] == ["here"]
    assert (out / "index.html").read_text() == page
