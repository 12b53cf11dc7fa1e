"""The operator interface by columns: bolts and spouts that get and give `pyarrow.RecordBatch`.

A batch has the columns of its stream's declared schema: `int` is int64 here, `float` is double, `str` is string,
`bytes` is binary, `bool` is bool; there are no nulls. Operators of both interfaces can be connected in any way; rows
are converted to columns, and back, where they meet.

Neither this module nor its users load Arrow before the first batch: workers without column operators need not.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Union, overload

from workloads.operators import Batch, Bolt, Emitted, Row, Spout

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Indices = npt.NDArray[np.intp]

Api = Literal["rows", "columns"]
"""Interface of a workload's operators, which is one of its parameters."""

ROWS_BELOW = 512
"""Columns of fewer rows mostly cost more than rows (`benchmarks/dataplane/crossover.py`)."""


_NUMBERS = {"int", "float"}


@dataclass(frozen=True)
class ColumnBatch:
    """Rows of one stream of one component as columns, in the order in which one of its executors emitted them."""

    source: str
    stream: str
    columns: "pa.RecordBatch"


@dataclass(frozen=True)
class Derived:
    """Rows that a bolt derived from a batch, with the row that each of them was derived from.

    Attributes:
        columns: the derived rows.
        parents: returns the number of the row in the processed batch for each derived row, rising; None: the derived
            rows are as many as those of the batch, each from that of the same number. Called only if rows of the batch
            were sampled for their latency.
    """

    columns: "pa.RecordBatch"
    parents: Any = None


ColumnsEmitted = Mapping[str, Union["pa.RecordBatch", Derived, Sequence[Row]]]


class ColumnBolt(Bolt):
    """A bolt that processes columns.

    One that also implements `process` gets batches of fewer than `rows_below` rows as rows, which then cost less than
    columns.
    """

    rows_below: ClassVar[int] = ROWS_BELOW
    """An operator whose columns pay from a smaller batch on says so; only read by the function of this name."""

    dictionaries: ClassVar[bool] = False
    """True if `str` and `bytes` columns may come dictionary-encoded: int32 indices, each value once.

    A dictionary is usually shared by many batches (`dictionaries.Dictionary`), so that most entries have no row in a
    batch; `arrays.distinct` drops those.
    """

    skips_ticks: ClassVar[bool] = False
    """True if the bolt emits one row for each of a batch, and nothing at ticks, and ticks change nothing but the last.

    It may then get several batches with ticks between them as one, and `on_tick` is called for the last tick only, with
    all rows before that processed.
    """

    derives: ClassVar[bool] = False
    """True if all results are `Derived`, or there are none; otherwise a sampled row is processed separately."""

    def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
        """Handle one batch, like `Bolt.process`; may keep columns of it, which are never changed."""
        raise NotImplementedError("a column bolt implements process_columns")

    def process(self, batch: Batch) -> Emitted:
        """Handle a small batch as rows; optional."""
        raise NotImplementedError("a column bolt without process gets columns only")

    def process_ticks(self, batch: ColumnBatch, ticks: Sequence[tuple[int, int]]) -> Sequence[ColumnsEmitted]:
        """Handle several batches and the tick behind each of them at once; optional.

        Args:
            batch: the rows before the last tick.
            ticks: of each, how many rows of the batch precede it, and its time.

        Returns:
            What `on_tick` would return at each. For a bolt that emits at ticks only.
        """
        raise NotImplementedError("a column bolt without process_ticks gets ticks one by one")

    def combine_columns(self, columns: "pa.RecordBatch") -> "pa.RecordBatch":
        """Merge rows like `Combining.combine`; called instead of it if the operator has `combine`.

        Columns may come with `dictionaries` here, too, and may be returned so.
        """
        raise NotImplementedError("a column bolt with combine implements combine_columns")


class ColumnSpout(Spout):
    """A source of columns. One that also implements `next_batch` gives fewer than `rows_below` rows as rows."""

    rows_below: ClassVar[int] = ROWS_BELOW
    """See `ColumnBolt.rows_below`."""

    def next_columns(self, limit: int) -> "pa.RecordBatch":
        """Return the next rows like `next_batch`, as columns."""
        raise NotImplementedError("a column spout implements next_columns")

    def next_batch(self, limit: int) -> Sequence[Row]:
        """Return a few rows; optional."""
        raise NotImplementedError("a column spout without next_batch gives columns only")


