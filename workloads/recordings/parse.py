"""Blocks of raw lines to rows: columns of text to columns of numbers, without malformed lines.

Functions on columns take a binary Arrow array without nulls and return values and a mask of validity, both NumPy
arrays; invalid values are arbitrary. The patterns below alone define numbers; fast paths rely on most fields being
ordinary.

Rounding: a decimal of at most 9 places and its double, times 10^9, differ by less than half as long as the product is
below 2^41, so that rounding to the nearest whole number is exact. With more places, rounding down is right unless the
product is near a whole number; then, and where it is larger, the text decides.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from workloads.recordings.raw_files import BYTE_ORDER_MARK
from workloads.recordings.schema import DEBS2014, DEBS2015, NANO, SEQ, Schema

Values = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

DIGITS = 18
WHOLE = rf"^[+-]?[0-9]{{1,{DIGITS}}}$"
"""A whole number; numbers with more digits are malformed."""

NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
"""A decimal number; it is finite when its double is."""

DATE = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}")

DATE_CHARACTERS = 19

_FIRST = int((datetime.min - datetime(1970, 1, 1)).total_seconds())  # noqa: DTZ001 DTZ901  official times have no zone
_EXACT = float(1 << 41)
_NEAR = 1e-3
_MOST = 1 << 62
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  official times have no zone
_DECIMALS = Context(prec=400, rounding=ROUND_FLOOR)


def whole_numbers(texts: pa.Array) -> tuple[Values, Mask]:
    """Return whole numbers as int64."""
    short = len(texts) == 0 or pc.max(pc.binary_length(texts)).as_py() <= DIGITS
    return _numbers(texts, pa.int64(), b"0123456789-" if short else b"", WHOLE)


def numbers(texts: pa.Array) -> tuple[Values, Mask]:
    """Return finite decimal numbers as doubles."""
    values, valid = _numbers(texts, pa.float64(), b"0123456789-.", NUMBER)
    return values, valid & np.isfinite(values)


def nano(texts: pa.Array) -> tuple[Values, Mask]:
    """Return finite decimal numbers in whole billionths, rounded down, as int64.

    Values beyond +-2^62 are limited to it.
    """
    doubles, valid = numbers(texts)
    scaled = np.clip(np.where(valid, doubles, 0.0), -_EXACT, _EXACT) * NANO
    nearest = np.rint(scaled)
    size = np.abs(scaled)
    # A text of this length cannot have more than 9 places, unless it has an exponent.
    most = 10 + (doubles < 0) + (size >= 10 * NANO) + (size >= 100 * NANO)
    short = pc.binary_length(texts).to_numpy() <= most
    if not _made_of(texts, b"0123456789-."):
        short &= ~pc.match_substring_regex(texts, "[eE+]").to_numpy(zero_copy_only=False)
    near = np.abs(scaled - nearest) < _NEAR
    doubtful = (size >= _EXACT) | (near & ~short)
    exact = np.where(near, nearest, np.floor(scaled))
    values = np.where(doubtful, 0.0, exact).astype(np.int64)
    for at in np.flatnonzero(doubtful & valid):
        values[at] = exact_nano(texts[int(at)].as_py().decode())
    return values, valid


def exact_nano(text: str) -> int:
    """Return a finite decimal number in whole billionths, rounded down, at most +-2^62."""
    if float(text) == 0:
        # Only these numbers have exponents that a Decimal does not accept.
        is_zero = not re.search("[1-9]", text.lower().partition("e")[0])
        return 0 if is_zero or text[0] != "-" else -1
    value = Decimal(text)
    if value.copy_abs() >= _MOST // NANO:
        return -_MOST if value < 0 else _MOST
    return int(value.scaleb(9, _DECIMALS).to_integral_value(ROUND_FLOOR))


def seconds(texts: pa.Array) -> tuple[Values, Mask]:
    """Return times `YYYY-MM-DD hh:mm:ss` in seconds since 1970, taken as UTC."""
    if _made_of(texts, b"0123456789-: ") and pc.all(pc.equal(pc.binary_length(texts), DATE_CHARACTERS)).as_py():
        try:
            # With this length and these characters, only a time without a zone is valid; but Arrow has a year 0.
            times: Values = texts.cast(pa.string()).cast(pa.timestamp("s")).cast(pa.int64()).to_numpy()
            return times, times >= _FIRST
        except pa.ArrowInvalid:
            pass
    encoded = texts.dictionary_encode()
    known = [_seconds(text) for text in encoded.dictionary.to_pylist()]
    places = encoded.indices.to_numpy()
    values = np.array([0 if one is None else one for one in known], np.int64)
    valid = np.array([one is not None for one in known], np.bool_)
    return values[places], valid[places]


def _seconds(text: bytes) -> int | None:
    if not DATE.fullmatch(text):
        return None
    try:
        since = datetime.fromisoformat(text.decode()) - _EPOCH
    except ValueError:
        return None
    return since.days * 86400 + since.seconds


def _numbers(texts: pa.Array, kind: pa.DataType, ordinary: bytes, pattern: str) -> tuple[Values, Mask]:
    if _made_of(texts, ordinary):
        try:
            return _cast(texts, kind), np.ones(len(texts), np.bool_)
        except pa.ArrowInvalid:
            pass
    matched = pc.match_substring_regex(texts, pattern)
    values = _cast(pc.replace_substring(pc.if_else(matched, texts, b"0"), b"+", b""), kind)
    return values, matched.to_numpy(zero_copy_only=False)


def _cast(texts: pa.Array, kind: pa.DataType) -> Values:
    # All remaining bytes are ASCII.
    values: Values = texts.cast(pa.string()).cast(kind).to_numpy()
    return values


def _made_of(texts: pa.Array, ordinary: bytes) -> bool:
    _, offsets, data = texts.buffers()
    if data is None:
        return True
    bounds = np.frombuffer(offsets, np.int32)
    used = memoryview(data)[bounds[texts.offset] : bounds[texts.offset + len(texts)]]
    return not bytes(used).translate(None, ordinary)


MOST_DOLLARS = 1_000_000_000
"""Maximum fare."""


@dataclass(frozen=True)
class Rows:
    """Rows of a block that are not malformed, in order.

    Attributes:
        table: the schema's columns, `seq` first.
        lines: number of lines in the block, each a row of the input.
        read: bytes of the part's file read so far.
    """

    table: pa.Table
    lines: int
    read: int = 0

    @property
    def malformed(self) -> int:
        """Number of malformed rows."""
        return self.lines - len(self.table)


def parse_block(schema: Schema, block: bytes, first: int, read: int = 0) -> Rows:
    """Return the rows of `block`, whose first line is row number `first` of the input; `read` is returned with them."""
    # Several times as fast as `bytes.count`.
    lines = int(np.count_nonzero(np.frombuffer(block, np.uint8) == ord("\n")))
    seq = np.arange(first, first + lines)
    try:
        texts = _texts(schema, block)
    except pa.ArrowInvalid:
        texts = None
    if texts is None or len(texts) != lines or b"\r" in block:
        kept = [_is_row(line, len(schema.fields)) for line in block.split(b"\n")[:-1]]
        seq = seq[np.array(kept, np.bool_)]
        good = [line for line, is_row in zip(block.split(b"\n"), kept, strict=False) if is_row]
        texts = _texts(schema, b"".join([line + b"\n" for line in good])) if good else None
    if texts is None:
        return Rows(arrow_schema(schema).empty_table(), lines, read)
    columns = {name: texts.column(name).combine_chunks() for name in texts.column_names}
    values, valid = _PARSERS[schema.name](columns)
    if not valid.all():
        seq = seq[valid]
        values = {name: column.filter(pa.array(valid)) for name, column in values.items()}
    return Rows(pa.table({SEQ: seq, **values}, arrow_schema(schema)), lines, read)


def has_columns(schema: Schema, block: bytes) -> bool:
    """Return whether any line has as many fields as a row."""
    return any(_is_row(line, len(schema.fields)) for line in block.split(b"\n"))


def first_is(schema: Schema, block: bytes) -> str:
    """Return a description of the first line of a block, which is malformed."""
    line = block.partition(b"\n")[0]
    fields = line.split(b",")
    if len(fields) != len(schema.fields):
        return f"{len(fields)} fields, expected the {len(schema.fields)} of {schema.name} ({','.join(schema.fields)})"
    return f"{line[:200].decode(errors='replace')!r} does not fit {','.join(schema.fields)}"


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of a prepared file."""
    columns = {SEQ: "int64", **schema.columns}
    return pa.schema([pa.field(name, pa.type_for_alias(kind), nullable=False) for name, kind in columns.items()])


