"""Raw parts to Parquet, each stretch of a part by a task: the rows that go on, and what became of the others.

A part that is not packed is cut into stretches, at any byte; a line belongs to the stretch in which it begins. A task
puts a stretch's lines through the same parser and the same gate as agents' recordings. What it cannot know is told by
the findings of all stretches together: the number of a row, and whether it is older than one of a stretch before.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from inventory.errors import InputError
from workloads.recordings.accept import Gate
from workloads.recordings.grid import Grid
from workloads.recordings.parts import is_gzip, is_parquet
from workloads.recordings.prepare import rows_of
from workloads.recordings.schema import SEQ, Schema

STRETCH = "stretch"
"""Column of a copy: the number of the stretch that a row is of. `SEQ` counts from the stretch's first row."""

STRETCH_BYTES = 32 * 1024 * 1024
"""Of a part, what a task reads at a time."""


@dataclass(frozen=True)
class Stretch:
    """Some lines of a part, or all of them.

    Attributes:
        part: its rank.
        path: its file.
        begin, end: bytes in which the lines begin; the end is left out, None: to the end of the file.
    """

    part: int
    path: Path
    begin: int = 0
    end: int | None = None


@dataclass(frozen=True)
class Findings:
    """What a task has found in a stretch. Rows are numbered from its first line.

    Attributes:
        rows: how many there are.
        malformed, outlier, late: how many were left out; these are late behind a row of the same stretch.
        first, newest: times of the first and the newest row that went on; None: none did.
        first_row: number of the first row that went on.
        first_late: number of the first late row.
        jumps: rows much newer than all before them in the stretch: number, the newest time before, the row's own.
        fault: why the part cannot be used at all; empty: it can.
    """

    rows: int = 0
    malformed: int = 0
    outlier: int = 0
    late: int = 0
    first: int | None = None
    newest: int | None = None
    first_row: int | None = None
    first_late: int | None = None
    jumps: Sequence[tuple[int, int, int]] = ()
    fault: str = ""


_KINDS = pa.schema(
    [
        (STRETCH, pa.int64()),
        *((name, pa.int64()) for name in list(Findings.__annotations__)[:-2]),
        ("jumps", pa.list_(pa.list_(pa.int64()))),
        ("fault", pa.string()),
    ]
)
_TYPES = ", ".join(f"{name} bigint" for name in _KINDS.names[:-2])
_TYPES += ", jumps array<array<bigint>>, fault string"


def stretches_of(parts: Mapping[int, Path]) -> list[Stretch]:
    """The stretches of all parts, in order."""
    found = []
    for rank, path in sorted(parts.items()):
        whole = is_gzip(path) or is_parquet(path)
        size = path.stat().st_size
        cuts = [*range(0, 1 if whole else max(size, 1), STRETCH_BYTES)]
        ends = [*cuts[1:], None]
        found += [Stretch(rank, path, begin, end) for begin, end in zip(cuts, ends, strict=True)]
    return found


def copied(
    spark: SparkSession,
    stretches: Sequence[Stretch],
    schema: Schema,
    grid: Grid | None,
    columns: Sequence[str],
    folder: Path,
) -> list[Findings]:
    """Have all stretches copied, and say what was found in them.

    Args:
        spark: the session.
        stretches: what to read.
        schema: of the rows.
        grid: of trips; None: no row is an outlier.
        columns: which ones to copy, besides `STRETCH` and `SEQ`.
        folder: where the copy is to lie.

    Raises:
        InputError: a part cannot be used.
    """
    folder.mkdir(parents=True)
    task = _task(stretches, schema, grid, columns, folder)
    numbers = spark.range(0, len(stretches), 1, len(stretches))
    found = numbers.mapInArrow(task, _TYPES).toArrow().sort_by(STRETCH).to_pylist()
    for one in found:
        if one["fault"]:
            raise InputError(one["fault"])
    return [Findings(**{name: value for name, value in one.items() if name != STRETCH}) for one in found]


def copy_schema(schema: Schema, columns: Sequence[str]) -> str:
    """Of a copy, as Spark takes it."""
    kinds = {"int64": "bigint", "double": "double", "int8": "tinyint", "string": "string"}
    return ", ".join(
        [f"{STRETCH} bigint, {SEQ} bigint", *(f"{name} {kinds[schema.columns[name]]}" for name in columns)]
    )


def _task(
    stretches: Sequence[Stretch], schema: Schema, grid: Grid | None, columns: Sequence[str], folder: Path
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What Spark calls with numbers of stretches."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                try:
                    found = _copy(number, stretches[number], schema, grid, columns, folder)
                except InputError as fault:
                    found = Findings(fault=str(fault))
                yield pa.RecordBatch.from_pylist([{STRETCH: number, **asdict(found)}], _KINDS)

    return read


def _copy(
    number: int, stretch: Stretch, schema: Schema, grid: Grid | None, columns: Sequence[str], folder: Path
) -> Findings:
    gate, prepared = Gate(schema, grid), is_parquet(stretch.path)
    rows = malformed = 0
    first = first_row = first_late = None
    jumps: list[tuple[int, int, int]] = []
    tables = []
    for some in rows_of(stretch.path, schema, 0, stretch.begin, stretch.end):
        table = some.table
        if prepared:
            # Its own numbers have gaps.
            table = table.set_column(0, table.field(SEQ), pa.array(np.arange(rows, rows + some.lines)))
        rows += some.lines
        malformed += some.malformed
        passed = gate.passed(table)
        if first_late is None:
            first_late = passed.first_late
        jumps += passed.jumps
        if len(passed.table):
            if first is None:
                first, first_row = (passed.table.column(name)[0].as_py() for name in (schema.time, SEQ))
            tables.append(passed.table.select([SEQ, *columns]))
    if tables:
        table = pa.concat_tables(tables)
        table = table.add_column(0, STRETCH, pa.repeat(pa.scalar(number), len(table)))
        # Under a name of its own first: a task may be killed, and another one may do the same.
        aside = folder / f".{uuid4().hex}"
        texts = [name for name, kind in schema.columns.items() if kind == "string"]
        pq.write_table(table, aside, compression="none", use_dictionary=[STRETCH, *texts], write_statistics=False)
        aside.replace(folder / f"{number:08d}.parquet")
    late, outlier = (gate.quarantined[kind] for kind in ("out_of_order", "outlier"))
    return Findings(rows, malformed, outlier, late, first, gate.newest, first_row, first_late, jumps)
