"""Start of the steady state: known transients are found, and a trend has none."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from analysis.records.campaign import Campaign, load_campaign
from analysis.statistics.transient import (
    BATCH,
    FEWEST_BATCHES,
    LiveTransient,
    steady_from_s,
    steady_workloads,
    transient,
    transient_notes,
)

FEWEST = BATCH * FEWEST_BATCHES


def cuts(length: int, count: int = 70) -> list[int | None]:
    """Return the transients found in runs that begin ten times too high, with noise of a tenth."""
    transients = []
    for seed in range(200):
        random = np.random.default_rng(seed)
        transients.append(transient([*random.normal(1000, 10, length), *random.normal(100, 10, count - length)]))
    return transients


@pytest.mark.parametrize("length", [5, 12, 20])
def test_a_start_that_differs_from_noise_is_left_out(length: int) -> None:
    found = [cut for cut in cuts(length) if cut is not None]
    assert len(found) > 150
    # Whole batches are left out; batches after the start are left out by chance.
    assert min(found) >= length
    assert np.median(found) == -(-length // BATCH) * BATCH


def test_noise_alone_has_no_transient() -> None:
    assert cuts(0).count(0) > 150
    random = np.random.default_rng(1)
    assert all(transient(random.normal(1000, 10, 70)) == 0 for _ in range(200))


def test_equal_values_are_steady_from_the_first_on() -> None:
    assert transient([5.0] * FEWEST) == 0


def test_a_trend_that_does_not_end_has_no_steady_state() -> None:
    assert transient([float(at) for at in range(100)]) is None


def test_too_few_values_have_no_steady_state() -> None:
    assert transient([1.0] * (FEWEST - 1)) is None


def test_the_transient_of_a_worked_example() -> None:
    # Batches of 1 and 13 times 3: without the first batch the error is 0.
    assert transient([1.0] * 5 + [3.0] * 65) == 5


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory, campaign_maker: Callable[..., Path]) -> Campaign:
    folder = tmp_path_factory.mktemp("transient") / "c"
    return load_campaign(campaign_maker(folder, workloads=["exclamation"], repetitions=1, duration_s=1.0))


def rows(column: str, start: float, steps: int = 70, slow: int = 0) -> list[dict[str, Any]]:
    """Return steps from 10 s before the measured interval on, in reverse order; the first `slow` ones have value 1."""
    return [{"second": at - 10, "step_s": 1, column: 1.0 if at < slow else start} for at in reversed(range(steps))]


def end_of(campaign: Campaign, slow: int, late: int, steps: int = 70) -> float | None:
    run = campaign.counted[0]
    throughput, latency = rows("sink_tuples_per_s", 900.0, steps, slow), rows("latency_ms", 20.0, steps, late)
    return steady_from_s(run, steady_workloads(campaign), throughput, latency)


def test_a_run_is_steady_when_both_throughput_and_latency_are(campaign: Campaign) -> None:
    assert end_of(campaign, slow=0, late=0) == -10
    assert end_of(campaign, slow=5, late=0) == -5
    assert end_of(campaign, slow=5, late=20) == 10
    assert end_of(campaign, slow=40, late=0) is None
    assert end_of(campaign, slow=0, late=0, steps=30) is None


def test_runs_with_planned_changes_have_no_end_of_the_transient(campaign: Campaign) -> None:
    (entry,) = campaign.agenda.workloads
    stepped = {**entry, "rate": {"kind": "steps", "steps": [[0, 100], [30, 200]]}}
    assert (
        end_of(replace(campaign, agenda=structs.replace(campaign.agenda, workloads=[stepped])), slow=0, late=0) is None
    )
    scripted = [{"at_s": 5, "do": "kill", "worker": "n1/0"}]
    assert end_of(replace(campaign, agenda=structs.replace(campaign.agenda, timeline=scripted)), slow=0, late=0) is None


def test_the_note_says_how_much_longer_the_warm_up_should_be() -> None:
    (late,) = transient_notes([{"steady_from_s": second} for second in (-5.0, 4.0, 12.0, None)])
    assert late[0] == "Warm-up"
    assert late[1] == (
        "throughput and latency are steady by the rule MSER-5 12 s after the start of the measured interval at the "
        "latest, and in 2 of 3 runs after it: a warm-up of 12 s more would leave the transient out."
    )
    ((_, early),) = transient_notes([{"steady_from_s": second} for second in (-5.0, -10.0)])
    assert early.endswith("5 s before the measured interval at the latest, in all of 2 runs.")
    assert transient_notes([{"steady_from_s": None}]) == []


def live_end(values: list[tuple[float | None, float | None]]) -> tuple[int, float | None]:
    """Return after how many seconds the transient of a run under way is found to have ended, and its end."""
    live = LiveTransient()
    for second, both in enumerate(values, 1):
        live.add(second, *both)
        if live.end_s is not None:
            return second, live.end_s
    return len(values), None


def test_a_steady_run_under_way_has_no_transient_after_ten_values() -> None:
    assert live_end([(None, None), *[(100.0, 5.0)] * 20]) == (11, 0.0)


def test_the_transient_under_way_is_as_long_as_that_of_the_slower_column() -> None:
    random = np.random.default_rng(1)
    throughput = [*[20.0] * 4, *random.normal(100, 1, 56)]
    latency = [*np.linspace(80, 10, 12), *random.normal(5, 0.05, 48)]
    found, end_s = live_end([*zip(throughput, latency, strict=True)])
    assert end_s == pytest.approx(12, abs=1)
    # The rule leaves out no more than half of the values.
    assert 22 <= found <= 30


def test_without_latencies_the_throughput_decides() -> None:
    assert live_end([(100.0, None)] * 20) == (10, 0.0)


def test_a_trend_under_way_has_no_end() -> None:
    assert live_end([(100.0, float(second)) for second in range(1, 60)])[1] is None
