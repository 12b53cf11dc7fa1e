"""The page: findings and fidelity, no external resources, and hostile names."""

import csv
import json
import re
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from synthetic_campaign import report_without_spark

from analysis.page.build import COLUMNS
from analysis.records.aa_rate import AA_FILE, FalsePositives
from analysis.records.descriptions import fidelity_of, rate_text
from analysis.tables.summary import tidy
from inventory.documents import dump_json

Maker = Callable[..., Path]
SHAPE: Mapping[str, Any] = {"workloads": ["exclamation"], "repetitions": 10, "duration_s": 1.0, "empty_traces": True}


class Reader(HTMLParser):
    """Parser that collects loaded resources, ids, links and text, and fails at tags that do not match."""

    VOID = frozenset({"meta", "link", "br", "img", "hr", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.anchors: list[str] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        self._attributes(tag, attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self._attributes(tag, attrs)

    def _attributes(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if key == "id":
                self.ids.append(value or "")
            elif key in ("src", "href", "xlink:href", "data", "poster", "srcset", "action"):
                (self.anchors if (value or "").startswith("#") else self.loads).append(value or "")
            elif key.startswith("on"):
                self.loads.append(f"{key}={value}")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "title"):
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def check_self_contained(html: str) -> Reader:
    reader = Reader(html)
    assert reader.open == []
    assert reader.loads == ["data:,"]  # the icon, which browsers would otherwise request from a server
    assert not reader.tags & {"script", "iframe", "object", "embed", "img", "base"}
    assert not re.search(r"url\((?!#)|@import|@font-face", html)
    assert len(reader.ids) == len(set(reader.ids))
    assert {anchor.removeprefix("#") for anchor in reader.anchors} <= set(reader.ids)
    return reader


@pytest.fixture
def page(small_report: Path) -> Reader:
    return Reader((small_report / "index.html").read_text())


@pytest.mark.long
@pytest.mark.spark
def test_the_page_is_self_contained(small_report: Path) -> None:
    html = (small_report / "index.html").read_text()
    reader = check_self_contained(html)
    assert html.startswith("<!doctype html>")
    assert {"wordcount", "exclamation", "verification", "excluded", "traces", "reproduce"} <= set(reader.ids)
    # One of findings, six and two of time slots per workload, and four of energy for the metered workload.
    assert html.count("<figure>") == 22


@pytest.mark.long
@pytest.mark.spark
def test_findings_come_first_then_their_certainty_then_results_and_fidelity(page: Reader) -> None:
    text = page.words
    headings = ["What was found", "How sure this is", "Every run, and the range", "What is real here, and what is not"]
    places = [text.rindex(heading) for heading in (*headings, "Verification")]
    assert places == sorted(places)
    fidelity = fidelity_of(1)
    assert text.index(fidelity.cluster) < text.index("What was found")
    for sentence in (*fidelity.real, *fidelity.emulated, *fidelity.absent):
        assert places[3] < text.index(sentence) < places[4]
    # Medians, ranges, and the change against the baseline.
    found = text[places[0] : places[1]]
    assert re.search(r"even n = 2, 1 suspect 8.9\d\d \[", found)
    assert re.search(r"load\) n = 3 8.9\d\d \[[^]]*\] −0\.\d.% CV .* 3.2\d\d \[[^]]*\] −59.% CV \d\.\d % ", found)
    # CPU time per tuple is last.
    assert re.search(r"−59.% CV \d\.\d % .* CV \d+\.\d % All pairs", found)
    assert "(A/A): not measured" in text[places[1] : places[2]]
    assert "measured by rapl in 4 of 10 runs; missing in 6, where it is not zero" in text
    assert "1 of 10 runs are suspect" in text
    assert "in 1 of 10 runs the sources, or the topology behind them, did not keep up with the schedule" in text
    assert "003-exclamation-even-r1" in text
    assert "all 5 node agents together used 0.02 cores" in text
    assert "Invented CPU 3000" in text
    assert "Millrace 0.1.0, commit 0123456789ab with uncommitted changes" in text


@pytest.mark.long
@pytest.mark.spark
def test_below_ten_repetitions_the_page_names_no_winner(page: Reader) -> None:
    text = page.words
    assert "every run is shown with the range over the runs; no interval is inferred and no winner is named" in text
    assert "even, range, n = 2" in text
    assert "top-storm (not given: traffic, load) , range, n = 3" in text
    assert not re.search(r"\b(faster|slower|better|best|worse|wins|beats)\b", text)
    assert "95 %" not in text


@pytest.mark.long
@pytest.mark.spark
def test_missing_inputs_of_a_scheduler_are_listed_with_its_name(page: Reader, small_report: Path) -> None:
    assert "top-storm would use observed traffic, observed loads: none was given" in page.words
    assert "top-storm (not given: traffic, load) 2 nodes, 5 workers" in page.words
    assert "even (not given" not in page.words
    with (small_report / "tables" / "runs.csv").open() as file:
        missing = {(row["scheduler"], row["not_given"]) for row in csv.DictReader(file)}
    assert missing == {("even", ""), ("top-storm", "traffic, load")}


@pytest.mark.long
@pytest.mark.spark
def test_runs_that_do_not_count_are_listed_with_their_reasons(page: Reader) -> None:
    text = page.words
    assert "10 of 12 runs count" in text
    assert "008-exclamation-top-storm-r2 failed worker n2/0 ended with signal 9" in text
    assert "009-wordcount-even-r3 ok wrong answer: ('the',) = (3,), the reference has (4,)" in text
    assert text.count("equals the reference") == 10
    assert text.count("differs from the reference") == 1


@pytest.mark.long
@pytest.mark.spark
def test_the_page_has_placements_ackers_traces_and_reproduction(page: Reader) -> None:
    text = page.words
    # Every worker has seven executors; the first one of `even` has these.
    assert "n1 / 0 0, 5 4, 9, 14 1, 6 7" in text
    assert "Why the ackers are idle" in text
    assert 'pq.read_table("runs/001-wordcount-even-r1/traces/throughput.parquet")' in text
    assert "git checkout 0123456789abcdef0123456789abcdef01234567" in text
    assert "millrace run agenda.yaml" in text
    assert "seed: 7" in text
    assert "input text 11 452 records, invented words" in text


@pytest.mark.long
@pytest.mark.spark
def test_saturated_sources_are_reported_as_the_limit(page: Reader) -> None:
    text = page.words
    assert "sources saturated in 1 of 10 runs" in text
    assert "Those runs do not rank schedulers at this rate" in text
    rates = r"[56].\d{3} tuples/s were due, [34].\d{3} were emitted"
    assert re.search(rf"even : in 1 of 3 runs the sources, or the topology behind them, fell behind: {rates}", text)
    assert re.search(
        r"the latest one 1\.\d+ s after its time\. They waited for the topology 7[3-7] % of the time: under", text
    )
    assert text.count("fell behind:") == 1
    assert "even, range, n = 3, 1 saturated" in text
    assert text.count("exact, saturated") == 1


@pytest.mark.long
@pytest.mark.spark
def test_time_slots_have_a_table_where_runs_follow_a_schedule(page: Reader) -> None:
    (wordcount, exclamation) = page.words.split("Time slots Of runs that follow a communication schedule")[1:]
    for part in (wordcount, exclamation):
        (row,) = re.findall(r"fullest outbox (\S+) (\d+) (\d+) (\S+) ", part)
        assert row == ("top-storm", "800", "200", "5.000")


def measured_rows(folder: Path, late: set[str]) -> dict[str, list[dict[str, object]]]:
    """Return tables whose sources emitted all that was due, or half of it in runs of `late`."""
    names = sorted(path.name for path in (folder / "runs").iterdir())
    common = {"processed_tuples_per_s": 0.0, "executors": 2}
    return {
        "components": [
            {
                "run": name,
                "component": "word",
                "role": "spout",
                "emitted_tuples_per_s": 500.0 if name in late else 1000.0,
            }
            | {"due_tuples_per_s": 1000.0, "worst_late_ms": 2500.0 if name in late else 1.0}
            | common
            for name in names
        ],
        "busy": [
            {"run": name, "component": "word", "busy_cores": 0.1, "blocked_executors": 1.8, "longest_queue": 0}
            for name in names
        ],
    }


@pytest.mark.parametrize("saturated", [False, True])
def test_a_difference_to_saturated_runs_is_never_bold(campaign_maker: Maker, tmp_path: Path, saturated: bool) -> None:
    top_storm_runs = [("exclamation", "top-storm", k) for k in range(1, 11)]
    folder = campaign_maker(
        tmp_path / "c",
        workloads=["exclamation"],
        repetitions=10,
        duration_s=1.0,
        saturated=top_storm_runs if saturated else [],
    )
    late = {path.name for path in (folder / "runs").iterdir() if "top-storm" in path.name}
    html = report_without_spark(folder, measured_rows(folder, late))
    with (folder / "report/tables/differences.csv").open(newline="") as file:
        emitted = next(row for row in csv.DictReader(file) if row["metric"] == "source_tuples_per_s")
    # The interval is reported, but it is not attributed to the scheduler.
    assert (emitted["median_difference"], emitted["excludes_zero"]) == ("-500.0", "true")
    assert emitted["saturated"] == ("10" if saturated else "0")
    assert ('clear">' in html) is not saturated
    text = check_self_contained(html).words
    assert "Difference to even, paired by repetition" in text
    assert "95 %" in text
    assert ("top-storm, saturated" in text) is saturated
    assert ("90 % of the time: under this placement it took no more" in text) is saturated


@pytest.mark.parametrize("has_schedule", [True, False])
def test_a_difference_in_the_requested_rate_is_never_bold(
    campaign_maker: Maker, tmp_path: Path, has_schedule: bool
) -> None:
    folder = campaign_maker(tmp_path / "c", **SHAPE)
    tables = measured_rows(folder, {path.name for path in (folder / "runs").iterdir() if "top-storm" in path.name})
    for row in tables["components"]:
        row["worst_late_ms"] = None
        row["due_tuples_per_s"] = row["emitted_tuples_per_s"] if has_schedule else None
    html = report_without_spark(folder, tables)
    (part,) = re.findall(r"<h3>Difference to even.*?</table>", html, re.DOTALL)
    # Without a schedule, the rate of sources depends on the placement.
    assert re.findall(r'class="([^"]*)">−500 ', part) == (["edge", ""] if has_schedule else [" clear"])


def test_rounding_errors_of_sums_are_no_difference(campaign_maker: Maker, tmp_path: Path) -> None:
    folder = campaign_maker(tmp_path / "c", **SHAPE)
    late = {path.name for path in (folder / "runs").iterdir() if "top-storm" in path.name}
    tables = measured_rows(folder, set())
    for row in tables["busy"]:
        row["busy_cores"] = 0.1 + 0.2 if row["run"] in late else 0.3
        row["blocked_executors"] = -4.44e-16
    tables["cpu"] = [
        {"run": row["run"], "node": "n1", "scope": "worker", "shared": False, "cores": row["busy_cores"]}
        for row in tables["busy"]
    ]
    html = report_without_spark(folder, tables)
    assert re.findall('clear">([^<]*)<', html) == ["−3 [−3, −3]"]  # nodes used
    assert not re.search(r"[0-9]e-1[0-9]|−0\.000 ", html)
    rows = [row for path in (folder / "report/tables").glob("*.csv") for row in csv.DictReader(path.open(newline=""))]
    assert not [value for row in rows for value in row.values() if re.fullmatch(r"-?[0-9.]+e-1[0-9]", value)]
    (cores,) = (row for row in rows if row.get("metric") == "worker_cores" and row.get("baseline"))
    assert (cores["median_difference"], cores["excludes_zero"]) == ("0.0", "false")


HOSTILE = "=cmd()\x1b]0;title\x07\r\n\x9b2J\u202e$\\frac{$<b>"


def test_hostile_names_are_harmless_in_terminals_figures_and_spreadsheets(
    campaign_maker: Maker, tmp_path: Path
) -> None:
    folder = campaign_maker(
        tmp_path / "c", workloads=["exclamation"], repetitions=1, failed={("exclamation", "even", 1): HOSTILE}
    )
    for path in [folder / "campaign.json", *folder.glob("runs/*/run.json")]:
        text = path.read_text()
        text = text.replace('"top-storm"', json.dumps("=\x1b$\\x$<b>"))  # names in figures have to be short
        for name in ("n1", "invented words", "exclamation", "Invented CPU 3000"):
            text = text.replace(f'"{name}"', json.dumps(HOSTILE + name))
        path.write_text(text)
    (run,) = (path.name for path in (folder / "runs").iterdir() if "top-storm" in path.name)
    component = {"run": run, "component": HOSTILE, "role": "sink", "executors": 1, "processed_tuples_per_s": -5.0}
    tables = {
        "components": [component | {"emitted_tuples_per_s": None, "due_tuples_per_s": None, "worst_late_ms": None}],
        "events": [
            {"run": run, "kind": "sensor_failed", "subject": HOSTILE, "times": 1, "mean_value": 0.0, "detail": HOSTILE}
        ],
    }
    html = report_without_spark(folder, {name: tidy(name, rows) for name, rows in tables.items()})
    check_self_contained(html)
    for path in (path for path in (folder / "report").rglob("*") if path.is_file()):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", path.read_text(encoding="utf-8")), path
        if path.suffix == ".svg":
            ElementTree.parse(path)  # noqa: S314 - our own
        if path.suffix == ".csv":
            cells = [cell for row in csv.reader(path.open(newline="")) for cell in row if cell != "-5.0"]
            assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))], path
    with (folder / "report/tables/components.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["component"] == "'=cmd()\\x1b]0;title\\x07\\r\\n\\x9b2J\\u202e$\\frac{$<b>"
    assert row["processed_tuples_per_s"] == "-5.0"


def test_a_run_whose_folder_has_a_hostile_name_is_listed_and_does_not_count(
    campaign_maker: Maker, tmp_path: Path
) -> None:
    folder = campaign_maker(tmp_path / "c", workloads=["exclamation"], repetitions=1)
    first = min((folder / "runs").iterdir())
    first.rename(first.with_name(first.name + "\x1b[2J"))
    text = check_self_contained(report_without_spark(folder)).words
    assert f"{first.name}\\x1b[2J cut off its folder's name holds characters that cannot be shown" in text


@pytest.mark.parametrize(
    ("rate", "words"),
    [
        ({"kind": "constant", "tuples_per_s": 1500.0}, "1\u202f500 tuples/s"),
        ({"kind": "steps", "steps": [[0, 10], [2.5, 20]]}, "10 tuples/s from 0 s, 20 tuples/s from 2.5 s"),
        ({"kind": "poisson", "tuples_per_s": 400}, "Poisson, 400 tuples/s in the mean"),
        (
            {"kind": "bursts", "on_s": 2, "off_s": 8, "tuples_per_s": 900, "off_tuples_per_s": 5},
            "bursts of 2 s with 900 tuples/s, 8 s with 5 tuples/s between them",
        ),
        (
            {"kind": "sine", "mean_tuples_per_s": 400, "amplitude": 0.5, "period_s": 60},
            "a sine from 200 to 600 tuples/s, 60 s long",
        ),
        ({"kind": "replay", "speedup": 60.0}, "as recorded, 60 times as fast"),
        ({"kind": "replay"}, "as recorded"),
        ({"kind": "max"}, "as fast as the topology takes it"),
        ({"kind": "of a later version", "x": 1}, "kind of a later version, x 1"),
        (None, ""),
    ],
)
def test_rates_in_words(rate: object, words: str) -> None:
    assert rate_text(rate) == words


def test_a_campaign_of_failures_still_has_a_page(campaign_maker: Maker, tmp_path: Path) -> None:
    failed = {("exclamation", scheduler, 1): "worker n1/0 ended with signal 9" for scheduler in ("even", "top-storm")}
    folder = campaign_maker(tmp_path / "c", workloads=["exclamation"], repetitions=1, failed=failed)
    reader = check_self_contained(report_without_spark(folder))
    assert "0 of 2 runs count" in reader.words
    assert "No run of this campaign counts" in reader.words
    assert reader.words.count("ended with signal 9") == 2
    assert sorted(p.stem for p in (folder / "report" / "tables").iterdir()) == sorted(COLUMNS)
    assert list((folder / "report" / "figures").iterdir()) == []


@pytest.mark.parametrize("is_known", [True, False])
def test_the_page_has_the_false_positive_rate_of_the_testbed(
    campaign_maker: Maker, tmp_path: Path, is_known: bool
) -> None:
    folder = campaign_maker(tmp_path / "c", workloads=["wordcount"], repetitions=1, duration_s=1.0)
    rate = FalsePositives(rate=0.042, low=0.01, high=0.096, comparisons=48, repetitions=20, date="2026-11-23")
    if is_known:
        (folder / AA_FILE).write_text(dump_json(rate))
    text = check_self_contained(report_without_spark(folder)).words
    shown = "4.2 % [1.0, 9.6] of 48 comparisons over 20 repetitions, 2026-11-23" if is_known else "not measured"
    assert f"false positives of this testbed (A/A): {shown}" in text
    assert text.index("A/A") < text.index("What is real here, and what is not")


def test_names_and_reasons_are_shown_as_text(campaign_maker: Maker, tmp_path: Path) -> None:
    markup = "<script>alert('&amp;')</script> {{ 7 * 7 }}"
    folder = campaign_maker(
        tmp_path / "c",
        workloads=["exclamation"],
        repetitions=1,
        failed={("exclamation", s, 1): markup for s in ("even", "top-storm")},
    )
    document = json.loads((folder / "campaign.json").read_text())
    document["agenda"]["name"] = markup
    (folder / "campaign.json").write_text(json.dumps(document))
    html = report_without_spark(folder)
    assert markup in check_self_contained(html).words
    assert "<script" not in html
