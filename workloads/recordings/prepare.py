"""From the raw files of a recording to one Parquet file of its valid rows, in constant memory.

Input is a CSV file in the official schema, packed or not, a folder of such parts, or of Parquet files that
`millrace pipeline prepare` wrote. Parts are read in the order of their first valid time, then of their names. Every
line is a row; a row counts as `malformed`, `outlier` or `out_of_order`, the first that fits, and only the others go on.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from inventory.atomic_file import aside
from inventory.errors import InputError, UnfitError
from workloads.preparation_progress import report_progress
from workloads.recordings.accept import Gate
from workloads.recordings.grid import Grid
from workloads.recordings.raw import Rows, arrow_schema, first_is, has_columns, parse
from workloads.recordings.raw_files import blocks, files_of, is_parquet
from workloads.recordings.recording import FORMAT_KEY, GROUP_ROWS
from workloads.recordings.schema import SEQ, Schema
from workloads.workload import PreparedInput

CLASSES = ("malformed", "outlier", "out_of_order")
"""Reasons for rejecting a row, in the order of checking."""

MOST_OUT_OF_ORDER = 0.01
"""Share of the rows; beyond it the input is no recording in order with a few late rows."""

SURELY_WRONG_ROWS = 10_000
"""A part that begins with so many lines of wrong column counts is refused without reading on."""

_FORMAT = 2
"""Another number whenever the same source would give another file."""


class _Summary(Struct, frozen=True, forbid_unknown_fields=True):
    """What stands beside a prepared file."""

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
        grid: of trips; those with an end outside of it are outliers. None: there are no outliers.
        name: name of the input for operators.

    Raises:
        InputError: the source cannot be used; the message names the file and, where there is one, the line.
        UnfitError: the folder cannot be written.
    """
    parts = files_of(source)
    path = folder / f"{schema.name}-{_stamp(parts, schema, grid)}.parquet"
    summary = _kept(path)
    if summary is None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with aside(path) as file:
                summary = _write(source, parts, schema, grid, _Hashed(file))
            with aside(_beside(path)) as file:
                file.write(msgspec.json.encode(summary))
        except OSError as fault:
            raise UnfitError(f"{folder}: the prepared recording cannot be written: {fault.strerror or fault}") from None
    files = "1 file" if len(parts) == 1 else f"{len(parts)} files"
    origin = f"{source} ({schema.name}, {files}, {summary.rows:,} rows)"
    return PreparedInput(name, path, summary.sha256, summary.records, origin, summary.quarantined)


def _write(source: Path, parts: list[Path], schema: Schema, grid: Grid | None, file: "_Hashed") -> _Summary:
    gate = Gate(schema, grid)
    counts: Counter[str] = Counter()
    described = arrow_schema(schema).with_metadata({FORMAT_KEY: schema.name.encode()})
    ordered = in_order(parts, schema, grid) if len(parts) > 1 else parts
    sizes = {part: part.stat().st_size for part in parts}
    total, done = sum(sizes.values()) or 1, 0
    with pq.ParquetWriter(file, described, compression="snappy", write_statistics=[schema.time]) as writer:
        for part in ordered:
            offset = counts["rows"]
            for rows in rows_of(part, schema, offset):
                counts["rows"] += rows.lines
                counts["malformed"] += rows.malformed
                accepted = gate.through(rows.table, part, offset)
                counts["records"] += len(accepted)
                if len(accepted):
                    writer.write_table(accepted.replace_schema_metadata(described.metadata), GROUP_ROWS)
                report_progress((done + rows.read) / total)
            done += sizes[part]
    quarantined = {kind: counts[kind] + gate.quarantined[kind] for kind in CLASSES}
    if quarantined["out_of_order"] > MOST_OUT_OF_ORDER * counts["rows"]:
        raise InputError(
            f"{gate.first_late}: the first of {quarantined['out_of_order']:,} rows, of {counts['rows']:,}, that are "
            f"older than one before them; more than {MOST_OUT_OF_ORDER:.0%} is not accepted, and "
            "`millrace pipeline prepare` puts them in order"
        )
    if not counts["records"]:
        raise no_valid_row(source, ordered, schema, quarantined)
    return _Summary(file.digest.hexdigest(), file.size, counts["records"], counts["rows"], quarantined)


