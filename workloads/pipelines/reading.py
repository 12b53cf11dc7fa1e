"""From the parts of an input to the accepted rows of a query."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from workloads.pipelines.input_splits import Stretch, copied, copy_schema, overlapping, stretches_of
from workloads.pipelines.pipeline import Known, Piece, Query
from workloads.pipelines.row_filter import Before, accepted
from workloads.pipelines.source import check_packed, raw_rows
from workloads.recordings.prepare import no_valid_row
from workloads.recordings.raw_files import is_parquet
from workloads.recordings.schema import Schema

RAW_BYTES_PER_PARTITION = 64 * 1024 * 1024
COPY_BYTES_PER_PARTITION = 16 * 1024 * 1024
"""Of input as it is, and of the copy of what is needed; what tasks exchange is cut into so many partitions."""


@dataclass(frozen=True)
class Reading:
    """An input that is being read.

    Attributes:
        spark: the session.
        source: as the user named it.
        folder: where its parts are linked.
        aside: where rows are stored meanwhile.
        parts: by rank.
        before: what has been read.
    """

    spark: SparkSession
    source: Path
    folder: Path
    aside: Path
    parts: Mapping[int, Path]
    before: Before = field(default_factory=Before)

    def raw(self, schema: Schema) -> DataFrame:
        """Return all rows as they are."""
        parquet = is_parquet(next(iter(self.parts.values())))
        return raw_rows(self.spark.read, self.folder, schema, parquet)

    def stored(self, rows: DataFrame) -> DataFrame:
        """Return the rows, from a copy of them on disk that lasts as long as the output is being made."""
        place = str(self.aside / uuid4().hex)
        # The copy is read a few times and removed: looking values up in dictionaries takes longer than it saves.
        rows.write.option("parquet.enable.dictionary", "false").parquet(place)
        return self.spark.read.schema(rows.schema).parquet(place)

    def check(self, query: Query) -> None:
        """Refuse an input that gave no row, or too many late ones, when all has been read.

        Raises:
            InputError: it did.
        """
        self.before.check_order()
        if self.before.newest is None:
            raise no_valid_row(self.source, self.parts.values(), query.schema, self.before.quarantined)


def whole(query: Query, reading: Reading) -> Mapping[str, DataFrame]:
    """Return the answer of a query to an input that is read in one go.

    Raises:
        InputError: the input is refused.
    """
    rows = kept(query, reading, stretches_of(reading.parts))
    reading.check(query)
    before = reading.before
    assert before.first is not None  # noqa: S101 - `check` refuses what has no row
    assert before.newest is not None  # noqa: S101
    return query.advanced(Known(), Piece(rows, before.first, before.newest, over=True)).tables


def kept(query: Query, reading: Reading, stretches: Sequence[Stretch]) -> DataFrame:
    """Return the accepted rows of a piece with what the query wants of them; `reading.before` is brought up to date.

    What it needs of the rows is kept on disk, so that lines are parsed once, and plans do not grow from step to step.
    """
    spark, place = reading.spark, reading.aside / uuid4().hex
    found = copied(spark, query, dict(enumerate(stretches)), place)
    if again := overlapping(stretches, found, reading.before.newest):
        found |= copied(spark, query, again, place)
    spread(spark, sum(file.stat().st_size for file in place.iterdir()), COPY_BYTES_PER_PARTITION)
    copy = spark.read.schema(copy_schema(query)).parquet(str(place))
    return accepted(copy, found, stretches, query.schema, reading.before)


def spread(spark: SparkSession, size: int, each: int) -> None:
    """Cut what tasks exchange into as many partitions as an input of `size` bytes needs, of `each` bytes."""
    partitions = max(2 * spark.sparkContext.defaultParallelism, -(-size // each))
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))


@contextmanager
def explained(parts: Iterable[Path]) -> Iterator[None]:
    """Yield inside the block, what Spark cannot read is told as what is wrong with a part.

    Raises:
        InputError: a part is damaged.
    """
    try:
        yield
    except (PySparkException, Py4JError):
        check_packed(parts)
        raise
