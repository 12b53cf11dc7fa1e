"""Agreement of engines: tau-b, its interval, regret, discordant pairs and effects, against known answers."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from analysis.page.build import build
from analysis.page.engine_view import AGREEMENT_COLUMNS, agreement_rows, engine_cells
from analysis.page.factor_view import families_of
from analysis.records.campaign import load_campaign
from analysis.statistics import agreement as module
from analysis.statistics.agreement import Discordant, Signs, agreement, pair_signs, tau_b, tau_interval
from analysis.statistics.metrics import Rows
from analysis.tables.summary import SPARK_COLUMNS, run_rows


def spread_around(means: Mapping[str, float], n: int = 10) -> dict[str, dict[int, float]]:
    """Return values with little variation between repetitions compared with the means of schedulers."""
    return {name: {k: mean * (1 + 0.001 * k) for k in range(n)} for name, mean in means.items()}


def signs_of_ranks(ranks: Sequence[int]) -> Signs:
    return np.array([(a > b) - (a < b) for a, b in combinations(ranks, 2)], dtype=np.int8)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=7))
@example([(0, 1), (1, 1)])
def test_tau_is_that_of_scipy_where_equality_is_transitive(pairs: list[tuple[int, int]]) -> None:
    first, second = zip(*pairs, strict=True)
    expected = kendalltau(first, second).statistic
    assert float(tau_b(signs_of_ranks(first), signs_of_ranks(second))) == pytest.approx(expected, nan_ok=True)


@given(st.lists(st.floats(1, 1000), min_size=2, max_size=6, unique_by=lambda mean: round(mean)), st.booleans())
def test_tau_is_1_for_identical_and_minus_1_for_reversed_rankings(means: list[float], is_higher_better: bool) -> None:
    named = {f"s{at}": 10.0 * round(mean) for at, mean in enumerate(means)}
    values = spread_around(named)
    reverse = spread_around({name: 1e6 / mean for name, mean in named.items()})
    for other, tau in ((values, 1.0), (reverse, -1.0)):
        result = agreement(values, other, is_higher_better)
        assert result
        assert result.tau
        assert (result.tau.estimate, result.tau.low, result.tau.high) == (tau, tau, tau)
        assert len(result.discordant) == (0 if tau > 0 else len(means) * (len(means) - 1) // 2)


def test_pairs_in_the_opposite_order_are_named_with_the_better_one_first() -> None:
    engine = spread_around({"even": 100, "optimal": 200, "default": 300})
    other = spread_around({"even": 10, "optimal": 30, "default": 20})
    throughput, latency = (agreement(engine, other, is_higher_better) for is_higher_better in (True, False))
    assert throughput
    assert latency
    assert throughput.discordant == [Discordant("default", "optimal")]
    assert latency.discordant == [Discordant("optimal", "default")]
    assert throughput.tau
    assert throughput.tau.estimate == pytest.approx(1 / 3)


def test_schedulers_within_the_noise_are_tied() -> None:
    noise = np.random.default_rng(3).normal(0, 5, (2, 12))
    engine = {"even": dict(enumerate(100 + noise[0])), "default": dict(enumerate(100 + noise[1]))}
    engine |= spread_around({"optimal": 200}, 12)
    other = spread_around({"even": 100, "default": 110, "optimal": 200}, 12)
    result = agreement(engine, other, True)
    assert result
    assert (result.engine.ties, result.other.ties) == (1, 0)
    # Of three pairs two agree and one is tied on one side: 2 / sqrt(2 * 3).
    assert result.tau
    assert result.tau.estimate == pytest.approx(2 / 6**0.5)
    assert not result.discordant


def test_an_engine_without_any_difference_has_no_coefficient() -> None:
    same = spread_around({"even": 100, "default": 100})
    result = agreement(same, spread_around({"even": 100, "default": 200}), True)
    assert result
    assert (result.tau, result.engine.ties) == (None, 1)


def test_the_regret_of_the_other_engines_winner_and_the_effect_of_placement() -> None:
    engine = spread_around({"even": 100, "optimal": 200, "default": 400})
    other = spread_around({"even": 10, "optimal": 30, "default": 20})
    result = agreement(engine, other, True)
    assert result
    assert result.engine.order == ["default", "optimal", "even"]
    assert result.engine.effect
    assert result.engine.regret
    assert result.engine.effect.estimate == pytest.approx(4)
    assert result.engine.regret.estimate == pytest.approx(2)
    assert result.other.regret
    assert result.other.regret.estimate == pytest.approx(1.5)
    lower = agreement(engine, other, False)
    assert lower
    assert lower.engine.order == ["even", "optimal", "default"]
    assert lower.engine.regret
    assert (lower.engine.regret.estimate, lower.engine.regret.low, lower.engine.regret.high) == (1, 1, 1)


def test_below_ten_repetitions_nothing_is_concluded() -> None:
    engine, other = spread_around({"even": 100, "default": 200}, 9), spread_around({"even": 10, "default": 30}, 12)
    result = agreement(engine, other, True)
    assert result
    assert (result.tau, result.engine.ties, result.discordant, result.engine.n, result.other.n) == (
        None,
        None,
        (),
        9,
        12,
    )
    assert result.engine.effect
    assert (result.engine.effect.estimate, result.engine.effect.low) == (pytest.approx(2), None)


def test_only_schedulers_and_repetitions_in_common_are_compared() -> None:
    engine = spread_around({"even": 100, "default": 200, "matrix": 1})
    del engine["even"][0]
    result = agreement(engine, spread_around({"even": 10, "default": 30, "optimal": 5}), True)
    assert result
    assert (result.schedulers, result.engine.n, result.other.n) == (["even", "default"], 9, 10)
    assert agreement(engine, spread_around({"optimal": 5}), True) is None


def test_the_interval_covers_the_true_coefficient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESAMPLES", 200)
    generator = np.random.default_rng(18)
    # Differences from none to several standard errors; the order of the last two is reversed on the other engine.
    means = np.array([[100, 100, 104, 110, 116], [100, 100, 104, 116, 110]], dtype=float)
    true_tau = float(tau_b(*(signs_of_ranks(side.tolist()) for side in means)))
    campaigns, n, covered = 100, 10, 0
    for at in range(campaigns):
        sides = [generator.normal(side[:, None], 3.0, (5, n)) for side in means]
        interval = tau_interval(sides[0], sides[1], at)
        assert interval
        covered += interval.low - 1e-9 <= true_tau <= interval.high + 1e-9
    assert covered >= 0.9 * campaigns


def test_signs_of_many_resamples_equal_those_of_single_ones() -> None:
    values = np.random.default_rng(5).normal([[[0]], [[1]], [[1.5]]], 1, (3, 20, 12))
    together = pair_signs(values)
    for at in range(values.shape[1]):
        assert (pair_signs(values[:, at : at + 1])[0] == together[at]).all()
    assert 0 < np.abs(together).mean() < 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, campaign_maker: Callable[..., Path]) -> Path:
    """One repetition on each of two engines."""
    campaign = campaign_maker(
        tmp_path_factory.mktemp("engines") / "c", workloads=["exclamation"], repetitions=2, duration_s=1.0
    )
    document = json.loads((campaign / "campaign.json").read_text())
    document["agenda"] |= {"factors": {"engine": ["agents", "flink"]}, "repetitions": 1}
    (campaign / "campaign.json").write_text(json.dumps(document))
    for path in campaign.glob("runs/*/run.json"):
        run = json.loads(path.read_text())
        run |= {"factors": {"engine": ["agents", "flink"][run["repetition"] - 1]}, "repetition": 1}
        path.write_text(json.dumps(run))
    return campaign


def test_the_report_compares_engines_that_are_a_factor(folder: Path, tmp_path: Path) -> None:
    campaign = load_campaign(folder)
    families = families_of(campaign)
    assert list(engine_cells(families).items()) == [
        ("exclamation", {"agents": "exclamation (engine=agents)", "flink": "exclamation (engine=flink)"})
    ]
    faster = {("even", "agents"): 100.0, ("top-storm", "agents"): 200.0, ("even", "flink"): 90.0}
    tables: dict[str, Rows] = {name: [] for name in SPARK_COLUMNS}
    for run in campaign.counted:
        assert run.file
        rate = faster.get((run.scheduler, run.file.factors["engine"]), 30.0)
        rest = dict.fromkeys(("emitted_tuples_per_s", "due_tuples_per_s", "worst_late_ms"))
        row = {"component": "s", "role": "sink", "executors": 1, "processed_tuples_per_s": rate}
        tables["components"].append({"run": run.id} | row | rest)
    rows = agreement_rows(campaign, families, run_rows(campaign, tables))
    (throughput,) = [row for row in rows if row["metric"] == "sink_tuples_per_s"]
    assert set(throughput) == set(AGREEMENT_COLUMNS)
    known = ("engine", "other", "n", "other_n", "best", "other_best", "tau")
    assert [throughput[name] for name in known] == ["agents", "flink", 1, 1, "top-storm", "even", None]
    assert throughput["regret_percent"] == pytest.approx(50)
    assert throughput["other_regret_percent"] == pytest.approx(100 * 2 / 3)
    (tmp_path / "report").mkdir()
    page = build(campaign, tables, tmp_path / "report", "even", print).read_text()
    (table,) = re.findall(r'aria-label="Agreement of engines".*?</table>', page, re.DOTALL)
    assert "66.7 %" in table
