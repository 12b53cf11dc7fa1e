"""Workloads over the values of factors: ratios against the baseline, and figures over one factor."""

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_campaign import report_without_spark

from analysis.figures.palette import look
from analysis.figures.report_figures import draw_factors
from analysis.page.factor_view import (
    CPU,
    RATIO_COLUMNS,
    Family,
    families_of,
    multiples_of,
    ratio_lines,
    ratio_rows,
)
from analysis.records.campaign import Campaign, load_campaign
from analysis.records.factors import factors_text, value_text
from analysis.statistics.metrics import Row, Rows
from analysis.statistics.pairs import pair_rows
from analysis.statistics.ranking import HEADINGS, SHOWN
from analysis.tables.summary import SPARK_COLUMNS

RATE = "workloads.exclamation.rate.tuples_per_s"
LOOKS = {"even": look(0), "top-storm": look(1)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, campaign_maker: Callable[..., Path]) -> Path:
    """Two repetitions at each of two rates; the larger one is first in the agenda."""
    target = campaign_maker(
        tmp_path_factory.mktemp("factors") / "c", workloads=["exclamation"], repetitions=4, duration_s=1.0
    )
    document = json.loads((target / "campaign.json").read_text())
    document["agenda"] |= {"factors": {RATE: [200, 100], "nodes": [5]}, "repetitions": 2}
    (target / "campaign.json").write_text(json.dumps(document))
    for path in target.glob("runs/*/run.json"):
        run = json.loads(path.read_text())
        before = run["repetition"] - 1
        run |= {"repetition": before // 2 + 1, "factors": {RATE: [100, 200][before % 2], "nodes": 5}}
        path.write_text(json.dumps(run))
    return target


@pytest.fixture(scope="module")
def campaign(folder: Path) -> Campaign:
    return load_campaign(folder)


def tables_of(campaign: Campaign) -> dict[str, Rows]:
    """Return tables in which throughput is the rate and latency a tenth of it, a twentieth for top-storm."""
    tables: dict[str, Rows] = {name: [] for name in SPARK_COLUMNS}
    for run in campaign.counted:
        assert run.file
        rate = float(run.file.factors[RATE])
        row: Row = {"component": "s", "role": "sink", "executors": 1, "processed_tuples_per_s": rate}
        rest = dict.fromkeys(("emitted_tuples_per_s", "due_tuples_per_s", "worst_late_ms"))
        tables["components"].append({"run": run.id} | row | rest)
        ms = rate / (10 if run.scheduler == "even" else 20)
        tables["latency"] += [
            {"run": run.id, "quantile": q, "latency_ms": ms, "samples": 100} for q in (0.0, 0.5, 0.95, 0.99, 1.0)
        ]
    return tables


def runs_of(campaign: Campaign) -> Rows:
    values = {"even": 10.0, "top-storm": 5.0}
    common: Row = {"counts": True, "suspect": "", "saturated": False}
    return [
        common
        | {"workload": run.workload, "scheduler": run.scheduler, "repetition": run.repetition}
        | {metric.name: values[run.scheduler] for metric in SHOWN}
        for run in campaign.counted
    ]


def test_a_workload_at_several_values_of_factors_is_a_family(campaign: Campaign) -> None:
    (family,) = families_of(campaign)
    assert family.label == "exclamation"
    assert list(family.cells) == list(campaign.workloads)
    # The number of nodes does not vary.
    assert (family.values, family.names) == ({RATE: [100, 200]}, {RATE: "tuples_per_s"})
    assert [family.text(cell) for cell in family.cells] == ["tuples_per_s=200", "tuples_per_s=100"]


def test_cpu_settings_are_a_factor(campaign_maker: Callable[..., Path], tmp_path: Path) -> None:
    target = campaign_maker(tmp_path / "c", workloads=["exclamation"], repetitions=2, duration_s=1.0)
    assert families_of(load_campaign(target)) == []
    for path in target.glob("runs/*/run.json"):
        run = json.loads(path.read_text())
        path.write_text(json.dumps(run | {"cpu_settings": f"fast{run['repetition']}"}))
    (family,) = families_of(load_campaign(target))
    assert family.values == {CPU: ["fast1", "fast2"]}


def test_ratios_are_the_pairs_with_the_baseline_by_factor(campaign: Campaign) -> None:
    families = families_of(campaign)
    pairs = pair_rows(campaign, runs_of(campaign), "even")
    rows = ratio_rows(families, pairs, "even")
    assert [tuple(row) for row in rows] == [RATIO_COLUMNS] * 2 * len(SHOWN)
    assert [row["ratio"] for row in rows] == pytest.approx([0.5] * len(rows))
    assert {(row["workload"], row["factors"], row["n"]) for row in rows} == {
        ("exclamation", "tuples_per_s=200", 2),
        ("exclamation", "tuples_per_s=100", 2),
    }
    assert [(line.factors, line.scheduler, line.n, line.doubt) for line in ratio_lines(families[0], pairs, "even")] == [
        (["200"], "top-storm", 2, ""),
        (["100"], "top-storm", 2, ""),
    ]
    pairs[0]["suspect"] = 1
    assert ratio_lines(families[0], pairs, "even")[0].doubt == "suspect"
    assert ratio_rows(families, pairs, None) == []


@pytest.mark.parametrize(
    ("factors", "axis"),
    [
        ({"nodes": [1, 2, 3], "workloads.w.rate.tuples_per_s": [1, 2]}, "workloads.w.rate.tuples_per_s"),
        ({"nodes": [1, 2], "load": [0.5, 0.8]}, "load"),
        ({"workloads.v.rate.tuples_per_s": [1, 2, 3], "slots": [1, 2]}, "slots"),
        ({"inventory": ["a", "b", "c"], "slots": [1, 2]}, "slots"),
        ({"inventory": ["a", "b"], "workloads.w.rate": [{"kind": "x"}, {"kind": "y"}, {}]}, "workloads.w.rate"),
        ({"flag": [True, False], "nodes": [1, 2]}, "nodes"),
    ],
)
def test_the_axis_is_a_rate_or_else_a_number_or_else_the_factor_with_most_values(
    factors: dict[str, list[Any]], axis: str
) -> None:
    assert family_of(factors).axis == axis


def family_of(factors: dict[str, list[Any]]) -> Family:
    combinations = [dict(zip(factors, values, strict=True)) for values in itertools.product(*factors.values())]
    return Family("w", {f"w ({factors_text(each)})": each for each in combinations})


def ranking_of(family: Family, value: Callable[[str], float]) -> Rows:
    return [
        {"workload": cell, "scheduler": s, "metric": m.name, "median": value(cell), "suspect": 0, "n": 3}
        | {"low": value(cell) - 1, "high": value(cell) + 1}
        for cell in family.cells
        for s in LOOKS
        for m in SHOWN
    ]


VALUES = st.lists(
    st.one_of(st.integers(0, 99), st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=5)),
    min_size=2,
    max_size=4,
    unique_by=value_text,
)


