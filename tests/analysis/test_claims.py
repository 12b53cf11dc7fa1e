"""Verdicts on claims of papers: boundaries of the rule, and evidence from campaigns."""

import json
from collections.abc import Callable
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_campaign import write_campaign

from analysis.claims.used import node_spread, used_by
from analysis.claims.verdicts import (
    CONFIRMED,
    DIRECTION,
    NOT_TESTABLE,
    NOT_VISIBLE,
    PENDING,
    REFUTED,
    Claim,
    ClaimConditions,
    Evidence,
    evidence,
    exact_verdict,
    verdict,
)
from analysis.records.campaign import load_campaign
from analysis.statistics.intervals import ConfidenceInterval

NODES = ["n1", "n2", "n3", "n4", "n5"]


def claim(ratio: float | None = 1.4, **keys: Any) -> Claim:
    fields = {"metric": "latency_p95", "ours": "top-storm", "rival": "even", "workload": "wordcount"} | keys
    return Claim(id="X", says="", source="", experiment="x", ratio=ratio, **fields)


def evidence_of(low: float, high: float, **keys: Any) -> Evidence:
    interval = ConfidenceInterval(10, (low + high) / 2, low, high)
    fields: dict[str, Any] = {"nodes": (2.0, 2.0), "load": 1.0, "suspect": 0} | keys
    return Evidence("somewhere", 10, interval, interval.estimate, **fields)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.01, 1.4, CONFIRMED),
        (1.01, 3.0, CONFIRMED),
        (1.5, 1.6, CONFIRMED),
        (1.01, 1.39, DIRECTION),
        (1.01, 1.2, DIRECTION),
        (1.01, 1.19, REFUTED),
        (0.5, 1.19, REFUTED),
        (1.0, 1.4, NOT_VISIBLE),
        (0.5, 1.2, NOT_VISIBLE),
    ],
)
def test_a_claimed_ratio_of_1_4_is_judged_by_both_ends_of_the_interval(low: float, high: float, expected: str) -> None:
    assert verdict(claim(), evidence_of(low, high))[0] == expected


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.9, 1.1, CONFIRMED),
        (0.99, 1.01, CONFIRMED),
        (1.11, 1.2, REFUTED),
        (0.5, 0.89, REFUTED),
        (0.89, 1.0, NOT_VISIBLE),
        (1.05, 1.2, NOT_VISIBLE),
    ],
)
def test_a_claim_of_equality_needs_an_interval_within_a_tenth(low: float, high: float, expected: str) -> None:
    assert verdict(claim(1.0), evidence_of(low, high))[0] == expected


bounds = st.floats(0.1, 5.0)


@given(ratio=st.floats(1.0, 4.0), a=bounds, b=bounds, load=st.none() | st.floats(0.0, 2.0))
def test_only_met_conditions_allow_a_refutation_and_every_interval_has_one_verdict(
    ratio: float, a: float, b: float, load: float | None
) -> None:
    low, high = sorted((a, b))
    unconditional, _ = verdict(claim(ratio), evidence_of(low, high, load=load))
    conditional, reason = verdict(claim(ratio, conditions=ClaimConditions(load=0.8)), evidence_of(low, high, load=load))
    if unconditional != REFUTED:
        assert conditional == unconditional
    elif load is not None and load >= 0.8:
        assert conditional == REFUTED
    else:
        assert (conditional, "load" in reason) == (NOT_VISIBLE, True)
    if unconditional in (CONFIRMED, DIRECTION) and ratio > 1:
        assert low > 1
    # An interval around 1 does not decide, as long as it includes half of the claimed improvement.
    if ratio > 1 and low <= 1 <= high and high >= 1 + (ratio - 1) / 2:
        assert unconditional == NOT_VISIBLE


def test_with_the_condition_of_equal_nodes_different_numbers_of_nodes_do_not_refute() -> None:
    equal = claim(conditions=ClaimConditions(equal_nodes=True))
    assert verdict(equal, evidence_of(0.5, 0.9))[0] == REFUTED
    assert verdict(equal, evidence_of(0.5, 0.9, nodes=(1.0, 5.0)))[0] == NOT_VISIBLE


def test_a_claim_without_results_is_pending_and_one_without_a_test_is_not_testable() -> None:
    assert verdict(claim(), None)[0] == PENDING
    assert verdict(claim(untestable="no such thing here"), None) == (NOT_TESTABLE, "no such thing here")


def test_a_placement_has_the_claimed_value_or_not() -> None:
    assert exact_verdict(claim(None, exactly=2), 2.0)[0] == CONFIRMED
    assert exact_verdict(claim(None, exactly=2), 3.0)[0] == REFUTED
    assert exact_verdict(claim(None, exactly=2), None)[0] == NOT_VISIBLE


def test_a_campaign_shows_how_many_times_better_one_scheduler_is(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / "one", {"even": 1.0, "top-storm": 0.5}, repetitions=10)
    found = evidence(claim(2.0), load_campaign(folder))
    assert found is not None
    assert found.interval is not None
    assert (found.n, found.suspect) == (10, 0)
    assert found.interval.low < 2.0 < found.interval.high
    assert found.interval.estimate == pytest.approx(2.0, rel=0.03)
    assert verdict(claim(2.0), found)[0] == CONFIRMED
    assert verdict(claim(3.5), found)[0] == REFUTED
    assert evidence(claim(workload="exclamation"), load_campaign(folder)) is None
    assert evidence(claim(factors={"slots": 4}), load_campaign(folder)) is None


