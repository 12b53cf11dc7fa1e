"""`millrace.Results` and `millrace results`: content, unknown values, and errors."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow.parquet
import pytest

from agents.collected_traces import LATER_COLUMNS, TABLES
from analysis.page.print_tables import FORMULA, write_csv
from campaign.commands.main import run
from millrace import InputError, Results

KEPT = Path(__file__).parents[1] / "kept_results" / "0.1.0"
RECOVERED, GATED, FAILED = "001-wordcount-even-r1", "002-wordcount-pipeline-linear-r1", "003-wordcount-top-storm-r1"
NOTEBOOK = Path(__file__).parents[2] / "docs" / "examples" / "results.ipynb"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Copy of results of 0.1.0, as the newest campaign of `tmp_path`."""
    return Path(shutil.copytree(KEPT, tmp_path / "results" / "demo" / "latest"))


# --- reading ---------------------------------------------------------------------------------------------------------


def test_runs_are_typed_records_in_order() -> None:
    runs = Results(KEPT).runs()
    assert list(runs) == [RECOVERED, GATED, FAILED]
    measured = runs[GATED].measured
    assert measured is not None
    assert measured.throughput_tuples_per_s == 964.168
    assert (runs[FAILED].status, runs[FAILED].measured) == ("failed", None)


@pytest.mark.parametrize("name", TABLES)
def test_traces_of_all_runs_have_the_rows_of_their_files_and_name_the_run(name: str) -> None:
    table = Results(KEPT).traces(name).to_arrow()
    assert table.schema == TABLES[name]
    paths = [KEPT / "runs" / each / "traces" / f"{name}.parquet" for each in (RECOVERED, GATED)]
    files = [pyarrow.parquet.ParquetFile(path).read() for path in paths]
    assert table.column("run").to_pylist() == [each for file in files for each in file.column("run").to_pylist()]
    for column in TABLES[name].names:
        old = [value for file in files if column in file.column_names for value in file.column(column).to_pylist()]
        # Columns that were added later are unknown.
        assert table.column(column).to_pylist() == (old or [None] * len(table))
        assert bool(old) or not len(table) or column in LATER_COLUMNS[name]


def test_columns_and_runs_can_be_chosen() -> None:
    table = Results(KEPT).traces("throughput", "processed", "executor", runs=[GATED]).to_arrow()
    assert table.column_names == ["run", "node", "worker", "t_ns", "executor", "processed"]
    assert set(table.column("run").to_pylist()) == {GATED}


def test_without_any_run_a_trace_table_is_empty_with_its_columns() -> None:
    table = Results(KEPT).traces("cpu", runs=[]).to_arrow()
    assert (len(table), table.schema) == (0, TABLES["cpu"])


def test_unknown_whole_numbers_are_missing_in_pandas_and_nanoseconds_are_exact() -> None:
    results = Results(KEPT)
    table = results.traces("throughput")
    frame, rows = table.to_pandas(), table.to_arrow().to_pylist()
    assert str(frame["late_ns"].dtype) == "Int64"
    assert frame["late_ns"].isna().tolist() == [row["late_ns"] is None for row in rows]
    assert frame["late_ns"].isna().any()
    clock = results.traces("clock")
    assert clock.to_pandas()["utc_ns"].tolist() == clock.to_arrow().column("utc_ns").to_pylist()


def test_every_table_of_the_report_can_be_read() -> None:
    results = Results(KEPT)
    assert set(results.tables) == {path.stem for path in (KEPT / "report" / "tables").iterdir()}
    for name in results.tables:
        lines = (KEPT / "report" / "tables" / f"{name}.csv").read_text().splitlines()
        frame = results.table(name).to_pandas()
        assert (list(frame.columns), len(frame)) == (lines[0].split(","), len(lines) - 1)
    runs = results.table("runs").to_pandas().set_index("run")
    assert runs.loc[FAILED, "status"] == "failed"
    assert runs["counts"].tolist() == [True, True, False]
    assert pd.isna(runs.loc[FAILED, "latency_samples"])
    assert runs.loc[GATED, "suspect"] == ""


def test_tables_keep_labels_that_look_like_numbers_and_lose_escapes(folder: Path) -> None:
    first = "1,2026-01-01,true,'=1+1,0,\n"
    several = '2,007,false,"two\nlines, \'-",1.5,\n'
    path = folder / "report" / "tables" / "runs.csv"
    path.write_text("run,workload,counts,reason,joules,latency_ms\n" + first * 200_000 + several)
    rows = Results(folder).table("runs").to_arrow().slice(199_999).to_pylist()
    unknown = {"latency_ms": None}
    assert rows == [
        {"run": "1", "workload": "2026-01-01", "counts": True, "reason": "=1+1", "joules": 0.0, **unknown},
        {"run": "2", "workload": "007", "counts": False, "reason": "two\nlines, '-", "joules": 1.5, **unknown},
    ]


