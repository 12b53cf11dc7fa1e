"""Which rows of a recording go on, and as what: the same as row by row in plain Python, whatever stands in a file."""

import gzip
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from plain_recordings import plain_rows

from inventory.errors import InputError
from workloads.recordings import parts
from workloads.recordings.fields import exact_nano
from workloads.recordings.grid import CELLS_250_M, CELLS_500_M, Grid
from workloads.recordings.prepare import prepare
from workloads.recordings.recording import Recording
from workloads.recordings.schema import DEBS2014, DEBS2015, SCHEMAS, Schema
from workloads.workload import PreparedInput

READING = ["7", "1377986401", "3.216", "1", "4", "0", "12"]
TRIP = [
    *("07290D3599E7A0D62097A346EFCC1FB5", "E7750A37CAB07D0DFF0AF7E3573AC141", "2013-01-01 00:00:00"),
    *("2013-01-01 00:02:00", "120", "0.44", "-73.956528", "40.716976", "-73.962440", "40.715008", "CSH"),
    *("3.50", "0.50", "0.50", "0.00", "0.00", "4.50"),
]

ODD = [
    *(
        "",
        " ",
        "x",
        "1 ",
        " 1",
        "+1",
        "-1",
        "0",
        "-0",
        "1.5",
        "1.",
        ".5",
        ".",
        "-",
        "+",
        "1e2",
        "1E-2",
        "1e",
        "e1",
        "nan",
    ),
    *(
        "inf",
        "-Infinity",
        "1e400",
        "-1e400",
        "1e300",
        "-1e300",
        "1e-400",
        "-1e-400",
        "0x10",
        "1_000",
        "1,5",
        "١",
        '"1"',
    ),
    *(
        "000000000000000000001",
        "123456789012345678",
        "1234567890123456789",
        "99999999999999999999",
        "1\r",
        "\r",
        "\ufeff1",
    ),
    *("2", "255", "256", "300", "4294967296", "é", "true", "NULL", "NA", "1;2", "--1", "1-2", "1.2.3", "+1.5", "+-1"),
]
PLACES = [
    *(
        "-74.913585",
        "41.474937",
        "-74.916578",
        "-74.9165780001",
        "-74.916577999999999999",
        "41.477182778",
        "41.4771827781",
    ),
    *(
        "-73.123585",
        "-73.117599",
        "-73.1175990000000000000000001",
        "-73.95652800",
        "-73.9565280001",
        "-7.3956528e1",
        "40",
    ),
    *(
        "40.7169760000000000001",
        "-73.98175048828125",
        "0.000000",
        "-0.0",
        "0",
        "181",
        "1e-9",
        "-1e-10",
        "39.5",
        "40.12700",
    ),
]
DATES = [
    *("2013-01-01 00:02:00", "2013-01-01 00:02:59", "2013-1-1 00:02:00", "2013-02-29 10:00:00", "2012-02-29 10:00:00"),
    *("2013-01-01T00:02:00", "2013-01-01 24:00:00", "2013-01-01 23:59:60", "2013-01-01 00:02", "0000-01-01 00:00:00"),
    *(
        "2013-01-01 00:02:00.5",
        "2013-13-01 00:00:00",
        "2013-01-01  0:02:00",
        "2013-01-01 00:01:59",
        "2013-01-01 00:02:0a",
    ),
]


def field_of(schema: Schema, at: int, ordinary: str) -> st.SearchStrategy[str]:
    if schema.fields[at].endswith("tude"):
        return st.sampled_from([ordinary] * 4 + PLACES + ODD)
    if schema.fields[at].endswith("datetime"):
        return st.sampled_from([ordinary] * 4 + DATES + ODD)
    if schema.fields[at] == "timestamp":
        return st.sampled_from([str(1377986395 + step) for step in range(12)] * 4 + ODD)
    return st.one_of(st.just(ordinary), st.sampled_from(ODD), st.text("0123456789.-+eE ", max_size=12))


@st.composite
def lines(draw: st.DrawFn, schema: Schema) -> bytes:
    """A line that is often right, and else wrong in a few of many ways."""
    row = list(READING if schema is DEBS2014 else TRIP)
    time = schema.fields.index("timestamp" if schema is DEBS2014 else "dropoff_datetime")
    step = draw(st.integers(0, 50))
    row[time] = str(1377986401 + step) if schema is DEBS2014 else f"2013-01-01 00:{step:02}:00"
    for at in draw(st.lists(st.integers(0, len(row) - 1), max_size=3)):
        row[at] = draw(field_of(schema, at, row[at]))
    line = ",".join(row).encode()
    kind = draw(st.sampled_from(["whole"] * 12 + ["short", "long", "blank", "bytes", "other"]))
    if kind == "short":
        return line.rsplit(b",", 1)[0]
    if kind == "long":
        return line + b",1"
    if kind == "bytes":
        return line.replace(b"0", b"\xff", 1)
    if kind == "other":
        return draw(st.binary(max_size=30)).translate(None, b"\n\0")
    return b"" if kind == "blank" else line


