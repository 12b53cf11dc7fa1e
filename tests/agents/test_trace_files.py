"""Trace files have the added rows in order, from any thread, and all whole batches after a crash.

Collected traces keep few, large row groups, however often their writers flushed.
"""

import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents import collected_traces
from agents.collected_traces import TABLES, UnreportedRows, collect, read_trace_rows
from agents.trace import TraceWriter
from inventory.errors import RunError

KEY = 4

_VALUES = {
    pa.string(): st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
}


def _row(table: str) -> st.SearchStrategy[tuple]:
    columns = list(TABLES[table])[KEY:]
    return st.tuples(
        st.just(table),
        st.integers(0, 2**63 - 1),
        st.tuples(*(st.none() | _VALUES[column.type] for column in columns)),
    )


rows_of_any_table = st.lists(st.sampled_from(sorted(TABLES)).flatmap(_row) | st.just("flush"), max_size=30)


@given(rows_of_any_table)
def test_collected_rows_are_the_rows_that_were_added(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("traces")
    writer = TraceWriter(folder / "in", "r", "n1", 2)
    for step in steps:
        if step == "flush":
            writer.flush()
        else:
            writer.check(step[0], [(step[1], *step[2])])
            writer.add(*step[:2], *step[2])
    writer.close()
    added = [step for step in steps if step != "flush"]
    counts = collect([folder / "in"], folder / "out")
    for table, schema in TABLES.items():
        read = pq.read_table(folder / "out" / f"{table}.parquet")
        assert read.schema.equals(schema)
        expected = [("r", "n1", 2, t_ns, *values) for name, t_ns, values in added if name == table]
        assert list(zip(*(column.to_pylist() for column in read.columns), strict=True)) == expected
        assert counts[table] == len(expected)


@given(st.data())
def test_a_truncated_file_has_its_first_whole_batches(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("cut")
    writer = TraceWriter(folder, "r", "n1", 0)
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    ends = []
    for size in sizes:
        for _ in range(size):
            writer.add("event", len(ends), "kind", "subject", "", 1.0)
        writer.flush()
        (path,) = folder.glob("n1-0-*")
        ends.append(path.stat().st_size)
    writer.close()
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    readable = [len(rows) for _, rows in read_trace_rows(path)]
    assert readable == sizes[: sum(end <= cut for end in ends)]


@given(
    st.lists(st.lists(st.sampled_from([0, 1, 300, 2**40]), min_size=1, max_size=4), min_size=1, max_size=4), st.data()
)
def test_a_file_whose_tail_is_zeros_after_a_power_cut_has_the_records_before(tmp_path_factory, batches, data):
    """The size of a file may be on the disk before its last pages are; in MessagePack zeros are numbers, too."""
    folder = tmp_path_factory.mktemp("zeros")
    writer = TraceWriter(folder, "r", "n1", 0)
    ends = []
    for batch in batches:
        for at, number in enumerate(batch):
            writer.add("executor", at, "e[0]", number, number, number, number)
        writer.flush()
        (path,) = folder.glob("n1-0-*")
        ends.append(path.stat().st_size)
    writer.close()
    whole, more = path.read_bytes(), data.draw(st.integers(0, 40))
    torn = whole[: data.draw(st.integers(0, len(whole)))].ljust(len(whole) + more, b"\0")
    path.write_bytes(torn)
    read = [[row[-1] for row in rows] for _, rows in read_trace_rows(path)]
    # A record whose last bytes were zeros is whole although they were lost.
    assert read == batches[: sum(torn[:end] == whole[:end] for end in ends)]


@pytest.mark.parametrize("where", [bytearray.index, bytearray.rindex])
def test_a_record_that_is_damaged_is_an_error_and_not_the_end_of_its_file(tmp_path, where):
    writer = TraceWriter(tmp_path, "r", "n1", 0)
    for number in (1, 2):
        writer.add("executor", number, "e[0]", number, number, number, number)
        writer.flush()
        (path,) = tmp_path.glob("n1-0-*")
    writer.close()
    content = bytearray(path.read_bytes())
    content[where(content, b"e[0]")] ^= 1
    path.write_bytes(content)
    with pytest.raises(RunError, match="damaged: a record does not have its checksum"):
        list(read_trace_rows(path))


def test_rows_added_by_threads_while_another_flushes_are_written_once(tmp_path: Path):
    writer = TraceWriter(tmp_path, "r", "n1", -1)
    threads, each = 4, 2000

    def add(thread: int) -> None:
        for number in range(each):
            writer.add("event", thread, "kind", "", "", float(number))

    adding = [threading.Thread(target=add, args=(thread,)) for thread in range(threads)]
    for thread in adding:
        thread.start()
    while any(thread.is_alive() for thread in adding):
        writer.flush()
    writer.close()
    collect([tmp_path], tmp_path / "out")
    rows = pq.read_table(tmp_path / "out" / "event.parquet")
    by_thread = {t: [] for t in range(threads)}
    for t, value in zip(rows["t_ns"].to_pylist(), rows["value"].to_pylist(), strict=True):
        by_thread[t].append(value)
    assert all(values == [float(n) for n in range(each)] for values in by_thread.values())


def test_a_later_start_of_the_same_run_keeps_what_the_earlier_one_wrote(tmp_path: Path):
    for start in range(3):
        writer = TraceWriter(tmp_path, "r", "n1", 0)
        writer.add("event", start, "kind", "", "", None)
        writer.close()
    assert collect([tmp_path], tmp_path / "out")["event"] == 3


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (("cpus", 1, "core", "0", 0.5, True), "did you mean 'cpu'"),
        (("cpu", 1, "core", "0", 0.5), "7 columns"),
        (("cpu", 1, "core", 0, 0.5, True, 0, None, 0), "does not fit table cpu"),
        (("cpu", None, "core", "0", "half", True, 0, None, 0), "does not fit table cpu"),
        (("memory", 1, "host", "n1", "rss", 2**63, True), "does not fit table memory"),
        (("event", 1, "kind", "\ud800", "", None), "does not fit table event"),
    ],
)
def test_a_third_party_row_that_does_not_fit_is_refused_before_it_corrupts_a_file(tmp_path: Path, row, words):
    good = {
        "cpu": (1, "core", "0", 0.5, True, 0, "topology", 0),
        "memory": (1, "host", "n1", "rss", 5, True),
        "event": (1, "", "", "", None),
    }
    table, *values = row
    for rows in ([tuple(values)], [good.get(table, ()), tuple(values)]):
        with pytest.raises(RunError, match=words):
            TraceWriter(tmp_path, "r", "n1", 0).check(table, rows)


