"""Interface of a query: from the accepted rows of a recording to tables, piece by piece, and how tables are written.

A recording read at once is a single piece. A stream consists of several pieces, and state for later pieces is passed on
as `Known`, which is written to disk between pieces. So both modes give the same answer.
"""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow as pa
from pyspark.sql import DataFrame

from inventory.documents import dump_json
from inventory.errors import InputError
from inventory.own_files import OutputFolder
from workloads.pipelines.spark_session import report
from workloads.recordings.schema import Grid, Schema


@dataclass(frozen=True)
class Piece:
    """Rows of a recording that arrived together.

    Attributes:
        rows: accepted rows as `reduced` by the query, in no particular order.
        first: time of the first accepted row of the whole recording, in seconds.
        newest: time of the newest accepted row, in this piece or before.
        over: whether it is the last piece.
    """

    rows: DataFrame
    first: int
    newest: int
    over: bool


@dataclass(frozen=True)
class Known:
    """State of a pipeline after earlier pieces.

    Attributes:
        numbers: small facts.
        tables: rows.
    """

    numbers: Mapping[str, int] = field(default_factory=dict)
    tables: Mapping[str, DataFrame] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """Result of a piece.

    Attributes:
        tables: name -> further rows of the answer. All tables are present every time, possibly without rows.
        known: for the next piece; its DataFrames are computed only if there is one.
    """

    tables: Mapping[str, DataFrame]
    known: Known


class Query(ABC):
    """A query over a recording. The constructor takes an instance of `Params`, a frozen dataclass with defaults."""

    schema: ClassVar[Schema]
    grid: ClassVar[Grid | None] = None
    Params: ClassVar[type[Any]]
    columns: ClassVar[Sequence[str]]
    """Columns of a prepared recording passed to `reduced` besides `SEQ`; `schema.time` must be among them."""
    order: ClassVar[Mapping[str, tuple[str, ...]]]
    """Name of each possible table -> columns by which it is sorted."""

    @abstractmethod
    def __init__(self, params: Any) -> None: ...

    def reduced(self, rows: pa.Table) -> pa.Table:
        """Return the data of accepted rows that the answer needs; called where rows are read, on whole columns.

        Args:
            rows: consecutive rows of the recording, without rejected ones.

        Returns:
            Any rows. `SEQ`, if it is among their columns, is still the number of an accepted row, or null.
        """
        return rows

    @abstractmethod
    def advanced(self, known: Known, piece: Piece) -> Step:
        """Process a piece."""


Format = Literal["parquet", "csv"]
SUMMARY = "summary.json"

_OPTIONS: Mapping[str, Mapping[str, str]] = {"parquet": {}, "csv": {"header": "true", "nullValue": "NULL"}}


OUTPUT = OutputFolder(
    "no output of a pipeline", r"summary\.json|profile\.json|traffic\.yml|\w+/part-\d{5,}-\d{5,}\.(parquet|csv)"
)


def check_output(output: Path, source: Path) -> None:
    """Refuse a folder that contains the input or anything but an earlier output.

    Raises:
        InputError: it is refused.
    """
    if source.resolve().is_relative_to(output.resolve()):
        raise InputError(f"--output: {output} holds the input {source}, and would be replaced")
    OUTPUT.check(output, "--output ")


@dataclass(frozen=True)
class Tables:
    """Tables that are being written.

    Attributes:
        folder: each table is a folder of its own in it.
        kind: format.
        order: name of a table -> columns by which it is sorted: part files by name, and the rows in them.
    """

    folder: Path
    kind: Format
    order: Mapping[str, Sequence[str]]

    def write(self, tables: Mapping[str, DataFrame], piece: int = 0) -> None:
        """Write rows of tables; rows of a later `piece` follow those of earlier ones."""
        for name, rows in tables.items():
            report(f"table {name}")
            aside, place = self.folder / f".{name}", self.folder / name
            rows.orderBy(*self.order[name]).write.options(**_OPTIONS[self.kind]).format(self.kind).save(str(aside))
            place.mkdir(exist_ok=True)
            for at, part in enumerate(sorted(aside.glob("part-*"))):
                part.rename(place / f"part-{piece:05d}-{at:05d}.{self.kind}")
            # This also removes Spark's checksums and marker files.
            shutil.rmtree(aside)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON document."""
    path.write_text(dump_json(content), encoding="utf-8")
