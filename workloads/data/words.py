"""The words of a column of lines."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_NARROW_SPACE = bytes(at for at in range(128) if chr(at).isspace())
"""White space of ASCII to `str.split`; that of other alphabets, below, takes two or three bytes of UTF-8."""

_INSIDE = bytes(at not in _NARROW_SPACE for at in range(256))
"""For each byte whether it may be part of a word."""

_WIDE = [chr(at).encode() for at in range(128, 0xD800) if chr(at).isspace()]
_WIDE_SPACE = {size: [int.from_bytes(space) for space in _WIDE if len(space) == size] for size in (2, 3)}
"""As whole numbers, by size."""


class Words(NamedTuple):
    """Words in their order; `lines` returns the number of the line of each."""

    words: pa.Array
    lines: Callable[[], npt.NDArray[np.intp]]


def words_of(lines: pa.Array) -> Words:
    """Return the words of lines, those that `str.split` finds in each."""
    offsets = np.frombuffer(lines.buffers()[1], np.int32)[lines.offset : lines.offset + len(lines) + 1]
    start, stop = int(offsets[0]), int(offsets[-1])
    if start == stop:
        return _of_unicode(lines)
    text = bytes(memoryview(lines.buffers()[2])[start:stop])
    if not text.isascii() and _has_wide_space(text):
        return _of_unicode(lines)
    inside = np.frombuffer(text.translate(_INSIDE), bool)
    borders = offsets - start
    begins, ends = inside.copy(), inside.copy()
    begins[1:] &= ~inside[:-1]
    ends[:-1] &= ~inside[1:]
    # A word also begins, and ends, with its line, whether or not the line before ends with white space.
    at = borders[:-1][borders[:-1] < len(text)]
    begins[at] = inside[at]
    at = borders[1:][borders[1:] > 0] - 1
    ends[at] = inside[at]
    firsts = np.flatnonzero(begins)
    found = np.zeros(len(firsts) + 1, np.int32)
    np.cumsum(np.flatnonzero(ends) - firsts + 1, out=found[1:])
    contents = pa.py_buffer(text.translate(None, _NARROW_SPACE))
    words = pa.Array.from_buffers(pa.string(), len(firsts), [None, pa.py_buffer(found), contents])
    return Words(words, lambda: np.searchsorted(borders, firsts, side="right") - 1)


def _has_wide_space(text: bytes) -> bool:
    # Looking for one after the other would take three times as long as all else.
    contents = np.frombuffer(text + bytes(2), np.uint8)
    at = np.flatnonzero(contents >= 0xC2)  # the first byte of a character beyond ASCII
    two = contents[at].astype(np.int32) << 8 | contents[at + 1]
    three = two << 8 | contents[at + 2]
    return bool(np.isin(two, _WIDE_SPACE[2]).any() or np.isin(three, _WIDE_SPACE[3]).any())


def _of_unicode(lines: pa.Array) -> Words:
    # What Arrow's utf8_split_whitespace (26.0) makes of such lines depends on what memory held before.
    split = [line.split() for line in lines.to_pylist()]
    words = pa.array([word for words in split for word in words], pa.string())
    sizes = np.array([len(words) for words in split], np.intp)
    return Words(words, lambda: np.repeat(np.arange(len(split)), sizes))
