"""The parts of an input as Spark reads them: rows with the place where they stand.

Spark takes paths for patterns, tells packed files by their names and hands rows out in an order of its own. So the
parts are linked into a folder under names that say their order and what they are, and a row keeps its part, its piece
of the part and its turn in the piece; `accept` makes row numbers of these.
"""

from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import DataFrame, DataFrameReader
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.readwriter import DataStreamReader

from inventory.errors import InputError
from workloads.pipelines.lines import FAULT, LINE, parsed, unix_line
from workloads.recordings.grid import Grid
from workloads.recordings.prepare import in_order
from workloads.recordings.raw_files import blocks, files_of, is_gzip, is_parquet
from workloads.recordings.schema import SCHEMAS, Schema

PLACE, TURN = "place", "turn"
"""Columns: the piece of a part, rising in the order of the input, and where in it a row stands, rising by 1."""

_FROM = "_metadata"
_RANK_DIGITS = 8
_PIECE_BITS = 44
_TYPES = {"int64": "bigint", "double": "double", "int8": "tinyint", "string": "string"}


def parts_of(source: Path, schema: Schema, grid: Grid | None) -> list[Path]:
    """Return the files of an input in their order.

    Raises:
        InputError: they cannot be used; the message names the file.
    """
    parts = in_order(files_of(source), schema, grid)
    kinds = {is_parquet(part): part for part in parts}
    if len(kinds) == 2:
        raise InputError(f"{source}: {kinds[True]} is Parquet, and {kinds[False]} is not; one kind at a time")
    return parts


def schema_of(source: Path) -> Schema:
    """Return the schema that an input has, by the number of columns in its first line or by its Parquet columns.

    Raises:
        InputError: it is none of the known ones.
    """
    for part in files_of(source):
        if is_parquet(part):
            import pyarrow.parquet as pq

            names = set(pq.read_schema(part).names)
            found = [schema for schema in SCHEMAS.values() if names >= set(schema.columns)]
        else:
            head = next((block for block, _ in blocks(part)), b"")
            counts = [line.count(b",") + 1 for line in head.split(b"\n", 1000)[:1000]]
            found = [schema for schema in SCHEMAS.values() if len(schema.fields) in counts]
        if found:
            return found[0]
    known = " or ".join(f"{len(schema.fields)} ({schema.name})" for schema in SCHEMAS.values())
    raise InputError(f"{source}: no line has {known} columns")


def link(part: Path, folder: Path, rank: int) -> None:
    """Make part number `rank` readable for `raw_rows`."""
    kind = "parquet" if is_parquet(part) else "csv.gz" if is_gzip(part) else "csv"
    folder.mkdir(exist_ok=True)
    (folder / f"{rank:0{_RANK_DIGITS}d}.{kind}").symlink_to(part.resolve())


def raw_rows(reader: DataFrameReader | DataStreamReader, folder: Path, schema: Schema, parquet: bool) -> DataFrame:
    """Return the rows of the parts linked in `folder` as they are, lines in `LINE`, each with where it is from."""
    if parquet:
        kinds = ", ".join(f"{name} {_TYPES[kind]}" for name, kind in schema.columns.items())
        return reader.schema(kinds).parquet(str(folder)).select("*", _FROM)
    lines = reader.option("lineSep", "\n").text(str(folder))
    return lines.select(F.col("value").alias(LINE), _FROM)


def rows_of(raw: DataFrame, schema: Schema) -> DataFrame:
    """Return `PLACE`, `TURN`, the recording's columns, `FAULT` and `LINE` of what `raw_rows` gave."""
    rank = F.shiftleft(F.left(F.col(f"{_FROM}.file_name"), F.lit(_RANK_DIGITS)).cast("bigint"), _PIECE_BITS)
    if LINE not in raw.columns:
        nothing = F.lit(None).cast("string")
        turn = F.col(f"{_FROM}.row_index").alias(TURN)
        return raw.select(rank.alias(PLACE), turn, *schema.columns, nothing.alias(FAULT), nothing.alias(LINE))
    place = (rank + F.col(f"{_FROM}.file_block_start")).alias(PLACE)
    turn = F.monotonically_increasing_id().alias(TURN)
    return parsed(raw.select(place, turn, unix_line(F.col(LINE)).alias(LINE)), schema)


def part_at(place: int) -> int:
    """Return the rank of the part that a `PLACE` is in."""
    return place >> _PIECE_BITS


def check_packed(parts: Iterable[Path]) -> None:
    """Read all packed parts, for what Spark stumbled over.

    Raises:
        InputError: one is damaged; the message names the line.
    """
    for part in parts:
        if is_gzip(part):
            for _ in blocks(part):
                pass
