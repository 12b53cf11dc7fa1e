"""Raw rows of an input in Spark: parts, row positions, and the columns of a recording parsed from lines.

For `prepare`, which keeps malformed lines and explains each.

Spark treats paths as patterns, recognises compressed files by name and returns rows in an order of its own. So parts
are linked into a folder under names with their rank and kind, and a row keeps its part, its split of the part and its
turn in the split; `reading` turns these into row numbers.

Lines are parsed by the rules of `workloads.recordings`. Nearly all lines are ordinary: one pattern recognises them, and
plain casts are then exact. Of the others every field is checked separately, and decimals are cut as text. Those
expressions are wrapped in `_let`, which Spark does not compile, so that rare cases do not make the compiled code too
long for Java's own compiler.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial, reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, DataFrameReader
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program gives it
from pyspark.sql.streaming.readwriter import DataStreamReader

from inventory.errors import InputError
from workloads.recordings.parse import MOST_DOLLARS
from workloads.recordings.prepare import parts_by_time
from workloads.recordings.raw_files import blocks, is_gzip, is_parquet, recording_files
from workloads.recordings.schema import DEBS2014, DEBS2015, NANO, SCHEMAS, Grid, Schema

PLACE, TURN = "place", "turn"
"""Columns: the split of a part, rising in the order of the input, and the position of a row in it, rising by 1."""

LINE = "line"
"""Column of the raw line, as returned by `unix_line`."""

FAULT = "fault"
"""Column of the reason why a line is malformed; null for other lines."""

_FROM = "_metadata"
_RANK_DIGITS = 8
_PIECE_BITS = 44
_TYPES = {"int64": "bigint", "double": "double", "int8": "tinyint", "string": "string"}


def input_files(source: Path, schema: Schema, grid: Grid | None) -> list[Path]:
    """Return the files of an input in their order.

    Raises:
        InputError: they cannot be used; the message names the file.
    """
    parts = parts_by_time(recording_files(source), schema, grid)
    kinds = {is_parquet(part): part for part in parts}
    if len(kinds) == 2:
        raise InputError(f"{source}: {kinds[True]} is Parquet, and {kinds[False]} is not; one kind at a time")
    return parts


def input_schema(source: Path) -> Schema:
    """Return the schema of an input, from the number of columns in its first line or from its Parquet columns.

    Raises:
        InputError: no known schema fits.
    """
    for part in recording_files(source):
        if is_parquet(part):
            import pyarrow.parquet as pq

            names = set(pq.read_schema(part).names)
            schemas = [schema for schema in SCHEMAS.values() if names >= set(schema.columns)]
        else:
            head = next((block for block, _ in blocks(part)), b"")
            counts = [line.count(b",") + 1 for line in head.split(b"\n", 1000)[:1000]]
            schemas = [schema for schema in SCHEMAS.values() if len(schema.fields) in counts]
        if schemas:
            return schemas[0]
    known = " or ".join(f"{len(schema.fields)} ({schema.name})" for schema in SCHEMAS.values())
    raise InputError(f"{source}: no line has {known} columns")


def link_part(part: Path, folder: Path, rank: int) -> None:
    """Make part number `rank` readable for `raw_rows`."""
    kind = "parquet" if is_parquet(part) else "csv.gz" if is_gzip(part) else "csv"
    folder.mkdir(exist_ok=True)
    (folder / f"{rank:0{_RANK_DIGITS}d}.{kind}").symlink_to(part.resolve())


def raw_rows(reader: DataFrameReader | DataStreamReader, folder: Path, schema: Schema, parquet: bool) -> DataFrame:
    """Return the raw rows of the parts linked in `folder` with their origin; lines are in `LINE`."""
    if parquet:
        kinds = ", ".join(f"{name} {_TYPES[kind]}" for name, kind in schema.columns.items())
        return reader.schema(kinds).parquet(str(folder)).select("*", _FROM)
    lines = reader.option("lineSep", "\n").text(str(folder))
    return lines.select(F.col("value").alias(LINE), _FROM)


def raw_columns(raw: DataFrame, schema: Schema) -> DataFrame:
    """Return `PLACE`, `TURN`, the recording's columns, `FAULT` and `LINE` of the result of `raw_rows`."""
    rank = F.shiftleft(F.left(F.col(f"{_FROM}.file_name"), F.lit(_RANK_DIGITS)).cast("bigint"), _PIECE_BITS)
    if LINE not in raw.columns:
        nothing = F.lit(None).cast("string")
        turn = F.col(f"{_FROM}.row_index").alias(TURN)
        return raw.select(rank.alias(PLACE), turn, *schema.columns, nothing.alias(FAULT), nothing.alias(LINE))
    place = (rank + F.col(f"{_FROM}.file_block_start")).alias(PLACE)
    turn = F.monotonically_increasing_id().alias(TURN)
    return parsed(raw.select(place, turn, unix_line(F.col(LINE)).alias(LINE)), schema)


