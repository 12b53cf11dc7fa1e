"""Blocks of raw lines to rows: which lines are malformed, and the columns of those that are not."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from workloads.recordings import fields
from workloads.recordings.fields import Mask, Values
from workloads.recordings.raw_files import BYTE_ORDER_MARK
from workloads.recordings.schema import DEBS2014, DEBS2015, SEQ, Schema

MOST_DOLLARS = 1_000_000_000
"""More is no fare."""


@dataclass(frozen=True)
class Rows:
    """Rows of a block that are not malformed, in order.

    Attributes:
        table: the schema's columns, `seq` first.
        lines: how many lines the block has, each a row of the input.
        read: bytes of the part's file that have been read by now.
    """

    table: pa.Table
    lines: int
    read: int = 0

    @property
    def malformed(self) -> int:
        """How many of them are malformed."""
        return self.lines - len(self.table)


def parse(schema: Schema, block: bytes, first: int, read: int = 0) -> Rows:
    """Return the rows of `block`, whose first line is row number `first` of the input; `read` is handed through."""
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
    found = line.split(b",")
    if len(found) != len(schema.fields):
        return f"{len(found)} fields, expected the {len(schema.fields)} of {schema.name} ({','.join(schema.fields)})"
    return f"{line[:200].decode(errors='replace')!r} does not fit {','.join(schema.fields)}"


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of a prepared file."""
    columns = {SEQ: "int64", **schema.columns}
    return pa.schema([pa.field(name, pa.type_for_alias(kind), nullable=False) for name, kind in columns.items()])


def _texts(schema: Schema, block: bytes) -> pa.Table:
    """Return the fields that matter, as they stand there."""
    wanted = CHECKED[schema.name]
    if block.startswith(BYTE_ORDER_MARK):
        # Arrow takes one away from the beginning of whatever it reads, and this one stands within the file.
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
    numbers, valid = {}, np.ones(len(texts["id"]), np.bool_)
    for name in ("id", "timestamp", "property", "plug_id", "household_id", "house_id"):
        found, good = fields.whole_numbers(texts[name])
        numbers[name] = found
        valid &= good & (found >= 0)
    valid &= numbers["property"] <= 1
    numbers["property"] = np.where(valid, numbers["property"], 0).astype(np.int8)
    numbers["value"], good = fields.numbers(texts["value"])
    valid &= good & (numbers["value"] >= 0)
    return {name: pa.array(numbers[name]) for name in DEBS2014.columns}, valid


def _trip(texts: Mapping[str, pa.Array]) -> tuple[dict[str, pa.Array], Mask]:
    medallion, known = _names(texts["medallion"])
    valid = known & (pc.binary_length(texts["hack_license"]).to_numpy() > 0)
    columns = {"medallion": medallion}
    for name in list(DEBS2015.columns)[1:]:
        found, good = (fields.seconds if name.endswith("_datetime") else fields.nano)(texts[name])
        if name.endswith("_amount"):
            good = good & (np.abs(found) <= MOST_DOLLARS * 1_000_000_000)
        columns[name] = pa.array(found)
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
