"""Groupings of columns: the channel of each row, determined for a batch at once.

The rows of each channel are taken together, in their order, and their stamps with them. The owner of a key is looked up
once per distinct key of a batch; that of a text, once until the next barrier: the texts of a channel are the entries of
a dictionary that grows, and what is sent are their indices.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agents.worker.channels.channel import Outgoing
from agents.worker.wire.frame import Stamps
from workloads.arrays import CellTable, decoded, keys_of, owners_of, rows_per_target
from workloads.columns import Columns, joined_rows
from workloads.dictionaries import (
    Codes,
    Dictionary,
    DictionaryEncoder,
    EntryNumbers,
    dictionary_of,
    indices_of,
    text_buffers,
)
from workloads.operators import Combine, Row

PAUSE = 64
"""Batches that are dealt without dictionaries after these were full."""


class KeyedColumns:
    """Fields grouping of columns."""

    def __init__(self, channels: Sequence[Outgoing], places: Sequence[int], route: Callable[[Any], int]) -> None:
        """Create it for a key whose fields are at `places`; `route` returns the owner of a key."""
        self._channels, self._places, self._route = channels, places, route
        self._owners = CellTable(len(places), lambda key: route(key if len(key) > 1 else key[0]))
        self._texts: _TextKeys | None = None

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
        deal_to(self._channels, rows, stamps, targets)

    def _deal_by_text(self, rows: Columns, stamps: Stamps, key: pa.Array) -> None:
        texts = self._texts
        if texts is None or not texts.is_current:
            kind = key.type.value_type if isinstance(key, pa.DictionaryArray) else key.type
            texts = self._texts = _TextKeys(self._channels, self._route, kind)
        placed = texts.of(key)
        if placed is None:
            deal_to(self._channels, rows, stamps, keys_of([key], self._route).targets)
            return
        batch, (targets, indices) = rows.batch(), placed
        of_channel = _Stamps(stamps, targets)
        for target, part in enumerate(rows_per_target(targets, len(self._channels))):
            if not len(part):
                continue
            taken = pa.array(part)
            columns = [
                texts.column(target, indices[part]) if at == self._places[0] else column.take(taken)
                for at, column in enumerate(batch.columns)
            ]
            dealt = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
            self._channels[target].add(Columns(rows.schema, dealt), of_channel.taken(part, target))


class _TextKeys:
    """Texts that were keys since the last barrier: the channel of each, and its index in that channel's dictionary."""

    def __init__(self, channels: Sequence[Outgoing], route: Callable[[Any], int], kind: pa.DataType) -> None:
        self._channels, self._route = channels, route
        self._encoder = DictionaryEncoder(kind)
        self._paused = 0
        self._forget()

    def _forget(self) -> None:
        self._encoder.forget()
        self._numbered = self._encoder.dictionary
        self._generations = [channel.generation for channel in self._channels]
        self._dictionaries = [Dictionary(self._numbered.kind) for _ in self._channels]
        # By entry of the encoder: its channel in the upper 32 bits, its index in the lower.
        self._places = np.empty(0, np.int64)
        self._entries = EntryNumbers(self._places_of)

    @property
    def is_current(self) -> bool:
        """True if the channels are the same as before, and no barrier has passed."""
        return all(
            channel.generation is before for channel, before in zip(self._channels, self._generations, strict=True)
        )

    def column(self, target: int, indices: npt.NDArray[np.int32]) -> pa.DictionaryArray:
        """Return rows of a channel."""
        return pa.DictionaryArray.from_arrays(pa.array(indices), self._dictionaries[target].values, safe=False)

    def of(self, key: pa.Array) -> tuple[Codes, npt.NDArray[np.int32]] | None:
        """Return channel and index of each row's key; None: they do not repeat enough to be kept."""
        if self._paused:
            self._paused -= 1
            return None
        if dictionary_of(key) is None:
            encoded = self._encoder.encode(decoded(key))
            has_room = self._has_places()
            places = self._places[indices_of(encoded)] if encoded is not None and has_room else None
        else:
            places = self._entries.of(key)
            has_room = self._has_places()
        if not has_room:
            # Whatever fills dictionaries so quickly is better off without.
            self._forget()
            self._paused = PAUSE
            return None
        if places is None:
            return None
        return places >> 32, places.astype(np.int32)

    def _places_of(self, values: pa.Array) -> npt.NDArray[np.int64]:
        codes = self._encoder.codes_of(values)
        if codes is None or not self._has_places():
            return np.zeros(len(values), np.int64)
        return self._places[codes]

    def _has_places(self) -> bool:
        """Give new entries of the encoder their places; return whether all have one."""
        return self._encoder.dictionary is self._numbered and self._place_new()

    def _place_new(self) -> bool:
        first = len(self._places)
        values = self._numbered.values.slice(first)
        if not len(values):
            return True
        owners = owners_of(values.to_pylist(), self._route)
        places = owners.astype(np.int64) << 32
        for target in np.unique(owners).tolist():
            mine = np.flatnonzero(owners == target)
            fresh, dictionary = values.take(pa.array(mine)), self._dictionaries[target]
            if dictionary.nbytes + len(text_buffers(fresh)[1]) > self._channels[target].dictionary_bytes:
                return False
            places[mine] |= np.arange(len(dictionary), len(dictionary) + len(mine))
            dictionary.append(fresh)
        self._places = np.concatenate([self._places, places])
        return True


def deal_to(channels: Sequence[Outgoing], rows: Columns, stamps: Stamps, targets: Codes) -> None:
    """Add each row to the channel that is its target."""
    of_channel = _Stamps(stamps, targets)
    for target, part in enumerate(rows_per_target(targets, len(channels))):
        if len(part):
            channels[target].add(rows.take(part), of_channel.taken(part, target))


def _is_text(column: pa.Array) -> bool:
    kind = column.type.value_type if isinstance(column, pa.DictionaryArray) else column.type
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


class _Stamps:
    """Stamps of a batch that is dealt."""

    def __init__(self, stamps: Stamps, targets: Codes) -> None:
        self._rows = np.fromiter((at for at, _ in stamps), np.intp, len(stamps))
        self._times = [time for _, time in stamps]
        self._targets = targets[self._rows]

    def taken(self, part: Codes, target: int) -> Stamps:
        """Return those of the rows `part`, which are all that go to `target`."""
        mine = np.flatnonzero(self._targets == target)
        if not len(mine):
            return ()
        places = np.searchsorted(part, self._rows[mine]).tolist()
        return list(zip(places, map(self._times.__getitem__, mine.tolist()), strict=True))


def combined_columns(combine: Combine, rows: Columns, stamps: Stamps) -> tuple[Sequence[Row], Stamps]:
    """Return the combined rows, followed by the rows that have stamps."""
    sampled = np.array([at for at, _ in stamps], np.intp)
    merged = joined_rows([], combine(rows.take(np.delete(np.arange(len(rows)), sampled))))
    first, apart = len(merged), rows.take(sampled)
    merged = joined_rows(merged, apart if isinstance(merged, Columns) else apart.to_rows())
    return merged, [(first + at, stamp) for at, (_, stamp) in enumerate(stamps)]
