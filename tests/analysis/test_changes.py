"""Changes of running topologies in the report: tables, page and bands."""

import csv
import json
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from synthetic_campaign import report_without_spark

from analysis.records.accounts import EnergyExcess, PayBacks, RevisionCost, RunMeans, WindowMeans
from analysis.records.campaign import load_campaign
from analysis.records.file_types import RevisionRecord
from inventory.documents import to_plain
from scheduler.online.observation import KeyFigures

BEFORE = WindowMeans(
    from_s=0.5,
    to_s=1.5,
    due_tuples_per_s=1000,
    sink_tuples_per_s=9000,
    latency_mean_ms=21.5,
    latency_p50_ms=20,
    latency_p95_ms=44,
    hops={"intra_worker": 0, "inter_worker": 0, "inter_node": 310},
    nodes=5,
    watts=109,
    sources=["model"],
    modelled=True,
)
AFTER = WindowMeans(
    from_s=2.5,
    to_s=5,
    sink_tuples_per_s=9100,
    hops={"inter_node": 90},
    nodes=2,
    watts=85,
    sources=["model"],
    modelled=True,
)
CHANGES = [
    RevisionCost(
        number=1,
        scripted=True,
        begun_s=1.5,
        ended_s=1.75,
        recovered_s=2.5,
        moves=2,
        pause_max_s=0.25,
        pause_sum_s=0.375,
        state_bytes=77,
        net_loss_tuples=812.0,
        net_loss_error_tuples=31.0,
        latency_excess_tuple_s=5.25,
        latency_error_tuple_s=0.5,
        energy=EnergyExcess(joules=270, bound_joules=4, sources=["model"], modelled=True),
        before=BEFORE,
        after=AFTER,
        pay_back=PayBacks(latency=10_800.0, throughput="never", energy="unknown"),
    ),
    RevisionCost(number=2, begun_s=4.0, ended_s=4.1, moves=1, reason="no such time", before=BEFORE),
]
DECISIONS = [
    RevisionRecord(
        number=1, at_s=2.0, decided_s=0.125, outcome="no", text="cut 310 is low enough", message="cut 310 is low enough"
    ),
    RevisionRecord(
        number=2,
        at_s=3.5,
        decided_s=0.25,
        cpu_s=0.5,
        reason="overload",
        outcome="partial",
        message="n3 is lost",
        begun_s=4.0,
        ended_s=4.1,
        moves=3,
        clocks={"n1": 2_000_000_000},
        expects=KeyFigures(cut=280.0, load=0.75, watts=100.0),
        before=KeyFigures(load=0.9),
    ),
]
MEANS = RunMeans(whole_run=BEFORE, after_last_revision=AFTER)


class PageText(HTMLParser):
    """The text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.words.append(" ".join(data.split()))


def add_changes(
    folder: Path, scheduler: str, changes: Sequence[RevisionCost] = CHANGES, means: RunMeans = MEANS
) -> None:
    """Write these changes into every run of a scheduler."""
    for path in folder.glob(f"runs/*-{scheduler}-*/run.json"):
        record: dict[str, Any] = json.loads(path.read_text())
        figures = {"revision_costs": changes, "revisions": DECISIONS, "means": means}
        record["measured"] |= {key: to_plain(value) for key, value in figures.items()}
        path.write_text(json.dumps(record))


def report_text(folder: Path) -> str:
    """Return the words of a campaign's page, built without Spark, with plain spaces."""
    campaign = load_campaign(folder)
    seconds = [
        {"run": run.id, "second": second, "step_s": 1, "source_tuples_per_s": 1000.0, "sink_tuples_per_s": 9000.0}
        for run in campaign.counted
        for second in range(-1, 4)
    ]
    return " ".join(filter(None, PageText(report_without_spark(folder, {"timeline": seconds})).words))


