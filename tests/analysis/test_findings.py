"""Findings: comparisons of all pairs, the ranking, and sentences on them."""

import json
import math
import random
import re
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median, stdev
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.figures.palette import look
from analysis.page.findings import change_data, finding_of
from analysis.records.campaign import Campaign, load_campaign
from analysis.records.descriptions import PrimaryMetric, change
from analysis.statistics.comparison import compare
from analysis.statistics.metrics import Row, Rows
from analysis.statistics.pairs import pair_rows, power_notes, rows_without_suspect
from analysis.statistics.ranking import (
    CPU,
    EQUAL,
    HEADINGS,
    HIGHER,
    LOWER,
    PAIR_COLUMNS,
    PRIMARY,
    RANKING_COLUMNS,
    SHOWN,
    ranking_rows,
    sentences,
    shown_in,
)

VALUES = {"even": [10.0, 11.0, 12.0, 30.0], "top-storm": [5.0, 5.5, 4.5, 6.0], "none": []}


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory, campaign_maker: Callable[..., Path]) -> Campaign:
    folder = tmp_path_factory.mktemp("found") / "c"
    return load_campaign(campaign_maker(folder, workloads=["exclamation"], repetitions=1, duration_s=1.0))


def runs_of(repeated: int = 1, **changes: object) -> Rows:
    """Return rows of runs whose shown metrics have the values of `VALUES`, in that order; CPU time is unknown."""
    common: Row = {"workload": "exclamation", "counts": True, "suspect": "", "saturated": False, CPU: None}
    return [
        common
        | {"scheduler": scheduler, "repetition": k}
        | dict.fromkeys(("sink_tuples_per_s", "latency_p95_ms", "inter_node_tuples_per_s"), value)
        | changes
        for scheduler, values in VALUES.items()
        for k, value in enumerate(values * repeated, 1)
    ]


def tables_of(campaign: Campaign, runs: Rows, baseline: str | None) -> dict[str, Rows]:
    pairs = pair_rows(campaign, runs, baseline)
    return {
        "pairs": pairs,
        "ranking": ranking_rows(campaign, runs, pairs, baseline),
        "pairs_without_suspect": rows_without_suspect(campaign, runs, pairs, baseline),
    }


RATIO = math.sqrt(0.375 * math.sqrt(0.5 * 0.375))
"""Ratios are 0.5, 0.5, 0.375 and 0.2: the middle two of their means by pairs are 0.375 and that of 0.5 and 0.375."""


def test_medians_and_changes_are_given_at_any_number_of_repetitions(campaign: Campaign) -> None:
    rows = tables_of(campaign, runs_of(), "even")["ranking"]
    assert [tuple(row) for row in rows] == [RANKING_COLUMNS] * 6
    assert [row["scheduler"] for row in rows] == ["even"] * 3 + ["top-storm"] * 3
    assert {(r["median"], r["low"], r["high"], r["n"]) for r in rows[:3]} == {(11.5, 10.0, 30.0, 4)}
    assert {r["change_percent"] for r in rows[:3]} == {None}
    assert {round(r["change_percent"], 6) for r in rows[3:]} == {round(100 * (RATIO - 1), 6)}


def test_below_ten_repetitions_there_are_no_intervals_and_no_ranking(campaign: Campaign) -> None:
    tables = tables_of(campaign, runs_of(), "even")
    assert [tuple(row) for row in tables["pairs"]] == [PAIR_COLUMNS] * 3
    for row in tables["pairs"]:
        assert row["difference"] == pytest.approx(11.5 * (RATIO - 1))
        assert {row[c] for c in ("ratio_low", "difference_low", "p_value", "adjusted_p")} == {None}
        assert row["outcome"] == ""
    assert {row["rank"] for row in tables["ranking"]} == {None}
    assert sentences(tables["pairs"], "exclamation", "even") == []


def test_cells_have_their_variation_and_pairs_the_smallest_detectable_effect(campaign: Campaign) -> None:
    runs = runs_of(repeated=4)
    tables = tables_of(campaign, runs, "even")
    values = {s: [r["latency_p95_ms"] for r in runs if r["scheduler"] == s] for s in ("even", "top-storm")}
    variations = {
        row["scheduler"]: row["variation_percent"] for row in tables["ranking"] if row["metric"] == "latency_p95_ms"
    }
    assert variations == {s: pytest.approx(100 * stdev(each) / mean(each)) for s, each in values.items()}
    comparison = compare(dict(enumerate(values["top-storm"])), dict(enumerate(values["even"])))
    assert comparison is not None
    assert comparison.smallest_effect is not None
    (pair,) = (row for row in tables["pairs"] if row["metric"] == "latency_p95_ms")
    assert pair["smallest_percent"] == pytest.approx(100 * comparison.smallest_effect)
    few = tables_of(campaign, runs_of(), "even")["pairs"]
    assert {row["smallest_percent"] for row in few} == {None}


