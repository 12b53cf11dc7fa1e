"""A report's folder appears as a whole or not at all."""

import os
from pathlib import Path

import pytest

from inventory.atomic_files import replacing_folder
from inventory.errors import UnfitError


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))  # noqa: PTH208 - hidden files included


def test_the_folder_appears_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "report"
    with replacing_folder(target) as folder:
        (folder / "index.html").write_text("new")
        assert not target.exists()
    assert (target / "index.html").read_text() == "new"
    assert names(target.parent) == ["report"]
    assert target.stat().st_mode & 0o777 == 0o755


def test_an_older_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    target = tmp_path / "report"
    target.mkdir()
    (target / "old.html").write_text("old")
    with replacing_folder(target) as folder:
        (folder / "index.html").write_text("new")
    assert names(target) == ["index.html"]
    assert names(tmp_path) == ["report"]


@pytest.mark.parametrize("fault", [RuntimeError("drawing"), KeyboardInterrupt(), SystemExit(143)])
def test_the_older_folder_stays_after_a_failure(tmp_path: Path, fault: BaseException) -> None:
    target = tmp_path / "report"
    target.mkdir()
    (target / "old.html").write_text("old")

    def make() -> None:
        with replacing_folder(target) as folder:
            (folder / "half.html").write_text("half")
            raise fault

    with pytest.raises(type(fault)):
        make()
    assert names(target) == ["old.html"]
    assert names(tmp_path) == ["report"]


def test_a_full_disk_is_reported_in_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "report"
    with (
        pytest.raises(UnfitError, match=r"index\.html: cannot be written: No space left on device"),
        replacing_folder(target),
    ):
        raise OSError(28, "No space left on device", "index.html")
    assert names(tmp_path) == []


def test_a_symbolic_link_is_replaced_and_not_its_target(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("kept")
    (tmp_path / "report").symlink_to(elsewhere)
    with replacing_folder(tmp_path / "report") as folder:
        (folder / "index.html").write_text("new")
    assert names(elsewhere) == ["precious"]
    assert names(tmp_path / "report") == ["index.html"]


def test_partial_folders_of_killed_processes_are_removed_and_those_of_living_ones_are_not(tmp_path: Path) -> None:
    target = tmp_path / "report [1]"
    abandoned = tmp_path / ".report [1].abc.partial"
    abandoned.mkdir()
    (abandoned / "half").write_text("half")
    (abandoned / ".millrace-partial").touch()
    mine = tmp_path / ".report [1].mine.partial"
    mine.mkdir()
    other = tmp_path / ".report [2].abc.partial"
    other.mkdir()
    with replacing_folder(target) as first:
        assert not abandoned.exists()
        with replacing_folder(target) as second:
            (second / "index.html").write_text("second")
        assert first.exists()
    assert names(tmp_path) == [mine.name, other.name, target.name]