def test_repetitions_with_suspect_runs_are_left_out_and_counted(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / "one", {"even": 1.0, "top-storm": 0.5}, repetitions=11)
    for path in (folder / "runs" / f"00{n}-wordcount-even" / "run.json" for n in (1, 2)):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"suspect": ["host busy"]}))
    found = evidence(claim(2.0), load_campaign(folder))
    assert found is not None
    assert (found.n, found.suspect, found.interval) == (9, 2, None)
    assert verdict(claim(2.0), found) == (NOT_VISIBLE, "9 repetitions (2 more had suspect runs), and 10 are needed")
    for path in folder.glob("runs/*-wordcount-even/run.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"suspect": ["host busy"]}))
    found = evidence(claim(2.0), load_campaign(folder))
    assert found is not None
    assert (found.n, found.suspect, found.ratio) == (0, 11, None)
    assert (found.with_suspect.n, found.with_suspect.ratio) == (11, pytest.approx(2.0, rel=0.05))


def test_runs_whose_timeline_failed_are_left_out_of_both_comparisons_and_counted(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / "one", {"even": 1.0, "top-storm": 0.5}, repetitions=12)
    failed = {"do": "scale", "subject": "count", "asked_s": 5.0, "outcome": "failed", "reason": "not ready"}
    marked = {"timeline": [failed], "suspect": ["timeline: scale count at 5 s did not happen: not ready"]}
    for path in (folder / "runs" / f"00{n}-wordcount-even" / "run.json" for n in (1, 2)):
        path.write_text(json.dumps(json.loads(path.read_text()) | marked))
    found = evidence(claim(2.0), load_campaign(folder))
    assert found is not None
    assert (found.n, found.suspect, found.with_suspect.n, found.doubt) == (10, 2, 10, marked["suspect"][0])
    for path in folder.glob("runs/*-wordcount-even/run.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | marked))
    nothing = evidence(claim(2.0), load_campaign(folder))
    assert verdict(claim(2.0), nothing) == (NOT_VISIBLE, "0 repetitions (12 more had suspect runs), and 10 are needed")


def test_other_schedulers_of_the_campaign_are_compared_with_the_rival_in_the_same_way(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / "one", {"even": 1.0, "top-storm": 0.5, "random": 0.5}, repetitions=10)
    found = evidence(claim(2.0), load_campaign(folder))
    assert found is not None
    assert list(found.others) == ["random"]
    assert found.others["random"].n == 10
    assert found.others["random"].ratio == pytest.approx(2.0, rel=0.05)


def test_the_resources_of_both_schedulers_are_read_from_their_traces(
    tmp_path: Path, campaign_maker: Callable[..., Path]
) -> None:
    """Workers of the synthetic runs use 0.1 cores each; `even` has one on each of five nodes, and links of 2 Mbit/s."""
    folder = campaign_maker(tmp_path / "c", workloads=["wordcount"], repetitions=1, duration_s=4.0)
    for path in folder.glob("runs/*-even-*/run.json"):
        record = json.loads(path.read_text())
        links = [
            {"node": a, "to": b, "what": "link", "asked": 2.0, "got": 2.0, "unit": "Mbit/s"}
            for a in NODES
            for b in NODES
            if a != b
        ]
        path.write_text(json.dumps(record | {"calibration": links}))
    found = evidence(claim(2.0), load_campaign(folder))
    assert found is not None
    ours, rival = found.used
    assert (ours.workers, rival.workers) == (5, 5)
    assert rival.cores == pytest.approx(0.5, abs=0.05)
    assert ours.link is None
    for path in folder.glob("runs/*/run.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"suspect": ["host busy"]}))
    doubtful = evidence(claim(2.0), load_campaign(folder))
    assert doubtful is not None
    assert (doubtful.n, doubtful.used) == (0, found.used)
    # 9,000 words/s in rows of about 11 bytes; each of five nodes sends four fifths of its words to the four others.
    assert rival.link == pytest.approx(2 * 9000 / 5 / 5 * 11 * 8 / 2e6, rel=0.35)


def test_the_spread_over_nodes_is_that_of_the_tuples_that_their_bolts_processed(
    tmp_path: Path, campaign_maker: Callable[..., Path]
) -> None:
    folder = campaign_maker(tmp_path / "c", workloads=["wordcount"], repetitions=1, duration_s=4.0)
    runs = {run.scheduler: run for run in load_campaign(folder).runs}
    spread = {}
    for scheduler, run in runs.items():
        table = pq.read_table(run.folder / "traces" / "throughput.parquet").to_pylist()
        marks = pq.read_table(run.folder / "traces" / "event.parquet").to_pylist()
        times = {(row["node"], row["worker"], row["kind"]): row["t_ns"] for row in marks}
        of_node = dict.fromkeys({node for node, _ in run.slots}, 0)
        for row in table:
            begin, end = (times[row["node"], row["worker"], kind] for kind in ("measure_start", "measure_end"))
            if row["role"] != "spout" and begin < row["t_ns"] <= end:
                of_node[row["node"]] += row["processed"]
        spread[scheduler] = pstdev(of_node.values()) / mean(of_node.values())
        assert node_spread(run) == pytest.approx(spread[scheduler])
    assert len(set(spread.values())) == 2
    found = evidence(claim(metric="node_spread"), load_campaign(folder))
    assert found is not None
    assert found.ratio == pytest.approx(spread["even"] / spread["top-storm"])


def test_the_resources_of_a_run_without_traces_are_unknown(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / "one", {"even": 1.0, "top-storm": 0.5}, repetitions=1)
    used = used_by(load_campaign(folder).runs[0])
    assert (used.cores, used.link) == (None, None)
    assert node_spread(load_campaign(folder).runs[0]) is None