@pytest.mark.parametrize("label", ["even", "'quoted'", *(f"{sign}name" for sign in FORMULA)])
def test_tables_are_read_as_they_were_written(folder: Path, label: str) -> None:
    columns = ("run", "workload", "latency_ms")
    rows = [{"run": "1", "workload": label, "latency_ms": 0.1 + 0.2}, {"run": "2", "workload": "b", "latency_ms": None}]
    write_csv(folder / "report" / "tables" / "runs.csv", columns, rows)
    assert Results(folder).table("runs").to_arrow().to_pylist() == rows


def test_without_a_report_tables_follow_from_the_records_of_runs(folder: Path) -> None:
    by_spark = {row["run"]: row for row in Results(folder).table("runs").to_arrow().to_pylist()}
    shutil.rmtree(folder / "report")
    results = Results(folder)
    recorded = {row["run"]: row for row in results.table("runs").to_arrow().to_pylist()}
    assert list(recorded) == [RECOVERED, GATED, FAILED]
    for name, row in recorded.items():
        for column in ("counts", "status", "reason", "nodes_used", "slots_used"):
            assert row[column] == by_spark[name][column], column
    for column in ("latency_p50_ms", "latency_p99_ms", "latency_max_ms", "latency_samples", "sink_tuples_per_s"):
        assert recorded[GATED][column] == pytest.approx(by_spark[GATED][column], rel=1e-3), column
        assert recorded[FAILED][column] is None
    assert recorded[GATED]["worker_cores"] is None
    medians = {row["scheduler"]: row["median"] for row in results.table("ranking").to_arrow().to_pylist()}
    assert medians["pipeline-linear"] is not None
    assert {"comparison", "pairs", "energy", "windows"} <= set(results.tables)
    for name in results.tables:
        results.table(name).to_pandas()


