"""A full disk is named in the message: that of results or that of temporary files."""

import errno
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from controller.host.disk import DiskFullError, converting_full_disk

pytestmark = [pytest.mark.loopback, pytest.mark.root, pytest.mark.long]


@contextmanager
def small_disk(folder: Path, options: str = "size=3m") -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path, but: int = 0) -> Path:
    """Fill the disk of a folder, except for `but` bytes."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(512))
    with filler.open("r+b") as file:
        file.truncate(filler.stat().st_size - but)
    return filler


def test_a_full_disk_of_temporary_files_is_not_reported_as_that_of_results(workspace: Any) -> None:
    with small_disk(workspace.temporary):
        campaign = workspace.start("run", workspace.agenda(schedulers=["even"]))
        workspace.wait_for_stage(1, "measuring")
        filler = fill(workspace.temporary)
        outcome = workspace.wait_for_end(campaign)
        assert outcome.status == 3, outcome
        [line] = [line for line in outcome.err.splitlines() if not line.startswith("this host is busy")]
        assert line.startswith(f"millrace: the disk of {workspace.temporary}/millrace-campaign-")
        assert "is full; finished runs are kept. Make room, then: millrace run --resume results/short/" in line
        filler.unlink()
        assert workspace.run("run", "--resume", "results/short/latest").status == 0


def test_a_disk_of_temporary_files_with_too_little_room_for_the_inputs_is_named(workspace: Any) -> None:
    with small_disk(workspace.temporary):
        fill(workspace.temporary, but=40_000)
        outcome = workspace.run("run", workspace.agenda(schedulers=["even"]))
        assert outcome.status == 3, outcome
        [line] = outcome.err.splitlines()
        assert line.startswith(f"millrace: {workspace.temporary}/")
        assert line.endswith("No space left on device")
        assert [path.name for path in workspace.temporary.iterdir()] == ["filler"]
    assert not (workspace.folder / "results").exists()


def test_an_error_without_a_file_name_is_attributed_to_the_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "a") as a, small_disk(tmp_path / "b") as b:
        for full in (b, a):
            fill(full)
            with pytest.raises(DiskFullError, match=f"^the disk of {full} is full$"), converting_full_disk(a, b):
                raise OSError(errno.ENOSPC, "No space left on device")
            (full / "filler").unlink()


def test_a_disk_without_free_inodes_is_full(tmp_path: Path) -> None:
    with small_disk(tmp_path / "a", "size=3m,nr_inodes=3") as a, small_disk(tmp_path / "b") as b:
        (a / "1").touch()
        (a / "2").touch()
        with pytest.raises(DiskFullError, match=f"^the disk of {a} is full$"), converting_full_disk(b, a):
            raise OSError(errno.ENOSPC, "No space left on device")
