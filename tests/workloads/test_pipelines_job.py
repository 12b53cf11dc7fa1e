"""Pipelines as processes: the command, plain spark-submit, a cluster, and kills with the next start."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import debs2015_brute_force as brute_force
import psutil
import pytest

from analysis.tables.java import spark_environment
from campaign.commands.main import run
from workloads.generate.taxi_trips import taxi_trips
from workloads.generate.writing import write_rows

ROOT = Path(__file__).parents[2]
JOB = ROOT / "workloads" / "pipelines" / "job.py"
COMMAND = [sys.executable, "-c", "from millrace.__main__ import main; main()", "pipeline"]
ROWS = 6000


@pytest.fixture(scope="module")
def trips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trips") / "trips.csv.gz"
    write_rows(path, taxi_trips(ROWS, 9), lambda _rows: None)
    return path


@pytest.fixture(scope="module")
def expected(trips: Path) -> list[tuple[str | None, ...]]:
    valid, _ = brute_force.valid_trips(brute_force.lines_of(trips), 300)
    return [tuple(None if f is None else str(f) for f in row) for row in brute_force.frequent_snapshots(valid)]


def leftovers(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(".")]  # noqa: PTH208 - hidden files are meant


def snapshots(output: Path) -> list[tuple[str | None, ...]]:
    from spark_pipelines import table

    assert json.loads((output / "summary.json").read_text())["rows_read"] == ROWS
    return table(output, "snapshots")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["debs2015-q3"], "unknown pipeline 'debs2015-q3'; did you mean 'debs2015-q2'?"),
        (["debs2015-q1", "--param", "anser=both"], "unknown parameter 'anser'; did you mean 'answer'?"),
        (["debs2015-q1", "--param", "answer=bot"], "'bot' is none of the valid values; did you mean 'both'?"),
        (["debs2015-q1", "--param", "period_s=0"], "period_s: got 0"),
        (["debs2014-q1", "--param", "day_s=7200"], "expected at least 3"),
        (["prepare", "--stream"], "--stream: prepare needs its whole input"),
        (["debs2015-q1", "--master", "sprak://h:1"], "--master: got 'sprak://h:1'"),
    ],
)
def test_wrong_arguments_are_refused_before_spark_starts(
    arguments: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_text("")
    assert run(["pipeline", *arguments, "--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")]) == 2
    assert complaint in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["in"]  # noqa: PTH208 - hidden files are meant


@pytest.mark.parametrize("name", ["debs2014-q1", "prepare"])
def test_times_in_milliseconds_are_refused_with_the_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_text("".join(f"{at},{1377986401 + at}000,1.5,1,0,0,0\n" for at in range(100)))
    assert run(["pipeline", name, "--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")]) == 2
    assert "in:1: timestamp is 1377986401000, expected seconds since 1970" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["in"]  # noqa: PTH208 - hidden files are meant


@pytest.mark.timeout(900)
@pytest.mark.spark
@pytest.mark.pipelines
def test_a_pipeline_that_is_killed_leaves_nothing_and_one_killed_with_java_is_cleaned_up_by_the_next(
    trips: Path, expected: Sequence[object], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    command = [*COMMAND, "debs2015-q1", "--input", str(trips), "--output", str(output), "--format", "csv"]
    command += ["--master", "local[2]"]
    for number, status in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)):
        with working(command, tmp_path) as (process, others):
            process.send_signal(number)
            assert process.wait(60) == status
        _, alive = psutil.wait_procs(others, timeout=60)
        assert alive == []
        deadline = time.monotonic() + 20
        while leftovers(tmp_path) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert leftovers(tmp_path) == []
        assert not output.exists()
    with working(command, tmp_path) as (process, others):
        processes = [psutil.Process(process.pid), *others]
        for each in processes:
            each.suspend()
        for each in processes:
            each.kill()
        process.wait()
    psutil.wait_procs(processes, timeout=20)
    assert len(leftovers(tmp_path)) == 1
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert leftovers(tmp_path) == []
    assert snapshots(output) == expected


@contextmanager
def working(command: Sequence[str], folder: Path) -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process]]]:
    """Start a pipeline; yield its process and those it has started once it has written rows that it works on."""
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        while not list(folder.glob(".*/.work/rows/*")):
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.1)
        others = psutil.Process(process.pid).children(recursive=True)
        assert "java" in {each.name() for each in others}
        yield process, others


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, dict[str, str]]]:
    """Standalone master with two workers: its URL, their work folder, and the environment of drivers."""
    folder = tmp_path_factory.mktemp("cluster")
    environment = spark_environment() | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
    program = Path(environment["SPARK_HOME"]) / "bin" / "spark-class"
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    url = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    commands = [[f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]]
    for name in ("first", "second"):
        place = ["--work-dir", str(folder / name), "--host", "127.0.0.1", "--webui-port", "0"]
        commands.append([f"{deploy}.worker.Worker", *place, "--cores", "1", "--memory", "1g", url])
    processes = []
    try:
        for at, command in enumerate(commands):
            log = (folder / f"{at}.log").open("w")
            with log:
                processes.append(subprocess.Popen([program, *command], env=environment, stdout=log, stderr=log))
        deadline = time.monotonic() + 600
        while (folder / "0.log").read_text().count("Registering worker") < 2:
            assert time.monotonic() < deadline, (folder / "0.log").read_text()
            time.sleep(0.2)
        yield url, folder, environment
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)


@pytest.mark.timeout(900)
@pytest.mark.spark
@pytest.mark.pipelines
@pytest.mark.parametrize("way", ["command", "spark-submit"])
def test_a_standalone_cluster_gives_the_same_answer(
    way: str,
    cluster: tuple[str, Path, dict[str, str]],
    trips: Path,
    expected: Sequence[object],
    tmp_path: Path,
) -> None:
    url, folder, environment = cluster
    before = {name: len(list((folder / name).glob("app-*/*"))) for name in ("first", "second")}
    arguments = ["debs2015-q1", "--input", str(trips), "--output", str(tmp_path / "out"), "--format", "csv"]
    arguments += ["--param", "answer=both"]
    if way == "command":
        command = [*COMMAND, *arguments, "--master", url]
    else:
        submit = str(Path(environment["SPARK_HOME"]) / "bin" / "spark-submit")
        command = [submit, "--master", url, str(JOB), *arguments, "--stream"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    # Spark forwards both outputs of a Python program to its own.
    assert "written to" in done.stdout + done.stderr
    assert snapshots(tmp_path / "out") == expected
    assert (tmp_path / "out" / "changes").is_dir()
    after = {name: len(list((folder / name).glob("app-*/*"))) for name in before}
    assert all(after[name] > before[name] for name in before), "both workers have had executors"