def _texts(schema: Schema, block: bytes) -> pa.Table:
    """Return the fields that matter, as they stand there."""
    wanted = CHECKED[schema.name]
    if block.startswith(BYTE_ORDER_MARK):
        # Arrow removes one at the beginning of its input, but this one is inside the file.
        block = BYTE_ORDER_MARK + block
    return csv.read_csv(
        pa.BufferReader(block),
        read_options=csv.ReadOptions(column_names=schema.fields, block_size=len(block) + 1, use_threads=False),
        parse_options=csv.ParseOptions(quote_char=False, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(wanted, pa.binary()), include_columns=wanted, strings_can_be_null=False
        ),
    )


def _is_row(line: bytes, fields_expected: int) -> bool:
    return line.count(b",") == fields_expected - 1 and b"\r" not in line


def _reading(texts: Mapping[str, pa.Array]) -> tuple[dict[str, pa.Array], Mask]:
    columns, valid = {}, np.ones(len(texts["id"]), np.bool_)
    for name in ("id", "timestamp", "property", "plug_id", "household_id", "house_id"):
        values, good = whole_numbers(texts[name])
        columns[name] = values
        valid &= good & (values >= 0)
    valid &= columns["property"] <= 1
    columns["property"] = np.where(valid, columns["property"], 0).astype(np.int8)
    columns["value"], good = numbers(texts["value"])
    valid &= good & (columns["value"] >= 0)
    return {name: pa.array(columns[name]) for name in DEBS2014.columns}, valid


