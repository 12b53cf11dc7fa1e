"""The search for the sustainable rate: its rates, its bounds, and agendas that cannot be searched."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.records.conditions import TrialRecord
from campaign.agenda.agenda import agenda_of
from campaign.agenda.campaign_plan import campaign_plan
from campaign.agenda.search import MOST_DOUBLINGS, SearchEntry, SearchProgress, progress_of
from campaign.commands.main import run
from inventory.documents import parse_document
from inventory.errors import InputError
from inventory.reading import read_cluster


def searched(entry: SearchEntry, first: float, sustains: Any) -> tuple[list[TrialRecord], SearchProgress]:
    """Return the trials of a whole search, and its end; `sustains` decides about a trial by rate and number."""
    trials: list[TrialRecord] = []
    while (progress := progress_of(entry, first, trials)).next_rate is not None:
        rate = progress.next_rate
        trials.append(TrialRecord(tuples_per_s=rate, holds=sustains(rate, len(trials))))
        assert len(trials) <= entry.most_trials
    return trials, progress


ENTRIES = st.builds(
    SearchEntry,
    kind=st.just("sustainable"),
    checks=st.integers(1, 7),
    tolerance_percent=st.floats(0.5, 100),
)


@given(ENTRIES, st.floats(0.01, 1e5), st.floats(-MOST_DOUBLINGS + 0.01, MOST_DOUBLINGS - 0.01))
def test_a_search_ends_around_the_capacity_within_its_tolerance(
    entry: SearchEntry, first: float, octaves: float
) -> None:
    capacity = first * 2**octaves
    _, found = searched(entry, first, lambda rate, _: rate <= capacity)
    assert found.message == ""
    assert found.holds is not None
    assert found.fails is not None
    assert found.holds <= capacity < found.fails
    assert found.fails / found.holds <= (1 + entry.tolerance_percent / 100) * 1.0001
    assert found.brackets[-1] == (found.holds, found.fails)


@given(ENTRIES, st.floats(0.01, 1e5), st.randoms(use_true_random=False))
def test_a_search_ends_with_any_outcomes_of_trials_and_continues_from_any_of_them(
    entry: SearchEntry, first: float, random: Any
) -> None:
    trials, found = searched(entry, first, lambda *_: random.random() < 0.5)
    assert (found.holds is None or found.fails is None) == bool(found.message)
    if not found.message:
        assert found.holds is not None
        assert found.fails is not None
        assert found.holds < found.fails
    by_rate: dict[float, list[bool]] = {}
    for trial in trials:
        by_rate.setdefault(trial.tuples_per_s, []).append(trial.holds)
    for rate, held in by_rate.items():
        assert (2 * sum(held) > entry.checks) != (2 * (len(held) - sum(held)) >= entry.checks), (rate, held)
    for count in range(len(trials)):
        assert progress_of(entry, first, trials[:count]).next_rate == trials[count].tuples_per_s


@pytest.mark.parametrize(("holds", "what"), [(True, "there is no upper end"), (False, "there is no lower end")])
def test_a_search_without_a_bracket_ends_with_the_reason(holds: bool, what: str) -> None:
    entry = SearchEntry(kind="sustainable", checks=2)
    trials, found = searched(entry, 100.0, lambda *_: holds)
    assert what in found.message
    assert f"{100 * 2 ** (MOST_DOUBLINGS if holds else -MOST_DOUBLINGS):,.6g} tuples/s" in found.message
    assert len({trial.tuples_per_s for trial in trials}) == MOST_DOUBLINGS + 1
    assert math.isclose(trials[1 if not holds else 2].tuples_per_s, 50 if not holds else 200)


AGENDA = """\
name: a
duration_s: 9
workloads:
  - {name: wordcount, rate: {kind: constant, tuples_per_s: 100}}
schedulers: [even]
search: {kind: sustainable, slo: {p99_ms: 100}}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kind: sustainable,", "kind: sustainible,", "a.yaml:6: search.kind: .*did you mean 'sustainable'"),
        ("p99_ms: 100", "p99: 100", "a.yaml:6: search.slo.p99: .*did you mean 'p99_ms'"),
        ("p99_ms: 100", "p99_ms: 0", "a.yaml:6: search.slo.p99_ms: got 0"),
        ("p99_ms: 100", "late_s: -1", "a.yaml:6: search.slo.late_s: got -1"),
        ("p99_ms: 100}", "}, checks: 0", "a.yaml:6: search.checks: got 0"),
        ("p99_ms: 100}", "}, tolerance_percent: 0", "a.yaml:6: search.tolerance_percent: got 0"),
        ("kind: sustainable, slo", "slo", "a.yaml:6: search: .*kind"),
        ("duration_s: 9", "duration_s: 2", "a.yaml:6: search: needs a duration_s of 3 or more, got 2"),
        ("kind: constant, tuples_per_s: 100", "kind: max", "a.yaml:4: .*rate: got the kind 'max'; a search needs"),
        ("tuples_per_s: 100", "tuples_per_s: 6e8", "a.yaml:4: .*rate: 6e.08 tuples/s cannot be doubled"),
        ("search:", "timeline: [{at_s: 1, do: rate, tuples_per_s: 5}]\nsearch:", "a.yaml:4: .*got the kind 'steps'"),
    ],
)
def test_agendas_that_cannot_be_searched_are_refused(old: str, new: str, message: str) -> None:
    assert old in AGENDA
    with pytest.raises(InputError, match=message):
        campaign_plan(agenda_of(parse_document(AGENDA.replace(old, new, 1), "a.yaml")), read_cluster("loopback"))


def test_a_dry_run_has_the_longest_time_of_all_searches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    most = SearchEntry(kind="sustainable").most_trials
    (tmp_path / "a.yaml").write_text(AGENDA.replace("search:", "repetitions: 2\nwarmup_s: 1\nsearch:"))
    assert run(["run", "a.yaml", "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["most_trials"] for row in found["runs"]] == [most, most]
    assert found["seconds"] >= 2 * most * 10
    assert run(["run", "a.yaml", "--dry-run"]) == 0
    assert f"2 runs, each a search of at most {most} trials: at most " in capsys.readouterr().out
