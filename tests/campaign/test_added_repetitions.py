"""Campaigns that are resumed with more repetitions; no run is executed."""

import json
from pathlib import Path
from typing import Any

import pytest

from campaign.runner.open_campaign import Opened, new, resumed
from inventory.errors import InputError, UnfitError

AGENDA: dict[str, Any] = {
    "name": "a",
    "repetitions": 2,
    "order": "sequential",
    "seed": 7,
    "workloads": [{"name": "exclamation", "rate": {"kind": "constant", "tuples_per_s": 10}}],
    "schedulers": ["even", "top-storm"],
}


@pytest.fixture
def agenda(tmp_path: Path) -> str:
    path = tmp_path / "agenda.json"
    path.write_text(json.dumps(AGENDA))
    return str(path)


@pytest.fixture
def folder(agenda: str, tmp_path: Path) -> Path:
    """Folder of a stored campaign without results."""
    opened = new(agenda, None, tmp_path / "results")
    opened.store()
    return opened.folder


def again(folder: Path, repetitions: int | None = None, agenda: str | None = None) -> Opened:
    return resumed(folder, agenda, None, lambda: None, repetitions)


def names(opened: Opened) -> list[str]:
    return [run.name for run in opened.plan.runs]


FIRST = ["001-exclamation-even-r1", "002-exclamation-even-r2", "003-exclamation-top-storm-r1"]
FIRST += ["004-exclamation-top-storm-r2"]


def test_the_option_overrides_the_agenda(agenda: str, tmp_path: Path) -> None:
    opened = new(agenda, None, tmp_path, repetitions=1)
    assert names(opened) == ["001-exclamation-even-r1", "002-exclamation-top-storm-r1"]
    assert opened.record.agenda["repetitions"] == 1


def test_a_campaign_that_was_extended_is_resumed_and_extended_again_with_the_same_names(folder: Path) -> None:
    assert names(again(folder)) == FIRST
    extended = again(folder, 3)
    assert names(extended) == [*FIRST, "005-exclamation-even-r3", "006-exclamation-top-storm-r3"]
    extended.store()
    assert names(again(folder)) == names(extended)
    further = again(folder, 4)
    assert names(further) == [*names(extended), "007-exclamation-even-r4", "008-exclamation-top-storm-r4"]
    further.store()
    record = json.loads((folder / "campaign.json").read_text())
    assert (record["agenda"]["repetitions"], len(record["resumed"])) == (4, 2)
    assert record["seeds"]["runs"] == {run.name: run.seed for run in again(folder).plan.runs}
    # All schedulers share the seed of a repetition, also of an added one.
    seeds: dict[int, set[int]] = {}
    for run in further.plan.runs:
        seeds.setdefault(run.repetition, set()).add(run.seed)
    assert [len(found) for found in seeds.values()] == [1] * 4
    assert len(set.union(*seeds.values())) == 4


def test_fewer_repetitions_than_there_are_are_refused(folder: Path) -> None:
    with pytest.raises(InputError, match=r"--repetitions 1: .* has 2 repetitions already"):
        again(folder, 1)
    assert names(again(folder, 2)) == FIRST


def test_nothing_is_written_before_the_campaign_continues(folder: Path) -> None:
    before = (folder / "campaign.json").read_bytes()
    again(folder, 5)
    assert (folder / "campaign.json").read_bytes() == before


def test_a_given_agenda_may_differ_only_in_the_repetitions(folder: Path, agenda: str) -> None:
    assert len(names(again(folder, 3, agenda))) == 6
    Path(agenda).write_text(json.dumps({**AGENDA, "seed": 8}))
    with pytest.raises(InputError, match="which has another seed"):
        again(folder, 3, agenda)


@pytest.mark.parametrize("change", [{"001-exclamation-even-r1": 1}, {"005-exclamation-evn-r1": 1}])
def test_runs_that_this_version_would_not_do_are_refused(folder: Path, change: dict[str, int]) -> None:
    path = folder / "campaign.json"
    record = json.loads(path.read_text())
    record["seeds"]["runs"] |= change
    path.write_text(json.dumps(record))
    for repetitions in (None, 3):
        with pytest.raises(UnfitError, match="this version of Millrace would do other runs"):
            again(folder, repetitions)


def test_repetitions_are_added_at_every_combination_of_factors(agenda: str, tmp_path: Path) -> None:
    Path(agenda).write_text(json.dumps({**AGENDA, "repetitions": 1, "factors": {"nodes": [4, 5]}}))
    opened = new(agenda, None, tmp_path / "results")
    opened.store()
    extended = again(opened.folder, 2, agenda)
    assert names(extended)[:4] == names(opened)
    assert [(run.repetition, run.number) for run in extended.plan.runs[4:]] == [(2, 5), (2, 6), (2, 7), (2, 8)]
    assert {(run.scheduler, run.combination) for run in extended.plan.runs[4:]} == {
        (run.scheduler, run.combination) for run in opened.plan.runs
    }
    extended.store()
    assert again(opened.folder).plan.runs == extended.plan.runs