def rows(folder: Path, table: str) -> list[dict[str, str]]:
    with (folder / "report" / "tables" / f"{table}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def campaign(campaign_maker: Callable[..., Path], tmp_path: Path) -> Path:
    return campaign_maker(tmp_path / "c", workloads=["wordcount"], repetitions=2, empty_traces=True)


def test_changes_are_rows_with_their_cost_gain_and_pay_back(campaign: Path) -> None:
    add_changes(campaign, "even")
    text = report_text(campaign)
    found = rows(campaign, "revisions")
    assert [(row["run"][:3], row["change"]) for row in found] == [
        ("001", "t1"),
        ("001", "2"),
        ("003", "t1"),
        ("003", "2"),
    ]
    first, second = found[:2]
    expected = {
        "scheduler": "even",
        "scripted": "true",
        "recovered_s": "2.5",
        "net_loss_tuples": "812.0",
        "excess_joules": "270.0",
        "source": "model",
        "modelled": "true",
        "inter_node_tuples_per_s_before": "310.0",
        "inter_node_tuples_per_s_after": "90.0",
        "intra_worker_tuples_per_s_after": "",
        "pay_back_latency_s": "10800.0",
        "pay_back_throughput_s": "never",
        "pay_back_energy_s": "unknown",
        "unknown": "",
    }
    assert {key: first[key] for key in expected} == expected
    assert (second["net_loss_tuples"], second["excess_joules"], second["watts_after"]) == ("", "", "")
    assert second["unknown"] == "no such time"
    assert "Changes of the running topology" in text
    assert "even · 1 t1 timeline – 1.50 1.75 2.50 2 250.0 77 812 ± 31 5.25 ± 0.5 270.0 ± 4.0, modelled" in text
    before_and_after = (
        "9 000 → 9 100 20.00 → – 44.00 → – 310 → 90 5 → 2 – → – 109.0 → 85.0, modelled 10 800 never unknown"
    )
    assert before_and_after in text
    revision_columns = ("reason", "outcome", "deciding_cpu_s", "clocks", "load_before", "load_after", "load_expected")
    assert [second[name] for name in revision_columns] == ["overload", "partial", "0.5", "1", "0.9", "", "0.75"]
    assert [first[name] for name in revision_columns] == [""] * 7
    assert "even · 1 2 overload partial 4.00" in text
    assert "310 → – (280) 5 → – 0.90 → – (0.75) 109.0 → – (100.0), modelled – – – no such time" in text


def test_every_decision_is_listed_with_its_reason_even_without_a_revision(campaign: Path) -> None:
    add_changes(campaign, "even")
    text = report_text(campaign)
    found = rows(campaign, "decisions")
    assert [(row["run"][:3], row["number"], row["outcome"], row["clocks"]) for row in found[:2]] == [
        ("001", "1", "no", "0"),
        ("001", "2", "partial", "1"),
    ]
    assert "even · 1 1 2.0 0.125 – no 0 0 cut 310 is low enough even" in text
    assert "even · 1 2 3.5 0.250 0.500 partial 3 1 overload: n3 is lost" in text
    assert {row["counts"] for row in found} == {"true"}
    assert "What their online schedulers decided" not in text


def test_decisions_of_runs_that_do_not_count_are_listed_with_these_runs(
    campaign_maker: Callable[..., Path], tmp_path: Path
) -> None:
    failed = {("wordcount", "even", k): "worker n2/0 ended with signal 9" for k in (1, 2)}
    campaign = campaign_maker(tmp_path / "c", workloads=["wordcount"], repetitions=2, failed=failed, empty_traces=True)
    for path in campaign.glob("runs/*-even-*/run.json"):
        record: dict[str, Any] = json.loads(path.read_text())
        # A failed run has no measured interval.
        record |= {"measured": None, "revisions": to_plain(DECISIONS)}
        path.write_text(json.dumps(record))
    text = report_text(campaign)
    found = [(row["run"][:3], row["number"], row["outcome"], row["counts"]) for row in rows(campaign, "decisions")]
    assert found == [
        ("001", "1", "no", "false"),
        ("001", "2", "partial", "false"),
        ("003", "1", "no", "false"),
        ("003", "2", "partial", "false"),
    ]
    assert "Changes of the running topology" not in text
    reasons, _, decided = text.partition("What their online schedulers decided")
    assert "001-wordcount-even-r1 failed worker n2/0 ended with signal 9" in reasons
    assert "001-wordcount-even-r1 2 3.5 0.250 0.500 partial 3 1 overload: n3 is lost" in decided


def test_means_of_both_parts_are_given_by_name_for_every_scheduler(campaign: Path) -> None:
    add_changes(campaign, "even")
    text = report_text(campaign)
    found = [(row["run"][:3], row["part"], row["from_s"], row["sink_tuples_per_s"]) for row in rows(campaign, "means")]
    assert found[:2] == [("001", "whole_run", "0.5", "9000.0"), ("001", "after_last_revision", "2.5", "9100.0")]
    assert len(found) == 4
    assert "even, the whole run, n = 2 1 000 9 000 21.50 20.00 44.00" in text
    assert "even, after the last change, n = 2 – 9 100" in text
    # Runs of the other scheduler are of a version without means.
    assert "top-storm, the whole run, n = 0" in text


@pytest.mark.parametrize("modelled", [True, False])
def test_watts_are_marked_where_a_model_computed_them(campaign: Path, modelled: bool) -> None:
    before, after = (replace(means, sources=["rapl"], modelled=modelled) for means in (BEFORE, AFTER))
    add_changes(
        campaign, "even", [replace(CHANGES[1], before=before)], RunMeans(whole_run=before, after_last_revision=after)
    )
    text = report_text(campaign)
    for table in ("revisions", "means"):
        assert {(row["source"], row["modelled"]) for row in rows(campaign, table)} == {("rapl", str(modelled).lower())}
    mark = ", modelled" if modelled else ""
    assert f"109.0 → – (100.0){mark} – – – no such time" in text
    assert f"even, the whole run, n = 2 1 000 9 000 21.50 20.00 44.00 0 0 310 5 109.0{mark} even, after" in text
    assert ("modelled" in text.partition("Changes of the running topology")[2].partition("Placement")[0]) is modelled


def test_changes_of_the_first_repetition_are_bands_in_figures_over_time(campaign: Path) -> None:
    add_changes(campaign, "even")
    report_text(campaign)
    # Seconds of the run: a second of warm-up, then the measured interval.
    (figure,) = (campaign / "report" / "figures").glob("*-throughput.svg")
    assert [figure.read_text().count(f"> {name}<") for name in ("t1", "2")] == [1, 1]


def test_a_report_without_changes_has_no_section_on_them(campaign: Path) -> None:
    text = report_text(campaign)
    assert rows(campaign, "revisions") == []
    assert "Changes of the running topology" not in text
