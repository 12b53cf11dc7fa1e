"""Preparation of a recording: from raw files to one Parquet file of the valid rows, in constant memory.

Input is a CSV file in the official schema, compressed or not, a folder of such parts, or of Parquet files written by
`millrace pipeline prepare`. Parts are read in the order of their first valid time, then of their names. Every line is a
row; a rejected row counts as `malformed`, `outlier` or `out_of_order`, the first class that fits.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from inventory.atomic_files import replace_file, replacing_file
from inventory.errors import InputError, UnfitError
from workloads.recordings.parse import Mask, Rows, Values, arrow_schema, first_is, has_columns, parse_block
from workloads.recordings.raw_files import blocks, is_parquet, recording_files
from workloads.recordings.recording import FORMAT_KEY, GROUP_ROWS
from workloads.recordings.schema import SEQ, Grid, Schema
from workloads.workload import PreparedInput, report_progress

MOST_GAP_S = 366 * 86400
"""Maximum gap between two rows; longer gaps come from corrupt times and would cause endless ticks."""

MOST_OUT_OF_ORDER = 0.01
"""Maximum share of late rows; an input with more is not in order."""


@dataclass(frozen=True)
class PreparedRows:
    """Result for a set of rows.

    Attributes:
        table: accepted rows.
        first_late: number of the first row that is older than an earlier one; None: there is none.
        jumps: rows much newer than all earlier ones: number of the row, the newest time before it, its own.
    """

    table: pa.Table
    first_late: int | None
    jumps: Sequence[tuple[int, int, int]]


@dataclass
class Gate:
    """Accepts rows block by block, and counts the others.

    Attributes:
        schema: of the rows.
        grid: trips outside of it are outliers; None: there are no outliers.
        quarantined: rejected rows, by class.
        newest: time of the newest accepted row.
    """

    schema: Schema
    grid: Grid | None = None
    quarantined: Counter[str] = field(default_factory=Counter)
    newest: int | None = None

    def __post_init__(self) -> None:
        self.first_late: str = ""

    def through(self, table: pa.Table, part: Path, offset: int) -> pa.Table:
        """Return the accepted rows of `table`.

        Args:
            table: rows, none of them malformed.
            part: the file that they are from, for messages.
            offset: rows of the input before this file.

        Raises:
            InputError: the gap between two rows is longer than in any recording.
        """
        passed = self.passed(table)
        for seq, before, time in passed.jumps[:1]:
            raise too_far(part, seq - offset + 1, self.schema, time - before)
        if passed.first_late is not None:
            self.first_late = self.first_late or f"{part}:{passed.first_late - offset + 1}"
        return passed.table

    def passed(self, table: pa.Table) -> PreparedRows:
        """Return the result for well-formed rows."""
        if self.grid is not None:
            inside = on_grid(table, self.grid)
            self.quarantined["outlier"] += len(table) - int(inside.sum())
            table = table.filter(pa.array(inside)) if not inside.all() else table
        if not len(table):
            return PreparedRows(table, None, ())
        times: Values = table.column(self.schema.time).to_numpy()
        floor = times[0] if self.newest is None else self.newest
        newest = np.maximum.accumulate(np.concatenate(([floor], times)))
        in_order = times >= newest[1:]
        far = np.flatnonzero(np.diff(newest) > MOST_GAP_S)
        jumps = [(table.column(SEQ)[int(at)].as_py(), int(newest[at]), int(newest[at + 1])) for at in far]
        self.newest = int(newest[-1])
        if in_order.all():
            return PreparedRows(table, None, jumps)
        self.quarantined["out_of_order"] += len(times) - int(in_order.sum())
        first_late = table.column(SEQ)[int(np.argmin(in_order))].as_py()
        return PreparedRows(table.filter(pa.array(in_order)), first_late, jumps)


def check_order(first_late: str, late: int, rows: int) -> None:
    """Refuse a recording with too many late rows.

    Args:
        first_late: file and line of the first late row.
        late: number of late rows.
        rows: number of all rows.

    Raises:
        InputError: more than one in a hundred rows is late.
    """
    if late > MOST_OUT_OF_ORDER * rows:
        raise InputError(
            f"{first_late}: the first of {late:,} rows, of {rows:,}, that are older than one before them; more than "
            f"{MOST_OUT_OF_ORDER:.0%} is not accepted, and `millrace pipeline prepare` puts them in order"
        )


def too_far(part: Path, line: int, schema: Schema, seconds: int) -> InputError:
    """Return the error for a row that is too much newer than all earlier rows."""
    return InputError(f"{part}:{line}: {schema.time} is {seconds // 86400} days later than that of any row before it")


def on_grid(table: pa.Table, grid: Grid) -> Mask:
    """Return which trips have both ends on the grid."""
    inside = np.ones(len(table), np.bool_)
    for end in ("pickup", "dropoff"):
        longitude: Values = table.column(f"{end}_longitude").to_numpy()
        latitude: Values = table.column(f"{end}_latitude").to_numpy()
        east, south = longitude - grid.west_border, grid.north_border - latitude
        inside &= (east >= 0) & (east < grid.side * grid.east) & (south >= 0) & (south < grid.side * grid.south)
    return inside


CLASSES = ("malformed", "outlier", "out_of_order")
"""Reasons for rejecting a row, in the order of checking."""

SURELY_WRONG_ROWS = 10_000
"""Lines with wrong column counts at the beginning of a part, after which it is refused without reading on."""

_FORMAT = 2
"""Changed whenever the same source would give another file."""


class _Summary(Struct, frozen=True, forbid_unknown_fields=True):
    """Summary, stored beside a prepared file."""

    sha256: str
    size: int
    records: int
    rows: int
    quarantined: dict[str, int]


def prepare(
    source: Path,
    schema: Schema,
    folder: Path,
    grid: Grid | None = None,
    name: str = "recording",
) -> PreparedInput:
    """Ensure that `folder` contains the prepared recording, and describe it.

    It is prepared again only when path, size or modification time of a part has changed. Files are written atomically.

    Args:
        source: a file, or a folder of parts.
        schema: schema of the recording.
        folder: kept between runs; created if missing.
        grid: trips with an end outside of it are outliers; None: there are no outliers.
        name: name of the input for operators.

    Raises:
        InputError: the source cannot be used; the message names the file and, if possible, the line.
        UnfitError: the folder cannot be written.
    """
    parts = recording_files(source)
    path = folder / f"{schema.name}-{_stamp(parts, schema, grid)}.parquet"
    summary = _kept(path)
    if summary is None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with replacing_file(path) as file:
                summary = _write(source, parts, schema, grid, _Hashed(file))
            replace_file(_beside(path), msgspec.json.encode(summary))
        except OSError as fault:
            raise UnfitError(f"{folder}: the prepared recording cannot be written: {fault.strerror or fault}") from None
    files = "1 file" if len(parts) == 1 else f"{len(parts)} files"
    origin = f"{source} ({schema.name}, {files}, {summary.rows:,} rows)"
    return PreparedInput(name, path, summary.sha256, summary.records, origin, summary.quarantined)


def _write(source: Path, parts: list[Path], schema: Schema, grid: Grid | None, file: "_Hashed") -> _Summary:
    gate = Gate(schema, grid)
    counts: Counter[str] = Counter()
    described = arrow_schema(schema).with_metadata({FORMAT_KEY: schema.name.encode()})
    ordered = parts_by_time(parts, schema, grid) if len(parts) > 1 else parts
    sizes = {part: part.stat().st_size for part in parts}
    total, done = sum(sizes.values()) or 1, 0
    with pq.ParquetWriter(file, described, compression="snappy", write_statistics=[schema.time]) as writer:
        for part in ordered:
            offset = counts["rows"]
            for rows in part_rows(part, schema, offset):
                counts["rows"] += rows.lines
                counts["malformed"] += rows.malformed
                accepted = gate.through(rows.table, part, offset)
                counts["records"] += len(accepted)
                if len(accepted):
                    writer.write_table(accepted.replace_schema_metadata(described.metadata), GROUP_ROWS)
                report_progress((done + rows.read) / total)
            done += sizes[part]
    quarantined = {kind: counts[kind] + gate.quarantined[kind] for kind in CLASSES}
    check_order(gate.first_late, quarantined["out_of_order"], counts["rows"])
    if not counts["records"]:
        raise no_valid_row(source, ordered, schema, quarantined)
    return _Summary(file.digest.hexdigest(), file.size, counts["records"], counts["rows"], quarantined)


def no_valid_row(source: Path, parts: Iterable[Path], schema: Schema, quarantined: Mapping[str, int]) -> InputError:
    """Return the error for `parts` without a valid row."""
    if outliers := quarantined["outlier"]:
        malformed = quarantined["malformed"]
        return InputError(f"{source}: no valid row: {outliers:,} have an end off the grid, {malformed:,} are malformed")
    for part in parts:
        for block, _ in () if is_parquet(part) else blocks(part):
            return InputError(f"{part}:1: no valid row: {first_is(schema, block)}")
    return InputError(f"{source}: empty")


def part_rows(part: Path, schema: Schema, first: int, begin: int = 0, end: int | None = None) -> Iterator[Rows]:
    """Yield the rows of a part, or of some lines of it, the first of which is number `first` of the input.

    Args:
        part: the file.
        schema: of its rows.
        first: number.
        begin, end: range of bytes in which lines begin (see `blocks`); Parquet files are always read completely.

    Raises:
        InputError: the part cannot be used.
    """
    if is_parquet(part):
        yield from _prepared_rows(part, schema)
        return
    at, dated = first, begin > 0
    for block, read in blocks(part, begin, end):
        rows = parse_block(schema, block, at, read)
        if (
            not begin
            and at == first
            and rows.lines == rows.malformed >= SURELY_WRONG_ROWS
            and not has_columns(schema, block)
        ):
            raise InputError(f"{part}:1: no valid row: {first_is(schema, block)}")
        if not dated and len(rows.table):
            dated = True
            _check_unit(part, schema, rows.table, first)
        at += rows.lines
        yield rows


_YEARS_S = range(946_684_800, 4_102_444_800)
"""Times of the years 2000 to 2099 in seconds."""


def _check_unit(part: Path, schema: Schema, rows: pa.Table, first: int) -> None:
    """Check that the first valid row of a part, whose first line is row number `first`, has its time in seconds.

    Raises:
        InputError: it is one of our century in another unit.
    """
    time, seq = (rows.column(name)[0].as_py() for name in (schema.time, SEQ))
    for unit, per_second in (("milliseconds", 1000), ("microseconds", 1_000_000)):
        if time // per_second in _YEARS_S:
            raise InputError(
                f"{part}:{seq - first + 1}: {schema.time} is {time}, expected seconds since 1970; these are {unit}, "
                f"divide them by {per_second}"
            )


def _prepared_rows(part: Path, schema: Schema) -> Iterator[Rows]:
    """Yield the valid rows written by `millrace pipeline prepare`."""
    rows, newest = 0, -1
    try:
        file = pq.ParquetFile(part)
        expected = arrow_schema(schema)
        types = {field.name: field.type for field in file.schema_arrow}
        for field in expected:
            if types.get(field.name) != field.type:
                raise InputError(
                    f"{part}: column {field.name!r} is {types.get(field.name, 'missing')}, expected {field.type}; "
                    f"`millrace pipeline prepare` writes such files"
                )
        for batch in file.iter_batches(GROUP_ROWS, columns=expected.names):
            table = pa.Table.from_batches([batch]).select(expected.names).cast(expected)
            numbers = table.column(SEQ).to_numpy()
            if (np.diff(numbers, prepend=newest) <= 0).any():
                raise InputError(f"{part}: column {SEQ!r} does not rise from row to row")
            newest = numbers[-1]
            rows += len(table)
            yield Rows(table, len(table), part.stat().st_size * rows // file.metadata.num_rows)
    except (pa.ArrowInvalid, ValueError) as fault:
        raise InputError(f"{part}: not a whole Parquet file: {fault}") from None


def parts_by_time(parts: Iterable[Path], schema: Schema, grid: Grid | None) -> list[Path]:
    """Return parts by the time of their first valid row, then by name; parts without one are last.

    Raises:
        InputError: a part cannot be read, or begins with malformed rows only.
    """
    dated = []
    for part in parts:
        gate = Gate(schema, grid)
        first = None
        for rows in part_rows(part, schema, 0):
            accepted = gate.through(rows.table, part, 0)
            if len(accepted):
                first = accepted.column(schema.time)[0].as_py()
                break
        dated.append((first is None, first or 0, str(part), part))
    return [part for *_, part in sorted(dated)]


# --- files ----------------------------------------------------------------------------------------------------


class _Hashed:
    """File written sequentially, and its checksum."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = sha256()
        self.size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Append `data`."""
        piece = memoryview(data)
        self.digest.update(piece)
        self.size += piece.nbytes
        return self._file.write(piece)

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self.size

    def flush(self) -> None:
        """Flush the file."""
        self._file.flush()

    def close(self) -> None:
        """Do nothing: the opener closes the file."""


def _stamp(parts: Iterable[Path], schema: Schema, grid: Grid | None) -> str:
    """Return 24 characters that identify the contents of the prepared file."""
    stats = [(str(part.resolve()), (status := part.stat()).st_size, status.st_mtime_ns) for part in parts]
    return sha256(repr((_FORMAT, schema.name, grid, stats)).encode()).hexdigest()[:24]


def _kept(path: Path) -> _Summary | None:
    """Return the summary of a prepared file if both are complete, or None."""
    try:
        summary = msgspec.json.decode(_beside(path).read_bytes(), type=_Summary)
        return summary if path.stat().st_size == summary.size else None
    except (OSError, msgspec.DecodeError):
        return None


def _beside(path: Path) -> Path:
    return path.with_suffix(".json")