def test_a_result_that_is_not_distinguishable_has_the_smallest_detectable_effect(campaign: Campaign) -> None:
    pairs = tables_of(campaign, runs_of(repeated=4), "even")["pairs"]
    (sentence,) = sentences(
        [row | {"outcome": EQUAL, "smallest_percent": 4.0 + 8 * (row["metric"] == "latency_p95_ms")} for row in pairs],
        "exclamation",
        "even",
    )
    assert sentence == (
        "top-storm against even: tuples between nodes not distinguishable (4 % would be), p95 latency not "
        "distinguishable (12 % would be), throughput not distinguishable (4 % would be), n = 16."
    )


def test_cpu_time_per_tuple_is_compared_where_it_is_known(campaign: Campaign) -> None:
    runs = runs_of(repeated=4)
    for row in runs:
        row[CPU] = row["latency_p95_ms"] / 2
    tables = tables_of(campaign, runs, "even")
    medians = {row["scheduler"]: row["median"] for row in tables["ranking"] if row["metric"] == CPU}
    assert medians == {name: median(VALUES[name]) / 2 for name in ("even", "top-storm")}
    (sentence,) = sentences(tables["pairs"], "exclamation", "even")
    assert re.search(r"CPU per 10⁶ tuples \d+ % lower", sentence)


def test_from_ten_repetitions_on_the_range_is_the_interval_of_the_median(campaign: Campaign) -> None:
    rows = tables_of(campaign, runs_of(repeated=4), "even")["ranking"]
    row = next(row for row in rows if row["scheduler"] == "even")
    assert row["n"] == 16
    assert row["low"] <= row["median"] == median(VALUES["even"]) <= row["high"] < max(VALUES["even"])


def test_schedulers_are_ranked_by_distinguishable_differences(campaign: Campaign) -> None:
    runs = runs_of(repeated=4)
    for row in runs:
        row["sink_tuples_per_s"] = 100.0 + row["repetition"] % 2
    tables = tables_of(campaign, runs, "even")
    ranks = {(row["scheduler"], row["metric"]): row["rank"] for row in tables["ranking"]}
    assert list(dict.fromkeys(scheduler for scheduler, _ in ranks)) == ["top-storm", "even"]
    assert [ranks["top-storm", metric.name] for metric in SHOWN if metric.name != CPU] == [1, 1, 1]
    assert [ranks["even", metric.name] for metric in SHOWN if metric.name != CPU] == [1, 2, 2]
    (sentence,) = sentences(tables["pairs"], "exclamation", "even")
    assert re.fullmatch(
        r"top-storm sends \d\d % fewer tuples between nodes than even \[\d\d, \d\d\], "
        r"p95 latency \d\d % lower \[\d\d, \d\d\], throughput not distinguishable, n = 16\.",
        sentence,
    )
    size, low, high = map(int, re.findall(r"\d\d", sentence)[:3])
    assert low <= size <= high
    same = {"outcome": EQUAL, "smallest_percent": None}
    (even,) = sentences([row | same for row in tables["pairs"]], "exclamation", "even")
    assert even == (
        "top-storm against even: tuples between nodes not distinguishable, p95 latency not distinguishable, "
        "throughput not distinguishable, n = 16."
    )


def test_the_agenda_chooses_the_metrics_that_order_schedulers(
    tmp_path: Path, campaign_maker: Callable[..., Path]
) -> None:
    folder = campaign_maker(tmp_path / "c", workloads=["exclamation"], repetitions=1, duration_s=1.0)
    document = json.loads((folder / "campaign.json").read_text())
    document["agenda"]["report"] = {"primary": ["latency_ms.max", "latency_ms.p50"]}
    (folder / "campaign.json").write_text(json.dumps(document))
    chosen = load_campaign(folder)
    runs = runs_of(repeated=4)
    for row in runs:
        best = row["scheduler"] == "even"
        row |= {"latency_p50_ms": 2.0 - best, "latency_max_ms": 5.0 - best, "sink_tuples_per_s": 9.0 - best}
    tables = tables_of(chosen, runs, "top-storm")
    assert [row["scheduler"] for row in tables["ranking"]] == ["even"] * 3 + ["top-storm"] * 3
    of_even = [(row["metric"], row["rank"]) for row in tables["ranking"][:3]]
    assert of_even == [("latency_p50_ms", 1), ("latency_max_ms", 1), ("inter_node_tuples_per_s", 2)]
    (sentence,) = sentences(tables["pairs"], "exclamation", "top-storm")
    assert "p50 latency 50.0 % lower [50.0, 50.0], largest latency 20.0 % lower [20.0, 20.0], n = 16." in sentence
    assert "throughput" not in sentence