def part_at(place: int) -> int:
    """Return the rank of the part that contains a `PLACE`."""
    return place >> _PIECE_BITS


def check_packed(parts: Iterable[Path]) -> None:
    """Read all compressed parts, to explain an error in Spark.

    Raises:
        InputError: a part is damaged; the message names the line.
    """
    for part in parts:
        if is_gzip(part):
            for _ in blocks(part):
                pass


_MOST = 1 << 62
"""Also stands for anything larger."""

_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}"
_WHOLE = "[+-]?[0-9]{1,18}"
_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"

# All days but 29 February, with years that exist.
_DAY = "(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
_TIME = f"[12][0-9]{{3}}-{_DAY} (?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
# Java matches character classes faster if they may backtrack; here none does, as they contain no comma.
_ANY = r"[^,\r]*"
_NATURAL = "[0-9]{1,18}"
_VALUE = r"[0-9]{1,15}(?:\.[0-9]{1,15})?"
# Of at most 9 places and below 2^41 / 10^9: its double times 10^9 is then nearest to the exact whole number.
_SHORT = r"-?[0-9]{1,3}(?:\.[0-9]{1,9})?"

_ORDINARY: Mapping[str, str] = {
    DEBS2014.name: ",".join([_NATURAL, _NATURAL, _VALUE, "[01]", _NATURAL, _NATURAL, _NATURAL]),
    DEBS2015.name: ",".join(
        [
            *(r"[ -+\--~]+", r"[^,\r]+", _TIME, _TIME, _ANY, _ANY),
            *(_SHORT, _SHORT, _SHORT, _SHORT),
            *(_ANY, _SHORT, _ANY, _ANY, _SHORT, _ANY, _ANY),
        ]
    ),
}

_FIRST_YEAR_S = -62_135_596_800
"""Beginning of year 1; earlier dates are invalid."""


def unix_line(line: Column) -> Column:
    """Return a line without its final CR, if any."""
    return F.when(F.endswith(line, F.lit("\r")), F.left(line, F.length(line) - 1)).otherwise(line)


def parsed(lines: DataFrame, schema: Schema) -> DataFrame:
    """Add the columns of the recording and `FAULT`; `LINE` is kept for malformed rows only.

    Args:
        lines: has `LINE`; its other columns are kept.
        schema: of the recording.
    """
    others = [F.col(name) for name in lines.columns if name != LINE]
    ordinary, odd = _PARSERS[schema.name]
    looked = lines.select(*others, LINE, _is(F.col(LINE), _ORDINARY[schema.name]).alias("ordinary"), _split(LINE))
    is_ordinary, values = F.col("ordinary"), ordinary(_at(F.col("fields")))
    # Separate columns, so that unused ones are not computed. `LINE` is kept for lines that are not ordinary.
    taken = [F.when(is_ordinary, value).alias(name) for name, value in values.items()]
    easy = looked.select(*others, *taken, F.when(~is_ordinary, F.col(LINE)).alias(LINE))
    row, is_odd, found = F.struct(LINE, _split(LINE)), F.col(LINE).isNotNull(), F.col("found")
    read = easy.select("*", F.when(is_odd, _let(row, odd)).alias("found"))
    wrong = is_odd & reduce(Column.__or__, [found[name].isNull() for name in values])
    columns = [F.coalesce(F.col(name), found[name]).alias(name) for name in values]
    fault = F.when(wrong, _let(row, partial(_explanation, schema))).alias(FAULT)
    return read.select(*others, *columns, fault, F.when(wrong, F.col(LINE)).alias(LINE))