def rows_below(operator: ColumnBolt | ColumnSpout) -> int:
    """Return how many rows a batch must have to be processed as columns by an operator that can process rows, too.

    Everything that decides between the two asks here, so that tests can have columns in batches of any size.
    """
    return operator.rows_below


class Columns(Sequence[Row]):
    """Rows stored as columns, in one or several batches of the same stream.

    It is used like a list of rows: slices are columns again, iteration converts to rows.
    """

    __slots__ = ("_chunks", "_count", "schema")

    def __init__(self, schema: Mapping[str, str], *chunks: "pa.RecordBatch") -> None:
        """Create it from batches of the stream's `schema` (field -> type); str and bytes may be dictionary-encoded."""
        self.schema = schema
        self._chunks = [chunk for chunk in chunks if chunk.num_rows]
        self._count: int = sum(chunk.num_rows for chunk in self._chunks)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        return iter(self.to_rows())

    @overload
    def __getitem__(self, at: int) -> Row: ...

    @overload
    def __getitem__(self, at: slice) -> "Columns": ...

    def __getitem__(self, at: int | slice) -> "Row | Columns":
        if isinstance(at, int):
            return self.to_rows()[at]
        start, stop, step = at.indices(self._count)
        if step != 1:
            import numpy as np

            return self.take(np.arange(start, stop, step))
        parts, first = [], 0
        for chunk in self._chunks:
            low, high = max(start - first, 0), min(stop - first, chunk.num_rows)
            if low < high:
                parts.append(chunk.slice(low, high - low))
            first += chunk.num_rows
        return Columns(self.schema, *parts)

    def __delitem__(self, at: slice) -> None:
        start, stop, step = at.indices(self._count)
        if step != 1 or (start and stop < self._count):
            raise ValueError("only the first or the last rows can be deleted")
        kept = self[:start] if start else self[stop:]
        self._chunks, self._count = kept._chunks, kept._count

    def __iadd__(self, more: "Columns") -> "Columns":
        self._chunks += more._chunks
        self._count += more._count
        return self

    def copy(self) -> "Columns":
        """Return the same rows, to which others can be added."""
        return Columns(self.schema, *self._chunks)

    @property
    def nbytes(self) -> int:
        """Bytes of all columns, without dictionaries that other batches share."""
        if self._is_numeric:
            return 8 * len(self.schema) * self._count
        from workloads import arrays

        return sum(map(arrays.nbytes_of, self._chunks))

    def rows_within(self, most: int) -> int:
        """Return how many of the first rows take at most `most` bytes without dictionaries; at least one."""
        if self._is_numeric:
            return self._count
        from workloads import arrays

        return arrays.rows_within(self.batch(), most)

    @property
    def _is_numeric(self) -> bool:
        """True if all columns have 8 bytes per value: looking at each takes longer than all else with a small batch."""
        return _NUMBERS.issuperset(self.schema.values())

    def batch(self) -> "pa.RecordBatch":
        """Return all rows as one batch."""
        from workloads import arrays

        if len(self._chunks) != 1:
            self._chunks = [arrays.concatenated(self.schema, self._chunks)]
        return self._chunks[0]

    def plain(self) -> "pa.RecordBatch":
        """Return all rows as one batch without dictionaries."""
        from workloads import arrays

        return arrays.plain_batch(self.batch(), arrays.stream_schema(self.schema))

    def take(self, indices: "Indices") -> "Columns":
        """Return the rows with these numbers."""
        import pyarrow as pa

        return Columns(self.schema, self.batch().take(pa.array(indices)))

    def to_rows(self) -> list[Row]:
        """Convert to rows."""
        from workloads import arrays

        return [row for chunk in self._chunks for row in arrays.batch_rows(chunk)]

    @classmethod
    def of_rows(cls, schema: Mapping[str, str], rows: Sequence[Row], where: str = "a stream") -> "Columns":
        """Convert rows; messages name the stream as `where`.

        Raises:
            RunError: a value does not fit its column, such as an int of 2**63 or more.
        """
        from workloads import arrays

        return cls(schema, arrays.batch_of(schema, rows, where))


def joined_rows(first: Sequence[Row], more: Sequence[Row]) -> list[Row] | Columns:
    """Return the rows of both, as columns if either has columns; `first` is not used any more."""
    if not first:
        return more.copy() if isinstance(more, Columns) else list(more)
    if isinstance(first, Columns):
        first += more if isinstance(more, Columns) else Columns.of_rows(first.schema, more)
        return first
    if isinstance(more, Columns):
        before = Columns.of_rows(more.schema, first)
        before += more
        return before
    return [*first, *more]
