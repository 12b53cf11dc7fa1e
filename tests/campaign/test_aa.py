"""A/A campaigns: every scheduler runs under two labels; false-positive rates come from earlier campaigns."""

import json
from pathlib import Path

import pytest

from analysis.records.aa_rate import AA_FILE
from campaign.agenda.agenda import agenda_of, second_labels, with_second_labels
from campaign.commands.run import run_campaign
from campaign.display.terminal import Settings
from campaign.runner.open_campaign import Opened, new, resumed
from campaign.runner.run_environment import Ending
from inventory.documents import parse_document
from inventory.errors import InputError

AGENDA = """\
name: mine
repetitions: 20
order: sequential
workloads:
  - {name: wordcount, rate: {kind: constant, tuples_per_s: 10}}
schedulers:
  - even
  - {name: top-storm, label: top, params: {alpha: 0.5}}
"""

RATE = {"rate": 0.04, "low": 0.01, "high": 0.1, "comparisons": 50, "repetitions": 20, "date": "2026-11-20"}


def test_every_scheduler_has_a_second_label_with_the_same_parameters() -> None:
    agenda = agenda_of(with_second_labels(parse_document(AGENDA))).value
    assert agenda.scheduler_labels == ["even", "top", "even-again", "top-again"]
    assert agenda.scheduler_named["top-again"] == "top-storm"
    assert agenda.order == "interleaved"
    assert agenda.baseline == "even"
    assert second_labels(agenda) == [("even", "even-again"), ("top", "top-again")]
    assert second_labels(agenda_of(parse_document(AGENDA)).value) == []


def test_both_labels_get_the_same_placement_and_seeds(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(AGENDA)
    plan = new(str(tmp_path / "a.yaml"), None, tmp_path, aa=True).plan
    assert len(plan.runs) == 80
    for scheduler in ("even", "top"):
        placed = plan.at(plan.runs[0]).placed
        one, other = (placed["wordcount", label].answer.topologies for label in (scheduler, f"{scheduler}-again"))
        assert one == other
    seeds = {(run.repetition, run.seed) for run in plan.runs}
    assert len(seeds) == 20
    # Interleaved: each label once per repetition, and not always in the same order.
    orders = [tuple(run.scheduler for run in plan.runs[4 * k : 4 * k + 4]) for k in range(20)]
    assert {tuple(sorted(order)) for order in orders} == {("even", "even-again", "top", "top-again")}
    assert len(set(orders)) > 5


@pytest.mark.parametrize(
    ("old", "fresh", "message"),
    [
        ("repetitions: 20", "repetitions: 19", r"a\.yaml:2: repetitions: 19 are too few for --aa; expected 20 or more"),
        ("repetitions: 20\n", "", r"a\.yaml:?\d*: repetitions: 1 are too few for --aa; expected 20 or more"),
        (
            "label: top,",
            "label: even-again,",
            r"a\.yaml:7: schedulers\[2\]: the scheduler 'even-again' is listed twice",
        ),
        (
            "schedulers:\n",
            "timeline:\n  - {do: revise, at_s: 1, workload: wordcount, scheduler: even}\nschedulers:\n",
            r"a\.yaml:7: timeline\[0\]\.scheduler: events of a single scheduler are not possible with --aa",
        ),
    ],
)
def test_impossible_aa_campaigns_are_refused(old: str, fresh: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        agenda_of(with_second_labels(parse_document(AGENDA.replace(old, fresh, 1), "a.yaml")))


def test_faults_have_the_lines_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(AGENDA.replace("alpha: 0.5", "alpha: much"))
    with pytest.raises(InputError, match=r"a\.yaml:8: schedulers\[1\]\.params\.alpha: "):
        new(str(tmp_path / "a.yaml"), None, tmp_path, aa=True)


def test_the_rate_of_an_earlier_campaign_is_kept_with_the_results(tmp_path: Path) -> None:
    (tmp_path / "earlier").mkdir()
    (tmp_path / "earlier" / AA_FILE).write_text(json.dumps(RATE))
    (tmp_path / "a.yaml").write_text(f"{AGENDA}report: {{aa: earlier}}\n")
    opened = new(str(tmp_path / "a.yaml"), None, tmp_path / "out")
    opened.store()
    assert json.loads((opened.folder / AA_FILE).read_text()) == RATE
    (tmp_path / "earlier" / AA_FILE).unlink()
    again = resumed(opened.folder, None, None, lambda: None)
    again.store()
    assert json.loads((opened.folder / AA_FILE).read_text()) == RATE


@pytest.mark.parametrize("aa", [True, False])
def test_a_finished_aa_campaign_has_a_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, aa: bool
) -> None:
    def without_runs(opened: Opened, *_: object) -> Ending:
        opened.store()
        return Ending(False, {})

    monkeypatch.setattr("campaign.runner.run_campaign.execute_runs", without_runs)
    (tmp_path / "a.yaml").write_text(AGENDA)
    status, folder = run_campaign(
        Settings(), str(tmp_path / "a.yaml"), None, tmp_path / "out", None, None, False, None, False, aa=aa
    )
    assert status == 0
    assert folder is not None
    assert (folder / AA_FILE).exists() == aa
    assert ("false positives: unknown, 0 comparisons" in capsys.readouterr().out) == aa


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            None,
            r"a\.yaml:9: report\.aa: .*earlier: holds no aa\.json; expected the folder of a campaign by millrace run",
        ),
        ("{", r"a\.yaml:9: report\.aa: .*aa\.json: "),
        (json.dumps({**RATE, "rate": "often"}), r"a\.yaml:9: report\.aa: .*aa\.json: .*`\$\.rate`"),
    ],
)
def test_a_folder_without_a_rate_is_refused(tmp_path: Path, content: str | None, message: str) -> None:
    (tmp_path / "earlier").mkdir()
    if content is not None:
        (tmp_path / "earlier" / AA_FILE).write_text(content)
    (tmp_path / "a.yaml").write_text(f"{AGENDA}report: {{aa: earlier}}\n")
    with pytest.raises(InputError, match=message):
        new(str(tmp_path / "a.yaml"), None, tmp_path / "out")
