"""Raw rows of recordings with edge cases: odd numbers, coordinates, dates, and wrong numbers of fields."""

from hypothesis import strategies as st

from workloads.recordings.schema import DEBS2014, Schema

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
