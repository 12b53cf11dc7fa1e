"""`millrace generate` writes a complete file or none; `millrace pipeline` runs a Spark job in its own process."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from campaign.commands.main import run


def test_rows_are_written_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trips.csv.gz"
    assert run(["generate", "debs2015", "--output", str(path), "--rows", "20", "--seed", "4"]) == 0
    assert len(gzip.decompress(path.read_bytes()).splitlines()) == 20
    assert capsys.readouterr().out.startswith(f"{path}: 20 rows of debs2015, seed 4, ")
    plain = tmp_path / "trips.csv"
    assert run(["generate", "debs2015", "--output", str(plain), "--rows", "20", "--seed", "4"]) == 0
    assert plain.read_bytes() == gzip.decompress(path.read_bytes())


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["debs2013", "--rows", "1", "--output", "x"], 2, "'debs2014', 'debs2015', 'text'"),
        (["text", "--rows", "0", "--output", "x"], 2, "x>=1"),
        (
            ["text", "--rows", "1", "--output", "missing/x"],
            3,
            "missing/x: cannot be written: No such file or directory",
        ),
    ],
)
def test_impossible_options_are_refused(
    arguments: list[str],
    status: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["generate", *arguments]) == status
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_the_old_file(how: signal.Signals, tmp_path: Path) -> None:
    path = tmp_path / "plugs.csv"
    path.write_text("old")
    program = "from millrace.__main__ import main; main()"
    command = [sys.executable, "-c", program, "generate", "debs2014", "--output", str(path), "--rows", str(10**9)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], stderr=subprocess.PIPE, text=True) as started:
        while not any(found.stat().st_size > 1000 for found in tmp_path.glob(".*.partial")):
            assert started.poll() is None
            time.sleep(0.02)
        os.kill(started.pid, how)
        _, err = started.communicate(timeout=120)
    assert started.returncode == 130
    assert err.endswith("interrupted\n")
    assert [found.name for found in tmp_path.iterdir()] == ["plugs.csv"]
    assert path.read_text() == "old"


MILLRACE = (sys.executable, "-c", "from millrace.__main__ import main; main()")


def millrace(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MILLRACE, *arguments], capture_output=True, text=True, timeout=240)


@pytest.mark.spark
@pytest.mark.pipelines
def test_a_pipeline_writes_its_tables_and_a_summary(tmp_path: Path) -> None:
    raw, output = tmp_path / "trips.csv", tmp_path / "out"
    assert millrace("generate", "debs2015", "--output", str(raw), "--rows", "500", "--seed", "3").returncode == 0
    raw.write_text(raw.read_text() + "no,trip\n")
    done = millrace("pipeline", "debs2015-q1", "--input", str(raw), "--output", str(output), "--format", "csv")
    assert done.returncode == 0, done.stderr
    summary = json.loads((output / "summary.json").read_text())
    assert (summary["rows_read"], summary["quarantined"]["malformed"]) == (501, 1)
    assert sorted(part.name for part in output.iterdir()) == ["snapshots", "summary.json"]
    (part,) = (output / "snapshots").glob("*.csv")
    assert part.read_text().startswith("ts,start_1,end_1,count_1,")


def test_errors_are_reported_before_spark_starts_and_leave_no_output(tmp_path: Path) -> None:
    output = tmp_path / "out"
    for arguments, message in (
        (("debs2015-q3", "--input", "x.csv"), "debs2015-q"),
        (("debs2015-q1", "--input", str(tmp_path / "x.csv")), "x.csv"),
        (("debs2015-q1", "--input", "x.csv", "--param", "perod_s=5"), "period_s"),
    ):
        done = millrace("pipeline", *arguments, "--output", str(output))
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert not output.exists()
