"""Column operators made from row operators by converting every batch."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from workloads.arrays import batch_of, batch_rows
from workloads.columns import ColumnBatch, ColumnBolt, ColumnsEmitted, ColumnSpout, Derived
from workloads.operators import Batch, Bolt, Operator, Row, Spout

Outputs = Mapping[str, Mapping[str, str]]

COLUMN_MODES = ("columns", "derived", "either")
"""Columns only; columns with the parents of all rows; columns, with small batches as rows."""


def as_columns(operator: Operator, outputs: Outputs, mode: str) -> Operator:
    """Return the operator as a column operator."""
    kind = type(operator)
    base = ColumnBolt if isinstance(operator, Bolt) else ColumnSpout
    method = "process" if base is ColumnBolt else "next_batch"
    inner = getattr(kind, method)
    made = {"dictionaries": mode == "columns", "derives": mode == "derived"}

    def columns_of(stream: str, rows: list[Row]) -> pa.RecordBatch:
        return batch_of(outputs[stream], rows, f"{kind.__name__}, {stream}")

    def process_columns(self: Bolt, batch: ColumnBatch) -> ColumnsEmitted:
        rows = batch_rows(batch.columns)
        if mode != "derived":
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
    if mode != "either":
        made[method] = getattr(base, method)
    operator.__class__ = type(f"{mode.title()}{kind.__name__}", (kind, base), made)
    return operator
