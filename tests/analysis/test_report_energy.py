"""Energy in the report: values against worked examples, sources, and separation of modelled and measured energy."""

import csv
import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from synthetic_energy import CONSUMERS, IDLE

from analysis.page.build import COLUMNS, build
from analysis.records.campaign import load_campaign
from analysis.tables.summary import SPARK_COLUMNS

Maker = Callable[..., Path]
Row = dict[str, str]

ENERGY = re.compile(r"joules|watts")
UNITS = re.compile(r"\bJ\b|\bW\b")
FIRST = "001-wordcount-even-r1"
MISSING = "010-wordcount-top-storm-r3"


def table(report: Path, name: str) -> list[Row]:
    with (report / "tables" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def build_page(folder: Path) -> str:
    """Build and return the page of a campaign with throughput as the only table from Spark."""
    campaign = load_campaign(folder)
    (folder / "report").mkdir()
    sinks = {
        "component": "count",
        "role": "sink",
        "executors": 8,
        "emitted_tuples_per_s": 0.0,
        "due_tuples_per_s": None,
    }
    sinks["worst_late_ms"] = None
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in SPARK_COLUMNS}
    rows["components"] = [{"run": run.id, **sinks, "processed_tuples_per_s": 9000.0} for run in campaign.counted]
    progress: list[str] = []
    page = build(campaign, rows, folder / "report", campaign.baseline(None), progress.append)
    assert progress == ["comparing runs", *(f"drawing {label}" for label in campaign.workloads)]
    return page.read_text()