# --- ordinary lines -------------------------------------------------------------------------------------------

Field = Callable[[int], Column]
Values = Mapping[str, Column]


def _ordinary_reading(field: Field) -> Values:
    kinds = {"value": "double", "property": "tinyint"}
    return {name: field(at).try_cast(kinds.get(name, "bigint")) for at, name in _places(DEBS2014)}


def _ordinary_trip(field: Field) -> Values:
    def value(at: int, name: str) -> Column:
        if name == "medallion":
            return field(at)
        if name.endswith("_datetime"):
            return F.unix_seconds(field(at).try_cast("timestamp"))
        return F.rint(field(at).try_cast("double") * NANO).cast("bigint")

    return {name: value(at, name) for at, name in _places(DEBS2015)}


# --- all others -----------------------------------------------------------------------------------------------


def _odd_reading(row: Column) -> Column:
    field = _at(row.fields)
    whole = F.struct(*[_whole(field(at)).alias(name) for at, name in _places(DEBS2014) if name != "value"])

    def checked(value: Column) -> Column:
        numbers = {name: value[name] if name != "value" else _number(field(at)) for at, name in _places(DEBS2014)}
        values = {name: F.when(number >= 0, number) for name, number in numbers.items()}
        values["property"] = F.when(value["property"].isin(0, 1), value["property"]).cast("tinyint")
        return F.when(_is_row(row, DEBS2014) & (_whole(field(0)) >= 0), F.struct(*_named(values)))

    return _let(whole, checked)


def _odd_trip(row: Column) -> Column:
    field = _at(row.fields)
    limit = MOST_DOLLARS * NANO
    decimals = [(at, name) for at, name in _places(DEBS2015) if name.endswith(("itude", "_amount"))]
    # Cut as bytes: matching a pattern loses everything that is not UTF-8.
    medallion = F.substring_index(row.line, ",", 1)

    def checked(nano: Column) -> Column:
        values = {"medallion": F.when((medallion != "") & F.is_valid_utf8(medallion), medallion)}
        values |= {name: F.when(_is(field(at), _DATE), _seconds(field(at))) for at, name in _places(DEBS2015)[1:3]}
        for index, (_, name) in enumerate(decimals):
            number = nano[index]
            values[name] = F.when(number.between(-limit, limit), number) if name.endswith("_amount") else number
        return F.when(_is_row(row, DEBS2015) & (field(1) != ""), F.struct(*_named(values)))

    return _let(F.transform(F.array(*[field(at) for at, _ in decimals]), _nano), checked)


def _is_row(row: Column, schema: Schema) -> Column:
    return (F.size(row.fields) == len(schema.fields)) & ~F.contains(row.line, F.lit("\r"))


def _whole(field: Column) -> Column:
    return F.when(_is(field, _WHOLE), field.try_cast("bigint"))


def _number(field: Column) -> Column:
    double = field.try_cast("double")
    return F.when(_is(field, _NUMBER) & (F.abs(double) < float("inf")), double)


def _seconds(field: Column) -> Column:
    seconds = F.unix_seconds(field.try_cast("timestamp"))
    return F.when(seconds >= _FIRST_YEAR_S, seconds)


