"""Rows that pipelines accept, and their values: the same as row by row in plain Python, and as recordings."""

import gzip
import os
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from edge_case_rows import COORDINATES, DATES, EDGE_CASES, READING, TRIP, classify_rows, lines
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inventory.errors import InputError
from workloads.recordings.prepare import prepare
from workloads.recordings.recording import Recording
from workloads.recordings.schema import CELLS_250_M, CELLS_500_M, DEBS2014, DEBS2015, SCHEMAS, SEQ, Grid, Schema

pytestmark = [
    pytest.mark.spark,
    pytest.mark.pipelines,
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore"),
]

AcceptedRows = tuple[list[tuple[Any, ...]], Mapping[str, int], int]


def accepted_rows(spark: Any, source: Path, schema: Schema, grid: Grid | None, folder: Path) -> AcceptedRows:
    """Return the accepted rows in order, counts of the others by class, and the number of all rows."""
    from workloads.pipelines.input_splits import stretches_of
    from workloads.pipelines.lines import input_files
    from workloads.pipelines.pipeline import Query
    from workloads.pipelines.reading import OpenInput, kept

    class Everything(Query):
        def __init__(self) -> None:
            self.schema, self.grid, self.columns = schema, grid, tuple(schema.columns)  # type: ignore[misc]

        def advanced(self, known: Any, piece: Any) -> Any:
            raise NotImplementedError

    parts = dict(enumerate(input_files(source, schema, grid)))
    reading = OpenInput(spark, source, folder, folder.with_name("rows"), parts)
    query = Everything()  # type: ignore[abstract]
    found = kept(query, reading, stretches_of(parts)).orderBy(SEQ)
    columns = found.select(SEQ, *schema.columns).toArrow().to_pydict()
    reading.check(query)
    spark.catalog.clearCache()
    return list(zip(*columns.values(), strict=True)), reading.before.quarantined, reading.before.rows


def check(spark: Any, content: bytes, schema: Schema, grid: Grid | None, folder: Path) -> None:
    rows, bad, count = classify_rows([content], schema.name, grid.side if grid else 300)
    folder = folder / os.urandom(8).hex()
    folder.mkdir()
    (folder / "file").write_bytes(content)
    assert accepted_rows(spark, folder / "file", schema, grid, folder / "links") == (rows, bad, count)