def no_valid_row(source: Path, parts: Iterable[Path], schema: Schema, quarantined: Mapping[str, int]) -> InputError:
    """Return why `parts` have no valid row."""
    if outliers := quarantined["outlier"]:
        malformed = quarantined["malformed"]
        return InputError(f"{source}: no valid row: {outliers:,} have an end off the grid, {malformed:,} are malformed")
    for part in parts:
        for block, _ in () if is_parquet(part) else blocks(part):
            return InputError(f"{part}:1: no valid row: {first_is(schema, block)}")
    return InputError(f"{source}: empty")


def rows_of(part: Path, schema: Schema, first: int, begin: int = 0, end: int | None = None) -> Iterator[Rows]:
    """Yield the rows of a part, or of some lines of it, the first of which is number `first` of the input.

    Args:
        part: the file.
        schema: of its rows.
        first: number.
        begin, end: of a file of lines, those that begin at these bytes (see `blocks`).

    Raises:
        InputError: it cannot be used.
    """
    if is_parquet(part):
        yield from _prepared_rows(part, schema)
        return
    at = first
    for block, read in blocks(part, begin, end):
        rows = parse(schema, block, at, read)
        if (
            not begin
            and at == first
            and rows.lines == rows.malformed >= SURELY_WRONG_ROWS
            and not has_columns(schema, block)
        ):
            raise InputError(f"{part}:1: no valid row: {first_is(schema, block)}")
        at += rows.lines
        yield rows


def _prepared_rows(part: Path, schema: Schema) -> Iterator[Rows]:
    """Yield rows that `millrace pipeline prepare` has found valid."""
    rows, newest = 0, -1
    try:
        file = pq.ParquetFile(part)
        expected = arrow_schema(schema)
        found = {field.name: field.type for field in file.schema_arrow}
        for field in expected:
            if found.get(field.name) != field.type:
                raise InputError(
                    f"{part}: column {field.name!r} is {found.get(field.name, 'missing')}, expected {field.type}; "
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


def in_order(parts: Iterable[Path], schema: Schema, grid: Grid | None) -> list[Path]:
    """Return parts by the time of their first valid row, then by name; those without one come last.

    Raises:
        InputError: one cannot be read, or begins with nothing but malformed rows.
    """
    dated = []
    for part in parts:
        gate = Gate(schema, grid)
        first = None
        for rows in rows_of(part, schema, 0):
            accepted = gate.through(rows.table, part, 0)
            if len(accepted):
                first = accepted.column(schema.time)[0].as_py()
                break
        dated.append((first is None, first or 0, str(part), part))
    return [part for *_, part in sorted(dated)]


# --- files ----------------------------------------------------------------------------------------------------


class _Hashed:
    """A file that is written once, from beginning to end, and its checksum."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = sha256()
        self.size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Append."""
        piece = memoryview(data)
        self.digest.update(piece)
        self.size += piece.nbytes
        return self._file.write(piece)

    def tell(self) -> int:
        """Return bytes so far."""
        return self.size

    def flush(self) -> None:
        """Hand over what is buffered."""
        self._file.flush()

    def close(self) -> None:
        """The file is closed by whoever opened it."""


def _stamp(parts: Iterable[Path], schema: Schema, grid: Grid | None) -> str:
    """Return 24 characters that identify the contents of the prepared file."""
    stats = [(str(part.resolve()), (status := part.stat()).st_size, status.st_mtime_ns) for part in parts]
    return sha256(repr((_FORMAT, schema.name, grid, stats)).encode()).hexdigest()[:24]


def _kept(path: Path) -> _Summary | None:
    """Return the summary of a prepared file that is there and whole."""
    try:
        summary = msgspec.json.decode(_beside(path).read_bytes(), type=_Summary)
        return summary if path.stat().st_size == summary.size else None
    except (OSError, msgspec.DecodeError):
        return None


def _beside(path: Path) -> Path:
    return path.with_suffix(".json")
