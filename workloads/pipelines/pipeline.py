"""Interface of a query: from the accepted rows of a recording to tables, piece by piece.

A recording read at once is a single piece. A stream consists of several pieces, and state for later pieces is passed on
as `Known`, which is written to disk between pieces. So both modes give the same answer.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame

from workloads.recordings.grid import Grid
from workloads.recordings.schema import Schema


@dataclass(frozen=True)
class Piece:
    """Rows of a recording that arrived together.

    Attributes:
        rows: what the pipeline has `reduced` accepted rows to, in no particular order.
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
        tables: name -> further rows of the answer. All tables are there every time, if without rows.
        known: for the next piece; its DataFrames are only worked out when there is one.
    """

    tables: Mapping[str, DataFrame]
    known: Known


class Query(ABC):
    """A query over a recording. The constructor takes an instance of `Params`, a frozen dataclass with defaults."""

    schema: ClassVar[Schema]
    grid: ClassVar[Grid | None] = None
    Params: ClassVar[type[Any]]
    columns: ClassVar[Sequence[str]]
    """Of a prepared recording, which ones `reduced` is given besides `SEQ`; `schema.time` must be among them."""
    order: ClassVar[Mapping[str, tuple[str, ...]]]
    """Name of each table that there may be -> columns by which it is written in order."""

    @abstractmethod
    def __init__(self, params: Any) -> None: ...

    def reduced(self, rows: pa.Table) -> pa.Table:
        """Return the data of accepted rows that the answer needs; runs where rows are read, by whole columns.

        Args:
            rows: they stand one behind another in the recording, but for rows that were left out.

        Returns:
            Any rows. Where `SEQ` is among their columns, it is still the number of an accepted row, or null.
        """
        return rows

    @abstractmethod
    def advanced(self, known: Known, piece: Piece) -> Step:
        """Process a piece."""