def test_every_metric_that_an_agenda_may_choose_has_a_heading_and_a_column() -> None:
    assert set(PRIMARY) == set(get_args(PrimaryMetric))
    assert {*PRIMARY.values(), CPU} == set(HEADINGS)
    assert len(shown_in(set(HEADINGS))) == len(HEADINGS)


@pytest.mark.parametrize(
    ("doubt", "words"),
    [({"suspect": "hot"}, "16 with suspect runs"), ({"saturated": True}, "16 with saturated sources")],
)
def test_suspect_or_saturated_runs_lead_to_no_ranking(campaign: Campaign, doubt: Row, words: str) -> None:
    tables = tables_of(campaign, runs_of(repeated=4, **doubt), "even")
    assert {row["outcome"] for row in tables["pairs"]} == {""}
    assert {row["rank"] for row in tables["ranking"]} == {None}
    assert sentences(tables["pairs"], "exclamation", "even") == [
        f"top-storm against even: no conclusion, of 16 repetitions there are {words}."
    ]


def test_both_results_are_shown_with_and_without_suspect_runs(campaign: Campaign) -> None:
    clear_runs = runs_of(repeated=4)
    runs = [row | {"suspect": "hot" * ((row["scheduler"], row["repetition"]) == ("even", 4))} for row in clear_runs]
    tables = tables_of(campaign, runs, "even")
    without = [row for row in clear_runs if row["repetition"] != 4]
    assert tables["pairs_without_suspect"] == tables_of(campaign, without, "even")["pairs"]
    finding = finding_of(tables, "exclamation", {"even": look(0), "top-storm": look(1)}, "even")
    assert finding.without_suspect == list(zip(tables["pairs"], tables["pairs_without_suspect"], strict=True))
    assert {(a["n"], a["outcome"], b["n"], b["outcome"]) for a, b in finding.without_suspect if b} == {
        (16, "", 15, LOWER)
    }
    (with_suspect, without_suspect) = finding.sentences
    assert with_suspect == "top-storm against even: no conclusion, of 16 repetitions there are 1 with suspect runs."
    (sentence,) = sentences(tables_of(campaign, without, "even")["pairs"], "exclamation", "even")
    assert without_suspect == f"Without suspect runs: {sentence}"


def test_pairs_of_suspect_repetitions_only_have_no_second_result(campaign: Campaign) -> None:
    tables = tables_of(campaign, runs_of(suspect="hot"), "even")
    finding = finding_of(tables, "exclamation", {"even": look(0), "top-storm": look(1)}, "even")
    assert [clear for _, clear in finding.without_suspect] == [None] * 3
    assert tables_of(campaign, runs_of(), "even")["pairs_without_suspect"] == []