@pytest.fixture(scope="module")
def mixed(campaign_maker: Maker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve repetitions measured by RAPL, except for the first two of each scheduler, which are modelled."""
    modelled = [("wordcount", scheduler, k) for scheduler in ("even", "top-storm") for k in (1, 2)]
    shape: dict[str, Any] = {
        "workloads": ["wordcount"],
        "metered": ["wordcount"],
        "duration_s": 1.0,
        "empty_traces": True,
    }
    folder = tmp_path_factory.mktemp("mixed") / "c"
    build_page(campaign_maker(folder, repetitions=12, modelled=modelled, **shape))
    return folder / "report"


def tables_of(html: str) -> Iterator[str]:
    yield from re.findall(r"<table.*?</table>", html, re.DOTALL)


def check_sources(report: Path) -> None:
    """Check that every value of energy has a source in tables, figures and page."""
    for name, columns in COLUMNS.items():
        metered = [column for column in columns if ENERGY.search(column)]
        if metered:
            assert {"source", "modelled"} <= set(columns), name
            for row in table(report, name):
                assert row["source"] or not any(row[column] for column in metered), (name, row)
        if "unit" in columns:
            for row in table(report, name):
                assert row["unit"] not in ("J", "W") or row["source"], (name, row)
    for path in (report / "figures").glob("*.svg"):
        words = " ".join(re.findall(r"<text[^>]*>([^<]*)<", path.read_text()))
        assert not UNITS.search(words) or re.search(r"\b(rapl|model)\b", words), path.name
    for part in tables_of((report / "index.html").read_text()):
        assert not UNITS.search(re.sub(r"<[^>]*>", " ", part)) or "<caption>Source: " in part, part[:300]


@pytest.mark.long
@pytest.mark.spark
def test_every_number_of_energy_has_its_source(small_report: Path) -> None:
    check_sources(small_report)


def test_every_number_of_energy_has_its_source_when_there_are_several(mixed: Path) -> None:
    check_sources(mixed)


@pytest.mark.long
@pytest.mark.spark
def test_power_over_time_is_the_increase_of_the_counters_once_per_machine(small_report: Path) -> None:
    rows = [row for row in table(small_report, "power") if row["run"] == FIRST]
    # Five nodes are one machine: the meters of the first count. 40.25 W, nine tenths of it in the package.
    assert {row["node"] for row in rows} == {"n1"}
    for domain, share in (("package-0", 0.9), ("dram/package-0", 0.1)):
        power = {int(row["second"]): float(row["watts"]) for row in rows if row["domain"] == domain}
        assert power.keys() == {-1, 0, 1, 2, 3}
        assert all(math.isclose(watts, 40.25 * share, rel_tol=1e-6) for watts in power.values())


@pytest.mark.long
@pytest.mark.spark
def test_a_step_that_is_missing_leaves_its_second_empty_and_the_run_without_energy(small_report: Path) -> None:
    rows = [row for row in table(small_report, "power") if row["run"] == MISSING and row["domain"] == "package-0"]
    assert [(row["second"], row["watts"] == "", row["flags"]) for row in rows] == [
        ("-1", False, ""),
        ("0", False, ""),
        ("1", False, ""),
        ("2", True, "reset"),
        ("3", False, ""),
    ]
    (energy,) = (row for row in table(small_report, "energy") if row["run"] == MISSING)
    assert {energy[name] for name in ("joules", "joules_per_tuple", "watts", "idle_percent", "net_joules")} == {""}
    assert energy["reason"] == "package-0: a step is missing (reset)"
    page = (small_report / "index.html").read_text()
    assert "1 of 5 runs have no energy, which is not zero: package-0: a step is missing (reset)." in page
    assert (
        "5 of 5 runs have no energy, which is not zero: n1: no energy source (no zone with an energy counter)." in page
    )


@pytest.mark.long
@pytest.mark.spark
def test_consumers_add_up_to_gross_over_executors_transport_rest_and_idle(small_report: Path) -> None:
    gross = 40.25 * 4
    sums: dict[str, float] = {}
    cpu: dict[str, float] = {}
    for row in table(small_report, "consumers"):
        if row["run"] == FIRST:
            sums[row["consumer"]] = sums.get(row["consumer"], 0.0) + float(row["joules"])
            cpu[row["consumer"]] = cpu.get(row["consumer"], 0.0) + float(row["cpu_s"] or 0.0)
            assert (row["source"], row["modelled"], row["clamped"]) == ("rapl", "false", "false")
    used = {name.removesuffix("s") if name == "executors" else name: share for name, share in CONSUMERS.items()}
    expected = {"idle": IDLE * gross} | {name: share * (1 - IDLE) * gross for name, share in used.items()}
    assert sums == pytest.approx(expected, rel=1e-6)
    # 35 executors for four steps of 10 ms each; both domains have the same CPU time.
    assert cpu["executor"] == pytest.approx(35 * 4 * 0.01)


@pytest.mark.long
@pytest.mark.spark
def test_an_event_of_a_node_is_marked_and_its_run_is_suspect_everywhere(small_report: Path) -> None:
    (moment,) = table(small_report, "moments")
    assert (moment["run"], moment["node"], moment["kind"]) == ("005-wordcount-even-r2", "n1", "cpu_throttled")
    assert float(moment["second"]) == pytest.approx(0.5, abs=0.01)
    for name in ("runs", "energy"):
        assert [row["run"] for row in table(small_report, name) if row["suspect"]] == ["005-wordcount-even-r2"]
    assert "throttled" in (small_report / "figures" / "wordcount-power.svg").read_text()
    text = " ".join(re.sub(r"<[^>]*>", " ", (small_report / "index.html").read_text()).split())
    assert "even · 2, suspect: cpu0: the core has throttled itself for heat 3 times 0.0045 0.0018" in text
    assert "even, range, n = 2, 1 suspect" in text
    figure = (small_report / "figures" / "wordcount-energy-rapl-dram-package-0-package-0.svg").read_text()
    # Of two runs one is hollow, gross and net.
    assert len(re.findall(r'<use[^>]*fill-opacity="0" [^>]*k-s0', figure)) == 2
    assert len(re.findall(r"<use[^>]*f-s0 k-s0", figure)) == 2


@pytest.mark.long
@pytest.mark.spark
def test_below_ten_repetitions_energy_has_ranges_and_no_front(small_report: Path) -> None:
    assert table(small_report, "energy_differences") == table(small_report, "energy_front") == []
    rows = [r for r in table(small_report, "energy_comparison") if r["metric"] == "joules_per_tuple"]
    found = {row["scheduler"]: (row["n"], float(row["smallest"]), float(row["largest"]), row["median"]) for row in rows}
    # 40 or 30 W and a quarter of a watt for each repetition, 9,000 tuples per second.
    assert found == {
        "even": ("2", pytest.approx(40.25 / 9000), pytest.approx(40.5 / 9000), ""),
        "top-storm": ("2", pytest.approx(30.25 / 9000), pytest.approx(30.5 / 9000), ""),
    }
    assert "Pareto" not in (small_report / "index.html").read_text()


def test_modelled_energy_is_never_ranked_beside_measured_energy(mixed: Path) -> None:
    for name in ("energy_comparison", "energy_differences", "energy_front"):
        for row in table(mixed, name):
            assert (row["source"] == "model") == (row["modelled"] == "true")
    n = {(r["source"], r["scheduler"]): r["n"] for r in table(mixed, "energy_comparison") if r["metric"] == "joules"}
    assert n == {(s, k): c for s, c in (("rapl", "10"), ("model", "2")) for k in ("even", "top-storm")}
    assert {row["source"] for row in table(mixed, "energy_differences")} == {"rapl"}
    html = (mixed / "index.html").read_text()
    for part in tables_of(html):
        caption = re.search(r"<caption>Source: (.*?)</caption>", part)
        if caption:
            assert ('class="modelled"' in part) == caption[1].endswith(", modelled")
    hatched = {path.name for path in (mixed / "figures").glob("*.svg") if "<pattern" in path.read_text()}
    assert hatched == {f"wordcount-{figure}-model-node-modelled.svg" for figure in ("energy", "front", "idle")}
    assert "energy is modelled, not measured, in 4 of 24 runs" in html


def test_from_ten_repetitions_on_there_are_a_front_and_differences(mixed: Path) -> None:
    rows = {row["scheduler"]: row for row in table(mixed, "energy_front")}
    assert (rows["even"]["on_front"], rows["even"]["dominated_by"]) == ("false", "top-storm")
    assert (rows["top-storm"]["on_front"], rows["top-storm"]["dominated_by"]) == ("true", "")
    (gross,) = (r for r in table(mixed, "energy_differences") if r["metric"] == "joules_per_tuple")
    assert float(gross["median_difference"]) == pytest.approx(-10 / 9000)
    assert (gross["scheduler"], gross["baseline"], gross["pairs"], gross["excludes_zero"]) == (
        *("top-storm", "even"),
        *("10", "true"),
    )


@pytest.mark.parametrize("doubt", ["suspect", "modelled", ""])
def test_a_difference_in_energy_is_bold_only_without_suspect_or_modelled_runs(
    doubt: str, campaign_maker: Maker, tmp_path: Path
) -> None:
    runs = [("wordcount", scheduler, k) for scheduler in ("even", "top-storm") for k in range(1, 11)]
    shape: dict[str, Any] = {
        "workloads": ["wordcount"],
        "repetitions": 10,
        "metered": ["wordcount"],
        "duration_s": 1.0,
        "empty_traces": True,
    }
    html = build_page(campaign_maker(tmp_path / "c", **shape, **({doubt: runs} if doubt else {})))
    (part,) = (part for part in tables_of(html.split('id="wordcount-energy"')[1]) if "−0.00111" in part)
    assert ('clear">−' in part) is (not doubt)
    (gross,) = (r for r in table(tmp_path / "c/report", "energy_differences") if r["metric"] == "joules_per_tuple")
    count = "10" if doubt == "suspect" else "0"
    assert (gross["excludes_zero"], gross["suspect"]) == ("true", count)
    for name in ("comparison", "differences"):
        assert {row["suspect"] for row in table(tmp_path / "c/report", name)} == {count}


def test_runs_with_other_domains_are_not_compared(campaign_maker: Maker, tmp_path: Path) -> None:
    folder = campaign_maker(tmp_path / "c", workloads=["wordcount"], duration_s=1.0, metered=["wordcount"])
    path = next(folder.glob("runs/*-even-r1/run.json"))
    document = json.loads(path.read_text())
    domains = document["measured"]["energy"]["machines"][0]["domains"]
    document["measured"]["energy"]["machines"][0]["domains"] = [d for d in domains if d["role"] == "package"]
    path.write_text(json.dumps(document))
    html = build_page(folder)
    n = {(r["domains"], r["scheduler"]): r["n"] for r in table(folder / "report", "energy_comparison")}
    assert n == {
        ("package-0", "even"): "1",
        ("dram/package-0, package-0", "even"): "2",
        ("dram/package-0, package-0", "top-storm"): "3",
    }
    assert "These are not compared with one another" in html


def test_a_campaign_without_the_power_sensor_has_a_note(campaign_maker: Maker, tmp_path: Path) -> None:
    folder = campaign_maker(tmp_path / "c", workloads=["wordcount"], repetitions=1, duration_s=1.0)
    for path in folder.glob("runs/*/run.json"):
        document = json.loads(path.read_text())
        document["measured"]["energy"] = None
        path.write_text(json.dumps(document))
    assert "the sensor power was not asked for: energy is missing in this report, it is not zero." in build_page(folder)
