"""Input files and folders of recordings: parts in any order, reuse of prepared files, and damaged inputs."""

import gzip
import os
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from edge_case_rows import classify_rows
from hypothesis import given
from hypothesis import strategies as st

from inventory.errors import InputError, UnfitError
from workloads.recordings import raw_files
from workloads.recordings.prepare import prepare
from workloads.recordings.raw_files import BYTE_ORDER_MARK, blocks
from workloads.recordings.recording import Recording
from workloads.recordings.schema import CELLS_500_M, DEBS2014, DEBS2015
from workloads.workload import PreparedInput, reporting_to

BASE = 1377986400


def reading(second: int, value: str = "1.5") -> str:
    return f"1,{BASE + second},{value},1,0,0,0\n"


def rows_of(found: PreparedInput) -> list[tuple[Any, ...]]:
    return list(zip(*Recording(found.path).take(found.records), strict=True))


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def refused(path: Path, kept: Path, schema: Any = DEBS2014) -> str:
    """Check that a source is refused and leaves no file; return the message."""
    with pytest.raises(InputError) as error:
        prepare(path, schema, kept, CELLS_500_M if schema is DEBS2015 else None)
    assert not kept.exists() or list(kept.iterdir()) == []
    return str(error.value)


# --- folders ---------------------------------------------------------------------------------------------------