def test_a_table_is_read_when_it_is_converted(folder: Path) -> None:
    results = Results(folder)
    table = results.table("runs")
    path = folder / "report" / "tables" / "runs.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    assert len(table.to_arrow()) == 1
    traces = results.traces("cpu")
    (folder / "runs" / GATED / "traces" / "cpu.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"cpu\.parquet: cannot be read: "):
        traces.to_arrow()
    path.unlink()
    with pytest.raises(InputError, match=r"runs\.csv: cannot be read: "):
        table.to_pandas()


def test_tables_are_those_of_the_opened_campaign_when_the_link_changes_later(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "newest"
    link.symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    results = Results("newest")
    traces, table = results.traces("cpu"), results.table("runs")
    link.unlink()
    link.symlink_to(tmp_path)
    monkeypatch.chdir("/")
    assert (results.folder, len(traces.to_arrow()) > 0, len(table.to_arrow())) == (folder.resolve(), True, 3)


def test_importing_results_loads_neither_pandas_nor_pyarrow() -> None:
    code = "import sys; from millrace import Results; print({'pandas', 'pyarrow', 'numpy'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_arrow_works_where_pandas_is_not_installed() -> None:
    code = f"""
import sys
class NoPandas:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, NoPandas())
from millrace import Results
r = Results({str(KEPT)!r})
print(r.traces('cpu').to_arrow().num_rows > 0, r.table('runs').to_arrow().num_rows, len(r.runs()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True 3 3\n"


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda r: r.traces("thruput"), "no trace table 'thruput'; did you mean 'throughput'?"),
        (lambda r: r.traces("cpu", "core"), "the trace table 'cpu' has no column 'core'; did you mean 'cores'?"),
        (lambda r: r.traces("cpu", runs=["001-wordcount-even-r2"]), "no run '001-wordcount-even-r2'; did you mean"),
        (lambda r: r.traces("cpu", runs=[FAILED]), f"{FAILED} has no traces (failed: node n2, slot 0: worker 0"),
        (lambda r: r.table("run"), "the report has no table 'run'; did you mean 'runs'?"),
        (lambda r: r.table("throughput"), "no table 'throughput'; traces('throughput') is the trace table"),
    ],
)
def test_a_wrong_name_is_an_immediate_error_with_the_nearest_one(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(InputError) as refused:
        call(Results(KEPT))
    assert message in str(refused.value)


def test_folders_without_a_campaign_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="gone: no such directory"):
        Results("gone")
    with pytest.raises(InputError, match="so this is not a campaign's folder"):
        Results(tmp_path)
    with pytest.raises(InputError, match=r"latest: no campaign in results/"):
        Results()


def test_without_a_report_the_message_has_the_command(folder: Path) -> None:
    shutil.rmtree(folder / "report")
    with pytest.raises(
        InputError, match=f"no table 'hops'.*; others need a report: millrace report {folder.resolve()}"
    ):
        Results(folder).table("hops")
    with pytest.raises(InputError, match=r"records of runs give no table 'rankings'; did you mean 'ranking'\?"):
        Results(folder).table("rankings")


@pytest.mark.parametrize("version", [99, 0, "new"])
def test_results_of_an_unknown_version_are_refused(folder: Path, version: object) -> None:
    path = folder / "campaign.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"results_version": 1}))
    assert len(Results(folder).runs()) == 3
    path.write_text(json.dumps(document | {"results_version": version}))
    with pytest.raises(InputError, match=r"campaign\.json.*results_version"):
        Results(folder)


# --- `millrace results` ----------------------------------------------------------------------------------------------


def test_the_command_lists_every_run_with_status_and_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["results", str(KEPT)]) == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if GATED in line).split()
    assert row == [GATED, "ok", "964", "3.02", "5.31", "7.14", "50", "%", "0.0664"]
    assert f"{FAILED}: node n2, slot 0: worker 0" in out
    assert f"{RECOVERED}: recoveries, whose replays are in its figures" in out
    assert "2 of 3 runs count\n" in out
    assert "Medians (against even)" in out


def test_medians_and_tables_for_print_need_no_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(folder / "report")
    assert run(["results", str(folder)]) == 0
    assert "Medians (against even)" in capsys.readouterr().out
    assert run(["results", str(folder), "--table", "ranking", "--format", "tex"]) == 0
    tex = capsys.readouterr().out
    assert tex.startswith("\\begin{tabular}{llr")
    assert "pipeline-linear & 1 & 1\\,000" in tex
    assert run(["results", str(folder), "--table", "ranking", "--format", "md"]) == 0
    assert "| wordcount | pipeline-linear | 1 | 1\u202f000" in capsys.readouterr().out
    assert run(["results", str(folder), "--table", "runs"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert (header.split(",")[:2], len(lines)) == (["run", "workload"], 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--table", "runs", "--format", "tex"], "'runs' is written as csv only; for print there are ranking, pairs"),
        (["--table", "run"], "no table 'run'; did you mean 'runs'?"),
        (["--format", "tex"], "--format is the form of a table; name one with --table"),
        (["--table", "runs", "--json"], "--json lists the runs; leave it out with --table"),
    ],
)
def test_a_table_that_cannot_be_printed_is_refused(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["results", str(KEPT), *options]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_the_json_is_one_document_with_unknown_values_as_null(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["results", str(KEPT), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["folder"] == str(KEPT.resolve())
    recovered, gated, failed = document["runs"]
    assert (recovered["suspect"], gated["suspect"]) == ("recoveries, whose replays are in its figures", "")
    assert (gated["counts"], gated["throughput_tuples_per_s"], gated["latency_p99_ms"]) == (True, 964.168, 7.143)
    assert (failed["status"], failed["counts"], failed["throughput_tuples_per_s"]) == ("failed", False, None)
    assert failed["inter_node_percent"] is None


def test_a_run_with_a_wrong_answer_or_without_its_traces_does_not_count(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "runs" / RECOVERED / "run.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"verification": {"status": "failed", "message": "counts differ"}}))
    (folder / "runs" / GATED / "traces" / "slot.parquet").unlink()
    (folder / "runs" / "004-wordcount-even-r2.partial").mkdir()
    assert run(["results", str(folder)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"{RECOVERED} does not count" in out
    assert f"{RECOVERED}: wrong answer: counts differ" in out
    assert f"{GATED}: traces/slot.parquet is missing or unreadable" in out
    assert "004-wordcount-even-r2.partial cut off" in out
    assert "0 of 4 runs count" in out


def test_the_command_refuses_a_folder_without_a_campaign(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["results", str(tmp_path / "gone")]) == 2
    assert "gone: no such directory" in capsys.readouterr().err


# --- the notebook ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_report", [True, False])
def test_the_cells_of_the_notebook_run(folder: Path, monkeypatch: pytest.MonkeyPatch, has_report: bool) -> None:
    if not has_report:
        shutil.rmtree(folder / "report")
    monkeypatch.chdir(folder.parents[2])
    monkeypatch.setenv("MPLBACKEND", "agg")
    notebook = json.loads(NOTEBOOK.read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["outputs"] for cell in cells] == [[]] * len(cells)
    names: dict[str, object] = {}
    for cell in cells:
        exec(compile("".join(cell["source"]), f"cell {cell['id']}", "exec"), names)  # noqa: S102 - our own file
    medians, rates = names["medians"], names["rates"]
    assert isinstance(medians, pd.DataFrame)
    assert isinstance(rates, pd.DataFrame)
    assert medians.loc[("wordcount", "pipeline-linear"), "latency_p99_ms"] == pytest.approx(7.143423, abs=1e-3)
    assert set(rates.columns) == {RECOVERED, GATED}
    assert rates[GATED].mean() == pytest.approx(1000, rel=0.2)
    assert names["axes"] is not None
