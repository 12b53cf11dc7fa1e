"""The job as a process: plain spark-submit, the command, its error messages, and how it ends."""

import csv
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet
import pytest
from synthetic_campaign import scripted_spark

from analysis.page.render import render
from analysis.records.campaign import load_campaign
from analysis.statistics.intervals import median_interval, paired_difference
from analysis.statistics.metrics import comparison_rows, difference_rows
from analysis.tables import java as java_module
from analysis.tables import submit as submit_module
from analysis.tables.java import spark_environment
from analysis.tables.summary import SPARK_COLUMNS, run_rows
from campaign.commands.main import run
from inventory.errors import InputError, RunError, UnfitError

ROOT = Path(__file__).parents[2]
Maker = Callable[..., Path]


@pytest.fixture
def tiny(campaign_maker: Maker, tmp_path: Path) -> Path:
    return campaign_maker(tmp_path / "c", workloads=["exclamation"], repetitions=1, warmup_s=0.0, duration_s=1.0)


def table(report: Path, name: str) -> list[dict[str, str]]:
    with (report / "tables" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def leftovers(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(".")]  # noqa: PTH208 - hidden files are meant


@pytest.mark.spark
@pytest.mark.long
def test_plain_spark_submit_replaces_a_report_by_the_same_one_to_the_byte(
    small_campaign: Path, small_report: Path, tmp_path: Path
) -> None:
    environment = spark_environment() | {"SPARK_LOCAL_IP": "127.0.0.1"}
    submit = Path(environment["SPARK_HOME"]) / "bin" / "spark-submit"
    job = ROOT / "analysis" / "page" / "jobs" / "report.py"
    report = tmp_path / "elsewhere" / "report"
    shutil.copytree(small_report, report)
    for name in ("figures/older.svg", "index.html"):
        (report / name).write_text("of an earlier version")
    with (report / "files.txt").open("a") as listing:
        listing.write("figures/older.svg\n")
    arguments = ["--campaign", str(small_campaign), "--output", str(report)]
    process = subprocess.run([submit, job, *arguments], env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[-2000:]
    assert files(report) == files(small_report)
    assert leftovers(report.parent) == leftovers(small_campaign) == []


def files(report: Path) -> dict[Path, bytes]:
    return {path.relative_to(report): path.read_bytes() for path in report.rglob("*") if path.is_file()}


@pytest.mark.spark
@pytest.mark.long
def test_an_empty_interval_has_no_rates_and_does_not_break_the_report(tiny: Path) -> None:
    """The input ends right after the warm-up: both ends of the interval have the same time within clock resolution."""
    for path in tiny.glob("runs/*/traces/event.parquet"):
        events = pyarrow.parquet.read_table(path)
        rows = events.to_pylist()
        started = {(row["node"], row["worker"]): row["t_ns"] for row in rows if row["kind"] == "measure_start"}
        for row in rows:
            if row["kind"] == "measure_end":
                row["t_ns"] = started[row["node"], row["worker"]]
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows, events.schema), path)
    render(tiny, baseline="top-storm", pdf=True)
    for row in table(tiny / "report", "runs"):
        assert (row["counts"], row["source_tuples_per_s"], row["sink_tuples_per_s"]) == ("true", "", "")
    assert "compared with top-storm" in (tiny / "report" / "index.html").read_text()
    names = sorted(path.name for path in (tiny / "report" / "figures").iterdir())
    svgs = [name for name in names if name.endswith(".svg")]
    assert len(svgs) > 4
    assert names == sorted([*svgs, *(f"{name.removesuffix('.svg')}.pdf" for name in svgs)])


def test_ten_repetitions_have_intervals_and_differences_paired_by_repetition(
    campaign_maker: Maker, tmp_path: Path
) -> None:
    campaign = load_campaign(
        campaign_maker(tmp_path / "c", workloads=["wordcount"], repetitions=10, duration_s=2.0, empty_traces=True)
    )
    draw = random.Random(7)  # noqa: S311 - no secret is made here
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in SPARK_COLUMNS}
    tables["latency"] = [
        {"run": run.id, "quantile": quantile, "latency_ms": draw.uniform(1, 9), "samples": 100}
        for run in campaign.counted
        for quantile in (0.5, 0.95, 0.99, 1.0)
    ]
    runs = run_rows(campaign, tables)
    drawn = {row["run"]: row["latency_ms"] for row in tables["latency"] if row["quantile"] == 0.99}
    latencies = {
        name: {run.repetition or 0: drawn[run.id] for run in campaign.counted if run.scheduler == name}
        for name in ("even", "top-storm")
    }
    median = median_interval(list(latencies["even"].values()), "wordcount", "even", "latency_p99_ms")
    assert median is not None
    cells = {(row["scheduler"], row["metric"]): row for row in comparison_rows(campaign, runs)}
    cell = cells["even", "latency_p99_ms"]
    assert [cell[k] for k in ("median", "median_low", "median_high")] == [median.estimate, median.low, median.high]
    differences = {(row["scheduler"], row["metric"]): row for row in difference_rows(campaign, runs, "top-storm")}
    assert {scheduler for scheduler, _ in differences} == {"even"}
    expected = paired_difference(
        latencies["even"], latencies["top-storm"], "wordcount", "even", "top-storm", "latency_p99_ms"
    )
    assert expected is not None
    row = differences["even", "latency_p99_ms"]
    assert (row["pairs"], row["baseline"], row["excludes_zero"]) == (10, "top-storm", expected.excludes_zero)
    assert [row[k] for k in ("median_difference", "low", "high")] == [expected.estimate, expected.low, expected.high]


