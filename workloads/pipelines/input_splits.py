"""Copy of raw parts as Parquet, one task per stretch of a part: accepted rows as reduced by a query, and findings.

A part that is not compressed is cut into stretches, at any byte; a line belongs to the stretch in which it begins. A
task uses the parser and the rules of acceptance of recordings on nodes. The findings of all stretches together
give the number of a row, and whether it is older than a row of an earlier stretch. A stretch with such rows, which is
rare, is read once more.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from inventory.atomic_files import replacing_path
from inventory.errors import InputError
from workloads.pipelines.pipeline import Query
from workloads.recordings.parse import arrow_schema
from workloads.recordings.prepare import Gate, part_rows
from workloads.recordings.raw_files import is_gzip, is_parquet
from workloads.recordings.schema import SEQ

STRETCH = "stretch"
"""Column of a copy: the number of the row's stretch. `SEQ` counts from the first row of the stretch."""

STRETCH_BYTES = 96 * 1024 * 1024
"""Approximate size of a stretch."""

REDUCED_ROWS = 500_000
"""Minimum number of accepted rows of a stretch that are reduced together."""


@dataclass(frozen=True)
class Stretch:
    """Lines of a part.

    Attributes:
        part: its rank.
        path: its file.
        begin, end: range of bytes in which the lines begin, `end` excluded; None: to the end of the file.
        floor: the newest time before them, if known; older rows are late.
    """

    part: int
    path: Path
    begin: int = 0
    end: int | None = None
    floor: int | None = None


@dataclass(frozen=True)
class Findings:
    """Findings of a task in a stretch. Rows are numbered from its first line.

    Attributes:
        rows: number of rows.
        malformed, outlier, late: numbers of rejected rows; late are those older than the floor or an earlier row of
            the stretch.
        first, newest: times of the first and the newest accepted row; None: there is none.
        first_row: number of the first accepted row.
        first_late: number of the first late row.
        jumps: rows much newer than all earlier rows of the stretch: number, newest earlier time, own time.
        fault: why the part cannot be used at all; empty if it can.
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
    """Return the stretches of all parts, in order."""
    stretches = []
    for rank, path in sorted(parts.items()):
        size = path.stat().st_size
        number = 1 if is_gzip(path) or is_parquet(path) else max(1, round(size / STRETCH_BYTES))
        cuts = [size * at // number for at in range(number)]
        ends = [*cuts[1:], None]
        stretches += [Stretch(rank, path, begin, end) for begin, end in zip(cuts, ends, strict=True)]
    return stretches


def copied(spark: SparkSession, query: Query, stretches: Mapping[int, Stretch], folder: Path) -> dict[int, Findings]:
    """Copy stretches as `reduced` by the query, and return the findings in them.

    Args:
        spark: the session.
        query: reduces the rows.
        stretches: by number.
        folder: of the copy; an earlier copy of a stretch is replaced.

    Raises:
        InputError: a part cannot be used.
    """
    folder.mkdir(parents=True, exist_ok=True)
    numbers = spark.range(0, len(stretches), 1, len(stretches))
    table = numbers.mapInArrow(_task(query, list(stretches.items()), folder), _TYPES).toArrow()
    findings = {}
    for one in table.sort_by(STRETCH).to_pylist():
        if one["fault"]:
            raise InputError(one["fault"])
        number = one.pop(STRETCH)
        findings[number] = Findings(**one)
    return findings


def copy_schema(query: Query) -> str:
    """Return the schema of a copy in Spark's syntax."""
    kinds = {"int64": "bigint", "double": "double", "int8": "tinyint", "string": "string"}
    fields = _placed(query.reduced(_nothing(query)), 0).schema
    return ", ".join(f"{field.name} {kinds[str(field.type)]}" for field in fields)


def overlapping(
    stretches: Sequence[Stretch], findings: Mapping[int, Findings], newest: int | None
) -> dict[int, Stretch]:
    """Return the stretches that have rows older than those of earlier stretches, with their floor.

    Args:
        stretches: in the order of the input.
        findings: those in each of them.
        newest: time of the newest row before all of them; None: there is none.
    """
    again = {}
    for number, stretch in enumerate(stretches):
        one = findings[number]
        if one.first is None or one.newest is None:
            continue
        if newest is not None and one.first < newest:
            again[number] = replace(stretch, floor=newest)
        newest = one.newest if newest is None else max(newest, one.newest)
    return again