@pytest.fixture
def _any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accept any number of late rows, and silences of any length."""
    monkeypatch.setattr("workloads.pipelines.reading.MOST_GAP_S", 1 << 62)
    monkeypatch.setattr("workloads.recordings.prepare.MOST_OUT_OF_ORDER", 1.0)
    monkeypatch.setattr("workloads.recordings.prepare.MOST_GAP_S", 1 << 62)


@pytest.mark.usefixtures("_any_order")
@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=list(SCHEMAS))
def test_pipelines_parse_every_edge_case_in_every_field_as_row_by_row(
    schema: Schema, spark: Any, tmp_path: Path
) -> None:
    row = READING if schema is DEBS2014 else TRIP
    edge_cases = dict.fromkeys([*EDGE_CASES, *COORDINATES, *(DATES if schema is DEBS2015 else ())])
    made = [[*row[:at], field, *row[at + 1 :]] for at in range(len(row)) for field in edge_cases]
    content = "".join(",".join(fields) + "\n" for fields in [row, *made]).encode()
    check(spark, content, schema, CELLS_500_M if schema is DEBS2015 else None, tmp_path)


@pytest.mark.usefixtures("_any_order")
@pytest.mark.parametrize(("schema", "grid"), [(DEBS2014, None), (DEBS2015, CELLS_250_M)], ids=list(SCHEMAS))
def test_rows_are_accepted_or_quarantined_as_row_by_row(
    schema: Schema, grid: Grid | None, spark: Any, tmp_path: Path
) -> None:
    ordinary = ",".join(READING if schema is DEBS2014 else TRIP).encode()

    @settings(max_examples=2, suppress_health_check=list(HealthCheck))
    @given(st.lists(lines(schema), min_size=200, max_size=300), st.sampled_from([b"\n", b"\r\n"]), st.booleans())
    def holds(rows: list[bytes], end: bytes, marked: bool) -> None:
        mark = b"\xef\xbb\xbf" if marked else b""
        check(spark, mark + end.join([ordinary, *rows]), schema, grid, tmp_path)

    holds()


def trips(rows: int, seed: int) -> list[bytes]:
    """Return about a hundred trips per second in order, some of them late, some malformed."""
    random, made = Random(seed), []  # noqa: S311 - no secret
    for row in range(rows):
        second = row // 100 - (random.random() < 0.005 and row > 5000) * random.randrange(1, 30)
        fields = list(TRIP)
        fields[0] = f"M{random.randrange(50)}"
        fields[3] = f"2013-01-01 {second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
        fields[6] = f"-73.{random.randrange(850000, 990000)}" if random.random() > 0.01 else "0"
        line = ",".join(fields)
        made.append(line[:40] if random.random() < 0.01 else line)
    return [line.encode() for line in made]


def test_parts_in_any_order_and_compression_are_read_as_recordings_are(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workloads.pipelines.input_splits.STRETCH_BYTES", 50_000)
    rows = trips(12_000, 3)
    place = tmp_path / "a {b} [c]*" / "parts"
    (place / "sub").mkdir(parents=True)
    (place / "z.csv").write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(rows[:4000]) + b"\r\n")
    (place / "sub" / "packed").write_bytes(gzip.compress(b"\n".join(rows[4000:7000]) + b"\n"))
    (place / "plain.gz").write_bytes(b"\n".join(rows[7000:10_000]))
    (place / "b").write_bytes(b"\n".join(rows[10_000:]) + b"\n")
    (place / "_left_out").write_bytes(b"nonsense")
    found, bad, count = accepted_rows(spark, place, DEBS2015, CELLS_500_M, tmp_path / "links")
    expected = prepare(place, DEBS2015, tmp_path / "prepared", CELLS_500_M)
    assert (bad, count) == (expected.quarantined, 12_000)
    assert 0 < bad["out_of_order"] < 120
    assert found == list(zip(*Recording(expected.path).take(12_000), strict=True))


REFUSED = {
    "empty": (b"", "empty"),
    "blank": (b"\n\n", "no valid row"),
    "columns": (b"1,2,3\n" * 20, "3 fields, expected the 17"),
    "binary": (b"\0" * 100, "not text"),
    "truncated": (gzip.compress(b"\n".join(trips(2000, 1)))[:-2000], "not a whole gzip file"),
    "unsorted": (b"\n".join(reversed(trips(2000, 1))), "`millrace pipeline prepare` puts them in order"),
    "silence": (
        b"\n".join([*trips(200, 1), ",".join(TRIP).replace("2013", "2015").encode()]),
        r"in:201: dropoff_datetime is 7\d\d days later",
    ),
}


@pytest.mark.parametrize(
    ("kind", "stream"), [*((kind, False) for kind in REFUSED), ("empty", True), ("truncated", True), ("unsorted", True)]
)
def test_an_invalid_input_is_refused_and_leaves_no_output(
    kind: str, stream: bool, pipelines: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Before Spark starts, only the first block is checked.
    monkeypatch.setattr("workloads.recordings.raw_files.BLOCK_BYTES", 2000)
    content, complaint = REFUSED[kind]
    (tmp_path / "in").write_bytes(content)
    before = sorted(os.listdir(tmp_path))  # noqa: PTH208 - hidden files are meant
    with pytest.raises(InputError, match=complaint):
        pipelines("debs2015-q1", tmp_path / "in", stream=stream)
    assert sorted(os.listdir(tmp_path)) == before  # noqa: PTH208


def test_a_folder_that_is_no_output_of_a_pipeline_or_holds_the_input_is_not_replaced(
    pipelines: Any, tmp_path: Path
) -> None:
    from workloads.pipelines.run_pipeline import Asked, execute_pipeline

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "part").write_bytes(b"\n".join(trips(100, 1)))
    for output, complaint in (
        (tmp_path / "in", "holds the input"),
        (tmp_path, "holds the input"),
        (tmp_path / "in" / "part", "holds the input"),
    ):
        with pytest.raises(InputError, match=complaint):
            execute_pipeline(Asked("debs2015-q1", str(tmp_path / "in" / "part"), output))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years")
    with pytest.raises(InputError, match="no output of a pipeline"):
        execute_pipeline(Asked("debs2015-q1", str(tmp_path / "in"), tmp_path / "mine"))
