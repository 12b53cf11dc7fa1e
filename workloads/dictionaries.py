"""Dictionaries of text that grow from batch to batch, and the numbers of values in them.

The distinct values of a stream of text hardly change from one batch to the next. A `Dictionary` keeps them: its entries
are appended to, never changed, so that columns of many batches share it, and whatever depends on an entry alone (its
owner, its count so far) is looked up once per entry, not once per batch. `dictionary_of` finds it by the memory of its
entries.

`DictionaryEncoder` is an open-addressing hash table of NumPy arrays, so that no Python runs per value of a batch.
"""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Codes = npt.NDArray[np.intp]
Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.integer[Any]]

MOST_ENTRIES = 1 << 17
MOST_BYTES = 4 << 20
"""Limits of one dictionary: its entries, and their contents."""

SLACK = 16
"""Bytes that must follow the text of `DictionaryEncoder.codes_at`; what they are does not matter."""

_SHORT = 15
"""Longest value, in bytes, that the hash table holds; 8 bytes in one word, 7 and the length in another."""

_MASKS = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
_MOST_PAUSED = 64


class Dictionary:
    """Distinct values of `kind`, string or binary, in the order in which they were added.

    Attributes:
        longest: bytes of the longest entry.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self.longest = 0
        self._count = 0
        self._offsets = np.zeros(256, np.int32)
        self._array: pa.Array | None = None
        # Earlier contents are kept, so that no other dictionary gets their address while this one lives.
        self._contents: list[Bytes] = []
        self._reserve(1024)

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes of all entries' contents."""
        return int(self._offsets[self._count])

    @property
    def values(self) -> pa.Array:
        """All entries."""
        if self._array is None:
            buffers = [None, *map(pa.py_buffer, (self._offsets[: self._count + 1], self._contents[-1]))]
            self._array = pa.Array.from_buffers(self.kind, self._count, buffers)
        return self._array

    def append(self, values: pa.Array) -> None:
        """Add values that are no entries yet, each once."""
        offsets, contents = text_buffers(values)
        count, used = self._count + len(values), self.nbytes
        self._reserve(used + len(contents))
        if count >= len(self._offsets):
            self._offsets = np.concatenate([self._offsets, np.zeros(max(count, len(self._offsets)), np.int32)])
        self._contents[-1][used : used + len(contents)] = contents
        self._offsets[self._count + 1 : count + 1] = offsets[1:] + used
        self.longest = max(self.longest, int(np.diff(offsets).max(initial=0)))
        self._count, self._array = count, None

    def _reserve(self, size: int) -> None:
        have = self._contents[-1] if self._contents else np.empty(0, np.uint8)
        if size <= len(have):
            return
        larger = np.empty(max(size, 2 * len(have)), np.uint8)
        larger[: len(have)] = have
        self._contents.append(larger)
        _living[larger.ctypes.data] = self


_living: "WeakValueDictionary[int, Dictionary]" = WeakValueDictionary()
"""Dictionaries by the addresses of their contents."""


def dictionary_of(column: pa.Array) -> Dictionary | None:
    """Return the dictionary that the entries of a column belong to; None: they are its own, or it has none."""
    if not isinstance(column, pa.DictionaryArray):
        return None
    entries = column.dictionary
    buffers = entries.buffers()
    living = _living.get(buffers[-1].address) if buffers[-1] is not None and len(buffers) == 3 else None
    return living if living is not None and not entries.offset and entries.type == living.kind else None


