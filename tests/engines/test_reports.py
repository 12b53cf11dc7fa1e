"""Reports of executors: rows of the trace tables, missing rows of a draining topology, and failures of runs."""

from pathlib import Path

import pyarrow.parquet
import pytest

from agents.collected_traces import collect
from agents.protocol import Slot
from engines.job import EngineJob, properties
from engines.reports import Reports, missing_rows, read_answer
from inventory.errors import RunError
from workloads.topology import Component, Input, Topology

TOPOLOGY = Topology(
    "t",
    (
        Component("source", "spout", 1, outputs={"default": {"x": "int"}}),
        Component("sink", "bolt", 2, inputs=(Input("source", "all"),)),
    ),
)

SOURCE = ["open\t10\tsource[0]", "sent\t1000\tsource[0]\tdefault\t5", "totals\t1000\tsource[0]\t0\t5\t7\t6\t900"]
SINK = [
    "open\t10\tsink[0]",
    "open\t11\tsink[1]",
    "channel\t1000\tsink[0]\tsource[0]\tdefault\t5",
    "latency\t1000\tsink[0]\t1023\t5",
    "totals\t1000\tsink[0]\t5\t\t\t\t400",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "reports").mkdir()
    return tmp_path / "reports"


def write(folder: Path, name: str, lines: list[str]) -> None:
    with (folder / name).open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))


def test_totals_become_rows_of_differences_and_channels_belong_to_the_sender(folder: Path, tmp_path: Path) -> None:
    reports = Reports(folder, "run", TOPOLOGY, tmp_path / "streams")
    write(folder, "n-1-0-77.tsv", SOURCE)
    write(folder, "n2-1-12.tsv", SINK)
    reports.read()
    write(
        folder, "n2-1-12.tsv", ["channel\t2000\tsink[0]\tsource[0]\tdefault\t9", "totals\t2000\tsink[0]\t9\t\t\t\t500"]
    )
    reports.read()
    reports.close()
    collect([tmp_path / "streams"], tmp_path / "traces")
    rows = pyarrow.parquet.read_table(tmp_path / "traces" / "channel.parquet").to_pylist()
    assert [(row["node"], row["worker"], row["tuples"], row["bytes"], row["hop"]) for row in rows] == [
        ("n-1", 0, 5, None, "inter_node"),
        ("n-1", 0, 4, None, "inter_node"),
    ]
    counts = pyarrow.parquet.read_table(tmp_path / "traces" / "throughput.parquet").to_pylist()
    assert [(row["executor"], row["role"], row["emitted"], row["processed"], row["due"]) for row in counts] == [
        ("source[0]", "spout", 5, 0, 6),
        ("sink[0]", "sink", 0, 5, None),
        ("sink[0]", "sink", 0, 4, None),
    ]
    busy = pyarrow.parquet.read_table(tmp_path / "traces" / "executor.parquet").to_pylist()
    assert [row["busy_ns"] for row in busy] == [900, 400, 100]
    for table in (rows, counts[1:], busy[1:]):
        assert [(row["since_ns"], row["t_ns"]) for row in table] == [(10, 1000), (1000, 2000)]
    assert reports.pids == {Slot("n-1", 0): 77, Slot("n2", 1): 12}


def test_a_topology_is_drained_when_all_records_are_emitted_and_all_rows_processed(folder: Path) -> None:
    reports = Reports(folder, "run", TOPOLOGY)
    write(folder, "n1-0-1.tsv", SOURCE)
    write(folder, "n2-0-2.tsv", SINK)
    reports.read()
    assert list(missing_rows(TOPOLOGY, reports)) == [
        "1 of 6 records of source[0] are not emitted",
        "5 of 10 rows from source[0] to sink",
    ]
    # The last record has no row.
    write(folder, "n1-0-1.tsv", ["totals\t2000\tsource[0]\t0\t6\t7\t6\t900"])
    reports.read()
    assert list(missing_rows(TOPOLOGY, reports)) == ["5 of 10 rows from source[0] to sink"]
    write(folder, "n2-0-2.tsv", ["channel\t2000\tsink[1]\tsource[0]\tdefault\t5", "totals\t2000\tsink[1]\t4\t\t\t\t1"])
    reports.read()
    assert list(missing_rows(TOPOLOGY, reports)) == ["1 of 5 rows at sink[1] are not processed"]
    write(folder, "n2-0-2.tsv", ["totals\t3000\tsink[1]\t5\t\t\t\t1"])
    reports.read()
    assert list(missing_rows(TOPOLOGY, reports)) == []


def test_a_line_is_read_when_it_is_complete(folder: Path) -> None:
    reports = Reports(folder, "run", TOPOLOGY)
    path = folder / "n1-0-1.tsv"
    path.write_text("open\t10\tsource[0]\ntotals\t10")
    assert reports.read() == 1
    path.write_text("open\t10\tsource[0]\ntotals\t1000\tsource[0]\t0\t5\t7\t6\t900\n")
    assert reports.read() == 1
    assert reports.totals["source[0]"].cpu_ns == 900


def test_a_worker_that_was_started_again_fails_the_run(folder: Path) -> None:
    reports = Reports(folder, "run", TOPOLOGY)
    write(folder, "n1-0-1.tsv", SOURCE)
    reports.read()
    write(folder, "n1-0-2.tsv", SOURCE)
    with pytest.raises(RunError, match="worker 0 of n1 ended in the middle of the run, and was started again"):
        reports.read()


@pytest.mark.parametrize("line", ["totals\t1", "nonsense\t1\tx", "totals\tx\tsource[0]\t0\t\t\t\t0", ""])
def test_a_line_of_another_kind_fails_the_run(folder: Path, line: str) -> None:
    reports = Reports(folder, "run", TOPOLOGY)
    write(folder, "n1-0-1.tsv", [line])
    with pytest.raises(RunError, match=r"n1-0-1\.tsv: not a line of a report"):
        reports.read()


def test_an_answer_is_read_back_with_its_words(tmp_path: Path) -> None:
    (tmp_path / "2-0.tsv").write_text("a\t3\nb\x85\t4\n", encoding="utf-8")
    assert read_answer(tmp_path) == [("a", 3), ("b\x85", 4)]
    (tmp_path / "2-1.tsv").write_text("a\n", encoding="utf-8")
    with pytest.raises(RunError, match=r"2-1\.tsv: not a row of an answer: 'a'"):
        read_answer(tmp_path)


def test_settings_of_executors_are_a_file_of_java_properties(tmp_path: Path) -> None:
    places = {executor.name: Slot("n1", 0) for executor in TOPOLOGY.executors}
    job = EngineJob(
        "run", "replay", TOPOLOGY, places, {"n1": "127.0.0.1"}, tmp_path, {"text": "caf\u00e9 \U0001f600\\"}
    )
    assert job.write_properties().read_text(encoding="ascii").splitlines() == [
        "run=run",
        "program=replay",
        "component.0.id=source",
        "component.0.kind=spout",
        "component.0.parallelism=1",
        "component.0.output.0=default\\tx",
        "component.0.share=0",
        "component.1.id=sink",
        "component.1.kind=bolt",
        "component.1.parallelism=2",
        "component.1.input.0=source\\tdefault\\tall\\t",
        "shares=1",
        "text=caf\\u00e9 \\ud83d\\ude00\\\\",
    ]
    assert properties({"a b=c": " x"}) == "a\\ b\\=c=\\ x\n"