def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_module, "_candidates", lambda: iter(()))


def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_module, "find_spec", lambda name: None)
    monkeypatch.setattr(
        java_module, "require_java", lambda: java_module.Java(Path("/nowhere"), "17", "PATH", needs_wrapper=False)
    )


@pytest.mark.parametrize(
    ("lack", "complaint"), [(no_java, "no Java >= 17 for Spark"), (no_spark, "Spark is not installed")]
)
def test_without_java_or_spark_the_command_says_so_in_one_line_and_writes_nothing(
    lack: Callable[[pytest.MonkeyPatch], None],
    complaint: str,
    tiny: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lack(monkeypatch)
    before = sorted(tiny.iterdir())
    assert run(["report", str(tiny)]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"millrace: {complaint}")
    assert err.count("\n") == 1
    assert sorted(tiny.iterdir()) == before


def test_a_wrong_folder_or_baseline_is_found_before_anything_starts(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", str(tiny / "runs")]) == 2
    assert "no campaign.json here" in capsys.readouterr().err
    assert run(["report", str(tiny), "--baseline", "evn"]) == 2
    assert "did you mean 'even'?" in capsys.readouterr().err


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that replaces spark-submit by a script."""
    return scripted_spark(tmp_path / "spark", monkeypatch)


@pytest.mark.parametrize(("status", "kind"), [(2, InputError), (3, UnfitError)])
def test_an_error_message_of_the_job_becomes_that_of_the_command(
    status: int, kind: type[Exception], tiny: Path, submit: Callable[[str], None]
) -> None:
    submit(f"echo noise; echo 'millrace: a.parquet: cannot be written'; exit {status}")
    with pytest.raises(kind, match=r"^a\.parquet: cannot be written$"):
        render(tiny)
    assert not (tiny / "report.log").exists()


def test_when_the_job_fails_its_output_and_the_older_report_are_kept(tiny: Path, submit: Callable[[str], None]) -> None:
    (tiny / "report").mkdir()
    (tiny / "report" / "index.html").write_text("older")
    submit("echo 'report: starting'; echo 'java.lang.OutOfMemoryError' >&2; exit 1")
    with pytest.raises(RunError, match=r"failed with status 1; its output is in .*report\.log"):
        render(tiny)
    assert (tiny / "report.log").read_text() == "java.lang.OutOfMemoryError\n"
    assert (tiny / "report" / "index.html").read_text() == "older"


def test_spark_submit_gets_the_master_the_job_and_named_arguments(tiny: Path, submit: Callable[[str], None]) -> None:
    submit('printf "%s\\n" "$@" "$SPARK_LOCAL_IP" > "$SPARK_HOME/said"')
    home = Path(submit_module.spark_environment()["SPARK_HOME"])  # type: ignore[call-arg]
    assert render(tiny, master="spark://h:7077", baseline="even") == tiny / "report" / "index.html"
    arguments = (home / "said").read_text().splitlines()
    assert arguments[:2] == ["--master", "spark://h:7077"]
    assert arguments[-7:] == [
        *("--campaign", str(tiny.resolve()), "--output", str(tiny.resolve() / "report")),
        *("--baseline", "even"),
        os.environ.get("SPARK_LOCAL_IP", ""),
    ]
    render(tiny)
    arguments = (home / "said").read_text().splitlines()
    assert (arguments[1], arguments[-1]) == ("local[*]", "127.0.0.1")


@pytest.mark.parametrize("master", ["local[x]", "sprak://h:7077", "h:7077", ""])
def test_an_invalid_master_is_refused_before_anything_starts(
    master: str, tiny: Path, submit: Callable[[str], None]
) -> None:
    submit("exit 0")
    with pytest.raises(InputError, match=r"--master: got '.*', expected local\[N\], spark://HOST:PORT"):
        render(tiny, master=master)


@pytest.mark.spark
@pytest.mark.long
def test_a_spark_that_does_not_start_is_an_unfit_machine(tiny: Path) -> None:
    with pytest.raises(UnfitError, match=r"^Spark does not start: .*0 threads"):
        render(tiny, master="local[0]")
    assert not (tiny / "report").exists()


def name_of(process: psutil.Process) -> str:
    """Return the program of a process without its version; empty if it has ended."""
    try:
        return process.name().rstrip("0123456789.")
    except psutil.NoSuchProcess:
        return ""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_when_the_command_is_killed_or_interrupted(number: signal.Signals, tiny: Path) -> None:
    command = [sys.executable, "-c", "from millrace.__main__ import main; main()", "report", str(tiny)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    children: list[psutil.Process] = []
    deadline = time.monotonic() + 120
    while not {"java", "python"} <= {name_of(child) for child in children} and time.monotonic() < deadline:
        time.sleep(0.1)
        children = psutil.Process(process.pid).children(recursive=True)
    assert {"java", "python"} <= {name_of(child) for child in children}
    process.send_signal(number)
    assert process.wait(30) == (-signal.SIGKILL if number == signal.SIGKILL else 130)
    process.stderr.close()
    _, alive = psutil.wait_procs(children, timeout=20)
    assert alive == []
    deadline = time.monotonic() + 10
    while leftovers(tiny) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert leftovers(tiny) == []
    assert not (tiny / "report").exists()
