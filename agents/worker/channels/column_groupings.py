"""Groupings of columns: the channel of each row, determined for a batch at once.

The owner of a key is looked up once per distinct key of a batch; the rows of each channel are then taken together, in
their order, and their stamps with them. A string key that repeats is sent dictionary-encoded, with the entries of its
channel only.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from agents.worker.channels.channel import Outgoing
from agents.worker.channels.groupings import no_executor
from agents.worker.wire.frame import Stamps
from workloads.arrays import CellTable, Codes, Keys, distinct, keys_of, owners_of, parts_of
from workloads.columns import Columns, joined
from workloads.operators import Combine, Row


class KeyedColumns:
    """Fields grouping of columns."""

    def __init__(self, channels: Sequence[Outgoing], places: Sequence[int], route: Callable[[Any], int]) -> None:
        """Create it for a key whose fields are at `places`; `route` returns the owner of a key."""
        self._channels, self._places, self._route = channels, places, route
        self._owners = CellTable(len(places), lambda key: route(key if len(key) > 1 else key[0]))

    def deal(self, rows: Columns, stamps: Stamps) -> None:
        """Add each row to the channel of its key."""
        batch = rows.batch()
        key = [batch.column(place) for place in self._places]
        if len(key) == 1 and _is_text(key[0]):
            self._deal_by_text(rows, stamps, key[0])
            return
        whole = all(pa.types.is_int64(column.type) for column in key)
        targets = self._owners.of([column.to_numpy() for column in key]) if whole and len(rows) else None
        if targets is None:
            targets = keys_of(key, self._route).targets
        _deal(self._channels, rows, stamps, targets)

    def _deal_by_text(self, rows: Columns, stamps: Stamps, key: pa.Array) -> None:
        encoded = distinct(key)
        keys = Keys(encoded.codes, owners_of(encoded.values.to_pylist(), self._route))
        if 2 * len(encoded.values) > len(encoded.codes):
            _deal(self._channels, rows, stamps, keys.targets)
            return
        batch, targets = rows.batch(), keys.targets
        for target, part in enumerate(parts_of(targets, len(self._channels))):
            if not len(part):
                continue
            indices = pa.array(part)
            columns = [
                _own_entries(keys, encoded.values, part, target) if at == self._places[0] else column.take(indices)
                for at, column in enumerate(batch.columns)
            ]
            dealt = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
            self._channels[target].add(Columns(rows.schema, dealt), _stamps_of(stamps, targets, part, target))


def _deal(channels: Sequence[Outgoing], rows: Columns, stamps: Stamps, targets: Codes) -> None:
    """Add each row to the channel that is its target."""
    for target, part in enumerate(parts_of(targets, len(channels))):
        if len(part):
            channels[target].add(rows.take(part), _stamps_of(stamps, targets, part, target))


def _is_text(column: pa.Array) -> bool:
    kind = column.type.value_type if isinstance(column, pa.DictionaryArray) else column.type
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _own_entries(keys: Keys, values: pa.Array, part: Codes, target: int) -> pa.Array:
    """Return the keys of the rows in `part` with a dictionary of those keys that `target` owns."""
    own = keys.owners == target
    number = (np.cumsum(own) - 1).astype(np.int32)
    indices = pa.array(number[keys.codes[part]])
    return pa.DictionaryArray.from_arrays(indices, values.filter(pa.array(own)), safe=False)


def _stamps_of(stamps: Stamps, targets: Codes, part: Codes, target: int) -> Stamps:
    return [(int(np.searchsorted(part, at)), stamp) for at, stamp in stamps if targets[at] == target]


def deal_directly(channels: Sequence[Outgoing], rows: Columns, stamps: Stamps, place: int) -> None:
    """Add each row to the channel whose index is the value of its field at `place`.

    Raises:
        RunError: there is no such channel.
    """
    targets = rows.batch().column(place).to_numpy()
    outside = targets[(targets < 0) | (targets >= len(channels))]
    if len(outside):
        raise no_executor(int(outside[0]), len(channels))
    _deal(channels, rows, stamps, targets.astype(np.intp))


def combined_columns(combine: Combine, rows: Columns, stamps: Stamps) -> tuple[Sequence[Row], Stamps]:
    """Return the combined rows, followed by the rows that have stamps."""
    sampled = np.array([at for at, _ in stamps], np.intp)
    merged = joined([], combine(rows.take(np.delete(np.arange(len(rows)), sampled))))
    first, apart = len(merged), rows.take(sampled)
    merged = joined(merged, apart if isinstance(merged, Columns) else apart.to_rows())
    return merged, [(first + at, stamp) for at, (_, stamp) in enumerate(stamps)]
