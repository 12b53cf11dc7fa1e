"""`millrace pipeline` with a real Spark job in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

MILLRACE = (sys.executable, "-c", "from campaign.commands.start import main; main()")


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
    for arguments, said in (
        (("debs2015-q3", "--input", "x.csv"), "debs2015-q"),
        (("debs2015-q1", "--input", str(tmp_path / "x.csv")), "x.csv"),
        (("debs2015-q1", "--input", "x.csv", "--param", "perod_s=5"), "period_s"),
    ):
        done = millrace("pipeline", *arguments, "--output", str(output))
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert not output.exists()