class EntryNumbers:
    """Numbers that depend on an entry of a dictionary alone, determined once per entry."""

    def __init__(self, number: Callable[[pa.Array], npt.NDArray[np.int64]]) -> None:
        """Create it; `number` returns the numbers of values, each of which occurs once."""
        self._number = number
        self._known: WeakKeyDictionary[Dictionary, npt.NDArray[np.int64]] = WeakKeyDictionary()

    def of(self, column: pa.DictionaryArray) -> npt.NDArray[np.int64]:
        """Return the number of each row's value."""
        dictionary, entries = dictionary_of(column), column.dictionary
        if dictionary is None:
            return self._number(entries)[indices_of(column)]
        known = self._known.get(dictionary)
        if known is None:
            known = self._known[dictionary] = self._number(entries)
        elif len(known) < len(entries):
            more = self._number(entries.slice(len(known)))
            known = self._known[dictionary] = np.concatenate([known, more])
        return known[indices_of(column)]


class Tally:
    """Sums per text; entries of dictionaries are only looked at when it is drained."""

    def __init__(self) -> None:
        self._sums: dict[Dictionary, npt.NDArray[np.int64]] = {}

    @property
    def is_full(self) -> bool:
        """True if it holds dictionaries of `MOST_BYTES` together, or 64, which others may have forgotten."""
        return len(self._sums) > 1 and (len(self._sums) > 64 or sum(each.nbytes for each in self._sums) > MOST_BYTES)

    def add(self, column: pa.Array, numbers: npt.NDArray[np.int64] | None = None) -> Iterator[tuple[Any, int]]:
        """Add a row's number, which is positive, to its text, or 1; return what was added to others than entries."""
        dictionary = dictionary_of(column)
        if dictionary is None:
            encoded = column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()
            sums = code_sums(indices_of(encoded), numbers, len(encoded.dictionary))
            return _positive(encoded.dictionary, sums)
        sums = code_sums(indices_of(column), numbers, len(column.dictionary))
        before = self._sums.get(dictionary)
        if before is not None:
            larger, smaller = (before, sums) if len(before) >= len(sums) else (sums, before)
            larger[: len(smaller)] += smaller
            sums = larger
        self._sums[dictionary] = sums
        return iter(())

    def drain(self) -> Iterator[tuple[Any, int]]:
        """Return text and sum of all entries that were added to, and begin anew; a text may occur several times."""
        held, self._sums = self._sums, {}
        return chain.from_iterable(_positive(dictionary.values, sums) for dictionary, sums in held.items())


def _positive(values: pa.Array, sums: npt.NDArray[np.int64]) -> Iterator[tuple[Any, int]]:
    at = np.flatnonzero(sums)
    return zip(values.take(pa.array(at)).to_pylist(), sums[at].tolist(), strict=True)


def code_sums(codes: Places, numbers: npt.NDArray[np.int64] | None, count: int) -> npt.NDArray[np.int64]:
    """Return the sum of the numbers of each of `count` codes; without numbers, how often it occurs."""
    if numbers is None:
        return np.bincount(codes, minlength=count)
    if not len(numbers) or (int(numbers.min()) >= 0 and int(numbers.max()) * len(numbers) < 1 << 53):
        # Sums of floats are exact up to here, and take a fraction of the time.
        return np.bincount(codes, numbers, count).astype(np.int64)
    sums = np.zeros(count, np.int64)
    np.add.at(sums, codes, numbers)
    return sums


def indices_of(column: pa.DictionaryArray) -> Places:
    """Return the indices of a dictionary-encoded column, without copying them."""
    places: Places = column.indices.to_numpy()
    return places


def text_buffers(values: pa.Array) -> tuple[npt.NDArray[np.int32], Bytes]:
    """Return offsets that begin at 0, and contents, of a plain string or binary column without nulls."""
    _, offsets, contents = values.buffers()
    if not len(values):
        return np.zeros(1, np.int32), np.empty(0, np.uint8)
    places = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    start, stop = int(places[0]), int(places[-1])
    return places - start, np.frombuffer(contents, np.uint8)[start:stop] if stop > start else np.empty(0, np.uint8)


