"""Searches for the sustainable rate in the report: the list on the page and the two tables."""

import csv
import json
import shutil
from itertools import zip_longest
from pathlib import Path

from analysis.page.build import build
from analysis.records.campaign import load_campaign
from analysis.records.conditions import SearchRecord, SloRecord, TrialRecord
from analysis.tables.summary import SPARK_COLUMNS
from inventory.documents import to_plain

KEPT = Path(__file__).parents[1] / "kept_results" / "0.1.0"

TRIALS = [(100.0, True), (200.0, True), (400.0, False), (400.0, False), (282.843, True)]

COMPLETE_SEARCH = SearchRecord(
    slo=SloRecord(p99_ms=50.0),
    tuples_per_s=282.843,
    fails_tuples_per_s=400.0,
    brackets=[(100.0, None), (200.0, None), (200.0, 400.0), (282.843, 400.0)],
    trials=[TrialRecord(tuples_per_s=rate, holds=holds, late_s=0.5) for rate, holds in TRIALS],
)


OPEN_SEARCH = SearchRecord(brackets=[(9.0, None)], trials=[TrialRecord(tuples_per_s=9.0, holds=True)])


def build_report(folder: Path, *searches: SearchRecord) -> str:
    """Build the report of runs that do not count, the first of which were searches; return the page."""
    shutil.copytree(KEPT, folder)
    for run, search in zip_longest(sorted((folder / "runs").iterdir()), searches):
        record = json.loads((run / "run.json").read_text()) | {"status": "failed", "search": to_plain(search)}
        (run / "run.json").write_text(json.dumps(record))
    (folder / "again").mkdir()
    campaign = load_campaign(folder)
    return build(campaign, {name: [] for name in SPARK_COLUMNS}, folder / "again", None, lambda _: None).read_text()


def test_the_page_lists_the_rates_and_the_tables_every_trial(tmp_path: Path) -> None:
    page = build_report(tmp_path / "c", COMPLETE_SEARCH, OPEN_SEARCH)
    tables = tmp_path / "c" / "again" / "tables"
    assert page.count("<h2>Sustainable rates</h2>") == 1
    assert "<td>283</td><td>400</td><td>5</td>" in page
    assert "p99 ≤ 50 ms, lag grows ≤ 0 s/s, sources ≤ 1 s late" in page
    complete, open_ended = csv.DictReader((tables / "searches.csv").open())
    assert (complete["tuples_per_s"], complete["fails_tuples_per_s"], complete["trials"]) == ("282.843", "400.0", "5")
    assert (open_ended["tuples_per_s"], open_ended["fails_tuples_per_s"], open_ended["p99_limit_ms"]) == ("", "", "")
    trials = [row for row in csv.DictReader((tables / "trials.csv").open()) if row["run"] == complete["run"]]
    assert [(row["bracket_low"], row["bracket_high"], row["holds"]) for row in trials] == [
        ("", "", "true"),
        ("100.0", "", "true"),
        ("200.0", "", "false"),
        ("200.0", "", "false"),
        ("200.0", "400.0", "true"),
    ]


def test_a_page_without_searches_has_no_list_of_them(tmp_path: Path) -> None:
    assert "Sustainable rates" not in build_report(tmp_path / "c")
