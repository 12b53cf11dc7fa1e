"""No command removes or overwrites a file that it did not make, wherever it derives a path from one that it was given.

Every case puts a file of the user's where the command writes, or cleans up, something else than what it was asked for.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from synthetic_campaign import scripted_spark

from analysis.page.side_by_side import compare_campaigns
from analysis.records.file_types import CampaignRecord
from campaign.commands.main import run
from campaign.results.result_store import ResultStore, new_folder
from controller.host.ownership import CleanupLog
from inventory.atomic_files import replacing_folder
from inventory.errors import MillraceError, UnfitError

KEPT = Path(__file__).parents[1] / "kept_results" / "0.1.0"
MINE = b"years of work\n"
TOPOLOGY = """
id: t
components:
  - {id: s, kind: spout, parallelism: 1}
  - {id: b, kind: bolt, parallelism: 1, inputs: [{from: s}]}
"""

Submit = Callable[[str], None]


@pytest.fixture
def submit(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Submit:
    """Return a function that replaces spark-submit by a script."""
    return scripted_spark(tmp_path_factory.mktemp("spark"), monkeypatch)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a recording, a topology, two campaigns and the outputs of earlier commands."""
    folder = tmp_path_factory.mktemp("outputs")
    (folder / "in.csv").write_bytes(b"1,2,3\n")
    (folder / "t.yml").write_text(TOPOLOGY)
    shutil.copytree(KEPT, folder / "campaign")
    shutil.copytree(KEPT, folder / "campaign2")
    compare_campaigns([folder / "campaign", folder / "campaign2"], folder / "compared")
    (folder / "routes" / "snapshots").mkdir(parents=True)
    (folder / "routes" / "summary.json").write_text("{}")
    (folder / "routes" / "snapshots" / "part-00000-00000.parquet").write_text("")
    return folder


