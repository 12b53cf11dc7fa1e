"""Latencies of a run in HdrHistogram's log format (`latency.hlog`).

Each line covers one sink executor (the tag) and about one second: begin and length in seconds, the largest latency in
ms, and the compressed histogram in ns. The buckets of the traces are those of a histogram with two significant digits,
so the conversion is lossless. https://github.com/HdrHistogram/HdrHistogram: log format 1.3, encoding V2.
"""

import base64
import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import pyarrow.parquet

from inventory.foreign import printable
from inventory.times import NS

LATENCY_LOG = "latency.hlog"
"""Name of the file in the run's folder."""

_HEAD = Struct(">iiiiqqd")
_COMPRESSED = Struct(">ii")
_COOKIE, _COMPRESSED_COOKIE = 0x1C849313, 0x1C849314
_DIGITS = 2
_HALF_BITS = 7
"""Bits of the bucket index within a power of two, for two significant digits."""

_LOWEST, _HIGHEST = 1, 1 << 62

_LEGEND = '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"'


def encoded(counts: Mapping[int, int]) -> str:
    """Return a histogram as a field of a log line.

    Args:
        counts: any value of a bucket, in ns -> its count.
    """
    by_place: dict[int, int] = {}
    for value, count in counts.items():
        place = _place(value)
        by_place[place] = by_place.get(place, 0) + count
    payload, next_place = bytearray(), 0
    for place, count in sorted(by_place.items()):
        # A run of empty buckets is written as its negative length.
        if place > next_place:
            payload += _zigzag(next_place - place if place > next_place + 1 else 0)
        payload += _zigzag(count)
        next_place = place + 1
    head = _HEAD.pack(_COOKIE, len(payload), 0, _DIGITS, _LOWEST, _HIGHEST, 1.0)
    packed = zlib.compress(head + bytes(payload))
    return base64.b64encode(_COMPRESSED.pack(_COMPRESSED_COOKIE, len(packed)) + packed).decode()


def _place(value: int) -> int:
    """Return the index of a value's bucket in a histogram's array."""
    shift = max(0, value.bit_length() - _HALF_BITS - 1)
    return (shift << _HALF_BITS) + (value >> shift)


def _zigzag(number: int) -> bytes:
    """Encode a number in seven bits per byte, lowest first, with its sign in the lowest bit."""
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    written = bytearray()
    while rest > 0x7F:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    written.append(rest)
    return bytes(written)


def write_latency_log(
    traces: Path,
    target: Path,
    start_ns: int,
    start_utc: datetime,
    measured_ns: tuple[int, int],
    offsets: Mapping[str, int],
) -> None:
    """Write the table `latency` of `traces` to `target`.

    Args:
        traces: folder of `<table>.parquet`.
        target: the file.
        start_ns: start of the sources on the controller's monotonic clock; times in the log are relative to it.
        start_utc: the same time in UTC.
        measured_ns: begin and end of the measured interval, on the controller's monotonic clock.
        offsets: node -> its monotonic clock minus the controller's, in ns.

    Raises:
        OSError: the file cannot be written.
    """
    begin_s, end_s = ((at_ns - start_ns) / NS for at_ns in measured_ns)
    when = start_utc.astimezone(UTC).isoformat(timespec="milliseconds")
    with target.open("w") as file:
        for line in (
            "#[Latencies from intended emission to sink, in ns; tags are sink executors]",
            "#[Histogram log format version 1.3]",
            f"#[StartTime: {start_utc.timestamp():.3f} (seconds since epoch), {when}]",
            f"#[Measured interval: {begin_s:.3f} to {end_s:.3f}]",
            _LEGEND,
            *(interval.line for interval in sorted(_intervals(traces / "latency.parquet", start_ns, offsets))),
        ):
            file.write(f"{line}\n")


class _Interval(NamedTuple):
    begin_ns: int
    executor: str
    line: str


def _intervals(table: Path, start_ns: int, offsets: Mapping[str, int]) -> Iterator[_Interval]:
    last: dict[tuple[str, int, str], int] = {}
    for (node, worker, executor, t_ns), rows in groupby(_rows(table), lambda row: row[:4]):
        end_ns = t_ns - offsets.get(node, 0) - start_ns
        writer = (node, worker, executor)
        begin_ns = max(0, min(end_ns, last.get(writer, end_ns - NS)))
        last[writer] = end_ns
        counts = dict(row[4:] for row in rows)
        length_s = max(0, end_ns - begin_ns) / NS
        tag = printable(executor).replace(",", "_").replace(" ", "_")
        text = f"Tag={tag},{begin_ns / NS:.3f},{length_s:.3f},{max(counts) / 1e6:.3f},{encoded(counts)}"
        yield _Interval(begin_ns, executor, text)


def _rows(table: Path) -> Iterator[tuple[str, int, str, int, int, int]]:
    """Yield node, worker, executor, time, value, count; rows of one executor and time are adjacent."""
    columns = ["node", "worker", "executor", "t_ns", "value_ns", "count"]
    with pyarrow.parquet.ParquetFile(table) as file:
        for batch in file.iter_batches(columns=columns):
            yield from zip(*(batch[name].to_pylist() for name in columns), strict=True)
