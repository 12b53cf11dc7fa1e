"""`./run` and what it relies on: usage, a start that has nothing to do, packages that are half installed."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTES = ROOT / ".venv" / ".millrace"
WHOLE = ROOT / "requirements" / "whole.py"


def _run(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ROOT / "run"), *arguments], cwd=cwd, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


@pytest.mark.parametrize("script", ["run", ".ci/run", "requirements/compile.sh"])
def test_scripts_can_be_started(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)
    subprocess.run(["bash", "-n", str(ROOT / script)], check=True)


def test_help_shows_every_command_and_examples(tmp_path: Path) -> None:
    done = _run("--help", cwd=tmp_path)
    assert done.returncode == 0
    for line in ("  demo ", "  test ", "  setup ", "./run demo", "./run test"):
        assert line in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("arguments", [(), ("demmo",), ("setup", "now")])
def test_a_wrong_command_is_the_users_error_and_starts_nothing(arguments: tuple[str, ...]) -> None:
    done = _run(*arguments)
    assert done.returncode == 2
    assert "Usage: ./run COMMAND" in done.stderr
    assert "setting up" not in done.stderr


def test_a_second_start_does_nothing_again(tmp_path: Path) -> None:
    if Path(sys.prefix) != ROOT / ".venv" or not (NOTES / "dev").is_file():
        pytest.skip("these tests run in an environment that ./run has not made")
    before = {path: path.stat().st_mtime_ns for path in NOTES.iterdir()}
    done = _run("setup", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert {path: path.stat().st_mtime_ns for path in NOTES.iterdir()} == before


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment with one small package, as an installer leaves it."""
    venv.create(tmp_path / "env", symlinks=True)
    site = next((tmp_path / "env" / "lib").glob("python3*")) / "site-packages"
    info = site / "sample-1.0.dist-info"
    info.mkdir()
    (site / "sample.py").write_text("answer = 42\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sample\nVersion: 1.0\n")
    rows = ["sample.py,,12", "sample-1.0.dist-info/METADATA,,", "sample-1.0.dist-info/RECORD,,", "sample.pyc,,"]
    (info / "RECORD").write_text("\n".join(rows) + "\n")
    return tmp_path / "env"


def _whole(environment: Path) -> subprocess.CompletedProcess[str]:
    python = environment / "bin" / "python"
    return subprocess.run([str(python), "-I", str(WHOLE)], capture_output=True, text=True, check=False)


def test_a_whole_environment_is_taken_for_one(environment: Path) -> None:
    done = _whole(environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("damage", ["a file is gone", "a file is cut short", "no record"])
def test_half_a_package_is_found(environment: Path, damage: str) -> None:
    site = next((environment / "lib").glob("python3*")) / "site-packages"
    if damage == "a file is gone":
        (site / "sample.py").unlink()
    elif damage == "a file is cut short":
        (site / "sample.py").write_text("answer")
    else:
        (site / "sample-1.0.dist-info" / "RECORD").unlink()
    done = _whole(environment)
    assert done.returncode == 1
    assert done.stderr.strip() == "incomplete: sample"