def values_at(kind: pa.DataType, text: Bytes, starts: Places, sizes: Places) -> pa.Array:
    """Return parts of a text as a column."""
    offsets = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    inside = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], sizes)
    return pa.Array.from_buffers(
        kind, len(starts), [None, *map(pa.py_buffer, (offsets, text[inside].astype(np.uint8, copy=False)))]
    )


class DictionaryEncoder:
    """Encodes text by a dictionary that it fills.

    Of text that hardly repeats, nothing is gained: a batch of which more than half of the rows would be new entries is
    left as it is, as are the next batches, twice as many every time. A dictionary that is full is forgotten.

    Attributes:
        dictionary: of the values so far; another one after it was forgotten.
    """

    def __init__(self, kind: pa.DataType) -> None:
        """Create it for columns of `kind`, string or binary."""
        self._kind = kind
        self._paused = self._pause = 0
        self.forget()

    def forget(self) -> None:
        """Begin with an empty dictionary."""
        self.dictionary = Dictionary(self._kind)
        self._long: dict[bytes, int] = {}
        # Number 0 is of a value that cannot occur, so that an empty place of the table needs no test of its own.
        self._low, self._high = np.zeros(1024, np.uint64), np.full(1024, ~np.uint64(0))
        self._table = np.zeros(4096, np.int32)

    def encode(self, column: pa.Array) -> pa.DictionaryArray | None:
        """Encode a plain column; None: it is not worth it."""
        offsets, contents = text_buffers(column)
        text = np.empty(len(contents) + SLACK, np.uint8)
        text[: len(contents)] = contents
        return self.encode_parts(text, offsets[:-1], np.diff(offsets))

    def encode_parts(self, text: Bytes, starts: Places, sizes: Places) -> pa.DictionaryArray | None:
        """Encode parts of a text, `SLACK` bytes longer than its last part, as a column; None: it is not worth it."""
        codes = self.codes_at(text, starts, sizes)
        if codes is None:
            return None
        return pa.DictionaryArray.from_arrays(pa.array(codes), self.dictionary.values, safe=False)

    def codes_at(self, text: Bytes, starts: Places, sizes: Places) -> npt.NDArray[np.int32] | None:
        """Return the index in the dictionary of each part of a text; None: it is not worth it."""
        if self._paused:
            self._paused -= 1
            return None
        codes = self._codes(text, starts, sizes, len(starts) // 2)
        if codes is None:
            self._pause = min(2 * self._pause + 1, _MOST_PAUSED)
            self._paused = self._pause
        else:
            self._pause //= 2
        return codes

    def codes_of(self, values: pa.Array) -> npt.NDArray[np.int32] | None:
        """Return the index of each value, however many are new; None: they do not fit, and the dictionary is empty."""
        offsets, contents = text_buffers(values)
        text = np.concatenate([contents, np.zeros(SLACK, np.uint8)])
        return self._codes(text, offsets[:-1], np.diff(offsets), len(values))

    def _codes(self, text: Bytes, starts: Places, sizes: Places, most: int) -> npt.NDArray[np.int32] | None:
        low, high = _words(text, starts, sizes)
        codes = self._short_codes(low, high)
        long = np.flatnonzero(sizes > _SHORT)
        if len(long):
            codes[long] = self._long_codes(text, starts[long], sizes[long], 8 * len(long) > len(sizes))
        missing = np.flatnonzero(codes < 0)
        if not len(missing):
            return codes
        fresh = values_at(self._kind, text, starts[missing], sizes[missing]).dictionary_encode()
        values = fresh.dictionary
        if len(values) > most:
            return None
        if not self._has_room(values):
            self.forget()
            return None
        codes[missing] = len(self.dictionary) + fresh.indices.to_numpy()
        self._add(values)
        return codes

    def _long_codes(self, text: Bytes, starts: Places, sizes: Places, many: bool) -> npt.NDArray[np.int32]:
        get = self._long.get
        if many:
            parts = values_at(pa.binary(), text, starts, sizes).dictionary_encode()
            numbers = [get(value, -1) for value in parts.dictionary.to_pylist()]
            return np.array(numbers, np.int32)[indices_of(parts)]
        # A few cost less one by one than in four calls into Arrow.
        whole, stops = text.tobytes(), (starts + sizes).tolist()
        return np.array([get(whole[at:stop], -1) for at, stop in zip(starts.tolist(), stops, strict=True)], np.int32)

    def _has_room(self, values: pa.Array) -> bool:
        nbytes = self.dictionary.nbytes + len(text_buffers(values)[1])
        return len(self.dictionary) + len(values) <= MOST_ENTRIES and nbytes <= MOST_BYTES

    def _short_codes(self, low: npt.NDArray[np.uint64], high: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
        """Return the index of each value, given its two words; -1 if it is none."""
        places = self._places(low, high)
        entries = self._table.take(places)
        same = self._low.take(entries) == low
        same &= self._high.take(entries) == high
        open_ = np.flatnonzero(~same)
        open_ = open_[entries[open_] > 0]
        while len(open_):
            places[open_] = (places[open_] + 1) & (len(self._table) - 1)
            at = entries[open_] = self._table[places[open_]]
            other = (self._low[at] != low[open_]) | (self._high[at] != high[open_])
            open_ = open_[other & (at > 0)]
        entries -= 1
        return entries

    def _places(self, low: npt.NDArray[np.uint64], high: npt.NDArray[np.uint64]) -> Codes:
        mixed = low * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= high * np.uint64(0xC2B2AE3D27D4EB4F)
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed >>= np.uint64(65 - len(self._table).bit_length())
        return mixed.view(np.intp)

    def _add(self, values: pa.Array) -> None:
        """Add values that are no entries yet."""
        first = len(self.dictionary)
        offsets, contents = text_buffers(values)
        starts, sizes = offsets[:-1], np.diff(offsets)
        self.dictionary.append(values)
        count = len(self.dictionary) + 1
        while len(self._low) < count:
            self._low = np.concatenate([self._low, self._low])
            self._high = np.concatenate([self._high, self._high])
        low, high = _words(np.concatenate([contents, np.zeros(SLACK, np.uint8)]), starts, sizes)
        self._low[first + 1 : count], self._high[first + 1 : count] = low, high
        whole = contents.tobytes()
        for at in np.flatnonzero(sizes > _SHORT).tolist():
            self._long[whole[offsets[at] : offsets[at + 1]]] = first + at
        if 3 * count > len(self._table):
            self._table = np.zeros(1 << (4 * count).bit_length(), np.int32)
            self._insert(np.arange(1, count))
        else:
            self._insert(np.arange(first + 1, count))

    def _insert(self, numbers: Codes) -> None:
        """Give numbers of short values their places in the table."""
        numbers = numbers[self._high[numbers] >> np.uint64(56) <= _SHORT]
        places = self._places(self._low[numbers], self._high[numbers])
        while len(numbers):
            free = self._table[places] == 0
            self._table[places[free]] = numbers[free]
            # Of several numbers for one place, the last has got it.
            left = self._table[places] != numbers
            numbers, places = numbers[left], (places[left] + 1) & (len(self._table) - 1)


def _words(text: Bytes, starts: Places, sizes: Places) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Return two words for each part of a text, which no two short parts have in common; the second has the length.

    The length of a part that is not short is capped at 255.
    """
    at = np.ndarray((len(text) - 7,), np.dtype("<u8"), text, strides=(1,))
    low = at[starts]
    low &= _MASKS.take(np.minimum(sizes, 8))
    high = np.minimum(sizes, 255).astype(np.uint64)
    high <<= np.uint64(56)
    longer = np.flatnonzero(sizes > 8)
    if len(longer):
        rest = at[starts[longer] + 8]
        rest &= _MASKS.take(np.minimum(sizes[longer] - 8, 7))
        high[longer] |= rest
    return low, high
