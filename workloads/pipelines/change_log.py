"""The log of all changes: a fold over the trips one by one, in the order of their numbers.

It is the bolt that the testbed's own topology ends with, here in the one task that has all trips. What it knows goes
from piece to piece as bytes.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat

import pyarrow as pa
from pyspark.sql import DataFrame

from workloads.operators import Batch, Bolt
from workloads.rates import NS
from workloads.recordings.schema import SEQ
from workloads.topology import DEFAULT_STREAM

_STATE = "state"
_TYPES: Mapping[str, tuple[str, pa.DataType]] = {
    "int": ("bigint", pa.int64()),
    "float": ("double", pa.float64()),
    "str": ("string", pa.string()),
}


def log_of(bolt: type[Bolt], trips: DataFrame, before: DataFrame | None) -> tuple[DataFrame, DataFrame]:
    """Return the changes that come with a piece, and what the next piece must be given as `before`.

    Args:
        bolt: keeps the log.
        trips: the columns of the rows that the bolt takes, in this order, without the time of reading; `SEQ` first.
        before: from the piece before.
    """
    state = None if before is None else next((bytes(row[_STATE]) for row in before.collect()), None)
    answer_schema = bolt.answer_schema
    assert answer_schema is not None  # noqa: S101 - logs have a table
    columns = ", ".join(f"{name} {_TYPES[kind][0]}" for name, kind in answer_schema.items())
    in_order = trips.repartition(1).sortWithinPartitions(SEQ)
    rows = in_order.mapInArrow(_fold(bolt, state), f"{columns}, {_STATE} binary").persist()
    return rows.where(f"{_STATE} is null").drop(_STATE), rows.where(f"{_STATE} is not null").select(_STATE)


def _fold(bolt: type[Bolt], state: bytes | None) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that Spark calls with all trips, batch by batch."""
    schema = pa.schema(
        [(name, _TYPES[kind][1]) for name, kind in (bolt.answer_schema or {}).items()] + [(_STATE, pa.binary())]
    )

    def laid_out(rows: Sequence[Sequence[object]]) -> pa.RecordBatch:
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
        return pa.RecordBatch.from_arrays(
            [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)], schema=schema
        )

    def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        log = bolt()
        if state is not None:
            log.restore(state)
        for batch in batches:
            if not batch.num_rows:
                continue
            read = repeat(time.time_ns(), batch.num_rows)
            rows = list(zip(*(column.to_pylist() for column in batch.columns), read, strict=True))
            log.process(Batch("", DEFAULT_STREAM, rows))
            # It looks at all rows that have come; with other batches come the trips of the same second.
            log.on_tick(rows[-1][2] * NS)
            if changes := [(*change, None) for change in log.settled()]:
                yield laid_out(changes)
        yield laid_out([(*[None] * (len(schema) - 1), log.snapshot())])

    return fold
