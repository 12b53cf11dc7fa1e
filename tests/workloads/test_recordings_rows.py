"""Accepted rows of recordings, and their values: the same as row by row in plain Python, for any content."""

import gzip
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from edge_case_rows import COORDINATES, DATES, EDGE_CASES, READING, TRIP, classify_rows, lines
from hypothesis import assume, example, given
from hypothesis import strategies as st

from inventory.errors import InputError
from workloads.recordings import raw_files as parts
from workloads.recordings.parse import exact_nano, seconds
from workloads.recordings.prepare import prepare
from workloads.recordings.recording import Recording
from workloads.recordings.schema import CELLS_250_M, CELLS_500_M, DEBS2014, DEBS2015, SCHEMAS, Grid, Schema
from workloads.workload import PreparedInput


@st.composite
def files(draw: st.DrawFn, schema: Schema) -> tuple[bytes, int]:
    """Draw the content of a file, and the size of the blocks in which it is read."""
    ends = draw(st.sampled_from([b"\n", b"\r\n"]))
    text = b"".join(line + ends for line in draw(st.lists(lines(schema), min_size=1, max_size=25)))
    if draw(st.booleans()):
        text = text.removesuffix(ends)
    mark = draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
    assume(not text.startswith((b"PAR1", b"\x1f\x8b")))  # would be read as Parquet or gzip
    return mark + text, draw(st.sampled_from([400, 1000, 1 << 20]))


def prepared(path: Path, schema: Schema, grid: Grid | None = None) -> tuple[PreparedInput, list[tuple[Any, ...]]]:
    found = prepare(path, schema, path.parent / "prepared", grid)
    recording = Recording(found.path)
    assert recording.rows == found.records
    return found, list(zip(*recording.take(found.records + 1), strict=True))


def check(content: bytes, block: int, schema: Schema, grid: Grid | None) -> None:
    rows, bad, count = classify_rows([content], schema.name, grid.side if grid else 300)
    with (
        TemporaryDirectory() as folder,
        patch.object(parts, "BLOCK_BYTES", block),
        patch("workloads.recordings.prepare.MOST_OUT_OF_ORDER", 1.0),
        patch("workloads.recordings.prepare.MOST_GAP_S", 1 << 62),
    ):
        path = Path(folder) / "part"
        path.write_bytes(content)
        if not rows:
            with pytest.raises(InputError):
                prepared(path, schema, grid)
            return
        found, taken = prepared(path, schema, grid)
        assert found.quarantined == bad
        assert f", {count:,} rows)" in found.origin
        assert taken == rows


@given(files(DEBS2014))
def test_readings_are_accepted_or_quarantined_as_row_by_row(file: tuple[bytes, int]) -> None:
    check(*file, DEBS2014, None)


@given(files(DEBS2015), st.sampled_from([CELLS_500_M, CELLS_250_M]))
def test_trips_are_accepted_or_quarantined_as_row_by_row(file: tuple[bytes, int], grid: Grid) -> None:
    check(*file, DEBS2015, grid)


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=list(SCHEMAS))
def test_every_edge_case_in_every_field_is_parsed_as_row_by_row(schema: Schema) -> None:
    row = READING if schema is DEBS2014 else TRIP
    made = [
        [*row[:at], odd, *row[at + 1 :]]
        for at in range(len(row))
        for odd in dict.fromkeys([*EDGE_CASES, *COORDINATES, *(DATES if schema is DEBS2015 else ())])
    ]
    content = "".join(",".join(fields) + "\n" for fields in [row, *made]).encode()
    for block in (400, 5000, 1 << 20):
        check(content, block, schema, CELLS_500_M if schema is DEBS2015 else None)