def _trip(texts: Mapping[str, pa.Array]) -> tuple[dict[str, pa.Array], Mask]:
    medallion, known = _names(texts["medallion"])
    valid = known & (pc.binary_length(texts["hack_license"]).to_numpy() > 0)
    columns = {"medallion": medallion}
    for name in list(DEBS2015.columns)[1:]:
        values, good = (seconds if name.endswith("_datetime") else nano)(texts[name])
        if name.endswith("_amount"):
            good = good & (np.abs(values) <= MOST_DOLLARS * 1_000_000_000)
        columns[name] = pa.array(values)
        valid &= good
    return columns, valid


def _names(texts: pa.Array) -> tuple[pa.Array, Mask]:
    """Return non-empty texts, and a mask of valid ones."""
    valid: Values = pc.binary_length(texts).to_numpy() > 0
    try:
        return texts.cast(pa.string()), valid
    except pa.ArrowInvalid:
        pass
    decoded = [_decoded(text) for text in texts.to_pylist()]
    return pa.array([text or "" for text in decoded]), np.array([bool(text) for text in decoded])


def _decoded(text: bytes) -> str | None:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return None


_PARSERS: Mapping[str, Callable[[Mapping[str, pa.Array]], tuple[dict[str, pa.Array], Mask]]] = {
    DEBS2014.name: _reading,
    DEBS2015.name: _trip,
}

CHECKED: Mapping[str, list[str]] = {
    DEBS2014.name: list(DEBS2014.fields),
    DEBS2015.name: ["medallion", "hack_license", *list(DEBS2015.columns)[1:]],
}
"""Fields of a raw row that must be right."""