@st.composite
def files(draw: st.DrawFn, schema: Schema) -> tuple[bytes, int]:
    """A file's content, and the size of the blocks in which it is to be read."""
    ends = draw(st.sampled_from([b"\n", b"\r\n"]))
    text = b"".join(line + ends for line in draw(st.lists(lines(schema), min_size=1, max_size=25)))
    if draw(st.booleans()):
        text = text.removesuffix(ends)
    mark = draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
    return mark + text, draw(st.sampled_from([400, 1000, 1 << 20]))


def prepared(path: Path, schema: Schema, grid: Grid | None = None) -> tuple[PreparedInput, list[tuple[Any, ...]]]:
    found = prepare(path, schema, path.parent / "prepared", grid)
    recording = Recording(found.path)
    assert recording.rows == found.records
    return found, list(zip(*recording.take(found.records + 1), strict=True))


def check(content: bytes, block: int, schema: Schema, grid: Grid | None) -> None:
    rows, bad, count = plain_rows([content], schema.name, grid.side if grid else 300)
    with (
        TemporaryDirectory() as folder,
        patch.object(parts, "BLOCK_BYTES", block),
        patch("workloads.recordings.prepare.MOST_OUT_OF_ORDER", 1.0),
        patch("workloads.recordings.accept.MOST_GAP_S", 1 << 62),
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


@settings(max_examples=100)
@given(files(DEBS2014))
def test_readings_go_on_or_are_kept_back_as_they_are_row_by_row(file: tuple[bytes, int]) -> None:
    check(*file, DEBS2014, None)


@settings(max_examples=100)
@given(files(DEBS2015), st.sampled_from([CELLS_500_M, CELLS_250_M]))
def test_trips_go_on_or_are_kept_back_as_they_are_row_by_row(file: tuple[bytes, int], grid: Grid) -> None:
    check(*file, DEBS2015, grid)


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=list(SCHEMAS))
def test_every_odd_field_in_every_place_is_what_it_is_row_by_row(schema: Schema) -> None:
    row = READING if schema is DEBS2014 else TRIP
    made = [
        [*row[:at], odd, *row[at + 1 :]]
        for at in range(len(row))
        for odd in dict.fromkeys([*ODD, *PLACES, *(DATES if schema is DEBS2015 else ())])
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


def test_the_real_extracts_have_the_bad_rows_that_were_counted_in_them(shared_data: Path, tmp_path: Path) -> None:
    trips = shared_data / "debs2015" / "trips-first-56min.csv.gz"
    raw = gzip.decompress(trips.read_bytes())
    for grid in (CELLS_500_M, CELLS_250_M):
        found = prepare(trips, DEBS2015, tmp_path, grid)
        rows, bad, _ = plain_rows([raw], "debs2015", grid.side)
        assert found.quarantined == bad == {"malformed": 0, "outlier": 178, "out_of_order": 0}
        assert list(zip(*Recording(found.path).take(20_000), strict=True)) == rows
    plugs = shared_data / "debs2014" / "all-houses-first10000.csv.gz"
    found = prepare(plugs, DEBS2014, tmp_path)
    rows, bad, _ = plain_rows([gzip.decompress(plugs.read_bytes())], "debs2014")
    assert found.quarantined == bad
    assert list(zip(*Recording(found.path).take(20_000), strict=True)) == rows


@given(st.integers(-(1 << 61), 1 << 61), st.sampled_from([CELLS_500_M, CELLS_250_M]))
@example(-74_913_585_000 - 2_993_000, CELLS_500_M)
@example(-74_913_585_000 - 2_993_001, CELLS_500_M)
@example(41_474_937_000 + 2_245_778, CELLS_500_M)
@example(41_474_937_000 + 1_122_889, CELLS_250_M)
@example(41_474_937_000 + 1_122_890, CELLS_250_M)
def test_a_cells_northern_and_western_borders_belong_to_it(nano: int, grid: Grid) -> None:
    half = 300 * 2_993_000 // grid.side, 300 * 2_245_778 // grid.side
    assert grid.x(nano) == (nano + 74_913_585_000 + half[0]) // (2 * half[0]) + 1
    assert grid.y(nano) == (41_474_937_000 - nano + half[1]) // (2 * half[1]) + 1