def test_a_value_that_is_missing_stays_missing(tmp_path: Path):
    writer = TraceWriter(tmp_path, "r", "n1", 0)
    writer.add("cpu", 1, "core", "0", None, None, None, None, None)
    writer.close()
    collect([tmp_path], tmp_path / "out")
    (row,) = pq.read_table(tmp_path / "out" / "cpu.parquet").to_pylist()
    assert row["cores"] is None
    assert row["shared"] is None


def test_work_that_was_not_reported_is_left_out_of_the_tables_of_work_only(tmp_path: Path) -> None:
    for node, worker in (("n1", 0), ("n1", 1), ("n2", 0)):
        writer = TraceWriter(tmp_path / "in" / f"{node}-{worker}", "r", node, worker)
        for t_ns in (10, 20, 30, 40):
            writer.add("throughput", t_ns, "a[0]", "a", "spout", 1, 0, 0, None, 0, None)
            writer.add("executor", t_ns, "a[0]", 1, 0, 0, None)
        writer.close()
    counts = collect(sorted((tmp_path / "in").iterdir()), tmp_path / "out", [UnreportedRows("n1", 1, 10, 30)])
    kept = pq.read_table(tmp_path / "out" / "throughput.parquet", columns=["node", "worker", "t_ns"]).to_pylist()
    assert [row["t_ns"] for row in kept if (row["node"], row["worker"]) == ("n1", 1)] == [10, 40]
    assert (counts["throughput"], counts["executor"]) == (10, 12)


def test_small_batches_of_many_processes_share_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collected_traces, "_ROW_GROUP", 50)
    for worker in range(3):
        writer = TraceWriter(tmp_path / "raw", "run", "n1", worker)
        for second in range(40):
            writer.add("latency", second, f"count[{worker}]", 100 * second, 1, None)
            writer.flush()
        writer.close()
    assert collect([tmp_path / "raw"], tmp_path / "traces")["latency"] == 120
    with pyarrow.parquet.ParquetFile(tmp_path / "traces" / "latency.parquet") as file:
        assert [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)] == [50, 50, 20]
        rows = file.read().to_pylist()
    assert [(row["worker"], row["t_ns"]) for row in rows] == [(w, s) for w in range(3) for s in range(40)]
