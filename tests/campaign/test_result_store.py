"""The result store: a result is complete or absent after any failure."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from analysis.records.conditions import InputRecord
from analysis.records.file_types import FAILED, OK, CampaignRecord, RunRecord, RunStatus
from campaign.results.result_store import ResultStore, new_folder, read_record
from controller.host.disk import DiskFullError, writing
from controller.host.ownership import PARTIAL
from inventory.atomic_files import complete_folder, replace_file
from inventory.errors import InputError, UnfitError

RECORD = CampaignRecord(agenda={"name": "c"}, version="0")


def ended(status: RunStatus = OK, **changes: Any) -> RunRecord:
    return RunRecord(status=status, workload="w", scheduler="s", repetition=1, **changes)


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore.create(new_folder(tmp_path / "results", "c"), RECORD)


def partial(store: ResultStore, name: str) -> Path:
    folder = store.runs / (name + PARTIAL)
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "n1.log").write_text("hello")
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


def test_a_new_campaign_has_its_record_and_latest_points_at_it(store: ResultStore) -> None:
    assert json.loads((store.folder / "campaign.json").read_text()) == msgspec.json.decode(msgspec.json.encode(RECORD))
    latest = store.folder.parent / "latest"
    assert latest.is_symlink()
    assert latest.readlink() == Path(store.folder.name)


def test_latest_moves_on_to_the_newest_campaign(tmp_path: Path) -> None:
    first = ResultStore.create(tmp_path / "c" / "1", RECORD)
    second = ResultStore.create(tmp_path / "c" / "2", RECORD)
    assert (tmp_path / "c" / "latest").resolve() == second.folder
    assert names(tmp_path / "c") == sorted(["1", "2", "latest", *names(first.folder), *names(second.folder)])


def test_two_campaigns_in_the_same_second_get_two_folders(tmp_path: Path) -> None:
    folders = []
    for _ in range(3):
        folder = new_folder(tmp_path, "c")
        folder.mkdir(parents=True)
        folders.append(folder)
    assert len(set(folders)) == 3


def test_a_run_has_its_name_only_when_it_is_complete(store: ResultStore) -> None:
    folder = partial(store, "001-w-s-r1")
    assert store.outcome("001-w-s-r1") is None
    assert not store.is_done("001-w-s-r1")
    final = store.complete("001-w-s-r1", folder, ended())
    assert names(final) == ["logs", "n1.log", "run.json"]
    assert store.is_done("001-w-s-r1")
    assert not folder.exists()


def test_a_failed_run_is_not_done_and_its_new_result_takes_its_place(store: ResultStore) -> None:
    store.complete("001", partial(store, "001"), ended(FAILED, reason="no"))
    assert not store.is_done("001")
    store.complete("001", partial(store, "001"), ended())
    assert (found := store.outcome("001")) is not None
    assert (found.status, found.reason) == (OK, "")
    assert names(store.runs) == ["001", "logs", "n1.log", "run.json"]


def test_incomplete_runs_are_removed_and_complete_ones_stay(store: ResultStore) -> None:
    final = store.complete("001", partial(store, "001"), ended())
    before = (final / "run.json").stat().st_mtime_ns
    partial(store, "002")
    store.drop_partial()
    assert [path.name for path in store.runs.iterdir()] == ["001"]
    assert (final / "run.json").stat().st_mtime_ns == before


def test_a_folder_without_a_campaign_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no campaign\.json"):
        read_record(tmp_path)
    (tmp_path / "campaign.json").write_text("[1]")
    with pytest.raises(InputError, match=r"campaign\.json:1: a mapping was expected"):
        read_record(tmp_path)


def test_a_campaign_with_another_input_cannot_be_resumed(store: ResultStore) -> None:
    name = "001-w-s-r1"
    store.complete(name, partial(store, name), ended(inputs=[InputRecord(name="text", sha256="aa")]))
    store.check_inputs(name, {"text": "aa"})
    store.check_inputs("002-w-s-r1", {"text": "bb"})
    with pytest.raises(InputError, match=rf"{name} was done with another input 'text'"):
        store.check_inputs(name, {"text": "bb"})


def test_an_unreadable_result_is_reported_and_not_overwritten(store: ResultStore) -> None:
    (store.runs / "001").mkdir()
    (store.runs / "001" / "run.json").write_text("{")
    with pytest.raises(InputError, match=r"001/run\.json: is not a run's result"):
        store.is_done("001")


def test_a_file_that_cannot_be_replaced_is_unchanged(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    target.mkdir()
    (target / "inside").write_text("old")
    with pytest.raises(UnfitError, match=r"cannot be written"), writing(tmp_path):
        replace_file(target, b"new")
    assert names(tmp_path) == ["a.json", "inside"]


def test_a_folder_is_not_renamed_over_another(tmp_path: Path) -> None:
    for name in ("a.partial", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text(name)
    with pytest.raises(OSError, match="not empty"):
        complete_folder(tmp_path / "a.partial", tmp_path / "a")
    assert (tmp_path / "a" / "x").read_text() == "a"
    assert (tmp_path / "a.partial" / "x").exists()


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """File system with a size of a few pages."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(folder: Path) -> None:
    with (folder / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 512)


@pytest.mark.root
def test_a_full_disk_at_the_start_leaves_nothing(tiny: Path) -> None:
    fill(tiny)
    with pytest.raises(DiskFullError, match=r"the disk of .* is full"):
        ResultStore.create(tiny / "results" / "c" / "1", RECORD)
    assert names(tiny) == ["filler"]


@pytest.mark.root
def test_a_full_disk_at_the_end_of_a_run_keeps_the_others_with_a_hint_to_resume(tiny: Path) -> None:
    store = ResultStore.create(tiny / "c" / "1", RECORD)
    done = store.complete("001", partial(store, "001"), ended())
    folder = partial(store, "002")
    fill(tiny)
    with pytest.raises(DiskFullError, match=rf"finished runs are kept.*millrace run --resume {store.folder}"):
        store.complete("002", folder, ended(reason="x" * 5000))
    assert [path.name for path in store.runs.iterdir()] == ["001"]
    assert names(done) == ["logs", "n1.log", "run.json"]
    (tiny / "filler").unlink()
    store.complete("002", partial(store, "002"), ended())
    assert store.is_done("002")


@pytest.mark.root
def test_a_full_disk_leaves_the_old_record(tiny: Path) -> None:
    store = ResultStore.create(tiny / "c" / "1", RECORD)
    fill(tiny)
    with pytest.raises(DiskFullError):
        store.rewrite(replace(RECORD, version="x" * 9000))
    assert json.loads((store.folder / "campaign.json").read_text()) == msgspec.json.decode(msgspec.json.encode(RECORD))
    assert names(store.folder) == ["campaign.json", "runs"]
