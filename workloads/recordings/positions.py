"""What executors have emitted of a recording, for reference answers."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from workloads.recordings.recording import GROUP_ROWS


def emitted(path: Path, positions: Sequence[int], columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows that have left when executor i has emitted `positions[i]` of its share, in order, piece by piece.

    Args:
        path: a prepared file.
        positions: of all executors.
        columns: which columns to give, in this order.
    """
    places = np.array(positions, np.int64)
    at = 0
    for batch in pq.ParquetFile(path).iter_batches(GROUP_ROWS, columns=list(columns)):
        if at // len(places) >= places.max():
            return
        row = np.arange(at, at + len(batch))
        left = row // len(places) < places[row % len(places)]
        at += len(batch)
        yield pa.Table.from_batches([batch]).select(list(columns)).filter(pa.array(left))