def _task(
    query: Query, stretches: Sequence[tuple[int, Stretch]], folder: Path
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that Spark calls with positions in the list of stretches."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number, stretch in (stretches[place] for place in batch.column(0).to_pylist()):
                try:
                    findings = _copy(query, number, stretch, folder)
                except InputError as fault:
                    findings = Findings(fault=str(fault))
                yield pa.RecordBatch.from_pylist([{STRETCH: number, **asdict(findings)}], _KINDS)

    return read


def _copy(query: Query, number: int, stretch: Stretch, folder: Path) -> Findings:
    accepted = _Accepted(query, stretch)
    kinds = _placed(query.reduced(_nothing(query)), number).schema
    texts = [name for name, kind in query.schema.columns.items() if kind == "string"]
    # A task may be killed, and another one may write the same file.
    with (
        replacing_path(folder / f"{number:08d}.parquet") as partial,
        pq.ParquetWriter(
            partial, kinds, compression="none", use_dictionary=[STRETCH, *texts], write_statistics=False
        ) as copy,
    ):
        for rows in _together(accepted.tables()):
            copy.write_table(_placed(query.reduced(rows), number))
    return accepted.findings()


class _Accepted:
    """Accepted rows of a stretch, and counts of the others."""

    def __init__(self, query: Query, stretch: Stretch) -> None:
        self._query, self._stretch = query, stretch
        self._gate = Gate(query.schema, query.grid, newest=stretch.floor)
        self._rows = self._malformed = 0
        self._first: int | None = None
        self._first_row: int | None = None
        self._first_late: int | None = None
        self._jumps: list[tuple[int, int, int]] = []

    def tables(self) -> Iterator[pa.Table]:
        """Yield `SEQ` and the query's columns, some rows at a time.

        Raises:
            InputError: the part cannot be used.
        """
        stretch, schema = self._stretch, self._query.schema
        prepared = is_parquet(stretch.path)
        for some in part_rows(stretch.path, schema, 0, stretch.begin, stretch.end):
            table = some.table
            if prepared:
                # The numbers in the file have gaps.
                numbers = np.arange(self._rows, self._rows + some.lines)
                table = table.set_column(0, table.field(SEQ), pa.array(numbers))
            self._rows += some.lines
            self._malformed += some.malformed
            passed = self._gate.passed(table)
            if self._first_late is None:
                self._first_late = passed.first_late
            self._jumps += passed.jumps
            if len(passed.table):
                if self._first is None:
                    row = passed.table.slice(0, 1)
                    self._first, self._first_row = (row.column(name)[0].as_py() for name in (schema.time, SEQ))
                yield passed.table.select([SEQ, *self._query.columns])

    def findings(self) -> Findings:
        """Return the findings after all rows have been read."""
        late, outlier = (self._gate.quarantined[kind] for kind in ("out_of_order", "outlier"))
        return Findings(
            rows=self._rows,
            malformed=self._malformed,
            outlier=outlier,
            late=late,
            first=self._first,
            newest=None if self._first is None else self._gate.newest,
            first_row=self._first_row,
            first_late=self._first_late,
            jumps=self._jumps,
        )


def _together(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the same rows in tables of at least `REDUCED_ROWS`, except the last one."""
    some: list[pa.Table] = []
    for table in tables:
        some.append(table)
        if sum(map(len, some)) >= REDUCED_ROWS:
            yield pa.concat_tables(some)
            some = []
    if some:
        yield pa.concat_tables(some)


def _nothing(query: Query) -> pa.Table:
    """Return an empty table with the columns passed to `reduced`."""
    return arrow_schema(query.schema).empty_table().select([SEQ, *query.columns])


def _placed(rows: pa.Table, number: int) -> pa.Table:
    return rows.add_column(0, STRETCH, pa.repeat(pa.scalar(number), len(rows)))
