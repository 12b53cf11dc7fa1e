"""Operators of rows as operators of columns, which do the same by converting each batch."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from workloads.arrays import batch_of, rows_of
from workloads.columns import ColumnBatch, ColumnBolt, ColumnsEmitted, ColumnSpout, Derived
from workloads.operators import Batch, Bolt, Operator, Row, Spout

Outputs = Mapping[str, Mapping[str, str]]

WAYS = ("columns", "derived", "either")
"""Columns only; with the parents of all rows; columns, and small batches as rows."""


def as_columns(operator: Operator, outputs: Outputs, way: str) -> Operator:
    """The operator with another class, that of a column operator."""
    kind = type(operator)
    base = ColumnBolt if isinstance(operator, Bolt) else ColumnSpout
    method = "process" if base is ColumnBolt else "next_batch"
    inner = getattr(kind, method)
    made = {"dictionaries": way == "columns", "derives": way == "derived"}

    def columns_of(stream: str, rows: list[Row]) -> pa.RecordBatch:
        return batch_of(outputs[stream], rows, f"{kind.__name__}, {stream}")

    def process_columns(self: Bolt, batch: ColumnBatch) -> ColumnsEmitted:
        rows = rows_of(batch.columns)
        if way != "derived":
            emitted = inner(self, Batch(batch.source, batch.stream, rows))
            return {stream: columns_of(stream, list(found)) for stream, found in emitted.items()}
        derived: dict[str, list[Row]] = {}
        parents: dict[str, list[int]] = {}
        for at, row in enumerate(rows):
            for stream, found in inner(self, Batch(batch.source, batch.stream, [row])).items():
                derived.setdefault(stream, []).extend(found)
                parents.setdefault(stream, []).extend([at] * len(found))
        return {
            stream: Derived(columns_of(stream, found), lambda stream=stream: np.array(parents[stream]))
            for stream, found in derived.items()
        }

    def next_columns(self: Spout, limit: int) -> pa.RecordBatch:
        return columns_of("default", list(inner(self, limit)))

    made |= {"process_columns": process_columns} if base is ColumnBolt else {"next_columns": next_columns}
    if way != "either":
        made[method] = getattr(base, method)
    operator.__class__ = type(f"{way.title()}{kind.__name__}", (kind, base), made)
    return operator