def _nano(field: Column) -> Column:
    """Return a decimal number in whole billionths, rounded down and limited to `_MOST`."""
    parts = F.struct(
        F.startswith(field, F.lit("-")).alias("negative"),
        F.regexp_extract(field, r"\A[+-]?([0-9]*)", 1).alias("before"),
        F.regexp_extract(field, r"\.([0-9]*)", 1).alias("behind"),
        F.regexp_extract(field, "[eE]([+-]?[0-9]+)", 1).alias("exponent"),
    )

    def digits_of(part: Column) -> Column:
        written = F.concat(part.before, part.behind)
        digits = F.ltrim(written, F.lit("0"))
        # The exponent exceeds an int: the number is zero, or all its digits are after the ninth place.
        far = F.when(F.startswith(part.exponent, F.lit("-")), -_MOST // 2).otherwise(0)
        power = F.when(part.exponent == "", 0).otherwise(F.coalesce(part.exponent.try_cast("int").cast("bigint"), far))
        kept = F.length(part.before) - F.length(written) + F.length(digits) + power + 9
        cut = F.least(F.greatest(kept, F.lit(0)), F.lit(20)).cast("int")
        return F.struct(part.negative.alias("negative"), digits.alias("digits"), kept.alias("kept"), cut.alias("cut"))

    def cut(part: Column) -> Column:
        whole = F.rpad(F.left(part.digits, part.cut), part.cut, "0").try_cast("decimal(20,0)")
        rest = F.ltrim(F.substring(part.digits, part.cut + 1, F.length(part.digits)), F.lit("0"))
        return F.struct(
            part, F.coalesce(whole, F.lit(0)).alias("whole"), F.when(rest != "", 1).otherwise(0).alias("down")
        )

    def value(number: Column) -> Column:
        beyond = (number.part.kept > 19) | (number.whole >= _MOST // NANO * NANO)
        size = F.when(number.part.negative, -(number.whole + number.down)).otherwise(number.whole)
        most = F.when(number.part.negative, -_MOST).otherwise(_MOST)
        return F.when(number.part.digits == "", 0).when(beyond, most).otherwise(size.try_cast("bigint"))

    cut_parts = _let(_let(parts, digits_of), lambda part: cut(part.alias("part")))
    return F.when(_number(field).isNotNull(), _let(cut_parts, value))


# --- errors of a line -----------------------------------------------------------------------------------------


def _explanation(schema: Schema, row: Column) -> Column:
    field = _at(row.fields)
    count = F.size(row.fields)
    words = F.when(count != len(schema.fields), F.format_string(f"%d fields, expected {len(schema.fields)}", count))
    words = words.when(F.contains(row.line, F.lit("\r")), "a carriage return within the line")
    for at, name in enumerate(schema.fields):
        for wrong, expected in _complaints(name, field(at), row.line):
            words = words.when(wrong, F.format_string(f"{name}: got '%s', expected {expected}", field(at)))
    return words.otherwise("malformed")


def _complaints(name: str, field: Column, line: Column) -> list[tuple[Column, str]]:
    """Return possible errors of a field, each with the expected form."""
    if name == "medallion":
        return [(field == "", "a name"), (~F.is_valid_utf8(F.substring_index(line, ",", 1)), "UTF-8")]
    if name == "hack_license":
        return [(field == "", "a name")]
    if name.endswith("_datetime"):
        return [(~_is(field, _DATE) | _seconds(field).isNull(), "a date YYYY-MM-DD hh:mm:ss")]
    if name == "property":
        return [(~F.coalesce(_whole(field).isin(0, 1), F.lit(False)), "0 or 1")]
    if name in DEBS2014.fields:
        number = _number(field) if name == "value" else _whole(field)
        kind = "a number" if name == "value" else "a whole number"
        return [(~F.coalesce(number >= 0, F.lit(False)), f"{kind} from 0 on")]
    if name.endswith("_amount") and name in DEBS2015.columns:
        most = MOST_DOLLARS * NANO
        return [(~F.coalesce(_nano(field).between(-most, most), F.lit(False)), "dollars, a billion at most")]
    return [(_number(field).isNull(), "a number")] if name in DEBS2015.columns else []


def _let(value: Column, body: Callable[[Column], Column]) -> Column:
    """Return `body` of `value`, which is computed once, and only where needed."""
    nothing = F.array().cast("array<boolean>")
    return F.zip_with(F.array(value), nothing, lambda bound, _: body(bound))[0]


def _is(field: Column, pattern: str) -> Column:
    return F.rlike(field, F.lit(rf"\A{pattern}\z"))


def _split(line: str) -> Column:
    return F.split(line, ",").alias("fields")


def _at(fields: Column) -> Field:
    return lambda at: F.get(fields, F.lit(at))


def _named(values: Values) -> list[Column]:
    return [value.alias(name) for name, value in values.items()]


def _places(schema: Schema) -> list[tuple[int, str]]:
    return [(schema.fields.index(name), name) for name in schema.columns]


_PARSERS: Mapping[str, tuple[Callable[[Field], Values], Callable[[Column], Column]]] = {
    DEBS2014.name: (_ordinary_reading, _odd_reading),
    DEBS2015.name: (_ordinary_trip, _odd_trip),
}