@given(
    st.one_of(
        st.decimals(allow_nan=False, allow_infinity=False).map(str),
        st.tuples(st.sampled_from("+-"), st.text("0123456789", min_size=1), st.text("0123456789")).map(
            lambda parts: f"{parts[0]}{parts[1]}.{parts[2]}"
        ),
    )
)
@example("-0.0000000001")
@example("-1E-30000")
@example("9E30000")
def test_nanodegrees_are_rounded_down_from_the_text(text: str) -> None:
    nano = exact_nano(text)
    if -(1 << 62) < nano < 1 << 62 and abs(Decimal(text)) > Decimal("1e-300"):
        assert nano == Fraction(text) * 10**9 // 1
    elif abs(Decimal(text)) <= Decimal("1e-300"):
        assert nano == (-1 if Decimal(text) < 0 else 0)
    else:
        assert (nano > 0) == (Decimal(text) > 0)


NEARLY_DATES = [
    *(
        "2013-01-01 10-05:00",
        "0000-01-01 00:00:00",
        "0001-01-01 00:00:00",
        "2013-02-29 00:00:00",
        "2012-02-29 23:59:59",
    ),
    *(
        "2013-01-01 24:00:00",
        "2013-01-01 23:59:60",
        "9999-12-31 23:59:59",
        "2013-01-01-10:00:00",
        "20130101 10:00:00  ",
    ),
    *("2013-01-01 10:00:0 ", "-2013-01-1 10:00:00", "2013-01-01T10:00:00", "2013-01-01 10:00", "1969-12-31 23:59:59"),
]


@given(st.lists(st.one_of(st.datetimes().map(lambda at: f"{at:%Y-%m-%d %H:%M:%S}"), st.sampled_from(NEARLY_DATES))))
def test_a_time_is_valid_exactly_in_the_official_format(texts: list[str]) -> None:
    values, valid = seconds(pa.array([text.encode() for text in texts], pa.binary()))
    for text, value, is_time in zip(texts, values, valid, strict=True):
        try:
            at = datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
        except ValueError:
            assert not is_time, text
        else:
            assert is_time, text
            assert value == (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)


def test_the_real_extracts_have_the_known_numbers_of_bad_rows(shared_data: Path, tmp_path: Path) -> None:
    trips = shared_data / "debs2015" / "trips-first-56min.csv.gz"
    raw = gzip.decompress(trips.read_bytes())
    for grid in (CELLS_500_M, CELLS_250_M):
        found = prepare(trips, DEBS2015, tmp_path, grid)
        rows, bad, _ = classify_rows([raw], "debs2015", grid.side)
        assert found.quarantined == bad == {"malformed": 0, "outlier": 178, "out_of_order": 0}
        assert list(zip(*Recording(found.path).take(20_000), strict=True)) == rows
    plugs = shared_data / "debs2014" / "all-houses-first10000.csv.gz"
    found = prepare(plugs, DEBS2014, tmp_path)
    rows, bad, _ = classify_rows([gzip.decompress(plugs.read_bytes())], "debs2014")
    assert found.quarantined == bad
    assert list(zip(*Recording(found.path).take(20_000), strict=True)) == rows


@given(st.integers(-(1 << 61), 1 << 61), st.sampled_from([CELLS_500_M, CELLS_250_M]))
@example(-74_913_585_000 - 2_993_000, CELLS_500_M)
@example(-74_913_585_000 - 2_993_001, CELLS_500_M)
@example(41_474_937_000 + 2_245_778, CELLS_500_M)
@example(41_474_937_000 + 1_122_889, CELLS_250_M)
@example(41_474_937_000 + 1_122_890, CELLS_250_M)
def test_northern_and_western_borders_belong_to_a_cell(nano: int, grid: Grid) -> None:
    half = 300 * 2_993_000 // grid.side, 300 * 2_245_778 // grid.side
    assert grid.x(nano) == (nano + 74_913_585_000 + half[0]) // (2 * half[0]) + 1
    assert grid.y(nano) == (41_474_937_000 - nano + half[1]) // (2 * half[1]) + 1
