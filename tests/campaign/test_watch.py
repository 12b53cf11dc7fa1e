"""Selection of a campaign, and its condition."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from campaign.commands.main import run
from campaign.results.live_file import CampaignCondition, LiveFile, find_campaign, look_at, selected_campaign
from controller.host.ownership import CALIBRATION, CleanupLog
from controller.host.process_identity import ProcessIdentity, identify
from inventory.documents import to_plain
from inventory.errors import InputError


@pytest.fixture(autouse=True)
def _own_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def write(folder: Path, *, age_s: float = 0.0, **changes: Any) -> Path:
    """Write the `live.json` of a campaign of this process; return its folder."""
    document = {**to_plain(LiveFile("race", 4, 1, 10.0).record()), **changes}
    document["updated_utc"] = (datetime.now(UTC) - timedelta(seconds=age_s)).isoformat()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "live.json").write_text(json.dumps(document))
    (folder / "campaign.json").write_text("{}")
    return folder


def dead_process() -> ProcessIdentity:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = identify(child.pid)
    assert found is not None
    assert not found.is_alive()
    return found


@pytest.mark.parametrize(
    ("changes", "condition"),
    [
        ({"stage": "measuring"}, CampaignCondition.RUNNING),
        ({"stage": "measuring", "age_s": 60}, CampaignCondition.SILENT),
        ({"stage": "reporting", "age_s": 60}, CampaignCondition.RUNNING),
        ({"stage": "finished"}, CampaignCondition.ENDED),
        ({"stage": "interrupted", "age_s": 60}, CampaignCondition.ENDED),
        ({"stage": "failed", "age_s": 60}, CampaignCondition.ENDED),
    ],
)
def test_a_running_campaign_is_silent_only_with_an_overdue_update(
    tmp_path: Path, changes: dict[str, Any], condition: CampaignCondition
) -> None:
    assert look_at(write(tmp_path / "c", **changes)).condition is condition


@pytest.mark.parametrize(
    ("changes", "condition"),
    [
        ({"stage": "measuring", "age_s": 60}, CampaignCondition.DIED),
        ({"stage": "reporting", "age_s": 60}, CampaignCondition.DIED),
        ({"stage": "finished", "age_s": 60}, CampaignCondition.ENDED),
    ],
)
def test_a_campaign_without_a_process_has_died_unless_it_had_ended(
    tmp_path: Path, changes: dict[str, Any], condition: CampaignCondition
) -> None:
    process = to_plain(dead_process())
    watched = look_at(write(tmp_path / "c", process=process, **changes))
    assert watched.condition is condition
    assert watched.age_s == pytest.approx(60, abs=5)


def test_a_campaign_on_another_machine_is_silent_and_not_dead(tmp_path: Path) -> None:
    process = {**to_plain(identify(os.getpid())), "boot": "of another machine"}
    assert look_at(write(tmp_path / "c", process=process, stage="measuring")).condition is CampaignCondition.RUNNING
    assert (
        look_at(write(tmp_path / "c", process=process, stage="measuring", age_s=60)).condition
        is CampaignCondition.SILENT
    )


def test_the_running_campaign_is_selected_and_prepares_until_its_first_update(tmp_path: Path) -> None:
    older = write(tmp_path / "results" / "other" / "20260101T000000Z", stage="finished")
    (older.parent / "latest").symlink_to(older.name)
    assert selected_campaign(None) == older
    folder = tmp_path / "elsewhere"
    with CleanupLog(folder):
        assert selected_campaign(None) == folder
        assert look_at(folder).condition is CampaignCondition.PREPARING
        # Left by an earlier session, before the first update of --resume.
        write(folder, stage="interrupted", process=to_plain(dead_process()))
        assert look_at(folder).condition is CampaignCondition.PREPARING
        write(folder, stage="measuring")
        assert look_at(folder).condition is CampaignCondition.RUNNING
    assert selected_campaign(None) == older


def test_of_several_campaigns_one_must_be_named(tmp_path: Path) -> None:
    with (
        CleanupLog(tmp_path / "first"),
        CleanupLog(tmp_path / "second"),
        pytest.raises(InputError, match="several campaigns are running") as caught,
    ):
        selected_campaign(None)
    assert str(tmp_path / "first") in str(caught.value)
    assert selected_campaign(tmp_path / "second") == tmp_path / "second"


def test_an_emulated_cluster_is_no_campaign(tmp_path: Path) -> None:
    cluster, campaign = tmp_path / "cluster", tmp_path / "campaign"
    with CleanupLog(cluster) as state:
        state.group(tmp_path / "no-group-of-this-host")
        with pytest.raises(InputError, match="no campaign of this user is running"):
            selected_campaign(None)
        with pytest.raises(InputError, match=r"contains no live\.json; expected the folder of a campaign"):
            look_at(cluster)
        with CleanupLog(campaign):
            assert selected_campaign(None) == campaign


def test_a_calibration_is_no_campaign(tmp_path: Path) -> None:
    with CleanupLog(tmp_path / "facts" / "n1.json", CALIBRATION):
        with pytest.raises(InputError, match="no campaign of this user is running"):
            selected_campaign(None)
        with CleanupLog(tmp_path / "campaign"):
            assert selected_campaign(None) == tmp_path / "campaign"


def test_a_live_file_cannot_control_the_terminal(tmp_path: Path) -> None:
    watched = look_at(write(tmp_path / "c", stage="measuring\x1b]0;title\x07", run="x\nrun 1/1 ok"))
    assert watched.live is not None
    assert (watched.live.stage, watched.live.run) == ("measuring\\x1b]0;title\\x07", "x\\nrun 1/1 ok")


def test_without_any_campaign_the_message_has_the_searched_places() -> None:
    with pytest.raises(InputError, match=r"none in results/; give the folder that contains live\.json"):
        selected_campaign(None)


def test_a_folder_that_is_no_campaign_is_refused_with_the_nearest_that_is(tmp_path: Path) -> None:
    campaign = write(tmp_path / "results" / "race" / "20260101T000000Z")
    (campaign.parent / "latest").symlink_to(campaign.name)
    with pytest.raises(InputError, match=r"contains no live\.json.*did you mean 'results/race/latest'"):
        look_at(Path("results/race"))
    with pytest.raises(InputError, match=r"did you mean 'results/race/latest'"):
        look_at(Path("results"))
    with pytest.raises(InputError, match=r"nowhere: contains no live\.json; expected the folder of a campaign$"):
        look_at(Path("nowhere"))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"process": {"pid": "x"}}', '{"process": null}'])
def test_an_invalid_live_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "live.json").write_text(text)
    with pytest.raises(InputError, match=r"live\.json: cannot be read"):
        look_at(tmp_path)


def campaign(results: Path, name: str, start: str) -> Path:
    folder = results / name / start
    folder.mkdir(parents=True)
    (folder / "campaign.json").write_text(json.dumps({"agenda": {"name": name}}))
    link = folder.parent / "latest"
    link.unlink(missing_ok=True)
    link.symlink_to(start)
    return folder


def test_latest_is_the_campaign_that_started_last_with_any_name(tmp_path: Path) -> None:
    campaign(tmp_path, "zeta", "20260101T000000Z")
    newest = campaign(tmp_path, "alpha", "20260301T100000Z")
    campaign(tmp_path, "beta", "20260301T095959Z")
    assert find_campaign(Path("latest"), tmp_path) == newest


def test_an_interrupted_start_without_a_campaign_is_skipped(tmp_path: Path) -> None:
    whole = campaign(tmp_path, "demo", "20260101T000000Z")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "latest").symlink_to("nowhere")
    assert find_campaign(Path("latest"), tmp_path) == whole


def test_without_any_campaign_the_message_has_a_hint(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"latest: no campaign in .*; give the folder that contains campaign\.json"):
        find_campaign(Path("latest"), tmp_path)


def test_other_paths_and_existing_folders_are_not_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
