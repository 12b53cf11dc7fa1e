"""The words of a column of lines."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from workloads.dictionaries import SLACK, DictionaryEncoder

_NARROW_SPACE = bytes(at for at in range(128) if chr(at).isspace())
"""White space of ASCII to `str.split`; that of other alphabets, below, takes two or three bytes of UTF-8."""

_WIDE = [chr(at).encode() for at in range(128, 0xD800) if chr(at).isspace()]
_WIDE_SPACE = {size: {int.from_bytes(space) for space in _WIDE if len(space) == size} for size in (2, 3)}
"""As whole numbers, by size."""

_MAY_BE_WIDE = np.zeros(1 << 16, bool)
_MAY_BE_WIDE[[int.from_bytes(space[:2]) for space in _WIDE]] = True
"""For two bytes whether white space begins with them."""


class Words(NamedTuple):
    """Words in their order; `lines` returns the number of the line of each."""

    words: pa.Array
    lines: Callable[[], npt.NDArray[np.intp]]


class WordPlaces(NamedTuple):
    """Places of words in a text, which is as much longer as a `DictionaryEncoder` wants; `lines` as of `Words`."""

    text: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.intp]
    sizes: npt.NDArray[np.intp]
    lines: Callable[[], npt.NDArray[np.intp]]


def words_of(lines: pa.Array) -> Words:
    """Return the words of lines, those that `str.split` finds in each."""
    places = word_places(lines)
    return _of_unicode(lines) if places is None else Words(_cut(places), places.lines)


class WordEncoder:
    """Finds the words of lines, and encodes them by a dictionary that it keeps, where they repeat."""

    def __init__(self) -> None:
        self._encoder = DictionaryEncoder(pa.string())

    def words_of(self, lines: pa.Array) -> Words:
        """Return the same words as `words_of`."""
        places = word_places(lines)
        if places is None:
            words, numbers = _of_unicode(lines)
            encoded = self._encoder.encode(words)
            return Words(words if encoded is None else encoded, numbers)
        encoded = self._encoder.encode_parts(places.text, places.starts, places.sizes)
        return Words(_cut(places) if encoded is None else encoded, places.lines)


def _cut(places: WordPlaces) -> pa.Array:
    offsets = np.zeros(len(places.sizes) + 1, np.int32)
    np.cumsum(places.sizes, out=offsets[1:])
    contents = pa.py_buffer(places.text[:-SLACK].tobytes().translate(None, _NARROW_SPACE))
    return pa.Array.from_buffers(pa.string(), len(places.sizes), [None, pa.py_buffer(offsets), contents])


def word_places(lines: pa.Array) -> WordPlaces | None:
    """Return where the words of lines are; None: there is other white space than that of ASCII, or no text."""
    offsets = np.frombuffer(lines.buffers()[1], np.int32)[lines.offset : lines.offset + len(lines) + 1]
    start, stop = int(offsets[0]), int(offsets[-1])
    if start == stop:
        return None
    text = np.empty(stop - start + SLACK, np.uint8)
    contents = text[:-SLACK]
    contents[:] = np.frombuffer(lines.buffers()[2], np.uint8)[start:stop]
    text[-SLACK:] = 0
    if int(contents.max()) >= 128 and _has_wide_space(text):
        return None
    # 9 to 13, 28 to 31 and 32: comparisons of whole arrays take a third of the time of a table.
    outside = contents == 32
    outside |= contents - np.uint8(9) <= 4
    outside |= contents - np.uint8(28) <= 3
    borders = offsets - start
    begins, ends = np.empty(len(contents), bool), np.empty(len(contents), bool)
    begins[0], ends[-1] = not outside[0], not outside[-1]
    np.less(outside[1:], outside[:-1], out=begins[1:])
    np.less(outside[:-1], outside[1:], out=ends[:-1])
    # A word also begins, and ends, with its line, whether or not the line before ends with white space.
    at = borders[:-1][borders[:-1] < len(contents)]
    begins[at] = ~outside[at]
    at = borders[1:][borders[1:] > 0] - 1
    ends[at] = ~outside[at]
    starts = np.flatnonzero(begins)
    sizes = np.flatnonzero(ends)
    sizes -= starts
    sizes += 1

    def numbers() -> npt.NDArray[np.intp]:
        # Lines are fewer than words.
        return np.repeat(np.arange(len(lines)), np.diff(np.searchsorted(starts, borders)))

    return WordPlaces(text, starts, sizes, numbers)


def _has_wide_space(text: npt.NDArray[np.uint8]) -> bool:
    # Looking for one after the other would take three times as long as all else.
    at = np.flatnonzero(text[:-2] >= 0xC2)  # the first byte of a character beyond ASCII
    two = text[at].astype(np.int32) << 8 | text[at + 1]
    at, two = at[_MAY_BE_WIDE[two]], two[_MAY_BE_WIDE[two]]
    three = two << 8 | text[at + 2]
    return not (_WIDE_SPACE[2].isdisjoint(two.tolist()) and _WIDE_SPACE[3].isdisjoint(three.tolist()))


def _of_unicode(lines: pa.Array) -> Words:
    # What Arrow's utf8_split_whitespace (26.0) makes of such lines depends on what memory held before.
    split = [line.split() for line in lines.to_pylist()]
    words = pa.array([word for words in split for word in words], pa.string())
    sizes = np.array([len(words) for words in split], np.intp)
    return Words(words, lambda: np.repeat(np.arange(len(split)), sizes))
