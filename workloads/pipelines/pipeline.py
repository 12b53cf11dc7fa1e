"""What a query is: a function from the accepted rows of a recording to tables, piece by piece.

A recording that is read in one go is a single piece. One that streams in comes in several, and what later pieces must
know of earlier ones is handed on as `Known`, which is written to disk between pieces; so both ways give the same
answer.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from workloads.recordings.grid import Grid
from workloads.recordings.schema import Schema


@dataclass(frozen=True)
class Piece:
    """Rows of a recording that came together.

    Attributes:
        rows: accepted rows, in no particular order: `SEQ`, and what the pipeline asked for as `wanted`.
        first: time of the first accepted row of the whole recording, in seconds.
        newest: time of the newest accepted row, in this piece or before.
        over: whether nothing comes behind it.
    """

    rows: DataFrame
    first: int
    newest: int
    over: bool


@dataclass(frozen=True)
class Known:
    """What a pipeline keeps from the pieces before.

    Attributes:
        numbers: small facts.
        tables: rows.
    """

    numbers: Mapping[str, int] = field(default_factory=dict)
    tables: Mapping[str, DataFrame] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """What a piece gave.

    Attributes:
        tables: name -> further rows of the answer. All tables are there every time, if without rows.
        known: for the next piece; its DataFrames are only worked out when there is one.
    """

    tables: Mapping[str, DataFrame]
    known: Known


class Query(ABC):
    """A question to a recording. The constructor takes an instance of `Params`, a frozen dataclass with defaults."""

    schema: ClassVar[Schema]
    grid: ClassVar[Grid | None] = None
    Params: ClassVar[type[Any]]
    columns: ClassVar[Sequence[str]]
    """Of a prepared recording, which ones `wanted` is made of."""
    order: ClassVar[Mapping[str, tuple[str, ...]]]
    """Name of each table that there may be -> columns by which it is written in order."""

    @abstractmethod
    def __init__(self, params: Any) -> None: ...

    def wanted(self) -> Mapping[str, Column]:
        """The columns to keep, made of those of a prepared recording; `schema.time` must be among them."""
        return {name: F.col(name) for name in self.schema.columns}

    @abstractmethod
    def advanced(self, known: Known, piece: Piece) -> Step:
        """Go on by a piece."""