@given(st.lists(st.floats(1.0, 1e6), min_size=10, max_size=14), st.floats(0.2, 5.0), st.integers(0, 10**6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_outcome_says_which_side_the_interval_is_on(
    campaign: Campaign, values: list[float], factor: float, seed: int
) -> None:
    draw = random.Random(seed)  # noqa: S311
    common = {"workload": "exclamation", "counts": True, "suspect": "", "saturated": False}
    runs = [
        common
        | {"scheduler": scheduler, "repetition": k}
        | dict.fromkeys(HEADINGS, value * scale * draw.uniform(0.9, 1.1))
        for scheduler, scale in (("even", 1.0), ("top-storm", factor))
        for k, value in enumerate(values)
    ]
    for row in pair_rows(campaign, runs, "even"):
        assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
        assert row["p_value"] <= row["adjusted_p"] <= 1
        if row["outcome"] == LOWER:
            assert max(row["ratio_high"] - 1, row["difference_high"]) < 0
        elif row["outcome"] == HIGHER:
            assert min(row["ratio_low"] - 1, row["difference_low"]) > 0
        else:
            assert row["outcome"] == EQUAL


def test_all_pairs_are_compared_and_the_baseline_is_always_second(
    tmp_path: Path, campaign_maker: Callable[..., Path]
) -> None:
    folder = campaign_maker(
        tmp_path / "c", workloads=["exclamation"], schedulers=["a", "b", "c"], repetitions=1, duration_s=1.0
    )
    common = {"workload": "exclamation", "counts": True, "suspect": "", "saturated": False}
    runs = [
        common | {"scheduler": s, "repetition": k} | dict.fromkeys(HEADINGS, 1.0 + at + k / 100)
        for at, s in enumerate("abc")
        for k in range(10)
    ]
    pairs = pair_rows(load_campaign(folder), runs, "b")
    assert [(row["scheduler"], row["other"]) for row in pairs[:3]] == [("a", "b"), ("c", "b"), ("c", "a")]
    # Three comparisons per metric: the smallest of equal p values counts three times.
    assert {(row["p_value"], row["adjusted_p"]) for row in pairs} == {(2**-9, 3 * 2**-9)}
    assert power_notes(pairs) == []
    assert power_notes(pairs * 10)[0][1].startswith("with 30 comparisons per metric, differences are distinguishable")


@pytest.mark.parametrize("baseline", [None, "even"])
def test_a_median_of_0_in_the_baseline_has_no_change(campaign: Campaign, baseline: str | None) -> None:
    tables = tables_of(campaign, runs_of(repeated=4, inter_node_tuples_per_s=0.0), baseline)
    of_traffic = [row["change_percent"] for row in tables["ranking"] if row["metric"] == "inter_node_tuples_per_s"]
    assert of_traffic == [None, None]
    assert "tuples between nodes not distinguishable" in " ".join(sentences(tables["pairs"], "exclamation", "even"))


@pytest.mark.parametrize(("repeated", "rank"), [(1, None), (3, 1)])
def test_a_single_scheduler_has_a_rank_from_ten_repetitions_on(
    campaign: Campaign, repeated: int, rank: int | None
) -> None:
    runs = [row for row in runs_of(repeated=repeated) if row["scheduler"] == "even"]
    assert {row["rank"] for row in tables_of(campaign, runs, "even")["ranking"]} == {rank}


def test_without_a_ratio_schedulers_differ_only_if_the_interval_of_the_difference_excludes_zero(
    campaign: Campaign,
) -> None:
    """Six large rises are significant for the mean, and by their ranks not against six small falls."""
    values = {"even": [10.0] * 11 + [1.0], "top-storm": [20.0] * 6 + [9.0] * 5 + [0.0]}
    common = {"workload": "exclamation", "counts": True, "suspect": "", "saturated": False}
    runs = [
        common | {"scheduler": scheduler, "repetition": k} | dict.fromkeys(HEADINGS, value)
        for scheduler, each in values.items()
        for k, value in enumerate(each)
    ]
    for row in pair_rows(campaign, runs, "even"):
        assert (row["ratio"], row["adjusted_p"]) == (None, 2**-5)
        assert row["difference_low"] < 0 < row["difference_high"]
        assert row["outcome"] == EQUAL


def test_without_a_ratio_the_difference_is_given(campaign: Campaign) -> None:
    runs = runs_of(repeated=4)
    for row in runs:
        row["inter_node_tuples_per_s"] = 0.0 if row["scheduler"] == "top-storm" else 500.0 + row["repetition"]
    tables = tables_of(campaign, runs, "even")
    (row,) = (r for r in tables["ranking"] if (r["scheduler"], r["metric"]) == ("top-storm", "inter_node_tuples_per_s"))
    assert (row["change_percent"], row["change_low"], row["change_high"]) == (-100.0, -100.0, -100.0)
    (sentence,) = sentences(tables["pairs"], "exclamation", "even")
    assert sentence.startswith("top-storm sends 508 tuples/s fewer tuples between nodes than even [506, 512]")


def test_changes_are_paired_by_repetition_and_suspect_ones_are_marked(campaign: Campaign) -> None:
    runs = [row | {"suspect": "hot" * (row["repetition"] == 2)} for row in runs_of() if row["repetition"] != 3]
    looks = {"even": look(0), "top-storm": look(1)}
    finding = finding_of(tables_of(campaign, runs, "even"), "exclamation", looks, "even")
    data = change_data(finding, runs, "exclamation", "even")
    assert data is not None
    assert list(data.looks) == ["top-storm"]
    assert data.paired["p95 latency"] == {"top-storm": [-50.0, -50.0, -80.0]}
    assert data.suspect["p95 latency"] == {"top-storm": [False, True, False]}
    assert [(each.n, each.suspect, each.saturated) for each in finding.ranking] == [(3, 1, 0)] * 2
    assert not finding.enough


@pytest.mark.parametrize(
    ("baseline", "looks"), [(None, ("even", "top-storm")), ("even", ("even",)), ("gone", ("even",))]
)
def test_there_is_no_figure_of_changes_without_two_schedulers(
    campaign: Campaign, baseline: str | None, looks: tuple[str, ...]
) -> None:
    runs = [row for row in runs_of() if row["scheduler"] in looks]
    tables = tables_of(campaign, runs, baseline)
    finding = finding_of(tables, "exclamation", {name: look(at) for at, name in enumerate(looks)}, baseline)
    assert change_data(finding, runs, "exclamation", baseline) is None


@pytest.mark.parametrize(
    ("percent", "words"),
    [
        (-73.6, "−74\u202f%"),
        (-0.04, "0\u202f%"),
        (0.0, "0\u202f%"),
        (2.34, "+2.3\u202f%"),
        (9.96, "+10\u202f%"),
        (199.0, "+199\u202f%"),
        (1150.0, "×\u202f12.5"),
    ],
)
def test_changes_in_words(percent: float, words: str) -> None:
    assert change(percent) == words
