"""Raw rows of recordings with edge cases (odd numbers, coordinates, dates, numbers of fields), and their classes."""

import datetime
import re
from collections import Counter
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from workloads.recordings.schema import DEBS2014, Schema

NUMBER = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(?:[eE]([+-]?\d+))?", re.ASCII)
WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)

Found = tuple[list[tuple[Any, ...]], dict[str, int], int]
"""Valid rows preceded by their numbers, rejected rows per class, and the number of all rows."""


class RejectedRowError(Exception):
    """Rejected row; the argument is its class."""


def classify_rows(parts: list[bytes], kind: str, cells: int = 300) -> Found:
    """Classify the rows of parts that are in order.

    Args:
        parts: contents of unpacked files.
        kind: `debs2014` or `debs2015`.
        cells: cells of the grid in each direction; the grid is 150 km wide.
    """
    valid, bad, newest, number = [], Counter[str](), None, 0
    for part in parts:
        for line in _lines(part):
            try:
                time, row = _reading(line) if kind == "debs2014" else _trip(line, cells)
                if newest is not None and time < newest:
                    raise RejectedRowError("out_of_order")
                newest = time
                valid.append((number, *row))
            except RejectedRowError as fault:
                bad[str(fault)] += 1
            number += 1
    return valid, {name: bad[name] for name in ("malformed", "outlier", "out_of_order")}, number


def _lines(part: bytes) -> list[bytes]:
    lines = part.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return [line[:-1] if line.endswith(b"\r") else line for line in lines]


def _fields(line: bytes, count: int) -> list[str]:
    fields = line.split(b",")
    if len(fields) != count or b"\r" in line:
        raise RejectedRowError("malformed")
    return [field.decode("utf-8", "replace") for field in fields]


def _whole(text: str) -> int:
    if not WHOLE.fullmatch(text) or int(text) < 0:
        raise RejectedRowError("malformed")
    return int(text)


def _number(text: str) -> Fraction:
    match = NUMBER.fullmatch(text)
    if match is None or float(text) in (float("inf"), -float("inf")):
        raise RejectedRowError("malformed")
    if abs(float(text)) < 1e-300:
        # A fraction with that many digits is too slow; only its sign matters.
        return Fraction(0) if not re.search("[1-9]", match[2]) else Fraction(-1 if match[1] == "-" else 1, 10**300)
    return Fraction(text)


def _date(text: str) -> int:
    match = re.fullmatch(r"(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)", text, re.ASCII)
    if match is None:
        raise RejectedRowError("malformed")
    try:
        moment = datetime.datetime(*map(int, match.groups()), tzinfo=datetime.UTC)  # type: ignore[misc]
    except ValueError:
        raise RejectedRowError("malformed") from None
    return int(moment.timestamp())


def _reading(line: bytes) -> tuple[int, tuple[Any, ...]]:
    fields = _fields(line, 7)
    _, time, kind, plug, household, house = (_whole(fields[at]) for at in (0, 1, 3, 4, 5, 6))
    _number(fields[2])
    if float(fields[2]) < 0 or kind > 1:
        raise RejectedRowError("malformed")
    return time, (time, float(fields[2]), kind, plug, household, house)


def _trip(line: bytes, cells: int) -> tuple[int, tuple[Any, ...]]:
    fields = _fields(line, 17)
    if not fields[0] or not fields[1] or "\ufffd" in fields[0]:
        raise RejectedRowError("malformed")
    pickup, dropoff = _date(fields[2]), _date(fields[3])
    ends = [_number(text) * 10**9 // 1 for text in fields[6:10]]
    money = [_number(fields[at]) for at in (11, 14)]
    if any(abs(amount) > 10**9 for amount in money):
        raise RejectedRowError("malformed")
    for longitude, latitude in (ends[:2], ends[2:]):
        x = (longitude + 74_913_585_000 + 2_993_000 * 300 // cells) // (5_986_000 * 300 // cells) + 1
        y = (41_474_937_000 - latitude + 2_245_778 * 300 // cells) // (4_491_556 * 300 // cells) + 1
        if not (1 <= x <= cells and 1 <= y <= cells):
            raise RejectedRowError("outlier")
    return dropoff, (fields[0], pickup, dropoff, *map(int, ends), *(int(amount * 10**9 // 1) for amount in money))


READING = ["7", "1377986401", "3.216", "1", "4", "0", "12"]
TRIP = [
    *("07290D3599E7A0D62097A346EFCC1FB5", "E7750A37CAB07D0DFF0AF7E3573AC141", "2013-01-01 00:00:00"),
    *("2013-01-01 00:02:00", "120", "0.44", "-73.956528", "40.716976", "-73.962440", "40.715008", "CSH"),
    *("3.50", "0.50", "0.50", "0.00", "0.00", "4.50"),
]

EDGE_CASES = [
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
COORDINATES = [
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


def edge_case_field(schema: Schema, at: int, ordinary: str) -> st.SearchStrategy[str]:
    if schema.fields[at].endswith("tude"):
        return st.sampled_from([ordinary] * 4 + COORDINATES + EDGE_CASES)
    if schema.fields[at].endswith("datetime"):
        return st.sampled_from([ordinary] * 4 + DATES + EDGE_CASES)
    if schema.fields[at] == "timestamp":
        return st.sampled_from([str(1377986395 + step) for step in range(12)] * 4 + EDGE_CASES)
    return st.one_of(st.just(ordinary), st.sampled_from(EDGE_CASES), st.text("0123456789.-+eE ", max_size=12))


@st.composite
def lines(draw: st.DrawFn, schema: Schema) -> bytes:
    """Draw a line that is often valid, and otherwise invalid in up to three fields or as a whole."""
    row = list(READING if schema is DEBS2014 else TRIP)
    time = schema.fields.index("timestamp" if schema is DEBS2014 else "dropoff_datetime")
    step = draw(st.integers(0, 50))
    row[time] = str(1377986401 + step) if schema is DEBS2014 else f"2013-01-01 00:{step:02}:00"
    for at in draw(st.lists(st.integers(0, len(row) - 1), max_size=3)):
        row[at] = draw(edge_case_field(schema, at, row[at]))
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