@pytest.fixture
def here(outputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, a copy of `outputs`."""
    shutil.copytree(outputs, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


PIPELINE = "pipeline debs2015-q1 --input in.csv --output routes"
COMPARE = "compare campaign campaign2 --out compared"
PLACE = "place --cluster loopback --topology t.yml --compare even,default --pictures drawn"


@pytest.mark.parametrize(
    ("command", "mine"),
    [
        (PIPELINE, "routes.log"),
        (PIPELINE, ".routes.mine.partial/thesis"),
        (PIPELINE, "routes/thesis"),
        (PIPELINE, "routes/snapshots/thesis"),
        ("report campaign", "campaign/report.log"),
        ("report campaign", "campaign/report/notes.md"),
        ("report campaign", "campaign/report/figures/mine.png"),
        ("report campaign", "campaign/.report.mine.partial/thesis"),
        (COMPARE, "compared/notes.md"),
        (COMPARE, "compared/tables/mine.csv"),
        (COMPARE, ".compared.mine.partial/thesis"),
        (PLACE, "drawn/even.svg"),
        ("claims --paper pmod --out drawn", "drawn/claims.json"),
        ("claims --paper pmod --out drawn", "drawn/pmod.md"),
        ("record-sysfs --sysfs . recorded", ".recorded.mine.partial/thesis"),
        ("generate text --rows 10 --output text.txt", ".text.txt.mine.partial"),
    ],
)
def test_a_file_that_the_command_did_not_make_stays(command: str, mine: str, here: Path, submit: Submit) -> None:
    (here / mine).parent.mkdir(parents=True, exist_ok=True)
    (here / mine).write_bytes(MINE)
    for job in ("exit 0", "echo trouble; exit 1")[: 1 + command.startswith(("pipeline", "report"))]:
        submit(job)
        run(command.split())
        assert (here / mine).read_bytes() == MINE


@pytest.mark.parametrize("command", [PIPELINE, COMPARE, PLACE, "claims --paper pmod --out drawn"])
def test_what_the_command_made_earlier_is_replaced(command: str, here: Path, submit: Submit) -> None:
    submit("exit 0")
    for _ in range(2):
        assert run(command.split()) == 0


@pytest.mark.parametrize(
    ("command", "mine", "words"),
    [
        (PIPELINE, "routes/thesis", "no output of a pipeline: thesis is no part of one"),
        ("report campaign", "campaign/report/notes.md", "notes.md is no part of one"),
        (COMPARE, "compared/notes.md", "notes.md is no part of one"),
        (PLACE, "drawn/even.svg", "drawn/even.svg"),
        ("claims --paper pmod --out drawn", "drawn/pmod.md", "drawn/pmod.md"),
    ],
)
def test_the_refusal_names_the_file_and_comes_before_anything_is_written(
    command: str, mine: str, words: str, here: Path, submit: Submit, capsys: pytest.CaptureFixture[str]
) -> None:
    submit("touch started")
    (here / mine).parent.mkdir(parents=True, exist_ok=True)
    (here / mine).write_bytes(MINE)
    before = sorted(here.rglob("*"))
    assert run(command.split()) == 2
    assert words in capsys.readouterr().err
    assert sorted(here.rglob("*")) == before


def test_the_output_of_a_failed_job_goes_to_a_new_file(
    here: Path, submit: Submit, capsys: pytest.CaptureFixture[str]
) -> None:
    submit("echo trouble; exit 1")
    (here / "routes.log").write_bytes(MINE)
    assert run(PIPELINE.split()) == 1
    assert "its output is in" in (said := capsys.readouterr().err)
    assert Path(said.rsplit("its output is in ", 1)[1].strip()).read_text() == "trouble\n"


@pytest.mark.parametrize(
    "command",
    [
        "generate text --rows 10 --output target",
        "bundle campaign --out target.tar.zst",
        "traffic campaign --run 001-wordcount-even-r1 -o target",
    ],
)
def test_an_output_that_is_no_file_is_not_replaced_by_one(command: str, here: Path) -> None:
    for name in ("target", "target.tar.zst"):
        os.mkfifo(here / name)
    reader = os.open(here / "target", os.O_RDONLY | os.O_NONBLOCK)
    try:
        run(command.split())
    finally:
        os.close(reader)
    assert all((here / name).is_fifo() for name in ("target", "target.tar.zst"))


def test_an_output_that_is_a_link_stays_one(here: Path) -> None:
    (here / "link").symlink_to(here / "elsewhere")
    assert run(["generate", "text", "--rows", "10", "--output", "link"]) == 0
    assert (here / "link").is_symlink()
    assert (here / "elsewhere").read_text().count("\n") == 10


def test_a_file_called_latest_is_not_replaced_by_the_link(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "latest").write_bytes(MINE)
    with pytest.raises(MillraceError, match="latest"):
        ResultStore.create(new_folder(tmp_path, "c"), CampaignRecord(agenda={}))
    assert (tmp_path / "c" / "latest").read_bytes() == MINE
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == ["latest"]


def test_a_folder_that_was_there_before_the_run_is_not_taken_for_its_own(tmp_path: Path) -> None:
    (tmp_path / "001.partial").mkdir()
    (tmp_path / "001.partial" / "mine").write_bytes(MINE)
    with CleanupLog(tmp_path / "c") as log, pytest.raises(UnfitError, match=r"001\.partial"):
        log.partial(tmp_path / "001")
    assert (tmp_path / "001.partial" / "mine").read_bytes() == MINE


KILLED = """
import sys, time
from pathlib import Path
from inventory.atomic_files import replacing_folder

with replacing_folder(Path(sys.argv[1])) as folder:
    (folder / "half").write_text("half")
    print("writing", flush=True)
    time.sleep(60)
"""


def test_what_a_killed_command_left_is_removed_by_the_next(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path / "out")], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        process.send_signal(signal.SIGKILL)
    (tmp_path / ".out.mine.partial").mkdir()
    assert len(list(tmp_path.iterdir())) == 2
    with replacing_folder(tmp_path / "out") as folder:
        (folder / "whole").write_text("whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.mine.partial", "out"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["whole"]
