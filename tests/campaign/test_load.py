"""Loads: runs that share a calibration, agendas that cannot have one, and searches with scripted trials."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from analysis.records.conditions import TrialRecord
from analysis.records.descriptions import rate_text
from analysis.records.file_types import CampaignRecord, RunRecord
from campaign.agenda.agenda import agenda_of
from campaign.agenda.campaign_plan import CampaignPlan, campaign_plan
from campaign.results.result_store import ResultStore
from campaign.runner import rate_search
from campaign.runner.loads import SustainableRates
from campaign.runner.rate_search import Trials
from controller.host.ownership import PARTIAL
from inventory.documents import parse_document
from inventory.errors import InputError, RunError
from inventory.reading import read_cluster

AGENDA = """\
name: a
workloads:
  - {name: wordcount, rate: {kind: constant, load: 0.5}}
  - {name: exclamation, rate: {kind: constant, tuples_per_s: 5}}
schedulers: [top-storm, even]
baseline: even
"""


def planned(extra: str = "", agenda: str = AGENDA) -> CampaignPlan:
    return campaign_plan(agenda_of(parse_document(agenda + extra, "a.yaml")), read_cluster("loopback"))


def test_runs_share_a_calibration_unless_cluster_workload_or_baseline_differ() -> None:
    plan = planned(
        "factors: {slots: [3, 4], workloads.wordcount.rate.load: [0.5, 0.8], "
        "workloads.exclamation.rate.tuples_per_s: [5, 6], schedulers.top-storm.params.alpha: [0.2, 0.8]}\n"
        "repetitions: 2\n"
    )
    assert {workload for _, workload in plan.calibrations} == {"wordcount"}
    assert {each.name for each in plan.calibrations.values()} == {"wordcount-even-3", "wordcount-even-4"}
    for run in plan.runs:
        calibration = plan.calibration_of(run)
        assert (calibration is not None) == (run.workload == "wordcount")
        if calibration is not None:
            found = calibration.run
            assert (found.workload, found.scheduler) == ("wordcount", "even")
            assert found.factors["slots"] == run.factors["slots"]
    assert {plan.at(run).applications["wordcount"].rate.load for run in plan.runs} == {0.5, 0.8}  # type: ignore[union-attr]


def test_the_factor_load_varies_the_load_of_every_workload() -> None:
    agenda = AGENDA.replace("tuples_per_s: 5", "load: 1")
    plan = planned("factors: {load: [0.25, 0.75]}\n", agenda)
    for run in plan.runs:
        rates = [application.rate for application in plan.at(run).applications.values()]
        assert [rate.load for rate in rates] == [run.factors["load"]] * 2  # type: ignore[union-attr]
    assert {each.name for each in plan.calibrations.values()} == {"wordcount-even", "exclamation-even"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("load: 0.5", "load: 0.5, tuples_per_s: 3", "a.yaml:3: .*give either 'tuples_per_s' or 'load'"),
        ("kind: constant, load: 0.5", "kind: constant", "a.yaml:3: .*the key 'tuples_per_s' is missing, or 'load'"),
        ("load: 0.5", "load: 0", "a.yaml:3: .*rate.load: got 0"),
        ("load: 0.5", "laod: 0.5", "a.yaml:3: .*'laod'; did you mean 'load'"),
        ("baseline: even", "factors: {load: [0.5]}", r"a.yaml:4: workloads\[1\].rate: .*give either"),
        ("baseline: even", "factors: {loads: [0.5]}", "unknown factor 'loads'; did you mean 'load'"),
        (
            "baseline: even",
            "baseline: even\nexcept: [{workload: wordcount, scheduler: even}]",
            "a.yaml:3: .*sustains under the baseline 'even', which has no run with it",
        ),
        ("baseline: even", "timeline: [{at_s: 1, do: rate, tuples_per_s: 5, workload: wordcount}]", "is a load, which"),
        ("baseline: even", "search: {kind: sustainable}", "a search needs the 'tuples_per_s' at which it begins"),
    ],
)
def test_loads_that_have_no_meaning_are_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        planned(agenda=AGENDA.replace(old, new, 1))


class Scripted:
    """Trials without nodes: a rate holds up to a capacity."""

    def __init__(self, store: ResultStore, capacity: float, most: int = 1000) -> None:
        self.rates: list[float] = []
        self.lines: list[str] = []
        self._store, self._capacity, self._most = store, capacity, most

    def trials(self, _run: Any = None) -> Trials:
        """Return the environment of a search."""
        return Trials(self._execute, self._new_folder, self.lines.append, lambda: len(self.rates) >= self._most, 9.0)

    async def _execute(self, rate: float, partial: Path) -> RunRecord:
        self.rates.append(rate)
        (partial / "traces").mkdir()
        return RunRecord(status="ok", workload="wordcount", scheduler="even", repetition=1)

    def _new_folder(self, store: ResultStore, name: str) -> Path:
        partial = store.runs / f"{name}{PARTIAL}"
        partial.mkdir(parents=True)
        return partial

    def verdict(self, _traces: Path, _record: RunRecord, rate: float, *_rest: Any) -> TrialRecord:
        """Judge a trial."""
        return TrialRecord(tuples_per_s=rate, holds=rate <= self._capacity)


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore.create(tmp_path / "c", CampaignRecord(agenda={}))


def calibrated(
    plan: CampaignPlan, script: Scripted, store: ResultStore, monkeypatch: pytest.MonkeyPatch
) -> SustainableRates | None:
    """Calibrate the loads of all runs; return None if it was interrupted."""
    monkeypatch.setattr(rate_search, "verdict_of", script.verdict)
    loads = SustainableRates(plan, store)
    return loads if asyncio.run(loads.calibrate(plan.runs, script.trials, script.lines.append)) else None


def test_a_calibration_is_done_once_continues_after_an_interrupt_and_is_kept(
    store: ResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned()
    first = Scripted(store, 130.0, most=3)
    assert calibrated(plan, first, store, monkeypatch) is None
    rest = Scripted(store, 130.0)
    loads = calibrated(plan, rest, store, monkeypatch)
    assert loads is not None
    assert first.rates + rest.rates == [rate for rate in dict.fromkeys(first.rates + rest.rates) for _ in range(2)]
    run, other = (next(each for each in plan.runs if each.workload == name) for name in ("wordcount", "exclamation"))
    assert loads.of(other) is None
    found = loads.of(run)
    assert found is not None
    assert 130 / 1.05 < found.sustainable_tuples_per_s <= 130
    assert found.tuples_per_s == pytest.approx(found.sustainable_tuples_per_s / 2, rel=1e-5)
    assert rest.lines[-1] == f"load 1 of wordcount-even: {found.sustainable_tuples_per_s:,.6g} tuples/s"
    assert (store.folder / found.calibration / "run.json").is_file()
    assert [*store.runs.iterdir()] == []
    again = Scripted(store, 1.0)
    kept = calibrated(plan, again, store, monkeypatch)
    assert kept is not None
    assert (kept.of(run), again.rates) == (found, [])
    assert "a load of 0.5 (1 is 1" in rate_text({"kind": "constant", "load": 0.5}, found)


@pytest.mark.parametrize(("capacity", "reason"), [(1e9, "there is no upper end"), (0.0, "there is no lower end")])
def test_after_a_calibration_that_finds_no_rate_no_run_starts(
    capacity: float, reason: str, store: ResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Scripted(store, capacity)
    with pytest.raises(RunError, match=f"wordcount-even cannot be calibrated, so that no run was started: .*{reason}"):
        calibrated(planned(), script, store, monkeypatch)
    kept = ResultStore(store.folder, "loads").outcome("wordcount-even")
    assert kept is not None
    assert kept.search is not None
    assert (kept.status, kept.search.tuples_per_s, len(kept.search.trials)) == ("failed", None, len(script.rates))


def test_a_search_repeats_missing_trials_and_those_at_rates_that_no_longer_follow(
    store: ResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned()
    calibrated(plan, Scripted(store, 130.0, most=5), store, monkeypatch)
    kept = store.folder / "searches" / "wordcount-even"
    names: Sequence[str] = sorted(path.name for path in kept.iterdir())
    assert names == ["001", "002", "003", "004", "005"]
    (kept / "002" / "run.json").unlink()
    slower = Scripted(store, 40.0)
    assert calibrated(plan, slower, store, monkeypatch) is not None
    # The first trial at 50 tuples/s held, the second and third do not: the trials at 100 are not used.
    assert slower.rates[:3] == [50.0, 50.0, 25.0]