def test_parts_are_read_by_their_first_valid_time_whatever_their_name_and_compression(
    tmp_path: Path, kept: Path
) -> None:
    folder = tmp_path / "in"
    contents = [
        "".join(reading(100 * part + at // 2) for at in range(40)) + ("broken\n" if part == 1 else "")
        for part in range(4)
    ]
    # The first line of a part does not decide.
    contents[2] = reading(9999, "-3") + contents[2]
    names = ["d.csv", "a.csv.gz", "sub/c.csv", "b"]
    for name, content in zip(names, contents, strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        packed = name == "a.csv.gz"
        (folder / name).write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    for noise in ("_SUCCESS", ".part.crc", "_temporary/part"):
        (folder / noise).parent.mkdir(exist_ok=True)
        (folder / noise).write_text("noise")
    (folder / "empty.csv").write_text("")
    found = prepare(folder, DEBS2014, kept)
    rows, bad, count = classify_rows([content.encode() for content in contents], "debs2014")
    assert rows_of(found) == rows
    assert found.quarantined == bad == {"malformed": 2, "outlier": 0, "out_of_order": 0}
    assert found.origin == f"{folder} (debs2014, 5 files, {count} rows)"


def test_parts_with_the_same_first_time_are_read_by_name_and_parts_without_a_valid_row_last(
    tmp_path: Path, kept: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "0").write_text("broken\n")
    (folder / "2").write_text(reading(5, "2"))
    (folder / "1").write_text(reading(5, "1"))
    found = prepare(folder, DEBS2014, kept)
    assert [row[:3] for row in rows_of(found)] == [(0, BASE + 5, 1.0), (1, BASE + 5, 2.0)]
    assert found.quarantined["malformed"] == 1


def test_a_gzip_file_is_recognised_by_its_content(tmp_path: Path, kept: Path) -> None:
    plain, packed = tmp_path / "plain.csv.gz", tmp_path / "packed.csv"
    plain.write_text(reading(1) + reading(2))
    packed.write_bytes(gzip.compress(reading(1).encode()) + gzip.compress(reading(2).encode()))
    assert rows_of(prepare(plain, DEBS2014, kept)) == rows_of(prepare(packed, DEBS2014, kept))


def parquet(path: Path, found: PreparedInput, rows: slice, **change: pa.Array) -> None:
    """Write a part of a prepared recording, as a pipeline does."""
    table = pq.read_table(found.path)[rows]
    for name, column in change.items():
        table = table.set_column(table.column_names.index(name), name, column)
    pq.write_table(table.replace_schema_metadata(None), path)


def test_parquet_parts_are_read_unchanged_and_only_order_and_grid_are_checked_again(tmp_path: Path, kept: Path) -> None:
    raw, folder = tmp_path / "raw.csv", tmp_path / "in"
    folder.mkdir()
    raw.write_text("x\n" + "".join(reading(at) for at in range(30)))
    found = prepare(raw, DEBS2014, kept)
    parquet(folder / "late", found, slice(10, 30))
    parquet(folder / "soon", found, slice(0, 10))
    again = prepare(folder, DEBS2014, kept)
    assert rows_of(again) == rows_of(found)
    assert again.quarantined == {"malformed": 0, "outlier": 0, "out_of_order": 0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seq": pa.array([3, 2, 1])}, r"column 'seq' does not rise"),
        ({"value": pa.array([1, 2, 3])}, r"column 'value' is int64, expected double"),
        ({"plug_id": pa.array([1, None, 3])}, r"not a whole Parquet file: .*null"),
    ],
)
def test_foreign_parquet_files_are_refused(
    change: dict[str, pa.Array], message: str, tmp_path: Path, kept: Path
) -> None:
    raw, part = tmp_path / "raw.csv", tmp_path / "part.parquet"
    raw.write_text("".join(reading(at) for at in range(3)))
    parquet(part, prepare(raw, DEBS2014, tmp_path / "other"), slice(0, 3), **change)
    with pytest.raises(InputError, match=message):
        prepare(part, DEBS2014, kept)


# --- prepared recordings ---------------------------------------------------------------------------------------


def test_a_recording_is_prepared_again_only_when_a_part_has_changed(tmp_path: Path, kept: Path) -> None:
    path = tmp_path / "plugs.csv"
    path.write_text(reading(1) + reading(2))
    progress: list[float] = []
    with reporting_to(progress.append):
        first = prepare(path, DEBS2014, kept)
        assert progress == [1.0]
        assert prepare(path, DEBS2014, kept) == first
        assert progress == [1.0]
        path.write_text(reading(1) + reading(3))
        os.utime(path, ns=(1, 1))
        second = prepare(path, DEBS2014, kept)
    assert second.sha256 != first.sha256
    assert len(progress) == 2


def test_an_incomplete_prepared_recording_is_prepared_again(tmp_path: Path, kept: Path) -> None:
    path = tmp_path / "plugs.csv"
    path.write_text(reading(1) + reading(2))
    first = prepare(path, DEBS2014, kept)
    first.path.write_bytes(first.path.read_bytes()[:-1])
    assert rows_of(prepare(path, DEBS2014, kept)) == [(0, BASE + 1, 1.5, 1, 0, 0, 0), (1, BASE + 2, 1.5, 1, 0, 0, 0)]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path, kept = tmp_path / "plugs.csv", tmp_path / "file"
    path.write_text(reading(1))
    kept.write_text("")
    with pytest.raises(UnfitError, match="file: the prepared recording cannot be written: File exists"):
        prepare(path, DEBS2014, kept)


# --- damage ----------------------------------------------------------------------------------------------------


def truncated(path: Path) -> None:
    random = Random(1)  # noqa: S311  rows that do not pack well
    whole = gzip.compress("".join(reading(at, f"{random.random()}") for at in range(5000)).encode())
    path.write_bytes(whole[: len(whole) // 2])


def flipped(path: Path) -> None:
    whole = bytearray(gzip.compress("".join(reading(at) for at in range(5000)).encode()))
    whole[-6] ^= 255  # a byte of the checksum
    path.write_bytes(bytes(whole))


DAMAGED: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda path: None, r"part: not there"),
    "empty": (lambda path: path.write_text(""), r"part: empty"),
    "packed nothing": (lambda path: path.write_bytes(gzip.compress(b"")), r"part: empty"),
    "truncated": (truncated, r"part: not a whole gzip file, damaged behind line \d+: "),
    "flipped": (flipped, r"part: not a whole gzip file, damaged in lines 1 to 5000: CRC check failed"),
    "no folder content": (lambda path: path.mkdir(), r"part: the folder has no file in it"),
    "binary": (lambda path: path.write_bytes(b"ab\nc\0d\n"), r"part:2: not text: it has a byte of value 0"),
    "a single line": (lambda path: path.write_bytes(b"1," * 2000), r"part: not text: a line of more than"),
    "other columns": (
        lambda path: path.write_text("1,2,3\n" * 5),
        r"part:1: no valid row: 3 fields, expected the 7 of debs2014 \(id,timestamp,value,",
    ),
    "no valid row": (
        lambda path: path.write_text("1,x,3,1,0,0,0\n" * 5),
        r"part:1: no valid row: '1,x,3,1,0,0,0' does not fit id,timestamp,",
    ),
    "truncated parquet": (lambda path: path.write_bytes(b"PAR1" + bytes(50)), r"part: not a whole Parquet file: "),
    "milliseconds": (
        lambda path: path.write_text("broken\n" + "".join(f"1,{BASE + at}000,1.5,1,0,0,0\n" for at in range(3))),
        r"part:2: timestamp is 1377986400000, expected seconds since 1970; these are milliseconds, divide them by 1000",
    ),
    "microseconds": (
        lambda path: path.write_text(f"1,{BASE}000000,1.5,1,0,0,0\n"),
        r"part:1: timestamp is 1377986400000000, expected seconds since 1970; these are microseconds",
    ),
    "a time far ahead": (
        lambda path: path.write_text(reading(1) + reading(2) + reading(40_000_000) + reading(40_000_001)),
        r"part:3: timestamp is 462 days later than that of any row before it",
    ),
}


@pytest.mark.parametrize("rows", [3, 20, 5000, 90_000])
@pytest.mark.parametrize("share", [0.4, 0.9])
def test_the_last_line_before_a_truncation_is_named_for_files_of_any_length(
    tmp_path: Path, rows: int, share: float
) -> None:
    random = Random(rows)  # noqa: S311  rows that do not pack well
    packed = gzip.compress("".join(reading(at, f"{random.random()}") for at in range(rows)).encode())
    path = tmp_path / "part"
    path.write_bytes(packed[: int(len(packed) * share)])
    whole = zlib.decompressobj(31).decompress(path.read_bytes()).count(b"\n")
    with pytest.raises(InputError, match=f"part: not a whole gzip file, damaged behind line {whole}: "):
        list(raw_files.blocks(path))
    assert whole > 0 or rows == 3


@pytest.mark.parametrize("rows", [20, 5000])
def test_the_last_line_before_invalid_compressed_data_is_named(tmp_path: Path, rows: int) -> None:
    text = "".join(reading(at) for at in range(rows)).encode() + b"1,1377"
    packer = zlib.compressobj(wbits=31)
    path = tmp_path / "part"
    # Complete blocks are followed by one of an unknown type.
    path.write_bytes(packer.compress(text) + packer.flush(zlib.Z_FULL_FLUSH) + b"\xff" * 100)
    with pytest.raises(InputError, match=f"damaged behind line {rows}: Error -3"):
        list(raw_files.blocks(path))


@pytest.mark.parametrize(("make", "message"), DAMAGED.values(), ids=list(DAMAGED))
def test_damaged_inputs_are_refused_with_their_name(
    make: Callable[[Path], object], message: str, tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw_files, "BLOCK_BYTES", 1000)
    path = tmp_path / "part"
    make(path)
    with pytest.raises(InputError, match=message) as caught:
        prepare(path, DEBS2014, kept)
    assert str(tmp_path) in str(caught.value)
    assert not kept.exists() or list(kept.iterdir()) == []


def test_a_file_of_another_schema_is_refused_without_reading_it_all(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw_files, "BLOCK_BYTES", 200_000)
    path = tmp_path / "part"
    path.write_text("1,2,3\n" * 100_000)
    shares: list[float] = []
    with (
        reporting_to(shares.append),
        pytest.raises(InputError, match="part:1: no valid row: 3 fields, expected the 17"),
    ):
        prepare(path, DEBS2015, kept, CELLS_500_M)
    assert shares == []


def test_trips_off_the_grid_are_counted_apart_from_malformed_ones(tmp_path: Path, kept: Path) -> None:
    trip = "a,b,2013-01-01 00:00:00,2013-01-01 00:01:00,60,1,0,0,0,0,CSH,1,0,0,0,0,1\n"
    path = tmp_path / "trips"
    path.write_text(trip * 3 + "x\n")
    assert refused(path, kept, DEBS2015) == (f"{path}: no valid row: 3 have an end off the grid, 1 are malformed")


@pytest.mark.parametrize(("late", "accepted"), [(1, True), (2, False)])
def test_more_than_one_percent_of_rows_out_of_order_is_refused_with_the_remedy(
    late: int, accepted: bool, tmp_path: Path, kept: Path
) -> None:
    path = tmp_path / "plugs.csv"
    lines = [reading(10)] * 50 + [reading(9)] * late + [reading(11)] * (50 - late)
    path.write_text("".join(lines))
    if accepted:
        found = prepare(path, DEBS2014, kept)
        assert (found.quarantined["out_of_order"], found.records) == (1, 99)
    else:
        assert refused(path, kept) == (
            f"{path}:51: the first of 2 rows, of 100, that are older than one before them; more than 1% is not "
            "accepted, and `millrace pipeline prepare` puts them in order"
        )


# Without line ends, bytes that are not text, and the first byte of gzip files.
LINES = st.lists(st.binary(max_size=6).map(lambda line: line.translate(None, b"\n\r\0\x1f")), max_size=12)


@given(
    LINES,
    st.sampled_from([b"\n", b"\r\n"]),
    st.booleans(),
    st.booleans(),
    st.lists(st.integers(4, 100), max_size=6, unique=True),
    st.integers(12, 40),
)
def test_stretches_have_together_the_lines_of_the_whole_file(
    lines: list[bytes], end: bytes, marked: bool, ended: bool, cuts: list[int], block_bytes: int
) -> None:
    content = BYTE_ORDER_MARK * marked + end.join(lines) + end * ended
    with TemporaryDirectory() as folder, patch("workloads.recordings.raw_files.BLOCK_BYTES", block_bytes):
        path = Path(folder) / "part"
        path.write_bytes(content)
        whole = b"".join(block for block, _ in blocks(path))
        bounds = [0, *sorted(cut for cut in cuts if cut < len(content)), None]
        found = [block for begin, stop in pairwise(bounds) for block, _ in blocks(path, begin or 0, stop)]
        assert b"".join(found) == whole
        assert all(block.endswith(b"\n") for block in found)
