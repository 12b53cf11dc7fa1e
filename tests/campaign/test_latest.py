"""The campaign that `latest` selects."""

import json
from pathlib import Path

import pytest

from campaign.commands.main import run
from campaign.results.watch import find_campaign
from inventory.errors import InputError


def campaign(results: Path, name: str, start: str) -> Path:
    folder = results / name / start
    folder.mkdir(parents=True)
    (folder / "campaign.json").write_text(json.dumps({"agenda": {"name": name}}))
    link = folder.parent / "latest"
    link.unlink(missing_ok=True)
    link.symlink_to(start)
    return folder


def test_latest_is_the_campaign_that_started_last_whatever_its_name(tmp_path: Path) -> None:
    campaign(tmp_path, "zeta", "20260101T000000Z")
    newest = campaign(tmp_path, "alpha", "20260301T100000Z")
    campaign(tmp_path, "beta", "20260301T095959Z")
    assert find_campaign(Path("latest"), tmp_path) == newest


def test_an_interrupted_start_without_a_campaign_is_passed_over(tmp_path: Path) -> None:
    whole = campaign(tmp_path, "demo", "20260101T000000Z")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "latest").symlink_to("nowhere")
    assert find_campaign(Path("latest"), tmp_path) == whole


def test_without_any_campaign_the_message_has_a_hint(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"latest: no campaign in .*; give the folder that contains campaign\.json"):
        find_campaign(Path("latest"), tmp_path)


def test_a_folder_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign(tmp_path / "results", "demo", "20260101T000000Z")
    monkeypatch.chdir(tmp_path)
    assert find_campaign(Path("elsewhere/latest")) == Path("elsewhere/latest")
    Path("latest").mkdir()
    assert find_campaign(Path("latest")) == Path("latest")


def test_latest_resumes_the_newest_campaign(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = campaign(tmp_path, "race", "20260101T000000Z") / "campaign.json"
    record.write_text("[1]")
    assert run(["run", "--resume", "latest", "--out", str(tmp_path)]) == 2
    assert f"{record}:1: a mapping was expected" in capsys.readouterr().err