@settings(max_examples=25)
@given(factors=st.dictionaries(st.sampled_from(["nodes", "slots", "inventory"]), VALUES, min_size=1))
def test_every_combination_is_a_point_in_one_figure_and_all_have_the_same_scale(factors: dict[str, list[Any]]) -> None:
    family = family_of(factors)
    numbers = {cell: float(at) for at, cell in enumerate(family.cells)}
    figures = multiples_of(family, ranking_of(family, numbers.__getitem__), LOOKS)
    assert len(figures) == len(family.cells) // len(family.values[family.axis])
    assert len({figure.title for figure in figures}) == len(figures)
    for heading in (HEADINGS[metric.name] for metric in SHOWN):
        medians = [p.median for figure in figures for p in figure.points[heading]["even"]]
        assert sorted(medians) == sorted(numbers.values())
        assert {figure.limits[heading] for figure in figures} == {max(numbers.values()) + 1}
        for figure in figures:
            places = [point.x for point in figure.points[heading]["even"]]
            assert places == sorted(set(places)) == [place for place, _ in figure.ticks]


def test_names_and_values_stay_text_in_figures() -> None:
    family = family_of({"in<&$_^": ["a&<b>", "$x^2$"], "other": ["p", "q", "r"]})
    (first, *_) = multiples_of(family, ranking_of(family, lambda _: 3.0), LOOKS)
    ((_, svg),) = draw_factors([first], "w", "<w>")
    root = ElementTree.fromstring(svg)  # noqa: S314 - drawn by this program
    words = ["".join(element.itertext()) for element in root.iter() if element.tag.endswith(("}text", "}title"))]
    assert "Over other, at in<&$_^=a&<b>" in words
    assert {"p", "q", "r", "even", "top-storm", "p95 latency, ms"} <= set(words)
    assert words[0].startswith("<w> over other, at in<&$_^=a&<b>: Medians")


def test_metrics_without_values_are_marked_as_not_measured() -> None:
    family = family_of({"nodes": [1, 2]})
    rows = [row for row in ranking_of(family, lambda _: 3.0) if row["metric"] == SHOWN[0].name]
    ((_, svg),) = draw_factors(multiples_of(family, rows, LOOKS), "w", "w")
    assert svg.count("not measured") == len(SHOWN) - 1


@pytest.mark.long
def test_the_page_begins_with_ratios_and_figures_over_the_factor(folder: Path, campaign: Campaign) -> None:
    html = report_without_spark(folder, tables_of(campaign))
    target = folder / "report"
    text = " ".join(re.sub(r"<[^>]*>", " ", html[html.index("<main>") :]).split())
    assert text.startswith("What was found exclamation over tuples_per_s Ratios to even at each combination")
    assert "200 top-storm 2 1.000 – 0.500 –" in text
    assert html.index("Over tuples_per_s") < html.index('class="found"')
    assert (target / "figures" / "exclamation-factors-1.svg").is_file()
    lines = (target / "tables" / "ratios.md").read_text().splitlines()
    assert lines[2] == r"| exclamation | tuples\_per\_s=200 | top-storm / even | 2 | 1 | 0.5 |  |"
    assert (target / "tables" / "ratios.tex").is_file()
